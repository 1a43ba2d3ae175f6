//! The callback key changes while work is out, and the server restarts in between.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{Gateway, Stub, until};

/// Push alone may end a hop: looks come too late to matter.
const NO_LOOKS: &[(&str, &str)] = &[("EXEAT_HOP_POLL_FIRST", "1h"), ("EXEAT_HOP_POLL_MAX", "1h")];

#[test]
fn o_push_12_work_that_is_out_comes_back_by_its_old_token_across_a_rotation_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("seen.jsonl");
    let agent = Stub::start(&["--log", log.to_str().unwrap()]);
    let mut gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &[]);
    let begin = |text: &str| gateway.begin(&json!({ "to": "agent:auditor", "input": text }));
    let out = |id: &str| {
        until("the hop is out", Duration::from_secs(20), || {
            let task = gateway.task(id);
            task["steps"][0]["hops"][0]["foreign_task_id"].is_string().then_some(())
        });
    };
    let soon = begin("!later 2s\nsoon");
    let late = begin("!later 8s\nlate");
    out(&soon);
    out(&late);
    let rotated = gateway.does(&["key", "rotate-callback"]);
    let kid = rotated["key_id"].as_str().unwrap().to_owned();
    let new = begin("!later 1s\nnew");
    let ended = |gateway: &Gateway, id: &str| {
        let task = gateway.ended(id);
        assert_eq!(task["status"], "completed", "{task:#}");
        assert_eq!(task["steps"][0]["hops"][0]["push"]["arrived"], true, "{task:#}");
    };
    ended(&gateway, &soon);
    ended(&gateway, &new);
    let seen = std::fs::read_to_string(&log).unwrap();
    // A token is `ec1.KID.EXP.MAC`; each send has one, in the order in which they came.
    let tokens = seen.lines().filter_map(|l| l.split_once("\"ec1.").map(|(_, rest)| rest));
    let kids: Vec<&str> = tokens.filter_map(|t| t.split('.').next()).collect();
    assert_eq!(
        (kids.len(), kids[2], kids[0] == kids[1], kids[0] == kid),
        (3, kid.as_str(), true, false),
        "{seen}"
    );
    assert!(gateway.stop().success());
    gateway.start();
    ended(&gateway, &late);
    gateway.is_well();
    let told: Vec<Value> = gateway.all("/ledger?kind=change");
    let keys = told.iter().filter(|r| r["data"]["what"] == "key" && r["data"]["after"] == "active");
    assert_eq!(keys.count(), 1);
}
