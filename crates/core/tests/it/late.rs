//! Answers that come when something else has happened: they are never taken for what they aren't, and no task of ours
//! that nobody waits for is left to run.

use exeat_core::bridge::{BridgeState, PushClaim};
use exeat_core::change::DueKind;
use exeat_core::id::CallbackId;
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::Find;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{CallbackTrust, Dedup};
use exeat_core::task::{HopState, decision};
use exeat_core::time::Span;
use exeat_core::transport::ForeignState;
use exeat_core::walk::Ports;
use exeat_core::walk::confirm::{self, Pushed};
use exeat_testkit::sim::setting::{org, person};

use serde_json::json;

use crate::rig;
use crate::scene::{Scene, Sent, answered, foreign, swept};

#[test]
fn a_late_answer_that_names_a_second_task_has_that_one_canceled_and_once() {
    let scene = Scene::new(Dedup::MessageId);
    let first = scene.out();
    let second = scene.again();
    assert_eq!((second.hop, second.n), (first.hop, 2));
    scene.answer(&second, 2, "theirs");
    assert!(scene.cancels().is_empty());
    scene.answer(&first, 1, "stray");
    let asked: Vec<_> = scene.cancels().iter().map(|c| c.foreign_task.clone()).collect();
    assert_eq!(asked, [Some("stray".to_owned())]);
    let bridge = scene.bridge(&first);
    assert_eq!((foreign(&bridge), bridge.state), (Some("theirs"), BridgeState::Working));
    scene.sweep(DueKind::Cancel);
    assert_eq!(scene.cancels()[0].outcome.as_deref(), Some("over"), "it was asked to stop");
    scene.answer(&first, 1, "stray");
    assert_eq!(scene.cancels().len(), 1);
}

#[test]
fn an_answer_with_the_task_of_another_hop_fails_its_own_hop_and_touches_no_other() {
    let scene = Scene::new(Dedup::MessageId);
    let (one, two) = (scene.out(), scene.out());
    scene.answer(&one, 1, "theirs");
    scene.answer(&two, 1, "theirs");
    let (held, failed) = (scene.bridge(&one), scene.bridge(&two));
    assert_eq!((foreign(&held), held.state), (Some("theirs"), BridgeState::Working));
    assert_eq!((foreign(&failed), failed.state), (None, BridgeState::Failed));
    let reason = failed.reason.unwrap();
    assert!(
        reason.code == ReasonCode::InvalidResponse && reason.message.contains("another errand"),
        "{reason:?}"
    );
    assert!(scene.cancels().iter().all(|c| c.foreign_task.is_none()), "the other's task isn't canceled");
    // Nor does what comes late of a hop that is over.
    scene.answer(&two, 1, "theirs");
    assert!(scene.cancels().iter().all(|c| c.foreign_task.is_none()));
    assert_eq!(foreign(&scene.bridge(&two)), None);
}

/// Says at the hop's door that it is done.
async fn push(ports: Ports, door: CallbackId) {
    let pushed = Pushed {
        claim: PushClaim::Completed,
        foreign_task: None,
        foreign_context: None,
        body: None,
        digest: Sha256Digest::of(b"done"),
    };
    let door = ports.store.route(&door).await.unwrap().unwrap();
    confirm::accept(&ports, &door, CallbackTrust::Confirm, pushed).await.map(drop).unwrap();
}

#[test]
fn one_look_of_a_hop_is_out_at_a_time_and_what_came_meanwhile_is_looked_at_after_it() {
    let scene = Scene::new(Dedup::MessageId);
    let sent = scene.out();
    scene.answer(&sent, 1, "theirs");
    scene.pass(Span::of_secs(5));
    scene.expect([(20, ForeignState::Working), (0, ForeignState::Completed)]);
    let (ports, clock) = (scene.ports.clone(), scene.shared.clock.clone());
    let door = scene.bridge(&sent).callback.unwrap();
    let agent = scene.agent.clone();
    rig::run(&scene.shared, async move {
        let meanwhile = async {
            clock.sleep(Span::of_secs(1)).await;
            push(ports.clone(), door).await;
            for kind in [DueKind::Inbox, DueKind::Bridge, DueKind::Inbox] {
                swept(ports.clone(), kind).await;
            }
            assert_eq!(agent.asked().len(), 1, "another is out");
        };
        futures::future::join(swept(ports.clone(), DueKind::Bridge), meanwhile).await;
    });
    assert_eq!(scene.bridge(&sent).state, BridgeState::Working);
    scene.sweep(DueKind::Inbox);
    assert_eq!((scene.bridge(&sent).state, scene.looked()), (BridgeState::Completed, 2));
    assert!(scene.inbox().iter().all(|i| i.due_at.is_none()), "{:?}", scene.inbox());
}

#[test]
fn a_look_that_comes_back_after_its_lease_changes_nothing() {
    let scene = Scene::new(Dedup::MessageId);
    let sent = scene.out();
    scene.answer(&sent, 1, "theirs");
    scene.pass(Span::of_secs(5));
    scene.expect([(70, ForeignState::Failed), (0, ForeignState::InputRequired)]);
    let (ports, clock) = (scene.ports.clone(), scene.shared.clock.clone());
    rig::run(&scene.shared, async move {
        let meanwhile = async {
            clock.sleep(Span::of_secs(60)).await;
            swept(ports.clone(), DueKind::Bridge).await;
        };
        futures::future::join(swept(ports.clone(), DueKind::Bridge), meanwhile).await;
    });
    let bridge = scene.bridge(&sent);
    assert_eq!((bridge.state, bridge.looks, bridge.look), (BridgeState::InputRequired, 2, None));
}

#[test]
fn a_look_that_set_out_before_a_later_turn_changes_nothing() {
    let scene = Scene::new(Dedup::MessageId);
    let sent = scene.out();
    scene.answer(&sent, 1, "theirs");
    scene.pass(Span::of_secs(5));
    scene.expect([(0, ForeignState::InputRequired)]);
    scene.sweep(DueKind::Bridge);
    assert_eq!(scene.bridge(&sent).state, BridgeState::InputRequired);
    scene.pass(Span::of_secs(30));
    scene.expect([(20, ForeignState::InputRequired)]);
    let (ports, clock) = (scene.ports.clone(), scene.shared.clock.clone());
    let hop = sent.hop;
    rig::run(&scene.shared, async move {
        let meanwhile = async {
            clock.sleep(Span::of_secs(1)).await;
            let found = ports.store.load(org(), Find::Hop(hop)).await.unwrap().unwrap();
            let asked = found.task.0.hop(hop).unwrap().state.clone();
            let HopState::Asking(question) = asked else { panic!("{asked:?}") };
            let walked = ports.walk(org(), Find::Hop(hop), |c, i, f, s| {
                decision::answer(c, i, f, s, question.id, &json!("yes"), &person("ann", &[]))
                    .map(|set| ((), set))
            });
            let sent = Sent::of(&walked.await.unwrap().1);
            answered(ports.clone(), sent.hop, sent.n, "theirs").await;
        };
        futures::future::join(swept(ports.clone(), DueKind::Bridge), meanwhile).await;
    });
    let bridge = scene.bridge(&sent);
    assert_eq!((bridge.state, bridge.turn, bridge.look), (BridgeState::Working, 2, None), "the old question");
}
