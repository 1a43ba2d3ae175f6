//! `exeat worker` with real commands, against a desk that gives and keeps leases as the API does.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use exeat_core::time::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::exeat::command;
use crate::server::{Reply, Seen, Server, problem};

/// What a desk does when a lease is extended.
#[derive(Clone, Copy, PartialEq)]
enum Extend {
    Grants,
    SaysLost,
    SaysCanceled,
}

struct Desk {
    server: Server,
}

struct State {
    inputs: VecDeque<&'static str>,
    lease_s: i64,
    extend: Extend,
    /// How many settlements it hangs up on.
    deaf: usize,
    refuses: Option<(u16, &'static str)>,
    ends: Option<Timestamp>,
}

#[expect(clippy::disallowed_methods, reason = "the desk's own clock, as the server has one")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::of_micros(i64::try_from(since.as_micros()).unwrap())
}

impl Desk {
    fn open(inputs: &[&'static str], change: impl FnOnce(&mut State)) -> Self {
        let mut state = State {
            inputs: inputs.iter().copied().collect(),
            lease_s: 60,
            extend: Extend::Grants,
            deaf: 0,
            refuses: None,
            ends: None,
        };
        change(&mut state);
        let state = Arc::new(Mutex::new(state));
        Self { server: Server::start(move |r| answer(&mut state.lock().unwrap(), r)) }
    }

    /// The one settlement, once the worker asks for more.
    fn settled(&self) -> (String, Value) {
        until("a settlement, and a poll after it", || {
            let seen = self.server.seen("");
            let settled = |r: &Seen| r.line.contains("lease-1/") && !r.line.ends_with("/extend");
            let at = seen.iter().position(settled);
            at.is_some_and(|at| seen.iter().skip(at).any(|r| r.line.ends_with("/leases")))
        });
        let settled: Vec<_> = self.settlements();
        assert_eq!(settled.len(), 1, "{settled:?}");
        settled.into_iter().next().unwrap()
    }

    fn settlements(&self) -> Vec<(String, Value)> {
        let all = self.server.seen("/leases/lease-1/").into_iter();
        let verb = |r: &Seen| r.line.rsplit('/').next().unwrap().to_owned();
        all.map(|r| (verb(&r), r.json())).filter(|(v, _)| v != "extend").collect()
    }
}

fn answer(desk: &mut State, r: &Seen) -> Reply {
    let ends = |desk: &mut State| {
        let ends = Timestamp::of_micros(now().micros() + desk.lease_s * 1_000_000);
        desk.ends = Some(ends);
        ends
    };
    match r.line.as_str() {
        "POST /api/v1/leases" => match desk.inputs.pop_front() {
            None => {
                // Its long poll, shortened.
                std::thread::park_timeout(Duration::from_millis(200));
                Reply::Json(200, json!({"leases": []}))
            }
            Some(text) => {
                let expires_at = ends(desk);
                Reply::Json(
                    200,
                    json!({"leases": [{"lease_id": "lease-1", "kind": "WORK", "task_id": "task-1", "step": "draft",
                        "role": "writer", "delivery": 1, "expires_at": expires_at, "deadline": null,
                        "input": {"parts": [{"text": text}], "text": text, "data": null},
                        "label": {"level": "internal", "tags": []}, "tainted": false, "may": ["agent:a"],
                        "hops_left": 5, "budget_left_microusd": null, "continuation": null, "replies": []}]}),
                )
            }
        },
        l if l.ends_with("/extend") => match desk.extend {
            Extend::SaysLost => problem(409, "lease_lost", "somebody else has it"),
            _ if desk.ends.is_some_and(|e| e < now()) => problem(409, "lease_lost", "it ran out"),
            extend => {
                let canceled = extend == Extend::SaysCanceled;
                Reply::Json(200, json!({"expires_at": ends(desk), "canceled": canceled}))
            }
        },
        _ if desk.deaf > 0 => {
            desk.deaf -= 1;
            Reply::HangUp
        }
        _ if desk.ends.is_some_and(|e| e < now()) => problem(409, "lease_lost", "it ran out"),
        l if !l.ends_with("/fail") && desk.refuses.is_some() => {
            let (status, code) = desk.refuses.unwrap();
            problem(status, code, "not so")
        }
        _ => Reply::Json(200, json!({"task_id": "task-1", "step": "draft", "status": "completed"})),
    }
}

/// A worker that is ended with its test.
struct Worker(Child);

impl Worker {
    fn start(desk: &Desk, flags: &[&str], script: &str) -> Self {
        let line =
            [&["worker", "--role", "writer", "--name", "w1"], flags, &["--", "sh", "-c", script]].concat();
        let mut command = command(&desk.server.url, &line);
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap(), signal).unwrap();
    }

    fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.0.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a deadline, so that a broken promise fails instead of hanging"
)]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn exists(path: &Path) -> bool {
    path.exists()
}

#[test]
fn any_command_on_text_is_a_worker() {
    let desk = Desk::open(&["hello"], |_| {});
    let worker = Worker::start(&desk, &["--text"], "tr a-z A-Z");
    assert_eq!(desk.settled(), ("complete".into(), json!({"output": "HELLO"})));
    assert!(worker.stop().success());
    let lease = &desk.server.seen("POST /api/v1/leases")[0];
    assert_eq!((&lease.json()["role"], &lease.json()["worker"]), (&json!("writer"), &json!("w1")));
    assert!(!lease.header("idempotency-key").is_empty());
}

#[test]
fn a_command_gets_the_lease_as_one_line_and_its_output_goes_back_as_it_is() {
    let desk = Desk::open(&["hello"], |_| {});
    let script =
        r#"read -r line; if read -r more; then exit 1; fi; printf '{"output":%s,"cost_microusd":7}' "$line""#;
    let _worker = Worker::start(&desk, &[], script);
    let (verb, body) = desk.settled();
    assert_eq!((verb.as_str(), &body["cost_microusd"]), ("complete", &json!(7)));
    assert_eq!(
        (&body["output"]["input"]["text"], &body["output"]["step"]),
        (&json!("hello"), &json!("draft"))
    );
    assert!(body["output"].get("lease_id").is_none() && body["output"].get("expires_at").is_none());
}

#[test]
fn a_command_knows_its_task_and_not_our_key() {
    let desk = Desk::open(&["x"], |_| {});
    let script = "printf %s \"$EXEAT_TASK_ID $EXEAT_STEP $EXEAT_DELIVERY [$EXEAT_KEY]\"";
    let _worker = Worker::start(&desk, &["--text"], script);
    assert_eq!(desk.settled().1, json!({"output": "task-1 draft 1 []"}));
}

#[test]
fn a_command_can_delegate_and_can_fail() {
    let suspend =
        json!({"continuation": {"n": 1}, "delegations": [{"id": "q1", "to": "agent:a", "input": "hi"}]});
    let fail = json!({"reason": "not today", "retry": false});
    for (verb, body) in [("suspend", suspend), ("fail", fail)] {
        let desk = Desk::open(&["x"], |_| {});
        let _worker = Worker::start(&desk, &[], &format!("echo '{}'", json!({ verb: body })));
        assert_eq!(desk.settled(), (verb.into(), body));
    }
}

#[test]
fn a_command_that_fails_is_told_with_the_end_of_its_complaints() {
    for (script, retry) in
        [("echo early >&2; echo boom >&2; exit 3", true), ("echo early >&2; echo boom >&2; exit 65", false)]
    {
        let desk = Desk::open(&["x"], |_| {});
        let _worker = Worker::start(&desk, &[], script);
        assert_eq!(desk.settled(), ("fail".into(), json!({"reason": "early\nboom", "retry": retry})));
    }
}

#[test]
fn anything_else_on_stdout_is_bad_output() {
    for script in ["echo hello", "echo '{\"output\":1,\"fail\":{}}'", "true", "printf '\\377'", "yes"] {
        let desk = Desk::open(&["x"], |_| {});
        let _worker = Worker::start(&desk, &[], script);
        let (verb, body) = desk.settled();
        assert_eq!((verb.as_str(), &body["retry"]), ("fail", &json!(false)), "{script}");
        assert!(body["reason"].as_str().unwrap().starts_with("bad_worker_output: "), "{script}: {body}");
    }
}

#[test]
fn a_lease_is_kept_while_its_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let desk = Desk::open(&["x"], |s| s.lease_s = 2);
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; echo done", go.display());
    let _worker = Worker::start(&desk, &["--text"], &script);
    // Each at half the lease: the third comes after the first lease would have run out.
    desk.server.until("/extend", 3);
    std::fs::write(&go, "").unwrap();
    assert_eq!(desk.settled().0, "complete");
}

#[test]
fn a_command_whose_lease_is_lost_is_asked_to_end_and_says_nothing_more() {
    for extend in [Extend::SaysLost, Extend::SaysCanceled] {
        let dir = tempfile::tempdir().unwrap();
        let ended = dir.path().join("ended");
        let desk = Desk::open(&["x"], |s| {
            s.lease_s = 1;
            s.extend = extend;
        });
        let script = format!("trap 'touch {}; exit 1' TERM; while :; do sleep 0.05; done", ended.display());
        let _worker = Worker::start(&desk, &[], &script);
        until("the command is asked to end", || exists(&ended));
        desk.server.until("POST /api/v1/leases", 3);
        assert_eq!(desk.settlements(), []);
    }
}

