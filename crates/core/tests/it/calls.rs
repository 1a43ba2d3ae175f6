//! How often each walk asks its ports: the speed of the whole rests on these numbers.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use exeat_core::approval::Choice;
use exeat_core::bridge::{Doorway, PushClaim};
use exeat_core::change::{ChangeSet, DueKind, Receipt, Refused, Row, Snapshot, Write};
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::exeat::{CancelPermit, Exeat, Look};
use exeat_core::id::{CallbackId, ChangeId, EnvelopeId, Ids, OrgName};
use exeat_core::payload::{Payload, Sha256Digest};
use exeat_core::ports::{DueRow, Find, Store, Unreadable};
use exeat_core::registry::{AgentEntry, CallbackTrust, Registry};
use exeat_core::time::{Span, Timestamp};
use exeat_core::transport::{CancelOutcome, LookOutcome, SendReport, Transport};
use exeat_core::walk::confirm::{self, Accepted, Pushed};
use exeat_core::walk::{Act, Committed, Ports, release, send, sweep};
use exeat_testkit::memory::Memory;
use exeat_testkit::sim::calls::ports;
use exeat_testkit::sim::faulty::Shared;
use exeat_testkit::sim::policy::{Says, Table};
use exeat_testkit::sim::run::{Kind, scene};
use exeat_testkit::sim::setting::{defaults, govern, org, person, policy};
use exeat_testkit::world::World;

use crate::rig;

/// Reads, commits, claims, exchanges, looks.
type Counts = [u64; 5];

struct Counting {
    memory: Memory,
    world: World,
    counts: [AtomicU64; 5],
    routes: Mutex<Vec<CallbackId>>,
}

impl Counting {
    fn one(&self, what: usize) {
        self.counts[what].fetch_add(1, Ordering::Relaxed);
    }
    fn take(&self) -> Counts {
        [0, 1, 2, 3, 4].map(|i| self.counts[i].swap(0, Ordering::Relaxed))
    }
}

#[async_trait]
impl Store for Counting {
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused> {
        self.one(1);
        let routes = set.writes.iter().filter_map(|w| match &w.row {
            Row::Route(r) => Some(r.callback.clone()),
            _ => None,
        });
        self.routes.lock().unwrap().extend(routes);
        self.memory.commit(set).await
    }
    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable> {
        self.one(0);
        self.memory.settled(org, change).await
    }
    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable> {
        self.one(0);
        self.memory.load(org, find).await
    }
    // The registry is held in memory by every store that is worth its name; it isn't a read of the record.
    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable> {
        self.memory.registry(org).await
    }
    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable> {
        self.one(2);
        self.memory.claim_due(kind, limit, hold).await
    }
    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable> {
        self.memory.next_due().await
    }
    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable> {
        self.memory.route(callback).await
    }
    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        n: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable> {
        self.one(0);
        self.memory.ready_envelopes(org, to, n).await
    }
    async fn now(&self) -> Result<Timestamp, Unreadable> {
        self.memory.now().await
    }
}

#[async_trait]
impl Transport for Counting {
    async fn send(&self, exeat: Exeat) -> SendReport {
        self.one(3);
        self.world.send(exeat).await
    }
    async fn look(&self, look: Look) -> LookOutcome {
        self.one(4);
        self.world.look(look).await
    }
    async fn cancel(&self, permit: CancelPermit) -> CancelOutcome {
        self.world.cancel(permit).await
    }
    async fn scrubbed(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        tokens: &[String],
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        self.world.scrubbed(org, agent, tokens, bytes).await
    }
}

struct Bench {
    shared: Shared,
    counting: Arc<Counting>,
    ports: Ports,
}

fn bench() -> Bench {
    let (shared, world) = scene(7, Kind::Plain, false);
    let counting = Arc::new(Counting {
        memory: shared.memory.clone(),
        world,
        counts: Default::default(),
        routes: Mutex::default(),
    });
    let ports = ports(&shared, counting.clone(), counting.clone());
    Bench { shared, counting, ports }
}

impl Bench {
    fn run<T: Send + 'static>(&self, job: impl Future<Output = T> + Send + 'static) -> T {
        rig::run(&self.shared, job)
    }

    fn start(&self, flow: &'static str) -> Vec<Act> {
        self.run(rig::begin(self.ports.clone(), flow))
    }

    fn send(&self, acts: Vec<Act>) -> Vec<Act> {
        let sending = acts.into_iter().find_map(|a| if let Act::Send(s) = a { Some(s) } else { None });
        let (ports, sending) = (self.ports.clone(), sending.expect("something to send"));
        self.run(async move {
            let recording = send::send(&ports, *sending, defaults().bounds.send_timeout).await.unwrap();
            send::record(&ports, &recording).await.unwrap()
        })
    }
}

