//! Answers as published servers give them, and as broken ones do.

use exeat_core::payload::{Content, Limits as PayloadLimits, Part, Payload};
use exeat_wire::answer::{
    BadAnswer, ListAnswer, SendAnswer, TaskAnswer, is_to_another, list_answer, send_answer, task_answer,
};
use exeat_wire::{ErrorClass, Limits, Role, State, TaskView};
use serde_json::{Value, json};

fn rpc(result: &Value) -> Vec<u8> {
    json!({"jsonrpc":"2.0","id":1,"result":result}).to_string().into_bytes()
}

fn sent(result: &Value) -> Result<SendAnswer, BadAnswer> {
    send_answer(&rpc(result), &Limits::default())
}

fn task(result: &Value) -> TaskView {
    match sent(result) {
        Ok(SendAnswer::Task(task)) => task,
        other => panic!("{other:?}"),
    }
}

/// As a2a-sdk for Python 1.3.0 answers `SendMessage`.
fn python_1_3_0() -> Value {
    json!({"task": {
        "id": "0a53e9a5-6b5d-4d0c-a1a0-5c0d1a5f0b7e", "contextId": "3b8f1c11-6a0e-4df4-9c15-64f0f54ddc26",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-30T20:54:40.256663Z"},
        "artifacts": [{"artifactId": "b1a0b5a6", "name": "echo", "parts": [{"text": "hi"}, {"data": {"n": 42.0}}]}],
        "history": [
            {"messageId": "m1", "contextId": "3b8f1c11-6a0e-4df4-9c15-64f0f54ddc26", "taskId": "0a53e9a5-6b5d-4d0c-a1a0-5c0d1a5f0b7e", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
            {"messageId": "m2", "role": "ROLE_AGENT", "parts": [{"text": "on it"}]}
        ]
    }})
}

/// As a2a-sdk for Python 0.3.26 answers `message/send`.
fn python_0_3_26() -> Value {
    json!({
        "kind": "task", "id": "t1", "contextId": "c1",
        "status": {"state": "completed", "timestamp": "2026-11-30T20:54:40.256663+00:00"},
        "artifacts": [{"artifactId": "a1", "name": "echo", "parts": [{"kind": "text", "text": "hi"}, {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "f.txt"}}]}],
        "history": [{"kind": "message", "messageId": "m1", "role": "user", "contextId": "c1", "taskId": "t1", "parts": [{"kind": "text", "text": "hi"}]}]
    })
}

/// As @a2a-js/sdk 1.3.0 prints defaults.
fn js_1_3_0() -> Value {
    json!({"task": {
        "id": "t1", "contextId": "c1", "metadata": null,
        "status": {"state": "TASK_STATE_COMPLETED", "message": null, "timestamp": "2026-11-30T20:54:40.256Z"},
        "artifacts": [{"artifactId": "a1", "name": "", "description": "", "extensions": [], "parts": [{"text": "hi", "filename": "", "mediaType": ""}]}],
        "history": []
    }})
}

/// As google-adk 2.13.0 answers: the result in the first artifact, the agent's message also in the history.
fn adk() -> Value {
    json!({"task": {
        "id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-30T20:54:40.256663Z"},
        "artifacts": [{"artifactId": "a1", "parts": [{"text": "42", "metadata": {"adk_thought": false}}]}],
        "history": [{"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "?"}]}, {"messageId": "m2", "role": "ROLE_AGENT", "parts": [{"text": "42"}]}],
        "metadata": {"adk_app_name": "x", "adk_usage_metadata": {"totalTokenCount": 7.0}}
    }})
}

/// As langgraph-api answers the old method name: in the old shape.
fn langgraph() -> Value {
    json!({
        "kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"},
        "artifacts": [{"artifactId": "a1", "name": "Assistant Response", "description": "Response from assistant", "parts": [{"kind": "text", "text": "hi"}]}]
    })
}

