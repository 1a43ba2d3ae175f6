//! A policy that can't be evaluated denies. Cedar alone would skip it, and with it a `forbid`.

use exeat_core::gate::verdict::PolicyDenial::{DeniedByPolicy, PolicyError};
use exeat_core::gate::verdict::{Governor as _, Opinion};
use exeat_policy::{PLATFORM_DEFAULT, Sets};

use crate::world::*;

/// Valid against the schema, and overflows when it is evaluated with a price above one.
const OVERFLOW: &str =
    "when { context has price_microusd && context.price_microusd * 9223372036854775807 > 0 }";
/// Valid against the schema; the entity isn't there when it is evaluated.
const ABSENT: &str = r#"when { Agent::"nobody".ceiling.level > 0 }"#;

fn erring(id: &str, effect: &str, annotation: &str, condition: &str) -> String {
    format!(r#"@id("{id}") {annotation} {effect} (principal, action, resource) {condition};"#)
}

fn is_error_of(sets: &Sets, id: &str) {
    let explanation = sets.explain(&egress(hop()));
    assert_eq!(explanation.judgement.opinion, Opinion::Deny(PolicyError), "{explanation:#?}");
    assert_eq!(ids(&explanation.judgement), [id]);
    assert_eq!(explanation.judgement, sets.judge(&egress(hop())));
    let [trouble] = explanation.troubles.as_slice() else { panic!("{explanation:#?}") };
    assert_eq!(trouble.policy_id.as_deref(), Some(id));
    assert!(!trouble.message.is_empty());
}

#[test]
fn an_error_in_either_pass_of_either_set_denies_though_a_permit_matches() {
    for condition in [OVERFLOW, ABSENT] {
        for (effect, annotation) in [("forbid", ""), ("permit", ""), ("forbid", r#"@approval("ops")"#)] {
            let broken = format!("{PLATFORM_DEFAULT} {}", erring("broken", effect, annotation, condition));
            is_error_of(&sets(PLATFORM_DEFAULT, &broken), "broken");
            is_error_of(&sets(&broken, PLATFORM_DEFAULT), "broken");
        }
    }
}

#[test]
fn cedar_alone_would_have_allowed_what_a_broken_forbid_forbids() {
    // The same policy, asked about what doesn't overflow, allows: it is the error that denies, nothing else.
    let broken = format!("{PLATFORM_DEFAULT} {}", erring("broken", "forbid", "", OVERFLOW));
    let sets = sets(PLATFORM_DEFAULT, &broken);
    let mut free = hop();
    free.price_microusd = 0;
    assert_eq!(opinion(&sets, &egress(free.clone())), Opinion::Allow);
    free.price_microusd = 1;
    assert_eq!(opinion(&sets, &egress(free.clone())), Opinion::Deny(DeniedByPolicy));
    free.price_microusd = 2;
    assert_eq!(opinion(&sets, &egress(free)), Opinion::Deny(PolicyError));
}

#[test]
fn an_error_outweighs_every_other_denial_and_approval() {
    let no = r#"@id("no") forbid (principal, action, resource);"#;
    let ask = r#"@id("ask") @approval("ops") forbid (principal, action, resource);"#;
    let broken = erring("broken", "forbid", "", ABSENT);
    let broken_ask = erring("broken", "forbid", r#"@approval("ops")"#, ABSENT);
    for more in [no, ask, ""] {
        for broken in [&broken, &broken_ask] {
            let org = format!("{PLATFORM_DEFAULT} {more} {broken}");
            is_error_of(&sets(PLATFORM_DEFAULT, &org), "broken");
        }
    }
    let judgement = sets(no, &broken).judge(&egress(hop()));
    assert_eq!(judgement.opinion, Opinion::Deny(PolicyError));
    assert_eq!(ids(&judgement), ["no", "broken"]);
}

#[test]
fn every_error_is_told_sorted_by_policy() {
    let org = [
        PLATFORM_DEFAULT.to_owned(),
        erring("c", "forbid", "", ABSENT),
        erring("a", "permit", "", OVERFLOW),
        erring("b", "forbid", r#"@approval("ops")"#, ABSENT),
    ]
    .concat();
    let explanation = sets(PLATFORM_DEFAULT, &org).explain(&egress(hop()));
    assert_eq!(ids(&explanation.judgement), ["a", "b", "c"]);
    let told: Vec<_> = explanation.troubles.iter().filter_map(|t| t.policy_id.as_deref()).collect();
    assert_eq!(told, ["a", "b", "c"]);
}

#[test]
fn a_condition_that_is_not_reached_is_no_error() {
    let guarded = r#"@id("guarded") forbid (principal, action, resource)
        when { context has skill && context.skill == "other" && Agent::"nobody".ceiling.level > 0 };"#;
    let org = format!("{PLATFORM_DEFAULT} {guarded}");
    assert_eq!(opinion(&sets(PLATFORM_DEFAULT, &org), &egress(hop())), Opinion::Allow);
}
