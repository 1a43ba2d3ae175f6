//! The settling of a batch: which of the change sets that arrived together hold, and what exactly they write.
//!
//! Pure. A store reads the [`Ground`] inside its transaction, settles the batch here in arrival order, and
//! writes what survives; so every store gives the same answer to the same batch, and the simulator proves
//! the very code that ships. A second set on a row's version is a conflict; reservations draw on the locked
//! balance; sequence and hash are given here, under the head's lock, never across I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::bridge::ForeignKey;
use crate::change::{ChangeSet, Key, Receipt, Refused, Row, TaskEvent};
use crate::cost::{Account, Balance, apply};
use crate::faults::Fault;
use crate::gate::exeat::{AttemptLease, Claim};
use crate::id::{HopId, TaskId};
use crate::ledger::chain::{Appended, Head, append};
use crate::ledger::data::{Act as OperatorAct, CostEntry};
use crate::ledger::{Data, EdgeKey};
use crate::payload::Sha256Digest;

/// What a batch is settled against, as read under the lock: an absent row has version 0.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// The org's head.
    pub head: Head,
    /// Versions of all rows that the batch touches.
    pub versions: BTreeMap<Key, u64>,
    /// Balances of all accounts that it touches.
    pub balances: BTreeMap<Account, Balance>,
    /// Sequence numbers of the edges that it names, where they exist.
    pub edges: BTreeMap<EdgeKey, u64>,
    /// Number of the last event of each task that it touches.
    pub events: BTreeMap<TaskId, u64>,
    /// Of the pushed events that it stores, those that are there already.
    pub pushed: BTreeSet<(HopId, Sha256Digest)>,
    /// Of the foreign tasks that it names as its hops' own, those that are bound, and by which hop.
    pub foreign: BTreeMap<ForeignKey, HopId>,
}

/// All that a store must read before it settles a batch.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Rows.
    pub keys: BTreeSet<Key>,
    /// Accounts.
    pub accounts: BTreeSet<Account>,
    /// Edges.
    pub edges: BTreeSet<EdgeKey>,
    /// Tasks with events.
    pub tasks: BTreeSet<TaskId>,
    /// Pushed events.
    pub pushed: BTreeSet<(HopId, Sha256Digest)>,
    /// Foreign tasks.
    pub foreign: BTreeSet<ForeignKey>,
}

/// What a batch touches.
#[must_use]
pub fn touched(sets: &[ChangeSet]) -> Touched {
    let mut t = Touched::default();
    for set in sets {
        t.keys.extend(set.expects.iter().map(|e| e.key.clone()));
        t.keys.extend(set.writes.iter().map(|w| w.row.key()));
        t.accounts.extend(set.costs.iter().flat_map(|c| c.accounts.iter().map(|(a, _)| a.clone())));
        t.edges.extend(set.drafts.iter().filter_map(|d| d.edge_key().or_else(|| d.about.clone())));
        t.tasks.extend(set.events.iter().map(|e| e.task));
        t.pushed.extend(set.writes.iter().filter_map(|w| match &w.row {
            Row::Inbox(i) if w.expected == 0 => Some((i.hop, i.digest)),
            _ => None,
        }));
        t.foreign.extend(own(set).map(|(key, _)| key));
    }
    t
}

/// The foreign tasks that a set takes for its hops' own: those that they have bound, and those that they newly ask
/// the agent to stop.
fn own(set: &ChangeSet) -> impl Iterator<Item = (ForeignKey, HopId)> {
    let bridges = set.writes.iter().filter_map(|w| if let Row::Bridge(b) = &w.row { Some(b) } else { None });
    bridges.flat_map(|b| {
        let stopped = set.writes.iter().filter_map(|w| match &w.row {
            Row::Cancel(c) if w.expected == 0 && c.hop == b.hop => c.foreign_task.as_deref(),
            _ => None,
        });
        let tasks = b.foreign.iter().map(|f| f.task.as_str()).chain(stopped);
        tasks.map(|t| (b.foreign_key(t), b.hop)).collect::<Vec<_>>()
    })
}

/// A change set that holds, and all that it writes.
#[derive(Debug)]
pub struct Planned {
    /// The set.
    pub set: ChangeSet,
    /// Its records.
    pub records: Vec<Appended>,
    /// Its events with their numbers.
    pub events: Vec<(u64, TaskEvent)>,
}

impl Planned {
    /// The receipt for it. To be made only once it is durable.
    pub fn receipt(&self) -> Receipt {
        Receipt {
            id: self.set.id,
            seqs: self.records.iter().map(|r| r.record.seq).collect(),
            leases: self.set.leases.iter().cloned().map(AttemptLease::receipted).collect(),
            discoveries: self
                .records
                .iter()
                .filter(|r| matches!(&r.record.data, Data::Operator(o) if o.act == OperatorAct::Discover))
                .map(|r| Claim::receipted(self.set.org.clone(), r.record.seq))
                .collect(),
        }
    }
}

