//! The desk at which one task is decided: its rows as they were read, as they shall stand, and what else the
//! decision wants.
//!
//! A decision opens a desk on a snapshot, moves rows, and closes it into one change set. Only rows that
//! differ are written; the events for whoever watches are the differences. Nothing here does I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::approval::{Approval, NotDecided};
use crate::bridge::schedule::LAST_LOOK;
use crate::bridge::state::{Event, Moved};
use crate::bridge::{Bridge, CancelIntent, ForeignKey, Illegal, InboxRow};
use crate::change::{ChangeSet, Effect, Expect, Key, Row, Snapshot, TaskEvent, Write};
use crate::cost::Account;
use crate::envelope::{Envelope, EnvelopeState};
use crate::gate::verdict::Governor;
use crate::id::{
    AgentKey, ApprovalId, ChangeId, EnvelopeId, HopId, Ids, InboxId, LeaseId, PayloadId, StepName,
};
use crate::label::Label;
use crate::ledger::{Actor, Data, Dir, Draft, EdgeKey, SaltedDigest};
use crate::payload::{NotAPayload, Payload, Sealed, Sha256Digest};
use crate::principal::ApiKey;
use crate::registry::Registry;
use crate::task::redo::Adopting;
use crate::task::{Held, Hop, HopState, Question, Run, Step, Task, TaskStatus};
use crate::time::Timestamp;
use crate::walk::Lesson;
use crate::workflow::Workflow;

/// Holds values to JSON Schemas. Pure; fails closed.
pub trait Schemas: Send + Sync {
    /// Does `value` match `schema`?
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String>;
}

/// What a decision is made with, beside the snapshot.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The store's time.
    pub now: Timestamp,
    /// Entries, roles, switches, bounds.
    pub registry: &'a Registry,
    /// The policies.
    pub governor: &'a dyn Governor,
    /// JSON Schema.
    pub schemas: &'a dyn Schemas,
    /// Has the agent capacity for one more attempt now? Advisory.
    pub has_room: &'a (dyn Fn(&AgentKey) -> bool + Sync),
    /// What earlier tries of this decision ran into.
    pub hindsight: &'a Hindsight,
}

/// What commits of earlier tries of one decision ran into, for the next try to heed.
#[derive(Clone, Debug, Default)]
pub struct Hindsight {
    /// Accounts that were found too small.
    pub over_budget: BTreeSet<Account>,
    /// Foreign tasks that are another hop's.
    pub taken: BTreeSet<ForeignKey>,
}

impl Hindsight {
    /// Takes one more lesson to heart.
    pub fn learn(&mut self, lesson: Lesson) {
        match lesson {
            Lesson::OverBudget(account) => self.over_budget.insert(account),
            Lesson::Taken(key) => self.taken.insert(key),
        };
    }
}

