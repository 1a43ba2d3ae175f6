//! How a command ends when it can't give its result: a problem (RFC 9457) and an exit code.
//!
//! A problem that the server sent is shown as it came; one of our own has the same members, so that a
//! script reads both alike. Its `status` is 0 where no HTTP answer stands behind it.

use std::fmt;

use serde_json::{Map, Value, json};

/// What the process tells its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It is done.
    Done = 0,
    /// The task ended, but not well.
    EndedBadly = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The server refused, or can't be reached.
    Refused = 3,
    /// The ledger doesn't verify.
    Unverified = 4,
    /// Waiting ended before the task did.
    StillWaiting = 5,
}

/// A problem, as the API's `application/problem+json` shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    members: Map<String, Value>,
}

/// What to do about a key that is wrong.
const OTHER_KEY: &str = "give one that is neither expired nor revoked, by --key, EXEAT_KEY or EXEAT_KEY_FILE";
/// What to do without a key.
const KEY_WANTED: &str = "give one by --key KEY or --key @FILE, EXEAT_KEY or EXEAT_KEY_FILE; for a server on this machine admin.key \
    in EXEAT_DATA or ./exeat-data is used";
/// What to do about an answer that no Exeat server gives.
const OTHER_SERVER: &str = "is this an Exeat server, and its own address? see --url and EXEAT_URL";
/// What to do where nothing better is known.
const HELP: &str = "see `exeat --help`";

impl Problem {
    /// One of our own.
    pub(crate) fn new(code: &str, detail: impl Into<String>) -> Self {
        let title = code.replace('_', " ");
        let members = json!({
            "type": format!("urn:exeat:problem:{code}"),
            "code": code,
            "title": title,
            "status": 0,
            "detail": detail.into(),
        });
        Self { members: members.as_object().cloned().unwrap_or_default() }
    }

    /// The server wants a key, and none was sent.
    pub(crate) fn no_key() -> Self {
        Self::new("unauthenticated", "no key was given").next(KEY_WANTED).with_status(401)
    }

    /// An answer that an Exeat server doesn't give; `why` is said of it.
    pub(crate) fn not_exeats(why: &str) -> Self {
        Self::new("unexpected_answer", format!("the answer isn't an Exeat server's: {why}"))
            .next(OTHER_SERVER)
    }

    /// Adds the HTTP status of the answer behind it.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.members.insert("status".into(), json!(status));
        self
    }

    /// Reads what a server answered with `status`; a body that isn't a problem becomes one.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(members)) if members.get("code").is_some_and(Value::is_string) => {
                let mut problem = Self { members };
                problem.members.entry("status").or_insert(json!(status));
                match problem.text("code") {
                    // The server can't tell a missing key from a wrong one; here one was sent, by a flag or a variable.
                    "unauthenticated" => {
                        problem
                            .members
                            .insert("detail".into(), json!("the key that was given isn't valid here"));
                        problem.next(OTHER_KEY)
                    }
                    _ => problem,
                }
            }
            _ => {
                let code = match status {
                    401 => "unauthenticated",
                    404 => "not_found",
                    405 => "method_not_allowed",
                    413 => "payload_too_large",
                    429 => "rate_limited",
                    _ => "unexpected_answer",
                };
                let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
                let detail = match shown.trim() {
                    "" => format!("{status} without a body"),
                    text => format!("{status}: {text}"),
                };
                let detail = format!("the answer isn't an Exeat server's: {detail}");
                Self::new(code, detail).next(OTHER_SERVER).with_status(status)
            }
        }
    }

    /// Adds what to do about it.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.members.insert("next".into(), Value::String(next.into()));
        self
    }

    /// Adds the task it is about, unless it names one.
    pub(crate) fn about_task(mut self, task_id: &str) -> Self {
        self.members.entry("task_id").or_insert_with(|| json!(task_id));
        self
    }

    fn text(&self, member: &str) -> &str {
        self.members.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    /// Its code.
    pub(crate) fn code(&self) -> &str {
        self.text("code")
    }

    /// Its detail, or its title if it has none.
    pub(crate) fn detail(&self) -> &str {
        match self.text("detail") {
            "" => self.text("title"),
            detail => detail,
        }
    }

    /// Its HTTP status; 0 if it isn't the server's.
    pub(crate) fn status(&self) -> u16 {
        self.members.get("status").and_then(Value::as_u64).and_then(|s| u16::try_from(s).ok()).unwrap_or(0)
    }

    /// The single faults, if it lists them.
    pub(crate) fn faults(&self) -> &[Value] {
        self.members.get("errors").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The JSON of it.
    pub(crate) fn value(&self) -> Value {
        let mut members = self.members.clone();
        members.entry("next").or_insert_with(|| json!(HELP));
        Value::Object(members)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sentences become one line, which others may go on with.
        let clause = |text: &str| text.trim_end().trim_end_matches('.').to_owned();
        write!(f, "{}: {}", self.code(), clause(self.detail()))?;
        match self.text("next") {
            "" => Ok(()),
            next => write!(f, "; {}", clause(next)),
        }
    }
}

/// Why a command stops.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// With this code, and this to say.
    Said(Exit, Box<Problem>),
    /// Whoever read our output went away; there is nobody to tell.
    NobodyReads,
}

