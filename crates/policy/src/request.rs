//! A question, as Cedar is asked it and as a person reads it.
//!
//! Both views come from one tree of attributes, so that what `explain` shows is what policy saw.
//! Optional facts that are absent are absent members, so that a policy must ask `has` first.

use std::collections::{BTreeSet, HashMap, HashSet};

use cedar_policy::{Context, Entities, Entity as CedarEntity, EntityUid, Request, RestrictedExpression};
use exeat_core::gate::verdict::{AgentFacts, Entity, Facts, HopFacts, KeyFacts, Question};
use exeat_core::label::Label;
use serde_json::{Value, json};

use crate::vocabulary::{Kind, Vocabulary, action_name};

/// A value that a policy can see.
enum Seen<'a> {
    Yes(bool),
    Number(i64),
    Text(&'a str),
    Texts(Vec<&'a str>),
    Record(Members<'a>),
}

type Members<'a> = Vec<(&'static str, Seen<'a>)>;

/// A question in Cedar's terms, checked against the schema.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
}

/// A question that doesn't fit the schema: for instance a team that declassifies.
#[derive(Debug, thiserror::Error)]
#[error("the question doesn't fit the policy schema: {0}")]
pub(crate) struct Unaskable(String);

impl Unaskable {
    fn because(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl Asked {
    /// Translates.
    pub(crate) fn of(question: &Question, vocabulary: &Vocabulary) -> Result<Self, Unaskable> {
        let org = vocabulary.uid(Kind::Org, question.org.as_str());
        let (principal, who) = cedar_entity(question, &question.principal, vocabulary, &org)?;
        let (resource, whom) = cedar_entity(question, &question.resource, vocabulary, &org)?;
        let context = Context::from_pairs(
            facts(&question.facts).into_iter().map(|(name, seen)| (name.to_owned(), seen.expression())),
        )
        .map_err(Unaskable::because)?;
        let action = vocabulary.action(question.action);
        let request = Request::new(principal, action, resource, context, Some(vocabulary.schema()))
            .map_err(Unaskable::because)?;
        let root = CedarEntity::new_no_attrs(org, HashSet::new());
        let entities = Entities::from_entities([root, who, whom], None).map_err(Unaskable::because)?;
        Ok(Self { request, entities })
    }
}

/// The context of a question as policy sees it, for `policy explain`: who, what, to whom, and every fact.
#[must_use]
pub fn describe(question: &Question) -> Value {
    json!({
        "org": question.org,
        "principal": described(question, &question.principal),
        "action": action_name(question.action),
        "resource": described(question, &question.resource),
        "context": record_json(facts(&question.facts)),
    })
}

fn described(question: &Question, entity: &Entity) -> Value {
    let (kind, id) = named(question, entity);
    json!({ "type": kind.name(), "id": id, "attributes": record_json(attributes(entity)) })
}

fn cedar_entity(
    question: &Question,
    entity: &Entity,
    vocabulary: &Vocabulary,
    org: &EntityUid,
) -> Result<(EntityUid, CedarEntity), Unaskable> {
    let (kind, id) = named(question, entity);
    let uid = vocabulary.uid(kind, id);
    let parents = if kind == Kind::Org { HashSet::new() } else { HashSet::from([org.clone()]) };
    let attrs: HashMap<_, _> =
        attributes(entity).into_iter().map(|(name, seen)| (name.to_owned(), seen.expression())).collect();
    let entity = CedarEntity::new(uid.clone(), attrs, parents).map_err(Unaskable::because)?;
    Ok((uid, entity))
}

fn named<'a>(question: &'a Question, entity: &'a Entity) -> (Kind, &'a str) {
    match entity {
        Entity::Key(key) => (Kind::Key, key.id.as_str()),
        Entity::Role(role) => (Kind::Role, role.name.as_str()),
        Entity::Team { name } => (Kind::Team, name),
        Entity::Agent(agent) => (Kind::Agent, agent.key.as_str()),
        Entity::Org => (Kind::Org, question.org.as_str()),
    }
}

fn attributes(entity: &Entity) -> Members<'_> {
    match entity {
        Entity::Key(key) => key_attributes(key),
        Entity::Role(role) => vec![("clearance", label(&role.clearance))],
        Entity::Agent(agent) => agent_attributes(agent),
        Entity::Team { .. } | Entity::Org => Vec::new(),
    }
}

fn key_attributes(key: &KeyFacts) -> Members<'_> {
    vec![
        ("name", Seen::Text(&key.name)),
        ("scopes", texts(&key.scopes)),
        ("roles", texts(&key.roles)),
        ("clearance", label(&key.clearance)),
    ]
}

