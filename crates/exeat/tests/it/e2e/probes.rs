//! What an operator asks: is the agent there, why was this let out, what was spent.

use serde_json::json;

use crate::e2e::rig::{Gateway, Names, Stub};

#[test]
fn a_probe_looks_at_the_agent_once_it_may_and_leaves_its_record() {
    let (stub, names) = (Stub::start(&[]), Names::start());
    let gateway = Gateway::start(&[("EXEAT_EGRESS_DNS", &names.address)]);
    gateway.register("auditor", &format!("http://peer.test:{}", stub.port()), &[]);

    let refused = gateway.admin(&["agent", "probe", "auditor", "--json"]);
    refused.refused(3, "destination_not_allowed");
    assert_eq!(stub.seen()["accepts"], 0);
    assert_eq!(names.asked(), Vec::<String>::new());

    gateway.admin(&["egress", "on"]).ok();
    let probe = gateway.json(&["agent", "probe", "auditor", "--reason", "first look"]);
    assert_eq!((&probe["reachable"], &probe["problems"]), (&json!(true), &json!([])), "{probe}");
    assert_eq!(probe["would_use"]["binding"], "JSONRPC");
    assert_eq!(stub.seen()["sends"], 0);
    let shown = gateway.admin(&["agent", "probe", "auditor"]).ok().out;
    assert!(shown.contains("would use"), "{shown}");
    let acts: Vec<_> = gateway.records().into_iter().filter(|r| r["kind"] == "operator").collect();
    assert_eq!(acts.len(), 2, "{acts:?}");
    assert!(acts.iter().all(|r| r["data"]["act"] == "discover" && r["data"]["target"] == "auditor"));
}

#[test]
fn an_agent_that_isnt_there_is_told_by_the_exit_code() {
    let gone = Stub::start(&[]).url.clone();
    let gateway = Gateway::to(&gone, &[], &[]);
    let ran = gateway.admin(&["agent", "probe", "auditor", "--json"]);
    assert_eq!((ran.code, &ran.json()["reachable"]), (1, &json!(false)), "{ran:?}");
    assert!(ran.json()["problems"][0].is_string(), "{ran:?}");
}

#[test]
fn costs_are_summed_by_what_is_asked() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "250"]);
    let (_, first) = gateway.delegate(&["one"]);
    gateway.delegate(&["two"]);
    let by_agent = gateway.json(&["cost", "show"]);
    let line = json!({"key": "auditor", "hops": 2, "settled_microusd": 500, "reserved_microusd": 0});
    assert_eq!(by_agent, json!({"items": [line], "total_microusd": 500}));
    let by_task = gateway.json(&["cost", "show", "--by", "task"]);
    assert!(by_task["items"].as_array().unwrap().iter().any(|i| i["key"] == first["task_id"]), "{by_task}");
    let before = gateway.json(&["cost", "show", "--by", "day", "--to", "2020-01-01"]);
    assert_eq!(before, json!({"items": [], "total_microusd": 0}));
    let shown = gateway.admin(&["cost", "show"]).ok().out;
    assert!(shown.contains("auditor") && shown.contains("$0.0005"), "{shown}");
}

#[test]
fn a_hop_is_explained_by_the_command_with_what_would_be_said_now() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let (_, told) = gateway.delegate(&["hello"]);
    let task = gateway.task(told["task_id"].as_str().unwrap());
    let hop = task["steps"][0]["hops"][0]["hop_id"].as_str().unwrap();
    let told = gateway.json(&["policy", "explain", hop]);
    assert_eq!((&told["decision"], &told["now"]["decision"]), (&json!("allow"), &json!("allow")), "{told}");
    // Going out and coming back.
    assert_eq!(told["judgements"].as_array().unwrap().len(), 2, "{told}");
    let shown = gateway.admin(&["policy", "explain", hop]).ok().out;
    assert!(shown.contains("starter-foreign") && shown.contains("a2a_ingress"), "{shown}");
    let nobody = "0197f3a0-0000-7000-8000-000000000001";
    gateway.admin(&["policy", "explain", nobody, "--json"]).refused(3, "not_found");
}
