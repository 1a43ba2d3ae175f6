//! A message on the bus to a role or a team, and the lease by which one worker holds it.
//!
//! The bus carries ids; this row is the record. A lease is fenced by its id: once it ran out and the
//! envelope was delivered again, the old holder's words count for nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::id::{EnvelopeId, HopId, KeyId, LeaseId, OrgName, RoleName, StepName, TaskId};
use crate::payload::Sha256Digest;
use crate::time::Timestamp;

/// What an envelope brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EnvelopeKind {
    /// A step's work.
    Work,
    /// A delegation of another worker. A worker sees it as `WORK`.
    Query,
    /// The answers to what a worker delegated, with its continuation.
    Reply,
}

/// Where an envelope stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum EnvelopeState {
    /// To be taken.
    Ready,
    /// Its last worker failed: to be taken once some time has passed, so that what fails at once doesn't use up
    /// its deliveries at once.
    Paused {
        /// Until when.
        until: Timestamp,
    },
    /// Held by a worker.
    Leased {
        /// The lease.
        lease: LeaseId,
        /// The key that took it: the lease is nobody else's. Rows of before keys were kept have none, and such a
        /// lease is lost.
        #[serde(default)]
        key: Option<KeyId>,
        /// Who, as it calls itself.
        worker: String,
        /// The role it was taken for.
        role: RoleName,
        /// Until when.
        until: Timestamp,
    },
    /// Settled. The same call by the same lease gets the same answer.
    Settled {
        /// By this lease.
        lease: LeaseId,
        /// Of this key.
        #[serde(default)]
        key: Option<KeyId>,
        /// Digest of the call and its body.
        call: Sha256Digest,
        /// What it was told.
        answer: Value,
    },
    /// Taken back: its task ended, or it was delivered too often.
    Void {
        /// The lease it was taken from, if one held it.
        lease: Option<LeaseId>,
        /// Of which key it was.
        #[serde(default)]
        key: Option<KeyId>,
    },
}

/// A message on the bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Its id.
    pub id: EnvelopeId,
    /// The tenant.
    pub org: OrgName,
    /// What it brings.
    pub kind: EnvelopeKind,
    /// A role or a team.
    pub to: Endpoint,
    /// The task.
    pub task: TaskId,
    /// The step.
    pub step: StepName,
    /// The hop it belongs to.
    pub hop: HopId,
    /// The worker's turn, from 1.
    pub turn: u32,
    /// How often it was handed out.
    pub delivery: u32,
    /// Where it stands.
    pub state: EnvelopeState,
    /// Since when.
    pub created_at: Timestamp,
    /// When it must be looked at: a lease's end, a pause's, or the next ring.
    pub due_at: Option<Timestamp>,
}

impl Envelope {
    /// The lease that holds or held it.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseId> {
        match &self.state {
            EnvelopeState::Leased { lease, .. } | EnvelopeState::Settled { lease, .. } => Some(*lease),
            EnvelopeState::Void { lease, .. } => *lease,
            EnvelopeState::Ready | EnvelopeState::Paused { .. } => None,
        }
    }

    /// The key whose lease holds or held it.
    #[must_use]
    pub const fn key(&self) -> Option<&KeyId> {
        match &self.state {
            EnvelopeState::Leased { key, .. }
            | EnvelopeState::Settled { key, .. }
            | EnvelopeState::Void { key, .. } => key.as_ref(),
            EnvelopeState::Ready | EnvelopeState::Paused { .. } => None,
        }
    }
}
