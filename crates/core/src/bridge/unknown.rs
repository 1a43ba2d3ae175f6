//! A send whose fate nobody knows: what is done about it until its grace is over.
//!
//! A2A has no idempotency that an agent must keep, so nothing is sent again unless the entry says that the agent knows
//! a message again. Instead the agent is asked, again and again, which tasks it has in our conversation: one of them
//! is bound, and further ones, which a message of ours made too, are asked to stop. An empty listing proves nothing.

use crate::bridge::look::Wanted;
use crate::bridge::outcome::is_an_id;
use crate::bridge::schedule::backoff;
use crate::bridge::state::Event;
use crate::bridge::{Attempt, Bridge, BridgeState};
use crate::change::DeadKind;
use crate::id::HopId;
use crate::ledger::data::{AttemptOutcome, Effects};
use crate::reason::ReasonCode;
use crate::registry::{ContextChoice, Dedup};
use crate::task::desk::{Desk, Refusal};
use crate::task::{End, Ending};
use crate::time::Timestamp;
use crate::transport::{ForeignState, ForeignTask};

/// Foreign tasks beside its own that one hop asks an agent to stop; an agent that lists more of them lies.
const MOST_STRAYS: usize = 16;

/// What an operator says of a send whose fate nobody here knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The agent acted on it.
    Yes,
    /// The agent never acted on it, and won't.
    No,
}

const DID_RUN: &str = "an operator says that it ran";
const DID_NOT_RUN: &str = "an operator says that it didn't run";

