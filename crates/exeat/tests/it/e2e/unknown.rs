//! Sends whose fate nobody knows: found by listing or by a push, sent again only where the agent knows them again, and
//! never made twice.

use serde_json::{Value, json};

use crate::e2e::outcomes::HASTY;
use crate::e2e::rig::{Gateway, Stub, ending, hop, http};

#[test]
fn a_send_that_nobody_answered_is_found_in_our_conversation_though_nothing_is_pushed() {
    for directives in ["!drop 1; push none", "!drop 1; later 1s; push none", "!status 500 1; push none"] {
        let stub = Stub::start(&[]);
        let settings = [HASTY, &[("EXEAT_HOP_UNKNOWN_GRACE", "20s")]].concat();
        let gateway = Gateway::to(&stub.url, &settings, &["--price", "100"]);
        // With the status nothing is made: nothing is found either, however often it is asked for.
        if directives.starts_with("!status") {
            let id = gateway.begin(&[&format!("{directives}\nhello"), "--deadline", "3s"]);
            let task = gateway.ended(&id);
            assert_eq!(ending(&task), ("timed_out".into(), "deadline".into()), "{task}");
            assert!(hop(&task)["looks"].as_u64().unwrap() > 1, "{task}");
            continue;
        }
        let (code, told) = gateway.delegate(&[&format!("{directives}\nhello")]);
        assert_eq!((code, &told["output"]["text"]), (0, &json!("hello")), "{directives}: {told}");
        let task = gateway.task(told["task_id"].as_str().unwrap());
        assert_eq!(hop(&task)["attempts"][0]["outcome"], "ambiguous");
        assert!(hop(&task)["foreign_task_id"].is_string(), "{task}");
        let seen = stub.seen();
        assert_eq!((&seen["sends"], &seen["cancels"]), (&json!(1), &json!(0)), "{seen}");
        assert_eq!((&task["cost_microusd"], &task["reserved_microusd"]), (&json!(100), &json!(0)));
        gateway.records();
    }
}

#[test]
fn a_send_that_nobody_answered_is_not_sent_again_and_the_callback_binds_it() {
    // Of this version, which can't list.
    let stub = Stub::start(&["--protocol", "0.3"]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let id = gateway.begin(&["!drop 1; later 2s\nhello"]);
    let unknown = gateway.task_when(&id, "the send is unknown", |t| {
        t["steps"][0]["hops"][0]["attempts"][0]["outcome"] == "ambiguous"
    });
    assert_eq!(unknown["status"], "running");
    let done = gateway.ended(&id);
    assert_eq!((ending(&done).0, &done["output"]["text"]), ("completed".into(), &json!("hello")));
    assert!(hop(&done)["foreign_task_id"].is_string(), "{done}");
    let seen = stub.seen();
    assert_eq!(seen["message_ids"].as_object().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["sends"], 1);
    gateway.records();
}

#[test]
fn a_send_that_stays_unknown_fails_with_effects_possible_and_leaves_a_dead_letter() {
    let stub = Stub::start(&[]);
    // It makes a conversation of its own, so ours can't be listed.
    let gateway = Gateway::to(&stub.url, HASTY, &["--context", "theirs"]);
    let (code, told) = gateway.delegate(&["!drop 1; push none\nhello"]);
    assert_eq!((code, ending(&told)), (1, ("failed".into(), "outcome_unknown".into())));
    let outcomes: Vec<Value> = gateway.records().into_iter().filter(|r| r["kind"] == "outcome").collect();
    assert_eq!(outcomes[0]["data"]["effects"], "possible", "{outcomes:?}");
    let letters = http(&gateway.url, "GET", "/api/v1/dead-letters", &gateway.admin_key(), &[], "").body;
    assert_eq!(letters["items"][0]["kind"], "unknown", "{letters}");
    assert_eq!(stub.seen()["sends"], 1);
}

#[test]
fn an_agent_that_knows_a_message_again_is_sent_it_again() {
    let stub = Stub::start(&["--dedup", "on"]);
    let gateway = Gateway::to(&stub.url, HASTY, &["--dedup", "message_id"]);
    let (code, told) = gateway.delegate(&["!drop 1; push none\nhello"]);
    assert_eq!((code, &told["output"]["text"]), (0, &json!("hello")), "{told}");
    let seen = stub.seen();
    assert_eq!((&seen["sends"], seen["message_ids"].as_object().unwrap().len()), (&json!(2), 1), "{seen}");
}
