//! Starting, listing, showing, canceling and answering tasks.

use exeat_core::principal::KeyScope;
use exeat_core::transport::{ForeignState, SendOutcome};
use serde_json::{Value, json};

use crate::rig::{Rig, foreign, get, post};

/// Names of all members, sorted.
pub(crate) fn members(v: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = v.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

const TASK: [&str; 17] = [
    "continues",
    "cost_microusd",
    "created_at",
    "deadline",
    "ended_at",
    "input",
    "label",
    "org",
    "output",
    "reason",
    "requester",
    "reserved_microusd",
    "status",
    "steps",
    "task_id",
    "waiting",
    "workflow",
];
const STEP: [&str; 14] = [
    "deliveries",
    "elements",
    "ended_at",
    "hops",
    "input",
    "label",
    "name",
    "needs",
    "output",
    "reason",
    "started_at",
    "status",
    "tainted",
    "to",
];
const HOP: [&str; 27] = [
    "approval_id",
    "attempts",
    "binding",
    "card_digest",
    "cost",
    "deadline",
    "delegation",
    "due_at",
    "edges",
    "foreign_context_id",
    "foreign_task_id",
    "hop_id",
    "label",
    "looks",
    "message_ids",
    "origin",
    "payload_digest",
    "protocol",
    "push",
    "question",
    "reason",
    "registry_version",
    "skill",
    "state",
    "to",
    "turn",
    "verdict",
];

#[tokio::test]
async fn a_delegation_is_created_runs_and_shows_every_member_of_its_contract() {
    let rig = Rig::new().await;
    rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(foreign(ForeignState::Completed, "done")));
    let body = json!({"to": "agent:auditor", "input": "look"});
    let made = rig.call(post("/api/v1/tasks", &body).key(&rig.admin)).await;
    let task = made.is(201);
    assert_eq!(made.headers["location"], format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap()));
    assert_eq!(members(&task), TASK);
    let path = format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap());
    let waited = rig.call(get(path).key(&rig.admin).with("prefer", "wait=10")).await;
    assert_eq!(waited.headers["preference-applied"], "wait=10");
    let task = waited.is(200);
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(task["output"]["text"], "done");
    assert_eq!(task["waiting"], json!([]));
    let step = &task["steps"][0];
    assert_eq!(members(step), STEP);
    assert_eq!((&step["name"], &step["tainted"]), (&json!("hop"), &json!(false)));
    let hop = &step["hops"][0];
    assert_eq!(members(hop), HOP);
    assert_eq!(
        members(&hop["cost"]),
        [
            "elapsed_ms",
            "estimate_microusd",
            "reported_microusd",
            "reserved_microusd",
            "rule",
            "settled_microusd",
        ]
    );
    assert_eq!(hop["attempts"][0]["outcome"], "answered");
    assert_eq!(hop["foreign_task_id"], "t-1");
    let dirs: Vec<&Value> = hop["edges"].as_array().unwrap().iter().map(|e| &e["dir"]).collect();
    assert_eq!(dirs, ["a2a_egress", "a2a_ingress"]);
    assert_eq!(hop["push"], json!({"asked": true, "arrived": false}));
}

#[tokio::test]
async fn every_answer_that_is_a_task_has_the_edges_of_its_hops() {
    let rig = Rig::new().await;
    let edges = |task: &Value| task["steps"][0]["hops"][0]["edges"].clone();
    let body = json!({"to": "agent:auditor", "input": "look"});
    let start = || post("/api/v1/tasks", &body).key(&rig.admin).with("idempotency-key", "k");
    let made = rig.call(start()).await.is(201);
    assert_eq!((&edges(&made)[0]["dir"], &edges(&made)[0]["turn"]), (&json!("a2a_egress"), &json!(1)));
    assert!(edges(&made)[0]["seq"].is_u64(), "{made:#}");
    rig.until(&made["task_id"], |t| t["steps"][0]["hops"][0]["state"] == "working").await;
    let path = format!("/api/v1/tasks/{}/cancel", made["task_id"].as_str().unwrap());
    let canceled = rig.call(post(path, &json!({})).key(&rig.admin)).await.is(202);
    assert_eq!(edges(&canceled), edges(&rig.task(&made["task_id"]).await));
    assert_eq!(edges(&canceled), edges(&made));
    // The first answer stays what it was, whatever became of the hop.
    assert_eq!(rig.call(start()).await.is(201), made);
}

