//! Verification: reads records one after another, as they stand, and names the first that is wrong.
//!
//! Beside the chain itself it asserts over the records that an edge has one edge record, that children
//! point to one, that an edge ends at most once, and that the money of each turn adds up. Time is linear
//! in the records and memory in the edges, so it runs over a stream.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::canonical;
use super::chain::{Hash, Head, link};
use super::checkpoint::{Checkpoint, PublicKey};
use super::data::{CostEntry, Kind};
use super::record::{Dir, EdgeKey};
use crate::id::{ChangeId, HopId, OrgName, StepName, TaskId};
use crate::time::Timestamp;

/// What is wrong, as the code in `first_bad.why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// The export's first line isn't one.
    BadHeader,
    /// A line that is neither a record with its hash nor the last line.
    NotALine,
    /// The bytes aren't canonical.
    NotCanonical,
    /// Canonical, but no record.
    NotARecord,
    /// Another number than the next one: something was removed, inserted or moved.
    WrongSeq,
    /// A record of another org.
    WrongOrg,
    /// The hash isn't that of this record after the one before.
    WrongHash,
    /// A second edge record of one edge.
    EdgeTwice,
    /// A child of an edge that has no record before it.
    NoSuchEdge,
    /// A child that speaks of another task, step, hop or turn than its edge.
    OtherEdge,
    /// A second outcome of one edge.
    OutcomeTwice,
    /// The money of a turn doesn't add up.
    CostsUnbalanced,
    /// There is no checkpoint at the end, or its signature isn't by this key.
    NoCheckpoint,
    /// The records end before the checkpoint does: the tail was cut.
    CutTail,
    /// There are records that the checkpoint doesn't cover.
    BeyondCheckpoint,
    /// The chain has another hash where the checkpoint, or one held from before, has its own: a fork.
    Forked,
    /// The checkpoint held from before lies before the records that are here.
    HeldNotCovered,
}

/// The first record that is wrong. 0 stands for the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBad {
    /// Its number, or the number that it should have.
    pub seq: u64,
    /// What is wrong.
    pub why: Flaw,
}

/// A checkpoint as a verification shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSeen {
    /// How many records it covers.
    pub size: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The key it is signed by: `name+id`.
    pub key: String,
}

impl CheckpointSeen {
    /// Of a checkpoint that this key signed.
    #[must_use]
    pub fn of(checkpoint: &Checkpoint, key: &PublicKey) -> Self {
        Self { size: checkpoint.size, at: checkpoint.at, key: key.shown(&checkpoint.org) }
    }
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Is everything as it must be?
    pub verified: bool,
    /// How many records were good.
    pub records: u64,
    /// The hash of the last good one, hex.
    pub head: String,
    /// The checkpoint that they end in.
    pub checkpoint: Option<CheckpointSeen>,
    /// The first that is wrong.
    pub first_bad: Option<FirstBad>,
    /// How many edges there are.
    pub edges: u64,
    /// Does the money of every turn add up?
    pub costs_balanced: bool,
}

/// The members that verification needs. Others may be added to records, so unknown ones are let pass;
/// all are covered by the hash.
#[derive(Deserialize)]
struct Seen<'a> {
    v: u8,
    seq: u64,
    #[serde(borrow)]
    org: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    change_id: ChangeId,
    task: Option<TaskId>,
    step: Option<StepName>,
    hop: Option<HopId>,
    turn: Option<u32>,
    edge: Option<u64>,
    data: SeenData,
}

#[derive(Deserialize)]
struct SeenData {
    dir: Option<Dir>,
    entry: Option<CostEntry>,
    amount_microusd: Option<u64>,
}

/// One turn of one hop, or of a role's work.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Turn {
    task: TaskId,
    step: StepName,
    hop: Option<HopId>,
    turn: u32,
}

struct EdgeSeen {
    turn: Turn,
    ended: bool,
}

/// The money of one turn, in micro-dollars.
#[derive(Default)]
struct Account {
    balance: i128,
    settled: bool,
    /// Its beginning lies before the records that are here, so nothing can be said about its sum.
    headless: bool,
}

impl Account {
    /// At the end of a change set nothing is owed, and once settled nothing is left over.
    const fn adds_up(&self) -> bool {
        self.headless || (self.balance >= 0 && (!self.settled || self.balance == 0))
    }
}

