//! What an exchange means for the hop: from the wire's words to the domain's.
//!
//! Pure. The question that each line answers: can the agent have acted on the message? Only where it plainly
//! hasn't is another try offered; where nobody knows, it is said so; where it answered for good, the hop ends.

use exeat_core::payload::{Limits, NotAPayload, Payload};
use exeat_core::reason::ReasonCode;
use exeat_core::time::Span;
use exeat_core::transport::{ForeignState, ForeignTask, SendOutcome};
use exeat_wire::{ErrorClass, RpcError, State, TaskView};
use http::StatusCode;

use crate::connect::ConnectError;
use crate::credential::echo::Echoes;
use crate::exchange::{NotSent, Unread, Unusable};

/// Ids of the agent's longer than this aren't taken.
const LONGEST_ID: usize = 512;
/// Message ids kept of a history.
const MOST_MESSAGE_IDS: usize = 256;
/// An agent that says `Retry-After` in a form that isn't read (a date) gets this pause.
const UNREAD_PAUSE: Span = Span::of_secs(30);
/// An agent that is busy and asks for no pause is tried again after our own; nothing is tried again at once.
const OWN_PAUSE: Span = Span::of_millis(1);
/// However long it asks for, it is asked again after this.
const LONGEST_PAUSE: Span = Span::of_secs(3600);

/// The reason code and the finality of a request that never left.
pub(super) fn not_sent(why: &NotSent) -> SendOutcome {
    match why {
        NotSent::Target(_) => SendOutcome::Impossible(ReasonCode::EndpointNotAllowed),
        NotSent::CredentialElsewhere(_) => SendOutcome::Impossible(ReasonCode::CredentialUnavailable),
        NotSent::Connect(ConnectError::Address(_)) => SendOutcome::Impossible(ReasonCode::AddressRefused),
        NotSent::Malformed => SendOutcome::Impossible(ReasonCode::SendRefused),
        NotSent::Connect(_) | NotSent::Expired | NotSent::TimedOut | NotSent::Closed => {
            SendOutcome::NotSent(ReasonCode::AttemptsExhausted)
        }
    }
}

/// The code of a contact that found nothing usable and never left.
pub(super) fn code_of(why: &NotSent) -> ReasonCode {
    match not_sent(why) {
        SendOutcome::Impossible(code) | SendOutcome::NotSent(code) => code,
        _ => ReasonCode::AttemptsExhausted,
    }
}

/// What kind of refusal an HTTP status is, where the body says no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// 2xx.
    Fine,
    /// Nothing ran; another try may find it better.
    Busy,
    /// Refused for good, before anything ran.
    Refused,
    /// It broke, and may have run.
    Broke,
}

pub(super) fn status(status: StatusCode) -> Status {
    match status.as_u16() {
        200..=299 => Status::Fine,
        408 | 425 | 429 | 503 => Status::Busy,
        501 | 505 | 511 => Status::Refused,
        300..=499 => Status::Refused,
        _ => Status::Broke,
    }
}

/// `Retry-After` (RFC 9110 §10.2.3), bounded.
pub(super) fn pause(retry_after: Option<&str>) -> Option<Span> {
    let text = retry_after?.trim();
    let pause = text.parse().map_or(UNREAD_PAUSE, Span::of_secs);
    Some(pause.clamp(OWN_PAUSE, LONGEST_PAUSE))
}

/// The outcome by status alone.
pub(super) fn by_status(code: StatusCode, retry_after: Option<&str>) -> SendOutcome {
    match status(code) {
        Status::Busy => SendOutcome::Refused {
            code: ReasonCode::SendRefused,
            after: Some(pause(retry_after).unwrap_or(OWN_PAUSE)),
        },
        Status::Refused => SendOutcome::Refused { code: ReasonCode::SendRefused, after: None },
        Status::Broke => SendOutcome::Ambiguous,
        Status::Fine => SendOutcome::Unusable(ReasonCode::InvalidResponse),
    }
}

/// The outcome of an answer that isn't read.
pub(super) fn unusable(answer: &Unusable) -> SendOutcome {
    let last = |code| SendOutcome::Refused { code, after: None };
    match (&answer.why, answer.status) {
        (Unread::Redirect(_), _) => last(ReasonCode::RedirectRefused),
        (_, Some(code)) if status(code) != Status::Fine => by_status(code, answer.retry_after.as_deref()),
        (Unread::TooLarge, _) => SendOutcome::Unusable(ReasonCode::ResponseTooLarge),
        (Unread::Encoded(_) | Unread::NotHttp, _) => SendOutcome::Unusable(ReasonCode::InvalidResponse),
    }
}

/// The code of a contact whose answer isn't read.
pub(super) fn unusable_code(answer: &Unusable) -> ReasonCode {
    match unusable(answer) {
        SendOutcome::Refused { code, .. } | SendOutcome::Unusable(code) => code,
        _ => ReasonCode::InvalidResponse,
    }
}

