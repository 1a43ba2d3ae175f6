//! A worker's turn: the lease on an envelope, and the calls that settle it.
//!
//! The lease id is the idempotency key of the turn: the same call with the same body gets the same answer,
//! another one is refused, and a lease that ran out counts for nothing. A lease is its key's: whoever else names it has none.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::bridge::schedule::backoff;
use crate::change::Snapshot;
use crate::change::{ChangeSet, DeadKind};
use crate::cost;
use crate::endpoint::Endpoint;
use crate::envelope::{Envelope, EnvelopeKind, EnvelopeState};
use crate::id::{EnvelopeId, HopId, Ids, LeaseId, RoleName};
use crate::ledger::data::{CostData, CostEntry};
use crate::ledger::{Actor, Data, Dir};
use crate::payload::{Payload, Sha256Digest, canonical};
use crate::principal::ApiKey;
use crate::reason::ReasonCode;
use crate::task::desk::{Context, Desk, Refusal};
use crate::task::{End, Ending, Hop, HopOwner, HopState};
use crate::time::{Span, Timestamp};
use crate::workflow::Workflow;

/// What a worker's call settles a lease with.
#[derive(Clone, Debug)]
pub enum Call {
    /// The work is done.
    Complete {
        /// What it gave.
        output: Value,
        /// What it cost, as the worker says.
        cost_microusd: Option<u64>,
    },
    /// It waits for what it delegates.
    Suspend(super::query::Suspend),
    /// It gives up.
    Fail {
        /// Why.
        reason: String,
        /// Shall another worker try?
        retry: Retry,
    },
}

/// Shall another worker try?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Yes, while deliveries are left.
    Again,
    /// No.
    Never,
}

/// Takes an envelope for a worker, with the key that alone may settle it.
///
/// # Errors
/// [`Refusal::LeaseLost`] if somebody else has it or it is over.
pub fn lease(
    ctx: Context<'_>,
    mut ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    envelope: EnvelopeId,
    by: &ApiKey,
    (worker, role): (&str, &RoleName),
) -> Result<(Value, ChangeSet), Refusal> {
    let lease = LeaseId::draw(&mut ids);
    let mut desk = Desk::open(ctx, ids, flow, snapshot);
    let until = desk.now() + desk.ctx.registry.bounds.lease;
    let tracked = desk.envelopes.get_mut(&envelope).ok_or(Refusal::LeaseLost)?;
    if tracked.row.state != EnvelopeState::Ready {
        return Err(Refusal::LeaseLost);
    }
    tracked.row.delivery += 1;
    tracked.row.state = EnvelopeState::Leased {
        lease,
        key: Some(by.id.clone()),
        worker: worker.to_owned(),
        role: role.clone(),
        until,
    };
    tracked.row.due_at = Some(until);
    let taken = tracked.row.clone();
    let shown = desk.lease_shown(&taken, lease, role, until)?;
    Ok((shown, desk.close()))
}

/// Makes a lease last longer, and says whether its task was canceled meanwhile.
///
/// # Errors
/// [`Refusal::LeaseLost`] if it ran out or is another key's, [`Refusal::LeaseSettled`] if it was settled.
pub fn extend(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    (lease, by): (LeaseId, &ApiKey),
    longer: Span,
) -> Result<(Value, ChangeSet), Refusal> {
    let mut desk = Desk::open(ctx, ids, flow, snapshot);
    let now = desk.now();
    let held = desk.envelope_held(lease, by)?.clone();
    let EnvelopeState::Leased { lease, key, worker, role, until } = held.state else {
        return match held.state {
            EnvelopeState::Void { .. } => Ok((json!({ "expires_at": now, "canceled": true }), desk.close())),
            EnvelopeState::Settled { .. } => Err(Refusal::LeaseSettled),
            EnvelopeState::Leased { .. } | EnvelopeState::Ready | EnvelopeState::Paused { .. } => {
                Err(Refusal::LeaseLost)
            }
        };
    };
    if until <= now {
        return Err(Refusal::LeaseLost);
    }
    let until = until.max(now + longer.min(desk.ctx.registry.bounds.lease.times(10)));
    if let Some(t) = desk.envelopes.get_mut(&held.id) {
        t.row.state = EnvelopeState::Leased { lease, key, worker, role, until };
        t.row.due_at = Some(until);
    }
    Ok((json!({ "expires_at": until, "canceled": false }), desk.close()))
}

