//! Bodies of callbacks as published senders post them.

use exeat_wire::push::{Claim, Push, PushEvent, event};
use exeat_wire::{Limits, State};
use serde_json::{Value, json};

fn push(v: &Value) -> Push {
    event(v.to_string().as_bytes(), &Limits::default()).unwrap()
}

#[test]
fn bodies_of_published_senders_are_read() {
    // a2a-sdk for Python 1.3.0.
    let p = push(
        &json!({"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-30T20:54:40.256663Z"}}}),
    );
    assert_eq!((p.names_task(), p.names_context(), p.claims()), (Some("t1"), Some("c1"), Claim::End));
    // @a2a-js/sdk 1.3.0 to a 0.3 webhook; Python 0.3.26 alike.
    let p = push(
        &json!({"kind":"task","id":"t1","contextId":"c1","status":{"state":"completed","timestamp":"x"},"history":[]}),
    );
    assert_eq!((p.names_task(), p.claims()), (Some("t1"), Claim::End));
    // 0.1: a bare task without a kind, and its event.
    let p = push(&json!({"id":"t1","sessionId":"s1","status":{"state":"working"}}));
    assert!(matches!(p.event, PushEvent::Task(_)));
    assert_eq!((p.names_task(), p.names_context(), p.claims()), (Some("t1"), Some("s1"), Claim::Progress));
    let p = push(&json!({"id":"t1","status":{"state":"completed"},"final":true}));
    assert_eq!((p.names_task(), p.claims()), (Some("t1"), Claim::End));
}

#[test]
fn o_push_03_all_shapes_are_told_apart() {
    let task = json!({"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"ok"}]}]});
    let status = json!({"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"role":"ROLE_AGENT","parts":[{"text":"?"}]}}});
    let artifact = json!({"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"hello"}]},"append":true,"lastChunk":true});
    let message = json!({"messageId":"m","role":"ROLE_AGENT","taskId":"t1","parts":[{"text":"42"}]});
    let kinded = |kind: &str, v: &Value| {
        let mut v = v.clone();
        v["kind"] = json!(kind);
        v
    };
    for (wrapper, kind, inner, claim) in [
        ("task", "task", &task, Claim::End),
        ("statusUpdate", "status-update", &status, Claim::Interruption),
        ("artifactUpdate", "artifact-update", &artifact, Claim::Progress),
        ("message", "message", &message, Claim::End),
    ] {
        let wrapped = json!({ wrapper: inner });
        let bare = kinded(kind, inner);
        for body in [
            wrapped.clone(),
            bare.clone(),
            inner.clone(),
            json!({"jsonrpc":"2.0","id":1,"result":wrapped}),
            json!({"jsonrpc":"2.0","result":bare}),
        ] {
            let p = push(&body);
            assert_eq!((p.names_task(), p.claims()), (Some("t1"), claim), "{body}");
            assert_eq!(p.event, push(&wrapped).event);
        }
    }
    assert!(matches!(
        push(&json!({ "artifactUpdate": artifact })).event,
        PushEvent::Artifact { append: true, last_chunk: true, .. }
    ));
    assert!(matches!(
        push(&json!({ "task_id": "x", "status_update": status })).event,
        PushEvent::Status { state: State::InputRequired, message: Some(_), .. }
    ));
}

#[test]
fn a_stray_member_does_not_change_what_a_kind_says() {
    let p = push(
        &json!({"kind":"task","id":"t1","status":{"state":"working"},"message":{"taskId":"t2","parts":[{"text":"done"}]}}),
    );
    assert_eq!((p.names_task(), p.claims()), (Some("t1"), Claim::Progress));
}

#[test]
fn o_push_03_a_status_event_carries_no_output_but_a_whole_task_does() {
    let PushEvent::Task(t) = push(&json!({"task":{"id":"t1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"ok"}]}]}})).event else {
        panic!("no task")
    };
    assert_eq!(t.output().text(), "ok");
}

#[test]
fn o_push_09_the_task_that_a_body_speaks_of_is_named() {
    assert_eq!(
        push(&json!({"task":{"id":"t2","status":{"state":"TASK_STATE_COMPLETED"}}})).names_task(),
        Some("t2")
    );
    assert_eq!(push(&json!({"message":{"role":"ROLE_AGENT","parts":[{"text":"42"}]}})).names_task(), None);
}

#[test]
fn o_push_02_only_an_exact_repeat_has_the_same_digest() {
    let status = |state: &str, at: &str| json!({"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":state,"timestamp":at}}});
    let working = push(&status("TASK_STATE_WORKING", "2026-11-30T10:00:00Z"));
    let later = push(&status("TASK_STATE_WORKING", "2026-11-30T10:00:01Z"));
    let done = push(&status("TASK_STATE_COMPLETED", "2026-11-30T10:00:00Z"));
    assert_ne!(working.digest, later.digest);
    assert_ne!(working.digest, done.digest);
    let spaced = r#" { "statusUpdate" : {"status":{"timestamp":"2026-11-30T10:00:00Z","state":"TASK\u005fSTATE_WORKING"},"contextId":"c1","taskId":"t1"} } "#;
    assert_eq!(event(spaced.as_bytes(), &Limits::default()).unwrap().digest, working.digest);
    let enveloped =
        json!({"jsonrpc":"2.0","id":7,"result":status("TASK_STATE_WORKING", "2026-11-30T10:00:00Z")});
    assert_eq!(push(&enveloped).digest, working.digest);
}

#[test]
fn what_can_not_be_told_claims_nothing() {
    for v in [
        json!({}),
        json!({"hello":"world"}),
        json!({"kind":"surprise"}),
        json!({"task":{}}),
        json!({"task":{"status":{"state":"completed"}}}),
        json!({"statusUpdate":{"status":{"state":"completed"}}}),
        json!({"task":{"id":"t1","status":{"state":"completed"}},"statusUpdate":{"taskId":"t2","status":{"state":"completed"}}}),
        // Two things at once.
        json!({"id":"t1","status":{"state":"working"},"message":{"taskId":"t2","role":"ROLE_AGENT","parts":[{"text":"x"}]}}),
        json!({"jsonrpc":"2.0","id":1,"error":{"code":-32603}}),
        json!({"jsonrpc":"2.0","id":1,"result":null}),
    ] {
        let p = push(&v);
        assert_eq!((p.claims(), p.names_task()), (Claim::Unknown, None), "{v}");
    }
    for (v, task) in [
        (json!({"task":{"id":"t1","status":{"state":"TASK_STATE_PONDERING"}}}), Some("t1")),
        (json!({"task":{"id":"t1"}}), Some("t1")),
        // A last word that is no ending.
        (json!({"kind":"status-update","taskId":"t1","status":{"state":"working"},"final":true}), Some("t1")),
        (json!({"message":{"taskId":"t1","role":"ROLE_AGENT","parts":[]}}), Some("t1")),
    ] {
        let p = push(&v);
        assert_eq!((p.claims(), p.names_task()), (Claim::Unknown, task), "{v}");
    }
}

#[test]
fn what_is_no_object_is_refused() {
    for body in [
        "",
        "null",
        "[]",
        "\"completed\"",
        "<html>",
        "a=b",
        "[{\"task\":{\"id\":\"t1\"}}]",
        "{\"task\":{\"id\":\"t1\"}} trailing",
    ] {
        assert!(event(body.as_bytes(), &Limits::default()).is_err(), "{body}");
    }
}
