//! What a peer said about a task, reduced to what we act on.
//!
//! Content is split by what it is allowed to be: [`output`](TaskView::output) only of a completed task,
//! [`question`](TaskView::question) only of an interrupted one, [`reason`](TaskView::reason) only of one that
//! ended badly. So the error text of a failed task can't flow on as an answer.

use exeat_core::payload::{Artifact, Content, Part, Payload};
use serde_json::{Map, Value};

use crate::json::{Look as _, line};
use crate::part;
use crate::state::State;

/// Longest reason that is kept, in characters.
const REASON_CHARS: usize = 1000;

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Our side.
    User,
    /// The agent.
    Agent,
    /// Not said, or said in a word that we don't know.
    Unknown,
}

impl Role {
    fn read(value: Option<&Value>) -> Self {
        let name = value.and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        match (name.strip_prefix("role_").unwrap_or(&name), value.and_then(Value::as_u64)) {
            ("user", _) | (_, Some(1)) => Self::User,
            ("agent", _) | (_, Some(2)) => Self::Agent,
            _ => Self::Unknown,
        }
    }
}

/// A message of a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageView {
    /// Its id, if it has one (0.1 has none).
    pub id: Option<String>,
    /// Who wrote it.
    pub role: Role,
    /// The conversation that it names.
    pub context_id: Option<String>,
    /// The task that it names.
    pub task_id: Option<String>,
    /// What it says; may be empty.
    pub parts: Vec<Part>,
}

impl MessageView {
    pub(crate) fn read(m: &Map<String, Value>) -> Self {
        Self {
            id: m.text("messageId").map(str::to_owned),
            role: Role::read(m.member("role")),
            context_id: m.text("contextId").map(str::to_owned),
            task_id: m.text("taskId").map(str::to_owned),
            parts: part::read_all(m),
        }
    }

    /// What it says, as a payload.
    #[must_use]
    pub fn payload(&self) -> Payload {
        Payload { parts: self.parts.clone(), artifacts: Vec::new() }
    }

    /// Its text as one line for a reason, if it has any.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let texts = self.parts.iter().filter_map(|p| match &p.content {
            Content::Text(text) => Some(text.trim()),
            Content::Data(_) | Content::Raw(_) | Content::Url(_) => None,
        });
        let text = texts.filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then(|| line(&text, REASON_CHARS))
    }
}

/// An output of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct ArtifactView {
    /// The agent's id of it; where it gave none (0.1), its position from 0.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// What it holds; may be empty.
    pub parts: Vec<Part>,
}

impl ArtifactView {
    pub(crate) fn read(m: &Map<String, Value>, position: usize) -> Self {
        Self {
            id: m.text("artifactId").map_or_else(|| position.to_string(), str::to_owned),
            name: m.text("name").map(str::to_owned),
            parts: part::read_all(m),
        }
    }
}

/// A task as a peer describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// The peer's id of it; never empty.
    pub id: String,
    /// The conversation, if it says (1.0 may leave it out; 0.1 called it the session).
    pub context_id: Option<String>,
    /// Where it stands.
    pub state: State,
    /// When it got there, as the peer writes it, cut to 64 characters. A claim; peers' clocks are their own.
    pub timestamp: Option<String>,
    /// The message of its status.
    pub message: Option<MessageView>,
    /// Its outputs, in order.
    pub artifacts: Vec<ArtifactView>,
    /// Ids of the messages in the history that came, which may be partial or missing.
    pub history_message_ids: Vec<String>,
    /// The newest message of the agent in that history.
    pub last_agent_message: Option<MessageView>,
}

impl TaskView {
    /// Reads a task that is known to be one. `None` if it has no id.
    pub(crate) fn read(m: &Map<String, Value>) -> Option<Self> {
        let status = Status::read(m);
        let history = || m.list("history").iter().filter_map(Value::as_object);
        let is_agent = |m: &&Map<String, Value>| Role::read(m.member("role")) == Role::Agent;
        Some(Self {
            id: m.text("id")?.to_owned(),
            context_id: m.text("contextId").or_else(|| m.text("sessionId")).map(str::to_owned),
            state: status.state,
            timestamp: status.timestamp,
            message: status.message,
            artifacts: m
                .list("artifacts")
                .iter()
                .filter_map(Value::as_object)
                .enumerate()
                .map(|(position, a)| ArtifactView::read(a, position))
                .collect(),
            history_message_ids: history().filter_map(|h| h.text("messageId")).map(str::to_owned).collect(),
            last_agent_message: history().rfind(is_agent).map(MessageView::read),
        })
    }

