//! What a command said, as a call that settles its lease.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Speech;
use super::child::{Exited, STDOUT_BYTES};
use crate::client::Call;
use crate::failure::Problem;

/// The exit code after which trying again is no use (`EX_DATAERR` of sysexits.h).
const NO_RETRY: i32 = 65;

/// How a turn ends.
#[derive(Debug)]
pub(super) enum Said {
    /// With an output, as JSON.
    Complete(BTreeMap<String, Box<RawValue>>),
    /// With the text of an output.
    CompleteText(String),
    /// With delegations.
    Suspend(Box<RawValue>),
    /// Not well.
    Fail {
        /// Why.
        reason: String,
        /// May another try help?
        retry: bool,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failed {
    reason: String,
    #[serde(default)]
    retry: bool,
}

impl Said {
    /// Reads what the command left behind.
    pub(super) fn of(speech: Speech, exited: Exited) -> Self {
        if exited.code != Some(0) {
            let ended = match exited.code {
                Some(code) => format!("the command exited with {code}"),
                None => "the command was killed by a signal".to_owned(),
            };
            let reason = if exited.stderr.is_empty() { ended } else { exited.stderr };
            // A command that was stopped for saying too much didn't fail by itself.
            if !exited.too_much {
                return Self::Fail { reason, retry: exited.code != Some(NO_RETRY) };
            }
        }
        if exited.too_much {
            return Self::bad(&format!("stdout is larger than {STDOUT_BYTES} bytes"));
        }
        let text = match String::from_utf8(exited.stdout) {
            Ok(text) => text,
            Err(_) => return Self::bad("stdout isn't UTF-8"),
        };
        match speech {
            Speech::Text => Self::CompleteText(text),
            Speech::Json => Self::of_json(&text).unwrap_or_else(|why| Self::bad(&why)),
        }
    }

    fn bad(why: &str) -> Self {
        Self::Fail { reason: format!("bad_worker_output: {why}"), retry: false }
    }

    fn of_json(text: &str) -> Result<Self, String> {
        let mut members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(text.trim()).map_err(|e| format!("stdout isn't one JSON object: {e}"))?;
        let named: Vec<_> =
            ["output", "suspend", "fail"].into_iter().filter(|m| members.contains_key(*m)).collect();
        let [one] = named.as_slice() else {
            return Err(format!(
                "stdout must have exactly one of output, suspend, fail; it has {}",
                named.len()
            ));
        };
        let allowed: &[&str] = if *one == "output" { &["output", "cost_microusd"] } else { &[one] };
        if let Some(other) = members.keys().find(|k| !allowed.contains(&k.as_str())) {
            return Err(format!("stdout has a member {other:?} beside {one}"));
        }
        match (*one, members.remove(*one)) {
            ("suspend", Some(body)) => Ok(Self::Suspend(body)),
            ("fail", Some(body)) => {
                let failed: Failed = serde_json::from_str(body.get())
                    .map_err(|e| format!("`fail` isn't as it must be: {e}"))?;
                Ok(Self::Fail { reason: failed.reason, retry: failed.retry })
            }
            (_, Some(output)) => {
                members.insert("output".to_owned(), output);
                Ok(Self::Complete(members))
            }
            (_, None) => Err("stdout holds nothing".to_owned()),
        }
    }

    /// The call that settles the lease with it.
    pub(super) fn call(&self, lease_id: &str) -> Call {
        match self {
            Self::Complete(body) => Call::post(&["leases", lease_id, "complete"], body),
            Self::CompleteText(text) => {
                Call::post(&["leases", lease_id, "complete"], &json!({ "output": text }))
            }
            Self::Suspend(body) => Call::post(&["leases", lease_id, "suspend"], body),
            Self::Fail { reason, retry } => {
                Call::post(&["leases", lease_id, "fail"], &json!({ "reason": reason, "retry": retry }))
            }
        }
    }

    /// What is said instead, when the server doesn't take it.
    pub(super) fn refused(&self, problem: &Problem) -> Self {
        match (self, problem.status()) {
            (Self::Complete(_) | Self::CompleteText(_), _) | (_, 400 | 413 | 422) => {
                Self::bad(&format!("the server refused it: {}: {}", problem.code(), problem.detail()))
            }
            _ => Self::Fail { reason: format!("{}: {}", problem.code(), problem.detail()), retry: false },
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete(_) | Self::CompleteText(_) => f.write_str("done"),
            Self::Suspend(_) => f.write_str("suspended"),
            Self::Fail { reason, retry } => {
                let again = if *retry { "to be tried again" } else { "for good" };
                write!(f, "failed {again}: {}", reason.lines().last().unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(speech: Speech, code: i32, stdout: &str, stderr: &str) -> String {
        let exited = Exited {
            code: Some(code),
            stdout: stdout.as_bytes().to_vec(),
            stderr: stderr.to_owned(),
            too_much: false,
        };
        match Said::of(speech, exited) {
            Said::Complete(body) => format!("complete {}", serde_json::to_string(&body).unwrap()),
            Said::CompleteText(text) => format!("text {text:?}"),
            Said::Suspend(body) => format!("suspend {body}"),
            Said::Fail { reason, retry } => {
                let code =
                    if reason.starts_with("bad_worker_output: ") { "bad_worker_output" } else { &reason };
                format!("fail {code:?} {retry}")
            }
        }
    }

    #[test]
    fn each_way_to_end_is_told_as_what_it_is() {
        let bad = r#"fail "bad_worker_output" false"#;
        for (code, stdout, stderr, expected) in [
            (0, r#"{"output":1.10}"#, "noise", r#"complete {"output":1.10}"#),
            (0, "\n {\"output\":null}\n", "", r#"complete {"output":null}"#),
            (0, r#"{"cost_microusd":5,"output":{}}"#, "", r#"complete {"cost_microusd":5,"output":{}}"#),
            (0, r#"{"suspend":{"continuation":1}}"#, "", r#"suspend {"continuation":1}"#),
            (0, r#"{"fail":{"reason":"r","retry":false}}"#, "", r#"fail "r" false"#),
            (0, r#"{"fail":{"reason":"r","retry":true}}"#, "", r#"fail "r" true"#),
            (0, r#"{"fail":{"reason":"r"}}"#, "", r#"fail "r" false"#),
            (1, r#"{"output":1}"#, "boom", r#"fail "boom" true"#),
            (65, "", "never", r#"fail "never" false"#),
            (3, "", "", r#"fail "the command exited with 3" true"#),
            (0, "", "", bad),
            (0, "hello", "", bad),
            (0, "[1]", "", bad),
            (0, "{}", "", bad),
            (0, r#"{"output":1,"fail":{"reason":"r"}}"#, "", bad),
            (0, r#"{"output":1,"note":2}"#, "", bad),
            (0, r#"{"suspend":{},"cost_microusd":2}"#, "", bad),
            (0, r#"{"output":1}{"output":2}"#, "", bad),
            (0, r#"{"fail":"text"}"#, "", bad),
        ] {
            assert_eq!(said(Speech::Json, code, stdout, stderr), expected, "{stdout}");
        }
        assert_eq!(said(Speech::Text, 0, "HI\n", ""), "text \"HI\\n\"");
        assert_eq!(said(Speech::Text, 0, "", ""), "text \"\"");
    }

    #[test]
    fn what_the_server_refuses_becomes_a_failure_for_good() {
        let problem = Problem::of_answer(422, br#"{"code":"invalid","detail":"too deep"}"#);
        let reason = |s: &Said, p: &Problem| match s.refused(p) {
            Said::Fail { reason, retry: false } => reason,
            other => panic!("{other:?}"),
        };
        let text = Said::CompleteText(String::new());
        assert_eq!(reason(&text, &problem), "bad_worker_output: the server refused it: invalid: too deep");
        let suspend = Said::Suspend(RawValue::from_string("{}".into()).unwrap());
        let refused = Problem::of_answer(403, br#"{"code":"destination_not_allowed","detail":"agent:x"}"#);
        assert_eq!(reason(&suspend, &refused), "destination_not_allowed: agent:x");
    }
}
