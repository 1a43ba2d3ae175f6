//! The promises, held against each change set as it becomes durable and against each request as it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use exeat_core::bridge::{Bridge, BridgeState, ForeignKey};
use exeat_core::change::{ChangeSet, Row};
use exeat_core::cost::{Account, Balance, apply};
use exeat_core::endpoint::Endpoint;
use exeat_core::envelope::{Envelope, EnvelopeKind, EnvelopeState};
use exeat_core::gate::exeat::AttemptId;
use exeat_core::gate::verdict::Decision;
use exeat_core::id::{AgentKey, EnvelopeId, HopId, OrgName, TaskId};
use exeat_core::ledger::data::{CostEntry, EdgeData, Judged};
use exeat_core::ledger::{Data, Dir, EdgeKey, Party, Verifier};
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::{Archive as _, Store as _};
use exeat_core::registry::{AgentStatus, EgressMode, Registry};
use exeat_core::task::{HopState, Task};
use exeat_core::time::{Monotonic, Timestamp};

use crate::memory::Memory;
use crate::sim::clock::VirtualClock;
use crate::world::Sent;

struct Leased {
    attempt: AttemptId,
    until: Timestamp,
    payload: Sha256Digest,
    agent: AgentKey,
    version: u32,
    sent: bool,
}

#[derive(Default)]
struct Seen {
    tasks: BTreeMap<TaskId, Task>,
    bridges: BTreeMap<HopId, BridgeState>,
    leases: BTreeMap<(HopId, u32), Leased>,
    verdicts: BTreeMap<EdgeKey, Decision>,
    outcomes: BTreeSet<EdgeKey>,
    envelopes: BTreeMap<(HopId, u32), EnvelopeId>,
    foreign: BTreeMap<ForeignKey, HopId>,
    agents: BTreeMap<HopId, AgentKey>,
    money: BTreeMap<(HopId, u32), [u64; 4]>,
    hop_task: BTreeMap<HopId, TaskId>,
    balances: BTreeMap<Account, Balance>,
    broken: Vec<String>,
    trail: Vec<String>,
}

/// What has become durable so far, and which promise it broke.
#[derive(Clone)]
pub struct Audit {
    clock: VirtualClock,
    seen: Arc<Mutex<Seen>>,
    tell: bool,
}

impl Audit {
    /// Nothing has happened yet. `tell`: keep a trail of what was committed, for the replay of a seed.
    #[must_use]
    pub fn new(clock: VirtualClock, tell: bool) -> Self {
        Self { clock, seen: Arc::default(), tell }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise is broken.
    pub fn broken(&self, what: impl Into<String>) {
        let at = self.clock.elapsed();
        self.seen().broken.push(format!("at {at}: {}", what.into()));
    }

    /// What is broken so far.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        self.seen().broken.clone()
    }

