//! Problems: every refusal at a door, as RFC 9457 JSON, from one table.
//!
//! The table below *is* the API's error page: a code, its status, what it means, what to do. What went wrong
//! inside is never shown: a 5xx is logged here, once, where it becomes an answer.

use axum::Json;
use axum::response::{IntoResponse, Response};
use exeat_core::approval::NotDecided;
use exeat_core::change::Refused;
use exeat_core::id::{Malformed, TaskId};
use exeat_core::payload::NotAPayload;
use exeat_core::ports::Unreadable;
use exeat_core::registry::change::NotChanged;
use exeat_core::task::desk::Refusal;
use exeat_core::walk::Stopped;
use exeat_core::workflow::FaultCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Method, StatusCode, Uri};
use serde::Serialize;

macro_rules! codes {
    ($($variant:ident = $code:literal, $status:literal, $title:literal, $next:literal;)*) => {
        /// The stable codes of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All of them, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// As scripts see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
            const fn status_number(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
            /// What it means, whatever the case.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
            /// What to do.
            #[must_use]
            pub const fn next(self) -> &'static str {
                match self { $(Self::$variant => $next,)* }
            }
            const fn kind(self) -> &'static str {
                match self { $(Self::$variant => concat!("urn:exeat:problem:", $code),)* }
            }
        }
    };
}

codes! {
    BadJson = "bad_json", 400, "The body isn't JSON", "Correct the text at the line and column given.";
    BadCursor = "bad_cursor", 400, "The cursor isn't one of ours", "Begin again without a cursor.";
    Unauthenticated = "unauthenticated", 401, "The API key is missing or not valid", "Send `Authorization: Bearer exk_…` with a key that is neither expired nor revoked.";
    ScopeMissing = "scope_missing", 403, "The key hasn't the scope", "Use a key that has it; an admin makes one with `exeat key create`.";
    RoleMissing = "role_missing", 403, "The key hasn't the role", "Ask somebody who holds one of the roles named.";
    OwnRequest = "own_request", 403, "Nobody decides about their own request", "Ask another approver.";
    FourEyesRequired = "four_eyes_required", 403, "A second person must do this", "Ask another admin, whose key neither made yours nor was made by it.";
    DeniedByPolicy = "denied_by_policy", 403, "Policy doesn't allow it", "See the policies named in the detail.";
    DestinationNotAllowed = "destination_not_allowed", 403, "The role may not delegate there", "Ask an admin to widen the role's `may`.";
    ClearanceTooLow = "clearance_too_low", 403, "The content is labelled above the key's clearance", "Ask somebody with a higher clearance.";
    NotFound = "not_found", 404, "There is no such thing", "Check the path and the name; what another org has isn't shown.";
    MethodNotAllowed = "method_not_allowed", 405, "The method isn't known here", "See /openapi.json for what the path takes.";
    Exists = "exists", 409, "It exists already", "Choose another name, or change the one that is there.";
    SingleOrg = "single_org", 409, "This store holds one org", "Run a server of its own for another org.";
    VersionConflict = "version_conflict", 409, "It has moved on since", "Read it again and decide anew.";
    PostureChanged = "posture_changed", 409, "The posture isn't the one you saw", "Read the entry again, then sign what it says now.";
    LeaseLost = "lease_lost", 409, "The lease ran out or was taken", "Drop the work; somebody else has it.";
    LeaseSettled = "lease_settled", 409, "The lease was settled otherwise", "Nothing: the first answer counts.";
    ApprovalDecided = "approval_decided", 409, "The approval is decided already", "See what was decided.";
    DigestMismatch = "digest_mismatch", 409, "The digest isn't this approval's", "Look at the approval again; what you saw isn't what is asked.";
    TaskEnded = "task_ended", 409, "The task has ended", "Start a new one.";
    QuestionAnswered = "question_answered", 409, "The question was answered, or is over", "See the task for what it waits for now.";
    DeadLetterDecided = "dead_letter_decided", 409, "The dead letter is decided already", "See what was decided: `exeat dlq show ID`.";
    HopNotUnknown = "hop_not_unknown", 409, "The hop's sending isn't unknown", "See where it stands with `exeat task show TASK`.";
    IdempotencyInFlight = "idempotency_in_flight", 409, "The same request is still running", "Ask again in a moment with the same key.";
    ApprovalExpired = "approval_expired", 410, "The approval has expired", "Start the task again.";
    PayloadTooLarge = "payload_too_large", 413, "The content is too large", "Send less, or raise [limits].";
    UnsupportedMediaType = "unsupported_media_type", 415, "The content type isn't taken here", "Send the content type that the detail names.";
    Invalid = "invalid", 422, "The request can't be", "Correct what the detail names.";
    UnknownMember = "unknown_member", 422, "The request has a member that isn't known", "Remove it, or correct its spelling.";
    BadWorkflow = "bad_workflow", 422, "The workflow has faults", "Correct each place that is listed.";
    UrlInWorkflow = "url_in_workflow", 422, "The workflow holds an address", "Register the agent, and name it as agent:KEY.";
    BadPolicy = "bad_policy", 422, "The policy has faults", "Correct each place that is listed.";
    BadLabel = "bad_label", 422, "The label isn't one of the org's", "Use one of the levels in [labels], then +tag for each tag.";
    UnknownDestination = "unknown_destination", 422, "The destination isn't registered", "Register the agent first: `exeat agent add`.";
    IdempotencyMismatch = "idempotency_mismatch", 422, "The key was used for another request", "Use a new Idempotency-Key.";
    DuplicateRisk = "duplicate_risk", 422, "It may have had effects already", "Ask the agent's owner; then accept the duplicate by name.";
    RateLimited = "rate_limited", 429, "Too many requests", "Wait as long as retry_after_s says.";
    Internal = "internal", 500, "Something went wrong in Exeat", "See the server's log; report it if it lasts.";
    StoreUnavailable = "store_unavailable", 503, "The store doesn't answer", "Ask again in a moment; see /readyz.";
    DiskFull = "disk_full", 503, "The disk is full", "Make room; nothing was lost.";
    CoordinatorOff = "coordinator_off", 503, "This server takes no tasks", "Set coordinator_enabled, or ask another server.";
    ShuttingDown = "shutting_down", 503, "The server is shutting down", "Ask again in a moment.";
    Quarantined = "quarantined", 503, "The store is older than its checkpoints", "Compare `exeat audit verify` with the checkpoints that are kept elsewhere.";
}

