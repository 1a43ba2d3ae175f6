//! What whoever watches over the server sees, and what is refused while the disk is nearly full.

use exeat_core::change::Row;
use exeat_server::metrics::Commit;
use serde_json::{Value, json};

use crate::callback::{at_work, completed, path, pushing};
use crate::rig::{Rig, get, post};

async fn metrics(rig: &Rig) -> String {
    let answer = rig.call(get("/metrics").key(&rig.admin)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    String::from_utf8(answer.bytes).unwrap()
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line} isn't in\n{text}");
}

#[tokio::test]
async fn metrics_count_what_happens_and_need_a_key() {
    let rig = Rig::new().await;
    rig.call(get("/metrics")).await.problem(401, "unauthenticated");
    rig.call(get("/metrics").key(&rig.worker)).await.problem(403, "scope_missing");
    has(&metrics(&rig).await, "exeat_attempts_total{outcome=\"answered\"} 0");
    let (_, push) = at_work(&rig).await;
    rig.start(&json!({ "to": "role:writer", "input": "x" })).await;
    rig.start(&json!({ "to": "agent:careful", "input": "x" })).await;
    rig.clock.pass(exeat_core::time::Span::of_secs(7));
    assert_eq!(rig.call(pushing(&push, &completed("t-1", "x"))).await.status, 202);
    let forged = post(path(&push), &json!({})).with("x-a2a-notification-token", "ec1.x");
    assert_eq!(rig.call(forged).await.status, 404);
    let text = metrics(&rig).await;
    for line in [
        "exeat_attempts_total{outcome=\"answered\"} 1",
        "exeat_attempts_total{outcome=\"ambiguous\"} 0",
        "exeat_callbacks_total{answer=\"accepted\"} 1",
        "exeat_callbacks_total{answer=\"not_found\"} 1",
        "exeat_hops{state=\"working\"} 1",
        "exeat_hops{state=\"send_unknown\"} 0",
        "exeat_hops_oldest_seconds{state=\"working\"} 7.0",
        "exeat_work_ready 1",
        "exeat_approvals_pending 1",
        "exeat_tasks_open 3",
        "exeat_commits_total{outcome=\"moved\"} 0",
    ] {
        has(&text, line);
    }
    assert!(text.contains("exeat_commit_seconds_bucket{le="), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn no_label_is_anything_but_a_word_of_ours() {
    let rig = Rig::new().await;
    at_work(&rig).await;
    let text = metrics(&rig).await;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let labels = line.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(l, _)| l);
        for (name, value) in labels.split(',').filter_map(|l| l.split_once('=')) {
            let word = value.trim_matches('"');
            let closed = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(name == "le" || (["outcome", "state", "answer"].contains(&name) && closed), "{line}");
        }
        for named in ["main", "auditor", "careful", "writer", "admin"] {
            assert!(!labels.contains(named), "{line}");
        }
    }
}

#[tokio::test]
async fn while_the_disk_is_nearly_full_new_starts_fail_first_and_what_is_out_goes_on() {
    let rig = Rig::new().await;
    let (out, push) = at_work(&rig).await;
    let held = rig.start(&json!({ "to": "agent:careful", "input": "x" })).await["task_id"].clone();
    let wanted = json!({ "to": "agent:careful", "input": "again" });
    let again = || post("/api/v1/tasks", &wanted).key(&rig.admin).with("idempotency-key", "k");
    let first = rig.call(again()).await.is(201);
    rig.disk.leave(999);
    let start = post("/api/v1/tasks", &json!({ "to": "agent:auditor", "input": "x" })).key(&rig.admin);
    let told = rig.call(start).await.problem(503, "disk_full");
    assert!(told["detail"].as_str().unwrap().contains("999"), "{told}");
    let ready = rig.call(get("/readyz")).await.problem(503, "disk_full");
    assert!(ready["errors"][0]["message"].as_str().unwrap().starts_with("disk: 999"), "{ready}");
    // What was started before is answered again, and all that ends work goes on.
    assert_eq!(rig.call(again()).await.is(201)["task_id"], first["task_id"]);
    assert_eq!(rig.call(pushing(&push, &completed("t-1", "x"))).await.status, 202);
    let approvals = rig.call(get("/api/v1/approvals?status=pending").key(&rig.second)).await.is(200);
    let of_held = approvals["items"].as_array().unwrap().iter().find(|a| a["task_id"] == held).unwrap();
    let deny = format!("/api/v1/approvals/{}/deny", of_held["approval_id"].as_str().unwrap());
    let no = json!({ "digest": of_held["digest"], "reason": "no" });
    rig.call(post(deny, &no).key(&rig.second)).await.is(200);
    let halt = json!({ "mode": "halt", "reason": "r" });
    rig.call(post("/api/v1/egress", &halt).method("PUT").key(&rig.admin)).await.is(200);
    let cancel = format!("/api/v1/tasks/{}/cancel", out.as_str().unwrap());
    rig.call(post(cancel, &json!({})).key(&rig.admin)).await.is(202);
    rig.disk.leave(1_000);
    assert_eq!(rig.call(get("/readyz")).await.is(200)["status"], "ready");
}

