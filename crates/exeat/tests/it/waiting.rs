//! `delegate`, `run`, `task watch`: what they print, how they wait, and with which code they end.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::exeat::{command, exeat, ran};
use crate::server::{Reply, Seen, Server, events, problem};

const ID: &str = "0197f3a0-0000-7000-8000-000000000001";

fn task(status: &str) -> Value {
    json!({"task_id": ID, "status": status, "reason": null, "output": null, "cost_microusd": 0,
        "waiting": [], "steps": []})
}

fn completed() -> Value {
    let mut t = task("completed");
    t["output"] = json!({"parts": [{"text": "HELLO"}], "text": "HELLO", "data": null});
    t["cost_microusd"] = json!(4200);
    t
}

fn denied() -> Value {
    let mut t = task("denied");
    t["reason"] = json!({"code": "egress_off", "message": "Egress is off.", "next": "exeat egress on"});
    t
}

fn at(status: &str) -> Value {
    json!({"at": "2026-01-02T03:04:05.000000Z", "task_id": ID, "status": status, "reason": null})
}

/// A server on which a task is running until its events were read.
fn ends_as(end: Value) -> Server {
    let listened = AtomicUsize::new(0);
    Server::start(move |r: &Seen| match r.line.as_str() {
        "POST /api/v1/tasks" => Reply::Json(201, task("running")),
        l if l.ends_with("/events") => {
            listened.store(1, Ordering::SeqCst);
            let status = end["status"].as_str().unwrap();
            events(1, &[("step", at("dispatched")), ("task", at(status))])
        }
        _ if listened.load(Ordering::SeqCst) == 1 => Reply::Json(200, end.clone()),
        _ => Reply::Json(200, task("running")),
    })
}

#[test]
fn without_waiting_the_task_id_is_the_result() {
    let server = Server::start(|_| Reply::Json(201, task("running")));
    let got = exeat(&server.url, &["delegate", "agent:a", "hi"]);
    assert_eq!((got.code, got.out.as_str(), got.err.as_str()), (0, format!("{ID}\n").as_str(), ""));
    let post = &server.seen("POST /api/v1/tasks")[0];
    assert_eq!(post.json(), json!({"to": "agent:a", "input": "hi"}));
    assert_eq!(post.header("authorization"), "Bearer exk_test_secret");
    assert_eq!(post.header("idempotency-key").len(), 22);
    assert!(post.header("host").starts_with("127.0.0.1:"));
}

#[test]
fn all_that_is_given_is_sent() {
    let server = Server::start(|_| Reply::Json(201, task("running")));
    let line = ["delegate", "agent:a", "hi", "--data", "{\"n\":1}", "--skill", "s", "--label", "internal+eu"];
    let more = ["--deadline", "2h", "--budget", "500"];
    assert_eq!(exeat(&server.url, &[&line[..], &more[..]].concat()).code, 0);
    assert_eq!(
        server.seen("POST")[0].json(),
        json!({"to": "agent:a", "input": {"parts": [{"text": "hi"}, {"data": {"n": 1}}]}, "skill": "s",
            "label": {"level": "internal", "tags": ["eu"]}, "deadline": "2h", "budget_microusd": 500})
    );
    assert_eq!(exeat(&server.url, &["run", "w"]).code, 0);
    assert_eq!(server.seen("POST")[1].json(), json!({"workflow": "w", "input": {}}));
}

#[test]
fn waiting_gives_the_output_alone_and_progress_beside_it() {
    let server = ends_as(completed());
    let got = exeat(&server.url, &["delegate", "agent:a", "hi", "--wait"]);
    assert_eq!((got.code, got.out.as_str()), (0, "HELLO\n"));
    assert!(got.err.contains("03:04:05 task completed"), "{}", got.err);
    let quiet = exeat(&ends_as(completed()).url, &["delegate", "agent:a", "hi", "--wait", "-q"]);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("HELLO\n", ""));
}

#[test]
fn waiting_with_json_gives_one_object() {
    let got = exeat(&ends_as(completed()).url, &["run", "w", "--text", "hi", "--wait", "--json"]);
    assert_eq!((got.code, got.err.as_str()), (0, ""));
    assert_eq!(
        got.json(),
        json!({"task_id": ID, "status": "completed", "reason": null, "cost_microusd": 4200, "approval_ids": [],
            "question": null, "output": {"parts": [{"text": "HELLO"}], "text": "HELLO", "data": null}})
    );
}

#[test]
fn a_task_that_ends_badly_exits_1_and_says_why() {
    let got = exeat(&ends_as(denied()).url, &["delegate", "agent:a", "hi", "--wait", "-q"]);
    assert_eq!((got.code, got.out.as_str()), (1, ""));
    assert_eq!(got.err, "error: egress_off: Egress is off; exeat egress on\n");
    let got = exeat(&ends_as(denied()).url, &["delegate", "agent:a", "hi", "--wait", "--json"]);
    assert_eq!((got.code, &got.json()["status"]), (1, &json!("denied")));
    let problem: Value = serde_json::from_str(&got.err).unwrap();
    assert_eq!((&problem["code"], &problem["task_id"]), (&json!("egress_off"), &json!(ID)));
}

