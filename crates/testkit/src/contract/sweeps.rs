//! Checks of due rows, claims, ready envelopes and the store's time.

use std::collections::BTreeSet;
use std::sync::Arc;

use exeat_core::change::{DueKind, Key, Row};
use exeat_core::envelope::EnvelopeState;
use exeat_core::id::OrgName;
use exeat_core::ports::{Crowd, Find, Vitals};
use exeat_core::task::{Ending, Task, TaskStatus};
use exeat_core::time::Span;
use futures::future::join_all;

use super::fixtures::Maker;
use super::{Bench, HandClock, Record, org};

const HOLD: Span = Span::of_secs(30);

async fn open<B: Bench>() -> (B, Arc<dyn Record>, Arc<HandClock>, Maker) {
    let clock = Arc::new(HandClock::new());
    let bench = B::open(Arc::clone(&clock)).await;
    let record = bench.record();
    let m = Maker::new(record.now().await.unwrap(), 2);
    (bench, record, clock, m)
}

/// Stores tasks that are due so many seconds from now, in this order.
async fn due_in(record: &dyn Record, m: &mut Maker, seconds: &[Option<u64>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for s in seconds {
        let task = Task { due_at: s.map(|s| m.at + Span::of_secs(s)), ..m.task() };
        let set = m.writing([Row::Task(task.clone())]);
        record.commit(set).await.unwrap();
        tasks.push(task);
    }
    tasks
}

async fn claimed(record: &dyn Record, limit: u32) -> Vec<Key> {
    record.claim_due(DueKind::Task, limit, HOLD).await.unwrap().into_iter().map(|r| r.key).collect()
}

/// What isn't due, or never is, isn't claimed; a limit takes those that wait longest.
pub async fn only_due_rows_are_claimed_longest_due_first<B: Bench>() {
    let (_bench, record, clock, mut m) = open::<B>().await;
    let t = due_in(&*record, &mut m, &[Some(30), None, Some(10), Some(20), Some(40)]).await;
    assert!(claimed(&*record, 9).await.is_empty());
    clock.pass(Span::of_secs(30));
    assert_eq!(claimed(&*record, 2).await, [Key::Task(t[2].id), Key::Task(t[3].id)]);
    assert_eq!(claimed(&*record, 9).await, [Key::Task(t[0].id)]);
    assert!(claimed(&*record, 9).await.is_empty());
    assert!(record.claim_due(DueKind::Bridge, 9, HOLD).await.unwrap().is_empty());
}

/// One question finds what is due of every org, each under its own name: nobody's work is passed over in silence.
pub async fn o_poll_03_what_is_due_of_every_org_is_claimed_as_its_own<B: Bench>() {
    let (_bench, record, _clock, mut m) = open::<B>().await;
    let mine = due_in(&*record, &mut m, &[Some(0)]).await.remove(0);
    let other: OrgName = "other".parse().unwrap();
    let theirs = Task { due_at: Some(m.at), org: other.clone(), ..m.task() };
    let mut set = m.writing([Row::Task(theirs.clone())]);
    set.org = other.clone();
    let mut due = BTreeSet::from([(org(), mine.id)]);
    // A store of one org refuses it.
    if record.commit(set).await.is_ok() {
        due.insert((other, theirs.id));
    }
    let rows = record.claim_due(DueKind::Task, 9, HOLD).await.unwrap();
    let found = rows.into_iter().map(|r| match r.key {
        Key::Task(id) => (r.claim.org().clone(), id),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), due);
}

/// A claimed row is nobody else's until the hold is over; the next claim has a higher fence.
pub async fn a_claim_is_exclusive_and_fenced_and_runs_out<B: Bench>() {
    let (_bench, record, clock, mut m) = open::<B>().await;
    let t = due_in(&*record, &mut m, &[Some(0)]).await;
    let first = record.claim_due(DueKind::Task, 9, HOLD).await.unwrap().remove(0);
    assert_eq!((&first.key, first.find), (&Key::Task(t[0].id), Find::Task(t[0].id)));
    assert_eq!(*first.claim.org(), org());
    clock.pass(Span::of_micros(HOLD.micros() - 1));
    assert!(claimed(&*record, 9).await.is_empty());
    clock.pass(Span::of_micros(1));
    let second = record.claim_due(DueKind::Task, 9, HOLD).await.unwrap().remove(0);
    assert!(second.claim.fence() > first.claim.fence());
    assert_eq!(record.version(&org(), &first.key).await.unwrap(), 1, "a claim is no change of the row");
}

/// Whoever writes a row is done with it: if it is due again, it can be claimed at once.
pub async fn writing_a_row_clears_its_claim<B: Bench>() {
    let (_bench, record, _clock, mut m) = open::<B>().await;
    let t = due_in(&*record, &mut m, &[Some(0)]).await.remove(0);
    let before = record.claim_due(DueKind::Task, 9, HOLD).await.unwrap().remove(0).claim.fence();
    let set = m.over(1, Row::Task(t.clone()));
    record.commit(set).await.unwrap();
    let after = record.claim_due(DueKind::Task, 9, HOLD).await.unwrap().remove(0).claim.fence();
    assert!(after > before);
    let set = m.over(2, Row::Task(Task { due_at: None, ..t }));
    record.commit(set).await.unwrap();
    assert!(claimed(&*record, 9).await.is_empty());
    assert_eq!(record.next_due().await.unwrap(), None);
}

/// Sweeps at the same time get all rows between them, and none twice.
pub async fn concurrent_sweeps_share_out_the_rows<B: Bench>() {
    let (_bench, record, _clock, mut m) = open::<B>().await;
    let tasks = due_in(&*record, &mut m, &[Some(0); 40]).await;
    let sweeps = join_all((0..8).map(|_| claimed(&*record, 5))).await;
    let all: Vec<_> = sweeps.into_iter().flatten().collect();
    let wanted: BTreeSet<_> = tasks.iter().map(|t| Key::Task(t.id)).collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), wanted);
}

