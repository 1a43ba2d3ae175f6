//! One org's part of the record in memory: its rows, its chain, and the indexes that questions use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exeat_core::bridge::{Bridge, Doorway, ForeignKey, Unread};
use exeat_core::change::{ChangeSet, DueKind, Key, Row, Snapshot, WorkflowRow};
use exeat_core::cost::{Account, Balance};
use exeat_core::endpoint::Endpoint;
use exeat_core::envelope::EnvelopeState;
use exeat_core::id::{CallbackId, ChangeId, EnvelopeId, HopId, LeaseId, OrgName, PayloadId, TaskId};
use exeat_core::ledger::EdgeKey;
use exeat_core::ledger::chain::Head;
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::{CostBy, CostLine, Crowd, Find, StoredEvent, StoredRecord, TaskFilter, Vitals};
use exeat_core::registry::{EgressMode, OrgDefaults, Registry};
use exeat_core::task::Task;
use exeat_core::time::Timestamp;
use exeat_core::walk::batch::{Ground, Planned, Touched};

use super::{distinct, governs};

/// A row as it stands.
pub(super) struct Held {
    pub(super) version: u64,
    pub(super) row: Row,
    claimed_until: Timestamp,
    fence: u64,
}

impl Held {
    /// When it is due and free to be claimed.
    fn wakes(&self) -> Option<Timestamp> {
        self.row.due_at().map(|d| d.max(self.claimed_until))
    }
}

struct Spent {
    at: Timestamp,
    hop: HopId,
    reserved_delta: i64,
    settled_delta: i64,
}

/// All that one org has.
#[derive(Default)]
pub(super) struct Org {
    pub(super) rows: BTreeMap<Key, Held>,
    pub(super) head: Head,
    pub(super) records: Vec<(Option<TaskId>, StoredRecord)>,
    pub(super) balances: BTreeMap<Account, Balance>,
    pub(super) events: BTreeMap<TaskId, Vec<StoredEvent>>,
    pub(super) changes: BTreeSet<ChangeId>,
    pub(super) checkpoints: BTreeMap<u64, String>,
    edges: BTreeMap<EdgeKey, u64>,
    pushed: BTreeSet<(HopId, Sha256Digest)>,
    foreign: BTreeMap<ForeignKey, HopId>,
    spent: Vec<Spent>,
    due: BTreeMap<DueKind, BTreeSet<(Timestamp, Key)>>,
    of_task: BTreeMap<TaskId, BTreeSet<Key>>,
    hops: BTreeMap<HopId, (TaskId, Endpoint)>,
    leases: BTreeMap<LeaseId, EnvelopeId>,
    ready: BTreeMap<Endpoint, BTreeSet<(Timestamp, EnvelopeId)>>,
    registry: Option<Arc<Registry>>,
}

