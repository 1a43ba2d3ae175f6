//! What one attempt writes, and what its answers mean.

use std::sync::Arc;

use exeat_core::gate::exeat::{ForeignIds, PushTarget};
use exeat_core::id::{ContextId, Ids};
use exeat_core::payload::{Payload, Sha256Digest};
use exeat_core::reason::ReasonCode;
use exeat_core::registry::PushChoice;
use exeat_core::time::{Monotonic, Span, Timestamp};
use exeat_core::transport::{ForeignState, SendOutcome, SendReport, Transport as _};
use serde_json::{Value, json};

use crate::agent::{
    Agent, World, bearer, card_0_3, card_1_0, exeat, exeat_until, message_id, parcel, rpc_error, rpc_ok,
    status, working,
};
use crate::peers::{Peer, ok};

/// What comes of an answer.
async fn answered(answer: String) -> (SendReport, Agent) {
    let agent = Agent::new(card_1_0(&json!({})), move |_| answer.clone());
    let report = World::new().a2a.send(exeat(parcel(agent.entry()))).await;
    (report, agent)
}
fn last(code: ReasonCode) -> SendOutcome {
    SendOutcome::Refused { code, after: None }
}

#[tokio::test]
async fn the_frame_holds_the_approved_parts_our_ids_and_the_configuration_and_nothing_else() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let payload = Payload::from_json(
        &json!({ "parts": [{ "text": "a" }, { "data": { "b": [1, null, 2.5] } }, { "raw": "AAE=", "mediaType": "x/y", "filename": "f", "metadata": { "k": 1 } }] }),
        &exeat_core::payload::Limits::default(),
    )
    .unwrap();
    let mut p = parcel(agent.entry());
    p.payload = payload.bytes().into();
    let report = World::new().a2a.send(exeat(p)).await;
    let call = agent.calls().remove(0);
    assert_eq!(
        call,
        json!({ "jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {
            "message": { "messageId": message_id().to_string(), "role": "ROLE_USER", "parts": call["params"]["message"]["parts"] },
            "configuration": { "returnImmediately": true } } })
    );
    let received = exeat_core::payload::canonical(&json!({ "parts": call["params"]["message"]["parts"] }));
    assert_eq!(received, payload.bytes());
    let written = agent.peer.requests()[1].split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(report.wire, Some(Sha256Digest::of(written.as_bytes())));
}

/// O-SEND-03
#[tokio::test]
async fn two_attempts_write_the_same_bytes() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let agent = Agent::new(card_1_0(&json!({})), move |_| {
        match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => status(503, "", ""),
            _ => rpc_ok(&working()),
        }
    });
    let world = World::new();
    let first = world.a2a.send(exeat(parcel(agent.entry()))).await;
    assert_eq!(
        first.outcome,
        SendOutcome::Refused { code: ReasonCode::SendRefused, after: Some(Span::of_millis(1)) }
    );
    let second = world.a2a.send(exeat(parcel(agent.entry()))).await;
    assert!(matches!(second.outcome, SendOutcome::Task(_)));
    assert_eq!(first.wire, second.wire);
    assert_eq!(agent.calls()[0], agent.calls()[1]);
}

/// O-SEND-01
#[tokio::test]
async fn a_bare_message_is_the_result() {
    for result in [
        json!({ "message": { "messageId": "m9", "role": "ROLE_AGENT", "parts": [{ "text": "42" }] } }),
        json!({ "kind": "message", "messageId": "m9", "role": "agent", "parts": [{ "kind": "text", "text": "42" }] }),
    ] {
        let (report, _) = answered(rpc_ok(&result)).await;
        assert_eq!(report.outcome, SendOutcome::Message(Payload::of_text("42")));
    }
}

/// O-SEND-02, O-SEND-06
#[tokio::test]
async fn a_completed_task_is_taken_whole_in_either_shape() {
    for result in [
        json!({ "kind": "task", "id": "t1", "contextId": "c1", "status": { "state": "completed" },
            "artifacts": [{ "artifactId": "a", "parts": [{ "kind": "text", "text": "ok" }] }] }),
        json!({ "task": { "id": "t1", "contextId": "c1", "status": { "state": "TASK_STATE_COMPLETED" },
            "artifacts": [{ "artifactId": "a", "parts": [{ "text": "ok" }] }], "etaSeconds": 3 } }),
    ] {
        let (report, _) = answered(rpc_ok(&result)).await;
        let SendOutcome::Task(task) = report.outcome else { panic!("{report:?}") };
        assert_eq!((task.state, task.output.text().as_str()), (ForeignState::Completed, "ok"));
        assert_eq!((task.id.as_str(), task.context.as_deref()), ("t1", Some("c1")));
        assert_eq!(task.output.artifacts[0].id, "a");
    }
}

