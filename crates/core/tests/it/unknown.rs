//! A send whose fate nobody knows: it is found by listing, or not at all, and never made twice.

use exeat_core::bridge::unknown::Ran;
use exeat_core::bridge::{Bridge, BridgeState};
use exeat_core::change::{DeadKind, DueKind};
use exeat_core::gate::exeat::LookFor;
use exeat_core::ledger::data::AttemptOutcome;
use exeat_core::ports::Find;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::Dedup;
use exeat_core::task::{HopState, decision};
use exeat_core::time::Span;
use exeat_core::transport::{ForeignState, ForeignTask, LookOutcome};
use exeat_core::walk::Act;
use exeat_testkit::sim::setting::{org, person};

use serde_json::json;

use crate::rig;
use crate::scene::{Scene, Sent, foreign, task};

/// A hop whose first attempt was given up for lost.
fn lost(scene: &Scene) -> Sent {
    let sent = scene.out();
    scene.pass(Span::of_secs(40));
    scene.sweep(DueKind::Bridge);
    assert!(matches!(scene.bridge(&sent).state, BridgeState::SendUnknown { .. }));
    sent
}

/// A task of the hop's conversation.
fn in_ours(bridge: &Bridge, id: &str, state: ForeignState) -> ForeignTask {
    ForeignTask { context: Some(bridge.context_id.to_string()), ..task(id, state) }
}

fn sends(acts: &[Act]) -> bool {
    acts.iter().any(|a| matches!(a, Act::Send(_)))
}

/// Looks, after a pause in which one is due.
fn look(scene: &Scene, pause: u64, brings: LookOutcome) {
    scene.foresee([(0, brings)]);
    scene.pass(Span::of_secs(pause));
    assert!(!sends(&scene.sweep(DueKind::Bridge)), "nothing is sent");
}

#[test]
fn a_send_that_nobody_answered_is_found_by_our_context_and_followed_to_its_end() {
    let scene = Scene::new(Dedup::None);
    let sent = lost(&scene);
    let context = scene.bridge(&sent).context_id;
    look(&scene, 10, LookOutcome::Tasks(vec![]));
    assert!(matches!(scene.bridge(&sent).state, BridgeState::SendUnknown { .. }), "no proof of anything");
    look(&scene, 10, LookOutcome::Nothing { code: ReasonCode::SendRefused, after: None });
    let found = in_ours(&scene.bridge(&sent), "theirs", ForeignState::Completed);
    // Another conversation's is none of ours, whoever lists it.
    let alien = ForeignTask { context: Some("another".into()), ..task("alien", ForeignState::Working) };
    look(&scene, 30, LookOutcome::Tasks(vec![alien, found]));
    let bridge = scene.bridge(&sent);
    assert_eq!((foreign(&bridge), bridge.state), (Some("theirs"), BridgeState::Working));
    assert!(scene.cancels().is_empty());
    look(&scene, 0, LookOutcome::Task(task("theirs", ForeignState::Completed)));
    let bridge = scene.bridge(&sent);
    assert_eq!((bridge.state, bridge.begun), (BridgeState::Completed, 1));
    let list = LookFor::Context(context);
    assert_eq!(scene.agent.asked(), [list.clone(), list.clone(), list, LookFor::Task("theirs".into())]);
}

#[test]
fn further_tasks_of_one_message_are_asked_to_stop_and_only_so_many() {
    let scene = Scene::new(Dedup::None);
    let sent = lost(&scene);
    let b = scene.bridge(&sent);
    let many = (0..40).map(|n| in_ours(&b, &format!("stray-{n}"), ForeignState::Working));
    let listed = many.chain([
        in_ours(&b, "failed", ForeignState::Failed),
        in_ours(&b, "done", ForeignState::Completed),
        in_ours(&b, "done", ForeignState::Completed),
    ]);
    look(&scene, 10, LookOutcome::Tasks(listed.collect()));
    assert_eq!(foreign(&scene.bridge(&sent)), Some("done"), "the one that has a result");
    assert_eq!(scene.cancels().len(), 16);
    assert!(scene.cancels().iter().all(|c| c.foreign_task.as_ref().unwrap().starts_with("stray-")));
}