/// A settled batch.
#[derive(Debug)]
pub struct Settled {
    /// One answer per set, in arrival order.
    pub answers: Vec<Result<Planned, Refused>>,
    /// The ground after it: new head, versions, balances.
    pub ground: Ground,
}

/// Settles a batch of one org in arrival order.
#[must_use]
pub fn settle(mut ground: Ground, sets: Vec<ChangeSet>) -> Settled {
    let answers = sets.into_iter().map(|set| settle_one(&mut ground, set)).collect();
    Settled { answers, ground }
}

fn settle_one(ground: &mut Ground, set: ChangeSet) -> Result<Planned, Refused> {
    check_versions(ground, &set)?;
    if let Some(w) = set.writes.iter().find(|w| is_pushed(ground, &w.row) && w.expected == 0) {
        let _ = w;
        return Err(Refused::Duplicate("pushed event"));
    }
    let foreign = check_foreign(ground, &set)?;
    let balances = draw(ground, &set)?;
    let (head, edges, records) = seal(ground, &set)?;
    // Nothing is refused any more: now the ground moves.
    ground.head = head;
    ground.edges.extend(edges);
    ground.balances.extend(balances);
    ground.foreign.extend(foreign);
    for w in &set.writes {
        ground.versions.insert(w.row.key(), w.expected + 1);
        if let Row::Inbox(i) = &w.row {
            ground.pushed.insert((i.hop, i.digest));
        }
    }
    let events = set
        .events
        .iter()
        .map(|e| {
            let last = ground.events.entry(e.task).or_insert(0);
            *last += 1;
            (*last, e.clone())
        })
        .collect();
    Ok(Planned { set, records, events })
}

fn is_pushed(ground: &Ground, row: &Row) -> bool {
    matches!(row, Row::Inbox(i) if ground.pushed.contains(&(i.hop, i.digest)))
}

fn check_versions(ground: &Ground, set: &ChangeSet) -> Result<(), Refused> {
    let version = |k: &Key| ground.versions.get(k).copied().unwrap_or(0);
    let mut written = BTreeSet::new();
    for w in &set.writes {
        let key = w.row.key();
        let heedless = Fault::JoinSkew.is_back() && matches!(key, Key::Task(_));
        if version(&key) != w.expected && !heedless {
            return Err(Refused::Conflict(key));
        }
        if !written.insert(key.clone()) {
            return Err(Refused::Wrong(format!("{key:?} is written twice")));
        }
    }
    match set.expects.iter().find(|e| version(&e.key) != e.version) {
        Some(e) => Err(Refused::Conflict(e.key.clone())),
        None => Ok(()),
    }
}

/// An agent that names a task of one hop to another must not have the two taken for one.
fn check_foreign(ground: &Ground, set: &ChangeSet) -> Result<BTreeMap<ForeignKey, HopId>, Refused> {
    let mut taken = BTreeMap::new();
    for (key, hop) in own(set) {
        let holder = taken.get(&key).or_else(|| ground.foreign.get(&key));
        if holder.is_some_and(|h| *h != hop) {
            return Err(Refused::Taken(key));
        }
        taken.insert(key, hop);
    }
    Ok(taken)
}

fn draw(ground: &Ground, set: &ChangeSet) -> Result<BTreeMap<Account, Balance>, Refused> {
    let mut balances: BTreeMap<Account, Balance> = BTreeMap::new();
    for m in &set.costs {
        for (account, limit) in &m.accounts {
            let now =
                balances.get(account).or_else(|| ground.balances.get(account)).copied().unwrap_or_default();
            let limit = if m.entry == CostEntry::Reserve { *limit } else { None };
            let after = apply(now, m, limit).ok_or_else(|| Refused::OverBudget(account.clone()))?;
            balances.insert(account.clone(), after);
        }
    }
    Ok(balances)
}

type Chained = (Head, BTreeMap<EdgeKey, u64>, Vec<Appended>);

fn seal(ground: &Ground, set: &ChangeSet) -> Result<Chained, Refused> {
    let mut head = ground.head;
    let mut edges: BTreeMap<EdgeKey, u64> = BTreeMap::new();
    let mut records = Vec::with_capacity(set.drafts.len());
    for draft in &set.drafts {
        let key = draft.edge_key();
        if let Some(k) = &key
            && (edges.contains_key(k) || ground.edges.contains_key(k))
        {
            return Err(Refused::Duplicate("edge"));
        }
        let find = |k: &EdgeKey| edges.get(k).or_else(|| ground.edges.get(k)).copied();
        let sealed =
            append(&mut head, &set.org, draft.clone(), find).map_err(|e| Refused::Wrong(e.to_string()))?;
        if let Some(k) = key {
            edges.insert(k, sealed.record.seq);
        }
        records.push(sealed);
    }
    Ok((head, edges, records))
}
