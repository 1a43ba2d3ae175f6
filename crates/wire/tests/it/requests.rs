//! Golden bodies per version, and that nothing else of ours can be in them.

use exeat_core::payload::{Content, Part, Payload, canonical};
use exeat_wire::Dialect;
use exeat_wire::request::{self, ListFrame, PushConfig, Request, SendFrame, TaskFrame};
use proptest::prelude::*;
use serde_json::{Value, json};

fn body(r: &Request) -> Value {
    serde_json::from_slice(&r.body).unwrap()
}

fn parts() -> Vec<Part> {
    vec![
        Part::text("hi"),
        Part::data(json!({"n":1})),
        Part::data(json!([1])),
        Part {
            content: Content::Raw("aGk=".into()),
            media_type: Some("text/plain".into()),
            filename: Some("f.txt".into()),
            metadata: json!({"m":1}).as_object().cloned(),
        },
        Part::of(Content::Url("https://x.test/y".into())),
    ]
}

fn full(parts: &[Part]) -> SendFrame<'_> {
    SendFrame {
        request_id: "r1",
        message_id: "m1",
        context_id: Some("c1"),
        task_id: Some("t1"),
        parts,
        push: Some(PushConfig { url: "https://us.test/api/v1/a2a/callback/x", token: "ec1.k.1.m" }),
        tenant: Some("acme-7"),
        accepted_output_modes: &["text/plain", "application/json"],
    }
}

fn bare(parts: &[Part]) -> SendFrame<'_> {
    SendFrame {
        context_id: None,
        task_id: None,
        push: None,
        tenant: None,
        accepted_output_modes: &[],
        ..full(parts)
    }
}

const TASK: TaskFrame<'_> = TaskFrame { request_id: "r1", task_id: "t1", tenant: None };

#[test]
fn a_full_1_0_message_is_exactly_this() {
    assert_eq!(
        body(&request::send(Dialect::V1_0, &full(&parts()))),
        json!({
            "jsonrpc": "2.0", "id": "r1", "method": "SendMessage",
            "params": {
                "tenant": "acme-7",
                "message": {
                    "messageId": "m1", "role": "ROLE_USER", "contextId": "c1", "taskId": "t1",
                    "parts": [
                        {"text": "hi"}, {"data": {"n": 1}}, {"data": [1]},
                        {"raw": "aGk=", "mediaType": "text/plain", "filename": "f.txt", "metadata": {"m": 1}},
                        {"url": "https://x.test/y"}
                    ]
                },
                "configuration": {
                    "returnImmediately": true,
                    "acceptedOutputModes": ["text/plain", "application/json"],
                    "taskPushNotificationConfig": {
                        "url": "https://us.test/api/v1/a2a/callback/x", "token": "ec1.k.1.m",
                        "authentication": {"scheme": "Bearer", "credentials": "ec1.k.1.m"}
                    }
                }
            }
        })
    );
}

#[test]
fn a_full_0_3_message_is_exactly_this() {
    assert_eq!(
        body(&request::send(Dialect::V0_3, &full(&parts()))),
        json!({
            "jsonrpc": "2.0", "id": "r1", "method": "message/send",
            "params": {
                "tenant": "acme-7",
                "message": {
                    "kind": "message", "messageId": "m1", "role": "user", "contextId": "c1", "taskId": "t1",
                    "parts": [
                        {"kind": "text", "text": "hi"}, {"kind": "data", "data": {"n": 1}},
                        {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": true}},
                        {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "f.txt"}, "metadata": {"m": 1}},
                        {"kind": "file", "file": {"uri": "https://x.test/y"}}
                    ]
                },
                "configuration": {
                    "blocking": false,
                    "acceptedOutputModes": ["text/plain", "application/json"],
                    "pushNotificationConfig": {
                        "url": "https://us.test/api/v1/a2a/callback/x", "token": "ec1.k.1.m",
                        "authentication": {"schemes": ["Bearer"], "credentials": "ec1.k.1.m"}
                    }
                }
            }
        })
    );
}

