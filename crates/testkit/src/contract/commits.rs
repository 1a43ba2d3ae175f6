//! Checks of committing: whole or not at all, versions, edges, money, the chain.

use std::sync::Arc;

use exeat_core::bridge::{Bridge, CancelIntent};
use exeat_core::change::{ChangeSet, Key, Refused, Row, Write};
use exeat_core::cost::{Account, Balance, Scope, close, reserve};
use exeat_core::gate::exeat::{AttemptId, ForeignIds};
use exeat_core::ledger::data::CostEntry;
use exeat_core::ledger::{Head, Verifier};
use exeat_core::ports::Find;
use exeat_core::registry::AgentEntry;
use exeat_core::time::{Span, Timestamp};
use futures::future::join_all;

use super::fixtures::{Maker, expect};
use super::{Bench, HandClock, Record, org};

async fn open<B: Bench>() -> (B, Arc<dyn Record>, Maker) {
    let clock = Arc::new(HandClock::new());
    let bench = B::open(Arc::clone(&clock)).await;
    let record = bench.record();
    let at = record.now().await.unwrap();
    (bench, record, Maker::new(at, 1))
}

/// A set with everything in it: rows, an edge with a child, money, an event.
fn full(m: &mut Maker) -> (ChangeSet, exeat_core::task::Task, exeat_core::bridge::Bridge) {
    let task = m.task();
    let bridge = m.bridge(task.id);
    let (_, payload) = m.payload(task.id, "hello");
    let key = m.edge_key(task.id, bridge.hop, 1);
    let agent = Row::Agent(m.agent(1));
    let mut set = m.writing([Row::Task(task.clone()), agent, Row::Bridge(bridge.clone()), payload]);
    set.drafts.push(m.edge(&set, key.clone()));
    set.drafts.push(m.cost(&set, key, CostEntry::Reserve, 7));
    set.costs.push(reserve(bridge.hop, 1, 7, vec![(org_account(), None)]));
    set.events.push(m.event(task.id, 1));
    (set, task, bridge)
}

fn org_account() -> Account {
    Account { scope: Scope::Org, since: Timestamp::EPOCH }
}

/// All parts of one change set are there after its receipt, and the receipt names its records.
pub async fn a_change_set_is_durable_whole<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let (set, task, bridge) = full(&mut m);
    let id = set.id;
    let receipt = record.commit(set).await.unwrap();
    assert_eq!((receipt.id, receipt.seqs), (id, vec![1, 2]));
    let snapshot = record.load(&org(), Find::Task(task.id)).await.unwrap().unwrap();
    assert_eq!(snapshot.task, (task.clone(), 1));
    assert_eq!(snapshot.bridges, [(bridge, 1)]);
    assert_eq!(snapshot.payloads.len(), 1);
    assert_eq!(record.records_of(&org(), task.id).await.unwrap().len(), 2);
    assert_eq!(record.events(&org(), task.id, 0, 9).await.unwrap().len(), 1);
    assert_eq!(record.balance(&org(), &org_account()).await.unwrap().reserved_microusd, 7);
}

/// A set whose last part is refused leaves none of its other parts behind.
pub async fn a_refused_change_set_leaves_nothing_behind<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let (mut over, task, bridge) = full(&mut m);
    over.costs.push(reserve(bridge.hop, 2, 1_000, vec![(org_account(), Some(1_000))]));
    let id = over.id;
    assert!(matches!(record.commit(over).await, Err(Refused::OverBudget(a)) if a == org_account()));
    let (mut orphan, ..) = full(&mut m);
    let child = m.cost(&orphan, m.edge_key(task.id, bridge.hop, 9), CostEntry::Settle, 1);
    orphan.drafts.push(child);
    assert!(matches!(record.commit(orphan).await, Err(Refused::Wrong(_))));
    assert!(record.load(&org(), Find::Task(task.id)).await.unwrap().is_none());
    assert!(record.load(&org(), Find::Hop(bridge.hop)).await.unwrap().is_none());
    assert_eq!(record.head(&org()).await.unwrap(), Head::EMPTY);
    assert_eq!(record.balance(&org(), &org_account()).await.unwrap(), Balance::default());
    assert!(record.events(&org(), task.id, 0, 9).await.unwrap().is_empty());
    assert!(!record.settled(&org(), id).await.unwrap());
}