/// Why a decision isn't taken. Nothing changes then.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The task has ended.
    #[error("the task has ended")]
    TaskEnded,
    /// What was named isn't part of the task.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The lease ran out, or was taken.
    #[error("the lease is lost")]
    LeaseLost,
    /// The lease was settled by another call.
    #[error("the lease was settled with another call or body")]
    LeaseSettled,
    /// The content is labelled above what the caller may see.
    #[error("the content is labelled above the key's clearance")]
    ClearanceTooLow,
    /// The same call was made before: its answer.
    #[error("the call was made before")]
    Answered(Value),
    /// The role may not delegate there.
    #[error("the role may not delegate to {0}")]
    DestinationNotAllowed(String),
    /// The question was answered before, or is over.
    #[error("the question was answered, or is over")]
    QuestionAnswered,
    /// The content isn't a payload.
    #[error(transparent)]
    Payload(#[from] NotAPayload),
    /// The approver's decision isn't taken.
    #[error(transparent)]
    NotDecided(#[from] NotDecided),
    /// The dead letter was decided before.
    #[error("the dead letter was decided before")]
    LetterDecided,
    /// It may have had effects already, and a duplicate isn't accepted.
    #[error("it may have run already")]
    DuplicateRisk,
    /// The hop isn't one whose sending is unknown.
    #[error("the hop's sending isn't unknown")]
    NotUnknown,
    /// A request that can't be.
    #[error("{0}")]
    Invalid(String),
    /// A member of a request that can't be.
    #[error("{why}")]
    InvalidAt {
        /// Where, as a JSON pointer.
        pointer: String,
        /// Why.
        why: String,
    },
    /// The label isn't one that may be asked for.
    #[error("{0}")]
    BadLabel(String),
    /// A fault of ours: the decision stops rather than guess.
    #[error("inconsistent: {0}")]
    Wrong(String),
}

impl From<Illegal> for Refusal {
    fn from(i: Illegal) -> Self {
        Self::Wrong(i.to_string())
    }
}

/// A row as it was read, and as it shall stand.
#[derive(Clone, Debug)]
pub(crate) struct Tracked<T> {
    was: Option<T>,
    version: u64,
    pub(crate) row: T,
}

impl<T: Clone + PartialEq> Tracked<T> {
    fn read((row, version): (T, u64)) -> Self {
        Self { was: Some(row.clone()), version, row }
    }
    const fn new(row: T) -> Self {
        Self { was: None, version: 0, row }
    }
    fn moved(&self) -> bool {
        self.was.as_ref() != Some(&self.row)
    }
}

/// The desk.
pub struct Desk<'a> {
    pub(crate) ctx: Context<'a>,
    pub(crate) ids: Ids,
    pub(crate) flow: Arc<Workflow>,
    pub(crate) task: Task,
    task_was: Option<(Task, u64)>,
    pub(crate) bridges: BTreeMap<HopId, Tracked<Bridge>>,
    pub(crate) envelopes: BTreeMap<EnvelopeId, Tracked<Envelope>>,
    pub(crate) approvals: BTreeMap<ApprovalId, Tracked<Approval>>,
    pub(crate) cancels: BTreeMap<(HopId, String), Tracked<CancelIntent>>,
    pub(crate) inbox: BTreeMap<InboxId, Tracked<InboxRow>>,
    payloads: BTreeMap<PayloadId, Sealed>,
    pub(crate) set: ChangeSet,
    judged: bool,
    /// A result that an operator takes in for a step of a task that begins.
    pub(crate) adopting: Option<Adopting>,
}

impl<'a> Desk<'a> {
    /// Opens a desk on what was read.
    #[must_use]
    pub fn open(ctx: Context<'a>, mut ids: Ids, flow: Arc<Workflow>, snapshot: Snapshot) -> Self {
        let set = ChangeSet::new(ChangeId::draw(&mut ids), snapshot.task.0.org.clone(), ctx.now);
        Self {
            ctx,
            ids,
            flow,
            task: snapshot.task.0.clone(),
            task_was: Some(snapshot.task),
            bridges: snapshot.bridges.into_iter().map(|b| (b.0.hop, Tracked::read(b))).collect(),
            envelopes: snapshot.envelopes.into_iter().map(|e| (e.0.id, Tracked::read(e))).collect(),
            approvals: snapshot.approvals.into_iter().map(|a| (a.0.id, Tracked::read(a))).collect(),
            cancels: snapshot
                .cancels
                .into_iter()
                .map(|c| ((c.0.hop, c.0.foreign_task.clone().unwrap_or_default()), Tracked::read(c)))
                .collect(),
            inbox: snapshot.inbox.into_iter().map(|i| (i.0.id, Tracked::read(i))).collect(),
            payloads: snapshot.payloads,
            set,
            judged: false,
            adopting: None,
        }
    }

    /// Opens a desk on a task that isn't there yet, with the payloads that it begins with.
    #[must_use]
    pub fn begin(
        ctx: Context<'a>,
        mut ids: Ids,
        flow: Arc<Workflow>,
        task: Task,
        payloads: BTreeMap<PayloadId, Sealed>,
    ) -> Self {
        let mut set = ChangeSet::new(ChangeId::draw(&mut ids), task.org.clone(), ctx.now);
        let rows = payloads.iter().map(|(id, sealed)| Row::Payload(*id, task.id, sealed.clone()));
        set.writes.extend(rows.map(|row| Write { expected: 0, row }));
        Self {
            ctx,
            ids,
            flow,
            task,
            task_was: None,
            bridges: BTreeMap::new(),
            envelopes: BTreeMap::new(),
            approvals: BTreeMap::new(),
            cancels: BTreeMap::new(),
            inbox: BTreeMap::new(),
            payloads,
            set,
            judged: false,
            adopting: None,
        }
    }