#[test]
fn a_command_that_takes_too_long_is_ended_and_tried_again() {
    let desk = Desk::open(&["x"], |_| {});
    let _worker = Worker::start(&desk, &["--timeout", "200ms"], "sleep 600");
    let reason = "the command took longer than 200ms";
    assert_eq!(desk.settled(), ("fail".into(), json!({"reason": reason, "retry": true})));
}

#[test]
fn a_result_is_offered_until_the_server_takes_it_always_under_the_same_key() {
    let desk = Desk::open(&["hello"], |s| s.deaf = 5);
    let _worker = Worker::start(&desk, &["--text"], "cat");
    let offers = desk.server.until("/complete", 6);
    let keys: Vec<_> = offers.iter().map(|r| r.header("idempotency-key")).collect();
    assert!(keys.iter().all(|k| *k == keys[0] && !k.is_empty()));
    assert!(offers.iter().all(|r| r.json() == json!({"output": "hello"})));
}

#[test]
fn what_the_server_refuses_becomes_a_failure_for_good() {
    for (status, code, script, reason) in [
        (403, "destination_not_allowed", r#"echo '{"suspend":{}}'"#, "destination_not_allowed: not so"),
        (
            422,
            "invalid",
            r#"echo '{"output":1}'"#,
            "bad_worker_output: the server refused it: invalid: not so",
        ),
    ] {
        let desk = Desk::open(&["x"], |s| s.refuses = Some((status, code)));
        let _worker = Worker::start(&desk, &[], script);
        let failed = &desk.server.until("/fail", 1)[0];
        assert_eq!(failed.json(), json!({"reason": reason, "retry": false}));
    }
}

#[test]
fn as_many_commands_run_at_once_as_may() {
    let dir = tempfile::tempdir().unwrap();
    let desk = Desk::open(&["a", "b"], |_| {});
    let d = dir.path().display();
    let script =
        format!("t=$(cat); touch {d}/$t; until [ -e {d}/a ] && [ -e {d}/b ]; do sleep 0.05; done; echo $t");
    let _worker = Worker::start(&desk, &["--text", "--concurrency", "2"], &script);
    until("both are done, each of which waits for the other", || desk.settlements().len() == 2);
    assert!(desk.settlements().iter().all(|(verb, _)| verb == "complete"));
}

#[test]
fn told_to_stop_a_worker_finishes_what_runs_and_leases_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (began, go) = (dir.path().join("began"), dir.path().join("go"));
    let desk = Desk::open(&["x", "never leased"], |_| {});
    let script =
        format!("touch {}; while [ ! -e {} ]; do sleep 0.05; done; echo ok", began.display(), go.display());
    let mut worker = Worker::start(&desk, &["--text"], &script);
    until("the command runs", || exists(&began));
    worker.signal(Signal::TERM);
    let mut heard = String::new();
    let stderr = worker.0.stderr.take().unwrap();
    for line in std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok) {
        heard.push_str(&line);
        if line.contains("told to stop") {
            std::fs::write(&go, "").unwrap();
        }
    }
    assert!(worker.0.wait().unwrap().success(), "{heard}");
    assert_eq!(desk.settlements(), [("complete".into(), json!({"output": "ok\n"}))]);
    assert_eq!(
        desk.server.seen("POST /api/v1/leases").iter().filter(|r| r.line.ends_with("leases")).count(),
        1
    );
}

#[test]
fn told_twice_a_worker_ends_what_runs_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let began = dir.path().join("began");
    let desk = Desk::open(&["x"], |_| {});
    let mut worker =
        Worker::start(&desk, &["--grace", "1ms"], &format!("touch {}; sleep 600", began.display()));
    until("the command runs", || exists(&began));
    worker.signal(Signal::INT);
    assert!(worker.0.wait().unwrap().success());
    assert_eq!(
        desk.settlements(),
        [("fail".into(), json!({"reason": "the worker was stopped", "retry": true}))]
    );
}

#[test]
fn a_worker_that_may_not_or_cannot_work_says_so_at_once() {
    let server = Server::start(|_| problem(403, "role_missing", "not your role"));
    let got =
        crate::exeat::exeat(&server.url, &["worker", "--role", "writer", "--concurrency", "3", "--", "cat"]);
    assert_eq!(got.code, 3);
    assert!(got.err.contains("error: role_missing: not your role"), "{}", got.err);
    let got = crate::exeat::exeat(&server.url, &["worker", "--role", "writer", "--", "no-such-program"]);
    assert_eq!(got.code, 2);
    assert!(got.err.contains("error: command_not_found"), "{}", got.err);
}