impl Org {
    pub(super) fn row(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key).map(|h| &h.row)
    }

    pub(super) fn has_event(&self, hop: HopId, digest: Sha256Digest) -> bool {
        self.pushed.contains(&(hop, digest))
    }

    pub(super) fn ground(&self, touched: &Touched) -> Ground {
        let versions = touched.keys.iter().filter_map(|k| Some((k.clone(), self.rows.get(k)?.version)));
        let balances = touched.accounts.iter().filter_map(|a| Some((a.clone(), *self.balances.get(a)?)));
        let edges = touched.edges.iter().filter_map(|e| Some((e.clone(), *self.edges.get(e)?)));
        let events = touched.tasks.iter().filter_map(|t| Some((*t, self.events.get(t)?.last()?.id)));
        let foreign = touched.foreign.iter().filter_map(|k| Some((k.clone(), *self.foreign.get(k)?)));
        Ground {
            head: self.head,
            versions: versions.collect(),
            balances: balances.collect(),
            edges: edges.collect(),
            events: events.collect(),
            pushed: touched.pushed.intersection(&self.pushed).copied().collect(),
            foreign: foreign.collect(),
        }
    }

    /// Writes a change set that was settled. Nothing here can fail.
    pub(super) fn apply(&mut self, planned: &Planned) {
        let set = &planned.set;
        self.changes.insert(set.id);
        // First whose hop is whose: a set may name a pushed event before its bridge.
        set.writes.iter().for_each(|w| self.learn_hops(&w.row));
        for w in &set.writes {
            self.put(w.expected + 1, w.row.clone());
        }
        for r in &planned.records {
            let stored = StoredRecord { seq: r.record.seq, bytes: r.bytes.clone(), hash: r.hash };
            self.head = Head { size: r.record.seq, hash: r.hash };
            self.edges.extend(r.record.edge_key().map(|k| (k, r.record.seq)));
            self.records.push((r.record.task, stored));
        }
        self.charge(set);
        for (id, e) in &planned.events {
            let told = StoredEvent { id: *id, at: set.at, event: e.event.to_owned(), data: e.data.clone() };
            self.events.entry(e.task).or_default().push(told);
        }
    }

    fn charge(&mut self, set: &ChangeSet) {
        for m in &set.costs {
            for (account, _) in &m.accounts {
                let balance = self.balances.entry(account.clone()).or_default();
                // The limit was checked when the set was settled; here it can't refuse.
                *balance = exeat_core::cost::apply(*balance, m, None).unwrap_or(*balance);
            }
            self.spent.push(Spent {
                at: set.at,
                hop: m.hop,
                reserved_delta: m.reserved_delta,
                settled_delta: m.settled_delta,
            });
        }
    }

    fn put(&mut self, version: u64, row: Row) {
        let key = row.key();
        if governs(&key) {
            self.registry = None;
        }
        let fence = self.rows.get(&key).map_or(0, |h| h.fence);
        if let Some(before) = self.rows.remove(&key) {
            self.unlist(&key, &before);
        }
        let held = Held { version, row, claimed_until: Timestamp::EPOCH, fence };
        self.list(&key, &held);
        self.rows.insert(key, held);
    }

    fn unlist(&mut self, key: &Key, held: &Held) {
        if let (Some(kind), Some(at)) = (due_kind(key), held.wakes()) {
            self.due.entry(kind).or_default().remove(&(at, key.clone()));
        }
        match &held.row {
            Row::Envelope(e) => {
                self.ready.entry(e.to.clone()).or_default().remove(&(e.created_at, e.id));
            }
            Row::Bridge(b) => {
                bound(b).and_then(|k| self.foreign.remove(&k));
            }
            _ => {}
        }
    }

    fn list(&mut self, key: &Key, held: &Held) {
        if let (Some(kind), Some(at)) = (due_kind(key), held.wakes()) {
            self.due.entry(kind).or_default().insert((at, key.clone()));
        }
        match &held.row {
            Row::Envelope(e) => {
                self.leases.extend(e.lease().map(|l| (l, e.id)));
                if e.state == EnvelopeState::Ready {
                    self.ready.entry(e.to.clone()).or_default().insert((e.created_at, e.id));
                }
            }
            Row::Inbox(i) => {
                self.pushed.insert((i.hop, i.digest));
            }
            Row::Bridge(b) => self.foreign.extend(bound(b).map(|k| (k, b.hop))),
            _ => {}
        }
        if let Some(task) = self.task_of(&held.row) {
            self.of_task.entry(task).or_default().insert(key.clone());
        }
    }

    fn learn_hops(&mut self, row: &Row) {
        match row {
            Row::Task(t) => self.hops.extend(t.hops.iter().map(|h| (h.id, (t.id, h.to.clone())))),
            Row::Bridge(b) => {
                self.hops.insert(b.hop, (b.task, Endpoint::Agent(b.agent.clone())));
            }
            _ => {}
        }
    }

    fn task_of(&self, row: &Row) -> Option<TaskId> {
        match row {
            Row::Task(t) => Some(t.id),
            Row::Bridge(b) => Some(b.task),
            Row::Envelope(e) => Some(e.task),
            Row::Approval(a) => Some(a.task),
            Row::Payload(_, t, _) => Some(*t),
            Row::Cancel(c) => Some(c.task),
            Row::Inbox(i) => self.hops.get(&i.hop).map(|(t, _)| *t),
            _ => None,
        }
    }

    fn find(&self, find: Find) -> Option<TaskId> {
        let envelope = |id| self.row(&Key::Envelope(id)).and_then(|r| self.task_of(r));
        match find {
            Find::Task(id) => Some(id),
            Find::Hop(id) => self.hops.get(&id).map(|(t, _)| *t),
            Find::Approval(id) => self.row(&Key::Approval(id)).and_then(|r| self.task_of(r)),
            Find::Envelope(id) => envelope(id),
            Find::Lease(id) => self.leases.get(&id).copied().and_then(envelope),
        }
    }

    pub(super) fn door(&self, callback: &CallbackId) -> Option<Doorway> {
        let Row::Route(route) = self.row(&Key::Route(callback.clone()))? else { return None };
        let Row::Bridge(b) = self.row(&Key::Bridge(route.hop))? else { return None };
        let foreign_task = b.foreign.as_ref().map(|f| f.task.clone());
        let agent = (b.agent.clone(), b.registry_version);
        Some(Doorway { route: route.clone(), agent, foreign_task, unread: self.unread(route.hop) })
    }

    fn unread(&self, hop: HopId) -> Unread {
        let of_hop = |h: &Held| match &h.row {
            Row::Inbox(i) if i.hop == hop && i.due_at.is_some() => Some(i.body),
            _ => None,
        };
        let bytes = |id: PayloadId| match self.row(&Key::Payload(id)) {
            Some(Row::Payload(_, _, sealed)) => u64::try_from(sealed.bytes.len()).unwrap_or(u64::MAX),
            _ => 0,
        };
        self.rows.values().filter_map(of_hop).fold(Unread::default(), |sum, body| Unread {
            events: sum.events + 1,
            body_bytes: sum.body_bytes + body.map_or(0, bytes),
        })
    }

    pub(super) fn snapshot(&self, find: Find, now: Timestamp) -> Option<Snapshot> {
        let id = self.find(find)?;
        let held = self.rows.get(&Key::Task(id))?;
        let Row::Task(task) = &held.row else { return None };
        let asked = match find {
            Find::Envelope(id) => Some(id),
            Find::Lease(lease) => self.leases.get(&lease).copied(),
            _ => None,
        };
        let mut s = Snapshot {
            now,
            workflow: task.workflow.as_ref().and_then(|w| {
                let row = self.row(&Key::Workflow(w.name.clone(), w.version))?;
                if let Row::Workflow(w) = row { Some(Arc::new(w.clone())) } else { None }
            }),
            task: (task.clone(), held.version),
            bridges: Vec::new(),
            envelopes: Vec::new(),
            approvals: Vec::new(),
            cancels: Vec::new(),
            inbox: Vec::new(),
            payloads: BTreeMap::new(),
        };
        for h in self.of_task.get(&id).into_iter().flatten().filter_map(|k| self.rows.get(k)) {
            let v = h.version;
            match &h.row {
                Row::Bridge(b) => s.bridges.push((b.clone(), v)),
                Row::Envelope(e) if is_open(&e.state) || asked == Some(e.id) => {
                    s.envelopes.push((e.clone(), v))
                }
                Row::Approval(a) if a.status == ApprovalStatus::Pending || find == Find::Approval(a.id) => {
                    s.approvals.push((a.clone(), v));
                }
                Row::Cancel(c) if c.due_at.is_some() => s.cancels.push((c.clone(), v)),
                Row::Inbox(i) if i.due_at.is_some() => s.inbox.push((i.clone(), v)),
                Row::Payload(id, _, sealed) => {
                    s.payloads.insert(*id, sealed.clone());
                }
                _ => {}
            }
        }
        s.inbox.sort_by_key(|(i, _)| (i.at, i.id));
        Some(s)
    }

    /// Rows of a kind that are due and free, longest waiting first.
    pub(super) fn due(&self, kind: DueKind, now: Timestamp) -> impl Iterator<Item = (Timestamp, Key)> {
        self.due.get(&kind).into_iter().flatten().take_while(move |(at, _)| *at <= now).cloned()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.values().filter_map(|d| d.first()).map(|(at, _)| *at).min()
    }

    pub(super) fn claim(&mut self, kind: DueKind, key: &Key, until: Timestamp) -> Option<(Find, u64)> {
        let held = self.rows.get_mut(key)?;
        let due = self.due.entry(kind).or_default();
        due.remove(&(held.wakes()?, key.clone()));
        held.claimed_until = until;
        held.fence += 1;
        due.insert((held.wakes()?, key.clone()));
        let find = match &held.row {
            Row::Task(t) => Find::Task(t.id),
            Row::Bridge(b) => Find::Hop(b.hop),
            Row::Envelope(e) => Find::Envelope(e.id),
            Row::Approval(a) => Find::Approval(a.id),
            Row::Inbox(i) => Find::Hop(i.hop),
            Row::Cancel(c) => Find::Hop(c.hop),
            _ => return None,
        };
        Some((find, held.fence))
    }

    pub(super) fn ready(&self, to: &[Endpoint], limit: u32) -> Vec<EnvelopeId> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let each =
            distinct(to).into_iter().filter_map(|e| self.ready.get(e)).flat_map(|r| r.iter().take(most));
        distinct(each).into_iter().take(most).map(|(_, id)| *id).collect()
    }

    pub(super) fn fits(&self, t: &Task, filter: &TaskFilter) -> bool {
        let to = filter.agent.clone().map(Endpoint::Agent);
        let goes_there =
            |to: &Endpoint| {
                t.hops.iter().any(|h| h.to == *to)
                    || self.of_task.get(&t.id).into_iter().flatten().any(
                        |k| matches!(k, Key::Bridge(h) if self.hops.get(h).is_some_and(|(_, e)| e == to)),
                    )
            };
        filter.status.as_ref().is_none_or(|s| t.status.as_str() == s)
            && filter.workflow.as_ref().is_none_or(|n| t.workflow.as_ref().is_some_and(|w| w.name == *n))
            && filter.due_before.is_none_or(|d| t.due_at.is_some_and(|at| at < d))
            && to.is_none_or(|to| goes_there(&to))
    }

    /// All versions of all workflows, by name, versions rising.
    pub(super) fn vitals(&self) -> Vitals {
        let mut v = Vitals::default();
        let add = |crowd: &mut Crowd, at: Timestamp| {
            crowd.count += 1;
            crowd.oldest = Some(crowd.oldest.map_or(at, |o| o.min(at)));
        };
        for row in self.rows.values().map(|h| &h.row) {
            match row {
                Row::Bridge(b) if b.due_at.is_some() => {
                    add(v.hops.entry(b.state.as_str().to_owned()).or_default(), b.created_at);
                }
                Row::Envelope(e) if e.due_at.is_some() => match e.state {
                    EnvelopeState::Ready => add(v.ready.entry(e.to.to_string()).or_default(), e.created_at),
                    EnvelopeState::Leased { .. } => add(&mut v.leased, e.created_at),
                    EnvelopeState::Paused { .. }
                    | EnvelopeState::Settled { .. }
                    | EnvelopeState::Void { .. } => {}
                },
                Row::Inbox(i) if i.due_at.is_some() => add(&mut v.inbox, i.at),
                Row::Approval(a) if a.status == ApprovalStatus::Pending => {
                    add(&mut v.approvals, a.created_at)
                }
                Row::Task(t) if t.ended_at.is_none() => v.tasks += 1,
                Row::DeadLetter(d) => add(&mut v.dead_letters, d.at),
                _ => {}
            }
        }
        v
    }

    pub(super) fn workflows(&self) -> impl Iterator<Item = &WorkflowRow> {
        self.rows.values().filter_map(|h| if let Row::Workflow(w) = &h.row { Some(w) } else { None })
    }

    pub(super) fn costs(&self, by: CostBy, from: Timestamp, to: Timestamp) -> Vec<CostLine> {
        let mut sums: BTreeMap<String, (BTreeSet<HopId>, i64, i64)> = BTreeMap::new();
        for s in self.spent.iter().filter(|s| from <= s.at && s.at < to) {
            let hop = self.hops.get(&s.hop);
            let key = match by {
                CostBy::Agent => hop.map(|(_, e)| match e {
                    Endpoint::Agent(k) => k.to_string(),
                    other => other.to_string(),
                }),
                CostBy::Workflow => hop.and_then(|(t, _)| match self.row(&Key::Task(*t)) {
                    Some(Row::Task(t)) => t.workflow.as_ref().map(|w| w.name.to_string()),
                    _ => None,
                }),
                CostBy::Task => hop.map(|(t, _)| t.to_string()),
                CostBy::Day => Some(s.at.to_string().chars().take(10).collect()),
            };
            let line = sums.entry(key.unwrap_or_else(|| "-".to_owned())).or_default();
            if matches!(hop, Some((_, Endpoint::Agent(_)))) {
                line.0.insert(s.hop);
            }
            line.1 = line.1.saturating_add(s.settled_delta);
            line.2 = line.2.saturating_add(s.reserved_delta);
        }
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        let line = |(key, (hops, settled, reserved)): (String, (BTreeSet<HopId>, i64, i64))| CostLine {
            key,
            hops: u64::try_from(hops.len()).unwrap_or(u64::MAX),
            settled_microusd: positive(settled),
            reserved_microusd: positive(reserved),
        };
        sums.into_iter().map(line).collect()
    }

    pub(super) fn registry(&mut self, org: &OrgName, defaults: &OrgDefaults) -> Arc<Registry> {
        if let Some(known) = &self.registry {
            return Arc::clone(known);
        }
        let fresh = Arc::new(self.build_registry(org, defaults));
        self.registry = Some(Arc::clone(&fresh));
        fresh
    }

    fn build_registry(&self, org: &OrgName, defaults: &OrgDefaults) -> Registry {
        let mut r = Registry {
            org: org.clone(),
            version: self.rows.get(&Key::Registry).map_or(0, |h| h.version),
            levels: defaults.levels.clone(),
            default_label: defaults.default_label.clone(),
            platform_mode: defaults.egress_cap,
            org_mode: EgressMode::Off,
            agents: BTreeMap::new(),
            roles: BTreeMap::new(),
            budgets: BTreeMap::new(),
            met: BTreeSet::new(),
            policy: None,
            bounds: Arc::clone(&defaults.bounds),
        };
        for held in self.rows.iter().filter(|(k, _)| governs(k)).map(|(_, h)| h) {
            match &held.row {
                Row::Agent(a) => {
                    r.agents.entry(a.key.clone()).or_default().insert(a.version, Arc::new(a.clone()));
                }
                Row::Role(role) => {
                    r.roles.insert(role.name.clone(), role.clone());
                }
                Row::Budget(scope, budget) => {
                    r.budgets.insert(scope.clone(), *budget);
                }
                Row::Contact(agent) => {
                    r.met.insert(agent.clone());
                }
                Row::Mode(mode) => r.org_mode = *mode,
                // Versions rise with the keys, so the newest stays.
                Row::Policy(p) => r.policy = Some(Arc::new(p.clone())),
                _ => {}
            }
        }
        r
    }
}

fn bound(b: &Bridge) -> Option<ForeignKey> {
    b.foreign.as_ref().map(|f| b.foreign_key(&f.task))
}

const fn is_open(state: &EnvelopeState) -> bool {
    matches!(state, EnvelopeState::Ready | EnvelopeState::Paused { .. } | EnvelopeState::Leased { .. })
}

const fn due_kind(key: &Key) -> Option<DueKind> {
    match key {
        Key::Task(_) => Some(DueKind::Task),
        Key::Bridge(_) => Some(DueKind::Bridge),
        Key::Envelope(_) => Some(DueKind::Envelope),
        Key::Approval(_) => Some(DueKind::Approval),
        Key::Inbox(_) => Some(DueKind::Inbox),
        Key::Cancel(..) => Some(DueKind::Cancel),
        _ => None,
    }
}
