//! Exchanges recorded from published servers on loopback, byte for byte. The requests were this crate's own
//! bodies, so these also show that such servers take them.

use exeat_core::payload::{Content, Part, Payload};
use exeat_wire::answer::{ListAnswer, SendAnswer, TaskAnswer, list_answer, send_answer, task_answer};
use exeat_wire::card::Card;
use exeat_wire::push::{Claim, PushEvent, event};
use exeat_wire::{Dialect, ErrorClass, Limits, ProtocolPin, RpcError, State, TaskView};
use serde_json::json;

macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!("recorded/", $name, ".json")).as_slice()
    };
}

/// What every recorded send said.
fn parts_sent() -> Vec<Part> {
    vec![
        Part::text("hi é"),
        Part::data(json!({"n":1})),
        Part::data(json!([1, null])),
        Part {
            content: Content::Raw("aGk=".into()),
            media_type: Some("text/plain".into()),
            filename: Some("f.txt".into()),
            metadata: json!({"m":1}).as_object().cloned(),
        },
        Part::of(Content::Url("https://x.test/y".into())),
    ]
}

fn task(bytes: &[u8]) -> TaskView {
    match task_answer(bytes, &Limits::default()).unwrap() {
        TaskAnswer::Task(task) => task,
        TaskAnswer::Error(e) => panic!("{e:?}"),
    }
}

fn error(bytes: &[u8]) -> RpcError {
    match send_answer(bytes, &Limits::default()).unwrap() {
        SendAnswer::Error(e) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn python_1_3_0_takes_a_send_in_either_dialect_and_answers_at_once() {
    for bytes in [recorded!("python-1.3.0-v1-send"), recorded!("python-1.3.0-v03-send")] {
        let SendAnswer::Task(t) = send_answer(bytes, &Limits::default()).unwrap() else { panic!("no task") };
        assert_eq!((t.state.clone(), t.output()), (State::Submitted, Payload::default()));
        assert_eq!(t.history_message_ids, ["m1"]);
        assert!(t.context_id.is_some() && !t.id.is_empty());
    }
}

#[test]
fn python_1_3_0_gives_back_the_parts_that_it_was_sent_in_either_dialect() {
    for bytes in [
        recorded!("python-1.3.0-v1-get"),
        recorded!("python-1.3.0-v03-get"),
        recorded!("python-1.3.0-v1-gethist"),
        recorded!("python-1.3.0-v03-gethist"),
    ] {
        let out = task(bytes).output();
        assert_eq!(out.parts[0], Part::text("summary"), "the status message comes first");
        assert_eq!(out.parts[1..], parts_sent());
        assert_eq!((out.artifacts[0].first, out.artifacts[0].count), (1, 5));
        // What was approved is what came back: the same bytes.
        let echoed = Payload { parts: out.parts[1..].to_vec(), artifacts: Vec::new() };
        let sent = Payload { parts: parts_sent(), artifacts: Vec::new() };
        assert_eq!(echoed.bytes(), sent.bytes());
    }
    assert!(
        task(recorded!("python-1.3.0-v1-get")).history_message_ids.is_empty(),
        "no history was asked for"
    );
    assert!(task(recorded!("python-1.3.0-v1-gethist")).history_message_ids.contains(&"m1".to_owned()));
}

#[test]
fn python_1_3_0_errors_are_told_apart_in_either_dialect() {
    for (bytes, class) in [
        (recorded!("python-1.3.0-v1-not-found"), ErrorClass::TaskNotFound),
        (recorded!("python-1.3.0-v03-not-found"), ErrorClass::TaskNotFound),
        (recorded!("python-1.3.0-v1-cancel-ended"), ErrorClass::TaskNotCancelable),
        (recorded!("python-1.3.0-v03-cancel-ended"), ErrorClass::TaskNotCancelable),
        (recorded!("python-1.3.0-wrong-version"), ErrorClass::VersionNotSupported),
    ] {
        assert_eq!(error(bytes).class(Some(200)), class);
    }
    for bytes in [recorded!("python-1.3.0-v1-cancel"), recorded!("python-1.3.0-v03-cancel")] {
        assert_eq!(task(bytes).state, State::Canceled);
    }
}

#[test]
fn invalid_parameters_do_not_prove_that_nothing_ran() {
    // The agent of this recording had run once when it came: it made a context of its own.
    for bytes in [recorded!("python-1.3.0-v1-context-clash"), recorded!("python-1.3.0-v03-context-clash")] {
        let class = error(bytes).class(Some(200));
        assert_eq!(class, ErrorClass::InvalidParams);
        assert!(!class.nothing_ran());
    }
}

#[test]
fn python_1_3_0_lists_what_belongs_to_our_context() {
    let ListAnswer::Tasks(l) = list_answer(recorded!("python-1.3.0-v1-list"), &Limits::default()).unwrap()
    else {
        panic!("no listing")
    };
    assert_eq!((l.tasks.len(), l.unreadable, l.next_page_token), (6, 0, None));
    assert!(l.tasks.iter().all(|t| t.context_id.as_deref() == Some("our-context")));
    assert_eq!(l.tasks[0].reason().as_deref(), Some("db password rejected"));
    assert_eq!(l.tasks[1].question().parts, [Part::text("Which currency?")]);
}

#[test]
fn python_1_3_0_serves_a_hybrid_card() {
    let c = Card::parse(recorded!("python-1.3.0-card"), &Limits::default()).unwrap();
    assert_eq!(c.interfaces().len(), 2);
    assert_eq!(c.choose(ProtocolPin::Auto).unwrap().dialect, Some(Dialect::V1_0));
    assert_eq!(c.choose(ProtocolPin::V0_3).unwrap().dialect, Some(Dialect::V0_3));
    assert_eq!((c.push, c.offers("echo")), (Some(true), true));
}

#[test]
fn python_1_3_0_pushes_every_event_about_the_task_that_it_answered_with() {
    let SendAnswer::Task(t) = send_answer(recorded!("python-1.3.0-v1-send"), &Limits::default()).unwrap()
    else {
        panic!("no task")
    };
    let pushed: Vec<_> = [
        recorded!("python-1.3.0-push-0"),
        recorded!("python-1.3.0-push-1"),
        recorded!("python-1.3.0-push-2"),
        recorded!("python-1.3.0-push-3"),
    ]
    .map(|bytes| event(bytes, &Limits::default()).unwrap())
    .to_vec();
    assert!(
        pushed
            .iter()
            .all(|p| p.names_task() == Some(t.id.as_str()) && p.names_context() == t.context_id.as_deref())
    );
    let claims: Vec<_> = pushed.iter().map(exeat_wire::push::Push::claims).collect();
    assert_eq!(claims, [Claim::Progress, Claim::Progress, Claim::Progress, Claim::End]);
    let PushEvent::Artifact { artifact, .. } = &pushed[2].event else { panic!("no artifact") };
    assert_eq!(artifact.parts, parts_sent());
    assert!(pushed.iter().enumerate().all(|(i, a)| pushed[..i].iter().all(|b| a.digest != b.digest)));
}
