//! Tells by its shape what an object of a peer is, whichever dialect it was written in.
//!
//! In order: a 0.2/0.3 object by its `kind`; a 1.0 wrapper with exactly one member; a 0.1 object by its members.
//! What fits none, or fits two, is nothing that we know.

use serde_json::{Map, Value};

use crate::json::Look as _;
use crate::view::{ArtifactView, MessageView, Status, TaskView};

/// What a peer's object is.
pub(crate) enum Shape {
    Task(TaskView),
    Message(MessageView),
    Status { task_id: String, context_id: Option<String>, status: Status, last: bool },
    Artifact { task_id: String, context_id: Option<String>, artifact: ArtifactView, append: bool, last: bool },
}

impl Shape {
    /// `None` for anything that isn't plainly one of these, or that lacks its id.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let m = value.as_object()?;
        if let Some(kind) = m.text("kind") {
            return Kind::named(kind)?.read(m);
        }
        let wrapped: Vec<(Kind, &Map<String, Value>)> = Kind::WRAPPERS
            .into_iter()
            .filter_map(|(name, kind)| Some((kind, m.object(name)?)))
            .filter(|(_, inner)| !inner.is_empty())
            .collect();
        match (wrapped.as_slice(), Kind::bare(m)) {
            ([(kind, inner)], None) => kind.read(inner),
            ([], Some(kind)) => kind.read(m),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Task,
    Message,
    Status,
    Artifact,
}

impl Kind {
    const WRAPPERS: [(&'static str, Self); 4] = [
        ("task", Self::Task),
        ("message", Self::Message),
        ("statusUpdate", Self::Status),
        ("artifactUpdate", Self::Artifact),
    ];

    fn named(kind: &str) -> Option<Self> {
        match kind.to_ascii_lowercase().replace('_', "-").as_str() {
            "task" => Some(Self::Task),
            "message" => Some(Self::Message),
            "status-update" => Some(Self::Status),
            "artifact-update" => Some(Self::Artifact),
            _ => None,
        }
    }

    /// By its members alone, as 0.1 has no other way.
    fn bare(m: &Map<String, Value>) -> Option<Self> {
        let has = |name| m.object(name).is_some();
        let names_task = m.text("taskId").is_some();
        if has("artifact") {
            return Some(Self::Artifact);
        }
        if has("status") {
            let event = m.flag("final").is_some() || (names_task && m.text("id").is_none());
            return Some(if event { Self::Status } else { Self::Task });
        }
        (m.text("role").is_some() && m.member("parts").is_some_and(Value::is_array)).then_some(Self::Message)
    }

    fn read(self, m: &Map<String, Value>) -> Option<Shape> {
        // 0.1 events call the task's id `id`.
        let task_id = || m.text("taskId").or_else(|| m.text("id")).map(str::to_owned);
        let context_id = || m.text("contextId").or_else(|| m.text("sessionId")).map(str::to_owned);
        Some(match self {
            Self::Task => Shape::Task(TaskView::read(m)?),
            Self::Message => Shape::Message(MessageView::read(m)),
            Self::Status => Shape::Status {
                task_id: task_id()?,
                context_id: context_id(),
                status: Status::read(m),
                last: m.flag("final") == Some(true),
            },
            Self::Artifact => Shape::Artifact {
                task_id: task_id()?,
                context_id: context_id(),
                artifact: ArtifactView::read(m.object("artifact")?, 0),
                append: m.flag("append") == Some(true),
                last: m.flag("lastChunk") == Some(true),
            },
        })
    }
}
