//! The file and the reference give the same answers to the same calls, down to the chain's hashes.

use std::sync::Arc;

use exeat_core::bridge::Bridge;
use exeat_core::change::{DueKind, Expect, Key, Row};
use exeat_core::cost::{Account, Scope, reserve};
use exeat_core::ports::{Find, Store as _};
use exeat_core::task::Task;
use exeat_core::time::{Span, Timestamp};
use exeat_testkit::contract::fixtures::Maker;
use exeat_testkit::contract::{Bench as _, HandClock, Record, defaults, org};
use exeat_testkit::memory::Memory;
use proptest::prelude::*;

use crate::contract::OnDisk;

#[derive(Clone, Debug)]
enum Call {
    /// Writes a task, sure of a version, due in so many seconds, with a record and an event.
    Task { which: usize, expected: u64, due: Option<u64> },
    /// Relies on a task's version, and reserves within a limit.
    Spend { which: usize, version: u64, amount: u64, limit: u64 },
    /// Records an edge, and a child of another.
    Edge { turn: u32, child: u32 },
    /// Stores a pushed event.
    Push { event: u8 },
    /// Claims.
    Claim { kind: DueKind, hold: u64 },
    /// Lets time pass, or turns the clock back.
    Pass { seconds: i64 },
}

fn call() -> impl Strategy<Value = Call> {
    let due = proptest::option::of(0..20_u64);
    let kind = prop_oneof![Just(DueKind::Task), Just(DueKind::Inbox), Just(DueKind::Bridge)];
    prop_oneof![
        4 => (0..3_usize, 0..4_u64, due).prop_map(|(which, expected, due)| Call::Task { which, expected, due }),
        2 => (0..3_usize, 0..3_u64, 0..9_u64, 5..30_u64)
            .prop_map(|(which, version, amount, limit)| Call::Spend { which, version, amount, limit }),
        2 => (0..4_u32, 0..4_u32).prop_map(|(turn, child)| Call::Edge { turn, child }),
        1 => (0..3_u8).prop_map(|event| Call::Push { event }),
        2 => (kind, 0..15_u64).prop_map(|(kind, hold)| Call::Claim { kind, hold }),
        1 => (-5..15_i64).prop_map(|seconds| Call::Pass { seconds }),
    ]
}

struct Play {
    m: Maker,
    clock: Arc<HandClock>,
    tasks: Vec<Task>,
    bridge: Bridge,
}

impl Play {
    /// Makes one call on both, and says how they answered.
    async fn make(&mut self, both: [&dyn Record; 2], call: &Call) -> [String; 2] {
        let account = Account { scope: Scope::Org, since: Timestamp::EPOCH };
        let mut set = self.m.set();
        match *call {
            Call::Pass { seconds } => {
                let to = Timestamp::of_micros(
                    exeat_core::ports::Clock::now(&*self.clock).micros() + seconds * 1_000_000,
                );
                self.clock.set(to);
                return Default::default();
            }
            Call::Claim { kind, hold } => {
                let mut answers = Vec::new();
                for record in both {
                    let mut rows = record.claim_due(kind, 100, Span::of_secs(hold)).await.unwrap();
                    rows.sort_by(|a, b| a.key.cmp(&b.key));
                    answers.push(format!("{rows:?}"));
                }
                return answers.try_into().unwrap();
            }
            Call::Task { which, expected, due } => {
                let due_at = due.map(|d| self.m.at + Span::of_secs(d));
                let task = Task { due_at, ..self.tasks[which].clone() };
                set = self.m.over(expected, Row::Task(task.clone()));
                set.drafts.push(self.m.note(&set, Some(task.id)));
                set.events.push(self.m.event(task.id, expected));
            }
            Call::Spend { which, version, amount, limit } => {
                set.expects.push(Expect { key: Key::Task(self.tasks[which].id), version });
                set.costs.push(reserve(self.bridge.hop, 1, amount, vec![(account, Some(limit))]));
            }
            Call::Edge { turn, child } => {
                let key = |turn| self.m.edge_key(self.bridge.task, self.bridge.hop, turn);
                set.drafts.push(self.m.edge(&set, key(turn)));
                let data = exeat_core::ledger::data::CostEntry::Reserve;
                set.drafts.push(self.m.cost(&set, key(child), data, 1));
            }
            Call::Push { event } => {
                let row = self.m.inbox(self.bridge.hop, &event.to_string());
                set = self.m.writing([Row::Inbox(row)]);
            }
        }
        let mut answers = Vec::new();
        for record in both {
            answers.push(match record.commit(set.clone()).await {
                Ok(receipt) => format!("{:?}", receipt.seqs),
                Err(refused) => format!("{refused:?}"),
            });
        }
        answers.try_into().unwrap()
    }
}

/// All that can be seen of a record.
async fn seen(record: &dyn Record, play: &Play) -> Vec<String> {
    let mut all = vec![
        format!("{:?}", record.head(&org()).await.unwrap()),
        format!("{:?}", record.now().await.unwrap()),
        format!("{:?}", record.next_due().await.unwrap()),
        format!("{:?}", record.records(&org(), 1, 1_000).await.unwrap()),
    ];
    let account = Account { scope: Scope::Org, since: Timestamp::EPOCH };
    all.push(format!("{:?}", record.balance(&org(), &account).await.unwrap()));
    for task in &play.tasks {
        all.push(format!("{:?}", record.load(&org(), Find::Task(task.id)).await.unwrap()));
        all.push(format!("{:?}", record.events(&org(), task.id, 0, 1_000).await.unwrap()));
    }
    all.push(format!("{:?}", record.load(&org(), Find::Hop(play.bridge.hop)).await.unwrap()));
    all
}

async fn play(calls: Vec<Call>) -> Result<(), TestCaseError> {
    let clock = Arc::new(HandClock::new());
    let mut disk = OnDisk::open(Arc::clone(&clock)).await;
    let memory = Memory::new(Arc::<HandClock>::clone(&clock), defaults());
    let mut m = Maker::new(memory.now().await.unwrap(), 1);
    let tasks: Vec<_> = (0..3).map(|_| m.task()).collect();
    let home = m.task();
    let bridge = Bridge { due_at: Some(m.at), ..m.bridge(home.id) };
    let first = m.writing([Row::Agent(m.agent(1)), Row::Task(home), Row::Bridge(bridge.clone())]);
    disk.store.commit(first.clone()).await.unwrap();
    memory.commit(first).await.unwrap();
    let mut play = Play { m, clock, tasks, bridge };
    for call in calls {
        let [file, reference] = play.make([&*disk.store, &memory], &call).await;
        prop_assert_eq!(file, reference, "{:?}", call);
    }
    prop_assert_eq!(seen(&*disk.store, &play).await, seen(&memory, &play).await);
    // Claims end with their incarnation, and a time that was only told, not committed, may be forgotten;
    // everything else is as it was.
    play.clock.set(disk.store.now().await.unwrap());
    let before = seen(&*disk.store, &play).await;
    disk.reopen().await;
    let after = seen(&*disk.store, &play).await;
    prop_assert_eq!((&before[0], &before[3..]), (&after[0], &after[3..]));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_and_the_reference_cannot_be_told_apart(calls in proptest::collection::vec(call(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(play(calls))?;
    }
}
