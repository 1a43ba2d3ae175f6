//! The parsers that are pure, and what holds of each.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use exeat_core::endpoint::Endpoint;
use exeat_core::id::{AgentKey, CallbackId, HopId, KeyId, OrgName, TaskId};
use exeat_core::key::{KeyState, Kid, Purpose, Ring, Root, derive, kid_of, mint_callback, verify_callback};
use exeat_core::label::Levels;
use exeat_core::ledger::LedgerKey;
use exeat_core::ledger::export::verify_export;
use exeat_core::payload::{Limits as PayloadLimits, Payload, Sha256Digest, canonical};
use exeat_core::time::{Span, Timestamp};
use exeat_core::workflow::Workflow;
use exeat_core::workflow::expression::Expression;
use exeat_core::workflow::expression::scope::{Bounds, Scope};
use exeat_policy::PolicySet;
use exeat_policy::json_schema::SchemaCheck;
use exeat_wire::answer::{ListAnswer, SendAnswer, TaskAnswer, list_answer, send_answer, task_answer};
use exeat_wire::card::Card;
use exeat_wire::{Limits, ProtocolPin, TaskView, push as pushed};
use serde_json::{Value, json};
use zeroize::Zeroizing;

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A configuration file.
pub fn config(bytes: &[u8]) {
    if let Some(text) = text(bytes) {
        let _ = exeat::check_configuration(text);
    }
}

/// A workflow: what is taken is taken again from the store, and every refusal has a place in the text.
pub fn workflow(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Workflow::parse(text, &Levels::default()) {
        Ok(_) => assert!(Workflow::load(text).is_ok(), "it was taken and can't be loaded"),
        Err(faults) => assert!(!faults.is_empty(), "refused without a reason"),
    }
}

/// An expression, and its value over a small task.
pub fn expression(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(e) = Expression::parse(text) {
        assert_eq!(e.source().trim(), text.trim(), "what it says of itself");
    }
    let flow =
        json!({ "name": "w", "steps": { "a": { "to": "role:x", "input": format!("${{{{ {text} }}}}") } } });
    let Ok(flow) = Workflow::parse(&flow.to_string(), &Levels::default()) else { return };
    let template = &flow.steps[0].input;
    let input = Payload::of_text("some text");
    let scope = Scope::new(&input, "task", "requester");
    let bounds = Bounds::default();
    let once = template.value(&scope, bounds).ok();
    assert_eq!(once, template.value(&scope, bounds).ok(), "the same question has the same answer");
}

/// A set of policies.
pub fn policy(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match PolicySet::parse(text) {
        Ok(set) => {
            let _ = (set.ids(), set.approver_roles(), set.warnings());
        }
        Err(faults) => assert!(!faults.is_empty(), "refused without a reason"),
    }
}

/// A JSON Schema on one line and what it judges on the next.
pub fn schema(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |b| *b == b'\n');
    let mut value = || lines.next().and_then(|l| serde_json::from_slice::<Value>(l).ok());
    let Some(schema) = value() else { return };
    if let Ok(check) = SchemaCheck::compile(&schema) {
        let _ = check.check(&value().unwrap_or_default());
    }
}

/// An agent card: what it offers can be chosen, and what is pinned of it is always the same.
pub fn card(bytes: &[u8]) {
    let Ok(card) = Card::parse(bytes, &Limits::default()) else { return };
    for pin in [ProtocolPin::Auto] {
        if let Ok(chosen) = card.choose(pin) {
            assert!(card.interfaces().contains(&chosen), "chosen of what isn't offered");
        }
    }
    let again = Card::parse(bytes, &Limits::default());
    let again = again.unwrap_or_else(|e| panic!("taken once, refused then: {e}"));
    assert_eq!(canonical(&card.projection()), canonical(&again.projection()));
}

fn views(task: &TaskView) {
    for payload in [task.output(), task.question()] {
        handed_on(&payload);
    }
    let _ = task.reason();
}

