//! The HTTP API as a script sees it: keys, scopes, idempotency, problems.

use serde_json::{Value, json};

use crate::e2e::rig::{Answer, Gateway, http};

fn post(gateway: &Gateway, key: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    http(&gateway.url, "POST", "/api/v1/tasks", key, headers, &body.to_string())
}

#[track_caller]
fn is_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.body["type"], format!("urn:exeat:problem:{code}"));
    assert_ne!(answer.body["next"].as_str().unwrap_or_default(), "", "{answer:?}");
}

#[test]
fn a_request_sent_twice_under_one_key_makes_one_task() {
    let gateway = Gateway::start(&[]);
    let admin = gateway.admin_key();
    let body = json!({"to": "role:writer", "input": "hello"});
    let once = post(&gateway, &admin, &[("Idempotency-Key", "k1")], &body);
    assert_eq!((once.status, once.header("idempotency-replayed")), (201, None), "{once:?}");
    assert_eq!(
        once.header("location"),
        Some(format!("/api/v1/tasks/{}", once.body["task_id"].as_str().unwrap()).as_str())
    );
    let again = post(&gateway, &admin, &[("Idempotency-Key", "k1")], &body);
    assert_eq!((again.status, again.header("idempotency-replayed")), (201, Some("true")), "{again:?}");
    assert_eq!(again.body, once.body);
    let other =
        post(&gateway, &admin, &[("Idempotency-Key", "k1")], &json!({"to": "role:writer", "input": "x"}));
    is_problem(&other, 422, "idempotency_mismatch");
    let tasks = gateway.json(&["task", "list"]);
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1);
}

#[test]
fn what_a_request_may_not_hold_is_refused_by_name() {
    let gateway = Gateway::start(&[]);
    let admin = gateway.admin_key();
    for (body, status, code) in [
        (json!({"to": "role:writer", "input": "x", "prioriti": 1}), 422, "unknown_member"),
        (json!({"to": "role:writer"}), 422, "invalid"),
        (json!({"to": "http://evil.example", "input": "x"}), 422, "invalid"),
        (json!({"to": "agent:nobody", "input": "x"}), 422, "unknown_destination"),
        (json!({"to": "role:writer", "input": {"data": 12345678901234567890u64}}), 422, "invalid"),
        (
            json!({"to": "role:writer", "input": "x", "label": {"level": "cosmic", "tags": []}}),
            422,
            "bad_label",
        ),
        (json!({"to": "role:writer", "input": "x".repeat(1 << 21)}), 413, "payload_too_large"),
    ] {
        is_problem(&post(&gateway, &admin, &[], &body), status, code);
    }
    is_problem(&http(&gateway.url, "POST", "/api/v1/tasks", &admin, &[], "{"), 400, "bad_json");
    is_problem(&http(&gateway.url, "DELETE", "/api/v1/tasks", &admin, &[], ""), 405, "method_not_allowed");
    is_problem(&http(&gateway.url, "GET", "/api/v1/nowhere", &admin, &[], ""), 404, "not_found");
}

#[test]
fn a_key_opens_only_its_doors_and_none_once_it_is_revoked() {
    let gateway = Gateway::start(&[]);
    let body = json!({"to": "role:writer", "input": "hello"});
    is_problem(&post(&gateway, "", &[], &body), 401, "unauthenticated");
    is_problem(&post(&gateway, "exk_0123456789abcdef_AAAA", &[], &body), 401, "unauthenticated");
    let viewer = gateway.json(&["key", "create", "--name", "watcher", "--scope", "viewer"]);
    let key = viewer["key"].as_str().unwrap();
    is_problem(&post(&gateway, key, &[], &body), 403, "scope_missing");
    assert_eq!(http(&gateway.url, "GET", "/api/v1/tasks", key, &[], "").status, 200);
    let worker = gateway.key(&["--name", "w", "--scope", "worker", "--worker-role", "writer"]);
    let lease = |role: &str| {
        let asked = json!({"role": role, "worker": "w", "wait_s": 0, "max": 1}).to_string();
        http(&gateway.url, "POST", "/api/v1/leases", &worker, &[], &asked)
    };
    assert_eq!(lease("writer").body, json!({"leases": []}));
    is_problem(&lease("publisher"), 403, "role_missing");
    gateway.admin(&["key", "revoke", viewer["key_id"].as_str().unwrap()]).ok();
    crate::e2e::rig::until("the revoked key opens nothing", || {
        (http(&gateway.url, "GET", "/api/v1/tasks", key, &[], "").status == 401).then_some(())
    });
}

#[test]
fn a_forged_callback_is_not_found() {
    let gateway = Gateway::start(&[]);
    let path = "/api/v1/a2a/callback/AAAAAAAAAAAAAAAAAAAAAA";
    for key in ["", "ec1.AAAA.9999999999.AAAA", &gateway.admin_key()] {
        assert_eq!(http(&gateway.url, "POST", path, key, &[], "{\"task\":{}}").status, 404);
    }
}

#[test]
fn it_says_that_it_lives_that_it_can_work_and_what_its_doors_are() {
    let gateway = Gateway::start(&[]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http(&gateway.url, "GET", path, "", &[], "").status, 200, "{path}");
    }
    let described = http(&gateway.url, "GET", "/openapi.json", "", &[], "").body;
    assert!(described["paths"]["/api/v1/tasks"]["post"].is_object());
}

#[test]
fn a_wait_for_a_task_answers_when_it_ended() {
    let gateway = Gateway::start(&[]);
    let _writer = gateway.worker("writer", &["--text"], &["tr", "a-z", "A-Z"]);
    let body = json!({"to": "role:writer", "input": "hello"});
    let done = post(&gateway, &gateway.admin_key(), &[("Prefer", "wait=20")], &body);
    assert_eq!((&done.body["status"], &done.body["output"]["text"]), (&json!("completed"), &json!("HELLO")));
}
