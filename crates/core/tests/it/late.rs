//! Answers that come when something else has happened: they are never taken for what they aren't, and no task of ours
//! that nobody waits for is left to run.

use std::sync::Arc;

use exeat_core::bridge::{Bridge, BridgeState, CancelIntent};
use exeat_core::change::{DueKind, Row};
use exeat_core::gate::exeat::Interface;
use exeat_core::payload::Payload;
use exeat_core::ports::Store as _;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, Dedup, Terms};
use exeat_core::time::Span;
use exeat_core::transport::{ForeignState, ForeignTask, SendOutcome, SendReport};
use exeat_core::walk::{Act, Ports, Recording, send, sweep};
use exeat_testkit::sim::calls::ports;
use exeat_testkit::sim::faulty::Shared;
use exeat_testkit::sim::run::{Kind, scene};
use exeat_testkit::sim::setting::{govern, name, org};

use crate::rig;

struct Scene {
    shared: Shared,
    ports: Ports,
}

impl Scene {
    /// An agent that may be sent the same message again.
    fn new() -> Self {
        let (shared, world) = scene(7, Kind::Plain, false);
        let ports = ports(&shared, Arc::new(shared.memory.clone()), Arc::new(world));
        let s = shared.clone();
        rig::run(&shared, async move {
            let registry = s.memory.registry(org()).await.unwrap();
            let old = AgentEntry::clone(registry.agent(&name("alpha")).unwrap());
            let terms = Terms { dedup: Dedup::MessageId, ..old.terms.clone() };
            govern(&s, vec![(0, Row::Agent(AgentEntry { version: old.version + 1, terms, ..old }))])
                .await
                .unwrap();
        });
        Self { shared, ports }
    }

    /// A hop whose first attempt is out.
    fn out(&self) -> Sent {
        Sent::of(&rig::run(&self.shared, rig::begin(self.ports.clone(), "hop-alpha")))
    }

    fn pass(&self, span: Span) {
        let clock = self.shared.clock.clone();
        rig::run(&self.shared, async move { clock.sleep(span).await });
    }

    /// Handles whatever is due of a kind.
    fn sweep(&self, kind: DueKind) -> Vec<Act> {
        let ports = self.ports.clone();
        rig::run(&self.shared, async move {
            let mut acts = Vec::new();
            for act in sweep::claim(&ports, kind, 64).await.unwrap() {
                if let Act::Handle(row) = act {
                    acts.extend(sweep::handle(&ports, row).await.unwrap());
                }
            }
            acts
        })
    }

    /// The first attempt is given up for lost, and the message is sent again.
    fn again(&self) -> Sent {
        self.pass(Span::of_secs(30));
        self.sweep(DueKind::Bridge);
        self.pass(Span::of_secs(30));
        Sent::of(&self.sweep(DueKind::Bridge))
    }

    fn answer(&self, to: &Sent, n: u32, task: &str) {
        let task = ForeignTask {
            id: task.to_owned(),
            context: None,
            state: ForeignState::Working,
            output: Payload::of_text(""),
            message_ids: Vec::new(),
            reported_microusd: None,
        };
        let interface = Interface {
            url: "https://alpha.example/a2a".to_owned(),
            binding: "JSONRPC".to_owned(),
            version: "1.0".to_owned(),
            tenant: None,
        };
        let report = SendReport {
            interface: Some(interface),
            ..SendReport::bare(SendOutcome::Task(task), "answered")
        };
        let (ports, recording) =
            (self.ports.clone(), Recording { org: org().clone(), hop: to.hop, n, report });
        rig::run(&self.shared, async move { send::record(&ports, &recording).await.map(drop).unwrap() });
    }

    fn bridge(&self, of: &Sent) -> Bridge {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Bridge(b) = r { Some(b) } else { None })
            .find(|b| b.hop == of.hop)
            .unwrap()
    }

    fn cancels(&self) -> Vec<CancelIntent> {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Cancel(c) = r { Some(c) } else { None }).collect()
    }
}

struct Sent {
    hop: exeat_core::id::HopId,
    n: u32,
}

impl Sent {
    fn of(acts: &[Act]) -> Self {
        let sending = acts.iter().find_map(|a| if let Act::Send(s) = a { Some(s) } else { None });
        let id = sending.expect("something to send").lease.id();
        Self { hop: id.hop, n: id.n }
    }
}

fn foreign(b: &Bridge) -> Option<&str> {
    b.foreign.as_ref().map(|f| f.task.as_str())
}

#[test]
fn a_late_answer_that_names_a_second_task_has_that_one_canceled_and_once() {
    let scene = Scene::new();
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
    let scene = Scene::new();
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
