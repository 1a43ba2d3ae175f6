//! What a peer answered to a call: a JSON-RPC envelope around a task, a message, a listing or an error.
//!
//! Tolerant of dialects (a 1.0 method answered in the 0.3 shape is understood, and the reverse), strict about
//! meaning: an envelope with neither or both of `result` and `error`, a task without an id, a result of no known
//! shape are refused, because nothing may count as success that isn't plainly one.

use serde::Deserialize;
use serde_json::Value;

use crate::fault::RpcError;
use crate::json::{self, BadJson, Limits, Look as _};
use crate::shape::Shape;
use crate::view::{MessageView, TaskView};

/// Why an answer can't be used. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// Not JSON that we read.
    #[error(transparent)]
    Json(#[from] BadJson),
    /// Not a JSON-RPC response: an object with `result` or `error`.
    #[error("the answer isn't a JSON-RPC response: it has neither a result nor an error")]
    NoResult,
    /// The answer to another request.
    #[error("the answer is to another request than ours")]
    OtherRequest,
    /// A result and an error at once.
    #[error("the answer has both a result and an error")]
    Both,
    /// A result of no shape that A2A knows for this call.
    #[error("the result isn't {expected}")]
    Shape {
        /// What the call is answered with.
        expected: &'static str,
    },
    /// A message that says nothing can't be the output of anything.
    #[error("the agent answered with a message that has no parts")]
    NoParts,
}

/// Is it plainly the answer to another request than `id`, e.g. of a proxy that mixes up its connections? Some peers leave
/// the id out, say null, or make a number of its digits: that is no other one. What can't be read isn't judged here.
#[must_use]
pub fn is_to_another(bytes: &[u8], id: &str) -> bool {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        id: Value,
    }
    match serde_json::from_slice(bytes).map(|Head { id }| id) {
        Ok(Value::Null) | Err(_) => false,
        Ok(Value::String(other)) => other != id,
        Ok(Value::Number(other)) => other.to_string() != id,
        Ok(_) => true,
    }
}

/// The answer to a send.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is taken apart at once")]
pub enum SendAnswer {
    /// A task, maybe ended already.
    Task(TaskView),
    /// A message and nothing else: it is the output, there is no task to look at.
    Message(MessageView),
    /// The peer's error.
    Error(RpcError),
}

/// The answer to a get or a cancel.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, and is taken apart at once")]
pub enum TaskAnswer {
    /// The task.
    Task(TaskView),
    /// The peer's error.
    Error(RpcError),
}

/// The answer to a listing.
#[derive(Clone, Debug, PartialEq)]
pub enum ListAnswer {
    /// The tasks.
    Tasks(Listing),
    /// The peer's error.
    Error(RpcError),
}

/// A page of tasks.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Listing {
    /// Those that could be read.
    pub tasks: Vec<TaskView>,
    /// How many couldn't: with any, an absent task proves nothing.
    pub unreadable: usize,
    /// Where the next page starts; `None` on the last one.
    pub next_page_token: Option<String>,
}

/// Reads the answer to a send, in any dialect.
///
/// # Errors
/// If it is neither a task with an id, nor a message with parts, nor an error.
pub fn send_answer(bytes: &[u8], limits: &Limits) -> Result<SendAnswer, BadAnswer> {
    let result = match open(bytes, limits)? {
        Envelope::Error(e) => return Ok(SendAnswer::Error(e)),
        Envelope::Result(result) => result,
    };
    match Shape::of(&result) {
        Some(Shape::Task(task)) => Ok(SendAnswer::Task(task)),
        Some(Shape::Message(message)) if message.parts.is_empty() => Err(BadAnswer::NoParts),
        Some(Shape::Message(message)) => Ok(SendAnswer::Message(message)),
        Some(Shape::Status { .. } | Shape::Artifact { .. }) | None => {
            Err(BadAnswer::Shape { expected: "a task with an id or a message" })
        }
    }
}

/// Reads the answer to a get or a cancel, in any dialect.
///
/// # Errors
/// If it is neither a task with an id nor an error.
pub fn task_answer(bytes: &[u8], limits: &Limits) -> Result<TaskAnswer, BadAnswer> {
    match open(bytes, limits)? {
        Envelope::Error(e) => Ok(TaskAnswer::Error(e)),
        Envelope::Result(result) => match Shape::of(&result) {
            Some(Shape::Task(task)) => Ok(TaskAnswer::Task(task)),
            _ => Err(BadAnswer::Shape { expected: "a task with an id" }),
        },
    }
}

/// Reads the answer to a listing. An empty page proves nothing about what ran.
///
/// # Errors
/// If it is neither a listing nor an error.
pub fn list_answer(bytes: &[u8], limits: &Limits) -> Result<ListAnswer, BadAnswer> {
    let expected = BadAnswer::Shape { expected: "a listing of tasks" };
    let result = match open(bytes, limits)? {
        Envelope::Error(e) => return Ok(ListAnswer::Error(e)),
        Envelope::Result(result) => result,
    };
    let Some(m) = result.as_object() else { return Err(expected) };
    // ProtoJSON leaves an empty list out, but then the page size or token is there.
    let page = ["tasks", "nextPageToken", "pageSize", "totalSize"];
    if !page.iter().any(|name| m.member(name).is_some()) {
        return Err(expected);
    }
    let listed = m.list("tasks");
    let tasks: Vec<TaskView> = listed.iter().filter_map(|t| t.as_object().and_then(TaskView::read)).collect();
    Ok(ListAnswer::Tasks(Listing {
        unreadable: listed.len() - tasks.len(),
        tasks,
        next_page_token: m.text("nextPageToken").map(str::to_owned),
    }))
}

pub(crate) enum Envelope {
    Result(Value),
    Error(RpcError),
}

fn open(bytes: &[u8], limits: &Limits) -> Result<Envelope, BadAnswer> {
    match json::read(bytes, limits)? {
        Value::Object(mut m) => match (m.remove("result"), m.remove("error")) {
            (None | Some(Value::Null), Some(error)) if !error.is_null() => {
                Ok(Envelope::Error(RpcError::read(&error)))
            }
            (Some(result), None | Some(Value::Null)) => Ok(Envelope::Result(result)),
            (Some(_), Some(_)) => Err(BadAnswer::Both),
            (None, _) => Err(BadAnswer::NoResult),
        },
        _ => Err(BadAnswer::NoResult),
    }
}
