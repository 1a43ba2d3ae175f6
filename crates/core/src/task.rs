//! One run of a workflow, or one delegation: the task, its steps, and the hops that they make.
//!
//! Task, steps, hops and continuations are one aggregate with one version: two replicas that end the
//! last two branches can't both see the other open. What a foreign hop does beyond that is its bridge.

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::gate::verdict::KeyFacts;
use crate::id::{ApprovalId, EnvelopeId, HopId, OrgName, PayloadId, QuestionId, StepName, TaskId};
use crate::label::Label;
use crate::ledger::SaltedDigest;
use crate::payload::{Artifact, Sha256Digest};
use crate::reason::{Reason, ReasonCode};
use crate::time::{Span, Timestamp};
use crate::workflow::WorkflowRef;

pub mod advance;
pub mod decision;
pub mod desk;
pub mod dispatch;
pub mod ending;
pub mod explain;
pub mod query;
pub mod redo;
pub mod run;
pub mod worker;

pub use run::{Run, RunState};

/// A stored payload, as rows refer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Where.
    pub id: PayloadId,
    /// Salted digest, as in the ledger: `sha256s:…`.
    pub digest: SaltedDigest,
    /// Plain digest of the payload bytes, as approvals bind it.
    pub plain: Sha256Digest,
    /// Size of the payload bytes.
    pub bytes: u64,
    /// What it carries.
    pub label: Label,
    /// Has foreign content flowed into it?
    pub tainted: bool,
    /// For foreign output: which parts came from which artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Well.
    Completed,
    /// It went wrong.
    Failed,
    /// It wasn't allowed.
    Denied,
    /// The agent wouldn't.
    Rejected,
    /// The deadline passed.
    TimedOut,
    /// It was canceled.
    Canceled,
}

impl Ending {
    /// The status word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::Canceled => "canceled",
        }
    }
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It goes on by itself.
    Running,
    /// A person must decide.
    AwaitingApproval,
    /// Somebody must answer.
    AwaitingInput,
    /// Over.
    #[serde(untagged)]
    Ended(Ending),
}

impl TaskStatus {
    /// The status word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingInput => "awaiting_input",
            Self::Ended(e) => e.as_str(),
        }
    }
    /// Is it over?
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// Status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Its needs aren't met yet.
    Pending,
    /// A worker or an agent has it.
    Dispatched,
    /// Its worker waits for what it delegated.
    Parked,
    /// A person must decide.
    AwaitingApproval,
    /// Somebody must answer.
    AwaitingInput,
    /// Its `when` said no, or the task ended before.
    Skipped,
    /// Over.
    #[serde(untagged)]
    Ended(Ending),
}

impl StepStatus {
    /// The status word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatched => "dispatched",
            Self::Parked => "parked",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingInput => "awaiting_input",
            Self::Skipped => "skipped",
            Self::Ended(e) => e.as_str(),
        }
    }
    /// Will nothing more happen to it?
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Skipped | Self::Ended(_))
    }
    /// Does it meet a need?
    #[must_use]
    pub const fn meets_needs(self) -> bool {
        matches!(self, Self::Skipped | Self::Ended(Ending::Completed))
    }
}

/// A one-hop task, instead of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delegation {
    /// Whereto.
    pub to: Endpoint,
    /// Which skill.
    pub skill: Option<String>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The tenant.
    pub org: OrgName,
    /// The workflow, pinned; or
    pub workflow: Option<WorkflowRef>,
    /// the delegation.
    pub delegation: Option<Delegation>,
    /// Where it stands.
    pub status: TaskStatus,
    /// Why it ended, unless well.
    pub reason: Option<Reason>,
    /// Who started it, as policy saw the key then.
    pub requester: KeyFacts,
    /// What it was given.
    pub input: Held,
    /// What it gave.
    pub output: Option<Held>,
    /// Its own limit.
    pub budget_microusd: Option<u64>,
    /// Hops that it may make.
    pub max_hops: u32,
    /// Spent so far.
    pub cost_microusd: u64,
    /// Promised to open turns.
    pub reserved_microusd: u64,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when, if anybody said so.
    pub deadline: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The task that it takes further.
    pub continues: Option<TaskId>,
    /// Its steps, in the order of the workflow.
    pub steps: Vec<Step>,
    /// All hops it has made, in order.
    pub hops: Vec<Hop>,
    /// When its readiness is computed afresh.
    pub due_at: Option<Timestamp>,
}

/// A node of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: StepName,
    /// Where it stands.
    pub status: StepStatus,
    /// Why it ended, unless well.
    pub reason: Option<Reason>,
    /// What it was given; the list, if it runs for each element of one.
    pub input: Option<Held>,
    /// What it gave.
    pub output: Option<Held>,
    /// When it was dispatched first.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// One, or one for each element of its list, in order. None before its needs are met.
    pub runs: Vec<Run>,
}

/// One delegation of a suspended worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delegated {
    /// The worker's own name for it.
    pub id: String,
    /// The hop that does it.
    pub hop: HopId,
}

/// A worker that waits, without compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its opaque state, as a payload of one data part.
    pub continuation: Held,
    /// What it waits for, in request order.
    pub delegated: Vec<Delegated>,
}

