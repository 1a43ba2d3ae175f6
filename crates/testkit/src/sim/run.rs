//! One run: a seed's world, its replicas, workers and people, until all is over and at rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use exeat_core::change::Row;
use exeat_core::ports::{Clock as _, Store as _};
use exeat_core::task::TaskStatus;
use exeat_core::time::Span;

use futures::FutureExt as _;

use crate::memory::Memory;
use crate::sim::audit::Audit;
use crate::sim::calls::Cluster;
use crate::sim::chance::Chance;
use crate::sim::clock::VirtualClock;
use crate::sim::executor::{Executor, Owner};
use crate::sim::faulty::{Cells, Shared, Tally, Weather};
use crate::sim::setting::{self, defaults, org};
use crate::sim::{people, workers};
use crate::world::World;

/// Steps after which a run that isn't over is stuck.
const TOO_MANY: u64 = 200_000;

/// What became of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// What happened, by name.
    pub tally: BTreeMap<&'static str, u64>,
    /// What happened to bridges, by state and event.
    pub cells: Cells,
    /// What was committed, if it was to be told.
    pub trail: Vec<String>,
    /// How the tasks ended.
    pub ended: Vec<TaskStatus>,
    /// Edges in the ledger.
    pub edges: u64,
}

/// What kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One replica, one task of the line A → B → C, nothing goes wrong.
    Plain,
    /// Everything.
    Wild,
}

struct Stage {
    shared: Shared,
    world: World,
    executor: Executor,
    cluster: Cluster,
    replicas: usize,
}

/// Runs one seed to its end.
#[must_use]
pub fn run(seed: u64, kind: Kind, tell: bool) -> Report {
    let mut stage = set(seed, kind, tell);
    let calm_at = Span::of_secs(stage.shared.chance.pick(&[60, 150, 400]));
    let mut steps = 0_u64;
    loop {
        steps += 1;
        if stage.shared.clock.elapsed() >= calm_at && !stage.shared.weather.is_calm() {
            stage.calm();
        }
        let moved = stage.executor.step(&stage.shared.chance);
        stage.world.take_sent().iter().for_each(|s| stage.shared.audit.left(s));
        stage.bury_and_revive();
        if stage.shared.audit.has_failed() || steps > TOO_MANY {
            break;
        }
        if !moved {
            if stage.is_over() {
                break;
            }
            if !stage.shared.clock.advance() {
                stage.shared.audit.broken("nothing moves and nothing sleeps");
            }
        }
    }
    stage.report(steps)
}

/// An org that is set up, and the world around it.
#[must_use]
pub fn scene(seed: u64, kind: Kind, tell: bool) -> (Shared, World) {
    let chance = Arc::new(Chance::new(seed));
    let clock = VirtualClock::default();
    let (crash, lost) = match kind {
        Kind::Plain => (0, 0),
        Kind::Wild => (chance.pick(&[0, 2, 8]), chance.pick(&[0, 5, 25])),
    };
    let weather = Arc::new(Weather::new(crash, lost));
    if kind == Kind::Plain {
        weather.calm();
    }
    let shared = Shared {
        memory: Memory::new(Arc::new(clock.clone()), defaults()),
        audit: Audit::new(clock.clone(), tell),
        chance: Arc::clone(&chance),
        clock: clock.clone(),
        weather: Arc::clone(&weather),
        tally: Tally::default(),
    };
    let world = World::new(clock, chance, weather, shared.tally.clone());
    at_once(setting::set_up(&shared, kind == Kind::Plain));
    (shared, world)
}

