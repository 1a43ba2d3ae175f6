//! Exchanges recorded from published servers on loopback, byte for byte. The requests were this crate's own
//! bodies, so these also show that such servers take them.

use exeat_core::payload::{Content, Part, Payload};
use exeat_wire::answer::{
    ListAnswer, Listing, SendAnswer, TaskAnswer, list_answer, send_answer, task_answer,
};
use exeat_wire::card::Card;
use exeat_wire::push::{Claim, Push, PushEvent, event};
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
fn published_servers_take_our_sends_and_answer_at_once() {
    for bytes in [
        recorded!("python-1.3.0-v1-send"),
        recorded!("python-1.3.0-v03-send"),
        recorded!("python-0.3.26-send"),
        recorded!("js-1.3.0-v1-send"),
        recorded!("js-1.3.0-v03-send"),
    ] {
        let SendAnswer::Task(t) = send_answer(bytes, &Limits::default()).unwrap() else { panic!("no task") };
        assert!(matches!(t.state, State::Submitted | State::Working), "{:?}", t.state);
        assert_eq!(t.output(), Payload::default());
        assert_eq!(t.history_message_ids, ["m1"]);
        assert!(t.context_id.is_some() && !t.id.is_empty());
    }
}

#[test]
fn published_servers_give_back_the_parts_that_they_were_sent_whatever_the_dialect() {
    for bytes in [
        recorded!("python-1.3.0-v1-get"),
        recorded!("python-1.3.0-v03-get"),
        recorded!("python-1.3.0-v1-gethist"),
        recorded!("python-1.3.0-v03-gethist"),
        recorded!("python-0.3.26-get"),
        recorded!("js-1.3.0-v1-get"),
        recorded!("js-1.3.0-v03-get"),
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
fn errors_of_published_servers_are_told_apart() {
    for (bytes, class) in [
        (recorded!("python-1.3.0-v1-not-found"), ErrorClass::TaskNotFound),
        (recorded!("python-1.3.0-v03-not-found"), ErrorClass::TaskNotFound),
        (recorded!("python-1.3.0-v1-cancel-ended"), ErrorClass::TaskNotCancelable),
        (recorded!("python-1.3.0-v03-cancel-ended"), ErrorClass::TaskNotCancelable),
        (recorded!("python-1.3.0-wrong-version"), ErrorClass::VersionNotSupported),
        (recorded!("python-0.3.26-not-found"), ErrorClass::TaskNotFound),
        (recorded!("python-0.3.26-v1-method"), ErrorClass::MethodNotFound),
        (recorded!("js-1.3.0-v1-not-found"), ErrorClass::TaskNotFound),
        (recorded!("js-1.3.0-v03-not-found"), ErrorClass::TaskNotFound),
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
fn a_bare_message_of_a_published_server_is_the_output() {
    for bytes in [recorded!("js-1.3.0-v1-say"), recorded!("js-1.3.0-v03-say")] {
        let SendAnswer::Message(m) = send_answer(bytes, &Limits::default()).unwrap() else {
            panic!("no message")
        };
        assert_eq!((m.parts, m.context_id.as_deref(), m.task_id), (parts_sent(), Some("our-context"), None));
    }
}

#[test]
fn an_empty_listing_of_a_published_server_is_a_listing() {
    let answer = list_answer(recorded!("js-1.3.0-v1-list"), &Limits::default()).unwrap();
    assert_eq!(answer, ListAnswer::Tasks(Listing::default()));
}

#[test]
fn cards_of_published_servers_are_understood() {
    let read = |bytes: &[u8]| Card::parse(bytes, &Limits::default()).unwrap();
    for hybrid in
        [recorded!("python-1.3.0-card"), recorded!("js-1.3.0-card"), recorded!("js-1.3.0-card-hybrid")]
    {
        let c = read(hybrid);
        assert_eq!(c.interfaces().len(), 2);
        assert_eq!(c.choose(ProtocolPin::Auto).unwrap().dialect, Some(Dialect::V1_0));
        assert_eq!(c.choose(ProtocolPin::V0_3).unwrap().dialect, Some(Dialect::V0_3));
        assert_eq!((c.push, c.offers("echo"), &c.interfaces()[0].tenant), (Some(true), true, &None));
    }
    let old = read(recorded!("python-0.3.26-card"));
    assert_eq!(old.choose(ProtocolPin::Auto).unwrap().dialect, Some(Dialect::V0_3));
    assert!(old.choose(ProtocolPin::V1_0).is_err());
    // One server shows two cards by header; what matters of them is the same.
    assert_eq!(
        read(recorded!("js-1.3.0-card")).projection(),
        read(recorded!("js-1.3.0-card-hybrid")).projection()
    );
}

/// A send's answer, and what was pushed about its task.
fn pushed(send: &[u8], bodies: &[&[u8]]) -> Vec<Push> {
    let SendAnswer::Task(t) = send_answer(send, &Limits::default()).unwrap() else { panic!("no task") };
    let pushed: Vec<Push> = bodies.iter().map(|b| event(b, &Limits::default()).unwrap()).collect();
    for (i, p) in pushed.iter().enumerate() {
        assert_eq!((p.names_task(), p.names_context()), (Some(t.id.as_str()), t.context_id.as_deref()));
        assert!(pushed.iter().take(i).all(|earlier| earlier.digest != p.digest));
    }
    pushed
}

#[test]
fn pushes_of_published_servers_are_about_the_task_that_they_answered_with() {
    let claims = |pushed: &[Push]| pushed.iter().map(Push::claims).collect::<Vec<_>>();
    let python = pushed(
        recorded!("python-1.3.0-v1-send"),
        &[
            recorded!("python-1.3.0-push-0"),
            recorded!("python-1.3.0-push-1"),
            recorded!("python-1.3.0-push-2"),
            recorded!("python-1.3.0-push-3"),
        ],
    );
    assert_eq!(claims(&python), [Claim::Progress, Claim::Progress, Claim::Progress, Claim::End]);
    let js = pushed(
        recorded!("js-1.3.0-v1-send"),
        &[recorded!("js-1.3.0-push-0"), recorded!("js-1.3.0-push-1"), recorded!("js-1.3.0-push-2")],
    );
    assert_eq!(claims(&js), [Claim::Progress, Claim::Progress, Claim::End]);
    for p in [&python[2], &js[1]] {
        let PushEvent::Artifact { artifact, .. } = &p.event else { panic!("no artifact") };
        assert_eq!(artifact.parts, parts_sent());
    }
    // 0.3 pushes the whole task each time, so its last body holds the output.
    let old = pushed(
        recorded!("python-0.3.26-send"),
        &[
            recorded!("python-0.3.26-push-0"),
            recorded!("python-0.3.26-push-1"),
            recorded!("python-0.3.26-push-2"),
            recorded!("python-0.3.26-push-3"),
        ],
    );
    assert_eq!(claims(&old), [Claim::Progress, Claim::Progress, Claim::Progress, Claim::End]);
    let PushEvent::Task(done) = &old[3].event else { panic!("no task") };
    assert_eq!(done.output(), task(recorded!("python-0.3.26-get")).output());
}
