//! The doors of the desk: one function for each thing that may happen to a task, each a pure
//! `(context, ids, snapshot, event) -> change set`.

use std::sync::Arc;

use serde_json::Value;

use crate::approval::{Choice, Counted};
use crate::bridge::look::Wanted;
use crate::bridge::unknown::Ran;
use crate::bridge::{Bridge, BridgeState, CancelIntent};
use crate::change::{ChangeSet, Snapshot};
use crate::gate::exeat::{Address, LookFor};
use crate::id::{ApprovalId, HopId, Ids, KeyId, LeaseId, QuestionId};
use crate::ledger::data::{Act, ApprovalStatus, OperatorData};
use crate::ledger::{Actor, Data, Dir, OutsideId};
use crate::payload::Sha256Digest;
use crate::principal::ApiKey;
use crate::reason::{Reason, ReasonCode};
use crate::task::desk::{Context, Desk, Refusal};
use crate::task::dispatch::Judging;
use crate::task::{End, Ending, HopState};
use crate::time::Span;
use crate::transport::{CancelOutcome, LookOutcome, SendReport};
use crate::workflow::Workflow;

/// A desk on a snapshot.
fn desk(ctx: Context<'_>, ids: Ids, flow: Arc<Workflow>, snapshot: Snapshot) -> Desk<'_> {
    Desk::open(ctx, ids, flow, snapshot)
}

fn closed(mut desk: Desk<'_>) -> Result<ChangeSet, Refusal> {
    desk.advance()?;
    Ok(desk.close())
}

/// The task is due: its deadline, a retry, or a fresh look at its readiness.
///
/// # Errors
/// Only faults of ours.
pub fn tick(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    desk.tick()?;
    closed(desk)
}

/// Somebody stops the task.
///
/// # Errors
/// [`Refusal::TaskEnded`] if it is over.
pub fn cancel(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    by: &KeyId,
    why: Option<&str>,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    if desk.task.status.is_ended() {
        return Err(Refusal::TaskEnded);
    }
    let reason = why.map(|w| desk.note(w));
    let target = OutsideId::of(&desk.task.id.to_string());
    desk.record_apart(
        None,
        Actor::key(by),
        Data::Operator(OperatorData { act: Act::Cancel, target, reason }),
    );
    let reason = Reason::new(ReasonCode::CanceledByRequester, why.unwrap_or_default());
    desk.end_task(Ending::Canceled, Some(reason), None)?;
    closed(desk)
}

/// Somebody answers a step's question.
///
/// # Errors
/// [`Refusal::QuestionAnswered`] if it is answered or over, [`Refusal::ClearanceTooLow`] if they may not see it.
pub fn answer(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    question: QuestionId,
    input: &Value,
    by: &ApiKey,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    desk.answer(question, input, by)?;
    closed(desk)
}

/// An operator says what became of a send that nobody answered.
///
/// # Errors
/// [`Refusal::NotUnknown`] unless the hop is in that state.
#[expect(clippy::too_many_arguments, reason = "a resolution is of what, as what, by whom and why")]
pub fn resolve(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
    ran: Ran,
    by: &KeyId,
    why: &str,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    desk.hop(hop)?;
    let is_unknown = |b: &Bridge| matches!(b.state, BridgeState::SendUnknown { .. });
    if !desk.bridge(hop).is_ok_and(is_unknown) {
        return Err(Refusal::NotUnknown);
    }
    // The record names no outcome of its own: what is said stands before the reason.
    let said = if ran == Ran::Yes { "it ran" } else { "it didn't run" };
    let reason = Some(desk.note(&format!("{said}: {why}")));
    let target = OutsideId::of(&hop.to_string());
    let data = OperatorData { act: Act::Resolve, target, reason };
    desk.record_apart(Some(hop), Actor::key(by), Data::Operator(data));
    desk.resolve(hop, ran)?;
    closed(desk)
}

/// A worker named a destination that its role may not have: recorded, and nothing else.
///
/// # Errors
/// If the lease isn't known.
pub fn refuse_destination(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    lease: LeaseId,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let envelope = desk.envelope_of(lease).cloned().ok_or(Refusal::LeaseLost)?;
    let hop = desk.hop(envelope.hop)?.clone();
    let worker = match envelope.state {
        crate::envelope::EnvelopeState::Leased { worker, .. } => worker,
        _ => String::new(),
    };
    desk.refuse_destination(&hop, &worker);
    Ok(desk.close())
}

/// What a decider was told.
#[derive(Debug)]
pub enum Decision {
    /// Said before: nothing to commit.
    Again,
    /// To be committed.
    Made(Box<ChangeSet>),
}

/// An approver decides.
///
/// # Errors
/// [`Refusal::NotDecided`] if the decision isn't taken.
#[expect(clippy::too_many_arguments, reason = "a decision is who, what, seen what and why")]
pub fn decide(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    id: ApprovalId,
    who: &ApiKey,
    choice: Choice,
    seen: Sha256Digest,
    reason: Option<&str>,
) -> Result<Decision, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let counted = desk.approval(id)?.decide(who, choice, seen, reason, ctx.now)?;
    let (approval, verdict) = match counted {
        Counted::Again => return Ok(Decision::Again),
        Counted::Pending(a) => (a, None),
        Counted::Approved(a) => (a, Some(Choice::Approve)),
        Counted::Denied(a) => (a, Some(Choice::Deny)),
    };
    desk.record_approval(&approval, Actor::key(&who.id));
    desk.put_approval(approval.clone());
    match verdict {
        None => {}
        Some(Choice::Approve) => desk.go_on(&approval)?,
        Some(Choice::Deny) => {
            let why = approval.decisions.last().and_then(|d| d.reason.clone()).unwrap_or_default();
            desk.turn_down(&approval, ReasonCode::ApprovalDenied, &why)?;
        }
    }
    Ok(Decision::Made(Box::new(closed(desk)?)))
}