#[tokio::test]
async fn a_budget_that_is_set_or_changed_begins_with_what_was_spent_in_its_period() {
    let rig = Rig::new().await;
    rig.agent("paid", "confidential", |a| a.terms.price.estimate_microusd = 1_000_000).await;
    let n = std::cell::Cell::new(0);
    let spend = async || {
        n.set(n.get() + 1);
        let mut result = foreign(ForeignState::Completed, "done");
        result.id = format!("t-{}", n.get());
        rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(result));
        let id = rig.start(&json!({"to":"agent:paid","input":"x"})).await["task_id"].clone();
        let task = rig.until(&id, |t| !t["ended_at"].is_null()).await;
        if task["status"] == "denied" {
            rig.peer.sends.lock().unwrap().clear();
        }
        task["status"].clone()
    };
    let set = async |scope: &str, limit: u64, period: &str| {
        let body = json!({"limit_microusd": limit, "period": period});
        let call = post(format!("/api/v1/budgets/{scope}"), &body).method("PUT").key(&rig.admin);
        rig.call(call).await.is(200)["settled_microusd"].clone()
    };
    assert_eq!(spend().await, "completed");
    assert_eq!(set("org", 1_500_000, "day").await, 1_000_000);
    assert_eq!(set("agent:paid", 9_000_000, "month").await, 1_000_000);
    assert_eq!(spend().await, "denied", "a second dollar isn't covered");
    rig.clock.pass(exeat_core::time::Span::of_secs(86_400));
    assert_eq!(spend().await, "completed", "another day");
    assert_eq!(set("org", 2_500_000, "none").await, 2_000_000, "the total");
    assert_eq!(spend().await, "denied");
    assert_eq!(set("org", 2_000_000, "day").await, 1_000_000, "that day's");
    assert_eq!(spend().await, "completed");
    assert_eq!(set("org", 2_000_000, "month").await, 3_000_000);
    assert_eq!(set("agent:paid", 9_000_000, "day").await, 2_000_000);
}

#[tokio::test]
async fn each_bad_start_has_its_code_and_commits_nothing() {
    let rig = Rig::new().await;
    let before = rig.store.rows(&rig.org).len();
    for (body, status, code) in [
        (json!({"to":"agent:auditor","input":"x","nope":1}), 422, "unknown_member"),
        (json!({"to":"agent:auditor","workflow":"w","input":"x"}), 422, "invalid"),
        (json!({"input":"x"}), 422, "invalid"),
        (json!({"to":"agent:auditor"}), 422, "invalid"),
        (json!({"to":"agent:nobody","input":"x"}), 422, "unknown_destination"),
        (json!({"to":"https://evil.example","input":"x"}), 422, "invalid"),
        (json!({"to":"agent:auditor","input":"x","label":"public"}), 422, "bad_label"),
        (json!({"to":"agent:auditor","input":"x","label":"no-such-level"}), 422, "bad_label"),
        (
            json!({"to":"agent:auditor","input":"x","label":{"level":"internal","tags":["A B"]}}),
            422,
            "bad_label",
        ),
        (json!({"to":"agent:auditor","input":"x","label":{"level":"internal","x":1}}), 422, "unknown_member"),
        (json!({"to":"agent:auditor","input":{"parts":[{"text":"a","url":"b"}]}}), 422, "invalid"),
        (json!({"to":"agent:auditor","input":{"parts":[]}}), 422, "invalid"),
        (json!({"to":"agent:auditor","input":"x".repeat(1 << 20)}), 413, "payload_too_large"),
        (json!({"to":"agent:auditor","input":"x","deadline":"soon"}), 422, "invalid"),
        (json!({"to":"agent:auditor","input":"x","budget_microusd":-1}), 422, "invalid"),
        (json!({"workflow":"nope","input":"x"}), 404, "not_found"),
        (json!({"workflow":"w","input":"x","skill":"s"}), 422, "invalid"),
    ] {
        rig.call(post("/api/v1/tasks", &body).key(&rig.admin)).await.problem(status, code);
    }
    let call = post("/api/v1/tasks", &Value::Null).key(&rig.admin);
    rig.call(call.raw("{\"to\":")).await.problem(400, "bad_json");
    let pointed =
        rig.call(post("/api/v1/tasks", &json!({"to":"agent:auditor","input":"x","nope":1})).key(&rig.admin));
    assert_eq!(pointed.await.json()["errors"][0]["pointer"], "/nope");
    assert_eq!(rig.store.rows(&rig.org).len(), before);
    assert!(rig.peer.sent.lock().unwrap().is_empty());
}

