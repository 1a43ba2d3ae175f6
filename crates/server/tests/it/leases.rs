//! What a worker may lease, and what it may say.

use exeat_core::principal::KeyScope;
use exeat_core::time::Span;
use exeat_core::transport::{ForeignState, SendOutcome};
use serde_json::{Value, json};

use crate::rig::{Rig, foreign, in_time, post};

async fn lease_as(rig: &Rig, key: &str, role: &str) -> crate::rig::Answer {
    rig.call(post("/api/v1/leases", &json!({"role": role, "worker": "w"})).key(key)).await
}

#[tokio::test]
async fn a_worker_leases_works_and_completes_and_the_same_call_gets_the_same_answer() {
    let rig = Rig::new().await;
    let id =
        rig.start(&json!({"to":"role:writer","input":{"text":"hi"},"budget_microusd":100})).await["task_id"]
            .clone();
    let lease = rig.lease().await;
    let members = crate::tasks::members(&lease);
    assert_eq!(
        members,
        [
            "budget_left_microusd",
            "continuation",
            "deadline",
            "delivery",
            "element",
            "expires_at",
            "hops_left",
            "input",
            "kind",
            "label",
            "lease_id",
            "may",
            "replies",
            "role",
            "step",
            "tainted",
            "task_id",
        ]
    );
    assert_eq!((&lease["kind"], &lease["delivery"]), (&json!("WORK"), &json!(1)));
    assert_eq!(rig.lease().await, Value::Null, "it is out");
    let said = json!({"output": "HI", "cost_microusd": 7});
    let first = rig.settle(&lease, "complete", &said).await;
    assert_eq!(first.is(200), json!({"task_id": id, "step": "hop", "status": "completed"}));
    let again = rig.settle(&lease, "complete", &said).await;
    assert_eq!(again.is(200), first.json());
    assert_eq!(again.headers["idempotency-replayed"], "true");
    rig.settle(&lease, "complete", &json!({"output": "other"})).await.problem(409, "lease_settled");
    rig.settle(&lease, "fail", &json!({"reason": "x", "retry": false})).await.problem(409, "lease_settled");
    rig.settle(&lease, "extend", &json!({"by_s": 5})).await.problem(409, "lease_settled");
    let task = rig.task(&id).await;
    assert_eq!((&task["output"]["text"], &task["cost_microusd"]), (&json!("HI"), &json!(7)));
    assert_eq!(task["steps"][0]["deliveries"], 1);
}

#[tokio::test]
async fn a_lease_that_ran_out_counts_for_nothing() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let lease = rig.lease().await;
    let longer = rig.settle(&lease, "extend", &json!({"by_s": 120})).await.is(200);
    assert_eq!(longer["canceled"], false);
    assert!(longer["expires_at"].as_str() > lease["expires_at"].as_str());
    rig.clock.pass(Span::of_secs(121));
    rig.settle(&lease, "complete", &json!({"output": "late"})).await.problem(409, "lease_lost");
    rig.settle(&lease, "extend", &json!({"by_s": 1})).await.problem(409, "lease_lost");
    rig.settle(&lease, "extend", &json!({"by_s": 0})).await.problem(422, "invalid");
    let unknown = json!({"lease_id": "01890000-0000-7000-8000-000000000000"});
    rig.settle(&unknown, "complete", &json!({"output": 1})).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_failure_gives_the_work_back_or_ends_it() {
    let rig = Rig::new().await;
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let first = rig.lease().await;
    let said = json!({"reason": "not now", "retry": true});
    let answer = rig.settle(&first, "fail", &said).await.is(200);
    assert_eq!(answer["status"], "dispatched");
    assert_eq!(rig.settle(&first, "fail", &said).await.is(200), answer, "the same call again");
    rig.settle(&first, "fail", &json!({"reason": "else", "retry": true})).await.problem(409, "lease_settled");
    rig.clock.pass(Span::of_secs(60));
    // The sweep hands it out again.
    let second = in_time(async {
        loop {
            match rig.lease().await {
                Value::Null => tokio::task::yield_now().await,
                lease => break lease,
            }
        }
    });
    let second = second.await;
    assert_eq!(second["delivery"], 2);
    assert_eq!(rig.settle(&first, "fail", &said).await.is(200), answer, "still, though another has it");
    rig.settle(&second, "fail", &json!({"reason": "never", "retry": false})).await.is(200);
    let task = rig.task(&id).await;
    assert_eq!((&task["status"], &task["reason"]["code"]), (&json!("failed"), &json!("worker_failed")));
}

