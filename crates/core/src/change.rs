//! What a decision wants done: one change set, durable whole or not at all.
//!
//! The core makes them, a store commits them, and only then does anybody act on their effects. A change
//! set names the versions it was decided on; if any has moved, it is a conflict and is decided anew.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approval::Approval;
use crate::bridge::state::Moved;
use crate::bridge::{Bridge, CancelIntent, ForeignKey, InboxRow, Route};
use crate::cost::{Account, Budget, CostMove, Scope};
use crate::envelope::Envelope;
use crate::gate::exeat::{AttemptId, AttemptLease, Claim, Parcel};
use crate::id::{
    AgentKey, ApprovalId, CallbackId, ChangeId, DeadLetterId, EnvelopeId, HopId, InboxId, KeyId, OrgName,
    PayloadId, RoleName, TaskId, WorkflowName,
};
use crate::ledger::Draft;
use crate::ledger::data::Act;
use crate::payload::Sealed;
use crate::principal::ApiKey;
use crate::registry::{AgentEntry, EgressMode, RoleEntry};
use crate::task::Task;
use crate::time::Timestamp;

/// Names a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A task.
    Task(TaskId),
    /// A bridge.
    Bridge(HopId),
    /// An envelope.
    Envelope(EnvelopeId),
    /// An approval.
    Approval(ApprovalId),
    /// A payload. Written once.
    Payload(PayloadId),
    /// A callback door. Written once.
    Route(CallbackId),
    /// A pushed event.
    Inbox(InboxId),
    /// A cancel intent: one per hop and foreign task (`""`: not bound yet).
    Cancel(HopId, String),
    /// An item that gave up.
    DeadLetter(DeadLetterId),
    /// The registry as a whole: its version counts every change of entries, roles, switches, budgets, policy.
    Registry,
    /// One version of an entry.
    Agent(AgentKey, u32),
    /// A role.
    Role(RoleName),
    /// The org's switch.
    Mode,
    /// The org's policy text, by version.
    Policy(u32),
    /// A budget.
    Budget(Scope),
    /// One version of a workflow.
    Workflow(WorkflowName, u32),
    /// An API key.
    ApiKey(KeyId),
    /// What an `Idempotency-Key` did: principal, route, key.
    Idempotency(KeyId, String, String),
    /// A text that a person wrote, beside the ledger: its salted digest.
    Note(String),
    /// A setting of the store: key material check, incarnation, single operator.
    Setting(String),
    /// An agent that has answered before. Written once.
    Contact(AgentKey),
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its id.
    pub id: DeadLetterId,
    /// What kind of item.
    pub kind: DeadKind,
    /// The task.
    pub task: TaskId,
    /// The step.
    pub step: crate::id::StepName,
    /// The hop.
    pub hop: HopId,
    /// Why it gave up.
    pub reason: crate::reason::Reason,
    /// Content that was kept for adoption.
    pub body: Option<PayloadId>,
    /// When.
    pub at: Timestamp,
    /// What an operator did about it: once, and then no more.
    #[serde(default)]
    pub decided: Option<Decided>,
}

/// What was done about a dead letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Retried, adopted or discarded.
    pub act: Act,
    /// By whom.
    pub by: KeyId,
    /// When.
    pub at: Timestamp,
    /// The task that goes on from it.
    pub task: Option<TaskId>,
}

/// Kinds of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadKind {
    /// An envelope that was delivered too often, or failed for good.
    Work,
    /// Attempts used up.
    Send,
    /// Nobody knows whether it was sent.
    Unknown,
    /// A result that the agent doesn't confirm.
    Unconfirmed,
    /// A result after the end.
    Late,
    /// The agent forgot the task.
    Lost,
    /// The deadline passed.
    Timeout,
}

/// One version of a workflow, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRow {
    /// Its name.
    pub name: WorkflowName,
    /// From 1.
    pub version: u32,
    /// Digest of the definition.
    pub digest: crate::payload::Sha256Digest,
    /// The text as it was pushed.
    pub source: String,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: KeyId,
}

/// One version of the org's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRow {
    /// From 1.
    pub version: u32,
    /// Cedar text.
    pub source: String,
    /// When.
    pub at: Timestamp,
    /// By whom; none: the first start.
    pub by: Option<KeyId>,
}

/// What an `Idempotency-Key` did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Digest of the request's body.
    pub request: crate::payload::Sha256Digest,
    /// HTTP status of the answer.
    pub status: u16,
    /// The answer.
    pub answer: Value,
    /// When.
    pub at: Timestamp,
}

