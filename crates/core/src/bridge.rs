//! The durable record of a foreign hop: its attempts, its turns, and where it stands.
//!
//! A bridge waits as a row and nothing else. Everything that may happen to it is an [`Event`], and the
//! whole table of states and events is [`BridgeState::on`]; the decisions around it (what a send's
//! answer means, when to look, what to do when time is up) are the other files of this room.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cost::Account;
use crate::gate::exeat::{Bound, ForeignIds, Interface};
use crate::gate::verdict::Verdict;
use crate::id::{
    AgentKey, ApprovalId, CallbackId, ContextId, HopId, MessageId, OrgName, PayloadId, StepName, TaskId,
};
use crate::ledger::data::AttemptOutcome;
use crate::ledger::data::CostRule;
use crate::payload::Sha256Digest;
use crate::reason::Reason;
use crate::task::{Ending, Held, Question};
use crate::time::{Span, Timestamp};
use crate::transport::ForeignState;

pub mod attempt;
pub mod look;
pub mod money;
pub mod outcome;
pub mod release;
pub mod schedule;
pub mod state;
pub mod stop;
pub mod unknown;

pub use state::{BridgeState, Event, Illegal};

/// One attempt that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1, over all turns.
    pub n: u32,
    /// The turn.
    pub turn: u32,
    /// When its lease was taken.
    pub at: Timestamp,
    /// How it came out.
    pub outcome: AttemptOutcome,
    /// One line for people.
    pub detail: String,
}

/// What an attempt was leased for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedAttempt {
    /// The turn.
    pub turn: u32,
    /// Its message.
    pub message_id: MessageId,
    /// What it carries.
    pub payload: PayloadId,
}

/// What was granted for the present turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// By which approval.
    pub approval: ApprovalId,
    /// What exactly was approved.
    pub digest: Sha256Digest,
    /// The roles that said yes.
    pub roles: BTreeSet<String>,
}

/// The money of a hop, over all its turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopCost {
    /// Which figure settles.
    pub rule: CostRule,
    /// Reserved for each turn.
    pub estimate_microusd: u64,
    /// What the agent reported, summed.
    pub reported_microusd: Option<u64>,
    /// Time of the turns that are over.
    pub elapsed: Span,
    /// Reserved for the present turn and not closed yet.
    pub reserved_microusd: u64,
    /// Settled so far.
    pub settled_microusd: u64,
    /// The accounts of the present turn's reservation.
    pub accounts: Vec<Account>,
}

/// Push, as this hop knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Push {
    /// A push config went along.
    pub asked: bool,
    /// A push arrived.
    pub arrived: bool,
}

/// The durable record of a foreign hop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bridge {
    /// The hop's id, and ours for all purposes.
    pub hop: HopId,
    /// The tenant.
    pub org: OrgName,
    /// The task.
    pub task: TaskId,
    /// The step.
    pub step: StepName,
    /// The agent.
    pub agent: AgentKey,
    /// The entry's version that it was judged by last; looks and cancels go there.
    pub registry_version: u32,
    /// The registered origin of that version.
    pub origin: String,
    /// Where it stands.
    pub state: BridgeState,
    /// The turn, from 1.
    pub turn: u32,
    /// What this turn carries out.
    pub payload: Held,
    /// The skill asked for.
    pub skill: Option<String>,
    /// Our message id of this turn, the same in all its attempts.
    pub message_id: MessageId,
    /// All our message ids, oldest first.
    pub message_ids: Vec<MessageId>,
    /// Our conversation.
    pub context_id: ContextId,
    /// Has the agent refused a context id of ours?
    pub context_refused: bool,
    /// Has the agent said that it can't list the tasks of a conversation?
    #[serde(default)]
    pub cannot_list: bool,
    /// The agent's ids, once known.
    pub foreign: Option<ForeignIds>,
    /// The interface of the last attempt that got to one.
    pub interface: Option<Interface>,
    /// What the present turn's destination is bound to.
    pub bound: Bound,
    /// Digest of the card that was looked at last.
    pub card_digest: Option<Sha256Digest>,
    /// Attempts that are over, oldest first.
    pub attempts: Vec<Attempt>,
    /// Attempts begun, over all turns.
    pub begun: u32,
    /// What each of them was leased for, the first first.
    pub leases: Vec<LeasedAttempt>,
    /// Callback door of the last attempt begun.
    pub callback: Option<CallbackId>,
    /// Push.
    pub push: Push,
    /// Looks that set out.
    pub looks: u32,
    /// The one that is out, or was last.
    #[serde(default)]
    pub look: Option<LookLease>,
    /// Looks in a row that said "not found".
    pub lost: u32,
    /// Since when.
    pub lost_since: Option<Timestamp>,
    /// Looks since something moved; spaces them.
    pub quiet_looks: u32,
    /// Further tasks that messages of ours made at the agent, and that it was asked to stop.
    #[serde(default)]
    pub strays: BTreeSet<String>,
    /// A body that was pushed and isn't confirmed.
    pub claimed: Option<PayloadId>,
    /// What it asked last, to come back to if our answer can't go.
    pub question: Option<Question>,
    /// What the gate said last.
    pub verdict: Verdict,
    /// The approval that is open, or was last.
    pub approval: Option<ApprovalId>,
    /// What was granted for this turn.
    pub grant: Option<Grant>,
    /// Money.
    pub cost: HopCost,
    /// How long, from the first lease.
    pub deadline_after: Span,
    /// Until when, once begun.
    pub deadline: Option<Timestamp>,
    /// When this turn's first attempt was leased.
    pub turn_began: Option<Timestamp>,
    /// Why it ended, unless well.
    pub reason: Option<Reason>,
    /// How it ended for its task.
    pub ending: Option<Ending>,
    /// Since when.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it must be looked at. Never absent while it isn't terminal (P4).
    pub due_at: Option<Timestamp>,
}

