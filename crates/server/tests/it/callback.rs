//! What foreign agents push: who may, what is stored, and that everything wrong looks the same.

use exeat_core::change::Row;
use exeat_core::gate::exeat::PushTarget;
use exeat_core::id::{CallbackId, OrgName};
use exeat_core::key::mint_callback;
use exeat_core::ports::Clock as _;
use exeat_core::time::Span;
use exeat_core::transport::{ForeignState, LookOutcome, SendOutcome};
use serde_json::{Value, json};

use crate::rig::{Answer, Call, Rig, foreign, in_time, post};

/// A task at work at the auditor, and where it shall push to.
pub(crate) async fn at_work(rig: &Rig) -> (Value, PushTarget) {
    let id = rig.start(&json!({"to":"agent:auditor","input":"x"})).await["task_id"].clone();
    rig.until(&id, |t| t["steps"][0]["hops"][0]["state"] == "working").await;
    let push = rig.peer.sent.lock().unwrap().last().unwrap().push.clone().unwrap();
    (id, push)
}

pub(crate) fn path(push: &PushTarget) -> String {
    push.url.strip_prefix("https://exeat.example").unwrap().to_owned()
}

pub(crate) fn completed(task: &str, text: &str) -> Value {
    json!({"task":{"id":task,"contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"},
        "artifacts":[{"artifactId":"a","parts":[{"text":text}]}]}})
}

pub(crate) fn pushing(push: &PushTarget, body: &Value) -> Call {
    post(path(push), body).with("x-a2a-notification-token", &push.token)
}

fn inbox(rig: &Rig) -> usize {
    rig.store.rows(&rig.org).iter().filter(|(_, r)| matches!(r, Row::Inbox(_))).count()
}

#[track_caller]
fn empty(answer: &Answer, status: u16) {
    assert_eq!((answer.status.as_u16(), answer.bytes.as_slice()), (status, &b""[..]));
}

#[tokio::test]
async fn a_push_with_any_right_credential_is_stored_confirmed_and_ends_the_hop() {
    for header in ["x-a2a-notification-token", "a2a-notification-token", "authorization"] {
        let rig = Rig::new().await;
        let (id, push) = at_work(&rig).await;
        rig.peer.looks.lock().unwrap().push_back(LookOutcome::Task(foreign(ForeignState::Completed, "real")));
        let value =
            if header == "authorization" { format!("Bearer {}", push.token) } else { push.token.clone() };
        let call = post(path(&push), &completed("t-1", "claimed")).with(header, &value);
        empty(&rig.call(call).await, 202);
        let task = rig.until(&id, |t| t["status"] == "completed").await;
        assert_eq!(task["output"]["text"], "real", "what the agent shows counts, not what was pushed");
        assert_eq!(task["steps"][0]["hops"][0]["push"], json!({"asked": true, "arrived": true}));
    }
}

#[tokio::test]
async fn everything_wrong_is_the_same_404_and_stores_nothing() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    let callback: CallbackId = path(&push).rsplit('/').next().unwrap().parse().unwrap();
    let soon = rig.clock.now() + Span::of_secs(60);
    let other: OrgName = "other".parse().unwrap();
    let foreign = mint_callback(&rig.app.keyring.now(), &other, &callback, soon).unwrap().expose().to_owned();
    let past = rig.clock.now();
    let expired =
        mint_callback(&rig.app.keyring.now(), &rig.org, &callback, past).unwrap().expose().to_owned();
    let swapped_id: CallbackId = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
    let swapped =
        mint_callback(&rig.app.keyring.now(), &rig.org, &swapped_id, soon).unwrap().expose().to_owned();
    rig.clock.pass(Span::of_secs(2));
    let body = completed("t-1", "x");
    let mut flipped = push.token.clone().into_bytes();
    let last = flipped.len() - 3;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let mut bad = vec![
        ("no credential", post(path(&push), &body)),
        ("a tampered token", post(path(&push), &body).with("x-a2a-notification-token", &flipped)),
        ("another org's", post(path(&push), &body).with("x-a2a-notification-token", &foreign)),
        ("an expired one", post(path(&push), &body).with("x-a2a-notification-token", &expired)),
        ("another callback's", post(path(&push), &body).with("x-a2a-notification-token", &swapped)),
        ("a right one and a wrong one", pushing(&push, &body).with("authorization", "Bearer nope")),
        ("a right one and another scheme", pushing(&push, &body).with("authorization", "Basic eDp5")),
        ("a right one and a wrong one in the query", {
            post(format!("{}?t=nope", path(&push)), &body).with("x-a2a-notification-token", &push.token)
        }),
        ("only in the query", post(format!("{}?t={}", path(&push), push.token), &body)),
        ("a door that isn't there", {
            post(format!("/api/v1/a2a/callback/{swapped_id}"), &body)
                .with("x-a2a-notification-token", &swapped)
        }),
        (
            "no callback id",
            post("/api/v1/a2a/callback/nope", &body).with("x-a2a-notification-token", &push.token),
        ),
    ];
    let long = "x".repeat(10_000);
    for text in ["", "a", "ec1", "ec1...", "ec1.a.1.b", "%00", &long] {
        bad.push(("malformed", post(path(&push), &body).with("x-a2a-notification-token", text)));
    }
    for (why, call) in bad {
        let answer = rig.call(call).await;
        assert_eq!((answer.status.as_u16(), answer.bytes.len()), (404, 0), "{why}");
        assert!(answer.headers.get("www-authenticate").is_none(), "{why}");
    }
    assert_eq!(inbox(&rig), 0);
}

