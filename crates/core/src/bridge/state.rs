//! The states of a bridge and everything that may happen in them, as one table.

use serde::{Deserialize, Serialize};

use crate::faults::Fault;
use crate::time::Timestamp;
use crate::transport::ForeignState;

/// Where a foreign hop stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum BridgeState {
    /// Parked until a person decides.
    AwaitingApproval,
    /// Cleared once, to be sent.
    Ready,
    /// One attempt is out, fenced by its number.
    Sending {
        /// The attempt.
        n: u32,
        /// When its lease is over.
        until: Timestamp,
    },
    /// Nobody knows whether the attempt arrived.
    SendUnknown {
        /// Since when.
        since: Timestamp,
    },
    /// The agent has it.
    Working,
    /// The agent asks.
    InputRequired,
    /// The agent wants to be authorised.
    AuthRequired,
    /// Ended well.
    Completed,
    /// It went wrong.
    Failed,
    /// The agent wouldn't.
    Rejected,
    /// The agent stopped.
    CanceledByPeer,
    /// We stopped it.
    CanceledByUs,
    /// The deadline passed.
    TimedOut,
    /// It wasn't allowed.
    Denied,
}

/// What may happen to a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A person let it go, and the gate agreed.
    Approved,
    /// A person, policy or a hard rule said no, or nobody decided in time.
    Refused,
    /// The gate, asked again, wants a person.
    NeedsApproval,
    /// An attempt's lease was taken.
    Leased {
        /// The attempt.
        n: u32,
        /// When its lease is over.
        until: Timestamp,
    },
    /// Attempt `n` was not sent, or refused with leave to try again.
    Retry {
        /// The attempt.
        n: u32,
    },
    /// Attempt `n` is ambiguous, or its lease was over.
    Lost {
        /// The attempt.
        n: u32,
        /// When.
        at: Timestamp,
    },
    /// The agent may recognise the message: send it again.
    Resend,
    /// The agent has the task, in this state.
    Shown(Shown),
    /// Our answer to its question is the next turn.
    NextTurn,
    /// Whether our answer arrived is unknown: back to the question.
    AnswerLost,
    /// Somebody on our side stopped it.
    Cancel,
    /// Its deadline passed.
    Deadline,
    /// It can't succeed any more, whatever the agent says.
    GiveUp,
}

/// What the agent showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    /// Submitted, working or an unknown word.
    Working,
    /// It asks.
    InputRequired,
    /// It wants to be authorised.
    AuthRequired,
    /// Done.
    Completed,
    /// Failed.
    Failed,
    /// Wouldn't.
    Rejected,
    /// Stopped.
    Canceled,
}

impl From<ForeignState> for Shown {
    fn from(state: ForeignState) -> Self {
        match state {
            ForeignState::Working => Self::Working,
            ForeignState::InputRequired => Self::InputRequired,
            ForeignState::AuthRequired => Self::AuthRequired,
            ForeignState::Completed => Self::Completed,
            ForeignState::Failed => Self::Failed,
            ForeignState::Canceled => Self::Canceled,
            ForeignState::Rejected => Self::Rejected,
        }
    }
}

impl Event {
    /// The word for it, as counted.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Refused => "refused",
            Self::NeedsApproval => "needs_approval",
            Self::Leased { .. } => "leased",
            Self::Retry { .. } => "retry",
            Self::Lost { .. } => "lost",
            Self::Resend => "resend",
            Self::Shown(Shown::Working) => "shown_working",
            Self::Shown(Shown::InputRequired) => "shown_input_required",
            Self::Shown(Shown::AuthRequired) => "shown_auth_required",
            Self::Shown(Shown::Completed) => "shown_completed",
            Self::Shown(Shown::Failed) => "shown_failed",
            Self::Shown(Shown::Rejected) => "shown_rejected",
            Self::Shown(Shown::Canceled) => "shown_canceled",
            Self::NextTurn => "next_turn",
            Self::AnswerLost => "answer_lost",
            Self::Cancel => "cancel",
            Self::Deadline => "deadline",
            Self::GiveUp => "give_up",
        }
    }
}

