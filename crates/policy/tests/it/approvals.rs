//! Who must say yes.

use exeat_core::gate::verdict::PolicyDenial::{DeniedByPolicy, NoPolicyAllows};
use exeat_core::gate::verdict::{Governor as _, Opinion};
use exeat_policy::{PLATFORM_DEFAULT, STARTER};

use crate::world::*;

const EVERY_EGRESS: &str = r#"
    @id("ask-ops") @approval("ops") @reason("A person sees what leaves.")
    forbid (principal, action == Action::"a2a_egress", resource);"#;

#[test]
fn a_matching_approval_forbid_asks_instead_of_denying() {
    let judgement = starter_and(EVERY_EGRESS).judge(&egress(hop()));
    assert_eq!(judgement.opinion, roles(&["ops"]));
    assert_eq!(ids(&judgement), ["ask-ops"]);
    assert_eq!(judgement.because[0].reason.as_deref(), Some("A person sees what leaves."));
}

#[test]
fn an_approval_forbid_that_does_not_match_asks_nobody() {
    let sets = starter_and(
        r#"@id("ask") @approval("ops") forbid (principal, action, resource) when { context has first_contact && context.first_contact };"#,
    );
    assert_eq!(opinion(&sets, &egress(hop())), Opinion::Allow);
    let mut first = hop();
    first.first_contact = true;
    assert_eq!(opinion(&sets, &egress(first)), roles(&["ops"]));
}

#[test]
fn the_roles_of_all_matching_policies_of_both_sets_are_asked_platform_first() {
    let platform = format!(
        r#"{PLATFORM_DEFAULT}
        @id("p-legal") @approval("legal") forbid (principal, action, resource);
        @id("p-other") @approval("nobody") forbid (principal, action == Action::"forward", resource);"#
    );
    let org = format!(
        r#"{STARTER} {EVERY_EGRESS}
        @id("a-more") @approval("finance") forbid (principal, action, resource)
            when {{ context has price_microusd && context.price_microusd > 10000 }};
        @id("b-same") @approval("ops") forbid (principal, action, resource);"#
    );
    let judgement = sets(&platform, &org).judge(&egress(hop()));
    assert_eq!(judgement.opinion, roles(&["finance", "legal", "ops"]));
    assert_eq!(ids(&judgement), ["p-legal", "a-more", "ask-ops", "b-same"]);
}

#[test]
fn one_set_that_asks_is_enough_and_the_other_is_no_ground() {
    let asks = format!("{PLATFORM_DEFAULT} {EVERY_EGRESS}");
    for (platform, org) in [(asks.as_str(), STARTER), (PLATFORM_DEFAULT, asks.as_str())] {
        let judgement = sets(platform, org).judge(&egress(hop()));
        assert_eq!(judgement.opinion, roles(&["ops"]));
        assert_eq!(ids(&judgement), ["ask-ops"]);
    }
}

#[test]
fn nobody_is_asked_about_what_is_denied_anyway() {
    let no = r#"@id("no") forbid (principal, action, resource);"#;
    let asks_and_denies = format!("{STARTER} {EVERY_EGRESS} {no}");
    let asks_only = EVERY_EGRESS;
    let asks = format!("{PLATFORM_DEFAULT} {EVERY_EGRESS}");
    let table = [
        (PLATFORM_DEFAULT, asks_and_denies.as_str(), DeniedByPolicy),
        (PLATFORM_DEFAULT, asks_only, NoPolicyAllows),
        (asks.as_str(), no, DeniedByPolicy),
        (no, asks.as_str(), DeniedByPolicy),
    ];
    for (platform, org, denial) in table {
        let judgement = sets(platform, org).judge(&egress(hop()));
        assert_eq!(judgement.opinion, Opinion::Deny(denial), "{platform:?} {org:?}");
        assert!(!ids(&judgement).contains(&"ask-ops"));
    }
}

#[test]
fn a_set_tells_which_roles_it_may_ask() {
    let set = set(&format!("{STARTER} {EVERY_EGRESS}"));
    assert_eq!(set.approver_roles().into_iter().collect::<Vec<_>>(), ["ops"]);
    assert_eq!(
        set.ids().into_iter().collect::<Vec<_>>(),
        ["ask-ops", "starter-admin", "starter-foreign", "starter-internal"]
    );
}