    /// What a **completed** task gave: the parts of its status message, then its artifacts in order; if there
    /// are neither, the newest agent message of the history. Empty for a task in any other state.
    #[must_use]
    pub fn output(&self) -> Payload {
        let mut payload = Payload::default();
        if self.state != State::Completed {
            return payload;
        }
        if let Some(message) = &self.message {
            payload.parts.extend_from_slice(&message.parts);
        }
        for artifact in &self.artifacts {
            payload.artifacts.push(Artifact {
                id: artifact.id.clone(),
                name: artifact.name.clone(),
                first: payload.parts.len(),
                count: artifact.parts.len(),
            });
            payload.parts.extend_from_slice(&artifact.parts);
        }
        match &self.last_agent_message {
            Some(message) if payload.parts.is_empty() => message.payload(),
            _ => payload,
        }
    }

    /// What an **interrupted** task asks: its status message, else the newest agent message of the history.
    /// Empty for a task in any other state.
    #[must_use]
    pub fn question(&self) -> Payload {
        if self.state.is_interrupted() {
            self.said().map(MessageView::payload).unwrap_or_default()
        } else {
            Payload::default()
        }
    }

    /// Why a task **failed, was rejected or canceled**, as one line of at most 1,000 characters. `None` for a
    /// task in any other state, or if it didn't say.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        matches!(self.state, State::Failed | State::Rejected | State::Canceled)
            .then(|| self.said()?.line())
            .flatten()
    }

    fn said(&self) -> Option<&MessageView> {
        self.message.as_ref().filter(|m| !m.parts.is_empty()).or(self.last_agent_message.as_ref())
    }
}

/// The status of a task or of an event about one.
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) timestamp: Option<String>,
    pub(crate) message: Option<MessageView>,
}

impl Status {
    pub(crate) fn read(holder: &Map<String, Value>) -> Self {
        let status = holder.object("status");
        Self {
            state: State::read(status.and_then(|s| s.member("state"))),
            timestamp: status.and_then(|s| s.text("timestamp")).map(|t| line(t, 64)),
            message: status.and_then(|s| s.object("message")).map(MessageView::read),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(v: Value) -> TaskView {
        TaskView::read(v.as_object().unwrap()).unwrap()
    }

    #[test]
    fn the_three_kinds_of_content_never_mix() {
        let said = json!({"role":"agent","parts":[{"kind":"text","text":"words"}]});
        for (state, output, question, reason) in [
            ("completed", true, false, false),
            ("failed", false, false, true),
            ("rejected", false, false, true),
            ("canceled", false, false, true),
            ("input-required", false, true, false),
            ("auth-required", false, true, false),
            ("working", false, false, false),
            ("submitted", false, false, false),
            ("no-such-state", false, false, false),
        ] {
            for v in [
                json!({"id":"t","status":{"state":state,"message":said}}),
                json!({"id":"t","status":{"state":state},"history":[said,{"role":"user","parts":[{"text":"no"}]}]}),
            ] {
                let t = task(v);
                assert_eq!(t.output().text() == "words", output, "{state}");
                assert_eq!(t.question().text() == "words", question, "{state}");
                assert_eq!(t.reason().as_deref() == Some("words"), reason, "{state}");
                assert_eq!(t.output().parts.is_empty(), !output);
                assert_eq!(t.question().parts.is_empty(), !question);
                assert_eq!(t.reason().is_none(), !reason);
            }
        }
    }

    #[test]
    fn an_artifact_without_parts_keeps_its_place_and_history_is_the_last_resort() {
        let t = task(
            json!({"id":"t","status":{"state":"completed"},"artifacts":[{"artifactId":"a"},{"parts":[{"text":"x"}]}],
            "history":[{"role":"agent","messageId":"h","parts":[{"text":"no"}]}]}),
        );
        let out = t.output();
        assert_eq!(out.text(), "x");
        assert_eq!((out.artifacts[0].first, out.artifacts[0].count), (0, 0));
        assert_eq!(
            (out.artifacts[1].id.as_str(), out.artifacts[1].first, out.artifacts[1].count),
            ("1", 0, 1)
        );
        assert_eq!(t.history_message_ids, ["h"]);
    }

    #[test]
    fn a_reason_is_one_line_without_tricks() {
        let t = task(
            json!({"id":"t","status":{"state":"failed","message":{"parts":[{"text":"a\nb\u{202E}c\u{7}"}]}}}),
        );
        assert_eq!(t.reason().unwrap(), "a b c ");
        let long = task(
            json!({"id":"t","status":{"state":"failed","message":{"parts":[{"text":"x".repeat(5000)}]}}}),
        );
        assert_eq!(long.reason().unwrap().chars().count(), REASON_CHARS + 1);
    }
}
