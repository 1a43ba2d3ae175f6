//! Workers that stop, come late, or come too often.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::Answer;
use super::rig::{Gateway, records, until};

/// A desk whose leases are short.
fn desk(env: &[(&str, &str)]) -> (Gateway, String) {
    let gateway = Gateway::started(&[&[("EXEAT_WORK_LEASE", "2s")], env].concat());
    let key = gateway.worker_key(&["writer"]);
    (gateway, key)
}

fn as_worker(gateway: &Gateway, key: &str, path: &str, body: &Value) -> Answer {
    gateway.request("POST", &format!("/api/v1/leases{path}")).key(key).json(body).must()
}

/// The next lease of the role.
fn leased(gateway: &Gateway, key: &str, worker: &str) -> Value {
    until("a lease", Duration::from_secs(30), || {
        let body = json!({"role": "writer", "worker": worker, "wait_s": 5});
        as_worker(gateway, key, "", &body).good()["leases"].get(0).cloned()
    })
}

fn call(gateway: &Gateway, key: &str, lease: &Value, call: &str, body: &Value) -> Answer {
    as_worker(gateway, key, &format!("/{}/{call}", lease["lease_id"].as_str().unwrap()), body)
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{}", answer.text());
}

#[test]
fn work_of_a_worker_that_stands_still_goes_to_another_and_counts_once() {
    let (gateway, key) = desk(&[]);
    let began = gateway.file("began", "");
    let script = format!("echo $EXEAT_DELIVERY >> {began}; exec sleep 60");
    let mut still = gateway.worker(&key, "writer", &["--text", "--name", "still"], &["sh", "-c", &script]);
    let id = gateway.begin(&json!({"to": "role:writer", "input": "hello"}));
    let begun = || std::fs::read_to_string(&began).unwrap();
    until("the first worker has it", Duration::from_secs(30), || (begun() == "1\n").then_some(()));
    still.signal(Signal::STOP);
    let _other = gateway.worker(&key, "writer", &["--text", "--name", "other"], &["tr", "a-z", "A-Z"]);
    let task = gateway.ended(&id);
    assert_eq!(
        (&task["status"], &task["output"]["text"]),
        (&json!("completed"), &json!("HELLO")),
        "{task:#}"
    );
    assert_eq!(task["steps"][0]["deliveries"], 2, "{task:#}");
    // Awake again it finds its lease gone, ends its command and takes new work.
    still.signal(Signal::CONT);
    drop(_other);
    gateway.begin(&json!({"to": "role:writer", "input": "more"}));
    until("the first worker goes on", Duration::from_secs(30), || (begun() == "1\n1\n").then_some(()));
    assert!(still.is_alive());
    let ours: Vec<Value> =
        records(&gateway.export().0).into_iter().filter(|r| r["task"] == json!(id)).collect();
    let of = |kind: &str| ours.iter().filter(|r| r["kind"] == kind).count();
    assert_eq!((of("edge"), of("outcome")), (1, 1), "{ours:#?}");
    gateway.is_well();
}

#[test]
fn a_lease_that_ran_out_counts_for_nothing_whatever_its_worker_says() {
    let (gateway, key) = desk(&[]);
    let id = gateway.begin(&json!({"to": "role:writer", "input": "hello"}));
    let old = leased(&gateway, &key, "one");
    let new = leased(&gateway, &key, "two");
    assert_eq!((&old["delivery"], &new["delivery"]), (&json!(1), &json!(2)));
    assert_ne!(old["lease_id"], new["lease_id"]);
    for (name, body) in [
        ("complete", json!({"output": "late"})),
        ("fail", json!({"reason": "late", "retry": true})),
        ("fail", json!({"reason": "late", "retry": false})),
        (
            "suspend",
            json!({"continuation": 1, "delegations": [{"id": "q", "to": "role:writer", "input": "x"}]}),
        ),
        ("extend", json!({"by_s": 60})),
    ] {
        refused(&call(&gateway, &key, &old, name, &body), 409, "lease_lost");
    }
    assert_eq!(gateway.task(&id)["status"], "running");
    call(&gateway, &key, &new, "extend", &json!({"by_s": 15})).good();
    let done = json!({"output": "mine"});
    let first = call(&gateway, &key, &new, "complete", &done).good();
    assert_eq!(first["status"], "completed");
    // Settled: the same call is the same answer, another one is refused, and the old lease is still nothing.
    assert_eq!(call(&gateway, &key, &new, "complete", &done).good(), first);
    refused(&call(&gateway, &key, &new, "complete", &json!({"output": "other"})), 409, "lease_settled");
    refused(&call(&gateway, &key, &new, "fail", &json!({"reason": "no"})), 409, "lease_settled");
    refused(&call(&gateway, &key, &old, "complete", &done), 409, "lease_lost");
    assert_eq!(gateway.ended(&id)["output"]["text"], "mine");
    gateway.is_well();
}

