//! What a peer pushes to a callback: a hint that something happened, never the truth about it.
//!
//! Understood: 1.0 `StreamResponse` wrappers, bare 0.2/0.3 objects by `kind`, bare 0.1 objects, and a JSON-RPC
//! response around any of these. Whoever takes one must hold [`Push::names_task`] to the task it knows, before
//! it believes anything. Source: A2A 1.0 §4.3.3, and what the published SDKs were seen to post.

use exeat_core::payload::{Sha256Digest, canonical};
use serde_json::Value;

use crate::answer::BadAnswer;
use crate::json::{self, Limits};
use crate::shape::Shape;
use crate::state::State;
use crate::view::{ArtifactView, MessageView, TaskView};

/// One event as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// What it says.
    pub event: PushEvent,
    /// Of the event's canonical JSON, without an envelope: equal for a repeat of the same event however it was
    /// spaced, different for any other event, timestamps included. Duplicates are told by this, never by token.
    pub digest: Sha256Digest,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum PushEvent {
    /// A whole task.
    Task(TaskView),
    /// A message. The final answer only of a hop that has no task.
    Message(MessageView),
    /// A change of state. Carries no artifacts, so an end must be fetched.
    Status {
        /// The task.
        task_id: String,
        /// Its conversation.
        context_id: Option<String>,
        /// Where it stands.
        state: State,
        /// What its status says.
        message: Option<MessageView>,
        /// Whether the peer calls this its last event (0.3 and before).
        last: bool,
    },
    /// An output, or a piece of one.
    Artifact {
        /// The task.
        task_id: String,
        /// Its conversation.
        context_id: Option<String>,
        /// The output.
        artifact: ArtifactView,
        /// Whether its parts go after the ones already there.
        append: bool,
        /// Whether it is the last piece of that artifact. No end of the task.
        last_chunk: bool,
    },
    /// An object that we don't know.
    Unknown,
}

/// What an event claims about the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It goes on. Asks for nothing.
    Progress,
    /// It waits for us.
    Interruption,
    /// It has ended.
    End,
    /// Can't be told: look.
    Unknown,
}

/// Reads the body of a callback, whatever its media type.
///
/// # Errors
/// If it isn't a JSON object. An object of no known shape is [`PushEvent::Unknown`].
pub fn event(bytes: &[u8], limits: &Limits) -> Result<Push, BadAnswer> {
    let value = json::read(bytes, limits)?;
    let Value::Object(m) = &value else {
        return Err(BadAnswer::Shape { expected: "an object that tells of a task" });
    };
    let event = if m.contains_key("jsonrpc") { m.get("result").unwrap_or(&value) } else { &value };
    Ok(Push { event: PushEvent::of(event), digest: Sha256Digest::of(&canonical(event)) })
}

impl Push {
    /// The task that the event speaks of, if it names one.
    #[must_use]
    pub fn names_task(&self) -> Option<&str> {
        match &self.event {
            PushEvent::Task(task) => Some(&task.id),
            PushEvent::Message(message) => message.task_id.as_deref(),
            PushEvent::Status { task_id, .. } | PushEvent::Artifact { task_id, .. } => Some(task_id),
            PushEvent::Unknown => None,
        }
    }

    /// The conversation that the event speaks of, if it names one.
    #[must_use]
    pub fn names_context(&self) -> Option<&str> {
        match &self.event {
            PushEvent::Task(TaskView { context_id, .. })
            | PushEvent::Message(MessageView { context_id, .. })
            | PushEvent::Status { context_id, .. }
            | PushEvent::Artifact { context_id, .. } => context_id.as_deref(),
            PushEvent::Unknown => None,
        }
    }

    /// What the event claims about the task.
    #[must_use]
    pub fn claims(&self) -> Claim {
        match &self.event {
            PushEvent::Task(task) => Claim::of(&task.state, false),
            PushEvent::Status { state, last, .. } => Claim::of(state, *last),
            PushEvent::Message(message) if message.parts.is_empty() => Claim::Unknown,
            PushEvent::Message(_) => Claim::End,
            PushEvent::Artifact { .. } => Claim::Progress,
            PushEvent::Unknown => Claim::Unknown,
        }
    }
}

impl PushEvent {
    fn of(value: &Value) -> Self {
        match Shape::of(value) {
            Some(Shape::Task(task)) => Self::Task(task),
            Some(Shape::Message(message)) => Self::Message(message),
            Some(Shape::Status { task_id, context_id, status, last }) => {
                Self::Status { task_id, context_id, state: status.state, message: status.message, last }
            }
            Some(Shape::Artifact { task_id, context_id, artifact, append, last }) => {
                Self::Artifact { task_id, context_id, artifact, append, last_chunk: last }
            }
            None => Self::Unknown,
        }
    }
}

impl Claim {
    /// A peer that calls a state of progress its last word contradicts itself: look.
    fn of(state: &State, last: bool) -> Self {
        match state {
            State::Other(_) => Self::Unknown,
            s if s.is_terminal() => Self::End,
            s if s.is_interrupted() => Self::Interruption,
            _ if last => Self::Unknown,
            _ => Self::Progress,
        }
    }
}
