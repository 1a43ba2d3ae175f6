//! Answers that come when something else has happened: they are never taken for what they aren't, and no task of ours
//! that nobody waits for is left to run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use exeat_core::bridge::{Bridge, BridgeState, CancelIntent, InboxRow, PushClaim};
use exeat_core::change::{DueKind, Row};
use exeat_core::gate::exeat::{CancelPermit, Exeat, Interface, Look};
use exeat_core::id::{CallbackId, HopId, OrgName};
use exeat_core::payload::{Payload, Sha256Digest};
use exeat_core::ports::{Find, Store as _};
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, CallbackTrust, Dedup, Terms};
use exeat_core::task::{HopState, decision};
use exeat_core::time::Span;
use exeat_core::transport::{
    CancelOutcome, ForeignState, ForeignTask, LookOutcome, SendOutcome, SendReport, Transport,
};
use exeat_core::walk::confirm::{self, Pushed};
use exeat_core::walk::{Act, Ports, Recording, send, sweep};
use exeat_testkit::sim::calls::ports;
use exeat_testkit::sim::faulty::Shared;
use exeat_testkit::sim::run::{Kind, scene};
use exeat_testkit::sim::setting::{govern, name, org, person};

use serde_json::json;

use crate::rig;

/// An agent whose looks take as long, and bring, what was said; nothing else is asked of it.
struct Slow {
    shared: Shared,
    looks: Mutex<VecDeque<(Span, LookOutcome)>>,
    looked: AtomicU64,
}

#[async_trait]
impl Transport for Slow {
    async fn send(&self, _: Exeat) -> SendReport {
        panic!("sent")
    }
    async fn look(&self, _: Look) -> LookOutcome {
        self.looked.fetch_add(1, Ordering::Relaxed);
        let (span, outcome) = self.looks.lock().unwrap().pop_front().expect("a look that was foreseen");
        self.shared.clock.sleep(span).await;
        outcome
    }
    async fn cancel(&self, _: CancelPermit) -> CancelOutcome {
        CancelOutcome::Over
    }
    async fn scrubbed(&self, _: &OrgName, _: &AgentEntry, _: &[String], said: Vec<u8>) -> Option<Vec<u8>> {
        Some(said)
    }
}

struct Scene {
    shared: Shared,
    ports: Ports,
    agent: Arc<Slow>,
}

impl Scene {
    /// An agent that may be sent the same message again.
    fn new() -> Self {
        let (shared, _) = scene(7, Kind::Plain, false);
        let agent =
            Arc::new(Slow { shared: shared.clone(), looks: Mutex::default(), looked: AtomicU64::new(0) });
        let ports = ports(&shared, Arc::new(shared.memory.clone()), agent.clone());
        let s = shared.clone();
        rig::run(&shared, async move {
            let registry = s.memory.registry(org()).await.unwrap();
            let old = AgentEntry::clone(registry.agent(&name("alpha")).unwrap());
            let terms = Terms { dedup: Dedup::MessageId, ..old.terms.clone() };
            govern(&s, vec![(0, Row::Agent(AgentEntry { version: old.version + 1, terms, ..old }))])
                .await
                .unwrap();
        });
        Self { shared, ports, agent }
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
        rig::run(&self.shared, swept(self.ports.clone(), kind))
    }

    /// The looks that the agent is to get: how long each takes, and what it brings.
    fn expect(&self, looks: impl IntoIterator<Item = (u64, ForeignState)>) {
        let of = |(s, state)| (Span::of_secs(s), LookOutcome::Task(task("theirs", state)));
        self.agent.looks.lock().unwrap().extend(looks.into_iter().map(of));
    }

    fn looked(&self) -> u64 {
        self.agent.looked.load(Ordering::Relaxed)
    }

    fn inbox(&self) -> Vec<InboxRow> {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Inbox(i) = r { Some(i) } else { None }).collect()
    }

    /// The first attempt is given up for lost, and the message is sent again.
    fn again(&self) -> Sent {
        self.pass(Span::of_secs(30));
        self.sweep(DueKind::Bridge);
        self.pass(Span::of_secs(30));
        Sent::of(&self.sweep(DueKind::Bridge))
    }

    fn answer(&self, to: &Sent, n: u32, named: &'static str) {
        rig::run(&self.shared, answered(self.ports.clone(), to.hop, n, named));
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

/// The agent's answer to an attempt: it works on that task.
async fn answered(ports: Ports, hop: HopId, n: u32, named: &'static str) {
    let interface = Interface {
        url: "https://alpha.example/a2a".to_owned(),
        binding: "JSONRPC".to_owned(),
        version: "1.0".to_owned(),
        tenant: None,
    };
    let outcome = SendOutcome::Task(task(named, ForeignState::Working));
    let report = SendReport { interface: Some(interface), ..SendReport::bare(outcome, "answered") };
    let recording = Recording { org: org().clone(), hop, n, report };
    send::record(&ports, &recording).await.map(drop).unwrap();
}

async fn swept(ports: Ports, kind: DueKind) -> Vec<Act> {
    let mut acts = Vec::new();
    for act in sweep::claim(&ports, kind, 64).await.unwrap() {
        if let Act::Handle(row) = act {
            acts.extend(sweep::handle(&ports, row).await.unwrap());
        }
    }
    acts
}

fn task(id: &str, state: ForeignState) -> ForeignTask {
    ForeignTask {
        id: id.to_owned(),
        context: None,
        state,
        output: Payload::of_text("said"),
        message_ids: Vec::new(),
        reported_microusd: None,
    }
}

struct Sent {
    hop: HopId,
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
    let scene = Scene::new();
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
            assert_eq!(agent.looked.load(Ordering::Relaxed), 1, "another is out");
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
    let scene = Scene::new();
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
    let scene = Scene::new();
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