/// A claim says by which part the snapshot is found, for all kinds.
pub async fn every_kind_of_due_row_leads_to_its_task<B: Bench>() {
    let (_bench, record, clock, mut m) = open::<B>().await;
    let now = Some(m.at);
    let task = Task { due_at: now, ..m.task() };
    let bridge = exeat_core::bridge::Bridge { due_at: now, ..m.bridge(task.id) };
    let envelope = exeat_core::envelope::Envelope { due_at: now, ..m.envelope(task.id, "role:writer") };
    let (approval, inbox, cancel) = (m.approval(task.id), m.inbox(bridge.hop, "done"), m.cancel(&bridge));
    let named =
        exeat_core::bridge::CancelIntent { foreign_task: Some("theirs".to_owned()), ..cancel.clone() };
    let rows = [
        Row::Agent(m.agent(1)),
        Row::Task(task.clone()),
        Row::Bridge(bridge),
        Row::Envelope(envelope),
        Row::Approval(approval),
        Row::Inbox(inbox),
        Row::Cancel(cancel),
        Row::Cancel(named),
    ];
    let wanted: BTreeSet<_> = rows.iter().skip(1).map(Row::key).collect();
    let set = m.writing(rows);
    record.commit(set).await.unwrap();
    // An approval is due when it expires.
    clock.pass(Span::of_secs(60));
    let mut seen = BTreeSet::new();
    for kind in DueKind::ALL {
        for row in record.claim_due(kind, 9, HOLD).await.unwrap() {
            let found = record.load(&org(), row.find).await.unwrap().unwrap();
            assert_eq!(found.task.0.id, task.id, "{:?}", row.key);
            seen.insert(row.key);
        }
    }
    assert_eq!(seen, wanted);
}

/// What is over isn't counted; what waits is, by its state or its receiver.
pub async fn the_vitals_count_what_is_open_and_know_the_oldest<B: Bench>() {
    let (_bench, record, _clock, mut m) = open::<B>().await;
    assert_eq!(record.vitals(&org()).await.unwrap(), Vitals::default());
    let (now, later) = (m.at, m.at + Span::of_secs(9));
    let task = m.task();
    let open = exeat_core::bridge::Bridge { due_at: Some(now), created_at: later, ..m.bridge(task.id) };
    let older = exeat_core::bridge::Bridge {
        due_at: Some(later),
        created_at: now,
        foreign: None,
        ..m.bridge(task.id)
    };
    let over = exeat_core::bridge::Bridge { due_at: None, foreign: None, ..m.bridge(task.id) };
    let ready = exeat_core::envelope::Envelope { due_at: Some(later), ..m.envelope(task.id, "role:writer") };
    let settled = exeat_core::envelope::Envelope { due_at: None, ..m.envelope(task.id, "role:writer") };
    let (approval, inbox) = (m.approval(task.id), m.inbox(open.hop, "done"));
    let state = open.state.as_str().to_owned();
    let expected = Vitals {
        hops: [(state, Crowd { count: 2, oldest: Some(now) })].into(),
        ready: [("role:writer".to_owned(), Crowd { count: 1, oldest: Some(ready.created_at) })].into(),
        inbox: Crowd { count: inbox.due_at.iter().count() as u64, oldest: inbox.due_at.map(|_| inbox.at) },
        approvals: Crowd { count: 1, oldest: Some(approval.created_at) },
        tasks: u64::from(task.ended_at.is_none()),
        ..Vitals::default()
    };
    let rows = [
        Row::Agent(m.agent(1)),
        Row::Task(task),
        Row::Bridge(open),
        Row::Bridge(older),
        Row::Bridge(over),
        Row::Envelope(ready),
        Row::Envelope(settled),
        Row::Approval(approval),
        Row::Inbox(inbox),
    ];
    let set = m.writing(rows);
    record.commit(set).await.unwrap();
    assert_eq!(record.vitals(&org()).await.unwrap(), expected);
    let over =
        Task { status: TaskStatus::Ended(Ending::Canceled), ended_at: Some(later), due_at: None, ..m.task() };
    let open = m.task();
    let set = m.writing([Row::Task(over), Row::Task(open)]);
    record.commit(set).await.unwrap();
    assert_eq!(record.open_tasks(&org()).await.unwrap(), 2);
}