    /// The time of the decision.
    pub(crate) const fn now(&self) -> Timestamp {
        self.ctx.now
    }

    /// Notes that the registry was asked, so that the commit expects it as it was.
    pub(crate) const fn judged(&mut self) {
        self.judged = true;
    }

    /// Seals a payload of this task, to be written with the change set.
    pub(crate) fn hold(&mut self, payload: &Payload, label: Label, tainted: bool) -> Held {
        let id = PayloadId::draw(&mut self.ids);
        let sealed = Sealed::new(payload.bytes(), &mut self.ids);
        let held = held_of(id, &sealed, payload, label, tainted);
        self.set.writes.push(Write { expected: 0, row: Row::Payload(id, self.task.id, sealed.clone()) });
        self.payloads.insert(id, sealed);
        held
    }

    /// Reads a held payload, with its artifacts.
    pub(crate) fn payload(&self, held: &Held) -> Result<Payload, Refusal> {
        let sealed = self.sealed(held)?;
        let mut payload = Payload::from_bytes(&sealed.bytes)
            .map_err(|e| Refusal::Wrong(format!("payload {}: {e}", held.id)))?;
        payload.artifacts.clone_from(&held.artifacts);
        Ok(payload)
    }

    /// The stored bytes and salt of a held payload.
    pub(crate) fn sealed(&self, held: &Held) -> Result<&Sealed, Refusal> {
        self.payloads.get(&held.id).ok_or_else(|| Refusal::Wrong(format!("payload {} is missing", held.id)))
    }

    /// A stored payload that rows refer to by id alone.
    pub(crate) fn sealed_by_id(&self, id: PayloadId) -> Option<&Sealed> {
        self.payloads.get(&id)
    }

    /// Keeps a text that a person or an agent wrote, beside the ledger, and gives what the record holds of it.
    pub(crate) fn note(&mut self, text: &str) -> SaltedDigest {
        let salt = self.ids.bytes::<32>();
        let digest = SaltedDigest::of(&salt, text.as_bytes());
        let row = Row::Note(digest.as_str().to_owned(), salt, text.to_owned());
        self.set.writes.push(Write { expected: 0, row });
        digest
    }

    /// One of the hops.
    pub(crate) fn hop(&self, id: HopId) -> Result<&Hop, Refusal> {
        self.task.hop(id).ok_or(Refusal::NotFound("hop"))
    }

    /// One of the hops, to be moved.
    pub(crate) fn hop_mut(&mut self, id: HopId) -> Result<&mut Hop, Refusal> {
        self.task.hops.iter_mut().find(|h| h.id == id).ok_or(Refusal::NotFound("hop"))
    }

    /// One of the steps, to be moved.
    pub(crate) fn step_mut(&mut self, name: &StepName) -> Result<&mut Step, Refusal> {
        self.task.steps.iter_mut().find(|s| s.name == *name).ok_or(Refusal::NotFound("step"))
    }

    /// One of the bridges.
    pub(crate) fn bridge(&self, hop: HopId) -> Result<&Bridge, Refusal> {
        self.bridges.get(&hop).map(|t| &t.row).ok_or(Refusal::NotFound("bridge"))
    }

    /// One of the bridges, to be moved.
    pub(crate) fn bridge_mut(&mut self, hop: HopId) -> Result<&mut Bridge, Refusal> {
        self.bridges.get_mut(&hop).map(|t| &mut t.row).ok_or(Refusal::NotFound("bridge"))
    }

    /// Something happens to a bridge: it stands where the table says.
    pub(crate) fn takes(&mut self, hop: HopId, event: Event) -> Result<(), Refusal> {
        let bridge = self.bridge_mut(hop)?;
        let from = bridge.state;
        bridge.state = from.on(event)?;
        self.set.moves.push(Moved { from, event });
        Ok(())
    }

    /// The envelope that a lease holds, or held.
    pub(crate) fn envelope_of(&self, lease: LeaseId) -> Option<&Envelope> {
        self.envelopes.values().map(|t| &t.row).find(|e| e.lease() == Some(lease))
    }

