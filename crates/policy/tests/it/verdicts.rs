//! What is allowed and denied, and on which grounds.

use exeat_core::gate::verdict::PolicyDenial::{DeniedByPolicy, NoPolicyAllows, PolicyError};
use exeat_core::gate::verdict::{Action, Because, Entity, Facts, Governor as _, Opinion, Question};
use exeat_policy::{PLATFORM_DEFAULT, STARTER, describe};
use serde_json::json;

use crate::world::*;

#[test]
fn the_starter_set_allows_every_shape_of_hop_and_registry_acts_of_admins() {
    let sets = sets(PLATFORM_DEFAULT, STARTER);
    let own = |question: &Question| match question.action {
        Action::Forward => "starter-internal",
        Action::A2aEgress | Action::A2aIngress => "starter-foreign",
        Action::Declassify | Action::RegisterAgent | Action::SignPosture => "starter-admin",
    };
    for question in every_shape() {
        let judgement = sets.judge(&question);
        assert_eq!(judgement.opinion, Opinion::Allow, "{question:?}");
        assert_eq!(ids(&judgement), ["platform-default", own(&question)]);
        assert_eq!(judgement.policy_version, "1.7");
    }
}

#[test]
fn the_starter_set_denies_registry_acts_of_who_is_not_admin() {
    let sets = sets(PLATFORM_DEFAULT, STARTER);
    for scopes in [&[][..], &["operator", "approver", "requester", "platform"], &["Admin"], &["admin "]] {
        let others = [Action::RegisterAgent, Action::SignPosture]
            .map(|action| question(key(scopes), action, agent(), Facts::Nothing {}));
        for asked in others.into_iter().chain([declassify(scopes)]) {
            let judgement = sets.judge(&asked);
            assert_eq!(judgement.opinion, Opinion::Deny(NoPolicyAllows), "{asked:?}");
            assert_eq!(ids(&judgement), Vec::<&str>::new());
        }
    }
}

#[test]
fn a_forbid_outweighs_every_permit_and_is_the_only_ground_told() {
    let sets = starter_and(
        r#"
        @id("zz-no-raw") @reason("Files stay here.")
        forbid (principal, action == Action::"a2a_egress", resource) when { context.parts.contains("raw") };
        @id("aa-no-night")
        forbid (principal, action == Action::"a2a_egress", resource) when { context.hour_utc < 6 };
        "#,
    );
    let mut hop = hop();
    assert_eq!(opinion(&sets, &egress(hop.clone())), Opinion::Allow);
    hop.parts.insert("raw".to_owned());
    hop.hour_utc = 3;
    let judgement = sets.judge(&egress(hop));
    assert_eq!(judgement.opinion, Opinion::Deny(DeniedByPolicy));
    let because = [
        Because { id: "aa-no-night".to_owned(), reason: None },
        Because { id: "zz-no-raw".to_owned(), reason: Some("Files stay here.".to_owned()) },
    ];
    assert_eq!(judgement.because, because);
}

#[test]
fn both_sets_must_say_yes() {
    let yes = r#"@id("yes") permit (principal, action, resource);"#;
    let no = r#"@id("no") forbid (principal, action, resource);"#;
    let mum = "";
    let (allow, none, deny) = (Opinion::Allow, Opinion::Deny(NoPolicyAllows), Opinion::Deny(DeniedByPolicy));
    let table: [(&str, &str, &Opinion, &[&str]); 9] = [
        (yes, yes, &allow, &["yes", "yes"]),
        (yes, mum, &none, &[]),
        (mum, yes, &none, &[]),
        (mum, mum, &none, &[]),
        (yes, no, &deny, &["no"]),
        (no, yes, &deny, &["no"]),
        (no, no, &deny, &["no", "no"]),
        (no, mum, &deny, &["no"]),
        (mum, no, &deny, &["no"]),
    ];
    for (platform, org, expected, grounds) in table {
        let judgement = sets(platform, org).judge(&egress(hop()));
        assert_eq!(&judgement.opinion, expected, "{platform:?} {org:?}");
        assert_eq!(ids(&judgement), grounds, "{platform:?} {org:?}");
    }
}

