//! Errors that a peer reports, and what they prove.

use serde_json::{Map, Value};

use crate::json::{Look as _, line};

/// Longest message that is kept, in characters.
const MESSAGE_CHARS: usize = 300;

/// An error object, from a JSON-RPC envelope or in the shape of `google.rpc.Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// Its code, if it has a whole number there.
    pub code: Option<i64>,
    /// The machine-readable reason of its details, if any, cut to 64 characters.
    pub reason: Option<String>,
    /// Whether its details name the fields that are wrong (`google.rpc.BadRequest`), as a check of the request
    /// against its schema does, and an agent's own code doesn't.
    pub names_fields: bool,
    /// Its text: one line, cut to 300 characters. Foreign content, to be treated as such.
    pub message: String,
}

impl RpcError {
    pub(crate) fn read(value: &Value) -> Self {
        let Some(m) = value.as_object() else {
            let message = value.as_str().map(|s| line(s, MESSAGE_CHARS)).unwrap_or_default();
            return Self { code: None, reason: None, names_fields: false, message };
        };
        Self {
            code: m.member("code").and_then(Value::as_i64),
            reason: details(m).find_map(|d| d.text("reason")).map(|r| line(r, 64)),
            names_fields: details(m).any(|d| !d.list("fieldViolations").is_empty()),
            message: line(m.text("message").unwrap_or_default(), MESSAGE_CHARS),
        }
    }

    /// What it proves about the message that it answers: as its class does, but invalid parameters that are
    /// named one by one were found by a check that comes before work.
    #[must_use]
    pub fn refusal(&self, http_status: Option<u16>) -> Refusal {
        match self.class(http_status) {
            ErrorClass::InvalidParams if self.names_fields => Refusal::Declined,
            class => class.refusal(),
        }
    }

    /// What it means: by its reason first, since several errors share a code, then by its code, then by the
    /// HTTP status that it came with.
    #[must_use]
    pub fn class(&self, http_status: Option<u16>) -> ErrorClass {
        let status = http_status.map(i64::from).filter(|s| *s >= 400);
        self.reason
            .as_deref()
            .and_then(ErrorClass::of_reason)
            .or_else(|| self.code.and_then(ErrorClass::of_code))
            .or_else(|| {
                self.code.filter(|c| (400..600).contains(c)).or(status).and_then(ErrorClass::of_status)
            })
            .unwrap_or(ErrorClass::Other(self.code.unwrap_or_default()))
    }
}

/// The details of an error. `data` is an array of them in 1.0, an object or null in 0.3; REST errors say
/// `details`.
fn details(error: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let nested = error.object("data");
    let inner = nested.map_or(&[][..], |d| d.list("details"));
    let listed = [error.list("data"), error.list("details"), inner].into_iter().flatten();
    listed.filter_map(Value::as_object).chain(nested)
}

/// What an error of a peer means (A2A 1.0 §5.4; JSON-RPC 2.0 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// It knows no such task, or won't say that it does.
    TaskNotFound,
    /// The task has ended, or can't be canceled.
    TaskNotCancelable,
    /// It doesn't push.
    PushNotSupported,
    /// It doesn't do that, e.g. take a message for a task that has ended.
    Unsupported,
    /// It doesn't take that kind of content.
    ContentType,
    /// The agent behind it gave something unusable: it ran.
    InvalidResponse,
    /// It wants an extension that we don't speak.
    ExtensionRequired,
    /// It doesn't speak that version.
    VersionNotSupported,
    /// It knows no such method.
    MethodNotFound,
    /// It finds the parameters wrong.
    InvalidParams,
    /// It finds the envelope wrong.
    InvalidRequest,
    /// It couldn't read the JSON.
    Parse,
    /// It broke.
    Internal,
    /// Any other code; 0 if it gave none.
    Other(i64),
}

/// What an error proves about the work it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The protocol layer refused the frame, so that no agent saw the message: it may go again in another
    /// dialect.
    Unseen,
    /// The peer declined by a check that comes before work.
    Declined,
    /// Proves nothing: work may have been done. **Invalid parameters** are among these: a2a-sdk for Python 1.3.0
    /// gives that answer when an agent, after it ran, names another context than the request did.
    Unproven,
}