impl Desk<'_> {
    /// Nobody knows whether attempt `n` arrived.
    pub(crate) fn lost_attempt(&mut self, id: HopId, n: u32) -> Result<(), Refusal> {
        let now = self.now();
        self.takes(id, Event::Lost { n, at: now })?;
        let bridge = self.bridge_mut(id)?;
        bridge.quiet_looks = 0;
        let bridge = bridge.clone();
        let due = self.unknown_due(&bridge);
        self.bridge_mut(id)?.due_at = Some(due);
        Ok(())
    }

    /// When an unknown send is reconsidered: soon where something can be done, else when its grace is over.
    fn unknown_due(&self, bridge: &Bridge) -> Timestamp {
        let (now, bounds) = (self.now(), &self.ctx.registry.bounds);
        let grace = now + bounds.unknown_grace;
        let tried = u32::try_from(bridge.attempts.len()).unwrap_or(u32::MAX).max(1);
        let due = if self.knows_again(bridge) || self.can_be_asked(bridge) {
            now + backoff(tried, bounds.retry_first, bounds.retry_max)
        } else {
            grace
        };
        bridge.deadline.map_or(due, |d| due.min(d)).min(grace)
    }

    /// Does its agent, as the entry says, know a message again by its id?
    fn knows_again(&self, bridge: &Bridge) -> bool {
        self.ctx.registry.agent(&bridge.agent).is_some_and(|a| a.terms.dedup == Dedup::MessageId)
    }

    /// Is there anything to ask its agent for: a task that is known, or the tasks of a conversation of ours?
    fn can_be_asked(&self, bridge: &Bridge) -> bool {
        bridge.foreign.is_some() || self.can_list(bridge)
    }

    /// May the message have gone with our context id to an interface that lists by it?
    fn can_list(&self, bridge: &Bridge) -> bool {
        let agent = self.ctx.registry.agent_at(&bridge.agent, bridge.registry_version);
        let is_ours = agent.is_some_and(|a| a.terms.context == ContextChoice::Auto);
        let lists = bridge.interface.as_ref().is_none_or(|i| i.version.starts_with("1."));
        is_ours && lists && !bridge.context_refused && !bridge.cannot_list
    }

    /// Not later than an unknown send is to be given up.
    pub(crate) fn within_grace(&self, bridge: &Bridge, due: Timestamp) -> Timestamp {
        match bridge.state {
            BridgeState::SendUnknown { since } => due.min(since + self.ctx.registry.bounds.unknown_grace),
            _ => due,
        }
    }

    pub(crate) fn unknown_due_now(
        &mut self,
        id: HopId,
        bridge: &Bridge,
        since: Timestamp,
    ) -> Result<Wanted, Refusal> {
        let grace = since + self.ctx.registry.bounds.unknown_grace;
        if grace <= self.now() {
            self.grace_over(id, bridge)?;
            return Ok(Wanted::Moved);
        }
        if self.knows_again(bridge) && !self.attempts_used(id)? {
            self.send_again(id)?;
            return Ok(Wanted::Moved);
        }
        if self.can_be_asked(bridge) {
            return self.look_at(id, bridge);
        }
        self.bridge_mut(id)?.due_at = Some(bridge.deadline.map_or(grace, |d| d.min(grace)));
        Ok(Wanted::Moved)
    }

    /// The same message once more, judged as things stand now.
    fn send_again(&mut self, id: HopId) -> Result<(), Refusal> {
        self.takes(id, Event::Resend)?;
        let hop = self.hop(id)?.clone();
        self.judge_again(id, &hop)
    }

    fn grace_over(&mut self, id: HopId, bridge: &Bridge) -> Result<(), Refusal> {
        if bridge.question.is_some() {
            return self.back_to_question(id, ReasonCode::AnswerUnknown, "");
        }
        let hop = self.hop(id)?.clone();
        // A result that was pushed, and no task to ask for it: it is kept, and isn't believed.
        let (kind, code) = match bridge.claimed {
            Some(_) => (DeadKind::Unconfirmed, ReasonCode::Unconfirmed),
            None => (DeadKind::Unknown, ReasonCode::OutcomeUnknown),
        };
        self.bury(kind, &hop, code, "", bridge.claimed);
        self.give_up(id, code, "")
    }

    /// An operator knows what became of an unknown send.
    pub(crate) fn resolve(&mut self, id: HopId, ran: Ran) -> Result<(), Refusal> {
        match ran {
            Ran::No => self.did_not_run(id),
            Ran::Yes => self.did_run(id),
        }
    }

    /// Then it was never sent, whatever was written to the wire: it may go again, as often as attempts are left.
    fn did_not_run(&mut self, id: HopId) -> Result<(), Refusal> {
        let bridge = self.bridge_mut(id)?;
        let turn = bridge.turn;
        let lost = |a: &&mut Attempt| a.turn == turn && a.outcome == AttemptOutcome::Ambiguous;
        for attempt in bridge.attempts.iter_mut().filter(lost) {
            attempt.outcome = AttemptOutcome::NotSent;
            attempt.detail = format!("{}; {DID_NOT_RUN}", attempt.detail);
        }
        if self.attempts_used(id)? {
            self.takes(id, Event::Resend)?;
            return self.cannot_send(id, ReasonCode::AttemptsExhausted, DID_NOT_RUN);
        }
        self.send_again(id)
    }

    /// What came of it nobody here knows: it is paid for, and a person may take it further. Of an answer more can be
    /// known: the agent has it, and is looked at as after any other.
    fn did_run(&mut self, id: HopId) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        if bridge.question.is_some() {
            return self.at_work(id);
        }
        let (claimed, hop) = (bridge.claimed, self.hop(id)?.clone());
        self.bury(DeadKind::Unknown, &hop, ReasonCode::OutcomeUnknown, DID_RUN, claimed);
        let end = End::badly(Ending::Failed, ReasonCode::OutcomeUnknown, DID_RUN);
        self.stop_bridge_told(id, Event::GiveUp, &end, Some(Effects::Known))?;
        self.end_hop(id, end)
    }

    /// The agent listed the tasks of our conversation: messages of this hop made them, and no other.
    pub(crate) fn listed(&mut self, id: HopId, tasks: &[ForeignTask]) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?.clone();
        let ours = bridge.context_id.to_string();
        let mut own: Vec<&ForeignTask> = Vec::new();
        for task in tasks.iter().filter(|t| t.context.as_deref() == Some(ours.as_str()) && is_an_id(&t.id)) {
            if !self.is_anothers(id, &task.id)? && own.iter().all(|t| t.id != task.id) {
                own.push(task);
            }
        }
        // The furthest on; of several such the one that the agent listed last, which it touched longest ago.
        let best = own.iter().rev().copied().min_by_key(|t| rank(t.state));
        let is_unknown = matches!(bridge.state, BridgeState::SendUnknown { .. });
        if let (Some(best), None, true) = (best, &bridge.foreign, is_unknown) {
            self.found(id, best)?;
        } else {
            self.look_later(id, None)?;
        }
        let bound = self.bridge(id)?.foreign.as_ref().map(|f| f.task.clone());
        let Some(bound) = bound else { return Ok(()) };
        let room = MOST_STRAYS.saturating_sub(self.bridge(id)?.strays.len());
        own.iter().filter(|t| t.id != bound).take(room).try_for_each(|t| self.disown(id, t))
    }

    /// The message made this task: what has become of it is asked at once, since a listing shows no result.
    fn found(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        let known = ForeignTask { state: ForeignState::Working, ..task.clone() };
        self.shows_its_own(id, &known)?;
        let now = self.now();
        self.bridge_mut(id)?.due_at = Some(now);
        Ok(())
    }

    /// The agent can't be asked that. Of a conversation it isn't asked again: only a push can tell now.
    pub(crate) fn cannot_be_asked(&mut self, id: HopId) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let (BridgeState::SendUnknown { since }, None) = (bridge.state, &bridge.foreign) else {
            return self.look_later(id, None);
        };
        let grace = since + self.ctx.registry.bounds.unknown_grace;
        let bridge = self.bridge_mut(id)?;
        bridge.cannot_list = true;
        bridge.due_at = Some(bridge.deadline.map_or(grace, |d| d.min(grace)));
        Ok(())
    }
}

/// Of several tasks of one message, which is taken for its own: one that has a result, then one that goes on.
const fn rank(state: ForeignState) -> u8 {
    match state {
        ForeignState::Completed => 0,
        ForeignState::Working | ForeignState::InputRequired | ForeignState::AuthRequired => 1,
        ForeignState::Failed | ForeignState::Canceled | ForeignState::Rejected => 2,
    }
}