/// Whoever decided on a version that has moved is told so, whether they write the row or only rely on it.
pub async fn a_version_that_moved_is_a_conflict_for_writes_and_for_expectations<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let (a, b) = (Row::Task(m.task()), Row::Task(m.task()));
    let key = a.key();
    let set = m.writing([a.clone()]);
    record.commit(set).await.unwrap();
    let set = m.over(1, a.clone());
    record.commit(set).await.unwrap();
    assert_eq!(record.version(&org(), &key).await.unwrap(), 2);
    for stale in [0, 1, 3] {
        let set = m.over(stale, a.clone());
        assert!(matches!(record.commit(set).await, Err(Refused::Conflict(k)) if k == key), "{stale}");
        let mut set = m.writing([b.clone()]);
        set.expects.push(expect(&a, stale));
        assert!(matches!(record.commit(set).await, Err(Refused::Conflict(k)) if k == key), "{stale}");
    }
    let mut set = m.writing([b.clone()]);
    set.expects.extend([expect(&a, 2), expect(&Row::Mode(exeat_core::registry::EgressMode::On), 0)]);
    record.commit(set).await.unwrap();
    assert_eq!(record.version(&org(), &b.key()).await.unwrap(), 1);
}

/// However many arrive together on one version, one holds and the others conflict.
pub async fn of_many_sets_on_one_version_exactly_one_holds<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let row = Row::Task(m.task());
    let sets: Vec<_> = (0..32)
        .map(|_| {
            let mut set = m.writing([row.clone()]);
            set.drafts.push(m.note(&set, None));
            set
        })
        .collect();
    let answers = join_all(sets.into_iter().map(|s| record.commit(s))).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    assert!(answers.iter().all(|a| matches!(a, Ok(_) | Err(Refused::Conflict(_)))));
    assert_eq!(record.version(&org(), &row.key()).await.unwrap(), 1);
    assert_eq!(record.head(&org()).await.unwrap().size, 1);
}

/// A set that writes one row twice is a fault of ours and is refused whole.
pub async fn a_row_written_twice_in_one_set_is_wrong<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let row = Row::Task(m.task());
    let set = m.writing([row.clone(), row.clone()]);
    assert!(matches!(record.commit(set).await, Err(Refused::Wrong(_))));
    assert_eq!(record.version(&org(), &row.key()).await.unwrap(), 0);
}

/// The same edge again is refused, in the same set, at the same time and much later.
pub async fn an_edge_has_one_record_for_ever<B: Bench>() {
    let (mut bench, mut record, mut m) = open::<B>().await;
    let (task, hop) = (m.task(), m.hop("agent:auditor"));
    let key = m.edge_key(task.id, hop.id, 1);
    let mut sets: Vec<_> = (0..8).map(|_| m.set()).collect();
    for set in &mut sets {
        set.drafts.push(m.edge(set, key.clone()));
    }
    let answers = join_all(sets.into_iter().map(|s| record.commit(s))).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    assert!(answers.iter().all(|a| matches!(a, Ok(_) | Err(Refused::Duplicate(_)))));
    let mut twice = m.set();
    let other = m.edge_key(task.id, hop.id, 2);
    twice.drafts.extend([m.edge(&twice, other.clone()), m.edge(&twice, other)]);
    assert!(matches!(record.commit(twice).await, Err(Refused::Duplicate(_))));
    if bench.reopen().await {
        record = bench.record();
    }
    let mut late = m.set();
    late.drafts.push(m.edge(&late, key.clone()));
    assert!(matches!(record.commit(late).await, Err(Refused::Duplicate(_))));
    let mut child = m.set();
    child.drafts.push(m.cost(&child, key, CostEntry::Reserve, 1));
    record.commit(child).await.unwrap();
    assert_eq!(record.head(&org()).await.unwrap().size, 2);
}

/// A child must name an edge that has its record.
pub async fn a_child_of_an_edge_without_a_record_is_wrong<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let key = m.fresh_edge();
    let mut set = m.set();
    set.drafts.push(m.cost(&set, key, CostEntry::Reserve, 1));
    assert!(matches!(record.commit(set).await, Err(Refused::Wrong(_))));
}