/// Settles a lease with a call.
///
/// # Errors
/// [`Refusal::Answered`] with the first answer if the same call was made before; otherwise why it isn't taken.
pub fn settle(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    (lease, by): (LeaseId, &ApiKey),
    call: Call,
    body: &Value,
) -> Result<(Value, ChangeSet), Refusal> {
    let mut desk = Desk::open(ctx, ids, flow, snapshot);
    let digest = Sha256Digest::of(&canonical(body));
    let envelope = desk.envelope_held(lease, by)?.clone();
    let role = match &envelope.state {
        EnvelopeState::Settled { call, answer, .. } if *call == digest => {
            return Err(Refusal::Answered(answer.clone()));
        }
        EnvelopeState::Settled { .. } => return Err(Refusal::LeaseSettled),
        EnvelopeState::Void { .. } | EnvelopeState::Ready | EnvelopeState::Paused { .. } => {
            return Err(Refusal::LeaseLost);
        }
        EnvelopeState::Leased { until, .. } if *until <= desk.now() => return Err(Refusal::LeaseLost),
        EnvelopeState::Leased { role, .. } => role.clone(),
    };
    let worker = match &envelope.state {
        EnvelopeState::Leased { worker, .. } => worker.clone(),
        _ => String::new(),
    };
    let done = desk.take_call(&envelope, &role, &worker, call)?;
    desk.advance()?;
    let answer = desk.answer_to(&envelope, done);
    if let Some(t) = desk.envelopes.get_mut(&envelope.id)
        && done == Settles::Yes
    {
        t.row.state =
            EnvelopeState::Settled { lease, key: Some(by.id.clone()), call: digest, answer: answer.clone() };
        t.row.due_at = None;
    }
    Ok((answer, desk.close()))
}

/// A lease ran out, or an envelope was never taken.
///
/// # Errors
/// Only faults of ours.
pub fn envelope_due(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    envelope: EnvelopeId,
) -> Result<ChangeSet, Refusal> {
    let mut desk = Desk::open(ctx, ids, flow, snapshot);
    let Some(row) = desk.envelopes.get(&envelope).map(|t| t.row.clone()) else { return Ok(desk.close()) };
    match row.state {
        EnvelopeState::Leased { until, .. } if until <= desk.now() => {
            desk.hand_back(&row, ReasonCode::WorkerFailed, "its lease ran out too often", Span::ZERO)?;
            desk.advance()?;
        }
        EnvelopeState::Paused { until } if until <= desk.now() => desk.make_ready(&row),
        EnvelopeState::Ready => desk.ring_again(&row),
        EnvelopeState::Paused { .. }
        | EnvelopeState::Leased { .. }
        | EnvelopeState::Settled { .. }
        | EnvelopeState::Void { .. } => {}
    }
    Ok(desk.close())
}

/// A worker that can't read its command's output says so with this word before the detail.
fn failure(reason: &str) -> (ReasonCode, &str) {
    match reason.strip_prefix(ReasonCode::BadWorkerOutput.as_str()) {
        Some(detail) => (ReasonCode::BadWorkerOutput, detail.trim_start_matches([':', ' '])),
        None => (ReasonCode::WorkerFailed, reason),
    }
}

/// Does the call settle the lease, or give the envelope back?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settles {
    Yes,
    GivesBack,
}