/// A sweeper that sleeps until then wakes when something can be claimed, and not before.
pub async fn the_next_due_time_looks_past_claims<B: Bench>() {
    let (_bench, record, clock, mut m) = open::<B>().await;
    assert_eq!(record.next_due().await.unwrap(), None);
    due_in(&*record, &mut m, &[Some(50), Some(10), None]).await;
    assert_eq!(record.next_due().await.unwrap(), Some(m.at + Span::of_secs(10)));
    clock.pass(Span::of_secs(10));
    assert_eq!(claimed(&*record, 9).await.len(), 1);
    assert_eq!(record.next_due().await.unwrap(), Some(m.at + Span::of_secs(40)), "when the claim runs out");
}

/// The store's time never goes back, and waits at half the speed for a wall clock that is behind it.
pub async fn now_never_runs_backwards<B: Bench>() {
    let (_bench, record, clock, mut m) = open::<B>().await;
    let set = m.set();
    record.commit(set).await.unwrap();
    clock.set(m.at - Span::of_secs(1_000));
    assert_eq!(record.now().await.unwrap(), m.at);
    clock.pass(Span::of_secs(10));
    let slow = m.at + Span::of_secs(5);
    assert_eq!(record.now().await.unwrap(), slow);
    let t = m.task();
    let set = m.writing([Row::Task(t.clone())]);
    record.commit(set).await.unwrap();
    assert_eq!(record.load(&org(), Find::Task(t.id)).await.unwrap().unwrap().now, slow);
    clock.set(m.at + Span::of_secs(60));
    assert_eq!(record.now().await.unwrap(), m.at + Span::of_secs(60));
}

/// Workers get what is ready for their role or its teams, oldest first, and nothing that is taken.
pub async fn ready_envelopes_come_oldest_first_by_role_and_team<B: Bench>() {
    let (_bench, record, _clock, mut m) = open::<B>().await;
    let task = m.task();
    let mut rows = vec![Row::Task(task.clone())];
    let mut made = Vec::new();
    for (age, to) in [(3, "role:writer"), (9, "team:desk"), (5, "role:writer"), (7, "role:other")] {
        let mut envelope = m.envelope(task.id, to);
        envelope.created_at = m.at - Span::of_secs(age);
        rows.push(Row::Envelope(envelope.clone()));
        made.push(envelope);
    }
    let set = m.writing(rows);
    record.commit(set).await.unwrap();
    let mine = ["role:writer".parse().unwrap(), "team:desk".parse().unwrap()];
    let ready = record.ready_envelopes(&org(), &mine, 9).await.unwrap();
    assert_eq!(ready, [made[1].id, made[2].id, made[0].id]);
    assert_eq!(record.ready_envelopes(&org(), &mine, 1).await.unwrap(), [made[1].id]);
    assert_eq!(record.ready_envelopes(&org(), &[], 9).await.unwrap(), []);
    let (_, state) = m.leased();
    let mut taken = made[1].clone();
    taken.state = state;
    let set = m.over(1, Row::Envelope(taken.clone()));
    record.commit(set).await.unwrap();
    assert_eq!(record.ready_envelopes(&org(), &mine, 9).await.unwrap(), [made[2].id, made[0].id]);
    taken.state = EnvelopeState::Paused { until: taken.created_at };
    let set = m.over(2, Row::Envelope(taken.clone()));
    record.commit(set).await.unwrap();
    assert_eq!(record.ready_envelopes(&org(), &mine, 9).await.unwrap(), [made[2].id, made[0].id]);
    let snapshot = record.load(&org(), Find::Task(taken.task)).await.unwrap().unwrap();
    assert!(
        snapshot.envelopes.iter().any(|(e, _)| e.id == taken.id),
        "what rests is open: a cancel must find it"
    );
    taken.state = EnvelopeState::Ready;
    let set = m.over(3, Row::Envelope(taken));
    record.commit(set).await.unwrap();
    assert_eq!(record.ready_envelopes(&org(), &mine, 9).await.unwrap(), ready);
}