fn set(seed: u64, kind: Kind, tell: bool) -> Stage {
    let (shared, world) = scene(seed, kind, tell);
    let executor = Executor::default();
    let spawner = executor.spawner();
    let cluster = Cluster::new(spawner.clone(), Arc::clone(&shared.chance));
    let replicas = if kind == Kind::Plain { 1 } else { 2 };
    (0..replicas).for_each(|_| cluster.start_one(&shared, &world));
    for w in workers::all(&shared, &cluster) {
        spawner.spawn(Owner::World, w.work());
    }
    spawner.spawn(Owner::World, people::look_after(shared.clone(), cluster.clone()));
    spawner.spawn(Owner::World, people::carry(shared.clone(), cluster.clone(), world.clone()));
    if kind == Kind::Wild && shared.chance.permille(40) {
        let s = shared.clone();
        spawner.spawn(Owner::World, async move { setting::drop_a_skill_while_halted(&s).await });
    }
    let tasks = if kind == Kind::Plain { vec![("line", None)] } else { people::some_tasks(&shared) };
    for (flow, budget) in tasks {
        let (s, c) = (shared.clone(), cluster.clone());
        spawner.spawn(Owner::World, async move {
            let late = s.chance.span(Span::of_secs(20));
            s.clock.sleep(late).await;
            people::begin(s, c, flow, budget).await;
        });
    }
    Stage { shared, world, executor, cluster, replicas }
}

impl Stage {
    fn calm(&self) {
        self.shared.audit.trail(|| "calm".to_owned());
        self.shared.weather.calm();
        at_once(setting::switch_on(&self.shared));
    }

    fn bury_and_revive(&mut self) {
        for run in self.cluster.take_stopped() {
            self.shared.audit.trail(|| format!("replica {run} stops"));
            self.shared.tally.one("crashes");
            self.executor.stop(Owner::Replica(run));
            let (shared, world, cluster) = (self.shared.clone(), self.world.clone(), self.cluster.clone());
            self.executor.spawner().spawn(Owner::World, async move {
                let down = shared.chance.span(Span::of_secs(20));
                shared.clock.sleep(down).await;
                cluster.start_one(&shared, &world);
            });
        }
        debug_assert!(self.replicas > 0);
    }

    /// Has everything ended, with nothing left that is due?
    fn is_over(&self) -> bool {
        let begun = self.shared.clock.elapsed() > Span::of_secs(45);
        // By promise P4 whatever hasn't ended is due.
        begun && at_once(self.shared.memory.next_due()).is_ok_and(|due| due.is_none())
    }

    fn report(self, steps: u64) -> Report {
        let audit = &self.shared.audit;
        let mut broken = audit.failures();
        if steps > TOO_MANY {
            let now = self.shared.clock.now();
            let due: Vec<_> =
                self.shared.memory.rows(org()).into_iter().filter(|(_, r)| r.due_at().is_some()).collect();
            broken.push(format!("stuck after {steps} steps at {now}: {due:#?}"));
        } else if broken.is_empty() {
            broken.extend(at_once(audit.at_rest(&self.shared.memory, org())));
            broken.extend(self.world.doubled_looks().iter().map(|h| format!("two looks at once at hop {h}")));
            for (message, made) in self.world.made() {
                if made > 1 {
                    broken.push(format!("message {message} became {made} pieces of work"));
                }
            }
        }
        let rows = self.shared.memory.rows(org());
        let count =
            |f: fn(&Row) -> bool| u64::try_from(rows.iter().filter(|(_, r)| f(r)).count()).unwrap_or(0);
        let mut tally = self.shared.tally.all();
        tally.insert("steps", steps);
        tally.insert("approvals", count(|r| matches!(r, Row::Approval(_))));
        tally.insert("dead letters", count(|r| matches!(r, Row::DeadLetter(_))));
        let ended = audit.of_tasks(|t| vec![t.status]);
        Report {
            broken,
            tally,
            cells: self.shared.tally.cells(),
            trail: audit.told(),
            ended,
            edges: audit.edges(),
        }
    }
}

/// The record in memory answers at once.
fn at_once<T>(asked: impl Future<Output = T>) -> T {
    asked.now_or_never().expect("the record in memory never waits")
}