/// The same event at the same hop is a duplicate, whatever row it comes in; at another hop it isn't.
pub async fn a_pushed_event_is_stored_once<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    let (a, b) = (m.bridge(task.id), m.bridge(task.id));
    let agent = Row::Agent(m.agent(1));
    let set = m.writing([Row::Task(task), agent, Row::Bridge(a.clone()), Row::Bridge(b.clone())]);
    record.commit(set).await.unwrap();
    let sets: Vec<_> = (0..8)
        .map(|_| {
            let row = m.inbox(a.hop, "done");
            m.writing([Row::Inbox(row)])
        })
        .collect();
    let answers = join_all(sets.into_iter().map(|s| record.commit(s))).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    assert!(answers.iter().all(|a| matches!(a, Ok(_) | Err(Refused::Duplicate(_)))));
    for (hop, event) in [(b.hop, "done"), (a.hop, "other")] {
        let row = m.inbox(hop, event);
        let set = m.writing([Row::Inbox(row.clone())]);
        record.commit(set).await.unwrap();
        // Acting on it writes the same row again, which is no second event.
        let set = m.over(1, Row::Inbox(exeat_core::bridge::InboxRow { due_at: None, ..row }));
        record.commit(set).await.unwrap();
    }
}

/// Of all hops of an agent that would have one foreign task, the first has it; another agent's tasks are its own.
pub async fn a_foreign_task_serves_one_hop_of_its_agent<B: Bench>() {
    let (mut bench, mut record, mut m) = open::<B>().await;
    let task = m.task();
    let other = AgentEntry { key: "other".parse().unwrap(), ..m.agent(1) };
    let unbound: Vec<_> = (0..8).map(|_| Bridge { foreign: None, ..m.bridge(task.id) }).collect();
    let elsewhere = Bridge { agent: other.key.clone(), foreign: theirs(), ..m.bridge(task.id) };
    let rows = [Row::Task(task.clone()), Row::Agent(m.agent(1)), Row::Agent(other), Row::Bridge(elsewhere)];
    let set = m.writing(rows.into_iter().chain(unbound.iter().cloned().map(Row::Bridge)));
    record.commit(set).await.unwrap();
    let bound = |b: &Bridge| Bridge { foreign: theirs(), ..b.clone() };
    let sets: Vec<_> = unbound.iter().map(|b| m.over(1, Row::Bridge(bound(b)))).collect();
    let answers = join_all(sets.into_iter().map(|s| record.commit(s))).await;
    let key = unbound[0].foreign_key("theirs");
    assert!(answers.iter().all(|a| a.is_ok() || matches!(a, Err(Refused::Taken(k)) if *k == key)));
    let first = answers.iter().position(Result::is_ok).unwrap();
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    if bench.reopen().await {
        record = bench.record();
    }
    let (holder, late) = (&unbound[first], &unbound[(first + 1) % 8]);
    let set = m.over(1, Row::Bridge(bound(late)));
    assert!(matches!(record.commit(set).await, Err(Refused::Taken(k)) if k == key));
    // Nor does another hop have it stopped; its holder does.
    let stop = |m: &Maker, b: &Bridge| {
        let foreign_task = Some("theirs".to_owned());
        Write { expected: 0, row: Row::Cancel(CancelIntent { foreign_task, ..m.cancel(b) }) }
    };
    let mut set = m.over(1, Row::Bridge(late.clone()));
    set.writes.push(stop(&m, late));
    assert!(matches!(record.commit(set).await, Err(Refused::Taken(k)) if k == key));
    let mut set = m.over(2, Row::Bridge(bound(holder)));
    set.writes.push(stop(&m, holder));
    record.commit(set).await.unwrap();
    let both = [unbound[(first + 2) % 8].clone(), unbound[(first + 3) % 8].clone()];
    let mut set = m.set();
    let new = Some(ForeignIds { task: "new".to_owned(), context: None });
    set.writes
        .extend(both.map(|b| Write { expected: 1, row: Row::Bridge(Bridge { foreign: new.clone(), ..b }) }));
    assert!(matches!(record.commit(set).await, Err(Refused::Taken(_))), "two hops in one set");
}

fn theirs() -> Option<ForeignIds> {
    Some(ForeignIds { task: "theirs".to_owned(), context: None })
}

