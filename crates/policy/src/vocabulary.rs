//! The words a policy may use: the Cedar schema, its entity types and actions, read once per process.
//!
//! A policy set holds the vocabulary it was checked against, so that judging needs no fallible look-up.

use std::str::FromStr as _;
use std::sync::LazyLock;

use cedar_policy::{Authorizer, EntityId, EntityTypeName, EntityUid, Schema, Validator};
use exeat_core::gate::verdict::Action;

/// The Cedar schema that every policy is checked against, as it is published.
pub const SCHEMA: &str = include_str!("../../../policies/exeat.cedarschema");

/// The version of [`SCHEMA`]. Members may be added within a version; none is renamed or dropped.
pub const SCHEMA_VERSION: u32 = 1;

/// The kinds of entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Org,
    Key,
    Role,
    Team,
    Agent,
}

impl Kind {
    /// Its name in the schema.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Org => "Org",
            Self::Key => "Key",
            Self::Role => "Role",
            Self::Team => "Team",
            Self::Agent => "Agent",
        }
    }
}

/// An action's name in the schema.
pub(crate) const fn action_name(action: Action) -> &'static str {
    match action {
        Action::Forward => "forward",
        Action::A2aEgress => "a2a_egress",
        Action::A2aIngress => "a2a_ingress",
        Action::Declassify => "declassify",
        Action::RegisterAgent => "register_agent",
        Action::SignPosture => "sign_posture",
    }
}

/// The schema and what was made from it.
pub(crate) struct Vocabulary {
    pub(crate) validator: Validator,
    pub(crate) authorizer: Authorizer,
    org: EntityTypeName,
    key: EntityTypeName,
    role: EntityTypeName,
    team: EntityTypeName,
    agent: EntityTypeName,
    action: EntityTypeName,
}

static VOCABULARY: LazyLock<Option<Vocabulary>> = LazyLock::new(Vocabulary::read);

impl Vocabulary {
    /// The process's vocabulary. `None` only if the embedded schema were broken, which a test excludes.
    pub(crate) fn get() -> Option<&'static Self> {
        VOCABULARY.as_ref()
    }

    fn read() -> Option<Self> {
        let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA).ok()?;
        let named = |kind: Kind| EntityTypeName::from_str(kind.name()).ok();
        Some(Self {
            validator: Validator::new(schema),
            authorizer: Authorizer::new(),
            org: named(Kind::Org)?,
            key: named(Kind::Key)?,
            role: named(Kind::Role)?,
            team: named(Kind::Team)?,
            agent: named(Kind::Agent)?,
            action: EntityTypeName::from_str("Action").ok()?,
        })
    }

    /// The schema, ready to check requests.
    pub(crate) fn schema(&self) -> &Schema {
        self.validator.schema()
    }

    /// Names an entity. The id is taken as it is: built, never formatted into text and parsed back.
    pub(crate) fn uid(&self, kind: Kind, id: &str) -> EntityUid {
        let name = match kind {
            Kind::Org => &self.org,
            Kind::Key => &self.key,
            Kind::Role => &self.role,
            Kind::Team => &self.team,
            Kind::Agent => &self.agent,
        };
        EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
    }

    /// Names an action.
    pub(crate) fn action(&self, action: Action) -> EntityUid {
        EntityUid::from_type_name_and_id(self.action.clone(), EntityId::new(action_name(action)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_embedded_schema_is_valid_and_without_warnings() {
        let (_, warnings) = Schema::from_cedarschema_str(SCHEMA).unwrap();
        assert_eq!(warnings.map(|w| w.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
        assert!(Vocabulary::get().is_some());
    }

    #[test]
    fn the_schema_has_exactly_our_entities_and_actions() {
        let v = Vocabulary::get().unwrap();
        let kinds = [Kind::Org, Kind::Key, Kind::Role, Kind::Team, Kind::Agent];
        let ours: BTreeSet<_> = kinds.iter().map(|k| k.name().to_owned()).collect();
        let theirs: BTreeSet<_> = v.schema().entity_types().map(ToString::to_string).collect();
        assert_eq!(theirs, ours);
        let actions = [
            Action::Forward,
            Action::A2aEgress,
            Action::A2aIngress,
            Action::Declassify,
            Action::RegisterAgent,
            Action::SignPosture,
        ];
        let ours: BTreeSet<_> = actions.iter().map(|a| v.action(*a).to_string()).collect();
        let theirs: BTreeSet<_> = v.schema().actions().map(ToString::to_string).collect();
        assert_eq!(theirs, ours);
    }
}
