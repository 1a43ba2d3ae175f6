//! A lease as the worker needs it: what the command gets, and how long it may take without a word.

use std::collections::BTreeMap;
use std::time::Duration;

use exeat_core::time::Timestamp;
use http::HeaderMap;
use http::header::DATE;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{Answer, CallError};
use crate::clock::wall_clock;
use crate::failure::Problem;

/// One piece of work that is ours for a while.
#[derive(Debug)]
pub(super) struct Lease {
    /// Its id, which the command doesn't get: it is the right to settle.
    pub(super) id: String,
    /// Of the task.
    pub(super) task_id: String,
    /// Of the step.
    pub(super) step: String,
    /// Which element of the step's list it is for, from 0; empty if the step doesn't run over a list.
    pub(super) element: String,
    /// Which delivery, from 1.
    pub(super) delivery: String,
    /// The lease as one line of JSON, with a line feed, without its id and end.
    pub(super) line: String,
    /// The input's text.
    pub(super) text: String,
    /// How long it lasts from now, as far as can be told.
    pub(super) length: Duration,
}

#[derive(Deserialize)]
struct Leases {
    leases: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Facts {
    lease_id: String,
    task_id: String,
    step: String,
    #[serde(default)]
    element: Option<u64>,
    delivery: u64,
    expires_at: Timestamp,
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    #[serde(default)]
    text: Option<String>,
}

impl Lease {
    /// Reads the answer to a poll: one lease, or none.
    pub(super) fn of_answer(answer: &Answer) -> Result<Option<Self>, CallError> {
        let unreadable = |e: serde_json::Error| {
            CallError::Refused(Box::new(Problem::not_exeats(&format!("its lease can't be read: {e}"))))
        };
        let leases: Leases = serde_json::from_slice(&answer.body).map_err(unreadable)?;
        let Some(raw) = leases.leases.first() else { return Ok(None) };
        let facts: Facts = serde_json::from_str(raw.get()).map_err(unreadable)?;
        // Members stay as they came: no number is read and written again on its way to the command.
        let mut members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(raw.get()).map_err(unreadable)?;
        members.remove("lease_id");
        members.remove("expires_at");
        let mut line = serde_json::to_string(&members).map_err(unreadable)?;
        // Line feeds can only stand between the tokens of JSON, where a space does as well.
        if line.contains(['\n', '\r']) {
            line = line.replace(['\n', '\r'], " ");
        }
        line.push('\n');
        Ok(Some(Self {
            id: facts.lease_id,
            task_id: facts.task_id,
            step: facts.step,
            element: facts.element.map(|n| n.to_string()).unwrap_or_default(),
            delivery: facts.delivery.to_string(),
            line,
            text: facts.input.text.unwrap_or_default(),
            length: length(facts.expires_at, server_time(&answer.headers), wall_clock()),
        }))
    }
}

/// How long until `expires_at`. Asked of the server's clock and of ours, the shorter answer counts: ours may
/// be wrong by any amount, the server's is told in whole seconds.
fn length(expires_at: Timestamp, server: Option<Timestamp>, ours: Timestamp) -> Duration {
    let left = |now: Timestamp| Some(expires_at.since(now)).filter(|s| s.micros() > 0);
    let shortest = [server.and_then(left), left(ours)].into_iter().flatten().min();
    let length = shortest.map_or(Duration::from_secs(10), Duration::from);
    length.clamp(Duration::from_millis(200), Duration::from_secs(3_600))
}

/// The `Date` of an answer (RFC 9110, 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`).
fn server_time(headers: &HeaderMap) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = headers.get(DATE)?.to_str().ok()?;
    let mut words = text.split_once(", ")?.1.split(' ');
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|m| *m == month)? + 1;
    format!("{year}-{month:02}-{day}T{time}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_command_gets_the_lease_on_one_line_without_what_would_let_it_settle() {
        let body = Bytes::from_static(
            br#"{"leases":[{"lease_id":"L","kind":"WORK","task_id":"T","step":"s","delivery":2,
            "expires_at":"2026-01-01T00:00:00.000000Z","input":{"parts":[],"text":"a\nb","data":1.10}}]}"#,
        );
        let lease = Lease::of_answer(&Answer { headers: HeaderMap::new(), body }).unwrap().unwrap();
        assert_eq!((lease.id.as_str(), lease.text.as_str(), lease.delivery.as_str()), ("L", "a\nb", "2"));
        assert!(lease.line.ends_with("}\n"));
        assert_eq!(lease.line.matches('\n').count(), 1);
        assert!(lease.line.contains("1.10"), "numbers stay as they came: {}", lease.line);
        for hidden in ["lease_id", "expires_at"] {
            assert!(!lease.line.contains(hidden));
        }
        let none = Answer { headers: HeaderMap::new(), body: Bytes::from_static(br#"{"leases":[]}"#) };
        assert!(Lease::of_answer(&none).unwrap().is_none());
    }

    #[test]
    fn the_length_of_a_lease_survives_a_wrong_clock() {
        let at = |s: i64| Timestamp::of_micros(s * 1_000_000);
        let secs = |e, server, ours| length(e, server, ours).as_secs();
        assert_eq!(secs(at(60), Some(at(0)), at(0)), 60);
        assert_eq!(secs(at(60), Some(at(0)), at(1_000)), 60, "ours is ahead");
        assert_eq!(secs(at(60), Some(at(0)), at(-1_000)), 60, "ours is behind");
        assert_eq!(secs(at(60), None, at(30)), 30);
        assert_eq!(secs(at(60), None, at(1_000)), 10, "nothing is known");
    }

    #[test]
    fn the_servers_date_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert_eq!(server_time(&headers).map(|t| t.to_string()), Some("1994-11-06T08:49:37.000000Z".into()));
        headers.insert(DATE, "yesterday".parse().unwrap());
        assert_eq!(server_time(&headers), None);
    }
}
