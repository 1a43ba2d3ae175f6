//! Ends that aren't the agent's: denied, given up, canceled, out of time. Each says what may have happened at the
//! agent, and asks it to stop where something may still run.

use crate::bridge::state::Event;
use crate::bridge::{Bridge, BridgeState, CancelIntent};
use crate::change::{Effect, Row};
use crate::gate::exeat::AttemptId;
use crate::id::HopId;
use crate::ledger::Dir;
use crate::ledger::data::{ApprovalStatus, Effects};
use crate::reason::ReasonCode;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::wrong;
use crate::task::{End, Ending};
use crate::time::Span;

impl Desk<'_> {
    /// Policy, a hard rule or a person said no. A first turn ends the hop before anything left; an answer goes
    /// back to the question, which somebody may answer otherwise.
    pub(crate) fn deny_turn(&mut self, id: HopId, code: ReasonCode, detail: &str) -> Result<(), Refusal> {
        if self.bridge(id)?.question.is_some() {
            return self.back_to_question(id, code, detail);
        }
        // Whether the entry or the card doesn't offer a skill, it is a failure: nobody forbids it.
        let (ending, event) = match code {
            ReasonCode::SkillNotOffered => (Ending::Failed, Event::GiveUp),
            _ => (Ending::Denied, Event::Refused),
        };
        let end = End::badly(ending, code, detail);
        self.stop_bridge(id, event, &end)?;
        self.end_hop(id, end)
    }

    /// Our answer didn't go, or nobody knows: the question stands again, with the reason beside it.
    pub(crate) fn back_to_question(
        &mut self,
        id: HopId,
        code: ReasonCode,
        detail: &str,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let state = self.bridge(id)?.state;
        let effects = self.effects_of_turn(id, state)?;
        self.close_turn(id, None, effects)?;
        let end = End::badly(Ending::Failed, code, detail);
        let hop = self.hop(id)?.clone();
        self.record_outcome(&hop, Dir::A2aEgress, &end, None, effects);
        let look = now + self.ctx.registry.bounds.poll_first;
        self.takes(id, Event::AnswerLost)?;
        let bridge = self.bridge_mut(id)?;
        bridge.reason = end.reason;
        bridge.due_at = Some(look);
        let (approval, question) = (bridge.approval.take(), bridge.question.clone());
        if let Some(a) = approval {
            self.close_approval(a, ApprovalStatus::Canceled)?;
        }
        let question = question.ok_or_else(|| wrong("an answer without a question"))?;
        self.ask(id, question)
    }

    /// It can't succeed any more.
    pub(crate) fn give_up(&mut self, id: HopId, code: ReasonCode, detail: &str) -> Result<(), Refusal> {
        let end = End::badly(Ending::Failed, code, detail);
        self.stop_bridge(id, Event::GiveUp, &end)?;
        self.end_hop(id, end)
    }

    /// Brings a bridge to an end that isn't the agent's: state, money, outcome record, cancel intent.
    pub(crate) fn stop_bridge(&mut self, id: HopId, event: Event, end: &End) -> Result<(), Refusal> {
        self.stop_bridge_told(id, event, end, None)
    }

    /// The same, of a bridge about which somebody has told what happened at the agent.
    pub(crate) fn stop_bridge_told(
        &mut self,
        id: HopId,
        event: Event,
        end: &End,
        told: Option<Effects>,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let bridge = self.bridge_mut(id)?;
        if bridge.state.is_terminal() {
            return Ok(());
        }
        // A lease of this very change set is taken back: its attempt never leaves.
        let before = if self.take_lease_back(id)? { BridgeState::Ready } else { self.bridge(id)?.state };
        self.bridge_mut(id)?.state = before;
        self.takes(id, event)?;
        let bridge = self.bridge_mut(id)?;
        bridge.reason.clone_from(&end.reason);
        bridge.ending = Some(end.ending);
        bridge.ended_at = Some(now);
        bridge.due_at = None;
        let approval = bridge.approval;
        if let Some(a) = approval {
            self.close_approval(a, ApprovalStatus::Canceled)?;
        }
        let effects = told.map_or_else(|| self.effects_of(id, before), Ok)?;
        let of_turn = match told {
            Some(told) => told,
            None if before.is_parked() => Effects::Known,
            None => self.effects_of_turn(id, before)?,
        };
        self.close_turn(id, None, of_turn)?;
        let hop = self.hop(id)?.clone();
        self.record_outcome(&hop, Dir::A2aEgress, end, None, effects);
        if before.is_parked() || (self.bridge(id)?.begun > 0 && effects != Effects::None) {
            self.intend_cancel(id)?;
        }
        Ok(())
    }

    /// Takes back an attempt that this change set would have leased. Without its receipt nothing is sent.
    pub(crate) fn take_lease_back(&mut self, id: HopId) -> Result<bool, Refusal> {
        let Some(at) = self.set.leases.iter().position(|l| l.hop == id) else { return Ok(false) };
        let AttemptId { callback, .. } = self.set.leases.swap_remove(at);
        self.set.writes.retain(|w| !matches!(&w.row, Row::Route(r) if r.callback == callback));
        self.set.effects.retain(|e| !matches!(e, Effect::Send(p, _) if p.attempt.callback == callback));
        let bridge = self.bridge_mut(id)?;
        bridge.begun -= 1;
        bridge.leases.pop();
        bridge.callback = None;
        Ok(true)
    }

    /// What may have happened at the agent when a hop ends in this state.
    pub(crate) fn effects_of(&self, id: HopId, state: BridgeState) -> Result<Effects, Refusal> {
        use crate::ledger::data::AttemptOutcome as A;
        let bridge = self.bridge(id)?;
        let out = is_out(bridge, state);
        // An answer that made no task known is one that couldn't be used: it may have run.
        let ambiguous = bridge.attempts.iter().any(|a| matches!(a.outcome, A::Ambiguous | A::Answered));
        Ok(if bridge.foreign.is_some() {
            Effects::Known
        } else if out || ambiguous {
            Effects::Possible
        } else {
            Effects::None
        })
    }

    pub(crate) fn effects_of_turn(&self, id: HopId, state: BridgeState) -> Result<Effects, Refusal> {
        use crate::ledger::data::AttemptOutcome as A;
        let bridge = self.bridge(id)?;
        let out = is_out(bridge, state);
        let of_turn = bridge.attempts.iter().filter(|a| a.turn == bridge.turn);
        let ambiguous = of_turn.into_iter().any(|a| matches!(a.outcome, A::Ambiguous | A::Answered));
        Ok(if out || ambiguous { Effects::Possible } else { Effects::None })
    }

    /// Files the intent to cancel the foreign task: known, or still to be bound.
    pub(crate) fn intend_cancel(&mut self, id: HopId) -> Result<(), Refusal> {
        let foreign_task = self.bridge(id)?.foreign.as_ref().map(|f| f.task.clone());
        self.intend_cancel_of(id, foreign_task)
    }

    /// Files the intent to cancel this foreign task; none: whichever will be bound.
    pub(crate) fn intend_cancel_of(
        &mut self,
        id: HopId,
        foreign_task: Option<String>,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let due = if foreign_task.is_some() { now } else { now + self.ctx.registry.bounds.send_timeout };
        self.add_cancel(CancelIntent {
            hop: id,
            org: self.task.org.clone(),
            task: self.task.id,
            foreign_task,
            tries: 0,
            due_at: Some(due),
            until: now + self.ctx.registry.bounds.unknown_grace.max(Span::of_secs(600)),
            outcome: None,
        });
        Ok(())
    }
}

/// May an attempt be out whose fate is unknown? One that is known not to have been sent, or to be refused, isn't.
fn is_out(bridge: &Bridge, state: BridgeState) -> bool {
    use crate::ledger::data::AttemptOutcome as A;
    let went_nowhere =
        |n: u32| bridge.attempts.iter().any(|a| a.n == n && matches!(a.outcome, A::NotSent | A::Refused));
    match state {
        BridgeState::Sending { n, .. } => !went_nowhere(n),
        BridgeState::SendUnknown { .. } => true,
        _ => false,
    }
}
