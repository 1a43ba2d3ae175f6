//! What goes back to a caller: an HTTP answer, or nothing at all; and the faults of JSON-RPC.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::dialect::{Dialect, put};

/// An answer, and who waits for it to be on its way.
pub(super) struct Answer {
    pub(super) kind: Kind,
    /// Fires once the answer was handed to the socket, or can't be any more.
    pub(super) answered: Option<DropGuard>,
}

/// What is answered.
pub(super) enum Kind {
    Http {
        status: StatusCode,
        headers: Vec<(HeaderName, String)>,
        body: Bytes,
    },
    /// The connection is closed without a byte.
    HangUp,
}

impl Answer {
    /// JSON with a status.
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self::raw(status, "application/json", body.to_string())
    }

    /// Anything with a status.
    pub(super) fn raw(status: StatusCode, media: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, media.to_owned())];
        Self { kind: Kind::Http { status, headers, body: body.into() }, answered: None }
    }

    /// A bare status as an overloaded or broken server gives it.
    pub(super) fn status(code: u16) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let answer = Self::raw(status, "text/plain", format!("stub-agent: {status}\n"));
        if matches!(code, 429 | 503) { answer.with(header::RETRY_AFTER, "1") } else { answer }
    }

    /// The end of the connection.
    pub(super) fn hang_up() -> Self {
        Self { kind: Kind::HangUp, answered: None }
    }

    /// A JSON-RPC result.
    pub(super) fn result(id: &Value, result: &Value) -> Self {
        Self::json(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    /// A JSON-RPC error; 1.0 explains it by a typed detail.
    pub(super) fn fault(id: &Value, dialect: Dialect, fault: &Fault) -> Self {
        let mut error = json!({ "code": fault.code(), "message": fault.to_string() });
        if let (Dialect::V1, Some(reason)) = (dialect, fault.reason()) {
            let info = json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
                "domain": "a2a-protocol.org",
            });
            put(&mut error, "data", json!([info]));
        }
        Self::json(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }

    /// With another header.
    #[must_use]
    pub(super) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        if let Kind::Http { headers, .. } = &mut self.kind {
            headers.push((name, value.into()));
        }
        self
    }
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Parse,
    Request,
    Method(String),
    Params(String),
    Internal(String),
    TaskNotFound,
    NotCancelable,
    PushUnsupported,
    Unsupported(&'static str),
    Version(String),
    /// As a directive orders.
    Ordered(i64),
}

impl Fault {
    fn code(&self) -> i64 {
        match self {
            Self::Parse => -32700,
            Self::Request => -32600,
            Self::Method(_) => -32601,
            Self::Params(_) => -32602,
            Self::Internal(_) => -32603,
            Self::TaskNotFound => -32001,
            Self::NotCancelable => -32002,
            Self::PushUnsupported => -32003,
            Self::Unsupported(_) => -32004,
            Self::Version(_) => -32009,
            Self::Ordered(code) => *code,
        }
    }

    fn reason(&self) -> Option<&'static str> {
        Some(match self.code() {
            -32001 => "TASK_NOT_FOUND",
            -32002 => "TASK_NOT_CANCELABLE",
            -32003 => "PUSH_NOTIFICATION_NOT_SUPPORTED",
            -32004 => "UNSUPPORTED_OPERATION",
            -32005 => "CONTENT_TYPE_NOT_SUPPORTED",
            -32006 => "INVALID_AGENT_RESPONSE",
            -32009 => "VERSION_NOT_SUPPORTED",
            _ => return None,
        })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parse => f.write_str("Invalid JSON payload"),
            Self::Request => f.write_str("Request payload validation error"),
            Self::Method(method) => write!(f, "Method not found: {method}"),
            Self::Params(why) => write!(f, "Invalid parameters: {why}"),
            Self::Internal(why) => write!(f, "Internal error: {why}"),
            Self::TaskNotFound => f.write_str("Task not found"),
            Self::NotCancelable => f.write_str("Task cannot be canceled"),
            Self::PushUnsupported => f.write_str("Push Notification is not supported"),
            Self::Unsupported(what) => write!(f, "This operation is not supported: {what}"),
            Self::Version(version) => write!(f, "A2A version {version:?} is not supported"),
            Self::Ordered(code) => write!(f, "error {code}, as ordered"),
        }
    }
}

/// A body that tells when it is gone.
pub(super) struct Reply {
    bytes: Option<Bytes>,
    _answered: Option<DropGuard>,
}

impl Reply {
    /// The body of an answer.
    pub(super) fn new(bytes: Bytes, answered: Option<DropGuard>) -> Self {
        Self { bytes: Some(bytes).filter(|b| !b.is_empty()), _answered: answered }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| u64::try_from(b.len()).unwrap_or(u64::MAX)))
    }
}