impl Desk<'_> {
    fn take_call(
        &mut self,
        envelope: &Envelope,
        role: &RoleName,
        worker: &str,
        call: Call,
    ) -> Result<Settles, Refusal> {
        let id = envelope.hop;
        let hop = self.hop(id)?.clone();
        if hop.state != (HopState::Out { envelope: envelope.id }) {
            return Err(Refusal::LeaseLost);
        }
        // From here on the lease is settled or given back: closing the hop mustn't void it.
        match call {
            Call::Complete { output, cost_microusd } => {
                let end = self.completed(&hop, &output);
                self.spend(&hop, cost_microusd.unwrap_or(0), worker);
                self.hop_mut(id)?.deliveries += envelope.delivery;
                self.end_hop(id, end)?;
                Ok(Settles::Yes)
            }
            Call::Suspend(suspend) => {
                self.suspend(&hop, role, worker, suspend)?;
                self.hop_mut(id)?.deliveries += envelope.delivery;
                Ok(Settles::Yes)
            }
            Call::Fail { reason, retry: Retry::Never } => {
                self.hop_mut(id)?.deliveries += envelope.delivery;
                let (code, why) = failure(&reason);
                self.bury(DeadKind::Work, &hop, code, why, None);
                self.end_hop(id, End::badly(Ending::Failed, code, why))?;
                Ok(Settles::Yes)
            }
            Call::Fail { reason, retry: Retry::Again } => {
                let bounds = &self.ctx.registry.bounds;
                let pause = backoff(envelope.delivery, bounds.retry_first, bounds.retry_max);
                self.hand_back(envelope, ReasonCode::WorkerFailed, &reason, pause)?;
                Ok(Settles::GivesBack)
            }
        }
    }

    fn completed(&mut self, hop: &Hop, output: &Value) -> End {
        match Payload::from_json(output, &self.ctx.registry.bounds.payload) {
            Ok(payload) => End::well(self.hold(&payload, hop.seen.clone(), hop.tainted)),
            Err(why) => End::badly(Ending::Failed, ReasonCode::BadWorkerOutput, &why.to_string()),
        }
    }

    /// A worker's own cost: nothing was reserved for it, so it is an overrun that is settled.
    fn spend(&mut self, hop: &Hop, amount: u64, worker: &str) {
        if amount == 0 {
            return;
        }
        let edge = self.edge_key(hop, Dir::Forward);
        for m in cost::close(hop.id, hop.turn, 0, amount, &self.own_accounts()) {
            let data = CostData {
                entry: m.entry,
                amount_microusd: m.amount_microusd,
                rule: None,
                estimate_microusd: None,
                reported_microusd: Some(amount),
                elapsed_ms: None,
            };
            self.record_about(edge.clone(), Actor::worker(worker), Data::Cost(data));
            if m.entry == CostEntry::Settle {
                self.task.cost_microusd = self.task.cost_microusd.saturating_add(amount);
                self.tell_cost(hop.id, m.entry, amount);
            }
            self.set.costs.push(m);
        }
    }

    fn own_accounts(&self) -> Vec<cost::Account> {
        let workflow = self.task.workflow.as_ref().map(|w| cost::Scope::Workflow(w.name.clone()));
        let shared = [Some(cost::Scope::Org), workflow].into_iter().flatten();
        let shared = shared.flat_map(|scope| cost::accounts_of(&scope, None, self.now())).map(|(a, _)| a);
        let own = self.task.budget_microusd.map(|_| cost::Scope::Task(self.task.id));
        shared.chain(own.map(|scope| cost::Account { scope, since: Timestamp::EPOCH })).collect()
    }

    /// Tells whoever watches that money moved.
    pub(crate) fn tell_cost(&mut self, hop: HopId, entry: CostEntry, amount: u64) {
        let data = json!({
            "hop_id": hop, "entry": entry, "amount_microusd": amount, "task_microusd": self.task.cost_microusd,
        });
        self.tell("cost", data);
    }

    /// Puts an envelope back for another worker, after a pause if there is one, or ends its hop if that was tried
    /// too often.
    fn hand_back(
        &mut self,
        envelope: &Envelope,
        code: ReasonCode,
        why: &str,
        pause: Span,
    ) -> Result<(), Refusal> {
        if envelope.delivery >= self.ctx.registry.bounds.max_deliveries {
            let hop = self.hop(envelope.hop)?.clone();
            self.hop_mut(envelope.hop)?.deliveries += envelope.delivery;
            self.bury(DeadKind::Work, &hop, code, why, None);
            return self.end_hop(envelope.hop, End::badly(Ending::Failed, code, why));
        }
        if pause == Span::ZERO {
            self.make_ready(envelope);
            return Ok(());
        }
        let until = self.now() + pause;
        if let Some(t) = self.envelopes.get_mut(&envelope.id) {
            t.row.state = EnvelopeState::Paused { until };
            t.row.due_at = Some(until);
        }
        Ok(())
    }

    fn make_ready(&mut self, envelope: &Envelope) {
        let next = self.now() + self.ctx.registry.bounds.retry_first.times(u64::from(envelope.delivery));
        if let Some(t) = self.envelopes.get_mut(&envelope.id) {
            t.row.state = EnvelopeState::Ready;
            t.row.due_at = Some(next);
        }
        self.set.effects.push(crate::change::Effect::Ring(envelope.id, envelope.to.clone()));
    }

    fn ring_again(&mut self, envelope: &Envelope) {
        let waited = self.now().since(envelope.created_at);
        let next = self.now() + waited.max(Span::of_secs(5)).min(Span::of_secs(300));
        if let Some(t) = self.envelopes.get_mut(&envelope.id) {
            t.row.due_at = Some(next);
        }
        self.set.effects.push(crate::change::Effect::Ring(envelope.id, envelope.to.clone()));
    }

    fn answer_to(&self, envelope: &Envelope, settles: Settles) -> Value {
        let step = self.task.step(&envelope.step).map(|s| s.status.as_str());
        let status = if settles == Settles::GivesBack { Some("dispatched") } else { step };
        json!({ "task_id": self.task.id, "step": envelope.step, "status": status })
    }

    /// A lease, as its worker sees it.
    fn lease_shown(
        &self,
        e: &Envelope,
        lease: LeaseId,
        role: &RoleName,
        until: Timestamp,
    ) -> Result<Value, Refusal> {
        let hop = self.hop(e.hop)?;
        let kind = if e.kind == EnvelopeKind::Reply { "REPLY" } else { "WORK" };
        let hops_left =
            self.task.max_hops.saturating_sub(u32::try_from(self.task.hops.len()).unwrap_or(u32::MAX));
        // The replies as they were judged and recorded when it was resumed, not as things stand by now.
        let (continuation, replies) = match (&hop.wait, &hop.replies) {
            (Some(wait), Some(replies)) => {
                (self.payload(&wait.continuation)?.data(), self.payload(replies)?.data())
            }
            _ => (Value::Null, json!([])),
        };
        Ok(json!({
            "lease_id": lease,
            "kind": kind,
            "task_id": self.task.id,
            "step": e.step,
            "element": self.element(hop),
            "role": role,
            "delivery": e.delivery,
            "expires_at": until,
            "deadline": hop.until.or(self.task.deadline),
            "input": self.payload(&hop.input)?.shown(),
            "label": hop.seen.shown(),
            "tainted": hop.tainted,
            "may": self.may(&e.step, role),
            "hops_left": hops_left,
            "budget_left_microusd": self.task.budget_left(),
            "continuation": continuation,
            "replies": replies,
        }))
    }

    /// Which element of its step's list a hop is for, from 0; none if the step doesn't run over a list.
    fn element(&self, hop: &Hop) -> Option<usize> {
        let runs_over_a_list = self.flow.step(&hop.step).is_some_and(|d| d.for_each.is_some());
        match hop.owner {
            HopOwner::Step { run } if runs_over_a_list => Some(run),
            HopOwner::Step { .. } | HopOwner::Worker { .. } => None,
        }
    }

    /// Where the role may delegate from this step: what the role may, narrowed by what the step may.
    pub(crate) fn may(&self, step: &crate::id::StepName, role: &RoleName) -> Vec<Endpoint> {
        let role = self.ctx.registry.role(role).may;
        match self.flow.step(step).and_then(|d| d.may.as_ref()) {
            Some(narrowed) => role.into_iter().filter(|e| narrowed.contains(e)).collect(),
            None => role.into_iter().collect(),
        }
    }
}