#[test]
fn a_question_that_does_not_fit_the_schema_is_denied_as_an_error_and_explained() {
    let sets = sets(PLATFORM_DEFAULT, PLATFORM_DEFAULT);
    let misfits = [
        question(team(), Action::A2aEgress, agent(), Facts::Hop(hop())),
        question(role(), Action::A2aEgress, role(), Facts::Hop(hop())),
        question(role(), Action::A2aEgress, agent(), Facts::Nothing {}),
        question(role(), Action::Declassify, Entity::Org, Facts::Nothing {}),
        question(key(&["admin"]), Action::RegisterAgent, agent(), Facts::Hop(hop())),
        question(Entity::Org, Action::Forward, role(), Facts::Hop(hop())),
    ];
    for misfit in misfits {
        let explanation = sets.explain(&misfit);
        assert_eq!(explanation.judgement.opinion, Opinion::Deny(PolicyError), "{misfit:?}");
        let [trouble] = explanation.troubles.as_slice() else { panic!("{explanation:?}") };
        assert!(trouble.policy_id.is_none() && trouble.message.contains("schema"), "{trouble:?}");
    }
}

#[test]
fn a_policy_can_see_tenant_role_clearance_skill_agent_size_and_the_rest() {
    let conditions = [
        r#"principal in Org::"main" && resource in Org::"main""#,
        r#"principal == Role::"writer" && principal is Role"#,
        r#"principal is Role && principal.clearance.level == 1 && principal.clearance.tags.isEmpty()"#,
        r#"resource == Agent::"auditor" && resource.origin == "https://peer.example""#,
        r#"resource.provider == "a2a" && resource has region && resource.region == "eu""#,
        r#"resource.ceiling.level == 1 && resource.ceiling.tags.contains("eu") && resource.tags.contains("eu")"#,
        r#"context has skill && context.skill == "review-invoice" && context.size_bytes == 512"#,
        r#"context.workflow like "invoice-check@*" && context.step == "audit" && context.task like "0190*""#,
        r#"context.turn == 1 && context.depth == 1 && context.hops == 2 && context.label.level == 1"#,
        r#"!context.tainted && !context.first_contact && context.parts.contains("text")"#,
        r#"context.price_microusd == 20000 && context.hour_utc == 10 && context.weekday == 2"#,
        r#"context has budget_left_microusd && context.budget_left_microusd == 1000000"#,
    ];
    for condition in conditions {
        let policy = format!(
            r#"@id("sees") permit (principal is Role, action == Action::"a2a_egress", resource) when {{ {condition} }};"#
        );
        assert_eq!(opinion(&sets(PLATFORM_DEFAULT, &policy), &egress(hop())), Opinion::Allow, "{condition}");
    }
}

#[test]
fn an_absent_fact_is_an_absent_attribute() {
    let policy = r#"@id("bare") permit (principal, action == Action::"a2a_egress", resource)
        when { !(context has skill) && !(context has budget_left_microusd) && !(resource has region) };"#;
    let sets = sets(PLATFORM_DEFAULT, policy);
    assert_eq!(opinion(&sets, &egress(hop())), Opinion::Deny(NoPolicyAllows));
    let mut bare = hop();
    bare.skill = None;
    bare.budget_left_microusd = None;
    let mut bare = egress(bare);
    if let Entity::Agent(agent) = &mut bare.resource {
        agent.region = None;
    }
    assert_eq!(opinion(&sets, &bare), Opinion::Allow);
}

#[test]
fn a_number_beyond_cedars_is_as_large_as_can_be() {
    let policy = r#"@id("huge") permit (principal, action == Action::"a2a_egress", resource)
        when { context.size_bytes == 9223372036854775807 && context.price_microusd == context.size_bytes };"#;
    let mut huge = hop();
    huge.size_bytes = u64::MAX;
    huge.price_microusd = 1 << 63;
    assert_eq!(opinion(&sets(PLATFORM_DEFAULT, policy), &egress(huge)), Opinion::Allow);
}

#[test]
fn a_description_shows_what_policy_saw_and_nothing_that_it_did_not() {
    let mut asked = hop();
    asked.skill = None;
    asked.size_bytes = u64::MAX;
    let shown = describe(&egress(asked));
    assert_eq!(shown["principal"]["type"], "Role");
    assert_eq!(shown["principal"]["id"], "writer");
    assert_eq!(shown["action"], "a2a_egress");
    assert_eq!(shown["resource"]["attributes"]["ceiling"], json!({ "level": 1, "tags": ["eu"] }));
    assert_eq!(shown["context"]["size_bytes"], json!(i64::MAX));
    assert_eq!(shown["context"].get("skill"), None);
    assert_eq!(shown["context"]["budget_left_microusd"], json!(1_000_000));
    assert_eq!(
        describe(&declassify(&["admin"]))["context"],
        json!({ "from": { "level": 3, "tags": ["eu"] }, "to": { "level": 1, "tags": [] } })
    );
}