/// Verifies a chain, record by record.
pub struct Verifier {
    org: OrgName,
    start: Head,
    head: Head,
    held: HashMap<u64, Hash>,
    bad: Option<FirstBad>,
    unbalanced: Option<u64>,
    edges: HashMap<u64, EdgeSeen>,
    keys: HashSet<EdgeKey>,
    accounts: HashMap<Turn, Account>,
    change: Option<(ChangeId, u64)>,
    touched: Vec<Turn>,
}

impl Verifier {
    /// Of a chain from its first record.
    #[must_use]
    pub fn new(org: OrgName) -> Self {
        Self::after(org, Head::EMPTY)
    }

    /// Of the rest of a chain after `start`. What lies before is taken on trust: children may be about
    /// edges there, and turns may have their reservation there. A checkpoint at the end proves `start`.
    #[must_use]
    pub fn after(org: OrgName, start: Head) -> Self {
        Self {
            org,
            start,
            head: start,
            held: HashMap::new(),
            bad: None,
            unbalanced: None,
            edges: HashMap::new(),
            keys: HashSet::new(),
            accounts: HashMap::new(),
            change: None,
            touched: Vec::new(),
        }
    }

    /// Holds the chain to a head that was seen before, e.g. an earlier checkpoint's: where the chain has
    /// that length it must have that hash, and it may not be shorter. Call it before the first record.
    pub fn hold(&mut self, head: Head) {
        if head.size < self.start.size {
            self.fail(head.size, Flaw::HeldNotCovered);
        } else if head.size == self.start.size && head.hash != self.start.hash {
            self.fail(head.size, Flaw::Forked);
        } else if head.size > self.start.size {
            let other = self.held.insert(head.size, head.hash).is_some_and(|h| h != head.hash);
            if other {
                self.fail(head.size, Flaw::Forked);
            }
        }
    }

    /// Takes the next record: its bytes and its hash as they stand.
    ///
    /// # Errors
    /// The first that is wrong; once there is one, nothing after it is looked at.
    pub fn record(&mut self, bytes: &[u8], stated: &Hash) -> Result<(), FirstBad> {
        if let Some(bad) = self.bad {
            return Err(bad);
        }
        let seq = self.head.size + 1;
        self.examine(seq, bytes, stated).map_err(|why| self.fail(seq, why))
    }

    /// Marks the next record as missing or unreadable.
    pub(super) fn next_is_bad(&mut self, why: Flaw) {
        self.fail(self.head.size + 1, why);
    }