    /// The envelope that a lease of this key holds or held. Anybody else who names the lease has none.
    pub(crate) fn envelope_held(&self, lease: LeaseId, by: &ApiKey) -> Result<&Envelope, Refusal> {
        let held = self.envelope_of(lease).filter(|e| e.key() == Some(&by.id)).ok_or(Refusal::LeaseLost)?;
        // A settled lease shows nothing more, and its hop may have taken in higher content since.
        let is_open = matches!(held.state, EnvelopeState::Leased { .. });
        if is_open && !self.hop(held.hop)?.seen.flows_to(&by.clearance) {
            return Err(Refusal::ClearanceTooLow);
        }
        Ok(held)
    }

    /// One of the approvals.
    pub(crate) fn approval(&self, id: ApprovalId) -> Result<&Approval, Refusal> {
        self.approvals.get(&id).map(|t| &t.row).ok_or(Refusal::NotFound("approval"))
    }

    /// Adds a row that isn't there yet.
    pub(crate) fn add_bridge(&mut self, bridge: Bridge) {
        self.bridges.insert(bridge.hop, Tracked::new(bridge));
    }
    /// Adds a row that isn't there yet.
    pub(crate) fn add_envelope(&mut self, envelope: Envelope) {
        self.set.effects.push(Effect::Ring(envelope.id, envelope.to.clone()));
        self.envelopes.insert(envelope.id, Tracked::new(envelope));
    }
    /// Adds or replaces a row.
    pub(crate) fn put_approval(&mut self, approval: Approval) {
        match self.approvals.get_mut(&approval.id) {
            Some(t) => t.row = approval,
            None => {
                self.approvals.insert(approval.id, Tracked::new(approval));
            }
        }
    }
    /// Adds a cancel intent, unless it is there.
    pub(crate) fn add_cancel(&mut self, intent: CancelIntent) {
        let key = (intent.hop, intent.foreign_task.clone().unwrap_or_default());
        self.cancels.entry(key).or_insert_with(|| Tracked::new(intent));
    }

    /// The key of a hop's edge in its present turn.
    pub(crate) fn edge_key(&self, hop: &Hop, dir: Dir) -> EdgeKey {
        EdgeKey {
            task: self.task.id,
            step: hop.step.clone(),
            hop: self.task.edge_hop(hop),
            turn: hop.turn,
            dir,
        }
    }

    /// Records something about an edge.
    pub(crate) fn record_about(&mut self, edge: EdgeKey, actor: Actor, data: Data) {
        self.set.drafts.push(Draft::child(self.ctx.now, self.set.id, actor, edge, data));
    }

    /// Records something that belongs to no edge but to this task.
    pub(crate) fn record_apart(&mut self, hop: Option<HopId>, actor: Actor, data: Data) {
        let mut draft = Draft::apart(self.ctx.now, self.set.id, actor, data);
        draft.task = Some(self.task.id);
        draft.hop = hop;
        self.set.drafts.push(draft);
    }

    /// Tells whoever watches.
    pub(crate) fn tell(&mut self, event: &'static str, data: Value) {
        self.set.events.push(TaskEvent { task: self.task.id, event, data });
    }

    /// Closes the desk: what moved becomes the change set.
    #[must_use]
    pub fn close(mut self) -> ChangeSet {
        self.tell_differences();
        if self.judged {
            self.set.expects.push(Expect { key: Key::Registry, version: self.ctx.registry.version });
        }
        self.task.due_at = self.due_at();
        let (was, expected) = self.task_was.clone().map_or((None, 0), |(t, v)| (Some(t), v));
        if was.as_ref() != Some(&self.task) {
            self.set.writes.push(Write { expected, row: Row::Task(self.task.clone()) });
        }
        put(&mut self.set, self.bridges.into_values(), Row::Bridge);
        put(&mut self.set, self.envelopes.into_values(), Row::Envelope);
        put(&mut self.set, self.approvals.into_values(), Row::Approval);
        put(&mut self.set, self.cancels.into_values(), Row::Cancel);
        put(&mut self.set, self.inbox.into_values(), Row::Inbox);
        if !self.set.events.is_empty() {
            self.set.effects.push(Effect::Tell(self.task.id));
        }
        self.set
    }

