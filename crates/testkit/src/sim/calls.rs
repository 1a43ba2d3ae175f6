//! A replica: its ports, the acts that it runs as the server's runtime does, and the calls that reach it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use exeat_core::change::DueKind;
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::exeat::PushTarget;
use exeat_core::id::{AgentKey, CallbackId, EnvelopeId, OrgName};
use exeat_core::ports::{Bus, Clock as _, Store};
use exeat_core::registry::Registry;
use exeat_core::time::{Span, Timestamp};
use exeat_core::transport::Transport;
use exeat_core::walk::{Act, Ports, PushDoor, Rooms, Stopped, relay, send, sweep};
use futures::channel::oneshot;

use crate::sim::chance::Chance;
use crate::sim::executor::{Owner, Spawner};
use crate::sim::faulty::{Faulty, Shared};
use crate::sim::policy::{Required, Tables};
use crate::sim::setting::{ReadOnce, defaults};
use crate::world::World;

/// Pauses between tries to write down an attempt's outcome.
const RECORD_AGAIN: [u64; 6] = [10, 50, 250, 1_000, 2_000, 4_000];

/// Rings nobody: workers ask for themselves.
struct Deaf;

#[async_trait]
impl Bus for Deaf {
    async fn ring(&self, _: &OrgName, _: &Endpoint, _: EnvelopeId) {}
    async fn wait(&self, _: &OrgName, _: &[Endpoint], _: Span) -> Option<EnvelopeId> {
        None
    }
}

struct Door;

impl PushDoor for Door {
    fn target(&self, _: &OrgName, callback: &CallbackId, _: Timestamp) -> Option<PushTarget> {
        Some(PushTarget { url: format!("https://us.example/{callback}"), token: "token".into() })
    }
    fn told(&self, org: &OrgName, callback: &CallbackId, until: Timestamp) -> Vec<PushTarget> {
        self.target(org, callback, until).into_iter().collect()
    }
}

/// Says that there is no room now and then.
struct Crowded(Shared);

impl Rooms for Crowded {
    fn has_room(&self, _: &Registry, _: &AgentKey) -> bool {
        self.0.weather.is_calm() || !self.0.chance.permille(150)
    }
}

/// Ports on the simulated world, over a store and a transport.
#[must_use]
pub fn ports(shared: &Shared, store: Arc<dyn Store>, transport: Arc<dyn Transport>) -> Ports {
    Ports {
        store,
        transport,
        governors: Arc::new(Tables),
        schemas: Arc::new(Required),
        flows: Arc::new(ReadOnce),
        door: Arc::new(Door),
        rooms: Arc::new(Crowded(shared.clone())),
        bus: Arc::new(Deaf),
        clock: Arc::new(shared.clock.clone()),
        entropy: Arc::clone(&shared.chance) as Arc<dyn exeat_core::ports::Entropy>,
    }
}

/// One run of a replica.
#[derive(Clone)]
pub struct Replica {
    /// Its ports.
    pub ports: Ports,
    /// Its number among all runs.
    pub run: u32,
    /// Set once it is to stop.
    pub stopped: Arc<AtomicBool>,
    shared: Shared,
    spawner: Spawner,
}