impl ErrorClass {
    /// What it proves about the message that it answers.
    #[must_use]
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Parse
            | Self::InvalidRequest
            | Self::MethodNotFound
            | Self::VersionNotSupported
            | Self::ExtensionRequired => Refusal::Unseen,
            Self::ContentType | Self::Unsupported | Self::PushNotSupported | Self::TaskNotFound => {
                Refusal::Declined
            }
            Self::InvalidParams
            | Self::TaskNotCancelable
            | Self::InvalidResponse
            | Self::Internal
            | Self::Other(_) => Refusal::Unproven,
        }
    }

    /// Whether the peer refused the message, in one way or the other, before anything was executed.
    #[must_use]
    pub const fn nothing_ran(self) -> bool {
        !matches!(self.refusal(), Refusal::Unproven)
    }

    /// Whether the other dialect is worth one try.
    #[must_use]
    pub const fn is_about_dialect(self) -> bool {
        matches!(self, Self::MethodNotFound | Self::VersionNotSupported)
    }

    fn of_reason(reason: &str) -> Option<Self> {
        let plain: String =
            reason.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        Some(match plain.strip_suffix("error").unwrap_or(&plain) {
            "tasknotfound" => Self::TaskNotFound,
            "tasknotcancelable" | "tasknotcancellable" => Self::TaskNotCancelable,
            "pushnotificationnotsupported" => Self::PushNotSupported,
            "unsupportedoperation" => Self::Unsupported,
            "contenttypenotsupported" => Self::ContentType,
            "invalidagentresponse" => Self::InvalidResponse,
            "extensionsupportrequired" => Self::ExtensionRequired,
            "versionnotsupported" => Self::VersionNotSupported,
            "methodnotfound" => Self::MethodNotFound,
            "invalidparams" => Self::InvalidParams,
            "invalidrequest" => Self::InvalidRequest,
            "jsonparse" | "parse" => Self::Parse,
            "internal" => Self::Internal,
            _ => return None,
        })
    }

    const fn of_code(code: i64) -> Option<Self> {
        Some(match code {
            -32001 => Self::TaskNotFound,
            -32002 => Self::TaskNotCancelable,
            -32003 => Self::PushNotSupported,
            -32004 => Self::Unsupported,
            -32005 => Self::ContentType,
            -32006 => Self::InvalidResponse,
            -32008 => Self::ExtensionRequired,
            -32009 => Self::VersionNotSupported,
            -32700 => Self::Parse,
            -32600 => Self::InvalidRequest,
            -32601 => Self::MethodNotFound,
            -32602 => Self::InvalidParams,
            -32603 => Self::Internal,
            _ => return None,
        })
    }

    /// Statuses are shared by many errors, so only the ones that leave no choice are read: a bare 400 or 404
    /// may come from a gateway that knows nothing of tasks.
    const fn of_status(status: i64) -> Option<Self> {
        match status {
            415 => Some(Self::ContentType),
            500..=599 => Some(Self::Internal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(v: Value, status: Option<u16>) -> ErrorClass {
        RpcError::read(&v).class(status)
    }

    #[test]
    fn the_reason_outranks_the_code_and_the_code_the_status() {
        let info = json!({"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"VERSION_NOT_SUPPORTED","domain":"a2a-protocol.org"});
        let bad_request = json!({"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[]});
        for (given, status, expected) in [
            (json!({"code":-32603,"data":[bad_request, info]}), None, ErrorClass::VersionNotSupported),
            (
                json!({"code":400,"status":"FAILED_PRECONDITION","details":[info]}),
                Some(400),
                ErrorClass::VersionNotSupported,
            ),
            (json!({"code":-32001,"data":null}), Some(500), ErrorClass::TaskNotFound),
            (json!({"code":-32001,"data":{"type":"x"}}), None, ErrorClass::TaskNotFound),
            (json!({"code":-32000,"data":{"reason":"TaskNotFoundError"}}), None, ErrorClass::TaskNotFound),
            (json!({"code":-32601,"data":[{"reason":"WHO_KNOWS"}]}), None, ErrorClass::MethodNotFound),
            (json!({"code":-32050}), Some(415), ErrorClass::ContentType),
            (json!({"code":-32050}), Some(200), ErrorClass::Other(-32050)),
            (json!({"code":404,"message":"Not Found"}), Some(404), ErrorClass::Other(404)),
            (json!("task timed out"), None, ErrorClass::Other(0)),
            (json!({"message":"x"}), Some(503), ErrorClass::Internal),
        ] {
            assert_eq!(class(given.clone(), status), expected, "{given}");
        }
    }

    #[test]
    fn what_each_error_proves_about_the_work() {
        for (code, refusal) in [
            (-32700, Refusal::Unseen),
            (-32600, Refusal::Unseen),
            (-32601, Refusal::Unseen),
            (-32008, Refusal::Unseen),
            (-32009, Refusal::Unseen),
            (-32602, Refusal::Unproven),
            (-32005, Refusal::Declined),
            (-32004, Refusal::Declined),
            (-32003, Refusal::Declined),
            (-32001, Refusal::Declined),
            (-32002, Refusal::Unproven),
            (-32006, Refusal::Unproven),
            (-32603, Refusal::Unproven),
            (-32000, Refusal::Unproven),
        ] {
            let c = class(json!({ "code": code }), None);
            assert_eq!(c.refusal(), refusal, "{code}");
            assert_eq!(c.nothing_ran(), refusal != Refusal::Unproven);
            assert_eq!(c.is_about_dialect(), code == -32601 || code == -32009);
        }
    }

    #[test]
    fn invalid_parameters_prove_that_nothing_ran_only_if_they_are_named() {
        let violations = json!([{"field":"message.messageId","description":"missing"}]);
        for (data, refusal) in [
            (
                json!([{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":violations}]),
                Refusal::Declined,
            ),
            (json!([{"fieldViolations":[]}]), Refusal::Unproven),
            (json!(null), Refusal::Unproven),
        ] {
            let e = RpcError::read(&json!({"code":-32602,"data":data}));
            assert_eq!(e.refusal(Some(200)), refusal);
        }
        let e = RpcError::read(&json!({"code":-32603,"data":[{"fieldViolations":violations}]}));
        assert_eq!(e.refusal(None), Refusal::Unproven);
    }

    #[test]
    fn the_message_of_an_error_is_one_short_line() {
        let e = RpcError::read(&json!({"code":"x","message":format!("a\r\n{}", "y".repeat(1000))}));
        assert_eq!(e.code, None);
        assert!(e.message.starts_with("a  y") && e.message.chars().count() == MESSAGE_CHARS + 1);
    }
}