    /// Is anything broken?
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.seen().broken.is_empty()
    }

    /// Something worth telling when a seed is replayed.
    pub fn trail(&self, what: impl FnOnce() -> String) {
        if self.tell {
            let line = format!("{:>12} {}", self.clock.elapsed().to_string(), what());
            self.seen().trail.push(line);
        }
    }

    /// The trail.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        self.seen().trail.clone()
    }

    /// A change set is durable.
    pub async fn durable(&self, memory: &Memory, set: &ChangeSet) {
        let Ok(registry) = memory.registry(&set.org).await else { return };
        let mut s = self.seen();
        let mut wrong = Vec::new();
        s.records(set, &registry, &mut wrong);
        s.money(set, &mut wrong);
        for w in &set.writes {
            s.row(&w.row, &mut wrong);
            if org_of(&w.row).is_some_and(|o| *o != set.org) {
                wrong.push(format!("P8: a row of another org in a set of {}: {:?}", set.org, w.row.key()));
            }
        }
        s.leased(set, &registry, &mut wrong);
        s.task_money(set, &mut wrong);
        s.foreign(set, &mut wrong);
        let at = self.clock.elapsed();
        s.broken.extend(wrong.into_iter().map(|w| format!("at {at}: {w}")));
        drop(s);
        self.trail(|| trail_of(set));
    }

    /// A request has left.
    pub fn left(&self, sent: &Sent) {
        let clock = self.clock.clone();
        let mut s = self.seen();
        let AttemptId { hop, n, .. } = sent.attempt;
        let mut wrong = Vec::new();
        match s.leases.get_mut(&(hop, n)) {
            None => wrong.push("P1: sent without a durable lease".to_owned()),
            Some(l) => {
                if l.attempt != sent.attempt {
                    wrong.push("P1: sent under another attempt's lease".to_owned());
                }
                if std::mem::replace(&mut l.sent, true) {
                    wrong.push("P1: one lease, two requests".to_owned());
                }
                if sent.at > sent.not_after || Monotonic(sent.not_after.0) > clock.monotonic_of(l.until) {
                    wrong.push("P1: sent beyond its lease".to_owned());
                }
                if l.agent != sent.agent {
                    wrong.push("P7: sent to another agent than the hop's".to_owned());
                }
                if l.payload != sent.payload || l.version != sent.version {
                    wrong.push("P12: other bytes, or another entry, than were judged".to_owned());
                }
            }
        }
        s.broken.extend(wrong.into_iter().map(|w| format!("at {}: {w}: {sent:?}", clock.elapsed())));
    }

    /// Everything should be over: is it?
    pub async fn at_rest(&self, memory: &Memory, org: &OrgName) -> Vec<String> {
        let mut wrong = Vec::new();
        for (_, row) in memory.rows(org) {
            if row.due_at().is_some() {
                wrong.push(format!("still due at the end: {row:#?}"));
            }
        }
        let balances = memory.balances(org);
        for (account, b) in &balances {
            if b.reserved_microusd != 0 {
                wrong.push(format!("P5: {b:?} still reserved on {account:?}"));
            }
        }
        let mut verifier = Verifier::new(org.clone());
        for r in memory.records(org, 1, u32::MAX).await.unwrap_or_default() {
            if let Err(bad) = verifier.record(&r.bytes, &r.hash) {
                wrong.push(format!("the chain: {bad:?}: {}", String::from_utf8_lossy(&r.bytes)));
                break;
            }
        }
        let verification = verifier.finish();
        if !verification.verified {
            wrong.push(format!("the chain: {verification:?}"));
        }
        let s = self.seen();
        if s.balances != balances {
            wrong.push("P5: balances aren't the sums of what was moved".to_owned());
        }
        for (turn, [reserved, overrun, settled, released]) in &s.money {
            if reserved + overrun != settled + released {
                wrong.push(format!("P5: turn {turn:?} doesn't add up"));
            }
        }
        for t in s.tasks.values() {
            if !t.status.is_ended() {
                wrong.push(format!("never ended: {t:#?}"));
            }
            if t.reserved_microusd != 0 {
                wrong.push(format!("P5: task {} still has {} reserved", t.id, t.reserved_microusd));
            }
        }
        wrong
    }

    /// Edges so far.
    #[must_use]
    pub fn edges(&self) -> u64 {
        u64::try_from(self.seen().verdicts.len()).unwrap_or(u64::MAX)
    }

    /// Asks something of each task that was started.
    #[must_use]
    pub fn of_tasks<T>(&self, ask: impl Fn(&Task) -> Vec<T>) -> Vec<T> {
        self.seen().tasks.values().flat_map(ask).collect()
    }
}

