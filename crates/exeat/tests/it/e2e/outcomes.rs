//! Each way in which a foreign agent can end a hop, or spoil it, ends the task with its own status and reason.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub, ending, hop, until};

/// Looks, pauses and graces are short, so that what takes an hour in life takes a second here.
pub(crate) const HASTY: &[(&str, &str)] = &[
    ("EXEAT_HOP_POLL_FIRST", "100ms"),
    ("EXEAT_HOP_POLL_MAX", "200ms"),
    ("EXEAT_HOP_RETRY_FIRST", "100ms"),
    ("EXEAT_HOP_RETRY_MAX", "200ms"),
    ("EXEAT_HOP_UNKNOWN_GRACE", "1s"),
    ("EXEAT_HOP_SEND_ATTEMPTS", "3"),
];

/// Directives, the status and reason they end in, and the outcome of each attempt to send.
const ENDINGS: [(&str, &str, &str, &[&str]); 19] = [
    ("!message", "completed", "", &["answered"]),
    ("!later 300ms; message", "completed", "", &["answered"]),
    ("!block 300ms", "completed", "", &["answered"]),
    ("!fail no paper", "failed", "foreign_failed", &["answered"]),
    ("!later 200ms; fail no paper", "failed", "foreign_failed", &["answered"]),
    ("!reject not mine", "rejected", "foreign_rejected", &["answered"]),
    ("!cancel gave up", "rejected", "foreign_canceled", &["answered"]),
    ("!status 503 1", "completed", "", &["refused", "answered"]),
    ("!status 400 9", "failed", "send_refused", &["refused"]),
    ("!status 500 9", "failed", "outcome_unknown", &["ambiguous"]),
    // The error doesn't prove that nothing ran.
    ("!rpc -32602", "failed", "send_refused", &["answered"]),
    ("!rpc -32603", "failed", "send_refused", &["answered"]),
    ("!garbage null; push none", "failed", "invalid_response", &["answered"]),
    ("!garbage html; push none", "failed", "invalid_response", &["answered"]),
    ("!garbage cut; push none", "failed", "invalid_response", &["answered"]),
    ("!garbage deep; push none", "failed", "invalid_response", &["answered"]),
    ("!size 9m; push none", "failed", "response_too_large", &["answered"]),
    ("!redirect http://elsewhere.invalid/", "failed", "redirect_refused", &["refused"]),
    ("!later 1h; push none; poll lost", "failed", "foreign_task_lost", &["answered"]),
];