/// 64 reservations of 1 on a balance of 10: 10 hold, whatever their order.
pub async fn parallel_reservations_never_pass_the_limit<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let sets: Vec<_> = (0..64)
        .map(|_| {
            let mut set = m.set();
            set.costs.push(reserve(m.hop("agent:auditor").id, 1, 1, vec![(org_account(), Some(10))]));
            set
        })
        .collect();
    let answers = join_all(sets.into_iter().map(|s| record.commit(s))).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 10);
    assert!(answers.iter().all(|a| matches!(a, Ok(_) | Err(Refused::OverBudget(_)))));
    assert_eq!(record.balance(&org(), &org_account()).await.unwrap().reserved_microusd, 10);
}

/// Reserving and closing turns leaves every account at the sum of what was settled.
pub async fn costs_add_up_on_every_account<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let agent = Account { scope: Scope::Agent("auditor".parse().unwrap()), since: m.at };
    for (reserved, settled) in [(10, 4), (5, 5), (3, 8), (7, 0)] {
        let hop = m.hop("agent:auditor").id;
        let accounts = [org_account(), agent.clone()];
        let mut set = m.set();
        set.costs.push(reserve(hop, 1, reserved, accounts.iter().map(|a| (a.clone(), None)).collect()));
        record.commit(set).await.unwrap();
        assert_eq!(record.balance(&org(), &agent).await.unwrap().reserved_microusd, reserved);
        let mut set = m.set();
        set.costs = close(hop, 1, reserved, settled, &accounts);
        record.commit(set).await.unwrap();
    }
    let spent = Balance { reserved_microusd: 0, settled_microusd: 17 };
    assert_eq!(record.balance(&org(), &agent).await.unwrap(), spent);
    assert_eq!(record.balance(&org(), &org_account()).await.unwrap(), spent);
    let other_day = Account { since: m.at + Span::of_secs(86_400), ..agent };
    assert_eq!(record.balance(&org(), &other_day).await.unwrap(), Balance::default());
}

/// Each task's events are 1, 2, 3, …, in the order of the commits, however the commits are mixed.
pub async fn events_are_numbered_without_gaps_per_task<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let tasks = [m.task().id, m.task().id];
    let sets: Vec<_> = (0..20)
        .map(|n| {
            let mut set = m.set();
            set.events.extend(tasks.map(|t| m.event(t, n)));
            set.events.push(m.event(tasks[0], n));
            set
        })
        .collect();
    for answer in join_all(sets.into_iter().map(|s| record.commit(s))).await {
        answer.unwrap();
    }
    for (task, count) in tasks.into_iter().zip([40, 20]) {
        let told = record.events(&org(), task, 0, 1_000).await.unwrap();
        assert_eq!(told.iter().map(|e| e.id).collect::<Vec<_>>(), (1..=count).collect::<Vec<u64>>());
    }
}

/// After many commits at once the chain has no gap, verifies from zero, and ends in the head.
pub async fn the_chain_verifies_after_many_concurrent_commits<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let sets: Vec<_> = (0..100)
        .map(|_| {
            let key = m.fresh_edge();
            let mut set = m.set();
            set.drafts.push(m.edge(&set, key.clone()));
            set.drafts.push(m.note(&set, Some(key.task)));
            set
        })
        .collect();
    let mut seqs = Vec::new();
    for answer in join_all(sets.into_iter().map(|s| record.commit(s))).await {
        let own = answer.unwrap().seqs;
        assert_eq!(own[0] + 1, own[1], "a set's records stand side by side");
        seqs.extend(own);
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=200).collect::<Vec<u64>>());
    let head = record.head(&org()).await.unwrap();
    let records = record.records(&org(), 1, 1_000).await.unwrap();
    assert_eq!(records.last().map(|r| (r.seq, r.hash)), Some((head.size, head.hash)));
    let mut verifier = Verifier::new(org());
    for r in &records {
        verifier.record(&r.bytes, &r.hash).unwrap();
    }
    let verification = verifier.finish();
    assert!(verification.verified, "{verification:?}");
    assert_eq!((verification.records, verification.edges), (200, 100));
}

/// The receipt of a durable set yields the leases that it names; a refused one yields none.
pub async fn leases_come_back_with_the_receipt_and_only_then<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    let hop = m.hop("agent:auditor").id;
    let route = m.route(task.id, hop);
    let lease = AttemptId { org: org(), hop: route.hop, turn: 1, n: 1, callback: route.callback };
    let mut set = m.writing([Row::Task(task.clone())]);
    set.leases.push(lease.clone());
    let receipt = record.commit(set).await.unwrap();
    assert_eq!(receipt.leases.iter().map(|l| l.id()).collect::<Vec<_>>(), [&lease]);
    let mut again = m.writing([Row::Task(task)]);
    again.leases.push(lease);
    assert!(record.commit(again).await.is_err());
}

