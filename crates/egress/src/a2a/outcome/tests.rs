use exeat_core::id::{CallbackId, Ids};
use exeat_core::time::Timestamp;
use exeat_wire::Limits as WireLimits;
use exeat_wire::answer::{SendAnswer, send_answer};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::address::{AddressRefused, Block};

fn rpc(code: i64, message: &str) -> RpcError {
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": message } }).to_string();
    match send_answer(body.as_bytes(), &WireLimits::default()) {
        Ok(SendAnswer::Error(e)) => e,
        other => panic!("{other:?}"),
    }
}
fn view(task: &Value) -> TaskView {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "result": { "task": task } }).to_string();
    match send_answer(body.as_bytes(), &WireLimits::default()) {
        Ok(SendAnswer::Task(view)) => view,
        other => panic!("{other:?}"),
    }
}
fn last(code: ReasonCode) -> SendOutcome {
    SendOutcome::Refused { code, after: None }
}
fn read(task_json: &Value) -> Result<ForeignTask, ReasonCode> {
    task(&view(task_json), &Limits::default(), &Echoes::default())
}

#[test]
fn each_status_is_read_by_whether_the_agent_can_have_acted() {
    let busy = |secs| {
        let after = Some(Span::of_secs(secs).max(OWN_PAUSE));
        SendOutcome::Refused { code: ReasonCode::SendRefused, after }
    };
    for (code, retry_after, expected) in [
        (429, Some("7"), busy(7)),
        (503, Some("1"), busy(1)),
        (503, None, busy(0)),
        (503, Some("0"), busy(0)),
        (408, None, busy(0)),
        (425, None, busy(0)),
        (503, Some("Fri, 31 Dec 1999 23:59:59 GMT"), busy(30)),
        (503, Some("99999999"), busy(3600)),
        (400, None, last(ReasonCode::SendRefused)),
        (401, None, last(ReasonCode::SendRefused)),
        (403, Some("5"), last(ReasonCode::SendRefused)),
        (404, None, last(ReasonCode::SendRefused)),
        (413, None, last(ReasonCode::SendRefused)),
        (501, None, last(ReasonCode::SendRefused)),
        (500, None, SendOutcome::Ambiguous),
        (502, Some("5"), SendOutcome::Ambiguous),
        (504, None, SendOutcome::Ambiguous),
        (599, None, SendOutcome::Ambiguous),
    ] {
        assert_eq!(by_status(StatusCode::from_u16(code).unwrap(), retry_after), expected, "{code}");
    }
}

#[test]
fn what_never_left_is_retried_unless_it_is_forbidden() {
    let refused = AddressRefused { address: [127, 0, 0, 1].into(), block: Block::Loopback };
    for (why, expected) in [
        (NotSent::Connect(refused.into()), SendOutcome::Impossible(ReasonCode::AddressRefused)),
        (NotSent::Connect(ConnectError::TimedOut), SendOutcome::NotSent(ReasonCode::AttemptsExhausted)),
        (
            NotSent::Connect(ConnectError::Tls(String::new())),
            SendOutcome::NotSent(ReasonCode::AttemptsExhausted),
        ),
        (NotSent::Expired, SendOutcome::NotSent(ReasonCode::AttemptsExhausted)),
        (NotSent::Closed, SendOutcome::NotSent(ReasonCode::AttemptsExhausted)),
        (NotSent::Malformed, SendOutcome::Impossible(ReasonCode::SendRefused)),
    ] {
        assert_eq!(not_sent(&why), expected, "{why:?}");
    }
}

#[test]
fn an_unread_answer_ends_the_hop_by_its_own_reason() {
    let unread = |status: Option<u16>, why| Unusable {
        status: status.map(|s| StatusCode::from_u16(s).unwrap()),
        retry_after: Some("3".to_owned()),
        why,
    };
    for (answer, expected) in [
        (unread(Some(307), Unread::Redirect(String::new())), last(ReasonCode::RedirectRefused)),
        (unread(Some(200), Unread::TooLarge), SendOutcome::Unusable(ReasonCode::ResponseTooLarge)),
        (unread(None, Unread::TooLarge), SendOutcome::Unusable(ReasonCode::ResponseTooLarge)),
        (
            unread(Some(200), Unread::Encoded("gzip".into())),
            SendOutcome::Unusable(ReasonCode::InvalidResponse),
        ),
        (unread(None, Unread::NotHttp), SendOutcome::Unusable(ReasonCode::InvalidResponse)),
        (unread(Some(502), Unread::TooLarge), SendOutcome::Ambiguous),
        (
            unread(Some(503), Unread::Encoded("gzip".into())),
            SendOutcome::Refused { code: ReasonCode::SendRefused, after: Some(Span::of_secs(3)) },
        ),
    ] {
        assert_eq!(unusable(&answer), expected, "{answer:?}");
    }
}

#[test]
fn a_context_of_ours_is_refused_only_where_nothing_can_have_run() {
    let ok = StatusCode::OK;
    for (code, message, sent, refused) in [
        (-32602, "unknown contextId", Sent::FirstInContext, true),
        (-32602, "Context 7 not found", Sent::FirstInContext, true),
        (-32001, "Task not found", Sent::FirstInContext, true),
        (-32602, "unknown contextId", Sent::First, false),
        (-32602, "unknown contextId", Sent::Later, false),
        (-32602, "Context in event doesn't match TaskManager", Sent::FirstInContext, false),
        (-32602, "parts missing", Sent::FirstInContext, false),
        (-32603, "context", Sent::FirstInContext, false),
    ] {
        let is = error(&rpc(code, message), ok, None, sent) == SendOutcome::ContextRefused;
        assert_eq!(is, refused, "{code} {message} {sent:?}");
    }
}

