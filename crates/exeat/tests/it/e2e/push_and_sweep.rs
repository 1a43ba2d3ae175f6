//! A result comes by push or by looking, whatever the agent's manners; what went out comes back equal.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub, ending, hop};

/// A look comes too late to matter.
const PUSH_ONLY: &[(&str, &str)] = &[("EXEAT_HOP_POLL_FIRST", "1h"), ("EXEAT_HOP_POLL_MAX", "1h")];
const QUICK_LOOKS: &[(&str, &str)] = &[("EXEAT_HOP_POLL_FIRST", "100ms"), ("EXEAT_HOP_POLL_MAX", "200ms")];

/// Text, data, a file and what tends to get lost, under these directives.
fn everything(gateway: &Gateway, directives: &str) -> (Vec<String>, Value) {
    let file = gateway.file("a.bin", "\u{0}\u{1}\u{7f}");
    let data = json!({"n": 1, "x": [1.5, null, true, "ü"], "deep": {"er": {}}});
    let text = "héllo 世界 🦀\u{2028}\n\ttab";
    let flags = [format!("{directives}\n{text}"), "--data".into(), data.to_string(), "--file".into(), file];
    let parts = json!([
        {"text": text},
        {"data": data},
        {"raw": "AAF/", "filename": "a.bin", "mediaType": "application/octet-stream"},
    ]);
    (flags.to_vec(), parts)
}

#[track_caller]
fn comes_back(gateway: &Gateway, directives: &str) -> Value {
    let (flags, parts) = everything(gateway, directives);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (code, done) = gateway.delegate(&flags);
    assert_eq!((code, ending(&done)), (0, ("completed".into(), String::new())), "{directives}: {done}");
    assert_eq!(done["output"]["parts"], parts, "{directives}");
    gateway.task(done["task_id"].as_str().unwrap())
}

#[test]
fn a_push_completes_a_hop_however_it_comes() {
    for protocol in ["1.0", "0.3"] {
        let stub = Stub::start(&["--protocol", protocol]);
        let gateway = Gateway::to(&stub.url, PUSH_ONLY, &[]);
        for directives in [
            "!later 200ms",
            "!push early; later 200ms",
            "!later 200ms; push dup 5",
            "!later 200ms; push reverse",
        ] {
            let task = comes_back(&gateway, directives);
            let hop = hop(&task);
            assert_eq!(hop["push"], json!({"asked": true, "arrived": true}), "{protocol} {directives}");
            let spoken = hop["protocol"].as_str().unwrap();
            assert!(spoken.starts_with(protocol), "{hop}");
        }
        let sent = stub.seen()["message_ids"].as_object().unwrap().clone();
        assert!(sent.len() == 4 && sent.values().all(|n| n == 1), "{sent:?}");
        gateway.records();
    }
}

#[test]
fn without_a_push_the_sweep_finds_the_result() {
    for protocol in ["1.0", "0.3"] {
        let stub = Stub::start(&["--protocol", protocol]);
        let gateway = Gateway::to(&stub.url, QUICK_LOOKS, &[]);
        for directives in ["!push none", "!later 300ms; push none", "!later 300ms; push badtoken"] {
            let task = comes_back(&gateway, directives);
            assert_eq!(hop(&task)["push"]["arrived"], false, "{protocol} {directives}");
        }
        gateway.records();
    }
}

#[test]
fn an_agent_without_push_isnt_asked_for_it() {
    let stub = Stub::start(&["--push", "off"]);
    let gateway = Gateway::to(&stub.url, QUICK_LOOKS, &[]);
    let task = comes_back(&gateway, "!later 300ms");
    assert_eq!(hop(&task)["push"], json!({"asked": false, "arrived": false}));
}

#[test]
fn a_lie_that_it_is_done_completes_nothing() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, PUSH_ONLY, &[]);
    let id = gateway.begin(&["!push lie\nhello"]);
    let task = gateway.task_when(&id, "the lie was looked up", |t| {
        t["steps"][0]["hops"][0]["push"]["arrived"] == true && t["steps"][0]["hops"][0]["looks"] != 0
    });
    assert_eq!((&task["status"], &hop(&task)["state"]), (&json!("running"), &json!("working")));
    assert_eq!(task["waiting"][0]["for"], "agent");
}

#[test]
fn a_push_that_names_another_task_is_refused_and_recorded() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, QUICK_LOOKS, &[]);
    comes_back(&gateway, "!later 300ms; push other");
    let refused: Vec<Value> = gateway.records().into_iter().filter(|r| r["kind"] == "refused").collect();
    assert!(!refused.is_empty());
}
