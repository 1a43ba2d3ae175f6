//! One agent whose looks are foreseen, a record in memory, and hops that set out, are answered late or not at all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use exeat_core::bridge::{Bridge, CancelIntent, InboxRow};
use exeat_core::change::{DeadLetter, DueKind, Row};
use exeat_core::gate::exeat::{CancelPermit, Exeat, Interface, Look, LookFor};
use exeat_core::id::{HopId, OrgName};
use exeat_core::payload::Payload;
use exeat_core::ports::Store as _;
use exeat_core::registry::{AgentEntry, ContextChoice, Dedup, Terms};
use exeat_core::time::Span;
use exeat_core::transport::{
    CancelOutcome, ForeignState, ForeignTask, LookOutcome, SendOutcome, SendReport, Transport,
};
use exeat_core::walk::{Act, Ports, Recording, send, sweep};
use exeat_testkit::sim::calls::ports;
use exeat_testkit::sim::faulty::Shared;
use exeat_testkit::sim::run::{Kind, scene};
use exeat_testkit::sim::setting::{govern, name, org};

use crate::rig;

/// An agent whose looks take as long, and bring, what was said; nothing else is asked of it.
pub(crate) struct Slow {
    shared: Shared,
    looks: Mutex<VecDeque<(Span, LookOutcome)>>,
    asked: Mutex<Vec<LookFor>>,
}

impl Slow {
    /// What it was asked for, in order.
    pub(crate) fn asked(&self) -> Vec<LookFor> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Transport for Slow {
    async fn send(&self, _: Exeat) -> SendReport {
        panic!("sent")
    }
    async fn look(&self, look: Look) -> LookOutcome {
        self.asked.lock().unwrap().push(look.ask().clone());
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

pub(crate) struct Scene {
    pub(crate) shared: Shared,
    pub(crate) ports: Ports,
    pub(crate) agent: Arc<Slow>,
}

impl Scene {
    /// Of an agent that knows a message again, or doesn't.
    pub(crate) fn new(dedup: Dedup) -> Self {
        let (shared, _) = scene(7, Kind::Plain, false);
        let agent =
            Arc::new(Slow { shared: shared.clone(), looks: Mutex::default(), asked: Mutex::default() });
        let ports = ports(&shared, Arc::new(shared.memory.clone()), agent.clone());
        let s = shared.clone();
        rig::run(&shared, async move {
            let registry = s.memory.registry(org()).await.unwrap();
            let old = AgentEntry::clone(registry.agent(&name("alpha")).unwrap());
            let terms = Terms { dedup, context: ContextChoice::Auto, ..old.terms.clone() };
            govern(&s, vec![(0, Row::Agent(AgentEntry { version: old.version + 1, terms, ..old }))])
                .await
                .unwrap();
        });
        Self { shared, ports, agent }
    }

    /// A hop whose first attempt is out.
    pub(crate) fn out(&self) -> Sent {
        Sent::of(&rig::run(&self.shared, rig::begin(self.ports.clone(), "hop-alpha")))
    }

    pub(crate) fn pass(&self, span: Span) {
        let clock = self.shared.clock.clone();
        rig::run(&self.shared, async move { clock.sleep(span).await });
    }

    /// How long an unknown send is wondered about.
    pub(crate) fn grace(&self) -> Span {
        let store = self.ports.store.clone();
        let registry = rig::run(&self.shared, async move { store.registry(org()).await.unwrap() });
        registry.bounds.unknown_grace
    }

    /// Handles whatever is due of a kind.
    pub(crate) fn sweep(&self, kind: DueKind) -> Vec<Act> {
        rig::run(&self.shared, swept(self.ports.clone(), kind))
    }

    /// The looks that the agent is to get: how long each takes, and what it brings.
    pub(crate) fn expect(&self, looks: impl IntoIterator<Item = (u64, ForeignState)>) {
        self.foresee(looks.into_iter().map(|(s, state)| (s, LookOutcome::Task(task("theirs", state)))));
    }

    pub(crate) fn foresee(&self, looks: impl IntoIterator<Item = (u64, LookOutcome)>) {
        let of = |(s, outcome)| (Span::of_secs(s), outcome);
        self.agent.looks.lock().unwrap().extend(looks.into_iter().map(of));
    }

    pub(crate) fn looked(&self) -> usize {
        self.agent.asked().len()
    }

    pub(crate) fn inbox(&self) -> Vec<InboxRow> {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Inbox(i) = r { Some(i) } else { None }).collect()
    }

    /// The first attempt is given up for lost, and the message is sent again.
    pub(crate) fn again(&self) -> Sent {
        self.pass(Span::of_secs(30));
        self.sweep(DueKind::Bridge);
        self.pass(Span::of_secs(30));
        Sent::of(&self.sweep(DueKind::Bridge))
    }

    pub(crate) fn answer(&self, to: &Sent, n: u32, named: &'static str) {
        rig::run(&self.shared, answered(self.ports.clone(), to.hop, n, named));
    }

    pub(crate) fn bridge(&self, of: &Sent) -> Bridge {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Bridge(b) = r { Some(b) } else { None })
            .find(|b| b.hop == of.hop)
            .unwrap()
    }

    pub(crate) fn letters(&self) -> Vec<DeadLetter> {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::DeadLetter(d) = r { Some(d) } else { None }).collect()
    }

    pub(crate) fn cancels(&self) -> Vec<CancelIntent> {
        let rows = self.shared.memory.rows(org()).into_iter();
        rows.filter_map(|(_, r)| if let Row::Cancel(c) = r { Some(c) } else { None }).collect()
    }
}

/// The agent's answer to an attempt: it works on that task.
pub(crate) async fn answered(ports: Ports, hop: HopId, n: u32, named: &'static str) {
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

pub(crate) async fn swept(ports: Ports, kind: DueKind) -> Vec<Act> {
    let mut acts = Vec::new();
    for act in sweep::claim(&ports, kind, 64).await.unwrap() {
        if let Act::Handle(row) = act {
            acts.extend(sweep::handle(&ports, row).await.unwrap());
        }
    }
    acts
}

pub(crate) fn task(id: &str, state: ForeignState) -> ForeignTask {
    ForeignTask {
        id: id.to_owned(),
        context: None,
        state,
        output: Payload::of_text("said"),
        message_ids: Vec::new(),
        reported_microusd: None,
    }
}

pub(crate) struct Sent {
    pub(crate) hop: HopId,
    pub(crate) n: u32,
}

impl Sent {
    pub(crate) fn of(acts: &[Act]) -> Self {
        let sending = acts.iter().find_map(|a| if let Act::Send(s) = a { Some(s) } else { None });
        let id = sending.expect("something to send").lease.id();
        Self { hop: id.hop, n: id.n }
    }
}

pub(crate) fn foreign(b: &Bridge) -> Option<&str> {
    b.foreign.as_ref().map(|f| f.task.as_str())
}