/// Nobody decided in time.
///
/// # Errors
/// Only faults of ours.
pub fn expire(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    id: ApprovalId,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    desk.expire(id)?;
    closed(desk)
}

/// An attempt is over.
///
/// # Errors
/// Only faults of ours.
pub fn attempted(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
    n: u32,
    report: &SendReport,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    desk.attempt_over(hop, n, report)?;
    closed(desk)
}

/// What a due row wants: a change set alone, or a look first.
#[derive(Debug)]
pub enum Next {
    /// Commit this; there is nothing else to do.
    Commit(Box<ChangeSet>),
    /// Commit the lease of a look, ask the agent, then decide what it showed.
    Look(Box<LookOut>),
    /// Ask the agent to stop this task of ours.
    Cancel(Address, String),
}

/// A look whose lease is still to be committed.
#[derive(Debug)]
pub struct LookOut {
    /// Its lease.
    pub set: ChangeSet,
    /// Where to.
    pub address: Address,
    /// What to ask for.
    pub ask: LookFor,
    /// Which of the hop's looks.
    pub n: u32,
}

fn next_of(desk: Desk<'_>, wanted: Wanted) -> Result<Next, Refusal> {
    match wanted {
        Wanted::Look(address, ask, n) => {
            Ok(Next::Look(Box::new(LookOut { set: desk.close(), address, ask, n })))
        }
        Wanted::Moved => closed(desk).map(|s| Next::Commit(Box::new(s))),
    }
}

/// A bridge is due.
///
/// # Errors
/// Only faults of ours.
pub fn bridge_due(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
) -> Result<Next, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let wanted = desk.bridge_due(hop)?;
    next_of(desk, wanted)
}

/// Pushed events of a hop are due.
///
/// # Errors
/// Only faults of ours.
pub fn push_due(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
) -> Result<Next, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let wanted = desk.push_due(hop)?;
    next_of(desk, wanted)
}

/// Why a look was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It was time.
    Due,
    /// Something was pushed.
    Pushed,
}

/// A look is over.
///
/// # Errors
/// Only faults of ours.
pub fn looked(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    (hop, n): (HopId, u32),
    outcome: &LookOutcome,
    because: Because,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    match because {
        Because::Due => desk.looked(hop, n, outcome)?,
        Because::Pushed => desk.push_looked(hop, n, outcome)?,
    }
    closed(desk)
}

