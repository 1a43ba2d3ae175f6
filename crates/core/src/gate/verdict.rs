//! What the governor is asked, and what it answers.
//!
//! A question holds facts that we computed; nothing in it was read from a foreign agent. The answer is a
//! pure function of the question and the policy version (promise R-003: no clock, no I/O, no model).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::id::{AgentKey, KeyId, OrgName, RoleName};
use crate::label::Label;
use crate::time::Timestamp;

/// What is to be done (`contracts` C10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Us to a role or team.
    Forward,
    /// Us to a foreign agent.
    A2aEgress,
    /// A foreign agent's result or question, to us.
    A2aIngress,
    /// Lowering a label.
    Declassify,
    /// Writing a registry entry.
    RegisterAgent,
    /// Signing a registry entry's posture.
    SignPosture,
}

/// An API key, as policy sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyFacts {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Its scopes.
    pub scopes: BTreeSet<String>,
    /// The approver roles it holds.
    pub roles: BTreeSet<String>,
    /// What its holder may see.
    pub clearance: Label,
}

/// A role, as policy sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleFacts {
    /// Its name.
    pub name: RoleName,
    /// What its workers may see.
    pub clearance: Label,
}

/// A foreign agent, as policy sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentFacts {
    /// Its registry key.
    pub key: AgentKey,
    /// The registered origin, e.g. `https://peer.example`.
    pub origin: String,
    /// `a2a`, `google_adk` or `claude`.
    pub provider: String,
    /// Its declared region.
    pub region: Option<String>,
    /// What it may get.
    pub ceiling: Label,
}

/// Who, or what: a Cedar entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entity {
    /// An API key.
    Key(KeyFacts),
    /// A role.
    Role(RoleFacts),
    /// A team, by name.
    Team {
        /// Its name.
        name: String,
    },
    /// A foreign agent.
    Agent(AgentFacts),
    /// The org itself.
    Org,
}

/// The facts of one hop (`type Hop` of C10).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopFacts {
    /// The task, as text.
    pub task: String,
    /// `name@version`, or empty for a delegation.
    pub workflow: String,
    /// The step.
    pub step: String,
    /// Which turn, from 1.
    pub turn: u32,
    /// How many delegations deep, from 1.
    pub depth: u32,
    /// How many hops the task has had, this one included.
    pub hops: u32,
    /// What the content carries.
    pub label: Label,
    /// Has foreign content flowed into it?
    pub tainted: bool,
    /// Kinds of its parts: of `text`, `data`, `raw`, `url`.
    pub parts: BTreeSet<String>,
    /// Payload bytes.
    pub size_bytes: u64,
    /// The skill asked for.
    pub skill: Option<String>,
    /// Has no hop of this org to that agent been answered yet?
    pub first_contact: bool,
    /// What it is estimated to cost.
    pub price_microusd: u64,
    /// What is left of the task's budget, if it has one.
    pub budget_left_microusd: Option<u64>,
    /// Hour of the day, UTC, 0–23.
    pub hour_utc: u8,
    /// Day of the week, 1 (Monday) – 7.
    pub weekday: u8,
}

impl HopFacts {
    /// The hour (0–23) and the day of the week (1, Monday, to 7) of a time, UTC.
    #[must_use]
    pub fn clock(at: Timestamp) -> (u8, u8) {
        let hours = at.seconds().div_euclid(3_600);
        // 1970-01-01 was a Thursday, the fourth day of the week.
        let weekday = (hours.div_euclid(24) + 3).rem_euclid(7) + 1;
        (u8::try_from(hours.rem_euclid(24)).unwrap_or(0), u8::try_from(weekday).unwrap_or(1))
    }
}

/// What the governor looks at beside who and whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Facts {
    /// Of a hop: `forward`, `a2a_egress`, `a2a_ingress`.
    Hop(HopFacts),
    /// Of a `declassify`.
    Declassify {
        /// The label now.
        from: Label,
        /// The label wished.
        to: Label,
    },
    /// Of a registry act: nothing.
    Nothing {},
}

/// One question to the governor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The tenant.
    pub org: OrgName,
    /// Who.
    pub principal: Entity,
    /// Does what.
    pub action: Action,
    /// To whom.
    pub resource: Entity,
    /// Under which circumstances.
    pub facts: Facts,
}

/// A policy that determined the answer, and its `@reason`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Because {
    /// Its `@id`.
    pub id: String,
    /// Its `@reason`, if it has one.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Why policy says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDenial {
    /// A plain `forbid` matched.
    DeniedByPolicy,
    /// No `permit` matched.
    NoPolicyAllows,
    /// A policy couldn't be evaluated. Cedar would skip it; we don't.
    PolicyError,
}

/// What policy says of a question, before the hard rules and what was already approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// Yes.
    Allow,
    /// Yes, once one approver of each of these roles has said so.
    RequireApproval(BTreeSet<String>),
    /// No.
    Deny(PolicyDenial),
}

/// An opinion with its grounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What.
    pub opinion: Opinion,
    /// The determining policies of both sets, platform first, each sorted by id.
    pub because: Vec<Because>,
    /// The version of the two sets asked, e.g. `1.7` (platform.org).
    pub policy_version: String,
}

/// The policies of the platform and of one org, ready to be asked. Pure: no clock, no I/O.
pub trait Governor: Send + Sync {
    /// Judges. Any failure inside is a denial, never an allow.
    fn judge(&self, question: &Question) -> Judgement;
}

/// The decision of a [`Verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may go.
    Allow,
    /// It may not.
    Deny,
    /// A person must say so first.
    RequireApproval,
}

/// What the gate decided, with hard rules and approvals counted in; recorded as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub decision: Decision,
    /// Approver roles still needed.
    pub roles: BTreeSet<String>,
    /// The determining policies, or the hard rule's code as an id.
    pub policies: Vec<Because>,
    /// The version of the sets asked; `0` where a hard rule decided before them.
    pub policy_version: String,
    /// When.
    pub at: Timestamp,
}

impl Entity {
    /// The entity of an internal or foreign destination, where its facts are known by name alone.
    #[must_use]
    pub fn of_internal(endpoint: &Endpoint, clearance: &Label) -> Option<Self> {
        match endpoint {
            Endpoint::Role(name) => {
                Some(Self::Role(RoleFacts { name: name.clone(), clearance: clearance.clone() }))
            }
            Endpoint::Team(name) => Some(Self::Team { name: name.to_string() }),
            Endpoint::Agent(_) => None,
        }
    }
}
