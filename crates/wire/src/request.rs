//! Builds the bodies that go out: pure functions of their frame, from an allow list of fields.
//!
//! The frames below *are* the allow list: there is no metadata, no extension, no reference to another task in
//! them, and nothing of ours but the ids, the callback and the parts. Bodies are canonical JSON (RFC 8785), so
//! equal frames give equal bytes, and to a 1.0 peer the parts travel as the very bytes that were approved.
//! Sends never block: `returnImmediately: true` in 1.0, `blocking: false` before.

use std::fmt;

use exeat_core::payload::{Part, canonical};
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::part;

/// A request to POST to an interface's URL. Its credential is no business of this crate.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The JSON-RPC method, for records.
    pub method: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Headers to send, names in lower case.
    pub headers: [(&'static str, &'static str); 3],
}

/// Without the body, which holds content and the callback's secret.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Headers for fetching a card: some servers show another card to those who don't say 1.0.
pub const CARD_HEADERS: [(&str, &str); 2] = [("accept", "application/json"), ("a2a-version", "1.0")];

/// Where and with which secret the peer may push.
#[derive(Clone, Copy)]
pub struct PushConfig<'a> {
    /// The callback's URL, one per attempt.
    pub url: &'a str,
    /// The callback's secret. Sent as `token` and as Bearer credentials, since peers send only one of them back.
    pub token: &'a str,
}

/// Without the URL and the token: both are secrets.
impl fmt::Debug for PushConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushConfig").finish_non_exhaustive()
    }
}

/// A message of ours.
#[derive(Clone, Copy)]
pub struct SendFrame<'a> {
    /// Id of the JSON-RPC exchange.
    pub request_id: &'a str,
    /// Id of the message: the same in every attempt of one turn.
    pub message_id: &'a str,
    /// The conversation: the peer's own on a later turn; on the first one ours, or none.
    pub context_id: Option<&'a str>,
    /// The task, on a later turn. Then `context_id` must be there too: a published SDK fails the task of a
    /// follow-up that names the task alone.
    pub task_id: Option<&'a str>,
    /// What it says.
    pub parts: &'a [Part],
    /// Where the peer may push; none if it doesn't push.
    pub push: Option<PushConfig<'a>>,
    /// The chosen interface's tenant.
    pub tenant: Option<&'a str>,
    /// Media types that we take back; empty for any.
    pub accepted_output_modes: &'a [&'a str],
}

/// Without the parts, which are content.
impl fmt::Debug for SendFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFrame")
            .field("message_id", &self.message_id)
            .field("task_id", &self.task_id)
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

/// A call about one task.
#[derive(Clone, Copy, Debug)]
pub struct TaskFrame<'a> {
    /// Id of the JSON-RPC exchange.
    pub request_id: &'a str,
    /// The task, by the peer's id.
    pub task_id: &'a str,
    /// The chosen interface's tenant.
    pub tenant: Option<&'a str>,
}

/// A listing (1.0 only).
#[derive(Clone, Copy, Debug, Default)]
pub struct ListFrame<'a> {
    /// Id of the JSON-RPC exchange.
    pub request_id: &'a str,
    /// Only tasks of this conversation.
    pub context_id: Option<&'a str>,
    /// Only tasks whose status is of this time or later, RFC 3339.
    pub status_after: Option<&'a str>,
    /// Tasks per page, 1 to 100.
    pub page_size: Option<u8>,
    /// Where the page starts, as the last answer said.
    pub page_token: Option<&'a str>,
    /// The chosen interface's tenant.
    pub tenant: Option<&'a str>,
}