impl Failure {
    /// The command line, or a file it names, is wrong.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Self::of(Exit::Usage, Problem::new("usage", detail))
    }

    /// With this code, and this to say.
    pub(crate) fn of(exit: Exit, problem: Problem) -> Self {
        Self::Said(exit, Box::new(problem))
    }

    /// Adds what to do about it.
    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        match self {
            Self::Said(exit, problem) => Self::of(exit, problem.next(next)),
            Self::NobodyReads => self,
        }
    }

    /// The exit code.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Said(exit, _) => *exit,
            Self::NobodyReads => Exit::Done,
        }
    }
}

impl From<std::io::Error> for Failure {
    /// Of writing our result; reading has its own words.
    fn from(e: std::io::Error) -> Self {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::NobodyReads;
        }
        Self::of(Exit::Refused, Problem::new("output_failed", format!("cannot write the result: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_code_detail_and_what_to_do() {
        let p = Problem::new("not_found", "no agent \"x\".").next("exeat agent list");
        assert_eq!(p.to_string(), "not_found: no agent \"x\"; exeat agent list");
        assert_eq!(Problem::new("usage", "no").to_string(), "usage: no");
        let p = Problem::new("task_ended", "The task has ended.").next("See it.");
        assert_eq!(format!("{p}; still waiting"), "task_ended: The task has ended; See it; still waiting");
    }

    #[test]
    fn a_problem_of_our_own_has_every_member_that_a_servers_has() {
        for p in [Problem::new("usage", "no"), Problem::no_key(), Problem::not_exeats("it sings")] {
            let shown = p.value();
            for member in ["type", "code", "title", "detail", "next"] {
                assert!(shown[member].as_str().is_some_and(|t| !t.is_empty()), "{member} in {shown}");
            }
            assert!(shown["status"].is_u64(), "{shown}");
        }
        assert_eq!((Problem::no_key().status(), Problem::new("usage", "no").status()), (401, 0));
    }

    #[test]
    fn an_answer_that_is_no_problem_becomes_one() {
        let p = Problem::of_answer(502, b"<html>");
        assert_eq!((p.code(), p.status()), ("unexpected_answer", 502));
        assert_eq!(
            p.to_string(),
            format!("unexpected_answer: the answer isn't an Exeat server's: 502: <html>; {OTHER_SERVER}")
        );
        let p = Problem::of_answer(409, br#"{"code":"exists","detail":"d","next":"n","extra":1}"#);
        assert_eq!(p.value(), json!({"code":"exists","detail":"d","next":"n","extra":1,"status":409}));
        assert_eq!(Problem::of_answer(401, b"").code(), "unauthenticated");
    }
}