#[tokio::test]
async fn a_body_that_names_another_task_is_refused_and_recorded_and_moves_nothing() {
    let rig = Rig::new().await;
    let (id, push) = at_work(&rig).await;
    empty(&rig.call(pushing(&push, &completed("t-2", "not mine"))).await, 404);
    assert_eq!(inbox(&rig), 0);
    let refused: Vec<Value> = rig.records().await.into_iter().filter(|r| r["kind"] == "refused").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((&refused[0]["data"]["what"], &refused[0]["task"]), (&json!("callback"), &id));
    assert_eq!(rig.task(&id).await["status"], "running");
}

#[tokio::test]
async fn duplicates_are_accepted_and_stored_once_however_many_come_at_once() {
    let rig = Rig::new().await;
    let (id, push) = at_work(&rig).await;
    rig.peer.looks.lock().unwrap().push_back(LookOutcome::Task(foreign(ForeignState::Completed, "real")));
    let body = completed("t-1", "x");
    let all = (0..20).map(|_| rig.call(pushing(&push, &body)));
    for answer in in_time(futures::future::join_all(all)).await {
        empty(&answer, 202);
    }
    assert_eq!(inbox(&rig), 1);
    rig.until(&id, |t| t["status"] == "completed").await;
    let ingress = rig.records().await.into_iter().filter(|r| r["data"]["dir"] == "a2a_ingress").count();
    assert_eq!(ingress, 1);
    // Late: taken, kept, and nothing moves.
    let working =
        json!({"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}});
    empty(&rig.call(pushing(&push, &working)).await, 202);
    assert_eq!(rig.task(&id).await["status"], "completed");
}

#[tokio::test]
async fn any_media_type_is_taken_and_what_is_no_a2a_makes_us_look() {
    let rig = Rig::new().await;
    let (id, push) = at_work(&rig).await;
    rig.peer.looks.lock().unwrap().push_back(LookOutcome::Task(foreign(ForeignState::Completed, "real")));
    let call = post(path(&push), &Value::Null)
        .with("content-type", "text/html")
        .with("x-a2a-notification-token", &push.token)
        .raw("<html>done</html>");
    empty(&rig.call(call).await, 202);
    rig.until(&id, |t| t["status"] == "completed").await;
}

#[tokio::test]
async fn a_body_may_be_so_large_and_no_larger_and_only_posts_are_taken() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    let most = vec![b' '; rig.app.settings.callback_body_bytes];
    empty(&rig.call(pushing(&push, &Value::Null).raw(most.clone())).await, 202);
    empty(&rig.call(pushing(&push, &Value::Null).raw([most, vec![b' ']].concat())).await, 413);
    for method in ["GET", "PUT", "DELETE"] {
        let answer = rig.call(pushing(&push, &Value::Null).method(method)).await;
        assert_eq!(answer.status, 405, "{method}");
    }
}

#[tokio::test]
async fn too_many_are_told_so_and_only_to_who_has_a_good_token() {
    let rig = Rig::with(|s| s.callback_per_minute = 2).await;
    let (_, push) = at_work(&rig).await;
    let working =
        |n: u32| json!({"statusUpdate":{"taskId":"t-1","n":n,"status":{"state":"TASK_STATE_WORKING"}}});
    for _ in 0..5 {
        empty(&rig.call(post(path(&push), &working(0)).with("authorization", "Bearer nope")).await, 404);
    }
    for n in 0..2 {
        empty(&rig.call(pushing(&push, &working(n))).await, 202);
    }
    let answer = rig.call(pushing(&push, &working(3))).await;
    empty(&answer, 429);
    assert!(answer.headers.contains_key("retry-after"));
    empty(&rig.call(post(path(&push), &working(4))).await, 404);
    rig.clock.pass(Span::of_secs(30));
    empty(&rig.call(pushing(&push, &working(5))).await, 202);
}

#[tokio::test]
async fn nothing_is_taken_while_the_server_stops() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    rig.app.runtime.stopping().cancel();
    empty(&rig.call(pushing(&push, &completed("t-1", "x"))).await, 503);
    empty(&rig.call(post(path(&push), &completed("t-1", "x"))).await, 404);
}