impl Code {
    /// Its status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// One thing that is wrong with what was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// JSON pointer (RFC 6901) of the offending node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Its kind, of a workflow's fault: what a program may act on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<FaultCode>,
    /// What is wrong.
    pub message: String,
}

/// A refusal, as the caller sees it (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which.
    pub code: Code,
    /// What it is about, this time.
    pub detail: String,
    /// What to do, if not what the table says.
    pub next: Option<String>,
    /// Places in what was sent.
    pub errors: Vec<Fault>,
    /// The task that it is about.
    pub task: Option<TaskId>,
    /// When it makes sense to ask again.
    pub retry_after_s: Option<u64>,
}

#[derive(Serialize)]
struct Shown<'a> {
    r#type: &'a str,
    code: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    next: &'a str,
    #[serde(skip_serializing_if = "<[Fault]>::is_empty")]
    errors: &'a [Fault],
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_s: Option<u64>,
}

impl Problem {
    /// A problem with a sentence about this time.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), next: None, errors: Vec::new(), task: None, retry_after_s: None }
    }
    /// 404 of a kind of thing.
    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("There is no such {what} in this org."))
    }
    /// 422 about one member, by its JSON pointer.
    #[must_use]
    pub fn invalid(pointer: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let fault = Fault { pointer: Some(pointer.to_owned()), message: message.clone(), ..Fault::default() };
        Self::new(Code::Invalid, message).listing(vec![fault])
    }
    /// With the places that are wrong.
    #[must_use]
    pub fn listing(mut self, errors: Vec<Fault>) -> Self {
        self.errors = errors;
        self
    }
    /// With another advice than the table's.
    #[must_use]
    pub fn advising(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
    /// About a task.
    #[must_use]
    pub const fn of_task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }
    /// To be asked again after so many seconds.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
    /// A fault of ours: logged with its cause, shown without.
    #[must_use]
    pub fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(cause = %cause, "a request failed");
        Self::new(Code::Internal, "The request could not be completed.")
    }
    /// The store doesn't answer: logged with its cause, shown without.
    #[must_use]
    pub fn unavailable(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(cause = %cause, "the store doesn't answer");
        Self::new(Code::StoreUnavailable, "The store doesn't answer.").retry_after(1)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let shown = Shown {
            r#type: self.code.kind(),
            code: self.code.as_str(),
            title: self.code.title(),
            status: self.code.status_number(),
            detail: &self.detail,
            next: self.next.as_deref().unwrap_or_else(|| self.code.next()),
            errors: &self.errors,
            task_id: self.task,
            retry_after_s: self.retry_after_s,
        };
        let mut response = (self.code.status(), Json(shown)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Answers a path that isn't there.
pub async fn not_found(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(Code::NotFound, format!("There is nothing at {path}."))
}

/// Answers a method that the path doesn't take.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(20).collect();
    Problem::new(Code::MethodNotAllowed, format!("{path} doesn't take {method}."))
}

impl From<Unreadable> for Problem {
    fn from(e: Unreadable) -> Self {
        match e {
            Unreadable::Unavailable(_) => Self::unavailable(&e),
            Unreadable::Corrupt { .. } => Self::internal(&e),
        }
    }
}

impl From<Refused> for Problem {
    fn from(e: Refused) -> Self {
        match e {
            Refused::Conflict(_) => Self::new(Code::VersionConflict, "It changed while this was decided."),
            Refused::Duplicate(what) => Self::new(Code::Exists, format!("The {what} is there already.")),
            Refused::DiskFull => {
                tracing::error!("the disk is full");
                Self::new(Code::DiskFull, "The disk is full; nothing was changed.")
            }
            Refused::Unavailable(_) | Refused::Unknown(_) => Self::unavailable(&e),
            Refused::OverBudget(_) | Refused::Taken(_) | Refused::Wrong(_) => Self::internal(&e),
        }
    }
}

impl From<Stopped> for Problem {
    fn from(e: Stopped) -> Self {
        match e {
            Stopped::Refused(r) => r.into(),
            Stopped::NotFound(what) => Self::not_found(what),
            Stopped::Unreadable(u) => u.into(),
            Stopped::Commit(r) => r.into(),
            Stopped::Busy => {
                Self::new(Code::VersionConflict, "Others changed it again and again.").retry_after(1)
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(e: Refusal) -> Self {
        match e {
            Refusal::TaskEnded => Self::new(Code::TaskEnded, "The task has ended."),
            Refusal::NotFound(what) => Self::not_found(what),
            Refusal::LeaseLost => Self::new(Code::LeaseLost, "The lease ran out, or was taken."),
            Refusal::LeaseSettled => {
                Self::new(Code::LeaseSettled, "The lease was settled with another call or body.")
            }
            Refusal::DestinationNotAllowed(to) => {
                Self::new(Code::DestinationNotAllowed, format!("The role may not delegate to {to}."))
            }
            Refusal::QuestionAnswered => {
                Self::new(Code::QuestionAnswered, "The question was answered, or is over.")
            }
            Refusal::Payload(p) => p.into(),
            Refusal::NotDecided(n) => n.into(),
            Refusal::Invalid(why) => Self::new(Code::Invalid, sentence(&why)),
            Refusal::InvalidAt { pointer, why } => Self::invalid(&pointer, sentence(&why)),
            Refusal::ClearanceTooLow => {
                Self::new(Code::ClearanceTooLow, "The content is labelled above what this key may see.")
            }
            Refusal::LetterDecided => {
                Self::new(Code::DeadLetterDecided, "It was retried or discarded before, and is decided once.")
            }
            Refusal::DuplicateRisk => Self::new(
                Code::DuplicateRisk,
                "What it asked for may have run already; running it anew may do it for a second time.",
            ),
            Refusal::NotUnknown => {
                Self::new(Code::HopNotUnknown, "Only a hop in send_unknown can be resolved by hand.")
            }
            Refusal::BadLabel(why) => Self::new(Code::BadLabel, why),
            // An earlier answer is given again by the door that knows its shape; here it is a slip of ours.
            Refusal::Answered(_) | Refusal::Wrong(_) => Self::internal(&e),
        }
    }
}

impl From<NotDecided> for Problem {
    fn from(e: NotDecided) -> Self {
        let code = match e {
            NotDecided::ScopeMissing => Code::ScopeMissing,
            NotDecided::RoleMissing => Code::RoleMissing,
            NotDecided::OwnRequest => Code::OwnRequest,
            NotDecided::ClearanceTooLow => Code::ClearanceTooLow,
            NotDecided::DigestMismatch => Code::DigestMismatch,
            NotDecided::Expired => Code::ApprovalExpired,
            NotDecided::AlreadyDecided => Code::ApprovalDecided,
            NotDecided::ReasonMissing => return Self::invalid("/reason", "A denial needs a reason."),
        };
        Self::new(code, sentence(&e.to_string()))
    }
}

impl From<NotChanged> for Problem {
    fn from(e: NotChanged) -> Self {
        let why = sentence(&e.to_string());
        match e {
            NotChanged::Exists => Self::new(Code::Exists, why),
            NotChanged::NotFound(what) => Self::not_found(what),
            NotChanged::Moved { .. } => Self::new(Code::VersionConflict, why),
            NotChanged::PostureChanged { .. } => Self::new(Code::PostureChanged, why),
            NotChanged::FourEyes(_) => Self::new(Code::FourEyesRequired, why),
            NotChanged::Policy(_) => Self::new(Code::DeniedByPolicy, why),
            NotChanged::ScopeMissing => Self::new(Code::ScopeMissing, why),
            NotChanged::ClearanceTooLow(_) => Self::new(Code::ClearanceTooLow, why),
            NotChanged::BadLabel { pointer, why } => {
                let message = sentence(&why);
                let fault =
                    Fault { pointer: Some(pointer.to_owned()), message: message.clone(), ..Fault::default() };
                Self::new(Code::BadLabel, message).listing(vec![fault])
            }
            NotChanged::Invalid { pointer: "", .. } => Self::new(Code::Invalid, why),
            NotChanged::Invalid { pointer, .. } => Self::invalid(pointer, why),
        }
    }
}

impl From<NotAPayload> for Problem {
    fn from(e: NotAPayload) -> Self {
        let code = match e {
            NotAPayload::TooLarge { .. } => Code::PayloadTooLarge,
            NotAPayload::TooManyParts { .. }
            | NotAPayload::TooDeep { .. }
            | NotAPayload::InexactNumber(_)
            | NotAPayload::BadPart { .. }
            | NotAPayload::Empty => Code::Invalid,
        };
        Self::new(code, sentence(&e.to_string()))
    }
}

impl From<Malformed> for Problem {
    fn from(e: Malformed) -> Self {
        let code = if e.what == "label" || e.what == "tag" { Code::BadLabel } else { Code::Invalid };
        Self::new(code, sentence(&e.to_string()))
    }
}

/// An error's text as a sentence.
#[must_use]
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let mut out: String = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    out.push_str(chars.as_str());
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_once_in_the_table_with_a_status_of_4xx_or_5xx_and_says_what_to_do() {
        let all: BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(all.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status().as_u16()), "{code:?}");
            assert!(code.next().ends_with('.') && code.next().len() > 10, "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_problem_shows_its_members_in_order_and_never_its_cause() {
        let problem = Problem::from(Refused::Wrong("secret inside".to_owned()));
        let response = problem.into_response();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            r#"{"type":"urn:exeat:problem:internal","code":"internal","title":"Something went wrong in Exeat","status":500,"detail":"The request could not be completed.","next":"See the server's log; report it if it lasts."}"#
        );
    }

    #[tokio::test]
    async fn optional_members_stand_where_they_are_known() {
        let problem = Problem::invalid("/a/b", "Not that.").retry_after(3);
        let response = problem.into_response();
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        let tail = r#""errors":[{"pointer":"/a/b","message":"Not that."}],"retry_after_s":3}"#;
        assert!(text.ends_with(tail), "{text}");
    }
}