/// O-SEND-07
#[tokio::test]
async fn an_answer_of_no_known_shape_is_an_invalid_response_and_is_not_shown() {
    for said in [
        r#"{"result":{"Task":{"id":"t1","history":[{"parts":[{"text":"hi-there"}]}]},"snapshot":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":"2","result":{"task":{"id":"t1","status":{"state":"TASK_STATE_COMPLETED"}}}}"#,
        "null",
        "[]",
        "<html>hi-there",
        "{\"result\":",
        "",
    ] {
        let (report, agent) = answered(ok(said)).await;
        assert_eq!(report.outcome, SendOutcome::Unusable(ReasonCode::InvalidResponse), "{said}");
        assert!(!report.detail.contains("hi-there"), "{}", report.detail);
        assert_eq!(agent.calls().len(), 1);
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let (report, _) = answered(ok(&deep)).await;
    assert_eq!(report.outcome, SendOutcome::Unusable(ReasonCode::InvalidResponse));
}

/// O-SEND-04
#[tokio::test]
async fn a_lost_answer_leaves_the_attempt_ambiguous_after_one_message() {
    let (report, agent) = answered(String::new()).await;
    assert_eq!(report.outcome, SendOutcome::Ambiguous);
    assert!(report.wire.is_some());
    assert_eq!(agent.calls().len(), 1);
}

/// O-SEND-13
#[tokio::test]
async fn a_peer_that_blocks_ends_at_the_permits_time_with_unknown_outcome() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let agent = Agent::new(card_1_0(&json!({})), move |_| {
        assert!(held.lock().unwrap().recv().is_err());
        String::new()
    });
    let report = World::new().a2a.send(exeat_until(parcel(agent.entry()), Monotonic(500_000))).await;
    assert_eq!(report.outcome, SendOutcome::Ambiguous);
    drop(hold);
}

/// O-SEND-10
#[tokio::test]
async fn a_later_turn_names_the_task_and_the_context() {
    for (card, context) in [(card_1_0(&json!({})), "c1"), (card_0_3(&json!({})), "c1")] {
        let agent = Agent::new(card, |_| rpc_ok(&working()));
        let mut p = parcel(agent.entry());
        p.foreign = Some(ForeignIds { task: "t1".to_owned(), context: Some(context.to_owned()) });
        World::new().a2a.send(exeat(p)).await;
        let message = agent.calls()[0]["params"]["message"].clone();
        assert_eq!((&message["taskId"], &message["contextId"]), (&json!("t1"), &json!("c1")));
    }
}

/// O-SEND-11, O-SEND-12
#[tokio::test]
async fn our_context_goes_to_1_0_interfaces_only_and_no_task_is_ever_invented() {
    let ours = ContextId::draw(&mut Ids::new(Timestamp::EPOCH, [9; 32]));
    for (card, sent) in [(card_1_0(&json!({})), Some(ours.to_string())), (card_0_3(&json!({})), None)] {
        let agent = Agent::new(card, |_| rpc_ok(&working()));
        let mut p = parcel(agent.entry());
        p.context_id = Some(ours);
        World::new().a2a.send(exeat(p)).await;
        let message = agent.calls()[0]["params"]["message"].clone();
        assert_eq!(message.get("contextId").and_then(Value::as_str), sent.as_deref());
        assert!(message.get("taskId").is_none());
    }
}

/// O-SEND-12
#[tokio::test]
async fn an_agent_that_refuses_our_context_is_told_apart() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_error(-32602, "unknown contextId"));
    let mut p = parcel(agent.entry());
    p.context_id = Some(ContextId::draw(&mut Ids::new(Timestamp::EPOCH, [9; 32])));
    let report = World::new().a2a.send(exeat(p)).await;
    assert_eq!(report.outcome, SendOutcome::ContextRefused);
    let report = World::new().a2a.send(exeat(parcel(agent.entry()))).await;
    assert_eq!(report.outcome, SendOutcome::Unusable(ReasonCode::SendRefused));
}