#[test]
fn a_task_of_another_hop_isnt_taken_though_it_is_listed_in_our_conversation() {
    let scene = Scene::new(Dedup::None);
    let other = scene.out();
    scene.answer(&other, 1, "theirs");
    look(&scene, 5, LookOutcome::Task(task("theirs", ForeignState::Completed)));
    let sent = lost(&scene);
    let named = in_ours(&scene.bridge(&sent), "theirs", ForeignState::Working);
    look(&scene, 10, LookOutcome::Tasks(vec![named]));
    assert_eq!(foreign(&scene.bridge(&sent)), None);
    assert!(matches!(scene.bridge(&sent).state, BridgeState::SendUnknown { .. }));
    assert!(scene.cancels().is_empty());
}

#[test]
fn an_agent_that_cant_list_is_asked_once_and_the_grace_is_waited_out() {
    let scene = Scene::new(Dedup::None);
    let sent = lost(&scene);
    look(&scene, 10, LookOutcome::Unsupported);
    let bridge = scene.bridge(&sent);
    let BridgeState::SendUnknown { since } = bridge.state else { panic!("{:?}", bridge.state) };
    assert!(bridge.cannot_list && bridge.due_at == Some(since + scene.grace()), "{bridge:?}");
    for _ in 0..20 {
        scene.pass(Span::of_secs(10));
        scene.sweep(DueKind::Bridge);
    }
    assert_eq!((scene.bridge(&sent).state, scene.looked()), (BridgeState::Failed, 1));
    assert_eq!(scene.bridge(&sent).reason.unwrap().code, ReasonCode::OutcomeUnknown);
    assert_eq!(scene.letters().iter().map(|l| l.kind).collect::<Vec<_>>(), [DeadKind::Unknown]);
}

#[test]
fn an_agent_that_shows_nothing_until_the_grace_is_over_leaves_the_outcome_unknown() {
    let scene = Scene::new(Dedup::None);
    let sent = lost(&scene);
    scene.foresee((0..40).map(|_| (0, LookOutcome::Tasks(vec![]))));
    for _ in 0..40 {
        scene.pass(Span::of_secs(5));
        assert!(!sends(&scene.sweep(DueKind::Bridge)), "nothing is sent again");
    }
    let bridge = scene.bridge(&sent);
    assert_eq!((bridge.state, bridge.begun), (BridgeState::Failed, 1));
    assert_eq!(bridge.reason.unwrap().code, ReasonCode::OutcomeUnknown);
    assert!(scene.looked() > 2, "again and again: {}", scene.looked());
}

#[test]
fn a_message_that_the_agent_knows_again_is_sent_until_its_attempts_are_used_and_then_looked_for() {
    let scene = Scene::new(Dedup::MessageId);
    let sent = lost(&scene);
    let mut resent = 0;
    scene.foresee((0..40).map(|_| (0, LookOutcome::Tasks(vec![]))));
    for _ in 0..40 {
        scene.pass(Span::of_secs(5));
        resent += u32::from(sends(&scene.sweep(DueKind::Bridge)));
    }
    let bridge = scene.bridge(&sent);
    assert!(resent > 0 && scene.looked() > 0, "{bridge:?}");
    assert_eq!(bridge.begun, resent + 1);
    assert!(bridge.leases.iter().all(|l| l.message_id == bridge.message_id), "the same message");
}

/// A later turn whose attempt was given up for lost.
fn answer_lost(scene: &Scene) -> Sent {
    let sent = scene.out();
    scene.answer(&sent, 1, "theirs");
    look(scene, 5, LookOutcome::Task(task("theirs", ForeignState::InputRequired)));
    let (ports, hop) = (scene.ports.clone(), sent.hop);
    rig::run(&scene.shared, async move {
        let found = ports.store.load(org(), Find::Hop(hop)).await.unwrap().unwrap();
        let HopState::Asking(q) = found.task.0.hop(hop).unwrap().state.clone() else { panic!() };
        let walked = ports.walk(org(), Find::Hop(hop), |c, i, f, s| {
            decision::answer(c, i, f, s, q.id, &json!("yes"), &person("ann", &[])).map(|set| ((), set))
        });
        drop(walked.await.unwrap());
    });
    scene.pass(Span::of_secs(40));
    scene.sweep(DueKind::Bridge);
    assert!(matches!(scene.bridge(&sent).state, BridgeState::SendUnknown { .. }));
    sent
}