#[test]
fn answers_of_published_servers_are_read() {
    let t = task(&python_1_3_0());
    assert_eq!(t.context_id.as_deref(), Some("3b8f1c11-6a0e-4df4-9c15-64f0f54ddc26"));
    assert_eq!(
        (t.state.clone(), t.history_message_ids.clone()),
        (State::Completed, vec!["m1".into(), "m2".into()])
    );
    assert_eq!(t.timestamp.as_deref(), Some("2026-11-30T20:54:40.256663Z"));
    let out = t.output();
    assert_eq!((out.text().as_str(), out.data()), ("hi", json!({"n":42})));
    assert_eq!(t.last_agent_message.unwrap().role, Role::Agent);

    let out = task(&python_0_3_26()).output();
    assert_eq!(out.text(), "hi");
    assert_eq!(out.parts[1].content, Content::Raw("aGk=".into()));
    assert_eq!(out.parts[1].filename.as_deref(), Some("f.txt"));

    let out = task(&js_1_3_0()).output();
    assert_eq!(out.parts, [Part::text("hi")]);
    assert_eq!(out.artifacts[0].name, None);

    assert_eq!(task(&adk()).output().text(), "42", "the message in the history isn't said twice");
    assert_eq!(task(&langgraph()).output().text(), "hi");
}

