//! An attempt is over: its record, and whether the turn goes on, is tried again, or hangs in doubt.
//!
//! Only the holder of the fence moves the hop; an older attempt's words are recorded and change nothing.

use crate::bridge::outcome::is_an_id;
use crate::bridge::schedule::{backoff, jittered};
use crate::bridge::state::{Event, Shown};
use crate::bridge::{Attempt, BridgeState, LeasedAttempt};
use crate::change::DeadKind;
use crate::faults::Fault;
use crate::gate::exeat::{Bound, ForeignIds};
use crate::id::HopId;
use crate::ledger::data::{AttemptData, AttemptOutcome};
use crate::ledger::{Actor, Code, Data, Dir, OutsideId, SaltedDigest};
use crate::payload::Payload;
use crate::reason::ReasonCode;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::wrong;
use crate::task::{Held, Hop};
use crate::time::Span;
use crate::transport::{ForeignTask, SendOutcome, SendReport};

impl Desk<'_> {
    /// An attempt is over: its record, and what follows.
    pub(crate) fn attempt_over(&mut self, id: HopId, n: u32, report: &SendReport) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let unknown = matches!(bridge.state, BridgeState::SendUnknown { .. }) && bridge.begun == n;
        let fenced = unknown || matches!(bridge.state, BridgeState::Sending { n: of, .. } if of == n);
        let recorded = bridge.attempts.iter().any(|a| a.n == n);
        if !recorded {
            self.record_attempt(id, n, report)?;
        }
        // An answer that comes after its lease was written off is an answer all the same; nothing else is news then.
        let answer = matches!(report.outcome, SendOutcome::Task(_) | SendOutcome::Message(_));
        if !fenced || (recorded && !answer) {
            self.takes_late(id, n, &report.outcome)?;
            return self.late_answer(id, report);
        }
        let bridge = self.bridge_mut(id)?;
        bridge.interface = report.interface.clone().or(bridge.interface.take());
        bridge.card_digest = report.card.or(bridge.card_digest);
        bridge.push.asked |= report.push_asked;
        match &report.outcome {
            SendOutcome::Task(task) => self.answered(id, task),
            SendOutcome::Message(output) => self.answered_by_message(id, output),
            SendOutcome::NotSent(code) => self.not_sent(id, n, *code, &report.detail, None),
            SendOutcome::Refused { code, after: Some(after) } => {
                self.not_sent(id, n, *code, &report.detail, Some(*after))
            }
            SendOutcome::Refused { code, after: None }
            | SendOutcome::Impossible(code)
            | SendOutcome::Unusable(code) => self.cannot_send(id, *code, &report.detail),
            SendOutcome::ContextRefused => {
                self.bridge_mut(id)?.context_refused = true;
                self.not_sent(id, n, ReasonCode::SendRefused, &report.detail, Some(Span::ZERO))
            }
            SendOutcome::Ambiguous => self.lost_attempt(id, n),
            // Each is an attempt: a card that never stays the same uses them up.
            SendOutcome::OtherInterface(_) if self.attempts_used(id)? => {
                self.cannot_send(id, ReasonCode::AttemptsExhausted, &report.detail)
            }
            SendOutcome::OtherInterface(found) => {
                self.takes(id, Event::Retry { n })?;
                let bridge = self.bridge_mut(id)?;
                bridge.bound = Bound::Interface(found.clone());
                let hop = self.hop(id)?.clone();
                self.judge_again(id, &hop)
            }
        }
    }

    /// Have all attempts of this turn been used?
    pub(crate) fn attempts_used(&self, id: HopId) -> Result<bool, Refusal> {
        let bridge = self.bridge(id)?;
        let tried = bridge.attempts.iter().filter(|a| a.turn == bridge.turn).count();
        Ok(tried >= self.ctx.registry.bounds.send_attempts as usize)
    }

    fn record_attempt(&mut self, id: HopId, n: u32, report: &SendReport) -> Result<(), Refusal> {
        let now = self.now();
        let outcome = match &report.outcome {
            SendOutcome::Task(_) | SendOutcome::Message(_) | SendOutcome::Unusable(_) => {
                AttemptOutcome::Answered
            }
            SendOutcome::NotSent(_) | SendOutcome::OtherInterface(_) => AttemptOutcome::NotSent,
            SendOutcome::Impossible(_) if report.wire.is_none() => AttemptOutcome::NotSent,
            SendOutcome::Impossible(_) | SendOutcome::Refused { .. } | SendOutcome::ContextRefused => {
                AttemptOutcome::Refused
            }
            SendOutcome::Ambiguous => AttemptOutcome::Ambiguous,
        };
        let code = match &report.outcome {
            SendOutcome::NotSent(c)
            | SendOutcome::Impossible(c)
            | SendOutcome::Unusable(c)
            | SendOutcome::Refused { code: c, .. } => Some(c.as_str()),
            SendOutcome::ContextRefused => Some("context_refused"),
            SendOutcome::OtherInterface(_) => Some("other_interface"),
            SendOutcome::Task(_) | SendOutcome::Message(_) | SendOutcome::Ambiguous => None,
        };
        // It belongs to the turn it was leased in, which may be over by now.
        let (leased, held, interface, origin) = {
            let b = self.bridge(id)?;
            let at = usize::try_from(n).unwrap_or(usize::MAX).wrapping_sub(1);
            let leased =
                b.leases.get(at).cloned().ok_or_else(|| wrong("an attempt that was never leased"))?;
            (leased, b.payload.clone(), report.interface.clone(), b.origin.clone())
        };
        let LeasedAttempt { turn, message_id, payload } = leased;
        let held = Held { id: payload, ..held };
        let salt = self.sealed(&held)?.salt;
        let data = AttemptData {
            n,
            message_id,
            outcome,
            protocol: interface.as_ref().map(|i| OutsideId::of(&i.version)),
            binding: interface.as_ref().map(|i| OutsideId::of(&i.binding)),
            origin: Some(OutsideId::of(&origin)),
            card_digest: report.card,
            wire: report.wire.map(|w| SaltedDigest::of(&salt, w.bytes())),
            detail: code.map(Code::of),
        };
        let hop = Hop { turn, ..self.hop(id)?.clone() };
        let edge = self.edge_key(&hop, Dir::A2aEgress);
        self.record_about(edge, Actor::system("egress"), Data::Attempt(data));
        let detail = report.detail.clone();
        self.bridge_mut(id)?.attempts.push(Attempt { n, turn, at: now, outcome, detail });
        Ok(())
    }

    /// An older attempt's words, or words after the end: the table says that they change nothing.
    fn takes_late(&mut self, id: HopId, n: u32, outcome: &SendOutcome) -> Result<(), Refusal> {
        let event = match outcome {
            SendOutcome::Task(t) => Event::Shown(Shown::from(t.state)),
            SendOutcome::Message(_) => Event::Shown(Shown::Completed),
            SendOutcome::Ambiguous => Event::Lost { n, at: self.now() },
            _ => Event::Retry { n },
        };
        // What an older attempt shows isn't about the one that is out, or waits, now.
        if matches!(event, Event::Shown(_)) && !self.bridge(id)?.state.is_terminal() {
            return Ok(());
        }
        self.takes(id, event)
    }

    /// Words of an attempt that doesn't hold the fence any more. A foreign task that nobody waits for, because the
    /// hop is over or has another one, is canceled.
    fn late_answer(&mut self, id: HopId, report: &SendReport) -> Result<(), Refusal> {
        let SendOutcome::Task(task) = &report.outcome else { return Ok(()) };
        let bridge = self.bridge(id)?;
        match &bridge.foreign {
            Some(f) if f.task != task.id => self.disown(id, task),
            None if bridge.state.is_terminal() && self.may_stop(id, task)? => {
                let bridge = self.bridge_mut(id)?;
                bridge.foreign = Some(ForeignIds { task: task.id.clone(), context: task.context.clone() });
                // Where to cancel it: no answer named an interface before.
                bridge.interface = bridge.interface.take().or_else(|| report.interface.clone());
                if let Some(t) = self.cancels.get_mut(&(id, String::new())) {
                    t.row.due_at = None;
                    t.row.outcome = Some("bound".into());
                }
                self.intend_cancel(id)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A message of ours made a task beside the one that its hop has: the agent is asked to stop it.
    pub(crate) fn disown(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        if !self.may_stop(id, task)? || !self.bridge_mut(id)?.strays.insert(task.id.clone()) {
            return Ok(());
        }
        self.record_note(id, "answer", "second_task", None);
        self.intend_cancel_of(id, Some(task.id.clone()))
    }

    /// Is it a task that runs, and no other hop's?
    fn may_stop(&self, id: HopId, task: &ForeignTask) -> Result<bool, Refusal> {
        Ok(!task.state.is_end() && is_an_id(&task.id) && !self.is_anothers(id, &task.id)?)
    }

    pub(crate) fn answered(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        let other = self.bridge(id)?.foreign.as_ref().is_some_and(|f| f.task != task.id);
        if other {
            self.disown(id, task)?;
        }
        if other || !is_an_id(&task.id) {
            return self.give_up(id, ReasonCode::InvalidResponse, "the answer is about another task");
        }
        self.shows_its_own(id, task)
    }

    fn answered_by_message(&mut self, id: HopId, output: &Payload) -> Result<(), Refusal> {
        let agent = self.bridge(id)?.agent.clone();
        self.met(&agent);
        self.completed_hop(id, output, None)
    }

    pub(crate) fn not_sent(
        &mut self,
        id: HopId,
        n: u32,
        code: ReasonCode,
        detail: &str,
        asked: Option<Span>,
    ) -> Result<(), Refusal> {
        let bounds = self.ctx.registry.bounds.clone();
        let bridge = self.bridge_mut(id)?;
        let tried = u32::try_from(bridge.attempts.iter().filter(|a| a.turn == bridge.turn).count())
            .unwrap_or(u32::MAX);
        if tried >= bounds.send_attempts {
            let detail = match code {
                ReasonCode::AttemptsExhausted => detail.to_owned(),
                code => format!("{code}: {detail}"),
            };
            return self.cannot_send(id, ReasonCode::AttemptsExhausted, &detail);
        }
        self.takes(id, Event::Retry { n })?;
        let pause = if asked == Some(Span::ZERO) {
            Span::ZERO
        } else {
            let own = jittered(backoff(tried, bounds.retry_first, bounds.retry_max), &mut self.ids);
            own.max(asked.unwrap_or_default().min(bounds.retry_max.times(12)))
        };
        let due = self.now() + pause;
        self.bridge_mut(id)?.due_at = Some(due);
        Ok(())
    }

    /// This turn will never be sent: the hop fails, or the question stands again.
    pub(crate) fn cannot_send(&mut self, id: HopId, code: ReasonCode, detail: &str) -> Result<(), Refusal> {
        if self.bridge(id)?.question.is_some() {
            return self.back_to_question(id, code, detail);
        }
        let hop = self.hop(id)?.clone();
        if code == ReasonCode::AttemptsExhausted {
            self.bury(DeadKind::Send, &hop, code, detail, None);
        }
        self.give_up(id, code, detail)
    }

    /// The lease of an attempt is over and nobody said how it came out.
    pub(crate) fn lease_over(&mut self, id: HopId, n: u32) -> Result<(), Refusal> {
        let outcome = match Fault::BlindResend.is_back() {
            true => SendOutcome::NotSent(ReasonCode::AttemptsExhausted),
            false => SendOutcome::Ambiguous,
        };
        let report = SendReport::bare(outcome, "the lease was over before an answer was recorded");
        self.attempt_over(id, n, &report)
    }
}