#[test]
fn whether_an_answer_arrived_is_told_by_its_message_id_in_the_history() {
    let scene = Scene::new(Dedup::None);
    let sent = answer_lost(&scene);
    look(&scene, 10, LookOutcome::Task(task("theirs", ForeignState::InputRequired)));
    let bridge = scene.bridge(&sent);
    assert!(matches!(bridge.state, BridgeState::SendUnknown { .. }), "the old question");
    let again = ForeignTask {
        message_ids: vec![bridge.message_id.to_string()],
        ..task("theirs", ForeignState::InputRequired)
    };
    look(&scene, 30, LookOutcome::Task(again));
    assert_eq!(scene.bridge(&sent).state, BridgeState::InputRequired, "it asks anew");
    assert!(scene.agent.asked().iter().all(|a| matches!(a, LookFor::Task(_))));
}

#[test]
fn an_answer_that_never_shows_goes_back_to_who_was_asked() {
    let scene = Scene::new(Dedup::None);
    let sent = answer_lost(&scene);
    scene.expect((0..60).map(|_| (0, ForeignState::InputRequired)));
    let asks = |s: &Scene| s.bridge(&sent).state == BridgeState::InputRequired;
    for _ in 0..40 {
        if asks(&scene) {
            break;
        }
        scene.pass(Span::of_secs(30));
        assert!(!sends(&scene.sweep(DueKind::Bridge)), "nothing is sent again");
    }
    let bridge = scene.bridge(&sent);
    assert_eq!(
        (bridge.state, bridge.reason.map(|r| r.code)),
        (BridgeState::InputRequired, Some(ReasonCode::AnswerUnknown))
    );
}

/// An operator says what became of it; what is to be done then, or why it isn't taken.
fn told(scene: &Scene, sent: &Sent, ran: Ran) -> Result<Vec<Act>, String> {
    let (ports, hop) = (scene.ports.clone(), sent.hop);
    rig::run(&scene.shared, async move {
        let walked = ports.walk(org(), Find::Hop(hop), |c, i, f, s| {
            decision::resolve(c, i, f, s, hop, ran, &"ops".parse().unwrap(), "their log").map(|set| ((), set))
        });
        walked.await.map(|((), acts)| acts).map_err(|e| e.to_string())
    })
}

#[test]
fn what_an_operator_knows_of_an_unknown_send_counts_in_that_state_and_in_no_other() {
    let scene = Scene::new(Dedup::None);
    let sent = scene.out();
    assert!(told(&scene, &sent, Ran::No).unwrap_err().contains("isn't unknown"));
    scene.pass(Span::of_secs(40));
    scene.sweep(DueKind::Bridge);
    assert!(sends(&told(&scene, &sent, Ran::No).unwrap()));
    let bridge = scene.bridge(&sent);
    assert!(bridge.leases.iter().all(|l| l.message_id == bridge.message_id), "the same message");
    assert_eq!(bridge.attempts[0].outcome, AttemptOutcome::NotSent);
    assert!(told(&scene, &sent, Ran::Yes).is_err(), "it is out again");
    scene.pass(Span::of_secs(40));
    scene.sweep(DueKind::Bridge);
    told(&scene, &sent, Ran::Yes).unwrap();
    assert_eq!(scene.bridge(&sent).state, BridgeState::Failed);
    assert_eq!(scene.letters().iter().map(|l| l.kind).collect::<Vec<_>>(), [DeadKind::Unknown]);
    assert!(told(&scene, &sent, Ran::No).is_err());
}

#[test]
fn an_answer_that_an_operator_says_arrived_is_looked_after_as_any_other() {
    let scene = Scene::new(Dedup::None);
    let sent = answer_lost(&scene);
    assert!(!sends(&told(&scene, &sent, Ran::Yes).unwrap()));
    assert_eq!(scene.bridge(&sent).state, BridgeState::Working);
    look(&scene, 30, LookOutcome::Task(task("theirs", ForeignState::Completed)));
    assert_eq!(scene.bridge(&sent).state, BridgeState::Completed);
    assert!(scene.letters().is_empty());
}