#[tokio::test]
async fn a_token_never_shows_in_debug_output() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    let parcel = rig.peer.sent.lock().unwrap().last().unwrap().clone();
    assert!(!format!("{parcel:?} {push:?}").contains(&push.token));
}

#[tokio::test]
async fn what_lies_unread_of_one_hop_is_bounded_and_a_hint_keeps_one_body() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    // Halted, nothing is looked at and so nothing is read.
    rig.write(1, Row::Mode(exeat_core::registry::EgressMode::Halt)).await;
    for n in 0..64 {
        empty(&rig.call(pushing(&push, &completed("t-1", &format!("claim {n}")))).await, 202);
    }
    let one_more = rig.call(pushing(&push, &completed("t-1", "claim 64"))).await;
    empty(&one_more, 429);
    assert_eq!(one_more.headers["retry-after"], "1");
    let bodies = |(_, r): &(u64, Row)| matches!(r, Row::Inbox(i) if i.body.is_some());
    assert_eq!((inbox(&rig), rig.store.rows(&rig.org).iter().filter(|r| bodies(r)).count()), (64, 1));
}

#[tokio::test]
async fn a_pushed_message_for_a_send_that_nobody_knows_of_is_kept_and_not_believed() {
    let rig = Rig::new().await;
    rig.peer.sends.lock().unwrap().push_back(SendOutcome::Ambiguous);
    let id = rig.start(&json!({"to":"agent:auditor","input":"x"})).await["task_id"].clone();
    let unknown = rig.until(&id, |t| t["steps"][0]["hops"][0]["state"] == "send_unknown").await;
    // It is given up once the grace is over, long before its deadline.
    let grace = rig.clock.now() + rig.app.settings.bounds.unknown_grace;
    assert_eq!(unknown["waiting"][0]["until"], json!(grace), "{unknown:#}");
    assert_ne!(unknown["waiting"][0]["until"], unknown["steps"][0]["hops"][0]["deadline"]);
    let push = rig.peer.sent.lock().unwrap().last().unwrap().push.clone().unwrap();
    let bare = json!({"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"words"}]}});
    empty(&rig.call(pushing(&push, &bare)).await, 202);
    rig.clock.pass(Span::of_secs(3_600));
    let task = rig.until(&id, |t| t["status"] == "failed").await;
    assert_eq!(task["reason"]["code"], "unconfirmed", "{task:#}");
}

#[tokio::test]
async fn an_entry_that_wants_the_token_in_the_url_is_given_it_there_and_no_other_is() {
    let rig = Rig::new().await;
    rig.agent("simple", "confidential", |a| a.posture.token_in_query = true).await;
    for (to, in_query) in [("agent:simple", true), ("agent:auditor", false)] {
        let mut working = foreign(ForeignState::Working, "");
        working.id = to.to_owned();
        rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(working));
        let id = rig.start(&json!({"to": to, "input": "x"})).await["task_id"].clone();
        rig.until(&id, |t| t["steps"][0]["hops"][0]["state"] == "working").await;
        let push = rig.peer.sent.lock().unwrap().last().unwrap().push.clone().unwrap();
        assert_eq!(push.url.ends_with(&format!("?t={}", push.token)), in_query);
        assert_eq!(push.url.contains('?'), in_query);
        let bare =
            push.url.split('?').next().unwrap().strip_prefix("https://exeat.example").unwrap().to_owned();
        let body = json!({"task":{"id": to, "status":{"state":"TASK_STATE_WORKING"}}});
        let door = async |query: &str| rig.call(post(format!("{bare}?{query}"), &body)).await;
        empty(&door(&format!("t={}", push.token)).await, if in_query { 202 } else { 404 });
        empty(&door(&format!("t={}x", push.token)).await, 404);
        empty(&door("").await, 404);
    }
}