/// Whether an error is the protocol's own. A proxy's page in JSON (`{"error":"no route"}`, or a status as its code)
/// says nothing about a task, so a 404 in such words doesn't mean that the agent lost one.
pub(super) fn is_rpc(e: &RpcError) -> bool {
    e.reason.is_some() || e.code.is_some_and(|c| !(400..600).contains(&c))
}

/// What a message was, for reading the errors that answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The first of a hop, with a context id of ours.
    FirstInContext,
    /// The first of a hop, without.
    First,
    /// A later one, to a task of the agent's.
    Later,
}

/// The outcome of an error that the agent answered with.
pub(super) fn error(
    error: &RpcError,
    http: StatusCode,
    retry_after: Option<&str>,
    sent: Sent,
) -> SendOutcome {
    if !is_rpc(error) && status(http) != Status::Fine {
        return by_status(http, retry_after);
    }
    let class = error.class(Some(http.as_u16()));
    if sent == Sent::FirstInContext && is_about_context(class, &error.message) {
        return SendOutcome::ContextRefused;
    }
    match (class, sent, status(http)) {
        (ErrorClass::TaskNotFound, Sent::Later, _) => {
            SendOutcome::Refused { code: ReasonCode::ForeignTaskLost, after: None }
        }
        (_, _, Status::Busy) => by_status(http, retry_after),
        _ if class.nothing_ran() => SendOutcome::Refused { code: ReasonCode::SendRefused, after: None },
        _ => SendOutcome::Unusable(ReasonCode::SendRefused),
    }
}

/// Whether an agent says that it takes no context id but its own (A2A 1.0 §3.4.1 has it refuse rather than
/// replace one), and so has run nothing. A published SDK also complains of a context *after* its agent ran,
/// in words about an event; that one is no such refusal.
fn is_about_context(class: ErrorClass, message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    match class {
        // No task was named, so only the context can be what it doesn't find.
        ErrorClass::TaskNotFound => true,
        ErrorClass::InvalidParams => said.contains("context") && !said.contains("event"),
        _ => false,
    }
}

/// The task in the domain's words.
///
/// # Errors
/// The code under which an answer ends the hop that can't be taken in.
pub(super) fn task(view: &TaskView, limits: &Limits, echoes: &Echoes) -> Result<ForeignTask, ReasonCode> {
    let id = id(&view.id).ok_or(ReasonCode::InvalidResponse)?;
    let context = match &view.context_id {
        None => None,
        Some(c) => Some(self::id(c).ok_or(ReasonCode::InvalidResponse)?),
    };
    let state = match view.state {
        State::Submitted | State::Working | State::Other(_) => ForeignState::Working,
        State::InputRequired => ForeignState::InputRequired,
        State::AuthRequired => ForeignState::AuthRequired,
        State::Completed => ForeignState::Completed,
        State::Failed => ForeignState::Failed,
        State::Canceled => ForeignState::Canceled,
        State::Rejected => ForeignState::Rejected,
    };
    let output = match state {
        ForeignState::Working => Payload::default(),
        ForeignState::Completed => view.output(),
        ForeignState::InputRequired | ForeignState::AuthRequired => view.question(),
        ForeignState::Failed | ForeignState::Canceled | ForeignState::Rejected => {
            view.reason().map(Payload::of_text).unwrap_or_default()
        }
    };
    let output = payload(output, limits, echoes)?;
    let ids = view.history_message_ids.iter().rev().filter_map(|m| self::id(m)).take(MOST_MESSAGE_IDS);
    let message_ids = ids.collect();
    Ok(ForeignTask { id, context, state, output, message_ids, reported_microusd: None })
}

/// Foreign content within the limits and without the secrets that went out.
///
/// # Errors
/// The code under which it ends the hop.
pub(super) fn payload(given: Payload, limits: &Limits, echoes: &Echoes) -> Result<Payload, ReasonCode> {
    if given.parts.is_empty() {
        return Ok(given);
    }
    given.check(limits).map_err(|e| match e {
        NotAPayload::TooLarge { .. } | NotAPayload::TooManyParts { .. } => ReasonCode::ResponseTooLarge,
        NotAPayload::TooDeep { .. }
        | NotAPayload::InexactNumber(_)
        | NotAPayload::BadPart { .. }
        | NotAPayload::Empty => ReasonCode::InvalidResponse,
    })?;
    if echoes.is_empty() {
        return Ok(given);
    }
    // Once more after unescaping: a text that was escaped in part shows its secret only now.
    let bytes = bytes::Bytes::from(given.bytes());
    let clean = echoes.scrub(bytes.clone());
    if clean == bytes {
        return Ok(given);
    }
    let parts = Payload::from_bytes(&clean).map_err(|_| ReasonCode::InvalidResponse)?.parts;
    Ok(Payload { parts, artifacts: given.artifacts })
}

fn id(text: &str) -> Option<String> {
    let ok = (1..=LONGEST_ID).contains(&text.len()) && !text.chars().any(char::is_control);
    ok.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