/// Whoever lost an answer can ask, whether the set wrote a record or not.
pub async fn a_change_is_found_by_its_id_with_and_without_records<B: Bench>() {
    let (mut bench, mut record, mut m) = open::<B>().await;
    let mut loud = m.set();
    loud.drafts.push(m.note(&loud, None));
    let row = Row::Task(m.task());
    let silent = m.writing([row]);
    let never = m.set().id;
    let ids = [loud.id, silent.id];
    record.commit(loud).await.unwrap();
    record.commit(silent).await.unwrap();
    for _ in 0..2 {
        for id in ids {
            assert!(record.settled(&org(), id).await.unwrap());
        }
        assert!(!record.settled(&org(), never).await.unwrap());
        if !bench.reopen().await {
            break;
        }
        record = bench.record();
    }
}

/// What is one org's isn't found through another, and another's set changes nothing of it.
pub async fn another_orgs_things_are_not_found<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let (set, task, bridge) = full(&mut m);
    let id = set.id;
    record.commit(set).await.unwrap();
    let other: exeat_core::id::OrgName = "other".parse().unwrap();
    assert!(record.load(&other, Find::Task(task.id)).await.unwrap().is_none());
    assert!(record.load(&other, Find::Hop(bridge.hop)).await.unwrap().is_none());
    assert!(!record.settled(&other, id).await.unwrap());
    assert_eq!(record.head(&other).await.unwrap(), Head::EMPTY);
    assert_eq!(record.version(&other, &Key::Task(task.id)).await.unwrap(), 0);
    assert!(record.records_of(&other, task.id).await.unwrap().is_empty());
    assert!(record.events(&other, task.id, 0, 9).await.unwrap().is_empty());
    let head = record.head(&org()).await.unwrap();
    let mut foreign = m.set();
    foreign.org = other.clone();
    foreign.drafts.push(m.note(&foreign, None));
    // A store of one org refuses it; another gives that org a chain of its own.
    let taken = record.commit(foreign).await;
    assert!(matches!(taken, Ok(_) | Err(Refused::Wrong(_))));
    assert_eq!(record.head(&org()).await.unwrap(), head);
}

/// A record that outlives its process has everything again: rows, chain, money, events, time.
pub async fn after_reopening_everything_is_there<B: Bench>() {
    let clock = Arc::new(HandClock::new());
    let mut bench = B::open(Arc::clone(&clock)).await;
    let record = bench.record();
    let mut m = Maker::new(record.now().await.unwrap(), 1);
    let (set, task, bridge) = full(&mut m);
    record.commit(set).await.unwrap();
    record.keep_checkpoint(&org(), 2, "signed").await.unwrap();
    let before = (
        record.load(&org(), Find::Task(task.id)).await.unwrap().unwrap(),
        record.records(&org(), 1, 9).await.unwrap(),
        record.head(&org()).await.unwrap(),
        record.events(&org(), task.id, 0, 9).await.unwrap(),
        record.balance(&org(), &org_account()).await.unwrap(),
    );
    drop(record);
    // A clock that is behind after the restart.
    clock.set(m.at - Span::of_secs(3_600));
    if !bench.reopen().await {
        return;
    }
    let record = bench.record();
    assert!(record.now().await.unwrap() >= m.at, "time ran backwards");
    let snapshot = record.load(&org(), Find::Hop(bridge.hop)).await.unwrap().unwrap();
    assert_eq!((snapshot.task, snapshot.bridges), (before.0.task, before.0.bridges));
    assert_eq!(snapshot.payloads, before.0.payloads);
    assert_eq!(record.records(&org(), 1, 9).await.unwrap(), before.1);
    assert_eq!(record.head(&org()).await.unwrap(), before.2);
    assert_eq!(record.events(&org(), task.id, 0, 9).await.unwrap(), before.3);
    assert_eq!(record.balance(&org(), &org_account()).await.unwrap(), before.4);
    assert_eq!(record.checkpoint(&org()).await.unwrap().as_deref(), Some("signed"));
    let mut next = m.set();
    next.drafts.push(m.note(&next, None));
    assert_eq!(record.commit(next).await.unwrap().seqs, [3]);
}