/// What an interrupted foreign agent asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// What it asks.
    pub prompt: Held,
    /// Until when an answer helps.
    pub until: Timestamp,
    /// Does it want input, or authorisation by a person at the agent's side?
    pub wants: Wants,
}

/// What kind of interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// An answer.
    Input,
    /// Somebody to authorise it, out of band.
    Auth,
}

/// Where a hop stands, as its task sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum HopState {
    /// A person must let it go to the role.
    AwaitingForward {
        /// The approval.
        approval: ApprovalId,
    },
    /// A worker has it, or will.
    Out {
        /// The envelope.
        envelope: EnvelopeId,
    },
    /// Its worker waits for what it delegated: see [`Hop::wait`].
    Parked,
    /// Its bridge has it.
    Foreign,
    /// A person must let it go to the agent.
    AwaitingEgress {
        /// The approval.
        approval: ApprovalId,
    },
    /// The agent asks.
    Asking(Question),
    /// The agent gave a result; a person must let it in.
    AwaitingIngress {
        /// The approval.
        approval: ApprovalId,
    },
    /// Over.
    Ended {
        /// How.
        ending: Ending,
        /// Why, unless well.
        reason: Option<Reason>,
        /// What it gave.
        output: Option<Held>,
        /// What it cost.
        cost_microusd: u64,
    },
}

/// Whose hop it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum HopOwner {
    /// The step itself.
    Step {
        /// Which of its [runs](Step::runs), from 0.
        run: usize,
    },
    /// A worker's turn.
    Worker {
        /// The worker's hop.
        hop: HopId,
        /// The worker's name for it.
        delegation: String,
        /// The role that asked, as policy sees it.
        role: crate::id::RoleName,
    },
}

/// The whole errand to one endpoint for one step or delegation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// Its id; the bridge's too, if it is foreign.
    pub id: HopId,
    /// The step it is made for.
    pub step: StepName,
    /// Whose.
    pub owner: HopOwner,
    /// Whereto.
    pub to: Endpoint,
    /// How deep, from 1.
    pub depth: u32,
    /// The skill asked for.
    pub skill: Option<String>,
    /// The deadline it was given.
    pub deadline: Option<Span>,
    /// What it brings in this turn.
    pub input: Held,
    /// The turn, from 1.
    pub turn: u32,
    /// The last turn whose outcome is recorded; 0: none yet.
    pub closed: u32,
    /// Join of the labels of all that a worker of it was handed.
    pub seen: Label,
    /// Has foreign content been handed to it?
    pub tainted: bool,
    /// Where it stands.
    pub state: HopState,
    /// What its worker delegated last, and the continuation that it left.
    pub wait: Option<Wait>,
    /// On a later turn of its worker: the answers, as they are handed to it.
    pub replies: Option<Held>,
    /// When it is over, whatever happens, for a hop to a role.
    pub until: Option<Timestamp>,
    /// How often its envelope was handed out, over all turns.
    pub deliveries: u32,
    /// Since when.
    pub created_at: Timestamp,
}

impl Hop {
    /// Is it over?
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.state, HopState::Ended { .. })
    }
    /// Is the outcome of its present turn recorded?
    #[must_use]
    pub const fn is_turn_closed(&self) -> bool {
        self.closed >= self.turn
    }
    /// Is it at rest for its owner: over, or asking?
    #[must_use]
    pub const fn answers(&self) -> bool {
        matches!(self.state, HopState::Ended { .. } | HopState::Asking(Question { wants: Wants::Input, .. }))
    }
}

impl Task {
    /// One of its steps.
    #[must_use]
    pub fn step(&self, name: &StepName) -> Option<&Step> {
        self.steps.iter().find(|s| s.name == *name)
    }
    /// One of its hops.
    #[must_use]
    pub fn hop(&self, id: HopId) -> Option<&Hop> {
        self.hops.iter().find(|h| h.id == id)
    }
    /// The hop in the key of a hop's edges: none for the first one that a step makes to a role, so that a
    /// step can't set out twice. Each further one (a retry, another element of a list) goes by its own.
    #[must_use]
    pub fn edge_hop(&self, hop: &Hop) -> Option<HopId> {
        let own = |h: &&Hop| h.step == hop.step && matches!(h.owner, HopOwner::Step { .. });
        let is_first = self.hops.iter().find(own).is_some_and(|h| h.id == hop.id);
        let is_internal = matches!(hop.to, Endpoint::Role(_) | Endpoint::Team(_));
        (!(is_first && is_internal)).then_some(hop.id)
    }
    /// What is left of its own budget.
    #[must_use]
    pub fn budget_left(&self) -> Option<u64> {
        self.budget_microusd
            .map(|b| b.saturating_sub(self.cost_microusd).saturating_sub(self.reserved_microusd))
    }
}

/// An ending, with its reason and maybe an output.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// How.
    pub ending: Ending,
    /// Why, unless well.
    pub reason: Option<Reason>,
    /// What it gave.
    pub output: Option<Held>,
}

impl End {
    /// A bad end.
    #[must_use]
    pub fn badly(ending: Ending, code: ReasonCode, detail: &str) -> Self {
        Self { ending, reason: Some(Reason::new(code, detail)), output: None }
    }
    /// A good end.
    #[must_use]
    pub const fn well(output: Held) -> Self {
        Self { ending: Ending::Completed, reason: None, output: Some(output) }
    }
}