#[test]
fn a_bare_message_holds_nothing_that_was_not_asked_for() {
    let parts = [Part::text("hi")];
    assert_eq!(
        String::from_utf8(request::send(Dialect::V1_0, &bare(&parts)).body).unwrap(),
        r#"{"id":"r1","jsonrpc":"2.0","method":"SendMessage","params":{"configuration":{"returnImmediately":true},"message":{"messageId":"m1","parts":[{"text":"hi"}],"role":"ROLE_USER"}}}"#
    );
    assert_eq!(
        String::from_utf8(request::send(Dialect::V0_3, &bare(&parts)).body).unwrap(),
        r#"{"id":"r1","jsonrpc":"2.0","method":"message/send","params":{"configuration":{"acceptedOutputModes":[],"blocking":false},"message":{"kind":"message","messageId":"m1","parts":[{"kind":"text","text":"hi"}],"role":"user"}}}"#
    );
}

#[test]
fn looks_and_cancels_are_exactly_these() {
    let about =
        |method: &str, params: Value| json!({"jsonrpc":"2.0","id":"r1","method":method,"params":params});
    assert_eq!(
        body(&request::get(Dialect::V1_0, &TASK, Some(7))),
        about("GetTask", json!({"id":"t1","historyLength":7}))
    );
    assert_eq!(body(&request::get(Dialect::V0_3, &TASK, None)), about("tasks/get", json!({"id":"t1"})));
    assert_eq!(body(&request::cancel(Dialect::V1_0, &TASK)), about("CancelTask", json!({"id":"t1"})));
    assert_eq!(body(&request::cancel(Dialect::V0_3, &TASK)), about("tasks/cancel", json!({"id":"t1"})));
    let list =
        ListFrame { request_id: "r1", context_id: Some("c1"), page_size: Some(200), ..ListFrame::default() };
    assert_eq!(
        body(&request::list(&list)),
        about("ListTasks", json!({"contextId":"c1","pageSize":100,"historyLength":0}))
    );
    let since = ListFrame {
        request_id: "r1",
        status_after: Some("2026-11-30T00:00:00Z"),
        page_token: Some("p"),
        tenant: Some("a"),
        ..ListFrame::default()
    };
    assert_eq!(
        body(&request::list(&since)),
        about(
            "ListTasks",
            json!({"statusTimestampAfter":"2026-11-30T00:00:00Z","pageToken":"p","tenant":"a","historyLength":0})
        )
    );
}

#[test]
fn o_poll_02_no_history_is_really_asked_for() {
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        assert_eq!(body(&request::get(dialect, &TASK, Some(0)))["params"]["historyLength"], json!(0));
    }
}

#[test]
fn the_version_header_is_the_one_of_the_chosen_dialect() {
    for (dialect, version) in [(Dialect::V1_0, "1.0"), (Dialect::V0_3, "0.3")] {
        for r in [
            request::send(dialect, &bare(&[])),
            request::get(dialect, &TASK, None),
            request::cancel(dialect, &TASK),
        ] {
            assert_eq!(
                r.headers,
                [
                    ("content-type", "application/json"),
                    ("accept", "application/json"),
                    ("a2a-version", version)
                ]
            );
        }
    }
    assert_eq!(request::list(&ListFrame::default()).headers[2], ("a2a-version", "1.0"));
}

#[test]
fn what_was_approved_is_what_a_1_0_peer_receives() {
    let payload = Payload { parts: parts(), artifacts: Vec::new() };
    let sent = request::send(Dialect::V1_0, &full(&payload.parts));
    let received = body(&sent)["params"]["message"]["parts"].clone();
    assert_eq!(canonical(&json!({ "parts": received })), payload.bytes());
    // And the approved bytes stand in the body as they are.
    let approved = String::from_utf8(payload.bytes()).unwrap();
    let array = approved.strip_prefix('{').and_then(|s| s.strip_suffix('}')).unwrap();
    assert!(String::from_utf8(sent.body).unwrap().contains(array));
}

#[test]
fn o_send_03_equal_frames_give_equal_bytes() {
    let parts = parts();
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        assert_eq!(request::send(dialect, &full(&parts)), request::send(dialect, &full(&parts)));
        assert_eq!(
            body(&request::send(dialect, &full(&parts)))["params"]["message"]["messageId"],
            json!("m1")
        );
    }
}

