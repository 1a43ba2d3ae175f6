//! More than one turn: questions, and workers that ask a foreign agent and are started again with its reply.

use serde_json::json;

use crate::e2e::rig::{Gateway, Stub, ending, hop};

#[test]
fn an_answer_goes_on_the_same_foreign_task_with_a_message_id_of_its_own() {
    for protocol in ["1.0", "0.3"] {
        let stub = Stub::start(&["--protocol", protocol]);
        let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]);
        let id = gateway.begin(&["!ask Which currency?\n3 × 12.50"]);
        let asked = gateway.task_when(&id, "it asks", |t| t["status"] == "awaiting_input");
        assert_eq!(asked["waiting"][0]["for"], "input");
        assert_eq!(hop(&asked)["question"]["prompt"]["text"], "Which currency?");
        gateway.admin(&["task", "answer", &id, "EUR"]).ok();
        let done = gateway.ended(&id);
        assert_eq!((ending(&done).0, &done["output"]["text"]), ("completed".into(), &json!("EUR")));
        let messages = stub.messages();
        assert_eq!(messages.len(), 2, "{protocol}: {messages:?}");
        assert!(messages[0].get("taskId").is_none(), "{messages:?}");
        assert_eq!(messages[1]["taskId"], hop(&done)["foreign_task_id"]);
        assert_eq!(messages[1]["contextId"], hop(&done)["foreign_context_id"]);
        assert_ne!(messages[0]["messageId"], messages[1]["messageId"]);
        let edges = gateway.edges();
        assert_eq!(edges.len(), 4, "{edges:?}");
        // It was answered: there is nothing left to answer.
        gateway.admin(&["task", "answer", &id, "USD", "--json"]).refused(3, "no_question");
    }
}

#[test]
fn a_workflow_can_say_that_a_question_fails_the_step() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let workflow = gateway.file(
        "no-questions.yaml",
        "name: no-questions\nsteps:\n  only: { to: agent:auditor, input: \"!ask Which?\\nx\", on_input_required: fail }\n",
    );
    gateway.admin(&["workflow", "push", &workflow]).ok();
    let ran = gateway.admin(&["run", "no-questions", "--wait", "--timeout", "30s", "--json"]);
    assert_eq!((ran.code, &ran.json()["status"]), (1, &json!("failed")), "{ran:?}");
}

#[test]
fn a_worker_asks_an_agent_goes_away_and_comes_back_with_the_reply() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "500"]);
    gateway.admin(&["role", "set", "writer", "--may", "agent:auditor"]).ok();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workers/writer.py");
    let _writer = gateway.worker("writer", &[], &["python3", script]);
    // The agent echoes; the worker looks for `ok` in the data.
    let invoice = json!({"number": "17", "total_cents": 1000, "ok": true}).to_string();
    let line = ["delegate", "role:writer", "--data", &invoice, "--wait", "--timeout", "30s"];
    let done = gateway.json(&line);
    assert_eq!(done["output"]["text"], "Invoice 17 over 10.00: audited");
    assert_eq!(done["cost_microusd"], 500);
    assert_eq!(
        gateway.edges(),
        [
            "forward coordinator -> role:writer",
            "a2a_egress coordinator -> agent:auditor",
            "a2a_ingress agent:auditor -> coordinator",
            "forward coordinator -> role:writer",
        ]
    );
    let task = gateway.task(done["task_id"].as_str().unwrap());
    assert_eq!((&hop(&task)["delegation"], &task["steps"][0]["deliveries"]), (&json!("audit"), &json!(2)));
    assert_eq!(stub.messages().len(), 1);
}

#[test]
fn a_worker_asks_only_whom_its_role_may() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let ask = r#"printf '{"suspend":{"continuation":1,"delegations":[{"id":"q","to":"agent:auditor","input":"x"}]}}'"#;
    let _writer = gateway.worker("writer", &[], &["sh", "-c", ask]);
    let ran = gateway.admin(&["delegate", "role:writer", "x", "--wait", "--timeout", "30s", "--json"]);
    assert_eq!((ran.code, ending(&ran.json()).0), (1, "failed".into()), "{ran:?}");
    assert_eq!(stub.seen()["accepts"], 0);
}