/// A message of ours: `SendMessage`, `message/send`.
#[must_use]
pub fn send(dialect: Dialect, frame: &SendFrame<'_>) -> Request {
    let mut message = Map::new();
    message.insert("messageId".into(), frame.message_id.into());
    message.insert("parts".into(), part::write(dialect, frame.parts));
    put(&mut message, "contextId", frame.context_id);
    put(&mut message, "taskId", frame.task_id);
    let mut configuration = Map::new();
    let modes = frame.accepted_output_modes;
    let method = match dialect {
        Dialect::V1_0 => {
            message.insert("role".into(), "ROLE_USER".into());
            configuration.insert("returnImmediately".into(), true.into());
            if !modes.is_empty() {
                configuration.insert("acceptedOutputModes".into(), json!(modes));
            }
            "SendMessage"
        }
        Dialect::V0_3 => {
            message.insert("kind".into(), "message".into());
            message.insert("role".into(), "user".into());
            configuration.insert("blocking".into(), false.into());
            // Required in 0.2.0, so there even if empty.
            configuration.insert("acceptedOutputModes".into(), json!(modes));
            "message/send"
        }
    };
    if let Some(push) = &frame.push {
        let (field, config) = push_config(dialect, push);
        configuration.insert(field.into(), config);
    }
    let mut params = Map::new();
    params.insert("message".into(), Value::Object(message));
    params.insert("configuration".into(), Value::Object(configuration));
    put(&mut params, "tenant", frame.tenant);
    request(dialect, method, frame.request_id, params)
}

fn push_config(dialect: Dialect, push: &PushConfig<'_>) -> (&'static str, Value) {
    let (field, authentication) = match dialect {
        Dialect::V1_0 => {
            ("taskPushNotificationConfig", json!({ "scheme": "Bearer", "credentials": push.token }))
        }
        Dialect::V0_3 => {
            ("pushNotificationConfig", json!({ "schemes": ["Bearer"], "credentials": push.token }))
        }
    };
    (field, json!({ "url": push.url, "token": push.token, "authentication": authentication }))
}

/// A look at a task: `GetTask`, `tasks/get`. `history_length` 0 asks for no history and is really sent; `None`
/// leaves it to the peer, which may send megabytes.
#[must_use]
pub fn get(dialect: Dialect, frame: &TaskFrame<'_>, history_length: Option<u32>) -> Request {
    let mut params = about(frame);
    if let Some(n) = history_length {
        params.insert("historyLength".into(), n.into());
    }
    let method = match dialect {
        Dialect::V1_0 => "GetTask",
        Dialect::V0_3 => "tasks/get",
    };
    request(dialect, method, frame.request_id, params)
}

/// Asks to end a task: `CancelTask`, `tasks/cancel`.
#[must_use]
pub fn cancel(dialect: Dialect, frame: &TaskFrame<'_>) -> Request {
    let method = match dialect {
        Dialect::V1_0 => "CancelTask",
        Dialect::V0_3 => "tasks/cancel",
    };
    request(dialect, method, frame.request_id, about(frame))
}

/// Asks which tasks there are: `ListTasks`. 1.0 only, since JSON-RPC 0.3 can't list. Without artifacts and
/// history: what is found is looked at one by one.
#[must_use]
pub fn list(frame: &ListFrame<'_>) -> Request {
    let mut params = Map::new();
    put(&mut params, "contextId", frame.context_id);
    put(&mut params, "statusTimestampAfter", frame.status_after);
    put(&mut params, "pageToken", frame.page_token);
    put(&mut params, "tenant", frame.tenant);
    if let Some(n) = frame.page_size {
        params.insert("pageSize".into(), n.clamp(1, 100).into());
    }
    params.insert("historyLength".into(), 0.into());
    request(Dialect::V1_0, "ListTasks", frame.request_id, params)
}

fn about(frame: &TaskFrame<'_>) -> Map<String, Value> {
    let mut params = Map::new();
    params.insert("id".into(), frame.task_id.into());
    put(&mut params, "tenant", frame.tenant);
    params
}

fn put(m: &mut Map<String, Value>, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        m.insert(name.to_owned(), text.into());
    }
}

fn request(dialect: Dialect, method: &'static str, id: &str, params: Map<String, Value>) -> Request {
    let body = canonical(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    let headers = [
        ("content-type", "application/json"),
        // One published server answers 400 to a request without it.
        ("accept", "application/json"),
        ("a2a-version", dialect.version()),
    ];
    Request { method, body, headers }
}
