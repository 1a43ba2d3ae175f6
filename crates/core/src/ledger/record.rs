//! The record: one line of an org's ledger, and the draft that becomes one under the head's lock.

use serde::{Deserialize, Serialize};

use super::data::{Data, EdgeData, Kind};
use super::word::OutsideId;
use crate::id::{AgentKey, ChangeId, HopId, KeyId, OrgName, StepName, TaskId};
use crate::time::Timestamp;

/// Which way an edge goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dir {
    /// Us to a role: work, or the reply for a worker's turn.
    Forward,
    /// Us to a foreign agent.
    A2aEgress,
    /// A foreign agent to us: its result or question.
    A2aIngress,
}

impl Dir {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::A2aEgress => "a2a_egress",
            Self::A2aIngress => "a2a_ingress",
        }
    }
}

/// What makes an edge one edge: unique in a ledger, whatever retries, duplicates and replicas do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeKey {
    /// The task.
    pub task: TaskId,
    /// The step.
    pub step: StepName,
    /// The foreign hop, or none for a role's work.
    pub hop: Option<HopId>,
    /// Which turn, from 1.
    pub turn: u32,
    /// Which way.
    pub dir: Dir,
}

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorType {
    /// The holder of an API key.
    Key,
    /// A worker of a role.
    Worker,
    /// A foreign agent.
    Agent,
    /// Exeat itself.
    System,
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// What sort.
    #[serde(rename = "type")]
    pub kind: ActorType,
    /// Its id or name.
    pub name: OutsideId,
}

impl Actor {
    /// The holder of this API key.
    #[must_use]
    pub fn key(id: &KeyId) -> Self {
        Self { kind: ActorType::Key, name: OutsideId::of(id.as_str()) }
    }
    /// A worker, by the name it gave itself.
    #[must_use]
    pub fn worker(name: &str) -> Self {
        Self { kind: ActorType::Worker, name: OutsideId::of(name) }
    }
    /// A foreign agent.
    #[must_use]
    pub fn agent(key: &AgentKey) -> Self {
        Self { kind: ActorType::Agent, name: OutsideId::of(key.as_str()) }
    }
    /// A part of Exeat, e.g. `sweep`.
    #[must_use]
    pub fn system(part: &'static str) -> Self {
        Self { kind: ActorType::System, name: OutsideId::of(part) }
    }
}

/// A record before it has its place in the chain. Drafts are made by decisions;
/// the committer makes records of them under the head's lock ([`append`](super::chain::append)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// When.
    pub at: Timestamp,
    /// What.
    pub data: Data,
    /// The change set it belongs to.
    pub change_id: ChangeId,
    /// Who.
    pub actor: Actor,
    /// The task it is about.
    pub task: Option<TaskId>,
    /// The step it is about.
    pub step: Option<StepName>,
    /// The foreign hop it is about.
    pub hop: Option<HopId>,
    /// The turn it is about.
    pub turn: Option<u32>,
    /// The edge that it is a child of. None in an edge record itself.
    pub about: Option<EdgeKey>,
}

impl Draft {
    /// The edge record of `key`; the data's direction is taken from the key.
    #[must_use]
    pub fn edge(at: Timestamp, change_id: ChangeId, actor: Actor, key: EdgeKey, mut data: EdgeData) -> Self {
        data.dir = key.dir;
        Self {
            at,
            data: Data::Edge(data),
            change_id,
            actor,
            task: Some(key.task),
            step: Some(key.step),
            hop: key.hop,
            turn: Some(key.turn),
            about: None,
        }
    }

    /// A child of the edge `about`.
    #[must_use]
    pub fn child(at: Timestamp, change_id: ChangeId, actor: Actor, about: EdgeKey, data: Data) -> Self {
        Self {
            at,
            data,
            change_id,
            actor,
            task: Some(about.task),
            step: Some(about.step.clone()),
            hop: about.hop,
            turn: Some(about.turn),
            about: Some(about),
        }
    }

    /// A record about no edge: a change, an operator's act, a refusal.
    #[must_use]
    pub const fn apart(at: Timestamp, change_id: ChangeId, actor: Actor, data: Data) -> Self {
        Self { at, data, change_id, actor, task: None, step: None, hop: None, turn: None, about: None }
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.data.kind()
    }

    /// The key of the edge that this draft records; none if it isn't an edge or lacks a part of the key.
    #[must_use]
    pub fn edge_key(&self) -> Option<EdgeKey> {
        let Data::Edge(data) = &self.data else { return None };
        let (task, step, turn) = (self.task?, self.step.clone()?, self.turn?);
        Some(EdgeKey { task, step, hop: self.hop, turn, dir: data.dir })
    }
}

/// The version of the record's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct V1;

impl TryFrom<u8> for V1 {
    type Error = crate::id::Malformed;
    fn try_from(v: u8) -> Result<Self, Self::Error> {
        if v == 1 { Ok(Self) } else { Err(crate::id::Malformed::new("record version", "1", &v.to_string())) }
    }
}

impl From<V1> for u8 {
    fn from(_: V1) -> Self {
        1
    }
}

/// A record in its place. Serialised, this is what is hashed, stored and exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form.
    pub v: V1,
    /// Its number in the org's chain, from 1, without gaps.
    pub seq: u64,
    /// The tenant.
    pub org: OrgName,
    /// When.
    pub at: Timestamp,
    /// The change set it belongs to.
    pub change_id: ChangeId,
    /// Who.
    pub actor: Actor,
    /// The task it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The step it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepName>,
    /// The foreign hop it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<HopId>,
    /// The turn it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// In a child: the number of its edge's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<u64>,
    /// Its kind and what it says: the members `kind` and `data`.
    #[serde(flatten)]
    pub data: Data,
}

impl Record {
    /// The key of the edge that this record is of; none in other kinds.
    #[must_use]
    pub fn edge_key(&self) -> Option<EdgeKey> {
        let Data::Edge(data) = &self.data else { return None };
        let (task, step, turn) = (self.task?, self.step.clone()?, self.turn?);
        Some(EdgeKey { task, step, hop: self.hop, turn, dir: data.dir })
    }
}
