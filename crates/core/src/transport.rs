//! What a transport is asked and what it answers, whatever protocol lies beneath.
//!
//! A report says what happened on the wire in the domain's terms; deciding what follows from it is the
//! bridge's business. Nothing in a report picks a destination.

use async_trait::async_trait;

use crate::gate::exeat::{CancelPermit, Exeat, Interface, Look, ProbePermit};
use crate::id::OrgName;
use crate::payload::{Payload, Sha256Digest};
use crate::reason::ReasonCode;
use crate::registry::AgentEntry;
use crate::time::Span;

/// The state of a foreign task. An unknown word is progress, never an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignState {
    /// Submitted, working, or a word that we don't know.
    Working,
    /// It asks something.
    InputRequired,
    /// It wants somebody to authorise it.
    AuthRequired,
    /// Done.
    Completed,
    /// It failed.
    Failed,
    /// It stopped, not on our word.
    Canceled,
    /// It won't do it.
    Rejected,
}

impl ForeignState {
    /// Is it an ending?
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }
}

/// A foreign task as an authenticated answer showed it.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTask {
    /// The agent's id of it, at most 512 bytes.
    pub id: String,
    /// The agent's conversation, at most 512 bytes.
    pub context: Option<String>,
    /// Its state.
    pub state: ForeignState,
    /// What it gave: for an interruption the question, for an end the result or the reason's text.
    pub output: Payload,
    /// Message ids found in its history, ours among them if the agent keeps it.
    pub message_ids: Vec<String>,
    /// Cost that it reported, in millionths of a dollar.
    pub reported_microusd: Option<u64>,
}

/// How a send came out.
#[derive(Clone, Debug, PartialEq)]
pub enum SendOutcome {
    /// Answered with a task.
    Task(ForeignTask),
    /// Answered with a bare message: the result, and there is no task.
    Message(Payload),
    /// Nothing arrived: resolve, connect, TLS, expired before a byte. Trying again is safe.
    NotSent(ReasonCode),
    /// Nothing ran and nothing will, whatever we try.
    Impossible(ReasonCode),
    /// The agent refused and nothing ran; `after` says when to try again, if at all.
    Refused {
        /// Why.
        code: ReasonCode,
        /// Try again after this long; `None`: it is final.
        after: Option<Span>,
    },
    /// It answered for good, and with what it answered nothing can be done; it may have run.
    Unusable(ReasonCode),
    /// The agent refuses a context id of our making; nothing ran.
    ContextRefused,
    /// The request was written and no whole answer came: nobody knows.
    Ambiguous,
    /// The card offers another interface than the decision was bound to; nothing was sent.
    OtherInterface(Interface),
}

/// What a send has to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct SendReport {
    /// How it came out.
    pub outcome: SendOutcome,
    /// Digest of the bytes written, if any were.
    pub wire: Option<Sha256Digest>,
    /// The interface used or found.
    pub interface: Option<Interface>,
    /// Digest of the card that was looked at.
    pub card: Option<Sha256Digest>,
    /// Was a push config sent along?
    pub push_asked: bool,
    /// One line for people, secrets already taken out, at most 500 characters.
    pub detail: String,
}

impl SendReport {
    /// A report of an attempt that never got to a card.
    #[must_use]
    pub fn bare(outcome: SendOutcome, detail: impl Into<String>) -> Self {
        let detail = detail.into().chars().take(500).collect();
        Self { outcome, wire: None, interface: None, card: None, push_asked: false, detail }
    }
}

/// How a look came out.
#[derive(Clone, Debug, PartialEq)]
pub enum LookOutcome {
    /// The task.
    Task(ForeignTask),
    /// The tasks of our conversation.
    Tasks(Vec<ForeignTask>),
    /// The agent says that it doesn't know the task.
    NotFound,
    /// The agent can't be asked that.
    Unsupported,
    /// No usable answer; `after` is its Retry-After.
    Nothing {
        /// Why.
        code: ReasonCode,
        /// The agent asks for this long a pause.
        after: Option<Span>,
    },
}

/// How a cancel came out.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelOutcome {
    /// The task as it stands after it; maybe canceled, maybe not.
    Task(ForeignTask),
    /// It is over, or was never there, or can't be canceled: nothing more to do.
    Over,
    /// No usable answer: try again.
    Nothing {
        /// The agent asks for this long a pause.
        after: Option<Span>,
    },
}

/// Speaks to foreign agents of one kind. Implemented by `egress`, and by the simulated world.
#[async_trait]
pub trait Transport: Send + Sync {
    /// One attempt. Consumes the exeat; sends nothing once it ran out.
    async fn send(&self, exeat: Exeat) -> SendReport;
    /// One contact that carries no content out.
    async fn look(&self, look: Look) -> LookOutcome;
    /// Asks for a task of ours to be stopped.
    async fn cancel(&self, permit: CancelPermit) -> CancelOutcome;
    /// What an agent sent of its own accord, without any form of the secrets that it is shown, nor of the
    /// `tokens` that came along. `None` if the secrets can't be told now: then nothing of it may be kept.
    async fn scrubbed(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        tokens: &[String],
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>>;
}

/// Whether the agent takes the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It answered a call that carried it.
    Ok,
    /// It answered 401 or 403.
    Refused,
    /// There is none, it wasn't to be shown, or the call brought no answer.
    NotTried,
}

/// What the card says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedCard {
    /// Where it lay.
    pub found_at: String,
    /// Digest of its bytes.
    pub digest: Sha256Digest,
    /// The agent's name for itself.
    pub name: String,
    /// Ids of its skills, at most a hundred.
    pub skills: Vec<String>,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Did anybody answer?
    pub reachable: bool,
    /// The card, if there is one.
    pub card: Option<ProbedCard>,
    /// The interface that a send would use, and why.
    pub would_use: Option<(Interface, String)>,
    /// Does it take the credential?
    pub auth: Auth,
    /// Does the card claim push? A yes is no proof.
    pub push_claimed: bool,
    /// From the first look-up to the card's last byte.
    pub latency: Span,
    /// What would stand in the way of a send, one sentence each.
    pub problems: Vec<String>,
}

/// Looks at agents for operators.
#[async_trait]
pub trait Prober: Send + Sync {
    /// Looks, by the permit's time. Carries no content and keeps nothing.
    async fn probe(&self, permit: ProbePermit) -> Probed;
}