fn agent_attributes(agent: &AgentFacts) -> Members<'_> {
    let mut members = vec![
        ("origin", Seen::Text(&agent.origin)),
        ("provider", Seen::Text(&agent.provider)),
        ("ceiling", label(&agent.ceiling)),
        // An agent's tags are the compartments that its ceiling opens to it.
        ("tags", tags(&agent.ceiling)),
    ];
    members.extend(agent.region.as_deref().map(|region| ("region", Seen::Text(region))));
    members
}

fn facts(facts: &Facts) -> Members<'_> {
    match facts {
        Facts::Hop(hop) => hop_facts(hop),
        Facts::Declassify { from, to } => vec![("from", label(from)), ("to", label(to))],
        Facts::Nothing {} => Vec::new(),
    }
}

fn hop_facts(hop: &HopFacts) -> Members<'_> {
    let mut members = vec![
        ("task", Seen::Text(&hop.task)),
        ("workflow", Seen::Text(&hop.workflow)),
        ("step", Seen::Text(&hop.step)),
        ("turn", Seen::Number(hop.turn.into())),
        ("depth", Seen::Number(hop.depth.into())),
        ("hops", Seen::Number(hop.hops.into())),
        ("label", label(&hop.label)),
        ("tainted", Seen::Yes(hop.tainted)),
        ("parts", texts(&hop.parts)),
        ("size_bytes", clamped(hop.size_bytes)),
        ("first_contact", Seen::Yes(hop.first_contact)),
        ("price_microusd", clamped(hop.price_microusd)),
        ("hour_utc", Seen::Number(hop.hour_utc.into())),
        ("weekday", Seen::Number(hop.weekday.into())),
    ];
    members.extend(hop.skill.as_deref().map(|skill| ("skill", Seen::Text(skill))));
    members.extend(hop.budget_left_microusd.map(|left| ("budget_left_microusd", clamped(left))));
    members
}

fn label(label: &Label) -> Seen<'_> {
    Seen::Record(vec![("level", Seen::Number(label.level().rank().into())), ("tags", tags(label))])
}

fn tags(label: &Label) -> Seen<'_> {
    Seen::Texts(label.tags().iter().map(exeat_core::label::Tag::as_str).collect())
}

fn texts(texts: &BTreeSet<String>) -> Seen<'_> {
    Seen::Texts(texts.iter().map(String::as_str).collect())
}

/// Cedar's numbers end at `i64::MAX`; what lies beyond is as good as that.
fn clamped(number: u64) -> Seen<'static> {
    Seen::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn record_json(members: Members<'_>) -> Value {
    Value::Object(members.into_iter().map(|(name, seen)| (name.to_owned(), seen.json())).collect())
}

impl Seen<'_> {
    fn expression(self) -> RestrictedExpression {
        use RestrictedExpression as E;
        match self {
            Self::Yes(yes) => E::new_bool(yes),
            Self::Number(number) => E::new_long(number),
            Self::Text(text) => E::new_string(text.to_owned()),
            Self::Texts(texts) => E::new_set(texts.into_iter().map(|t| E::new_string(t.to_owned()))),
            // Refused only for a member named twice, and ours are literals. A bool in its place would fail
            // the schema's check or the evaluation, and so deny.
            Self::Record(members) => {
                E::new_record(members.into_iter().map(|(name, seen)| (name.to_owned(), seen.expression())))
                    .unwrap_or_else(|_| E::new_bool(false))
            }
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Yes(yes) => yes.into(),
            Self::Number(number) => number.into(),
            Self::Text(text) => text.into(),
            Self::Texts(texts) => texts.into(),
            Self::Record(members) => record_json(members),
        }
    }
}