/// A row, whole, as it shall stand.
#[expect(clippy::large_enum_variant, reason = "a row is moved once, from the desk to the store")]
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A task.
    Task(Task),
    /// A bridge.
    Bridge(Bridge),
    /// An envelope.
    Envelope(Envelope),
    /// An approval.
    Approval(Approval),
    /// A payload of a task.
    Payload(PayloadId, TaskId, Sealed),
    /// A callback door.
    Route(Route),
    /// A pushed event. A second one of the same hop and digest is [`Refused::Duplicate`].
    Inbox(InboxRow),
    /// A cancel intent.
    Cancel(CancelIntent),
    /// A dead letter.
    DeadLetter(DeadLetter),
    /// The registry's version: the row's version is all there is to it.
    Registry,
    /// An entry.
    Agent(AgentEntry),
    /// A role.
    Role(RoleEntry),
    /// The org's switch.
    Mode(EgressMode),
    /// A policy.
    Policy(PolicyRow),
    /// A budget.
    Budget(Scope, Budget),
    /// A workflow.
    Workflow(WorkflowRow),
    /// An API key.
    ApiKey(ApiKey),
    /// What an `Idempotency-Key` did.
    Idempotency(KeyId, String, String, Done),
    /// A text beside the ledger: digest, salt, text.
    Note(String, [u8; 32], String),
    /// A setting.
    Setting(String, Value),
    /// An agent has answered.
    Contact(AgentKey),
}

impl Row {
    /// Its name.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Task(t) => Key::Task(t.id),
            Self::Bridge(b) => Key::Bridge(b.hop),
            Self::Envelope(e) => Key::Envelope(e.id),
            Self::Approval(a) => Key::Approval(a.id),
            Self::Payload(id, _, _) => Key::Payload(*id),
            Self::Route(r) => Key::Route(r.callback.clone()),
            Self::Inbox(i) => Key::Inbox(i.id),
            Self::Cancel(c) => Key::Cancel(c.hop, c.foreign_task.clone().unwrap_or_default()),
            Self::DeadLetter(d) => Key::DeadLetter(d.id),
            Self::Registry => Key::Registry,
            Self::Agent(a) => Key::Agent(a.key.clone(), a.version),
            Self::Role(r) => Key::Role(r.name.clone()),
            Self::Mode(_) => Key::Mode,
            Self::Policy(p) => Key::Policy(p.version),
            Self::Budget(s, _) => Key::Budget(s.clone()),
            Self::Workflow(w) => Key::Workflow(w.name.clone(), w.version),
            Self::ApiKey(k) => Key::ApiKey(k.id.clone()),
            Self::Idempotency(k, r, i, _) => Key::Idempotency(k.clone(), r.clone(), i.clone()),
            Self::Note(d, _, _) => Key::Note(d.clone()),
            Self::Setting(n, _) => Key::Setting(n.clone()),
            Self::Contact(a) => Key::Contact(a.clone()),
        }
    }

    /// When the sweep must look at it. Only kinds that wait have one.
    #[must_use]
    pub const fn due_at(&self) -> Option<Timestamp> {
        match self {
            Self::Task(t) => t.due_at,
            Self::Bridge(b) => b.due_at,
            Self::Envelope(e) => e.due_at,
            Self::Approval(a) => match a.status {
                crate::ledger::data::ApprovalStatus::Pending => Some(a.expires_at),
                _ => None,
            },
            Self::Inbox(i) => i.due_at,
            Self::Cancel(c) => c.due_at,
            _ => None,
        }
    }
}

/// A version of a row that a decision was made on. A row that isn't there has version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The row.
    pub key: Key,
    /// Its version.
    pub version: u64,
}

/// One row to write; its version becomes `expected + 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The version that it was decided on; 0: it must not be there yet.
    pub expected: u64,
    /// As it shall stand.
    pub row: Row,
}

/// Something for whoever watches a task. Its number in the task is given at the commit, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEvent {
    /// The task.
    pub task: TaskId,
    /// `task`, `step`, `hop`, `approval`, `question`, `cost`.
    pub event: &'static str,
    /// Its data, without `at` and `task_id`.
    pub data: Value,
}

/// What to start once a change set is durable. May run twice, or not at all: what it would do is also due.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Send what this attempt's lease cleared; with a push target whose token holds until then, if push is wanted.
    Send(Box<Parcel>, Option<Timestamp>),
    /// Ring the bus for an envelope.
    Ring(EnvelopeId, crate::endpoint::Endpoint),
    /// Something of this kind is due now.
    Due(DueKind),
    /// Tell who watches the task.
    Tell(TaskId),
}