#[test]
fn an_error_is_final_unless_the_agent_is_only_busy() {
    let e =
        |code, http: u16, sent| error(&rpc(code, "x"), StatusCode::from_u16(http).unwrap(), Some("2"), sent);
    for code in [-32700, -32600, -32601, -32004, -32005, -32009] {
        assert_eq!(e(code, 200, Sent::First), last(ReasonCode::SendRefused), "{code}");
    }
    // These don't prove that nothing ran.
    for code in [-32602, -32603, -32006, 7] {
        assert_eq!(e(code, 200, Sent::First), SendOutcome::Unusable(ReasonCode::SendRefused), "{code}");
    }
    assert_eq!(e(-32001, 200, Sent::Later), last(ReasonCode::ForeignTaskLost));
    let busy = SendOutcome::Refused { code: ReasonCode::SendRefused, after: Some(Span::of_secs(2)) };
    assert_eq!(e(-32603, 503, Sent::First), busy);
}

/// O-SEND-02, O-SEND-05, O-SEND-08, O-SEND-09
#[test]
fn each_state_of_a_task_is_taken_for_what_it_is() {
    let says = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "words" }] });
    for (state, expected, text) in [
        ("TASK_STATE_SUBMITTED", ForeignState::Working, ""),
        ("working", ForeignState::Working, ""),
        ("no-such-state", ForeignState::Working, ""),
        ("input-required", ForeignState::InputRequired, "words"),
        ("TASK_STATE_AUTH_REQUIRED", ForeignState::AuthRequired, "words"),
        ("completed", ForeignState::Completed, "words"),
        ("failed", ForeignState::Failed, "words"),
        ("rejected", ForeignState::Rejected, "words"),
        ("canceled", ForeignState::Canceled, "words"),
        ("cancelled", ForeignState::Canceled, "words"),
        ("TASK_STATE_CANCELLED", ForeignState::Canceled, "words"),
    ] {
        let t = read(&json!({ "id": "t", "contextId": "c", "status": { "state": state, "message": says } }))
            .unwrap();
        assert_eq!((t.state, t.output.text().as_str()), (expected, text), "{state}");
    }
    for status in [
        json!({ "state": "submitted", "message": null }),
        json!({ "state": "submitted", "message": { "parts": [] } }),
    ] {
        let t = read(&json!({ "id": "t1", "status": status })).unwrap();
        assert_eq!((t.state, t.output.parts.len()), (ForeignState::Working, 0));
    }
}

#[test]
fn a_task_keeps_its_order_its_artifacts_and_the_ids_of_its_history() {
    let t = read(&json!({
        "id": "t1", "contextId": "c1",
        "status": { "state": "TASK_STATE_COMPLETED", "message": { "role": "ROLE_AGENT", "parts": [{ "text": "summary" }] } },
        "artifacts": [{ "artifactId": "a1", "name": "out", "parts": [{ "text": "body" }, { "data": { "n": 1 } },
            { "url": "https://peer.test/f.pdf", "mediaType": "application/pdf" }] }],
        "history": [{ "messageId": "m1", "role": "ROLE_USER", "parts": [] }, { "messageId": "m2" }],
    }))
    .unwrap();
    assert_eq!(t.output.parts.len(), 4);
    assert_eq!(
        (t.output.artifacts[0].id.as_str(), t.output.artifacts[0].first, t.output.artifacts[0].count),
        ("a1", 1, 3)
    );
    assert_eq!(t.message_ids, ["m2", "m1"]);
}

#[test]
fn what_breaks_a_limit_is_not_taken_in() {
    let done = |parts: Value| json!({ "id": "t", "status": { "state": "completed" }, "artifacts": [{ "artifactId": "a", "parts": parts }] });
    let many: Vec<Value> = (0..300).map(|_| json!({ "text": "x" })).collect();
    assert_eq!(read(&done(json!(many))), Err(ReasonCode::ResponseTooLarge));
    assert_eq!(read(&done(json!([{ "text": "x".repeat(2 << 20) }]))), Err(ReasonCode::ResponseTooLarge));
    let long = "i".repeat(LONGEST_ID + 1);
    assert_eq!(
        read(&json!({ "id": long, "status": { "state": "working" } })),
        Err(ReasonCode::InvalidResponse)
    );
    let odd = json!({ "id": "t", "contextId": "a\u{0}b", "status": { "state": "working" } });
    assert_eq!(read(&odd), Err(ReasonCode::InvalidResponse));
}

/// O-AUTH-06
#[test]
fn a_secret_that_was_escaped_in_part_shows_only_after_reading_and_is_taken_out_then() {
    let mut ids = Ids::new(Timestamp::EPOCH, [7; 32]);
    let secret = CallbackId::draw(&mut ids).to_string();
    let echoes = Echoes::of([&SecretString::from(secret.clone())]);
    let (first, rest) = secret.split_at(1);
    let body = format!(
        r#"{{"result":{{"task":{{"id":"t","status":{{"state":"completed"}},"artifacts":[{{"artifactId":"a","parts":[{{"text":"got \u{:04x}{rest}"}}]}}]}}}}}}"#,
        u32::from(first.chars().next().unwrap())
    );
    let Ok(SendAnswer::Task(v)) = send_answer(body.as_bytes(), &WireLimits::default()) else {
        panic!("{body}")
    };
    let t = task(&v, &Limits::default(), &echoes).unwrap();
    assert_eq!(t.output.text(), "got [secret]");
    assert_eq!(t.output.artifacts.len(), 1);
}