#[tokio::test]
async fn a_failure_that_says_nothing_of_a_retry_is_for_good() {
    let rig = Rig::new().await;
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let lease = rig.lease().await;
    rig.settle(&lease, "fail", &json!({"reason": "no"})).await.is(200);
    assert_eq!(rig.task(&id).await["status"], "failed");
    assert_eq!(
        exeat_server::openapi::document()["components"]["schemas"]["Failed"]["required"],
        json!(["reason"])
    );
}

#[tokio::test]
async fn a_lease_is_the_keys_that_took_it_and_no_others() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let other = rig
        .key("other", &[KeyScope::Worker], "restricted", |k| {
            k.worker_roles.insert("writer".parse().unwrap());
        })
        .await;
    let lease = rig.lease().await;
    let calls = [
        ("complete", json!({"output": 1})),
        (
            "suspend",
            json!({"continuation": 1, "delegations": [{"id": "a", "to": "agent:auditor", "input": 1}]}),
        ),
        ("fail", json!({"reason": "x", "retry": true})),
        ("extend", json!({"by_s": 5})),
    ];
    let as_other = async |lease: &Value| {
        for (call, body) in &calls {
            let path = format!("/api/v1/leases/{}/{call}", lease["lease_id"].as_str().unwrap());
            rig.call(post(path, body).key(&other)).await.problem(409, "lease_lost");
        }
    };
    as_other(&lease).await;
    rig.settle(&lease, "complete", &calls[0].1).await.is(200);
    // Its answer isn't given to others again, and a cancel isn't told to them.
    as_other(&lease).await;
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let lease = rig.lease().await;
    let path = format!("/api/v1/tasks/{}/cancel", id.as_str().unwrap());
    rig.call(post(path, &json!({})).key(&rig.admin)).await.is(202);
    as_other(&lease).await;
    assert_eq!(rig.settle(&lease, "extend", &calls[3].1).await.is(200)["canceled"], true);
}

#[tokio::test]
async fn a_cancel_is_told_by_extend_and_loses_the_lease() {
    let rig = Rig::new().await;
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let lease = rig.lease().await;
    let path = format!("/api/v1/tasks/{}/cancel", id.as_str().unwrap());
    rig.call(post(path, &json!({})).key(&rig.admin)).await.is(202);
    assert_eq!(rig.settle(&lease, "extend", &json!({"by_s": 5})).await.is(200)["canceled"], true);
    rig.settle(&lease, "complete", &json!({"output": 1})).await.problem(409, "lease_lost");
}

#[tokio::test]
async fn a_suspended_worker_is_resumed_with_its_replies_in_order() {
    let rig = Rig::new().await;
    rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(foreign(ForeignState::Completed, "checked")));
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let lease = rig.lease().await;
    assert_eq!(lease["may"], json!(["agent:auditor", "agent:careful"]));
    let said = json!({"continuation": {"at": 1}, "delegations": [
        {"id": "q1", "to": "agent:auditor", "input": "check", "label": {"level": "confidential"}, "deadline": "1h"},
    ]});
    rig.settle(&lease, "suspend", &said).await.is(202);
    rig.settle(&lease, "suspend", &said).await.is(202);
    let task = rig.until(&id, |t| t["waiting"][0]["for"] == "worker").await;
    assert_eq!(task["steps"][0]["hops"][0]["delegation"], "q1");
    let reply = rig.lease().await;
    assert_eq!((&reply["kind"], &reply["continuation"]), (&json!("REPLY"), &json!({"at": 1})));
    let first = &reply["replies"][0];
    assert_eq!(
        (&first["id"], &first["status"], &first["output"]["text"]),
        (&json!("q1"), &json!("completed"), &json!("checked"))
    );
    assert_eq!((&reply["label"]["level"], &reply["tainted"]), (&json!("confidential"), &json!(true)));
    rig.settle(&reply, "complete", &json!({"output": "all"})).await.is(200);
    assert_eq!(rig.task(&id).await["status"], "completed");
    assert_eq!(rig.peer.sent.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_destination_outside_may_is_refused_recorded_and_leaves_the_lease() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    rig.agent("stranger", "internal", |_| {}).await;
    let lease = rig.lease().await;
    let rows = rig.store.rows(&rig.org);
    let to = |to: &str| json!({"continuation": null, "delegations": [{"id": "a", "to": to, "input": 1}]});
    for target in ["agent:stranger", "role:writer", "agent:unregistered"] {
        rig.settle(&lease, "suspend", &to(target)).await.problem(403, "destination_not_allowed");
    }
    assert_eq!(rig.store.rows(&rig.org), rows, "nothing moved");
    let refused: Vec<Value> = rig.records().await.into_iter().filter(|r| r["kind"] == "refused").collect();
    assert_eq!(refused.len(), 3);
    assert_eq!(refused[0]["data"]["why"], "destination_not_allowed");
    assert!(rig.peer.sent.lock().unwrap().is_empty());
    rig.settle(&lease, "complete", &json!({"output": "still mine"})).await.is(200);
}

