//! What the domain asks of the world. Each port has a real implementation and another in every test run.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::approval::Approval;
use crate::bridge::Doorway;
use crate::change::{
    ChangeSet, DeadLetter, Done, DueKind, Key, PolicyRow, Receipt, Refused, Snapshot, WorkflowRow,
};
use crate::cost::{Account, Balance};
use crate::endpoint::Endpoint;
use crate::gate::exeat::Claim;
use crate::id::{
    AgentKey, ApprovalId, CallbackId, ChangeId, DeadLetterId, EnvelopeId, HopId, KeyId, LeaseId, OrgName,
    PayloadId, TaskId, WorkflowName,
};
use crate::ledger::chain::Head;
use crate::ledger::data::ApprovalStatus;
use crate::payload::Sealed;
use crate::principal::ApiKey;
use crate::registry::Registry;
use crate::task::Task;
use crate::time::{Monotonic, Span, Timestamp};

/// The clocks of this process.
pub trait Clock: Send + Sync {
    /// Wall clock.
    fn now(&self) -> Timestamp;
    /// Monotonic clock: bounds what a process that slept may still do.
    fn monotonic(&self) -> Monotonic;
}

/// Where randomness comes from.
pub trait Entropy: Send + Sync {
    /// 32 unguessable bytes.
    fn seed(&self) -> [u8; 32];
}

/// By which of its parts a task is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// By its id.
    Task(TaskId),
    /// By a hop of it.
    Hop(HopId),
    /// By an approval of it.
    Approval(ApprovalId),
    /// By an envelope of it.
    Envelope(EnvelopeId),
    /// By a lease on an envelope of it, held, settled or lost.
    Lease(LeaseId),
}

/// A row that is due, claimed for us for a while.
#[derive(Debug)]
pub struct DueRow {
    /// Which.
    pub key: Key,
    /// Its hop or task, so that the snapshot can be found.
    pub find: Find,
    /// Proof of the claim.
    pub claim: Claim,
}

/// Why a question to the record has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The store can't be reached, or is shutting down.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A row that can't be: named by table and key, never guessed around.
    #[error("{table} {key} can't be read: {why}")]
    Corrupt {
        /// Which table.
        table: &'static str,
        /// Which row.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// The record. Whatever is durable is here.
///
/// Promises, shown by one contract suite over every implementation: a change set is durable whole or not
/// at all; versions are compared before anything is written; sequence and hash are given under the
/// head's lock; edges are unique; a balance is checked where it is locked; `now` never runs backwards.
#[async_trait]
pub trait Store: Send + Sync {
    /// Makes a change set durable.
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused>;

    /// Is this change durable? Asked after [`Refused::Unknown`].
    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable>;

    /// The task that `find` belongs to, with all that hangs on it.
    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable>;

    /// The registry of an org, with its version.
    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable>;

    /// At most `limit` rows of a kind that are due, each claimed for `hold`: nobody else gets it before that is over
    /// or the row is written. Looks over all orgs; gives ids and fences, never content.
    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable>;

    /// When the next row of any kind is due, for a sweeper that wants to sleep.
    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable>;

    /// Which hop a callback door belongs to, and the foreign task it has bound. Looks over all orgs.
    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable>;

    /// Envelopes that are ready for a role, or for a team it belongs to, oldest first.
    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        limit: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable>;

    /// The store's time: the wall clock, never below the last that was committed.
    async fn now(&self) -> Result<Timestamp, Unreadable>;
}

/// Carries the ids of envelopes to whoever waits for them. It may lose, double and reorder: the store is the record.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Rings for an envelope.
    async fn ring(&self, org: &OrgName, to: &Endpoint, envelope: EnvelopeId);
    /// Waits until something was rung for one of these endpoints, or `patience` is over.
    async fn wait(&self, org: &OrgName, to: &[Endpoint], patience: Span) -> Option<EnvelopeId>;
}

/// One page of a listing: at most `limit`, after `after`, in the order that the question names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Opaque to callers; where the last page ended.
    pub after: Option<String>,
    /// At most this many.
    pub limit: u32,
}

/// Which tasks are wanted.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Of this status.
    pub status: Option<String>,
    /// Of this workflow, any version.
    pub workflow: Option<WorkflowName>,
    /// With a hop to this agent.
    pub agent: Option<AgentKey>,
    /// Due before then.
    pub due_before: Option<Timestamp>,
}

/// One event of a task, as it was told.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// From 1, without gaps, per task.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// Which.
    pub event: String,
    /// Its data.
    pub data: Value,
}

/// One ledger record, as its bytes stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place.
    pub seq: u64,
    /// Its canonical bytes.
    pub bytes: Vec<u8>,
    /// Its hash in the chain.
    pub hash: [u8; 32],
}

/// By what costs are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostBy {
    /// By foreign agent; a worker's own cost counts for its role.
    Agent,
    /// By workflow; delegations count as `-`.
    Workflow,
    /// By task.
    Task,
    /// By day, UTC.
    Day,
}

/// One line of a cost listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostLine {
    /// What it is the sum of.
    pub key: String,
    /// Foreign hops.
    pub hops: u64,
    /// Spent.
    pub settled_microusd: u64,
    /// Promised.
    pub reserved_microusd: u64,
}