fn trail_of(set: &ChangeSet) -> String {
    use std::fmt::Write as _;
    let mut out = format!("{}", set.id);
    for w in &set.writes {
        let _ = match &w.row {
            Row::Task(t) => write!(
                out,
                " task={:?} steps={:?}",
                t.status,
                t.steps.iter().map(|s| s.status).collect::<Vec<_>>()
            ),
            Row::Bridge(b) => write!(
                out,
                " bridge={}…{:?}/t{} due={:?}",
                &b.hop.to_string()[30..],
                b.state,
                b.turn,
                b.due_at
            ),
            Row::Envelope(e) => {
                write!(out, " env={:?}/t{}:{:?}", e.kind, e.turn, std::mem::discriminant(&e.state))
            }
            Row::Approval(a) => write!(out, " approval={:?}/{:?}/{:?}", a.dir, a.turn, a.status),
            Row::Cancel(c) => write!(out, " cancel={:?}/{:?}", c.foreign_task, c.outcome),
            Row::Inbox(i) => write!(out, " inbox={:?}/{:?} due={:?}", i.claim, i.checks, i.due_at),
            Row::DeadLetter(d) => write!(out, " dead={:?}", d.kind),
            Row::Payload(..) => Ok(()),
            r => write!(out, " {:?}", r.key()),
        };
    }
    for d in &set.drafts {
        let hop = d.hop.map(|h| h.to_string()[30..].to_owned()).unwrap_or_default();
        let _ =
            write!(out, "\n              | {} {hop}/t{:?} {:?}", d.kind().as_str(), d.turn, brief(&d.data));
    }
    out
}

fn brief(data: &Data) -> String {
    match data {
        Data::Edge(e) => format!("{:?} {:?} {:?}", e.dir, e.verdict.decision, e.to),
        Data::Verdict(v) => format!("{:?}", v.decision),
        Data::Outcome(o) => format!("{:?} {:?} {:?}", o.status, o.reason, o.effects),
        Data::Attempt(a) => format!("n{} {:?} {:?}", a.n, a.outcome, a.detail),
        Data::Cost(c) => format!("{:?} {}", c.entry, c.amount_microusd),
        other => format!("{other:?}"),
    }
}

impl Seen {
    fn records(&mut self, set: &ChangeSet, registry: &Registry, wrong: &mut Vec<String>) {
        for d in &set.drafts {
            match (&d.data, d.edge_key(), d.about.clone()) {
                (Data::Edge(e), Some(key), _) => {
                    self.verdicts.insert(key, e.verdict.decision);
                    flows(e, registry, wrong);
                }
                (Data::Verdict(Judged { decision, .. }), _, Some(key)) => {
                    self.verdicts.insert(key, *decision);
                }
                (Data::Outcome(_), _, Some(key)) if !self.outcomes.insert(key.clone()) => {
                    wrong.push(format!("P2: a second outcome of {key:?}"));
                }
                _ => {}
            }
            if let (Some(hop), Some(task)) = (d.hop, d.task) {
                self.hop_task.insert(hop, task);
            }
        }
    }

    fn money(&mut self, set: &ChangeSet, wrong: &mut Vec<String>) {
        for m in &set.costs {
            let turn = self.money.entry((m.hop, m.turn)).or_default();
            let side = match m.entry {
                CostEntry::Reserve => 0,
                CostEntry::Overrun => 1,
                CostEntry::Settle => 2,
                CostEntry::Release => 3,
            };
            turn[side] += m.amount_microusd;
            if turn[2] + turn[3] > turn[0] + turn[1] + m.amount_microusd {
                wrong.push(format!("P5: turn {}/{} gives more than it had: {turn:?}", m.hop, m.turn));
            }
            for (account, limit) in &m.accounts {
                let balance = self.balances.entry(account.clone()).or_default();
                if let Some(after) = apply(*balance, m, None) {
                    *balance = after;
                }
                let over = limit.is_some_and(|l| balance.reserved_microusd + balance.settled_microusd > l);
                if m.entry == CostEntry::Reserve && over {
                    wrong.push(format!("P5: {account:?} is reserved beyond its limit"));
                }
            }
        }
    }

    /// A task's own sums are those of its moves.
    fn task_money(&self, set: &ChangeSet, wrong: &mut Vec<String>) {
        let of: BTreeSet<TaskId> = set.costs.iter().filter_map(|m| self.task_of(m.hop)).collect();
        for id in of {
            let Some(task) = self.tasks.get(&id) else { continue };
            let mine = self.money.iter().filter(|((h, _), _)| task.hop(*h).is_some());
            let (mut cost, mut open) = (0, 0);
            for (_, [reserved, overrun, settled, released]) in mine {
                cost += settled;
                open += (reserved + overrun).saturating_sub(settled + released);
            }
            if task.cost_microusd != cost || task.reserved_microusd != open {
                wrong.push(format!(
                    "P5: task {id} says {}/{}, its entries say {cost}/{open}",
                    task.cost_microusd, task.reserved_microusd
                ));
            }
        }
    }

