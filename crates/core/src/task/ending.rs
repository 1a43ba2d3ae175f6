//! Endings: of hops, steps and tasks, and what each ends with it. Nothing that has ended reopens.

use serde_json::Value;

use crate::bridge::state::Event;
use crate::change::{DeadKind, DeadLetter, Row, Write};
use crate::envelope::EnvelopeState;
use crate::id::{DeadLetterId, HopId, PayloadId};
use crate::ledger::data::{ApprovalStatus, Effects, NoteData, OutcomeData};
use crate::ledger::{Actor, Code, Data, Dir};
use crate::reason::{Reason, ReasonCode};
use crate::task::desk::{Desk, Refusal};
use crate::task::{
    End, Ending, Held, Hop, HopOwner, HopState, Question, Run, RunState, Step, StepStatus, TaskStatus, Wants,
};

impl Desk<'_> {
    /// Ends a hop and tells its owner: the step goes on or ends, the parked worker may be resumed.
    pub(crate) fn end_hop(&mut self, id: HopId, end: End) -> Result<(), Refusal> {
        if self.hop(id)?.is_ended() {
            return Ok(());
        }
        self.close_hop(id, &end)?;
        let hop = self.hop(id)?.clone();
        match hop.owner {
            HopOwner::Step { run } => self.run_over(&hop.step, run, end),
            HopOwner::Worker { hop: parent, .. } => self.resume_if_answered(parent),
        }
    }

    /// Ends a hop without telling its owner.
    fn close_hop(&mut self, id: HopId, end: &End) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        match &hop.state {
            HopState::Out { envelope } => self.void(*envelope),
            HopState::AwaitingForward { approval }
            | HopState::AwaitingEgress { approval }
            | HopState::AwaitingIngress { approval } => {
                self.close_approval(*approval, ApprovalStatus::Canceled)?
            }
            HopState::Parked | HopState::Foreign | HopState::Asking(_) | HopState::Ended { .. } => {}
        }
        self.cancel_children(&hop, ReasonCode::SiblingEnded)?;
        if !matches!(hop.to, crate::endpoint::Endpoint::Agent(_)) {
            self.record_outcome(&hop, Dir::Forward, end, None, Effects::Known);
        }
        let cost_microusd = self.bridges.get(&id).map_or(0, |b| b.row.cost.settled_microusd);
        let (ending, reason, output) = (end.ending, end.reason.clone(), end.output.clone());
        self.hop_mut(id)?.state = HopState::Ended { ending, reason, output, cost_microusd };
        Ok(())
    }

    /// Records how an edge's errand came out; once per turn. What ends after its turn was closed (a parked
    /// worker, a foreign task that asks) is noted beside it.
    pub(crate) fn record_outcome(
        &mut self,
        hop: &Hop,
        dir: Dir,
        end: &End,
        output: Option<&Held>,
        effects: Effects,
    ) {
        if self.task.hop(hop.id).is_some_and(|h| h.closed >= hop.turn) {
            let why = end.reason.as_ref().map_or(end.ending.as_str(), |r| r.code.as_str());
            let payload = end.output.as_ref().or(output).map(|h| h.digest.clone());
            let note = NoteData { what: Code::of("ending"), why: Code::of(why), payload };
            return self.record_apart(
                self.task.edge_hop(hop),
                Actor::system("coordinator"),
                Data::Late(note),
            );
        }
        if let Ok(live) = self.hop_mut(hop.id) {
            live.closed = hop.turn;
        }
        let edge = self.edge_key(hop, dir);
        let bridge = self.bridges.get(&hop.id).map(|t| &t.row);
        let data = OutcomeData {
            status: Code::of(end.ending.as_str()),
            reason: end.reason.as_ref().map(|r| Code::of(r.code.as_str())),
            foreign_task_id: bridge
                .and_then(|b| b.foreign.as_ref())
                .map(|f| crate::ledger::OutsideId::of(&f.task)),
            payload: end.output.as_ref().or(output).map(|h| h.digest.clone()),
            looks: bridge.map_or(0, |b| u64::from(b.looks)),
            effects,
        };
        self.record_about(edge, Actor::system("coordinator"), Data::Outcome(data));
    }

    fn void(&mut self, envelope: crate::id::EnvelopeId) {
        if let Some(t) = self.envelopes.get_mut(&envelope)
            && !matches!(t.row.state, EnvelopeState::Settled { .. })
        {
            t.row.state = EnvelopeState::Void { lease: t.row.lease(), key: t.row.key().cloned() };
            t.row.due_at = None;
        }
    }

    /// Cancels what a worker delegated and hasn't heard the end of.
    pub(crate) fn cancel_children(&mut self, hop: &Hop, code: ReasonCode) -> Result<(), Refusal> {
        let children: Vec<HopId> = self
            .task
            .hops
            .iter()
            .filter(|h| {
                !h.is_ended() && matches!(h.owner, HopOwner::Worker { hop: parent, .. } if parent == hop.id)
            })
            .map(|h| h.id)
            .collect();
        children.into_iter().try_for_each(|child| self.cancel_hop(child, code))
    }

    /// Stops a hop on our word. Its owner isn't told: it is stopping too, or has asked for it.
    pub(crate) fn cancel_hop(&mut self, id: HopId, code: ReasonCode) -> Result<(), Refusal> {
        if self.hop(id)?.is_ended() {
            return Ok(());
        }
        let (ending, event) = match code {
            ReasonCode::Deadline => (Ending::TimedOut, Event::Deadline),
            _ => (Ending::Canceled, Event::Cancel),
        };
        let end = End::badly(ending, code, "");
        if let Some(live) = self.bridges.get(&id).map(|b| &b.row).filter(|b| !b.state.is_terminal()) {
            let (was_out, claimed) = (live.begun > 0, live.claimed);
            if event == Event::Deadline && was_out {
                let hop = self.hop(id)?.clone();
                self.bury(DeadKind::Timeout, &hop, code, "", claimed);
            }
            self.stop_bridge(id, event, &end)?;
        }
        self.close_hop(id, &end)
    }

    /// Ends the task: live hops are canceled, pending steps skipped.
    pub(crate) fn end_task(
        &mut self,
        ending: Ending,
        reason: Option<Reason>,
        output: Option<Held>,
    ) -> Result<(), Refusal> {
        if self.task.status.is_ended() {
            return Ok(());
        }
        self.task.status = TaskStatus::Ended(ending);
        self.task.reason = reason;
        self.task.output = output;
        self.task.ended_at = Some(self.now());
        let code = match self.task.reason.as_ref().map(|r| r.code) {
            Some(c @ (ReasonCode::CanceledByRequester | ReasonCode::Deadline)) => c,
            _ => ReasonCode::SiblingEnded,
        };
        let live: Vec<HopId> = self.task.hops.iter().filter(|h| !h.is_ended()).map(|h| h.id).collect();
        for id in live {
            self.cancel_hop(id, code)?;
        }
        let canceled = Reason::from(code);
        let now = self.now();
        for step in self.task.steps.iter_mut().filter(|s| !s.status.is_over()) {
            step.status = match step.runs.as_slice() {
                [] => StepStatus::Skipped,
                _ if code == ReasonCode::Deadline => StepStatus::Ended(Ending::TimedOut),
                _ => StepStatus::Ended(Ending::Canceled),
            };
            if step.status != StepStatus::Skipped {
                step.reason = Some(canceled.clone());
            }
            step.ended_at = Some(now);
        }
        Ok(())
    }

    /// What steps and task look like from outside, of what their hops do.
    pub(crate) fn refresh(&mut self) {
        let statuses: Vec<Option<StepStatus>> =
            self.task.steps.iter().map(|s| self.status_of_runs(s)).collect();
        for (step, status) in self.task.steps.iter_mut().zip(statuses) {
            step.status = status.unwrap_or(step.status);
        }
        if !self.task.status.is_ended() {
            let any = |s: StepStatus| self.task.steps.iter().any(|step| step.status == s);
            self.task.status = if any(StepStatus::AwaitingApproval) {
                TaskStatus::AwaitingApproval
            } else if any(StepStatus::AwaitingInput) {
                TaskStatus::AwaitingInput
            } else {
                TaskStatus::Running
            };
        }
    }

    /// What a live step's runs make of it: a person who must move shows first, then whatever moves.
    fn status_of_runs(&self, step: &Step) -> Option<StepStatus> {
        use StepStatus as S;
        let of_run = |run: &Run| match run.state {
            RunState::Waiting { .. } => Some(S::Pending),
            RunState::Out { hop } => self.hop_status(hop),
            RunState::Over { .. } => None,
        };
        let all: Vec<S> = step.runs.iter().filter_map(of_run).collect();
        let shown = [S::AwaitingApproval, S::AwaitingInput, S::Dispatched, S::Parked, S::Pending];
        shown.into_iter().filter(|_| !step.status.is_over()).find(|s| all.contains(s))
    }

    fn hop_status(&self, id: HopId) -> Option<StepStatus> {
        Some(match &self.task.hop(id)?.state {
            HopState::AwaitingForward { .. }
            | HopState::AwaitingEgress { .. }
            | HopState::AwaitingIngress { .. } => StepStatus::AwaitingApproval,
            HopState::Out { .. } | HopState::Foreign => StepStatus::Dispatched,
            HopState::Asking(_) => StepStatus::AwaitingInput,
            HopState::Parked => self.parked_status(id),
            HopState::Ended { .. } => return None,
        })
    }

    /// A parked worker's step shows what a person could do about it, if anything.
    fn parked_status(&self, id: HopId) -> StepStatus {
        let children = self
            .task
            .hop(id)
            .and_then(|h| h.wait.as_ref())
            .map(|w| w.delegated.as_slice())
            .unwrap_or_default();
        let of: Vec<StepStatus> = children
            .iter()
            .filter_map(|d| match &self.task.hop(d.hop)?.state {
                HopState::Asking(Question { wants: Wants::Input, .. }) => None,
                _ => self.hop_status(d.hop),
            })
            .collect();
        [StepStatus::AwaitingApproval, StepStatus::AwaitingInput]
            .into_iter()
            .find(|s| of.contains(s))
            .unwrap_or(StepStatus::Parked)
    }

    /// Keeps an item that gave up, for an operator.
    pub(crate) fn bury(
        &mut self,
        kind: DeadKind,
        hop: &Hop,
        code: ReasonCode,
        detail: &str,
        body: Option<PayloadId>,
    ) {
        let letter = DeadLetter {
            id: DeadLetterId::draw(&mut self.ids),
            kind,
            task: self.task.id,
            step: hop.step.clone(),
            hop: hop.id,
            reason: Reason::new(code, detail),
            body,
            at: self.now(),
            decided: None,
        };
        self.set.writes.push(Write { expected: 0, row: Row::DeadLetter(letter) });
    }

    /// A text that must be kept but isn't for the ledger, as a value for people.
    pub(crate) fn shown(&self, held: &Held) -> Value {
        self.payload(held).map_or(Value::Null, |p| p.shown())
    }
}