/// O-SEND-14
#[tokio::test]
async fn the_push_config_stands_where_the_version_wants_it_and_only_where_the_card_declares_push() {
    let pushes = json!({ "capabilities": { "pushNotifications": true } });
    let push = || PushTarget { url: "https://us.test/cb/1".to_owned(), token: "ec1.k.1.mac-mac".to_owned() };
    for (card, field, authentication) in [
        (
            card_1_0(&pushes),
            "taskPushNotificationConfig",
            json!({ "scheme": "Bearer", "credentials": "ec1.k.1.mac-mac" }),
        ),
        (
            card_0_3(&pushes),
            "pushNotificationConfig",
            json!({ "schemes": ["Bearer"], "credentials": "ec1.k.1.mac-mac" }),
        ),
    ] {
        let agent = Agent::new(card, |_| rpc_ok(&working()));
        let mut p = parcel(agent.entry());
        p.push = Some(push());
        let report = World::new().a2a.send(exeat(p)).await;
        let config = agent.calls()[0]["params"]["configuration"][field].clone();
        assert_eq!(
            config,
            json!({ "url": "https://us.test/cb/1", "token": "ec1.k.1.mac-mac", "authentication": authentication })
        );
        assert!(report.push_asked);
    }
    let mut off = Agent::new(card_1_0(&pushes), |_| rpc_ok(&working())).entry();
    off.terms.push = PushChoice::Off;
    for card in [
        card_1_0(&json!({})),
        card_1_0(&json!({ "capabilities": { "pushNotifications": false } })),
        card_1_0(&pushes),
    ] {
        let agent = Agent::new(card.clone(), |_| rpc_ok(&working()));
        let mut p = parcel(agent.entry());
        p.push = Some(push());
        if card["capabilities"]["pushNotifications"] == true {
            Arc::make_mut(&mut p.agent).terms.push = off.terms.push;
        }
        let report = World::new().a2a.send(exeat(p)).await;
        assert!(!agent.calls()[0].to_string().contains("ushNotificationConfig") && !report.push_asked);
    }
}

#[tokio::test]
async fn a_busy_agent_says_when_to_come_back() {
    for (answer, after) in [
        (status(429, "Retry-After: 7\r\n", ""), 7),
        (status(503, "Retry-After: 1\r\n", "{}"), 1),
        (
            status(
                503,
                "",
                &json!({ "jsonrpc": "2.0", "error": { "code": -32603, "message": "x" } }).to_string(),
            ),
            0,
        ),
    ] {
        let (report, _) = answered(answer).await;
        let after = Some(Span::of_secs(after).max(Span::of_millis(1)));
        assert_eq!(report.outcome, SendOutcome::Refused { code: ReasonCode::SendRefused, after });
    }
    for body in ["boom", r#"{"error":"boom"}"#, r#"{"error":{"code":500}}"#] {
        let (report, _) = answered(status(500, "", body)).await;
        assert_eq!(report.outcome, SendOutcome::Ambiguous);
    }
}

/// O-AUTH-03, O-SSRF-05
#[tokio::test]
async fn a_redirected_send_is_not_followed() {
    let other = Peer::saying(rpc_ok(&working()));
    for to in [format!("http://{}/rpc", other.address), "http://169.254.169.254/".to_owned()] {
        let (report, agent) = answered(status(307, &format!("Location: {to}\r\n"), "")).await;
        assert_eq!(report.outcome, last(ReasonCode::RedirectRefused));
        assert_eq!(agent.calls().len(), 1);
    }
    assert_eq!(other.accepts(), 0);
}

/// O-AUTH-01
#[tokio::test]
async fn without_its_credential_not_even_the_card_is_asked_for() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let mut entry = agent.entry();
    entry.posture.credential = bearer();
    let world = World::new();
    for secret in [None, Some(String::new()), Some("abc\r\nX-Evil: 1".to_owned()), Some("abc\n".to_owned())] {
        *world.secret.lock().unwrap() = secret;
        let report = world.a2a.send(exeat(parcel(entry.clone()))).await;
        assert_eq!(report.outcome, SendOutcome::Impossible(ReasonCode::CredentialUnavailable));
        assert!(report.detail.contains("env:TOKEN") && !report.detail.contains("Evil"), "{}", report.detail);
    }
    assert_eq!(agent.peer.accepts(), 0);
}