#[test]
fn work_that_was_delivered_too_often_is_a_dead_letter_and_its_task_fails() {
    let (gateway, key) = desk(&[("EXEAT_WORK_MAX_DELIVERIES", "3")]);
    let id = gateway.begin(&json!({"to": "role:writer", "input": "poison"}));
    // Given back, run out, run out.
    let one = leased(&gateway, &key, "one");
    let again = json!({"reason": "not now", "retry": true});
    assert_eq!(call(&gateway, &key, &one, "fail", &again).good()["status"], "dispatched");
    for delivery in [2, 3] {
        assert_eq!(leased(&gateway, &key, "one")["delivery"], json!(delivery));
    }
    let task = gateway.ended(&id);
    assert_eq!(
        (&task["status"], &task["reason"]["code"]),
        (&json!("failed"), &json!("worker_failed")),
        "{task:#}"
    );
    assert!(!task["reason"]["message"].as_str().unwrap().is_empty(), "{task:#}");
    let dead = gateway.all("/dead-letters");
    assert_eq!(dead.len(), 1, "{dead:#?}");
    assert_eq!((&dead[0]["kind"], &dead[0]["task_id"]), (&json!("work"), &json!(id)));
    let none = as_worker(&gateway, &key, "", &json!({"role": "writer", "worker": "w", "wait_s": 1})).good();
    assert_eq!(none["leases"], json!([]), "nobody gets it again");
    gateway.is_well();
}

#[test]
fn work_survives_its_server_and_a_lease_from_before_can_not_end_it_twice() {
    let (mut gateway, key) = desk(&[("EXEAT_WORK_LEASE", "3s")]);
    let id = gateway.begin(&json!({"to": "role:writer", "input": "hello"}));
    let before = leased(&gateway, &key, "one");
    gateway.kill();
    gateway.start();
    let first = call(&gateway, &key, &before, "complete", &json!({"output": "one"}));
    if first.status == 409 {
        // A start voids what was out: somebody else gets it.
        refused(&first, 409, "lease_lost");
        let after = leased(&gateway, &key, "two");
        call(&gateway, &key, &after, "complete", &json!({"output": "one"})).good();
        refused(&call(&gateway, &key, &before, "complete", &json!({"output": "one"})), 409, "lease_lost");
    }
    let task = gateway.ended(&id);
    assert_eq!(task["output"]["text"], "one");
    gateway.is_well();
}

#[test]
fn a_lease_is_for_the_worker_alone_that_took_it() {
    let (gateway, key) = desk(&[("EXEAT_WORK_LEASE", "60s")]);
    let stranger = gateway.worker_key(&["reader"]);
    gateway.begin(&json!({"to": "role:writer", "input": "hello"}));
    let lease = leased(&gateway, &key, "one");
    let wanted = json!({"role": "writer", "worker": "w"});
    refused(&as_worker(&gateway, &stranger, "", &wanted), 403, "role_missing");
    refused(&as_worker(&gateway, &gateway.admin(), "", &wanted), 403, "scope_missing");
    let done = json!({"output": "stolen"});
    refused(&call(&gateway, &stranger, &lease, "complete", &done), 409, "lease_lost");
    refused(&call(&gateway, &stranger, &lease, "extend", &json!({"by_s": 5})), 409, "lease_lost");
    let away = json!({"continuation": 1, "delegations": [{"id": "q", "to": "agent:nobody", "input": "x"}]});
    refused(&call(&gateway, &key, &lease, "suspend", &away), 403, "destination_not_allowed");
    call(&gateway, &key, &lease, "complete", &json!({"output": "mine"})).good();
    gateway.is_well();
}