#[tokio::test]
async fn doors_open_to_their_scope_alone_and_another_orgs_things_are_not_there() {
    let rig = Rig::new().await;
    let task = rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let path = format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap());
    let viewer = rig.key("v", &[KeyScope::Viewer], "restricted", |_| {}).await;
    let other = rig.key("r", &[KeyScope::Requester], "restricted", |_| {}).await;
    let abroad = rig
        .key("x", &[KeyScope::Viewer, KeyScope::Operator], "restricted", |k| k.org = "other".parse().unwrap())
        .await;
    rig.call(get(path.clone())).await.problem(401, "unauthenticated");
    rig.call(get(path.clone()).key(&other)).await.problem(403, "scope_missing");
    rig.call(post("/api/v1/tasks", &json!({"to":"role:a","input":1})).key(&viewer))
        .await
        .problem(403, "scope_missing");
    let cancel = || post(format!("{path}/cancel"), &json!({}));
    rig.call(cancel().key(&viewer)).await.problem(403, "scope_missing");
    rig.call(cancel().key(&other)).await.problem(403, "scope_missing");
    rig.call(get(path.clone()).key(&abroad)).await.problem(404, "not_found");
    rig.call(get(format!("{path}/events")).key(&abroad)).await.problem(404, "not_found");
    rig.call(cancel().key(&abroad)).await.problem(404, "not_found");
    rig.call(get("/api/v1/tasks/nonsense").key(&rig.admin)).await.problem(404, "not_found");
    let upper = format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap().to_ascii_uppercase());
    rig.call(get(upper).key(&rig.admin)).await.problem(404, "not_found");
    let listed = rig.call(get("/api/v1/tasks").key(&abroad)).await.is(200);
    assert_eq!(listed["items"], json!([]));
    rig.call(cancel().key(&rig.admin)).await.is(202);
}

#[tokio::test]
async fn a_switched_off_coordinator_takes_no_tasks() {
    let rig = Rig::with(|s| s.switches.coordinator = false).await;
    let call = post("/api/v1/tasks", &json!({"to":"agent:auditor","input":"x"})).key(&rig.admin);
    rig.call(call).await.problem(503, "coordinator_off");
}

