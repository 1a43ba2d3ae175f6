//! Real agents on the official A2A SDK and on Google's ADK, between two roles.

use serde_json::json;

use crate::e2e::rig::{Gateway, Peer};

/// The first worker makes the parts; what the agent answers is given on as it came.
const WORKFLOW: &str = r#"
name: there-and-back
steps:
  make: { to: role:maker, input: "${{ input }}" }
  ask: { to: agent:auditor, needs: [make], input: "${{ steps.make.output }}" }
  take: { to: role:taker, needs: [ask], input: "${{ steps.ask.output }}" }
output: "${{ steps.take.output }}"
"#;

const GIVES_ON: &str = r#"import json, sys
lease = json.load(sys.stdin)
json.dump({"output": {"parts": lease["input"]["parts"]}}, sys.stdout)"#;

/// One of every kind of part, with what tends to be lost: text outside ASCII, bytes, names, media types.
fn there_and_back(gateway: &Gateway) -> serde_json::Value {
    let workflow = gateway.file("there-and-back.yaml", WORKFLOW);
    gateway.admin(&["workflow", "push", &workflow]).ok();
    let script = gateway.file("gives_on.py", GIVES_ON);
    let _maker = gateway.worker("maker", &[], &["python3", &script]);
    let _taker = gateway.worker("taker", &[], &["python3", &script]);
    let parts = json!([
        {"text": "héllo 世界 🦀\u{2028}\n\ttab"},
        {"data": {"n": 1, "x": [1.5, null, true, "ü"]}},
        {"raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/octet-stream"},
    ]);
    let input = json!({"parts": parts}).to_string();
    let line = ["run", "there-and-back", "--input", &input, "--wait", "--timeout", "30s"];
    let done = gateway.json(&line);
    assert_eq!(done["status"], "completed", "{done}");
    // 1 and 1.0 are the same number; canonical JSON writes them alike.
    let canonical = |v: &serde_json::Value| serde_json_canonicalizer::to_string(v).unwrap();
    assert_eq!(canonical(&done["output"]["parts"]), canonical(&parts));
    assert_eq!(gateway.edges().len(), 4);
    gateway.task(done["task_id"].as_str().unwrap())["steps"][1]["hops"][0].clone()
}

#[test]
fn the_a2a_sdk_completes_a_hop_by_push() {
    let peer = Peer::start("a2a_sdk_agent.py", &["--delay", "0.5"]);
    let hop = there_and_back(&Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "1h")], &[]));
    assert_eq!(hop["push"], json!({"asked": true, "arrived": true}));
}

#[test]
fn the_a2a_sdk_without_push_is_looked_at() {
    let peer = Peer::start("a2a_sdk_agent.py", &["--delay", "0.5", "--push", "off"]);
    let hop = there_and_back(&Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]));
    assert_eq!(hop["push"], json!({"asked": false, "arrived": false}));
    assert_ne!(hop["looks"], 0);
}

const OLD: (&str, &str) = ("EXEAT_A2A_03_PYTHON", "a2a_sdk_03_agent.py");

#[test]
fn the_a2a_sdk_of_the_0_3_generation_completes_a_hop_by_push() {
    let peer = Peer::start_in(OLD.0, OLD.1, &["--delay", "0.5"]);
    let hop = there_and_back(&Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "1h")], &[]));
    assert_eq!(hop["push"], json!({"asked": true, "arrived": true}));
    assert_eq!(hop["protocol"], "0.3.0", "{hop}");
}

#[test]
fn the_a2a_sdk_of_the_0_3_generation_without_push_is_looked_at() {
    let peer = Peer::start_in(OLD.0, OLD.1, &["--delay", "0.5", "--push", "off"]);
    let hop = there_and_back(&Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]));
    assert_eq!(hop["push"], json!({"asked": false, "arrived": false}));
    assert_ne!(hop["looks"], 0);
}

#[test]
fn a_question_of_the_0_3_generation_is_answered_on_the_same_task() {
    let peer = Peer::start_in(OLD.0, OLD.1, &[]);
    answers_on_the_same_task(&peer);
}

#[test]
fn google_adk_which_takes_a_push_configuration_and_never_pushes_is_looked_at() {
    let peer = Peer::start("adk_agent.py", &[]);
    let hop = there_and_back(&Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]));
    assert_eq!(hop["push"]["arrived"], false);
}

#[test]
fn a_question_of_the_a2a_sdk_is_answered_on_the_same_task() {
    answers_on_the_same_task(&Peer::start("a2a_sdk_agent.py", &[]));
}

fn answers_on_the_same_task(peer: &Peer) {
    let gateway = Gateway::to(&peer.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]);
    let id = gateway.begin(&["ask: Which currency?"]);
    gateway.task_when(&id, "it asks", |t| t["status"] == "awaiting_input");
    gateway.admin(&["task", "answer", &id, "EUR"]).ok();
    assert_eq!(gateway.ended(&id)["output"]["text"], "EUR");
}