#[test]
fn an_outbound_hop_is_one_read_two_commits_and_one_exchange() {
    let bench = bench();
    let acts = bench.start("hop-alpha");
    assert_eq!(bench.counting.take(), [0, 1, 0, 0, 0], "intent and lease are one commit");
    bench.send(acts);
    assert_eq!(bench.counting.take(), [1, 1, 0, 1, 0], "one exchange, and its outcome");
}

#[test]
fn a_callback_is_one_commit_on_the_request_and_reads_nothing_but_its_door() {
    let bench = bench();
    bench.send(bench.start("hop-alpha"));
    bench.counting.take();
    let callback = bench.counting.routes.lock().unwrap().first().cloned().unwrap();
    let ports = bench.ports.clone();
    let pushed = Pushed {
        claim: PushClaim::Completed,
        foreign_task: None,
        foreign_context: None,
        body: Some(Payload::of_text("done")),
        digest: Sha256Digest::of(b"event"),
    };
    let accepted = bench.run(async move {
        let door = ports.store.route(&callback).await.unwrap().unwrap();
        let again = confirm::accept(&ports, &door, CallbackTrust::Confirm, pushed.clone()).await.unwrap();
        drop(again);
        confirm::accept(&ports, &door, CallbackTrust::Confirm, pushed).await.unwrap()
    });
    assert!(
        matches!(accepted, Accepted::Stored(acts) if acts.is_empty()),
        "a duplicate is as good as stored"
    );
    assert_eq!(bench.counting.take(), [0, 2, 0, 0, 0]);
}

#[test]
fn an_approval_is_one_read_and_one_commit() {
    let bench = bench();
    let ask = policy(2, Table([Says::Allow, Says::Ask, Says::Allow]));
    let shared = bench.shared.clone();
    bench.run(async move { govern(&shared, vec![(0, ask)]).await.map(drop).unwrap() });
    assert!(!bench.start("hop-alpha").iter().any(|a| matches!(a, Act::Send(_))), "it waits for a person");
    bench.counting.take();
    let approval = bench.shared.memory.rows(org()).into_iter().find_map(|(_, r)| match r {
        Row::Approval(a) => Some(a),
        _ => None,
    });
    let approval = approval.expect("it waits for a person");
    let said = release::Said {
        approval: approval.id,
        who: person("ann", &["ops"]),
        choice: Choice::Approve,
        seen: approval.digest,
        reason: None,
    };
    let ports = bench.ports.clone();
    let acts = bench.run(async move { release::decide(&ports, org(), &said).await.unwrap() });
    assert_eq!(bench.counting.take(), [1, 1, 0, 0, 0]);
    assert!(acts.iter().any(|a| matches!(a, Act::Send(_))), "the release leases the attempt");
}

#[test]
fn a_tick_of_the_sweep_is_one_claim_per_kind_whatever_waits() {
    let bench = bench();
    for _ in 0..20 {
        bench.send(bench.start("hop-beta"));
    }
    bench.counting.take();
    let ports = bench.ports.clone();
    bench.run(async move {
        for kind in DueKind::ALL {
            drop(sweep::claim(&ports, kind, 64).await.unwrap());
        }
    });
    assert_eq!(bench.counting.take(), [0, 0, 6, 0, 0]);
}

#[test]
fn a_change_that_changes_nothing_is_not_committed() {
    let bench = bench();
    let ports = bench.ports.clone();
    let now = bench.shared.memory.clone();
    bench.run(async move {
        let at = Store::now(&now).await.unwrap();
        let set = ChangeSet::new(ChangeId::draw(&mut Ids::new(at, [1; 32])), org().clone(), at);
        assert!(matches!(ports.commit(set).await.unwrap(), Committed::Durable(acts) if acts.is_empty()));
        let mut set = ChangeSet::new(ChangeId::draw(&mut Ids::new(at, [2; 32])), org().clone(), at);
        set.writes.push(Write { expected: 0, row: Row::Setting("x".into(), true.into()) });
        ports.commit(set).await.map(drop).unwrap();
    });
    assert_eq!(bench.counting.take(), [0, 1, 0, 0, 0]);
}