#[tokio::test]
async fn an_org_has_no_more_tasks_open_than_it_may_and_gets_room_back() {
    let rig = Rig::with(|s| s.open_tasks = 2).await;
    let start = || post("/api/v1/tasks", &json!({ "to": "role:writer", "input": "x" })).key(&rig.admin);
    let first = rig.call(start().with("idempotency-key", "k")).await.is(201);
    // At once, and still no more than fit.
    let (a, b, c) = tokio::join!(rig.call(start()), rig.call(start()), rig.call(start()));
    let refused = [&a, &b, &c].into_iter().filter(|r| r.status == 429).count();
    assert_eq!(refused, 2);
    let told = rig.call(start()).await.problem(429, "rate_limited");
    assert!(told["detail"].as_str().unwrap().contains("open_tasks"), "{told}");
    assert_eq!(rig.call(start().with("idempotency-key", "k")).await.is(201)["task_id"], first["task_id"]);
    let cancel = format!("/api/v1/tasks/{}/cancel", first["task_id"].as_str().unwrap());
    rig.call(post(cancel, &json!({})).key(&rig.admin)).await.is(202);
    rig.clock.pass(exeat_core::time::Span::of_secs(2));
    rig.call(start()).await.is(201);
    rig.call(start()).await.problem(429, "rate_limited");
}

fn checked(rig: &Rig) -> bool {
    rig.store.rows(&rig.org).iter().any(|(_, r)| matches!(r, Row::Setting(n, _) if n == "write_check"))
}

#[tokio::test]
async fn a_store_that_took_nothing_is_written_to_before_it_counts_as_well_again() {
    let rig = Rig::new().await;
    at_work(&rig).await;
    let ready = rig.call(get("/readyz")).await.is(200);
    let names: Vec<&str> =
        ready["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["serving", "store", "disk", "sweep", "keys"]);
    assert!(!checked(&rig), "nothing is written while all is well");
    rig.app.metrics.commit(Commit::DiskFull, 0.1);
    assert!(rig.app.metrics.store_fails());
    rig.call(get("/readyz")).await.is(200);
    assert!(checked(&rig) && !rig.app.metrics.store_fails());
}

#[tokio::test]
async fn key_material_that_is_gone_is_told_before_the_next_start_refuses() {
    let rig = Rig::with(|s| s.key_files = vec!["no-such-folder/root-1".into()]).await;
    at_work(&rig).await;
    let ready = rig.call(get("/readyz")).await.is(200);
    let keys = ready["checks"].as_array().unwrap().iter().find(|c| c["name"] == "keys").unwrap();
    assert_eq!(keys["status"], "warn");
    assert!(keys["detail"].as_str().unwrap().contains("keys/root-1"), "{keys}");
}

#[tokio::test]
async fn the_vitals_tell_who_asks_what_waits_and_how_far_the_checkpoints_are() {
    let rig = Rig::new().await;
    at_work(&rig).await;
    rig.start(&json!({ "to": "role:writer", "input": "x" })).await;
    let told = rig.call(get("/api/v1/vitals").key(&rig.admin)).await.is(200);
    assert_eq!(told["key"]["name"], "admin");
    assert_eq!(told["egress"], "on");
    assert_eq!(told["hops"]["working"]["count"], 1);
    assert_eq!((&told["waiting"][0]["to"], &told["waiting"][0]["count"]), (&json!("role:writer"), &json!(1)));
    assert_eq!(told["ledger"]["checkpoint_file_unreadable"], Value::Null);
    assert!(told["ledger"]["records"].as_u64().unwrap() > 2, "{told}");
    assert_eq!(told["disk"]["reserve_bytes"], 1_000);
    rig.call(get("/api/v1/vitals").key(&rig.worker)).await.problem(403, "scope_missing");
}
