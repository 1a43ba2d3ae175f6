//! A small world to ask questions about.

use std::collections::BTreeSet;
use std::sync::Arc;

use exeat_core::gate::verdict::{
    Action, AgentFacts, Entity, Facts, Governor as _, HopFacts, Judgement, KeyFacts, Opinion, Question,
    RoleFacts,
};
use exeat_core::label::{Label, Levels};
use exeat_policy::{PLATFORM_DEFAULT, PolicyFault, PolicySet, STARTER, Sets, Versions};

pub(crate) fn label(text: &str) -> Label {
    Levels::default().parse(text).unwrap()
}

pub(crate) fn texts(of: &[&str]) -> BTreeSet<String> {
    of.iter().map(|t| (*t).to_owned()).collect()
}

pub(crate) fn key(scopes: &[&str]) -> Entity {
    Entity::Key(KeyFacts {
        id: "k1".parse().unwrap(),
        name: "alice".to_owned(),
        scopes: texts(scopes),
        roles: texts(&["ops"]),
        clearance: label("restricted"),
    })
}

pub(crate) fn role() -> Entity {
    Entity::Role(RoleFacts { name: "writer".parse().unwrap(), clearance: label("internal") })
}

pub(crate) fn team() -> Entity {
    Entity::Team { name: "desk".to_owned() }
}

pub(crate) fn agent() -> Entity {
    Entity::Agent(AgentFacts {
        key: "auditor".parse().unwrap(),
        origin: "https://peer.example".to_owned(),
        provider: "a2a".to_owned(),
        region: Some("eu".to_owned()),
        ceiling: label("internal+eu"),
    })
}

pub(crate) fn hop() -> HopFacts {
    HopFacts {
        task: "0190c0de-0000-7000-8000-000000000001".to_owned(),
        workflow: "invoice-check@3".to_owned(),
        step: "audit".to_owned(),
        turn: 1,
        depth: 1,
        hops: 2,
        label: label("internal"),
        tainted: false,
        parts: texts(&["text"]),
        size_bytes: 512,
        skill: Some("review-invoice".to_owned()),
        first_contact: false,
        price_microusd: 20_000,
        budget_left_microusd: Some(1_000_000),
        hour_utc: 10,
        weekday: 2,
    }
}

pub(crate) fn question(principal: Entity, action: Action, resource: Entity, facts: Facts) -> Question {
    Question { org: "main".parse().unwrap(), principal, action, resource, facts }
}

/// `role:writer` to `agent:auditor`.
pub(crate) fn egress(hop: HopFacts) -> Question {
    question(role(), Action::A2aEgress, agent(), Facts::Hop(hop))
}

/// A declassification by a key with these scopes.
pub(crate) fn declassify(scopes: &[&str]) -> Question {
    let facts = Facts::Declassify { from: label("restricted+eu"), to: label("internal") };
    question(key(scopes), Action::Declassify, Entity::Org, facts)
}

/// One well-formed question of each shape that the schema knows.
pub(crate) fn every_shape() -> Vec<Question> {
    let hop = || Facts::Hop(hop());
    vec![
        question(key(&["requester"]), Action::Forward, role(), hop()),
        question(key(&["requester"]), Action::Forward, team(), hop()),
        question(role(), Action::Forward, role(), hop()),
        question(role(), Action::Forward, team(), hop()),
        question(key(&["requester"]), Action::A2aEgress, agent(), hop()),
        question(role(), Action::A2aEgress, agent(), hop()),
        question(agent(), Action::A2aIngress, key(&["requester"]), hop()),
        question(agent(), Action::A2aIngress, role(), hop()),
        declassify(&["admin"]),
        question(key(&["admin"]), Action::RegisterAgent, agent(), Facts::Nothing {}),
        question(key(&["admin"]), Action::SignPosture, agent(), Facts::Nothing {}),
    ]
}

pub(crate) fn set(text: &str) -> Arc<PolicySet> {
    match PolicySet::parse(text) {
        Ok(set) => Arc::new(set),
        Err(faults) => panic!("{text}\n{faults:#?}"),
    }
}

pub(crate) fn faults(text: &str) -> Vec<PolicyFault> {
    PolicySet::parse(text).expect_err(text)
}

pub(crate) fn sets(platform: &str, org: &str) -> Sets {
    Sets::new(set(platform), set(org), Versions { platform: 1, org: 7 })
}

/// The org's set is the starter's and these, under the default platform.
pub(crate) fn starter_and(more: &str) -> Sets {
    sets(PLATFORM_DEFAULT, &format!("{STARTER}\n{more}"))
}

pub(crate) fn ids(judgement: &Judgement) -> Vec<&str> {
    judgement.because.iter().map(|because| because.id.as_str()).collect()
}

pub(crate) fn opinion(sets: &Sets, question: &Question) -> Opinion {
    sets.judge(question).opinion
}

pub(crate) fn roles(of: &[&str]) -> Opinion {
    Opinion::RequireApproval(texts(of))
}