    fn task_of(&self, hop: HopId) -> Option<TaskId> {
        self.tasks.values().find(|t| t.hop(hop).is_some()).map(|t| t.id)
    }

    fn leased(&mut self, set: &ChangeSet, registry: &Registry, wrong: &mut Vec<String>) {
        for a in &set.leases {
            let bridge = set.writes.iter().find_map(|w| match &w.row {
                Row::Bridge(b) if b.hop == a.hop => Some(b),
                _ => None,
            });
            let Some(bridge) = bridge else {
                wrong.push(format!("P1: a lease without its row: {a:?}"));
                continue;
            };
            let BridgeState::Sending { n, until } = bridge.state else {
                wrong.push(format!("P1: a lease in {:?}", bridge.state));
                continue;
            };
            let edge = EdgeKey {
                task: bridge.task,
                step: bridge.step.clone(),
                hop: Some(a.hop),
                turn: a.turn,
                dir: Dir::A2aEgress,
            };
            if n != a.n || self.verdicts.get(&edge) != Some(&Decision::Allow) {
                wrong.push(format!("P1: leased without an allow: {a:?}"));
            }
            self.fits(bridge, registry, wrong);
            self.may_go(bridge, registry, wrong);
            let leased = Leased {
                attempt: a.clone(),
                until,
                payload: bridge.payload.plain,
                agent: bridge.agent.clone(),
                version: bridge.registry_version,
                sent: false,
            };
            if self.leases.insert((a.hop, a.n), leased).is_some() {
                wrong.push(format!("P1: leased twice: {a:?}"));
            }
        }
    }

    /// P13 and the switches: nothing is leased while it is dark, nothing new while it drains. P7: the workflow, or the
    /// role that asked, named the agent.
    fn may_go(&self, b: &Bridge, registry: &Registry, wrong: &mut Vec<String>) {
        let new = b.begun == 1;
        let open = match registry.mode() {
            EgressMode::On => true,
            EgressMode::Drain => !new,
            EgressMode::Off | EgressMode::Halt => false,
        };
        let signed = registry
            .agent(&b.agent)
            .is_some_and(|a| a.status == AgentStatus::Active && !a.halted && !a.signed_by.is_empty());
        if !open || !signed {
            wrong.push(format!(
                "P13: {} is leased while it must not be contacted: {:?}",
                b.hop,
                registry.mode()
            ));
        }
        let to = self.tasks.get(&b.task).and_then(|t| t.hop(b.hop)).map(|h| h.to.clone());
        if to.is_some_and(|to| to != Endpoint::Agent(b.agent.clone())) {
            wrong.push(format!("P7: a hop to another endpoint went to {}", b.agent));
        }
    }

    fn fits(&self, b: &Bridge, registry: &Registry, wrong: &mut Vec<String>) {
        let ceiling = registry.agent_at(&b.agent, b.registry_version).map(|a| a.posture.ceiling.clone());
        if !ceiling.is_some_and(|c| b.payload.label.flows_to(&c)) {
            wrong.push(format!("P6: {} gets more than it may", b.agent));
        }
    }

    fn row(&mut self, row: &Row, wrong: &mut Vec<String>) {
        match row {
            Row::Task(t) => self.task(t, wrong),
            Row::Bridge(b) => {
                let before = self.bridges.insert(b.hop, b.state);
                if before.is_some_and(|s| s.is_terminal() && s != b.state) {
                    wrong.push(format!("P3: bridge {} went from {before:?} to {:?}", b.hop, b.state));
                }
                if b.state.is_terminal() == b.due_at.is_some() {
                    wrong.push(format!("P4: bridge in {:?} is due {:?}", b.state, b.due_at));
                }
            }
            Row::Envelope(e) => self.envelope(e, wrong),
            Row::Cancel(c) if c.outcome.is_some() == c.due_at.is_some() => {
                wrong.push(format!("P4: {c:?}"));
            }
            _ => {}
        }
    }

