//! Role A → foreign agent B → role C: by a workflow, with commands as workers, and the ledger to show for it.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub};

const WORKFLOW: &str = r#"
name: invoice-check
steps:
  draft:   { to: role:writer, input: "${{ input.text }}" }
  review:
    to: agent:auditor
    needs: [draft]
    input: "!later 1s; steer\nPlease review: ${{ steps.draft.output.text }}"
  publish: { to: role:publisher, needs: [review], input: "${{ steps.review.output.parts[1].text }}" }
output: "${{ steps.publish.output }}"
"#;

#[test]
fn a_workflow_goes_from_role_to_foreign_agent_to_role_over_four_edges() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "1h")], &["--price", "20000"]);
    let workflow = gateway.file("invoice-check.yaml", WORKFLOW);
    gateway.admin(&["workflow", "push", &workflow]).ok();
    let _writer = gateway.worker("writer", &["--text"], &["sed", "s/^/DRAFT /"]);
    let _publisher = gateway.worker("publisher", &["--text"], &["tr", "a-z", "A-Z"]);
    let ran = gateway.json(&["run", "invoice-check", "--text", "invoice 4711", "--wait", "--timeout", "30s"]);
    assert_eq!(
        (&ran["status"], &ran["output"]["text"]),
        (&json!("completed"), &json!("PLEASE REVIEW: DRAFT INVOICE 4711"))
    );

    let id = ran["task_id"].as_str().unwrap();
    assert_eq!(
        gateway.edges(),
        [
            "forward coordinator -> role:writer",
            "a2a_egress coordinator -> agent:auditor",
            "a2a_ingress agent:auditor -> coordinator",
            "forward coordinator -> role:publisher",
        ]
    );
    shows_what_it_did(&gateway.task(id));
    counts_its_events(&gateway, id);
    // What the agent says of next agents and of metadata steers nothing: it got one message, of one text.
    let seen = stub.messages();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let members: Vec<&String> = seen[0].as_object().unwrap().keys().collect();
    assert_eq!(members, ["contextId", "messageId", "parts", "role"]);
    let path = "/api/v1/costs?by=agent";
    let costs = crate::e2e::rig::http(&gateway.url, "GET", path, &gateway.admin_key(), &[], "").body;
    assert_eq!(costs["total_microusd"], 20_000);
}

fn shows_what_it_did(task: &Value) {
    assert_eq!((&task["workflow"], &task["status"]), (&json!("invoice-check@1"), &json!("completed")));
    assert_eq!((&task["cost_microusd"], &task["reserved_microusd"]), (&json!(20_000), &json!(0)));
    assert_eq!(&task["waiting"], &json!([]));
    assert_eq!(task["requester"].as_str().map(str::len), Some(16), "a key id");
    let steps: Vec<_> =
        task["steps"].as_array().unwrap().iter().map(|s| (&s["name"], &s["status"])).collect();
    let done = json!("completed");
    assert_eq!(steps, [(&json!("draft"), &done), (&json!("review"), &done), (&json!("publish"), &done)]);
    assert_eq!((&task["steps"][0]["tainted"], &task["steps"][2]["tainted"]), (&json!(false), &json!(true)));
    let hop = &task["steps"][1]["hops"][0];
    assert_eq!((&hop["state"], &hop["to"]), (&json!("completed"), &json!("agent:auditor")));
    assert_eq!(hop["push"], json!({"asked": true, "arrived": true}));
    assert_eq!(hop["attempts"].as_array().unwrap().len(), 1, "{hop}");
    assert_eq!((&hop["protocol"], &hop["binding"]), (&json!("1.0"), &json!("JSONRPC")));
    assert_eq!(hop["cost"]["settled_microusd"], 20_000);
    let dirs: Vec<_> = hop["edges"].as_array().unwrap().iter().map(|e| &e["dir"]).collect();
    assert_eq!(dirs, [&json!("a2a_egress"), &json!("a2a_ingress")]);
}

/// Events count from 1 without a gap, begin and end with the task, and tell each step's way.
fn counts_its_events(gateway: &Gateway, id: &str) {
    let path = format!("/api/v1/tasks/{id}/events");
    let stream = crate::e2e::rig::http(&gateway.url, "GET", &path, &gateway.admin_key(), &[], "").body;
    let stream = stream.as_str().unwrap();
    let ids: Vec<usize> = stream.lines().filter_map(|l| l.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=ids.len()).collect::<Vec<_>>(), "{stream}");
    let watched = gateway.admin(&["task", "watch", id, "--json"]).ok().out;
    let events: Vec<Value> = watched.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.len(), ids.len());
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!((&first["event"], &first["status"]), (&json!("task"), &json!("running")));
    assert_eq!((&last["event"], &last["status"]), (&json!("task"), &json!("completed")));
    let way = |step: &str| -> Vec<&str> {
        let own = events.iter().filter(|e| e["event"] == "step" && e["step"] == step);
        own.map(|e| e["status"].as_str().unwrap()).collect()
    };
    assert_eq!(way("draft").last(), Some(&"completed"));
    assert_eq!(way("review").last(), Some(&"completed"));
    let settled = events.iter().filter(|e| e["event"] == "cost" && e["entry"] == "settle");
    assert_eq!(settled.map(|e| e["amount_microusd"].as_u64().unwrap()).sum::<u64>(), 20_000);
}