impl Bridge {
    /// The look that is out, if its lease isn't over.
    #[must_use]
    pub fn look_out(&self, now: Timestamp) -> Option<LookLease> {
        self.look.filter(|l| now < l.until)
    }

    /// A task of this bridge's agent.
    #[must_use]
    pub fn foreign_key(&self, task: &str) -> ForeignKey {
        ForeignKey { agent: self.agent.clone(), task: task.to_owned() }
    }
}

/// A look that is out: no other of its hop sets out until it is back or its lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookLease {
    /// Which of the hop's looks.
    pub n: u32,
    /// When its lease is over.
    pub until: Timestamp,
    /// The turn that it asks about.
    pub turn: u32,
    /// Attempts begun when it set out.
    pub begun: u32,
}

/// Drives our cancel of one foreign task to its end; outlives the hop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CancelIntent {
    /// Of this hop.
    pub hop: HopId,
    /// The tenant.
    pub org: OrgName,
    /// The task.
    pub task: TaskId,
    /// Which foreign task; none: wait until one is bound.
    pub foreign_task: Option<String>,
    /// Tries so far.
    pub tries: u32,
    /// When to try next; none: it is over.
    pub due_at: Option<Timestamp>,
    /// When to give up.
    pub until: Timestamp,
    /// How it came out, once over.
    pub outcome: Option<String>,
}

/// Names a task of an agent. An agent's ids are its own: two agents may well use the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForeignKey {
    /// Whose task.
    pub agent: AgentKey,
    /// What the agent calls it.
    pub task: String,
}

/// Names one attempt at the callback door. All that is read before a token's org is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The door.
    pub callback: CallbackId,
    /// The tenant.
    pub org: OrgName,
    /// The task.
    pub task: TaskId,
    /// The hop.
    pub hop: HopId,
    /// The turn.
    pub turn: u32,
    /// The attempt.
    pub n: u32,
    /// When it may be forgotten.
    pub until: Timestamp,
}

/// What is found behind a callback door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doorway {
    /// Whose door it is.
    pub route: Route,
    /// The agent that its hop goes to, and the version of the entry under which it was cleared.
    pub agent: (AgentKey, u32),
    /// The foreign task that its bridge has bound.
    pub foreign_task: Option<String>,
    /// What was pushed for its hop and not acted on yet.
    pub unread: Unread,
}

/// Events of one hop that nothing acted on yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many.
    pub events: u64,
    /// Bytes of the bodies that are kept of them.
    pub body_bytes: u64,
}

impl Unread {
    /// Events of one hop that are kept unread.
    pub const MOST_EVENTS: u64 = 64;
    /// Bytes of their bodies.
    pub const MOST_BYTES: u64 = 4 * 1_048_576;

    /// Is there room for one more, with a body of so many bytes?
    #[must_use]
    pub const fn has_room_for(&self, body_bytes: u64) -> bool {
        self.events < Self::MOST_EVENTS && self.body_bytes.saturating_add(body_bytes) <= Self::MOST_BYTES
    }
}

/// One event that was pushed, stored before anything acts on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxRow {
    /// Its id.
    pub id: crate::id::InboxId,
    /// The tenant.
    pub org: OrgName,
    /// The hop.
    pub hop: HopId,
    /// The attempt at whose door it came.
    pub n: u32,
    /// Digest of the event; with the hop, unique.
    pub digest: Sha256Digest,
    /// What it claims.
    pub claim: PushClaim,
    /// The foreign task that it names.
    pub foreign_task: Option<String>,
    /// The agent's conversation that it names.
    pub foreign_context: Option<String>,
    /// The body's output, if it claims an end or an interruption and was kept.
    pub body: Option<PayloadId>,
    /// When it came.
    pub at: Timestamp,
    /// Checks so far that didn't bear the claim out.
    pub checks: u32,
    /// When to act on it; none: it was.
    pub due_at: Option<Timestamp>,
}

/// What a pushed event claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushClaim {
    /// Submitted, working, an artifact.
    Progress,
    /// It ended so.
    Completed,
    /// It ended so.
    Failed,
    /// It ended so.
    Canceled,
    /// It ended so.
    Rejected,
    /// It asks.
    InputRequired,
    /// It wants to be authorised.
    AuthRequired,
    /// A bare message.
    Message,
    /// Something that we don't know.
    Unknown,
}

impl PushClaim {
    /// Does the sweep have to ask the agent about it?
    #[must_use]
    pub const fn asks_for_a_look(self) -> bool {
        !matches!(self, Self::Progress)
    }

    /// The state of the task that it claims, if it is one that content belongs to.
    #[must_use]
    pub const fn state(self) -> Option<ForeignState> {
        match self {
            Self::Completed | Self::Message => Some(ForeignState::Completed),
            Self::Failed => Some(ForeignState::Failed),
            Self::Canceled => Some(ForeignState::Canceled),
            Self::Rejected => Some(ForeignState::Rejected),
            Self::InputRequired => Some(ForeignState::InputRequired),
            Self::AuthRequired => Some(ForeignState::AuthRequired),
            Self::Progress | Self::Unknown => None,
        }
    }

    /// Does it say that the work is over?
    #[must_use]
    pub const fn is_an_end(self) -> bool {
        matches!(self, Self::Completed | Self::Message | Self::Failed | Self::Canceled | Self::Rejected)
    }
}