/// Kinds of due rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueKind {
    /// Tasks: readiness, deadline.
    Task,
    /// Bridges: attempts, leases, looks, deadlines.
    Bridge,
    /// Envelopes: lost leases, forgotten rings.
    Envelope,
    /// Approvals: expiry.
    Approval,
    /// Pushed events.
    Inbox,
    /// Cancel intents.
    Cancel,
}

impl DueKind {
    /// All of them, in the order in which a tick takes them.
    pub const ALL: [Self; 6] =
        [Self::Inbox, Self::Bridge, Self::Envelope, Self::Approval, Self::Cancel, Self::Task];
}

/// One decision, to be made durable.
#[derive(Clone, Debug)]
pub struct ChangeSet {
    /// Found again in the ledger when a commit's answer was lost.
    pub id: ChangeId,
    /// The tenant.
    pub org: OrgName,
    /// When it was decided.
    pub at: Timestamp,
    /// Rows that were read and aren't written.
    pub expects: Vec<Expect>,
    /// Rows to write.
    pub writes: Vec<Write>,
    /// Ledger records to be, in order.
    pub drafts: Vec<Draft>,
    /// Money to move, in order.
    pub costs: Vec<CostMove>,
    /// For whoever watches.
    pub events: Vec<TaskEvent>,
    /// Attempts whose lease this set takes.
    pub leases: Vec<AttemptId>,
    /// To be started once it is durable.
    pub effects: Vec<Effect>,
    /// What happened to bridges, in order: counted once it is durable.
    pub moves: Vec<Moved>,
}

impl ChangeSet {
    /// An empty one.
    #[must_use]
    pub const fn new(id: ChangeId, org: OrgName, at: Timestamp) -> Self {
        Self {
            id,
            org,
            at,
            expects: Vec::new(),
            writes: Vec::new(),
            drafts: Vec::new(),
            costs: Vec::new(),
            events: Vec::new(),
            leases: Vec::new(),
            effects: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// Does it change nothing?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.drafts.is_empty() && self.costs.is_empty()
    }
}

/// What a store hands out when a change set is durable.
#[derive(Debug)]
pub struct Receipt {
    /// Which.
    pub id: ChangeId,
    /// The sequence numbers of its records, in order.
    pub seqs: Vec<u64>,
    /// The leases it took. Only a store makes these.
    pub leases: Vec<AttemptLease>,
    /// One for each act of looking at an agent that it recorded, fenced by its record. Only a store makes these.
    pub discoveries: Vec<Claim>,
}

/// Why a change set was not committed. Nothing of it is durable.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Somebody moved a row first: reload and decide anew; never force.
    #[error("{0:?} has moved on")]
    Conflict(Key),
    /// A reservation that the balance doesn't cover.
    #[error("the budget of {} doesn't cover it", .0.scope)]
    OverBudget(Account),
    /// A foreign task that is another hop's already: one task of an agent serves one hop.
    #[error("{}'s task is another hop's", .0.agent)]
    Taken(ForeignKey),
    /// An edge that already has its record, or an event that is already stored.
    #[error("{0} is there already")]
    Duplicate(&'static str),
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The store can't be reached, or is shutting down.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Nobody knows whether it is durable: ask by its change id before anything acts.
    #[error("whether the change is durable is unknown")]
    Unknown(ChangeId),
    /// The set itself is wrong: a fault of ours.
    #[error("the change set is wrong: {0}")]
    Wrong(String),
}

/// A snapshot of what a decision is about: one task with all that belongs to it, as of one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The store's time at the reading.
    pub now: Timestamp,
    /// The task and its version.
    pub task: (Task, u64),
    /// The text of its workflow, if it runs one.
    pub workflow: Option<Arc<WorkflowRow>>,
    /// Its bridges with their versions.
    pub bridges: Vec<(Bridge, u64)>,
    /// Its envelopes that aren't settled or void, and the one asked for, with their versions.
    pub envelopes: Vec<(Envelope, u64)>,
    /// Its pending approvals and the one asked for, with their versions.
    pub approvals: Vec<(Approval, u64)>,
    /// Its cancel intents that aren't over, with their versions.
    pub cancels: Vec<(CancelIntent, u64)>,
    /// Its pushed events that were not acted on, with their versions.
    pub inbox: Vec<(InboxRow, u64)>,
    /// Its payloads.
    pub payloads: std::collections::BTreeMap<PayloadId, Sealed>,
}
