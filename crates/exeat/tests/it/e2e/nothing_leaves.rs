//! Off means off: no connection, and not even a look-up of a name.

use serde_json::json;

use crate::e2e::rig::{Gateway, Names, Stub, ending};

/// A gateway with an agent that is known by a name, and the only name server it asks.
fn by_name() -> (Gateway, Stub, Names) {
    let (stub, names) = (Stub::start(&[]), Names::start());
    let gateway = Gateway::start(&[("EXEAT_EGRESS_DNS", &names.address)]);
    gateway.register("auditor", &format!("http://peer.test:{}", stub.port()), &[]);
    (gateway, stub, names)
}

#[track_caller]
fn nothing_left(stub: &Stub, names: &Names) {
    assert_eq!(stub.seen()["accepts"], 0);
    assert_eq!(names.asked(), Vec::<String>::new());
}

#[test]
fn before_egress_is_on_nothing_leaves() {
    let (gateway, stub, names) = by_name();
    let (code, told) = gateway.delegate(&["hello"]);
    assert_eq!((code, ending(&told)), (1, ("denied".into(), "egress_off".into())));
    nothing_left(&stub, &names);
    gateway.admin(&["egress", "on"]).ok();
    assert_eq!(gateway.delegate(&["hello"]).0, 0);
    assert!(names.asked().iter().all(|n| n == "peer.test") && !names.asked().is_empty());
    assert_eq!(stub.seen()["sends"], 1);
}

#[test]
fn to_an_agent_whose_posture_nobody_signed_nothing_leaves() {
    let (gateway, stub, names) = by_name();
    gateway.admin(&["egress", "on"]).ok();
    gateway.admin(&["agent", "set", "auditor", "--region", "eu"]).ok();
    let (code, told) = gateway.delegate(&["hello"]);
    assert_eq!((code, ending(&told)), (1, ("denied".into(), "posture_unsigned".into())));
    nothing_left(&stub, &names);
}

#[test]
fn to_a_disabled_or_revoked_agent_nothing_leaves() {
    let (gateway, stub, names) = by_name();
    gateway.admin(&["egress", "on"]).ok();
    for (act, code) in [("disable", "agent_disabled"), ("revoke", "agent_revoked")] {
        gateway.admin(&["agent", act, "auditor", "--reason", "odd answers"]).ok();
        let (exit, told) = gateway.delegate(&["hello"]);
        assert_eq!((exit, ending(&told)), (1, ("denied".into(), code.into())));
    }
    nothing_left(&stub, &names);
}

#[test]
fn the_kill_switch_denies_nothing_and_lets_nothing_out_until_it_is_released() {
    let (gateway, stub, names) = by_name();
    gateway.admin(&["egress", "on"]).ok();
    gateway.admin(&["egress", "halt", "--reason", "incident 12"]).ok();
    let id = gateway.begin(&["hello"]);
    let task = gateway.task_when(&id, "the hop waits for the halt", |t| t["waiting"][0]["for"] == "halt");
    assert_eq!(task["status"], "running");
    assert!(task["waiting"][0]["hint"].as_str().unwrap().contains("exeat egress on"), "{task}");
    nothing_left(&stub, &names);
    gateway.admin(&["egress", "on"]).ok();
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");
}

#[test]
fn one_agent_can_be_halted_and_resumed() {
    let (gateway, stub, names) = by_name();
    gateway.admin(&["egress", "on"]).ok();
    gateway.admin(&["agent", "halt", "auditor"]).ok();
    let id = gateway.begin(&["hello"]);
    gateway.task_when(&id, "the hop waits for the halt", |t| t["waiting"][0]["for"] == "halt");
    nothing_left(&stub, &names);
    gateway.admin(&["agent", "resume", "auditor"]).ok();
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");
}

#[test]
fn a_callback_during_a_halt_is_kept_and_counts_once_it_is_over() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "1h")], &[]);
    let id = gateway.begin(&["!later 1s\nhello"]);
    gateway.task_when(&id, "the hop is out", |t| t["steps"][0]["hops"][0]["foreign_task_id"].is_string());
    gateway.admin(&["egress", "halt"]).ok();
    crate::e2e::rig::until("the agent is done", || {
        let tasks = stub.seen()["tasks"].clone();
        tasks.as_object().unwrap().values().all(|s| s == "completed").then_some(())
    });
    assert_eq!(gateway.task(&id)["status"], json!("running"));
    assert_eq!(stub.seen()["gets"], 0);
    gateway.admin(&["egress", "on"]).ok();
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");
}