#[test]
fn o_send_10_an_answer_carries_task_and_context_inside_the_message() {
    let parts = [Part::text("CAD")];
    let answer = SendFrame { context_id: Some("c1"), task_id: Some("t1"), ..bare(&parts) };
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        let params = body(&request::send(dialect, &answer))["params"].clone();
        assert_eq!(
            (&params["message"]["taskId"], &params["message"]["contextId"]),
            (&json!("t1"), &json!("c1"))
        );
        assert_eq!((params.get("taskId"), params.get("contextId")), (None, None));
    }
}

#[test]
fn o_send_11_o_send_12_a_first_message_names_no_task_and_no_context_unless_told() {
    let parts = [Part::text("yes, summarise the report")];
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        let message = body(&request::send(dialect, &bare(&parts)))["params"]["message"].clone();
        assert_eq!((message.get("taskId"), message.get("contextId")), (None, None));
    }
}

#[test]
fn o_send_13_no_send_ever_blocks() {
    let parts = parts();
    for frame in [bare(&parts), full(&parts)] {
        let new = body(&request::send(Dialect::V1_0, &frame))["params"]["configuration"].clone();
        assert_eq!((new.get("returnImmediately"), new.get("blocking")), (Some(&json!(true)), None));
        let old = body(&request::send(Dialect::V0_3, &frame))["params"]["configuration"].clone();
        assert_eq!((old.get("blocking"), old.get("returnImmediately")), (Some(&json!(false)), None));
    }
}

#[test]
fn o_send_14_the_callback_is_in_the_field_of_its_version_and_absent_without_push() {
    let parts = parts();
    let configuration = |d, f: &SendFrame<'_>| body(&request::send(d, f))["params"]["configuration"].clone();
    let new = configuration(Dialect::V1_0, &full(&parts));
    assert!(new.get("pushNotificationConfig").is_none());
    assert!(new["taskPushNotificationConfig"]["authentication"]["scheme"].is_string());
    let old = configuration(Dialect::V0_3, &full(&parts));
    assert!(old.get("taskPushNotificationConfig").is_none());
    assert!(old["pushNotificationConfig"]["authentication"]["schemes"].is_array());
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        let none = configuration(dialect, &bare(&parts));
        assert!(!none.to_string().contains("ushNotificationConfig"));
    }
}

#[test]
fn o_card_10_every_request_carries_the_tenant_or_none_at_all() {
    let parts = parts();
    for dialect in [Dialect::V1_0, Dialect::V0_3] {
        for (tenant, expected) in [(Some("acme-7"), Some(json!("acme-7"))), (None, None)] {
            let task = TaskFrame { tenant, ..TASK };
            let list = ListFrame { request_id: "r1", tenant, ..ListFrame::default() };
            for r in [
                request::send(dialect, &SendFrame { tenant, ..full(&parts) }),
                request::get(dialect, &task, Some(0)),
                request::cancel(dialect, &task),
                request::list(&list),
            ] {
                assert_eq!(body(&r)["params"].get("tenant").cloned(), expected, "{}", r.method);
            }
        }
    }
}

#[test]
fn o_push_11_neither_the_callback_s_secret_nor_content_shows_in_debug_text() {
    let parts = [Part::text("hush")];
    let frame = full(&parts);
    let shown = format!("{:?} {:?} {:?}", frame, frame.push, request::send(Dialect::V1_0, &full(&parts)));
    assert!(
        !shown.contains("ec1.k.1.m") && !shown.contains("callback/x") && !shown.contains("hush"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn whatever_was_approved_is_what_a_1_0_peer_receives(text in any::<String>(), n in any::<f64>(), i in any::<i32>(), key in any::<String>()) {
        let payload = Payload {
            parts: vec![Part::text(text.clone()), Part::data(json!({ key: [n, i], "text": text })), Part::of(Content::Url(text))],
            artifacts: Vec::new(),
        };
        let sent = request::send(Dialect::V1_0, &bare(&payload.parts));
        let received = body(&sent)["params"]["message"]["parts"].clone();
        prop_assert_eq!(canonical(&json!({ "parts": received })), payload.bytes());
    }
}