#[tokio::test]
async fn the_same_request_with_its_key_is_one_task_and_one_answer() {
    let rig = Rig::new().await;
    let ask = |input: &str, key: &str| {
        let body = json!({"to":"role:writer","input":input});
        post("/api/v1/tasks", &body).key(&rig.admin).with("idempotency-key", key)
    };
    let first = rig.call(ask("x", "k1")).await;
    let again = rig.call(ask("x", "k1")).await;
    assert_eq!(first.is(201), again.is(201));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(first.headers["location"], again.headers["location"]);
    assert!(first.headers.get("idempotency-replayed").is_none());
    rig.call(ask("y", "k1")).await.problem(422, "idempotency_mismatch");
    let other = rig.call(ask("x", "k2")).await.is(201);
    assert_ne!(other["task_id"], first.json()["task_id"]);
    let all = rig.call(get("/api/v1/tasks").key(&rig.admin)).await.is(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    // Cancel has its own path, so its own keys; its second answer is its first, not 409.
    let path = format!("/api/v1/tasks/{}/cancel", other["task_id"].as_str().unwrap());
    let cancel =
        || post(path.clone(), &json!({"reason":"enough"})).key(&rig.admin).with("idempotency-key", "k1");
    let first = rig.call(cancel()).await.is(202);
    assert_eq!(first["status"], "canceled");
    assert_eq!(rig.call(cancel()).await.is(202), first);
    rig.call(post(path.clone(), &json!({})).key(&rig.admin)).await.problem(409, "task_ended");
}

#[tokio::test]
async fn a_listing_pages_newest_first_without_steps_and_filters() {
    let rig = Rig::new().await;
    let mut made = Vec::new();
    for n in 0..5 {
        rig.clock.pass(exeat_core::time::Span::of_secs(1));
        let to = if n % 2 == 0 { "role:writer" } else { "agent:auditor" };
        made.push(rig.start(&json!({"to": to, "input": n})).await["task_id"].clone());
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/tasks?limit=2".to_owned();
    loop {
        let page = rig.call(get(path.clone()).key(&rig.admin)).await.is(200);
        for item in page["items"].as_array().unwrap() {
            assert!(item.get("steps").is_none());
            assert_eq!(members(item).len(), TASK.len() - 1);
            seen.push(item["task_id"].clone());
        }
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/tasks?limit=2&cursor={cursor}");
    }
    made.reverse();
    assert_eq!(seen, made);
    for (query, count) in
        [("agent=auditor", 2), ("status=running", 5), ("status=completed", 0), ("workflow=w", 0)]
    {
        let page = rig.call(get(format!("/api/v1/tasks?{query}")).key(&rig.admin)).await.is(200);
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{query}");
    }
    for (query, status, code) in [
        ("status=nope", 422, "invalid"),
        ("limit=0", 422, "invalid"),
        ("cursor=!", 400, "bad_cursor"),
        ("nope=1", 422, "unknown_member"),
    ] {
        rig.call(get(format!("/api/v1/tasks?{query}")).key(&rig.admin)).await.problem(status, code);
    }
}

#[tokio::test]
async fn content_above_the_callers_clearance_is_withheld_at_every_door() {
    let rig = Rig::new().await;
    let low = rig.key("low", &[KeyScope::Viewer, KeyScope::Approver], "internal", |_| {}).await;
    let words = "the secret recipe";
    let failed = foreign(ForeignState::Failed, "the secret recipe burnt");
    rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(failed));
    let body = json!({"to":"agent:auditor","input":words,"label":"confidential"});
    let id = rig.start(&body).await["task_id"].clone();
    let task = rig.until(&id, |t| t["status"] == "failed").await;
    assert!(task.to_string().contains(words));
    let id = id.as_str().unwrap();
    let asked = rig.start(&json!({"to":"agent:careful","input":words,"label":"confidential"})).await;
    rig.until(&asked["task_id"], |t| t["status"] == "awaiting_approval").await;
    let approval = rig.call(get("/api/v1/approvals").key(&rig.second)).await.is(200);
    assert!(approval.to_string().contains(words));
    let approval = approval["items"][0]["approval_id"].as_str().unwrap().to_owned();
    for path in [
        format!("/api/v1/tasks/{id}"),
        "/api/v1/tasks".to_owned(),
        format!("/api/v1/tasks/{id}/events"),
        "/api/v1/approvals".to_owned(),
        format!("/api/v1/approvals/{approval}"),
    ] {
        let answer = rig.call(get(path.clone()).key(&low)).await;
        assert_eq!(answer.status, 200, "{path}");
        let text = String::from_utf8(answer.bytes).unwrap();
        assert!(!text.contains("secret"), "{path}: {text}");
        assert!(text.contains("clearance_too_low") || path.ends_with("events"), "{path}: {text}");
    }
    let task = rig.call(get(format!("/api/v1/tasks/{id}")).key(&low)).await.is(200);
    assert_eq!(task["input"]["withheld"], "clearance_too_low");
    assert_eq!(task["input"]["label"]["level"], "confidential");
    assert_eq!(task["reason"]["code"], "foreign_failed");
    let digest = task["steps"][0]["hops"][0]["payload_digest"].as_str().unwrap();
    assert!(digest.starts_with("sha256s:"), "{digest}");
}

#[tokio::test]
async fn a_label_above_the_ceiling_is_a_task_that_ends_denied_and_nothing_leaves() {
    let rig = Rig::new().await;
    let body = json!({"to":"agent:auditor","input":"x","label":{"level":"restricted","tags":["eu"]}});
    let task = rig.start(&body).await;
    assert_eq!((&task["status"], &task["reason"]["code"]), (&json!("denied"), &json!("label_above_ceiling")));
    assert!(rig.peer.sent.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_question_is_shown_waits_for_its_answer_and_takes_one() {
    let rig = Rig::new().await;
    rig.peer.sends.lock().unwrap().extend([
        SendOutcome::Task(foreign(ForeignState::InputRequired, "which one?")),
        SendOutcome::Task(foreign(ForeignState::Completed, "that one")),
    ]);
    let id = rig.start(&json!({"to":"agent:auditor","input":"pick"})).await["task_id"].clone();
    let task = rig.until(&id, |t| t["status"] == "awaiting_input").await;
    let question = &task["steps"][0]["hops"][0]["question"];
    assert_eq!(question["prompt"]["text"], "which one?");
    let waiting = &task["waiting"][0];
    assert_eq!((&waiting["for"], &waiting["ref"]), (&json!("input"), &question["question_id"]));
    assert!(waiting["hint"].as_str().unwrap().contains("exeat task answer"));
    let path = format!("/api/v1/tasks/{}/answer", id.as_str().unwrap());
    let answer =
        |q: &Value| post(path.clone(), &json!({"question_id": q, "input": "the red"})).key(&rig.admin);
    rig.call(answer(&json!("01890000-0000-7000-8000-000000000000"))).await.problem(409, "question_answered");
    let low = rig.key("low", &[KeyScope::Operator], "public", |_| {}).await;
    let blind = json!({"question_id": question["question_id"], "input": "the red"});
    rig.call(post(path.clone(), &blind).key(&low)).await.problem(403, "clearance_too_low");
    rig.call(answer(&question["question_id"])).await.is(202);
    let task = rig.until(&id, |t| t["status"] == "completed").await;
    assert_eq!(task["output"]["text"], "that one");
    assert_eq!(task["steps"][0]["hops"][0]["turn"], 2);
    rig.call(answer(&question["question_id"])).await.problem(409, "task_ended");
}

#[tokio::test]
async fn whoever_must_move_is_named_with_the_command_that_helps() {
    let rig = Rig::new().await;
    let of = async |to: &str| rig.start(&json!({"to":to,"input":"x"})).await["task_id"].clone();
    let worker = rig.task(&of("role:writer").await).await;
    assert_eq!(worker["waiting"][0]["for"], "worker");
    assert!(worker["waiting"][0]["hint"].as_str().unwrap().contains("exeat worker --role writer"));
    let agent = of("agent:auditor").await;
    let agent = rig.until(&agent, |t| t["steps"][0]["hops"][0]["state"] == "working").await;
    assert_eq!(agent["waiting"][0]["for"], "agent");
    assert!(agent["waiting"][0]["next_at"].is_string() && agent["waiting"][0]["until"].is_string());
    let careful = rig.task(&of("agent:careful").await).await;
    assert_eq!(careful["waiting"][0]["for"], "approval");
    assert!(careful["waiting"][0]["hint"].as_str().unwrap().contains("exeat approval approve"));
}

#[tokio::test]
async fn a_workflow_runs_by_name_or_by_pinned_version() {
    let rig = Rig::new().await;
    rig.workflow("name: press\nsteps:\n  draft: { to: role:writer }\n").await;
    for name in ["press", "press@1"] {
        let task = rig.start(&json!({"workflow":name,"input":{"a":1}})).await;
        assert_eq!((&task["workflow"], &task["input"]["data"]), (&json!("press@1"), &json!({"a":1})));
        assert_eq!(task["steps"][0]["to"], "role:writer");
    }
    let body = json!({"workflow":"press@2","input":1});
    rig.call(post("/api/v1/tasks", &body).key(&rig.admin)).await.problem(404, "not_found");
}

#[tokio::test]
async fn an_unreadable_policy_denies_and_says_so() {
    let rig = Rig::new().await;
    rig.policy(2, "permit (principal, action, resource) when { no.such.thing };").await;
    let task = rig.start(&json!({"to":"agent:auditor","input":"x"})).await;
    assert_eq!((&task["status"], &task["reason"]["code"]), (&json!("denied"), &json!("policy_error")));
}

#[tokio::test]
async fn what_never_left_costs_nothing_and_has_no_effects() {
    use exeat_core::reason::ReasonCode as R;
    use exeat_core::transport::SendOutcome as S;
    let rig = Rig::new().await;
    rig.agent("paid", "confidential", |a| a.terms.price.estimate_microusd = 700).await;
    for (outcome, cost, effects) in [
        (S::Impossible(R::CredentialUnavailable), 0, "none"),
        (S::Refused { code: R::SendRefused, after: None }, 0, "none"),
        (
            S::Task(exeat_core::transport::ForeignTask {
                id: String::new(),
                ..foreign(ForeignState::Working, "")
            }),
            700,
            "possible",
        ),
    ] {
        rig.peer.sends.lock().unwrap().push_back(outcome.clone());
        let id = rig.start(&json!({"to":"agent:paid","input":"x"})).await["task_id"].clone();
        let task = rig.until(&id, |t| t["status"] == "failed").await;
        assert_eq!(task["cost_microusd"], cost, "{outcome:?}: {task:#}");
        assert_eq!(task["reserved_microusd"], 0);
        let records = rig.records().await;
        let last = records.iter().rfind(|r| r["kind"] == "outcome").unwrap();
        assert_eq!(last["data"]["effects"], effects, "{outcome:?}");
    }
}