#[test]
fn o_send_01_a_bare_message_is_the_output() {
    for m in [
        json!({"message":{"messageId":"m9","role":"ROLE_AGENT","parts":[{"text":"42"}]}}),
        json!({"kind":"message","messageId":"m9","role":"agent","parts":[{"kind":"text","text":"42"}]}),
        json!({"messageId":"m9","role":"agent","parts":[{"text":"42"}]}),
    ] {
        match sent(&m) {
            Ok(SendAnswer::Message(m)) => {
                assert_eq!((m.payload().text().as_str(), m.id.as_deref()), ("42", Some("m9")))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        sent(&json!({"message":{"messageId":"m9","role":"ROLE_AGENT","parts":[]}})),
        Err(BadAnswer::NoParts)
    );
}

#[test]
fn o_send_02_nothing_of_a_completed_task_is_dropped() {
    let t = task(
        &json!({"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"summary"}]}},"artifacts":[{"artifactId":"a1","name":"out","parts":[{"text":"body"},{"data":{"n":1}},{"url":"https://peer.test/f.pdf","mediaType":"application/pdf"}]}]}}),
    );
    assert_eq!(
        t.output().shown(),
        json!({
            "parts": [{"text":"summary"},{"text":"body"},{"data":{"n":1}},{"url":"https://peer.test/f.pdf","mediaType":"application/pdf"}],
            "text": "summary\n\nbody", "data": {"n":1},
            "artifacts": [{"id":"a1","name":"out","first":1,"count":3}]
        })
    );
}

#[test]
fn o_send_05_a_submitted_task_without_parts_is_in_progress_and_gives_nothing() {
    for status in [
        json!({"state":"submitted","message":null}),
        json!({"state":"submitted","message":{"parts":[]}}),
        json!({"state":"submitted"}),
    ] {
        let t = task(&json!({"kind":"task","id":"t1","contextId":"c1","status":status}));
        assert_eq!((t.state.clone(), t.output()), (State::Submitted, Payload::default()));
    }
}

#[test]
fn o_send_06_a_method_of_one_version_answered_in_the_shape_of_the_other_is_understood() {
    for result in [
        json!({"kind":"task","id":"t1","contextId":"c1","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"ok"}]}]}),
        json!({"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"ok"}]}]}}),
        json!({"task":{"kind":"task","id":"t1","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"ok"}]}]}}),
        json!({"id":"t1","sessionId":"s","status":{"state":"completed"},"artifacts":[{"parts":[{"type":"text","text":"ok"}],"index":0}]}),
    ] {
        assert_eq!(task(&result).output().text(), "ok", "{result}");
    }
}

#[test]
fn o_send_07_a_result_that_fits_no_shape_is_refused_and_not_quoted() {
    for result in [
        json!({"Task":{"id":"t1","history":[{"parts":[{"text":"hi"}]}]},"snapshot":{}}),
        json!(null),
        json!([]),
        json!({}),
        json!("done"),
        json!({"error":"task timed out"}),
        json!({"task":{"status":{"state":"completed"}}}),
        json!({"task":{"id":"","status":{"state":"completed"}}}),
        json!({"task":{"id":"t"},"message":{"parts":[{"text":"hi"}]}}),
        json!({"kind":"status-update","taskId":"t","status":{"state":"completed"},"final":true}),
        json!({"kind":"surprise","id":"t","status":{"state":"completed"}}),
    ] {
        let refused = sent(&result).unwrap_err();
        assert_eq!(refused.to_string(), "the result isn't a task with an id or a message", "{result}");
    }
    for body in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        "null",
        "[]",
        "{}",
        r#"{"detail":"hi"}"#,
        r#"{"error":null}"#,
        r#"{"task":{"id":"t","status":{}}}"#,
    ] {
        assert_eq!(send_answer(body.as_bytes(), &Limits::default()), Err(BadAnswer::NoResult), "{body}");
    }
    let both = r#"{"result":{"task":{"id":"t"}},"error":{"code":-32601}}"#;
    assert_eq!(send_answer(both.as_bytes(), &Limits::default()), Err(BadAnswer::Both));
    assert!(matches!(send_answer(b"<html>hi</html>", &Limits::default()), Err(BadAnswer::Json(_))));
}

#[test]
fn an_answer_to_another_request_is_told_from_one_without_an_id() {
    let to_another = |body: &str| is_to_another(body.as_bytes(), "1");
    for ours in [
        r#"{"id":"1","result":{}}"#,
        r#"{"id":1}"#,
        r#"{"id":null,"error":{}}"#,
        r#"{"result":{"id":"9"}}"#,
        "[]",
        "x",
    ] {
        assert!(!to_another(ours), "{ours}");
    }
    for other in [
        r#"{"id":"2","result":{}}"#,
        r#"{"error":{},"id":7}"#,
        r#"{"id":1.5}"#,
        r#"{"id":{}}"#,
        r#"{"id":""}"#,
    ] {
        assert!(to_another(other), "{other}");
    }
}

#[test]
fn o_card_12_a_page_instead_of_an_answer_is_refused_and_not_quoted() {
    let page = b"<!doctype html><title>Bad Request</title>secret";
    assert_eq!(
        send_answer(page, &Limits::default()).unwrap_err().to_string(),
        "the body isn't JSON (line 1, column 1)"
    );
}

#[test]
fn o_strm_09_an_error_hidden_in_a_result_is_no_success() {
    assert!(sent(&json!({"error":"task timed out"})).is_err());
    assert!(sent(&json!({"error":"task timed out","role":"agent"})).is_err());
}

#[test]
fn o_send_09_the_text_of_a_task_that_ended_badly_is_a_reason_and_never_an_output() {
    for state in ["failed", "rejected", "canceled"] {
        let t = task(
            &json!({"kind":"task","id":"t","status":{"state":state,"message":{"role":"agent","parts":[{"kind":"text","text":"db password rejected"}]}},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"partial"}]}]}),
        );
        assert_eq!(t.output(), Payload::default());
        assert_eq!(t.reason().as_deref(), Some("db password rejected"));
    }
}

#[test]
fn o_card_11_members_that_nobody_knows_do_not_make_a_result_unreadable() {
    let t = task(
        &json!({"task":{"id":"t1","generation":"7","status":{"state":"TASK_STATE_WORKING","etaSeconds":3}}}),
    );
    assert_eq!((t.state.clone(), t.context_id), (State::Working, None));
}

#[test]
fn o_poll_01_every_state_says_what_must_happen_next() {
    let at = |state: &str| {
        let body = rpc(
            &json!({"id":"t1","contextId":"c1","status":{"state":state,"message":{"role":"ROLE_AGENT","parts":[{"text":"Which currency?"}]}}}),
        );
        match task_answer(&body, &Limits::default()).unwrap() {
            TaskAnswer::Task(task) => task,
            TaskAnswer::Error(e) => panic!("{e:?}"),
        }
    };
    let rejected = at("TASK_STATE_REJECTED");
    assert!(rejected.state.is_terminal());
    assert_eq!(rejected.reason().as_deref(), Some("Which currency?"));
    for state in ["TASK_STATE_INPUT_REQUIRED", "auth-required"] {
        let asks = at(state);
        assert!(asks.state.is_interrupted() && !asks.state.is_terminal());
        assert_eq!(asks.question().text(), "Which currency?");
    }
}

#[test]
fn a_get_takes_a_task_bare_or_wrapped_and_nothing_else() {
    let get = |result: Value| task_answer(&rpc(&result), &Limits::default());
    assert!(matches!(get(python_1_3_0()["task"].clone()), Ok(TaskAnswer::Task(_))));
    assert!(matches!(get(python_1_3_0()), Ok(TaskAnswer::Task(_))));
    assert!(matches!(get(python_0_3_26()), Ok(TaskAnswer::Task(_))));
    for other in [json!({"message":{"role":"agent","parts":[{"text":"x"}]}}), json!(null), json!({})] {
        assert_eq!(get(other), Err(BadAnswer::Shape { expected: "a task with an id" }));
    }
}

#[test]
fn o_poll_05_a_forgotten_task_is_told_from_every_other_error() {
    for error in [
        json!({"code":-32001,"message":"Task not found"}),
        json!({"code":-32001,"message":"Task not found","data":null}),
        json!({"code":-32001,"message":"Task not found","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"timestamp":"2026-11-30T20:00:00Z"}}]}),
    ] {
        let body = json!({"jsonrpc":"2.0","id":1,"error":error}).to_string();
        match task_answer(body.as_bytes(), &Limits::default()).unwrap() {
            TaskAnswer::Error(e) => assert_eq!(e.class(Some(200)), ErrorClass::TaskNotFound),
            TaskAnswer::Task(t) => panic!("{t:?}"),
        }
    }
}

#[test]
fn o_strm_02_an_error_in_an_ordinary_body_is_an_error() {
    let body = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no streaming"}}"#;
    match send_answer(body, &Limits::default()).unwrap() {
        SendAnswer::Error(e) => {
            assert_eq!((e.class(None), e.message.as_str()), (ErrorClass::Unsupported, "no streaming"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn o_card_09_method_not_found_asks_for_the_other_dialect() {
    let body = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found: SendMessage"},"result":null}"#;
    match send_answer(body, &Limits::default()).unwrap() {
        SendAnswer::Error(e) => assert!(e.class(Some(200)).is_about_dialect() && e.class(None).nothing_ran()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listing_says_what_it_could_not_read_and_where_the_next_page_is() {
    let list = |result: Value| list_answer(&rpc(&result), &Limits::default());
    let page = json!({"tasks":[python_1_3_0()["task"],{"status":{}},"x"],"nextPageToken":"","pageSize":50,"totalSize":3});
    match list(page).unwrap() {
        ListAnswer::Tasks(l) => assert_eq!((l.tasks.len(), l.unreadable, l.next_page_token), (1, 2, None)),
        ListAnswer::Error(e) => panic!("{e:?}"),
    }
    match list(json!({"nextPageToken":"p","pageSize":50,"totalSize":0})).unwrap() {
        ListAnswer::Tasks(l) => assert_eq!((l.tasks.len(), l.next_page_token.as_deref()), (0, Some("p"))),
        ListAnswer::Error(e) => panic!("{e:?}"),
    }
    for other in [json!({}), json!([]), json!(null), python_1_3_0()] {
        assert!(list(other).is_err());
    }
}

#[test]
fn numbers_of_a_foreign_answer_never_break_the_payload_bytes() {
    let body = br#"{"result":{"id":"t","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"data":{"big":12345678901234567890,"id":9007199254740993,"f":42.0,"x":1e21,"y":0.1}}]}]}}"#;
    let SendAnswer::Task(t) = send_answer(body, &Limits::default()).unwrap() else { panic!("no task") };
    let out = t.output();
    out.check(&PayloadLimits::default()).unwrap();
    assert_eq!(
        out.data(),
        json!({"big":"12345678901234567890","id":"9007199254740993","f":42,"x":1e21,"y":0.1})
    );
    let back = Payload::from_bytes(&out.bytes()).unwrap();
    assert_eq!((back.parts.clone(), back.bytes()), (out.parts.clone(), out.bytes()));
}