#[test]
fn a_task_that_is_denied_at_once_exits_1_without_waiting() {
    let server = Server::start(|_| Reply::Json(201, denied()));
    let got = exeat(&server.url, &["delegate", "agent:a", "hi"]);
    assert_eq!((got.code, got.out), (1, format!("{ID}\n")));
    assert_eq!(got.err, "error: egress_off: Egress is off; exeat egress on\n");
}

#[test]
fn a_wait_that_ends_first_exits_5_with_the_task_id_on_stdout() {
    let away = || {
        Server::start(|r: &Seen| match r.line.as_str() {
            "POST /api/v1/tasks" => Reply::Json(201, task("running")),
            l if l.ends_with("/events") => problem(404, "not_found", "no events here"),
            _ => Reply::Json(200, task("awaiting_approval")),
        })
    };
    let line = ["delegate", "agent:a", "hi", "--timeout", "300ms"];
    let got = exeat(&away().url, &line);
    assert_eq!((got.code, got.out.as_str()), (5, format!("{ID}\n").as_str()));
    assert!(
        got.err.contains("error: still_waiting: after 300ms the task is awaiting_approval"),
        "{}",
        got.err
    );
    let got = exeat(&away().url, &[&line[..], &["--json"]].concat());
    assert_eq!(
        (got.code, &got.json()["task_id"], &got.json()["status"]),
        (5, &json!(ID), &json!("awaiting_approval"))
    );
}

#[test]
fn a_wait_survives_a_server_that_goes_away_and_resumes_where_it_was() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |r: &Seen| match r.line.as_str() {
        "POST /api/v1/tasks" => Reply::Json(201, task("running")),
        l if l.ends_with("/events") => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => events(1, &[("step", at("dispatched"))]),
            1 | 2 => Reply::HangUp,
            // It tells the first one again; who has heard it doesn't.
            _ => events(1, &[("step", at("dispatched")), ("task", at("completed"))]),
        },
        _ if calls.load(Ordering::SeqCst) < 3 => problem(503, "shutting_down", "later"),
        _ => Reply::Json(200, completed()),
    });
    let got = exeat(&server.url, &["delegate", "agent:a", "hi", "--wait"]);
    assert_eq!((got.code, got.out.as_str()), (0, "HELLO\n"), "{}", got.err);
    assert_eq!(got.err.matches("still waiting").count(), 1, "{}", got.err);
    assert_eq!(got.err.matches("dispatched").count(), 1, "{}", got.err);
    assert_eq!(server.seen("/events").last().map(|r| r.header("last-event-id").to_owned()), Some("1".into()));
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::HangUp,
        1 => problem(409, "idempotency_in_flight", "still running"),
        _ => Reply::Json(201, task("running")),
    });
    let got = exeat(&server.url, &["delegate", "agent:a", "hi"]);
    assert_eq!((got.code, got.out), (0, format!("{ID}\n")));
    let keys: Vec<_> = server.seen("POST").iter().map(|r| r.header("idempotency-key").to_owned()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|k| k == &keys[0] && !k.is_empty()));
}

#[test]
fn a_server_that_never_was_there_is_given_up() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for line in [&["delegate", "agent:a", "hi", "--wait"][..], &["task", "watch", ID], &["audit", "verify"]] {
        let got = exeat(&url, line);
        assert_eq!((got.code, got.out.as_str()), (3, ""), "{line:?}");
        assert!(got.err.contains("error: unreachable: cannot reach http://127.0.0.1:"), "{}", got.err);
    }
}

#[test]
fn watching_prints_each_event_as_a_line_of_json_and_exits_as_the_task_ends() {
    let got = exeat(&ends_as(denied()).url, &["task", "watch", ID, "--json"]);
    assert_eq!(got.code, 1);
    let lines: Vec<Value> = got.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|l| l["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["step", "task"]);
    assert!(lines.iter().all(|l| l["task_id"] == ID && l["at"].is_string()));
}

#[test]
fn stdin_is_the_text_where_a_hyphen_stands() {
    let server = Server::start(|_| Reply::Json(201, task("running")));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.txt");
    std::fs::write(&file, "from stdin\n").unwrap();
    let mut command = command(&server.url, &["delegate", "role:r", "-"]);
    assert_eq!(ran(command.stdin(std::fs::File::open(file).unwrap())).code, 0);
    assert_eq!(server.seen("POST")[0].json()["input"], "from stdin\n");
}

#[test]
fn text_of_others_goes_into_a_pipe_as_it_is() {
    let mut t = completed();
    t["output"] = json!({"text": "a\u{1b}[31mb\r\n", "data": null});
    let got = exeat(&ends_as(t).url, &["delegate", "agent:a", "hi", "--wait", "-q"]);
    assert_eq!(got.out, "a\u{1b}[31mb\r\n");
}