    /// A foreign task serves one hop, and no other hop asks for its end.
    fn foreign(&mut self, set: &ChangeSet, wrong: &mut Vec<String>) {
        for w in &set.writes {
            let (hop, task) = match &w.row {
                Row::Bridge(b) => {
                    self.agents.insert(b.hop, b.agent.clone());
                    (b.hop, b.foreign.as_ref().map(|f| f.task.clone()))
                }
                Row::Cancel(c) if w.expected == 0 => (c.hop, c.foreign_task.clone()),
                _ => continue,
            };
            let (Some(agent), Some(task)) = (self.agents.get(&hop).cloned(), task) else { continue };
            let key = ForeignKey { agent, task };
            if self.foreign.get(&key).is_some_and(|h| *h != hop) {
                wrong.push(format!("R-086: {key:?} of two hops"));
            }
            if matches!(w.row, Row::Bridge(_)) {
                self.foreign.insert(key, hop);
            }
        }
    }

    fn envelope(&mut self, e: &Envelope, wrong: &mut Vec<String>) {
        let first = *self.envelopes.entry((e.hop, e.turn)).or_insert(e.id);
        if first != e.id {
            wrong.push(format!("P3: two envelopes of one turn: {e:?}"));
        }
        if (e.kind == EnvelopeKind::Reply) != (e.turn > 1) {
            wrong.push(format!("P3: a {:?} in turn {}", e.kind, e.turn));
        }
        let open = matches!(
            e.state,
            EnvelopeState::Ready | EnvelopeState::Paused { .. } | EnvelopeState::Leased { .. }
        );
        if open != e.due_at.is_some() {
            wrong.push(format!("P4: envelope {:?} is due {:?}", e.state, e.due_at));
        }
    }

    fn task(&mut self, t: &Task, wrong: &mut Vec<String>) {
        if t.status.is_ended() == t.due_at.is_some() {
            wrong.push(format!("P4: task {:?} is due {:?}", t.status, t.due_at));
        }
        if let Some(before) = self.tasks.get(&t.id) {
            if before.status.is_ended() && before.status != t.status {
                wrong.push(format!("P3: task went from {:?} to {:?}", before.status, t.status));
            }
            for h in &before.hops {
                let now = t.hop(h.id).map(|n| &n.state);
                if matches!(h.state, HopState::Ended { .. }) && now != Some(&h.state) {
                    wrong.push(format!("P3: hop {} went from {:?} to {now:?}", h.id, h.state));
                }
            }
        }
        if t.status.is_ended() && t.hops.iter().any(|h| !h.is_ended()) {
            wrong.push(format!("P3: a hop outlives its task: {t:#?}"));
        }
        self.tasks.insert(t.id, t.clone());
    }
}

/// Whose row it is, where it says so.
const fn org_of(row: &Row) -> Option<&OrgName> {
    match row {
        Row::Task(t) => Some(&t.org),
        Row::Bridge(b) => Some(&b.org),
        Row::Envelope(e) => Some(&e.org),
        Row::Approval(a) => Some(&a.org),
        Row::Route(r) => Some(&r.org),
        Row::Inbox(i) => Some(&i.org),
        Row::Cancel(c) => Some(&c.org),
        _ => None,
    }
}

/// P6: what an edge brings is within what its receiver may get, unless it was turned away.
fn flows(e: &EdgeData, registry: &Registry, wrong: &mut Vec<String>) {
    let Party::Endpoint(to) = &e.to else { return };
    if e.verdict.decision == Decision::Deny {
        return;
    }
    let ceiling = match to {
        Endpoint::Agent(k) => e
            .registry_version
            .and_then(|v| registry.agent_at(k, u32::try_from(v).unwrap_or(0)))
            .map(|a| a.posture.ceiling.clone()),
        internal => registry.internal_ceiling(internal),
    };
    let tags = e.label.tags.iter().map(|t| t.as_str().to_owned());
    let label = registry.levels.label(&e.label.level, tags).ok();
    match (label, ceiling) {
        (Some(l), Some(c)) if l.flows_to(&c) => {}
        (l, c) => wrong.push(format!("P6: {l:?} to {to}, who may get {c:?}")),
    }
}