/// O-AUTH-06
#[tokio::test]
async fn no_echo_of_a_secret_reaches_the_report() {
    let push = PushTarget { url: "https://us.test/cb".to_owned(), token: "ec1.kid.99.pushmac".to_owned() };
    for answer in [
        rpc_error(-32603, "bad: Bearer tok-1 and ec1.kid.99.pushmac"),
        rpc_ok(
            &json!({ "message": { "role": "ROLE_AGENT", "parts": [{ "text": "tok-1 ec1.kid.99.pushmac" }] } }),
        ),
        rpc_ok(
            &json!({ "task": { "id": "t", "status": { "state": "failed", "message": { "parts": [{ "text": "Bearer tok-1 ec1.kid.99.pushmac" }] } } } }),
        ),
        status(401, "Retry-After: tok-1\r\n", "tok-1"),
    ] {
        let card = card_1_0(&json!({ "capabilities": { "pushNotifications": true } }));
        let agent = Agent::new(card, move |_| answer.clone());
        let mut p = parcel(agent.entry());
        Arc::make_mut(&mut p.agent).posture.credential = bearer();
        p.push = Some(push.clone());
        let report = World::new().a2a.send(exeat(p)).await;
        let shown = format!("{report:?}");
        assert!(!shown.contains("tok-1") && !shown.contains("pushmac"), "{shown}");
    }
}

#[tokio::test]
async fn an_exeat_that_ran_out_reaches_nobody() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let report = World::new().a2a.send(exeat_until(parcel(agent.entry()), Monotonic(0))).await;
    assert!(matches!(report.outcome, SendOutcome::NotSent(_)), "{report:?}");
    assert_eq!(agent.peer.accepts(), 0);
}

#[tokio::test]
async fn bytes_that_are_no_payload_reach_nobody() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let mut p = parcel(agent.entry());
    p.payload = b"{\"parts\":[{}]}"[..].into();
    let report = World::new().a2a.send(exeat(p)).await;
    assert_eq!(report.outcome, SendOutcome::Impossible(ReasonCode::Tampered));
    assert_eq!(agent.peer.accepts(), 0);
}

#[tokio::test]
async fn an_entry_that_cannot_be_dialled_by_reaches_nobody() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let world = World::new();
    for (spoil, code) in [
        ("plaintext", ReasonCode::EndpointNotAllowed),
        ("origin", ReasonCode::EndpointNotAllowed),
        ("cidr", ReasonCode::AddressRefused),
        ("bad cidr", ReasonCode::EndpointNotAllowed),
        ("bad origin", ReasonCode::EndpointNotAllowed),
    ] {
        let mut entry = agent.entry();
        match spoil {
            "plaintext" => entry.posture.plaintext = false,
            "origin" => entry.origin = "http://127.0.0.1:1".to_owned(),
            "cidr" => entry.posture.allow_cidrs.clear(),
            "bad cidr" => drop(entry.posture.allow_cidrs.insert("10.0.0.0/99".to_owned())),
            _ => drop(entry.posture.allow_origins.insert("peer.test".to_owned())),
        }
        let report = world.a2a.send(exeat(parcel(entry))).await;
        assert_eq!(report.outcome, SendOutcome::Impossible(code), "{spoil}");
    }
    let dark = World::with(|s| s.platform.origins = exeat_egress::target::Origins::Listed(vec![]));
    let report = dark.a2a.send(exeat(parcel(agent.entry()))).await;
    assert_eq!(report.outcome, SendOutcome::Impossible(ReasonCode::EndpointNotAllowed));
    assert_eq!(agent.peer.accepts(), 0);
}

#[tokio::test]
async fn an_agent_that_is_away_is_not_sent_and_an_oversized_answer_is_too_large() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = World::new().a2a.send(exeat(parcel(crate::agent::entry(&format!("http://{gone}"))))).await;
    assert_eq!(report.outcome, SendOutcome::NotSent(ReasonCode::AttemptsExhausted));
    let agent = Agent::new(card_1_0(&json!({})), |_| {
        rpc_ok(&json!({ "message": { "role": "agent", "parts": [{ "text": "x".repeat(20_000) }] } }))
    });
    let small = World::with(|s| s.bounds.body_bytes = 10_000);
    let report = small.a2a.send(exeat(parcel(agent.entry()))).await;
    assert_eq!(report.outcome, SendOutcome::Unusable(ReasonCode::ResponseTooLarge));
}