#[test]
fn each_ending_has_its_status_and_its_reason() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &["--price", "100"]);
    let begun: Vec<String> = ENDINGS.iter().map(|(d, ..)| gateway.begin(&[&format!("{d}\nhello")])).collect();
    let mut wrong = Vec::new();
    for ((directives, status, code, outcomes), id) in ENDINGS.iter().zip(&begun) {
        let task = gateway.ended(id);
        let hop = hop(&task);
        let tried: Vec<&str> =
            hop["attempts"].as_array().unwrap().iter().filter_map(|a| a["outcome"].as_str()).collect();
        let got = ending(&task);
        if (got.0.as_str(), got.1.as_str(), &tried[..]) != (*status, *code, *outcomes) {
            wrong.push(format!("{directives}: {got:?} {tried:?}\n{task}"));
        }
        let next = task["reason"]["next"].as_str().unwrap_or_default();
        if !code.is_empty() && next.is_empty() {
            wrong.push(format!("{directives}: says not what to do: {}", task["reason"]));
        }
        if task["reserved_microusd"] != 0 {
            wrong.push(format!("{directives}: keeps money back: {task}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Whatever happened, no message began its work twice.
    let ids = stub.seen()["message_ids"].as_object().unwrap().clone();
    assert!(ids.values().all(|n| n == 1), "{ids:?}");
    gateway.records();
}

#[test]
fn canceling_a_task_cancels_the_agents_too() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &[]);
    let id = gateway.begin(&["!later 1h\nhello"]);
    gateway.task_when(&id, "the hop is out", |t| t["steps"][0]["hops"][0]["foreign_task_id"].is_string());
    gateway.admin(&["task", "cancel", &id, "--reason", "wrong file"]).ok();
    let task = gateway.ended(&id);
    assert_eq!(ending(&task), ("canceled".into(), "canceled_by_requester".into()));
    until("the agent's task is canceled", || {
        stub.seen()["tasks"].as_object().unwrap().values().all(|s| s == "canceled").then_some(())
    });
    gateway.records();
}

#[test]
fn an_agent_that_answers_with_the_task_of_another_errand_fails_this_one_and_leaves_the_other() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &["--price", "100"]);
    let first = gateway.begin(&["!later 1h; push none\nfirst"]);
    let named = |t: &Value| hop(t)["foreign_task_id"].is_string();
    let out = gateway
        .task_when(&first, "the first is out", |t| t["steps"][0]["hops"][0]["foreign_task_id"].is_string());
    let (code, told) = gateway.delegate(&["!same; push none\nsecond"]);
    assert_eq!((code, ending(&told)), (1, ("failed".into(), "invalid_response".into())));
    assert!(told["reason"]["message"].as_str().unwrap().contains("another errand"), "{told}");
    let second = gateway.task(told["task_id"].as_str().unwrap());
    assert!(!named(&second), "{second}");
    // What came of it nobody knows: it is paid for.
    assert_eq!(
        (&second["cost_microusd"], &second["reserved_microusd"]),
        (&json!(100), &json!(0)),
        "{second}"
    );
    let still = gateway.task(&first);
    assert_eq!(
        (&still["status"], &hop(&still)["foreign_task_id"]),
        (&json!("running"), &hop(&out)["foreign_task_id"])
    );
    assert_eq!(stub.seen()["cancels"], 0);
    gateway.admin(&["task", "cancel", &first]).ok();
    until("the first is canceled at the agent", || (stub.seen()["cancels"] == 1).then_some(()));
    gateway.records();
}

#[test]
fn a_deadline_ends_the_task_and_calls_the_agent_off() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &[]);
    let (code, told) = gateway.delegate(&["!later 1h\nhello", "--deadline", "1s"]);
    assert_eq!((code, ending(&told)), (1, ("timed_out".into(), "deadline".into())));
    until("the agent's task is canceled", || {
        stub.seen()["tasks"].as_object().unwrap().values().all(|s| s == "canceled").then_some(())
    });
}

#[test]
fn an_agent_that_wants_a_sign_in_waits_for_its_owner() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &[]);
    let id = gateway.begin(&["!auth\nhello"]);
    let task = gateway.task_when(&id, "it waits", |t| t["waiting"][0]["for"] == "auth");
    assert_eq!(task["status"], "awaiting_input");
}

#[test]
fn an_agent_that_isnt_there_is_tried_as_often_as_is_set() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &[]);
    drop(stub);
    let (code, told) = gateway.delegate(&["hello"]);
    assert_eq!((code, ending(&told)), (1, ("failed".into(), "attempts_exhausted".into())));
    let task = gateway.task(told["task_id"].as_str().unwrap());
    assert_eq!(hop(&task)["attempts"].as_array().unwrap().len(), 3, "{task}");
}

#[test]
fn a_wait_that_ends_before_the_task_says_so_and_names_it() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let ran = gateway.admin(&["delegate", "agent:auditor", "!later 1h\nx", "--wait", "--timeout", "300ms"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(gateway.task(ran.out.trim())["status"], "running");
}

#[test]
fn what_a_budget_doesnt_cover_is_denied_before_it_leaves() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "600"]);
    gateway.admin(&["budget", "set", "agent:auditor", "1000", "--period", "day"]).ok();
    assert_eq!(gateway.delegate(&["hello"]).0, 0);
    let (code, told) = gateway.delegate(&["hello"]);
    assert_eq!((code, ending(&told)), (1, ("denied".into(), "budget_exceeded".into())));
    assert_eq!(stub.seen()["sends"], 1);
    gateway.records();
}
