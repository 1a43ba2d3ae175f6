//! The key that callback tokens are made with, changed while hops are out.

use exeat_core::change::Row;
use exeat_core::id::CallbackId;
use exeat_core::key::{
    CALLBACK_KEYS, CallbackKey, KeyState, Kid, Purpose, Ring, derive, kid_of, mint_callback,
};
use exeat_core::ports::Clock as _;
use exeat_core::principal::KeyScope;
use exeat_core::time::{Span, Timestamp};
use exeat_core::transport::{ForeignState, ForeignTask, SendOutcome};
use serde_json::{Value, json};

use crate::callback::{at_work, completed, path, pushing};
use crate::rig::{Call, Rig, foreign, post};

fn rotate() -> Call {
    post("/api/v1/callback-keys/rotate", &json!({}))
}

fn listed(rig: &Rig) -> Value {
    let rows = rig.store.rows(&rig.org);
    let found = rows.iter().find_map(|(_, row)| match row {
        Row::Setting(name, value) if name == CALLBACK_KEYS => Some(value.clone()),
        _ => None,
    });
    found.unwrap()
}

#[tokio::test]
async fn hops_in_flight_keep_their_tokens_and_new_attempts_get_the_next_key() {
    let rig = Rig::new().await;
    let (_, old) = at_work(&rig).await;
    let rotated = rig.call(rotate().key(&rig.admin)).await.is(200);
    let kid: Kid = rotated["key_id"].as_str().unwrap().parse().unwrap();
    let second = ForeignTask { id: "t-2".into(), ..foreign(ForeignState::Working, "") };
    rig.peer.sends.lock().unwrap().push_back(SendOutcome::Task(second));
    let (_, new) = at_work(&rig).await;
    assert_eq!(kid_of(&new.token), Some(kid));
    assert_ne!(kid_of(&old.token), Some(kid));
    for (push, task) in [(&old, "t-1"), (&new, "t-2")] {
        assert_eq!(rig.call(pushing(push, &completed(task, "x"))).await.status, 202);
    }
    // Until the last of what the old key has made expires.
    let exp: i64 = old.token.split('.').nth(2).unwrap().parse().unwrap();
    let retires: Timestamp = rotated["retires_at"].as_str().unwrap().parse().unwrap();
    assert!(retires.seconds() >= exp, "{rotated}");
    rig.clock.pass(retires.since(rig.clock.now()));
    rig.clock.pass(Span::of_secs(1));
    assert_eq!(rig.call(pushing(&old, &completed("t-1", "x"))).await.status, 404);
}

#[tokio::test]
async fn a_rotation_is_recorded_and_keeps_no_secret_and_the_next_one_retires_what_is_over() {
    let rig = Rig::new().await;
    let first = listed(&rig)[0]["kid"].clone();
    let rotated = rig.call(rotate().key(&rig.admin)).await.is(200);
    let keys = listed(&rig);
    let expected = json!([
        { "kid": first, "epoch": 1, "state": "verify", "retires_at": rotated["retires_at"] },
        { "kid": rotated["key_id"], "epoch": 2, "state": "active" },
    ]);
    assert_eq!(keys, expected);
    let changes = rig.records().await.into_iter().filter(|r| r["data"]["what"] == "key");
    let told: Vec<_> = changes.map(|r| (r["data"]["name"].clone(), r["data"]["after"].clone())).collect();
    assert_eq!(told, [(first, json!("verify")), (rotated["key_id"].clone(), json!("active"))]);
    rig.clock.pass(Span::of_secs(40 * 86_400));
    rig.call(rotate().key(&rig.admin)).await.is(200);
    let states: Vec<_> = listed(&rig).as_array().unwrap().iter().map(|k| k["state"].clone()).collect();
    assert_eq!(states, [json!("retired"), json!("verify"), json!("active")]);
}

#[tokio::test]
async fn a_rotation_that_is_sent_again_with_its_key_is_one_and_only_an_admin_may() {
    let rig = Rig::new().await;
    let ask = || rotate().key(&rig.admin).with("idempotency-key", "k");
    let first = rig.call(ask()).await.is(200);
    assert_eq!(rig.call(ask()).await.is(200), first);
    assert_eq!(listed(&rig).as_array().unwrap().len(), 2);
    let operator = rig.key("op", &[KeyScope::Operator], "internal", |_| {}).await;
    rig.call(rotate().key(&operator)).await.problem(403, "scope_missing");
}

#[tokio::test]
async fn a_key_that_another_process_made_is_looked_for_at_most_once_a_second() {
    let rig = Rig::new().await;
    let (_, push) = at_work(&rig).await;
    let callback: CallbackId = path(&push).rsplit('/').next().unwrap().parse().unwrap();
    // As another process would have rotated it.
    let kid = Kid::draw(&mut rig.ids());
    let mut keys: Vec<CallbackKey> = serde_json::from_value(listed(&rig)).unwrap();
    keys.push(CallbackKey { kid, epoch: 2, state: KeyState::Active, retires_at: None });
    let mut ring = Ring::new();
    let key = derive(&rig.app.root, Purpose::Callback, Some(&rig.org), 2);
    ring.insert(kid, rig.org.clone(), Purpose::Callback, KeyState::Active, key);
    let exp = rig.clock.now() + Span::of_secs(3_600);
    let token = mint_callback(&ring, &rig.org, &callback, exp).unwrap().expose().to_owned();
    let with =
        |token: &str| post(path(&push), &completed("t-1", "x")).with("x-a2a-notification-token", token);
    let made_up = token.replacen(&kid.to_string(), "AAAAAAAAAAA", 1);
    // A made-up key has the record read, and so for a second nothing else does.
    assert_eq!(rig.call(with(&made_up)).await.status, 404);
    rig.write(1, Row::Setting(CALLBACK_KEYS.to_owned(), json!(keys))).await;
    assert_eq!(rig.call(with(&token)).await.status, 404);
    rig.clock.pass(Span::of_secs(2));
    assert_eq!(rig.call(with(&token)).await.status, 202);
    // Those that were known still are.
    assert_eq!(rig.call(pushing(&push, &completed("t-1", "y"))).await.status, 202);
}