impl Replica {
    /// Starts one.
    #[must_use]
    pub fn start(shared: &Shared, world: &World, spawner: &Spawner, run: u32) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let store = Arc::new(Faulty::new(shared.clone(), Arc::clone(&stopped)));
        let ports = ports(shared, store, Arc::new(world.clone()));
        let replica = Self { ports, run, stopped, shared: shared.clone(), spawner: spawner.clone() };
        let own = replica.clone();
        replica.spawner.spawn(Owner::Replica(run), async move { own.sweep().await });
        replica
    }

    /// The sweep: claims what is due, sleeps until more is.
    async fn sweep(&self) {
        loop {
            let due = self.ports.store.next_due().await.ok().flatten();
            let wait = due.map_or(Span::of_secs(5), |d| d.since(self.shared.clock.now()));
            if wait > Span::ZERO {
                self.shared.clock.sleep(wait.clamp(Span::of_millis(20), Span::of_secs(60))).await;
                continue;
            }
            for kind in DueKind::ALL {
                if let Ok(acts) = sweep::claim(&self.ports, kind, 8).await {
                    self.run_all(acts);
                }
            }
            self.shared.clock.sleep(Span::of_millis(20)).await;
        }
    }

    /// Runs acts, each on its own.
    pub fn run_all(&self, acts: Vec<Act>) {
        for act in acts {
            let own = self.clone();
            self.spawner.spawn(Owner::Replica(self.run), async move {
                own.act(act).await;
            });
        }
    }

    async fn act(&self, act: Act) {
        let done = match act {
            Act::Send(sending) => {
                match send::send(&self.ports, *sending, defaults().bounds.send_timeout).await {
                    Ok(recording) => Ok(vec![Act::Record(Box::new(recording))]),
                    Err(e) => Err(e),
                }
            }
            Act::Record(recording) => {
                let mut done = send::record(&self.ports, &recording).await;
                for pause in RECORD_AGAIN {
                    if !matches!(&done, Err(Stopped::Unreadable(_) | Stopped::Commit(_))) {
                        break;
                    }
                    self.shared.clock.sleep(Span::of_millis(pause)).await;
                    done = send::record(&self.ports, &recording).await;
                }
                done
            }
            Act::Ring(org, envelope, to) => {
                relay::ring(&self.ports, &org, envelope, &to).await;
                Ok(Vec::new())
            }
            Act::Due(kind) => sweep::claim(&self.ports, kind, 8).await,
            Act::Handle(row) => sweep::handle(&self.ports, row).await,
            Act::Tell(..) => Ok(Vec::new()),
        };
        match done {
            Ok(acts) => self.run_all(acts),
            Err(e) => note(&self.shared, &e),
        }
    }
}

/// A walk may stop for want of the record, or because others were faster; anything else is a fault of ours.
pub fn note(shared: &Shared, stopped: &Stopped) {
    use exeat_core::change::Refused;
    use exeat_core::task::desk::Refusal;
    match stopped {
        Stopped::Unreadable(_) | Stopped::Commit(Refused::Unavailable(_) | Refused::Unknown(_)) => {
            shared.tally.one("walks without the record");
        }
        Stopped::Busy => shared.audit.broken("a walk gave up: the rows moved too often"),
        Stopped::Refused(Refusal::Wrong(_) | Refusal::NotFound(_))
        | Stopped::NotFound(_)
        | Stopped::Commit(_) => {
            shared.audit.broken(format!("a walk stopped: {stopped}"));
        }
        Stopped::Refused(_) => shared.tally.one("refusals"),
    }
}

/// The replicas that are up, and how to call one.
#[derive(Clone)]
pub struct Cluster {
    up: Arc<Mutex<Vec<Replica>>>,
    spawner: Spawner,
    chance: Arc<Chance>,
    runs: Arc<AtomicU32>,
}

impl Cluster {
    /// None is up yet.
    #[must_use]
    pub fn new(spawner: Spawner, chance: Arc<Chance>) -> Self {
        Self { up: Arc::default(), spawner, chance, runs: Arc::default() }
    }

    /// Starts one more.
    pub fn start_one(&self, shared: &Shared, world: &World) {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let replica = Replica::start(shared, world, &self.spawner, run);
        self.up.lock().unwrap_or_else(PoisonError::into_inner).push(replica);
    }

    /// Takes out those that have stopped.
    #[must_use]
    pub fn take_stopped(&self) -> Vec<u32> {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = up.iter().filter(|r| r.stopped.load(Ordering::Relaxed)).map(|r| r.run).collect();
        up.retain(|r| !r.stopped.load(Ordering::Relaxed));
        gone
    }

    /// Calls a replica. `None`: none is up, or it stopped before it answered; nobody knows what it did.
    pub async fn call<T, F>(&self, what: impl FnOnce(Replica) -> F + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let replica = {
            let up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
            if up.is_empty() {
                return None;
            }
            self.chance.pick(&up)
        };
        let (tx, rx) = oneshot::channel();
        self.spawner.spawn(Owner::Replica(replica.run), async move {
            let _ = tx.send(what(replica).await);
        });
        rx.await.ok()
    }
}