    fn due_at(&self) -> Option<Timestamp> {
        if self.task.status.is_ended() {
            return None;
        }
        let hops = self.task.hops.iter().filter(|h| !h.is_ended()).filter_map(|h| h.until);
        let live = self.task.steps.iter().filter(|s| !s.status.is_over());
        let retries = live.flat_map(|s| &s.runs).filter_map(Run::retries_at);
        // Readiness is computed afresh now and then, whatever else is due: nothing waits without a clock.
        let afresh = self.ctx.now + self.ctx.registry.bounds.poll_max.times(12);
        let last_looks = self.takes_a_last_look();
        let deadline = self.task.deadline.map(|d| if last_looks { d + LAST_LOOK } else { d });
        let due = hops.chain(retries).chain(deadline).chain([afresh]).min();
        // A time that serves stays: a decision that leaves the task as it was doesn't write its row.
        self.task.due_at.filter(|old| *old > self.ctx.now && due.is_some_and(|d| *old <= d)).or(due)
    }

    fn tell_differences(&mut self) {
        let was = self.task_was.as_ref().map(|(t, _)| t);
        let mut told = Vec::new();
        let running = TaskStatus::Running;
        if was.is_none() {
            told.push(("task", json!({ "status": running, "reason": null })));
        }
        for step in &self.task.steps {
            if was.and_then(|t| t.step(&step.name)).map(|s| s.status) != Some(step.status) {
                let to = self.flow.step(&step.name).map(|d| d.to.to_string());
                let data =
                    json!({ "step": step.name, "to": to, "status": step.status, "reason": step.reason });
                told.push(("step", data));
            }
        }
        for t in self.bridges.values() {
            if t.was.as_ref().map(|b| (b.state, b.turn)) != Some((t.row.state, t.row.turn)) {
                told.push(("hop", hop_event(&t.row)));
            }
        }
        for t in self.approvals.values().filter(|t| t.was.as_ref().map(|a| a.status) != Some(t.row.status)) {
            let (a, by) = (&t.row, t.row.decisions.last().map(|d| d.by.to_string()));
            told.push((
                "approval",
                json!({ "step": a.step, "approval_id": a.id, "status": a.status, "roles": a.roles, "by": by }),
            ));
        }
        for hop in &self.task.hops {
            let before = was.and_then(|t| t.hop(hop.id)).map(|h| &h.state);
            if let HopState::Asking(q) = &hop.state
                && before != Some(&hop.state)
            {
                told.push(("question", self.question_event(hop, q)));
            }
        }
        if was.map_or(running, |t| t.status) != self.task.status {
            told.push(("task", json!({ "status": self.task.status, "reason": self.task.reason })));
        }
        for (event, data) in told {
            self.tell(event, data);
        }
    }

    fn question_event(&self, hop: &Hop, q: &Question) -> Value {
        let prompt = self.payload(&q.prompt).map_or(Value::Null, |p| p.shown());
        json!({ "step": hop.step, "question_id": q.id, "prompt": prompt, "until": q.until })
    }
}

/// A held payload's row, of what was sealed.
#[must_use]
pub fn held_of(id: PayloadId, sealed: &Sealed, payload: &Payload, label: Label, tainted: bool) -> Held {
    Held {
        id,
        digest: SaltedDigest::from(sealed),
        plain: Sha256Digest::of(&sealed.bytes),
        bytes: u64::try_from(sealed.bytes.len()).unwrap_or(u64::MAX),
        label,
        tainted,
        artifacts: payload.artifacts.clone(),
    }
}

fn put<T: Clone + PartialEq>(set: &mut ChangeSet, rows: impl Iterator<Item = Tracked<T>>, row: fn(T) -> Row) {
    set.writes.extend(rows.filter(Tracked::moved).map(|t| Write { expected: t.version, row: row(t.row) }));
}

fn hop_event(b: &Bridge) -> Value {
    json!({
        "step": b.step, "hop_id": b.hop, "state": b.state.as_str(), "turn": b.turn, "attempt": b.begun,
        "reason": b.reason, "due_at": b.due_at,
    })
}