/// A cancel intent is due.
///
/// # Errors
/// Only faults of ours.
pub fn cancel_due(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
    foreign_task: &str,
) -> Result<Next, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let now = desk.now();
    let bridge = desk.bridge(hop)?.clone();
    let address = desk.address(&bridge);
    let bound = bridge.foreign.as_ref().map(|f| f.task.clone());
    let Some(t) = desk.cancels.get_mut(&(hop, foreign_task.to_owned())) else {
        return Ok(Next::Commit(Box::new(desk.close())));
    };
    if t.row.due_at.is_none_or(|d| d > now) {
        return Ok(Next::Commit(Box::new(desk.close())));
    }
    if t.row.until <= now {
        t.row.due_at = None;
        t.row.outcome = Some("given_up".into());
        return Ok(Next::Commit(Box::new(desk.close())));
    }
    match (t.row.foreign_task.clone(), bound, address) {
        (Some(task), _, Some(address)) => return Ok(Next::Cancel(address, task)),
        (None, Some(task), _) => {
            t.row.due_at = None;
            t.row.outcome = Some("bound".into());
            let next = CancelIntent {
                foreign_task: Some(task),
                due_at: Some(now),
                tries: 0,
                outcome: None,
                ..t.row.clone()
            };
            desk.add_cancel(next);
        }
        _ => t.row.due_at = Some(now + Span::of_secs(30)),
    }
    Ok(Next::Commit(Box::new(desk.close())))
}

/// A cancel was asked for.
///
/// # Errors
/// Only faults of ours.
pub fn canceled(
    ctx: Context<'_>,
    ids: Ids,
    flow: Arc<Workflow>,
    snapshot: Snapshot,
    hop: HopId,
    foreign_task: &str,
    outcome: &CancelOutcome,
) -> Result<ChangeSet, Refusal> {
    let mut desk = desk(ctx, ids, flow, snapshot);
    let now = desk.now();
    let bounds = desk.ctx.registry.bounds.clone();
    if let Some(t) = desk.cancels.get_mut(&(hop, foreign_task.to_owned())) {
        t.row.tries += 1;
        let later = crate::bridge::schedule::backoff(t.row.tries, bounds.retry_first, bounds.retry_max);
        let (due, word) = match outcome {
            CancelOutcome::Task(task) if task.state.is_end() => (None, Some("canceled")),
            CancelOutcome::Over => (None, Some("over")),
            CancelOutcome::Task(_) => (Some(now + later), None),
            CancelOutcome::Nothing { after } => (Some(now + later.max(after.unwrap_or_default())), None),
        };
        t.row.due_at = due;
        t.row.outcome = word.map(str::to_owned);
    }
    Ok(desk.close())
}

impl Desk<'_> {
    /// An approval's last yes: the gate is asked again, and only then something moves.
    fn go_on(&mut self, approval: &crate::approval::Approval) -> Result<(), Refusal> {
        let id = approval.hop;
        match (&self.hop(id)?.state, approval.dir) {
            (HopState::AwaitingEgress { approval: a }, Dir::A2aEgress) if *a == approval.id => {
                self.release(id)
            }
            (HopState::AwaitingForward { approval: a }, Dir::Forward) if *a == approval.id => {
                self.forward(id, Judging::Again, None, approval.granted_roles())
            }
            (HopState::AwaitingIngress { approval: a }, Dir::A2aIngress) if *a == approval.id => {
                self.let_in(id, approval)
            }
            _ => Ok(()),
        }
    }

    /// A no, or nobody in time.
    fn turn_down(
        &mut self,
        approval: &crate::approval::Approval,
        code: ReasonCode,
        why: &str,
    ) -> Result<(), Refusal> {
        let id = approval.hop;
        match (&self.hop(id)?.state, approval.dir) {
            (HopState::AwaitingEgress { approval: a }, Dir::A2aEgress) if *a == approval.id => {
                self.deny_turn(id, code, why)
            }
            (HopState::AwaitingForward { approval: a } | HopState::AwaitingIngress { approval: a }, _)
                if *a == approval.id =>
            {
                self.end_hop(id, End::badly(Ending::Denied, code, why))
            }
            _ => Ok(()),
        }
    }

    /// Expires an approval, if it is time and nobody decided.
    pub(crate) fn expire(&mut self, id: ApprovalId) -> Result<(), Refusal> {
        let approval = self.approval(id)?.clone();
        if approval.status != ApprovalStatus::Pending || approval.expires_at > self.now() {
            return Ok(());
        }
        self.close_approval(id, ApprovalStatus::Expired)?;
        self.turn_down(&approval, ReasonCode::ApprovalExpired, "")
    }
}