/// An answer of a foreign agent to any of our calls.
pub fn results(bytes: &[u8]) {
    let limits = Limits::default();
    match send_answer(bytes, &limits) {
        Ok(SendAnswer::Task(task)) => views(&task),
        Ok(SendAnswer::Message(message)) => handed_on(&message.payload()),
        _ => {}
    }
    if let Ok(TaskAnswer::Task(task)) = task_answer(bytes, &limits) {
        views(&task);
    }
    if let Ok(ListAnswer::Tasks(listing)) = list_answer(bytes, &limits) {
        listing.tasks.iter().for_each(views);
    }
    let _ = exeat_wire::answer::is_to_another(bytes, "1");
}

/// A body that is pushed at a callback.
pub fn push(bytes: &[u8]) {
    let Ok(push) = pushed::event(bytes, &Limits::default()) else { return };
    let _ = (push.names_task(), push.names_context(), push.claims());
}

/// What was taken from outside is stored and read back as it was, if it is within the limits.
fn handed_on(payload: &Payload) {
    if payload.check(&PayloadLimits::default()).is_err() {
        return;
    }
    let stored = payload.bytes();
    let read = Payload::from_bytes(&stored).unwrap_or_else(|e| panic!("stored and not read: {e}"));
    assert_eq!(read.bytes(), stored);
    let _ = payload.shown();
}

/// A payload of a request.
pub fn payload(bytes: &[u8]) {
    if let Ok(payload) = Payload::from_bytes(bytes) {
        handed_on(&payload);
    }
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let once = canonical(&value);
    if let Ok(again) = serde_json::from_slice::<Value>(&once) {
        assert_eq!(once, canonical(&again), "the canonical form is one");
    }
    if let Ok(payload) = Payload::from_json(&value, &PayloadLimits::default()) {
        handed_on(&payload);
    }
}

/// What reads a text reads its own text again to the same.
fn reads<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let said = value.to_string();
        assert_eq!(said.parse::<T>().ok().as_ref(), Some(&value), "{said}");
    }
}

/// Ids, digests, spans, labels, and the token of a callback: nothing but the good one opens its door.
pub fn tokens(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads::<AgentKey>(text);
    reads::<OrgName>(text);
    reads::<KeyId>(text);
    reads::<TaskId>(text);
    reads::<HopId>(text);
    reads::<CallbackId>(text);
    reads::<Endpoint>(text);
    reads::<Timestamp>(text);
    reads::<Span>(text);
    reads::<Kid>(text);
    let _ = Sha256Digest::try_from(text.to_owned());
    if let Ok(label) = Levels::default().parse(text) {
        assert_eq!(Levels::default().parse(&label.to_string()).ok().as_ref(), Some(&label));
    }
    let org: OrgName = "main".parse().unwrap_or_else(|_| panic!("a name"));
    let mut ring = Ring::new();
    let mut ids = exeat_core::id::Ids::new(Timestamp::EPOCH, [1; 32]);
    let key = derive(&Root::of(Zeroizing::new([7; 32])), Purpose::Callback, Some(&org), 1);
    ring.insert(Kid::draw(&mut ids), org.clone(), Purpose::Callback, KeyState::Active, key);
    let callback = CallbackId::draw(&mut ids);
    let exp = Timestamp::of_micros(2_000_000_000_000_000);
    let good = mint_callback(&ring, &org, &callback, exp).unwrap_or_else(|_| panic!("a key"));
    let _ = kid_of(text);
    let opens = verify_callback(&ring, text, &callback, Timestamp::EPOCH).is_ok();
    assert!(!opens || text == good.expose(), "another token opens the door");
}

/// An export of the ledger, and what is said of it.
pub fn ledger(bytes: &[u8]) {
    let key = LedgerKey::of_seed(&[3; 32]).public();
    let verified = verify_export(bytes, &key, None).unwrap_or_else(|e| panic!("memory can be read: {e}"));
    let _ = serde_json::to_vec(&verified);
}