/// How many of something there are, and since when the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// How many.
    pub count: u64,
    /// When the oldest was made. None: there is none.
    pub oldest: Option<Timestamp>,
}

/// How an org's record stands: numbers and times, no content, for whoever watches over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Open hops to foreign agents, by the word of their state. One that waits for a person is an approval.
    pub hops: BTreeMap<String, Crowd>,
    /// Work that waits for a worker, by role or team.
    pub ready: BTreeMap<String, Crowd>,
    /// Work that a worker has.
    pub leased: Crowd,
    /// Pushed events that nobody acted on yet.
    pub inbox: Crowd,
    /// Approvals that wait for a person.
    pub approvals: Crowd,
    /// Tasks that aren't over.
    pub tasks: u64,
    /// Dead letters.
    pub dead_letters: Crowd,
}

/// The questions of doors and operators. They decide nothing.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Tasks, newest first, and where the next page begins.
    async fn tasks(
        &self,
        org: &OrgName,
        filter: &TaskFilter,
        page: &Page,
    ) -> Result<(Vec<Task>, Option<String>), Unreadable>;
    /// Events of a task after a number, in order.
    async fn events(
        &self,
        org: &OrgName,
        task: TaskId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, Unreadable>;
    /// Approvals, newest first, and where the next page begins.
    async fn approvals(
        &self,
        org: &OrgName,
        status: Option<ApprovalStatus>,
        page: &Page,
    ) -> Result<(Vec<Approval>, Option<String>), Unreadable>;
    /// The newest version of each workflow, by name.
    async fn workflows(&self, org: &OrgName) -> Result<Vec<WorkflowRow>, Unreadable>;
    /// One version of a workflow; the newest if none is named.
    async fn workflow(
        &self,
        org: &OrgName,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<WorkflowRow>, Unreadable>;
    /// One version of the org's policy, in force or not.
    async fn policy(&self, org: &OrgName, version: u32) -> Result<Option<PolicyRow>, Unreadable>;
    /// All API keys of an org, oldest first.
    async fn api_keys(&self, org: &OrgName) -> Result<Vec<(ApiKey, u64)>, Unreadable>;
    /// An API key by its public half, whatever its org.
    async fn api_key(&self, id: &KeyId) -> Result<Option<(ApiKey, u64)>, Unreadable>;
    /// What an `Idempotency-Key` did, if it is known.
    async fn done(
        &self,
        org: &OrgName,
        by: &KeyId,
        route: &str,
        key: &str,
    ) -> Result<Option<Done>, Unreadable>;
    /// A dead letter, with its version.
    async fn dead_letter(
        &self,
        org: &OrgName,
        id: DeadLetterId,
    ) -> Result<Option<(DeadLetter, u64)>, Unreadable>;
    /// Dead letters, newest first.
    async fn dead_letters(
        &self,
        org: &OrgName,
        page: &Page,
    ) -> Result<(Vec<DeadLetter>, Option<String>), Unreadable>;
    /// Costs between two times, by the time of their entry.
    async fn costs(
        &self,
        org: &OrgName,
        by: CostBy,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CostLine>, Unreadable>;
    /// Foreign hops whose bridge isn't over: what is out, or would go out.
    async fn open_hops(&self, org: &OrgName) -> Result<u64, Unreadable>;
    /// What stands on an account.
    async fn balance(&self, org: &OrgName, account: &Account) -> Result<Balance, Unreadable>;
    /// How many tasks aren't over.
    async fn open_tasks(&self, org: &OrgName) -> Result<u64, Unreadable>;
    /// How the record stands.
    async fn vitals(&self, org: &OrgName) -> Result<Vitals, Unreadable>;
    /// When the last of all callback tokens expires that attempts were given.
    async fn last_callback(&self, org: &OrgName) -> Result<Option<Timestamp>, Unreadable>;
    /// A payload, if it wasn't erased.
    async fn payload(&self, org: &OrgName, id: PayloadId) -> Result<Option<Sealed>, Unreadable>;
    /// A text beside the ledger, by its salted digest.
    async fn note(&self, org: &OrgName, digest: &str) -> Result<Option<String>, Unreadable>;
    /// The org's head.
    async fn head(&self, org: &OrgName) -> Result<Head, Unreadable>;
    /// Records from a place on, in order.
    async fn records(&self, org: &OrgName, from: u64, limit: u32) -> Result<Vec<StoredRecord>, Unreadable>;
    /// Records of one task, in order.
    async fn records_of(&self, org: &OrgName, task: TaskId) -> Result<Vec<StoredRecord>, Unreadable>;
    /// A setting, with its version.
    async fn setting(&self, org: &OrgName, name: &str) -> Result<Option<(Value, u64)>, Unreadable>;
    /// The version of a row; 0 if it isn't there.
    async fn version(&self, org: &OrgName, key: &Key) -> Result<u64, Unreadable>;
    /// Puts a signed checkpoint beside the chain.
    async fn keep_checkpoint(&self, org: &OrgName, size: u64, note: &str) -> Result<(), Unreadable>;
    /// The newest checkpoint.
    async fn checkpoint(&self, org: &OrgName) -> Result<Option<String>, Unreadable>;
}