#[tokio::test]
async fn a_delegation_to_a_role_that_may_see_more_is_denied_and_comes_back_as_a_reply() {
    let rig = Rig::new().await;
    rig.role("writer", "internal", &["role:boss", "role:clerk"], &[]).await;
    rig.role("boss", "restricted", &[], &[]).await;
    rig.role("clerk", "public", &[], &[]).await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let lease = rig.lease().await;
    let delegations =
        json!([{"id": "up", "to": "role:boss", "input": 1}, {"id": "down", "to": "role:clerk", "input": 1}]);
    rig.settle(&lease, "suspend", &json!({"continuation": null, "delegations": delegations})).await.is(202);
    let lease = rig.lease().await;
    let ends: Vec<_> = lease["replies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            (r["id"].as_str().unwrap(), r["status"].as_str().unwrap(), r["reason"]["code"].as_str().unwrap())
        })
        .collect();
    // Upwards nobody's authority is borrowed; downwards the content's label is above what the role may see.
    assert_eq!(ends, [("up", "denied", "label_above_ceiling"), ("down", "denied", "label_above_ceiling")]);
}

#[tokio::test]
async fn a_bad_suspension_leaves_the_lease_as_it_was() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let lease = rig.lease().await;
    let one = json!({"id": "a", "to": "agent:auditor", "input": 1});
    let many: Vec<Value> =
        (0..33).map(|n| json!({"id": n.to_string(), "to": "agent:auditor", "input": 1})).collect();
    for (delegations, code) in [
        (json!([]), "invalid"),
        (json!(many), "invalid"),
        (json!([one, one]), "invalid"),
        (json!([{"id": "a"}]), "invalid"),
        (
            json!([{"id": "a", "to": "agent:auditor", "input": 1, "answer": {"question_id": "01890000-0000-7000-8000-000000000000", "input": 1}}]),
            "invalid",
        ),
        (json!([{"id": "a", "to": "agent:auditor", "input": 1, "x": 1}]), "unknown_member"),
        (json!([{"id": "a", "to": "agent:auditor", "input": 1, "label": "nope"}]), "bad_label"),
    ] {
        let said = json!({"continuation": 1, "delegations": delegations});
        rig.settle(&lease, "suspend", &said).await.problem(422, code);
    }
    for (delegations, pointer) in
        [(json!([]), "/delegations"), (json!(many), "/delegations"), (json!([one, one]), "/delegations/1/id")]
    {
        let said = json!({"continuation": 1, "delegations": delegations});
        let problem = rig.settle(&lease, "suspend", &said).await.problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
    // A string of JSON has two quotes beside its characters.
    let said = json!({"continuation": "x".repeat(262_143), "delegations": [one]});
    rig.settle(&lease, "suspend", &said).await.problem(413, "payload_too_large");
    rig.settle(&lease, "complete", &json!({"output": 1, "extra": 1})).await.problem(422, "unknown_member");
    let said = json!({"continuation": "x".repeat(262_142), "delegations": [one]});
    rig.settle(&lease, "suspend", &said).await.is(202);
}

#[tokio::test]
async fn a_key_leases_for_its_roles_in_its_org_and_no_other() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    lease_as(&rig, &rig.admin, "writer").await.problem(403, "scope_missing");
    lease_as(&rig, &rig.worker, "auditor").await.problem(403, "role_missing");
    let abroad = rig
        .key("x", &[KeyScope::Worker], "restricted", |k| {
            k.org = "other".parse().unwrap();
            k.worker_roles.insert("writer".parse().unwrap());
        })
        .await;
    assert_eq!(lease_as(&rig, &abroad, "writer").await.is(200)["leases"], json!([]));
    let lease = rig.lease().await;
    let path = format!("/api/v1/leases/{}/complete", lease["lease_id"].as_str().unwrap());
    rig.call(post(path.clone(), &json!({"output": 1})).key(&abroad)).await.problem(404, "not_found");
    let roleless = rig.key("y", &[KeyScope::Worker], "restricted", |_| {}).await;
    rig.call(post(path, &json!({"output": 1})).key(&roleless)).await.problem(409, "lease_lost");
    for body in [
        json!({"role": "writer", "worker": ""}),
        json!({"role": "writer", "worker": "w", "max": 0}),
        json!({"role": "writer", "worker": "w", "max": 33}),
        json!({"role": "writer", "worker": "w", "wait_s": 31}),
    ] {
        rig.call(post("/api/v1/leases", &body).key(&rig.worker)).await.problem(422, "invalid");
    }
}