/// One move of one bridge, as a decision made it: for counting, never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where it stood.
    pub from: BridgeState,
    /// What came.
    pub event: Event,
}

/// The event has no meaning in that state: a fault of ours, refused instead of guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a bridge in {state} can't take {event:?}")]
pub struct Illegal {
    /// The state.
    pub state: &'static str,
    /// The event.
    pub event: Event,
}

impl BridgeState {
    /// The word for it, as shown and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AwaitingApproval => "awaiting_approval",
            Self::Ready => "ready",
            Self::Sending { .. } => "sending",
            Self::SendUnknown { .. } => "send_unknown",
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::AuthRequired => "auth_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::CanceledByPeer => "canceled_by_peer",
            Self::CanceledByUs => "canceled_by_us",
            Self::TimedOut => "timed_out",
            Self::Denied => "denied",
        }
    }

    /// Is it over for good?
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::Rejected
                | Self::CanceledByPeer
                | Self::CanceledByUs
                | Self::TimedOut
                | Self::Denied
        )
    }

    /// Does the agent have a task that can be looked at?
    #[must_use]
    pub const fn is_parked(self) -> bool {
        matches!(self, Self::Working | Self::InputRequired | Self::AuthRequired)
    }

    /// The whole table. A terminal state takes every event and stays: what comes late changes nothing.
    ///
    /// # Errors
    /// If the event can't happen in this state.
    pub fn on(self, event: Event) -> Result<Self, Illegal> {
        use {BridgeState as S, Event as E};
        Ok(match (self, event) {
            (S::TimedOut, E::Shown(Shown::Completed)) if Fault::LateResultDelivered.is_back() => S::Completed,
            (s, _) if s.is_terminal() => s,
            (_, E::Cancel) => S::CanceledByUs,
            (_, E::Deadline) => S::TimedOut,
            (_, E::GiveUp) => S::Failed,

            (S::AwaitingApproval, E::Approved) => S::Ready,
            (S::AwaitingApproval | S::Ready, E::Refused) => S::Denied,
            (S::AwaitingApproval | S::Ready, E::NeedsApproval) => S::AwaitingApproval,
            (S::AwaitingApproval | S::Ready, E::Leased { n, until }) => S::Sending { n, until },

            (S::Sending { n, .. }, E::Retry { n: of }) if n == of => S::Ready,
            (S::Sending { n, .. }, E::Lost { n: of, at }) if n == of => S::SendUnknown { since: at },
            // An older attempt's words: its fence is gone.
            (s @ S::Sending { .. }, E::Retry { .. } | E::Lost { .. }) => s,
            (
                s @ (S::AwaitingApproval
                | S::Ready
                | S::SendUnknown { .. }
                | S::Working
                | S::InputRequired
                | S::AuthRequired),
                E::Retry { .. } | E::Lost { .. },
            ) => s,

            (S::SendUnknown { .. }, E::Resend) => S::Ready,
            // A turn that can't go, or whose fate is unknown, goes back to the question.
            (S::AwaitingApproval | S::Ready | S::Sending { .. } | S::SendUnknown { .. }, E::AnswerLost) => {
                S::InputRequired
            }
            (
                S::Sending { .. } | S::SendUnknown { .. } | S::Working | S::InputRequired | S::AuthRequired,
                E::Shown(shown),
            ) => match shown {
                Shown::Working => S::Working,
                Shown::InputRequired => S::InputRequired,
                Shown::AuthRequired => S::AuthRequired,
                Shown::Completed => S::Completed,
                Shown::Failed => S::Failed,
                Shown::Rejected => S::Rejected,
                Shown::Canceled => S::CanceledByPeer,
            },
            (S::InputRequired, E::NextTurn) => S::Ready,
            (s, e) => return Err(Illegal { state: s.as_str(), event: e }),
        })
    }
}

#[cfg(test)]
mod tests;