    /// How far it has come.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    fn fail(&mut self, seq: u64, why: Flaw) -> FirstBad {
        *self.bad.get_or_insert(FirstBad { seq, why })
    }

    fn examine(&mut self, seq: u64, bytes: &[u8], stated: &Hash) -> Result<(), Flaw> {
        canonical::check(bytes).map_err(|_| Flaw::NotCanonical)?;
        let seen: Seen<'_> = serde_json::from_slice(bytes).map_err(|_| Flaw::NotARecord)?;
        let sound = |ok: bool, flaw: Flaw| if ok { Ok(()) } else { Err(flaw) };
        sound(seen.v == 1, Flaw::NotARecord)?;
        sound(seen.seq == seq, Flaw::WrongSeq)?;
        sound(seen.org == self.org.as_str(), Flaw::WrongOrg)?;
        let hash = link(&self.head.hash, bytes);
        sound(hash == *stated, Flaw::WrongHash)?;
        sound(self.held.get(&seq).is_none_or(|h| *h == hash), Flaw::Forked)?;
        self.examine_edge(seq, &seen)?;
        self.examine_cost(seq, &seen)?;
        self.head = Head { size: seq, hash };
        Ok(())
    }

    fn examine_edge(&mut self, seq: u64, seen: &Seen<'_>) -> Result<(), Flaw> {
        let turn = match (seen.task, &seen.step, seen.turn) {
            (Some(task), Some(step), Some(turn)) => {
                Some(Turn { task, step: step.clone(), hop: seen.hop, turn })
            }
            _ => None,
        };
        let kind = seen.kind.as_ref();
        if kind == Kind::Edge.as_str() {
            let (Some(turn), Some(dir), None) = (turn, seen.data.dir, seen.edge) else {
                return Err(Flaw::NotARecord);
            };
            let Turn { task, step, hop, turn: n } = turn.clone();
            if !self.keys.insert(EdgeKey { task, step, hop, turn: n, dir }) {
                return Err(Flaw::EdgeTwice);
            }
            self.edges.insert(seq, EdgeSeen { turn, ended: false });
            return Ok(());
        }
        let Some(edge) = seen.edge else {
            return if is_child(kind) { Err(Flaw::NoSuchEdge) } else { Ok(()) };
        };
        if (1..=self.start.size).contains(&edge) {
            return Ok(());
        }
        let parent = self.edges.get_mut(&edge).ok_or(Flaw::NoSuchEdge)?;
        if turn.as_ref() != Some(&parent.turn) {
            return Err(Flaw::OtherEdge);
        }
        if kind == Kind::Outcome.as_str() && std::mem::replace(&mut parent.ended, true) {
            return Err(Flaw::OutcomeTwice);
        }
        Ok(())
    }

    fn examine_cost(&mut self, seq: u64, seen: &Seen<'_>) -> Result<(), Flaw> {
        if self.change.is_none_or(|(id, _)| id != seen.change_id) {
            self.close_change();
        }
        self.change = Some((seen.change_id, seq));
        if seen.kind != Kind::Cost.as_str() {
            return Ok(());
        }
        let (Some(entry), Some(amount)) = (seen.data.entry, seen.data.amount_microusd) else {
            return Err(Flaw::NotARecord);
        };
        let (Some(task), Some(step), Some(turn)) = (seen.task, seen.step.clone(), seen.turn) else {
            return Err(Flaw::NotARecord);
        };
        let turn = Turn { task, step, hop: seen.hop, turn };
        let elsewhere = seen.edge.is_some_and(|e| e <= self.start.size);
        let account = self.accounts.entry(turn.clone()).or_default();
        account.headless |= elsewhere;
        match entry {
            CostEntry::Reserve | CostEntry::Overrun => account.balance += i128::from(amount),
            CostEntry::Settle => {
                account.balance -= i128::from(amount);
                account.settled = true;
            }
            CostEntry::Release => account.balance -= i128::from(amount),
        }
        self.touched.push(turn);
        Ok(())
    }

    fn close_change(&mut self) {
        let bad = self.touched.drain(..).any(|t| self.accounts.get(&t).is_some_and(|a| !a.adds_up()));
        if let (true, None, Some((_, seq))) = (bad, self.unbalanced, self.change) {
            self.unbalanced = Some(seq);
        }
    }

    /// Ends a verification at the records' end; `checkpoint` must cover exactly what was read.
    #[must_use]
    pub fn finish_at(mut self, checkpoint: &Checkpoint, key: &PublicKey) -> Verification {
        let Head { size, hash } = self.head;
        let shown = CheckpointSeen::of(checkpoint, key);
        if checkpoint.org != self.org {
            self.fail(size + 1, Flaw::NoCheckpoint);
        } else if checkpoint.size < size {
            self.fail(checkpoint.size + 1, Flaw::BeyondCheckpoint);
        } else if checkpoint.size > size {
            self.fail(size + 1, Flaw::CutTail);
        } else if checkpoint.head != hash {
            self.fail(size, Flaw::Forked);
        }
        Verification { checkpoint: Some(shown), ..self.finish() }
    }

    /// Ends a verification at the records' end, without a checkpoint there.
    #[must_use]
    pub fn finish(mut self) -> Verification {
        let size = self.head.size;
        if self.held.keys().any(|held| *held > size) {
            self.fail(size + 1, Flaw::CutTail);
        }
        if self.bad.is_none() {
            // Otherwise its last change set may be there in part only.
            self.close_change();
        }
        let costs = self.unbalanced.map(|seq| FirstBad { seq, why: Flaw::CostsUnbalanced });
        let first_bad = [self.bad, costs].into_iter().flatten().min_by_key(|b| b.seq);
        Verification {
            verified: first_bad.is_none(),
            records: size - self.start.size,
            head: hex::encode(self.head.hash),
            checkpoint: None,
            first_bad,
            edges: u64::try_from(self.edges.len()).unwrap_or(u64::MAX),
            costs_balanced: self.unbalanced.is_none(),
        }
    }
}

fn is_child(kind: &str) -> bool {
    [Kind::Verdict, Kind::Approval, Kind::Attempt, Kind::Outcome, Kind::Cost]
        .iter()
        .any(|k| k.as_str() == kind)
}