#[tokio::test]
async fn a_team_s_work_is_leased_by_its_roles_and_several_at_once() {
    let rig = Rig::new().await;
    for n in 0..3 {
        rig.start(&json!({"to":"team:press","input":n})).await;
    }
    lease_as(&rig, &rig.worker, "publisher").await.is(200);
    let none = lease_as(&rig, &rig.worker, "publisher").await.is(200);
    assert_eq!(none["leases"], json!([]), "publisher isn't of the team");
    let body = json!({"role": "writer", "worker": "w", "max": 2, "wait_s": 0});
    let two = rig.call(post("/api/v1/leases", &body).key(&rig.worker)).await.is(200);
    assert_eq!(two["leases"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_role_or_team_that_is_switched_off_leases_nothing_and_its_work_waits() {
    for (change, to) in [
        ((|s| s.switches.harness = false) as fn(&mut exeat_server::app::Settings), "role:writer"),
        (|s| s.switches.harness_roles = vec!["other".into()], "role:writer"),
        (|s| s.switches.harness_teams = Vec::new(), "team:press"),
    ] {
        let rig = Rig::with(change).await;
        let id = rig.start(&json!({"to": to, "input": "x"})).await["task_id"].clone();
        assert_eq!(rig.lease().await, Value::Null, "{to}");
        assert_eq!(rig.task(&id).await["waiting"][0]["for"], "worker");
    }
}

#[tokio::test]
async fn work_above_the_keys_clearance_is_not_handed_out_and_the_worker_is_told() {
    let rig = Rig::new().await;
    let low = rig
        .key("low", &[KeyScope::Worker], "internal", |k| {
            k.worker_roles.insert("writer".parse().unwrap());
        })
        .await;
    rig.start(&json!({"to":"role:writer","input":"x","label":"confidential"})).await;
    lease_as(&rig, &low, "writer").await.problem(403, "clearance_too_low");
    assert_eq!(rig.lease().await["label"]["level"], "confidential");
}

#[tokio::test]
async fn a_role_that_was_lowered_since_gets_no_higher_work() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x","label":"confidential"})).await;
    rig.role("writer", "internal", &[], &[]).await;
    assert_eq!(rig.lease().await, Value::Null);
}

#[tokio::test]
async fn a_waiting_worker_gets_what_is_handed_out_meanwhile() {
    let rig = Rig::new().await;
    let body = json!({"role": "writer", "worker": "w", "wait_s": 15});
    let waiting = rig.call(post("/api/v1/leases", &body).key(&rig.worker));
    let starting = async {
        tokio::task::yield_now().await;
        rig.start(&json!({"to":"role:writer","input":"x"})).await
    };
    let (leased, task) = tokio::join!(waiting, starting);
    assert_eq!(leased.is(200)["leases"][0]["task_id"], task["task_id"]);
}

#[tokio::test]
async fn what_a_worker_said_of_its_failure_is_shown_to_who_may_see_its_task_only() {
    let rig = Rig::new().await;
    rig.start(&json!({"to":"role:writer","input":"x"})).await;
    let lease = rig.lease().await;
    rig.settle(&lease, "fail", &json!({"reason": "these are its words", "retry": false})).await.is(200);
    let low = rig.key("low", &[exeat_core::principal::KeyScope::Operator], "public", |_| {}).await;
    for (key, sees) in [(&rig.admin, true), (&low, false)] {
        let all = rig.call(crate::rig::get("/api/v1/dead-letters").key(key)).await.is(200);
        let letter = &all["items"][0];
        assert_eq!(letter["reason"]["code"], "worker_failed", "{all:#}");
        assert_eq!(letter["reason"]["message"].as_str().unwrap().contains("its words"), sees, "{letter:#}");
        let path = format!("/api/v1/dead-letters/{}", letter["id"].as_str().unwrap());
        assert_eq!(rig.call(crate::rig::get(&path).key(key)).await.is(200), *letter);
    }
}
