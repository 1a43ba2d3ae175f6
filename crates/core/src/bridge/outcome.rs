//! Coming back: what a send's answer, a look or a pushed body means for the hop and its task.
//!
//! Whatever comes is bounded, labelled and judged before anybody reads it. Nothing in it names where the
//! work goes next.

use std::collections::BTreeSet;

use crate::bridge::BridgeState;
use crate::bridge::schedule::next_look;
use crate::bridge::state::{Event, Shown};
use crate::change::{Row, Write};
use crate::gate::exeat::ForeignIds;
use crate::gate::verdict::{Action, Decision};
use crate::id::{HopId, QuestionId};
use crate::ledger::data::{Effects, NoteData};
use crate::ledger::{Actor, Code, Data, Dir, SaltedDigest};
use crate::payload::Payload;
use crate::reason::ReasonCode;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::{EdgeFacts, Judging, agent_entity, code_of, policies_of, wrong};
use crate::task::{End, Ending, Held, Hop, HopOwner, HopState, Question, Wants};
use crate::transport::{ForeignState, ForeignTask};
use crate::workflow::Ask;

/// Foreign ids longer than this aren't ids.
const FOREIGN_ID: usize = 512;

/// Can it be an agent's id of something?
pub(crate) fn is_an_id(text: &str) -> bool {
    (1..=FOREIGN_ID).contains(&text.len())
}

impl Desk<'_> {
    /// What the agent shows of the task that it has for this hop, which is bound now if it wasn't. An agent that names
    /// another hop's task makes this hop fail, and leaves the other as it is.
    pub(crate) fn shows_its_own(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        if self.is_anothers(id, &task.id)? {
            let why = "it answered with the task id of another errand";
            return self.give_up(id, ReasonCode::InvalidResponse, why);
        }
        self.bind(id, task)?;
        self.agent_shows(id, task)
    }

    /// Did a commit find that the agent's task is another hop's?
    pub(crate) fn is_anothers(&self, id: HopId, task: &str) -> Result<bool, Refusal> {
        Ok(self.ctx.hindsight.taken.contains(&self.bridge(id)?.foreign_key(task)))
    }

    /// Notes the agent's ids of the work, and that it has answered.
    fn bind(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        let bridge = self.bridge_mut(id)?;
        let context = task.context.clone().filter(|c| is_an_id(c));
        match &mut bridge.foreign {
            Some(f) if f.context.is_none() => f.context = context,
            Some(_) => {}
            None => bridge.foreign = Some(ForeignIds { task: task.id.clone(), context }),
        }
        let agent = bridge.agent.clone();
        self.met(&agent);
        Ok(())
    }

    pub(crate) fn met(&mut self, agent: &crate::id::AgentKey) {
        if !self.ctx.registry.met.contains(agent) {
            self.set.writes.push(Write { expected: 0, row: Row::Contact(agent.clone()) });
        }
    }

    /// What the agent shows of its task, by an answer, a look or a body that counts.
    pub(crate) fn agent_shows(&mut self, id: HopId, task: &ForeignTask) -> Result<(), Refusal> {
        if self.bridge(id)?.state.is_terminal() {
            return self.takes(id, Event::Shown(Shown::from(task.state)));
        }
        match task.state {
            ForeignState::Working => self.at_work(id),
            ForeignState::InputRequired => self.interrupted(id, task, Wants::Input),
            ForeignState::AuthRequired => self.interrupted(id, task, Wants::Auth),
            ForeignState::Completed => self.completed_hop(id, &task.output, task.reported_microusd),
            ForeignState::Failed => self.ended_badly(id, Shown::Failed, task),
            ForeignState::Rejected => self.ended_badly(id, Shown::Rejected, task),
            ForeignState::Canceled => self.ended_badly(id, Shown::Canceled, task),
        }
    }

    pub(crate) fn at_work(&mut self, id: HopId) -> Result<(), Refusal> {
        let now = self.now();
        let moved = self.bridge(id)?.state != BridgeState::Working;
        self.takes(id, Event::Shown(Shown::Working))?;
        let bridge = self.bridge_mut(id)?;
        bridge.lost = 0;
        bridge.lost_since = None;
        if moved {
            bridge.quiet_looks = 0;
        }
        let bridge = bridge.clone();
        let due = next_look(&bridge, &self.ctx.registry.bounds, now, None, &mut self.ids);
        self.bridge_mut(id)?.due_at = Some(due);
        let hop = self.hop_mut(id)?;
        if matches!(hop.state, HopState::Asking(_)) {
            hop.state = HopState::Foreign;
        }
        Ok(())
    }

    fn interrupted(&mut self, id: HopId, task: &ForeignTask, wants: Wants) -> Result<(), Refusal> {
        let now = self.now();
        let shown = if wants == Wants::Input { Shown::InputRequired } else { Shown::AuthRequired };
        let again = matches!(
            (self.bridge(id)?.state, wants),
            (BridgeState::InputRequired, Wants::Input) | (BridgeState::AuthRequired, Wants::Auth)
        );
        self.takes(id, Event::Shown(shown))?;
        let bridge = self.bridge_mut(id)?;
        bridge.lost = 0;
        bridge.lost_since = None;
        if !again {
            bridge.quiet_looks = 0;
        }
        let bridge = bridge.clone();
        let due = next_look(&bridge, &self.ctx.registry.bounds, now, None, &mut self.ids);
        self.bridge_mut(id)?.due_at = Some(due);
        if again {
            return Ok(());
        }
        self.take_question(id, task, wants)
    }

    /// What an agent shows after its answer to our last message is a turn of its own: nobody asked for it, so
    /// it has no edge out and costs nothing. Gives the edge that the turn's outcome is about.
    pub(crate) fn turn_of_answer(&mut self, id: HopId) -> Result<Dir, Refusal> {
        if !self.hop(id)?.is_turn_closed() {
            return Ok(Dir::A2aEgress);
        }
        self.hop_mut(id)?.turn += 1;
        let bridge = self.bridge_mut(id)?;
        bridge.turn += 1;
        bridge.turn_began = None;
        Ok(Dir::A2aIngress)
    }

    /// A question comes in: judged like a result, since somebody will read it.
    fn take_question(&mut self, id: HopId, task: &ForeignTask, wants: Wants) -> Result<(), Refusal> {
        let about = if wants == Wants::Input { self.turn_of_answer(id)? } else { Dir::A2aEgress };
        let hop = self.hop(id)?.clone();
        let prompt = match self.bounded(&task.output) {
            Ok(p) => p,
            Err(why) => Payload::of_text(format!("(the question can't be shown: {why})")),
        };
        let held = self.hold_foreign(&hop, &prompt)?;
        if wants == Wants::Input {
            let edge = EdgeFacts { dir: Dir::A2aIngress, brought: &held, price: 0, agent: None, from: None };
            let weighed = self.weigh_ingress(&hop, &held, BTreeSet::new())?;
            self.record_judgement(&hop, Judging::First, &edge, &weighed.verdict);
            self.close_turn(id, task.reported_microusd, Effects::Known)?;
            let asked = End { ending: Ending::Completed, reason: None, output: Some(held.clone()) };
            self.record_outcome(&hop, about, &asked, None, Effects::Known);
            if weighed.verdict.decision != Decision::Allow {
                // A question that may not be read can't be answered either.
                let (code, why) = (ReasonCode::IngressDenied, policies_of(&weighed));
                return self.refuse_interrupted(id, Ending::Denied, code, &why);
            }
            if self.asks_nobody(&hop) {
                let text = prompt.text();
                return self.refuse_interrupted(
                    id,
                    Ending::Failed,
                    ReasonCode::ForeignFailed,
                    &format!("it asks: {text}"),
                );
            }
        }
        let until =
            self.bridge(id)?.deadline.unwrap_or_else(|| self.now() + self.ctx.registry.bounds.hop_deadline);
        let question = Question { id: QuestionId::draw(&mut self.ids), prompt: held, until, wants };
        if wants == Wants::Input {
            self.bridge_mut(id)?.question = Some(question.clone());
        }
        self.ask(id, question)
    }

    fn asks_nobody(&self, hop: &Hop) -> bool {
        matches!(hop.owner, HopOwner::Step { .. })
            && self.flow.step(&hop.step).is_some_and(|d| d.on_input_required == Ask::Fail)
    }

    /// Ends an interrupted hop on our side; its outcome is recorded already.
    fn refuse_interrupted(
        &mut self,
        id: HopId,
        ending: Ending,
        code: ReasonCode,
        detail: &str,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let end = End::badly(ending, code, detail);
        self.takes(id, Event::Cancel)?;
        let bridge = self.bridge_mut(id)?;
        bridge.reason.clone_from(&end.reason);
        bridge.ending = Some(ending);
        bridge.ended_at = Some(now);
        bridge.due_at = None;
        self.intend_cancel(id)?;
        self.end_hop(id, end)
    }

    /// Puts a question to whoever asked for the hop.
    pub(crate) fn ask(&mut self, id: HopId, question: Question) -> Result<(), Refusal> {
        let wants = question.wants;
        let hop = self.hop_mut(id)?;
        hop.state = HopState::Asking(question);
        match (hop.owner.clone(), wants) {
            (HopOwner::Worker { hop: parent, .. }, Wants::Input) => self.resume_if_answered(parent),
            (HopOwner::Worker { .. } | HopOwner::Step { .. }, _) => Ok(()),
        }
    }

    /// The agent is done: the result is bounded, labelled, judged, and let in, parked or quarantined.
    pub(crate) fn completed_hop(
        &mut self,
        id: HopId,
        output: &Payload,
        reported: Option<u64>,
    ) -> Result<(), Refusal> {
        let output = match self.bounded(output) {
            Ok(o) => o,
            Err(why) => {
                let code = match why {
                    crate::payload::NotAPayload::TooLarge { .. }
                    | crate::payload::NotAPayload::TooManyParts { .. } => ReasonCode::ResponseTooLarge,
                    _ => ReasonCode::InvalidResponse,
                };
                return self.give_up_done(id, code, &why.to_string());
            }
        };
        let about = self.turn_of_answer(id)?;
        let hop = self.hop(id)?.clone();
        let held = self.hold_foreign(&hop, &output)?;
        self.close_turn(id, reported, Effects::Known)?;
        let weighed = self.weigh_ingress(&hop, &held, BTreeSet::new())?;
        let edge = EdgeFacts { dir: Dir::A2aIngress, brought: &held, price: 0, agent: None, from: None };
        self.record_judgement(&hop, Judging::First, &edge, &weighed.verdict);
        let done = End::well(held.clone());
        self.record_outcome(&hop, about, &done, None, Effects::Known);
        self.end_bridge(id, Shown::Completed, None, Ending::Completed)?;
        self.take_in(id, held, &weighed)
    }

    /// What follows from the verdict about a result: it is let in, parked, or quarantined.
    pub(crate) fn take_in(
        &mut self,
        id: HopId,
        held: Held,
        weighed: &crate::gate::Weighed,
    ) -> Result<(), Refusal> {
        match weighed.verdict.decision {
            Decision::Allow => self.end_hop(id, End::well(held)),
            Decision::Deny => {
                let why = format!("{}: {}", code_of(weighed), policies_of(weighed));
                self.end_hop(id, End::badly(Ending::Denied, ReasonCode::IngressDenied, &why))
            }
            Decision::RequireApproval => {
                let hop = self.hop(id)?.clone();
                let edge =
                    EdgeFacts { dir: Dir::A2aIngress, brought: &held, price: 0, agent: None, from: None };
                let approval = self.open_approval(&hop, &edge, &weighed.verdict, None, None, None)?;
                self.hop_mut(id)?.state = HopState::AwaitingIngress { approval };
                Ok(())
            }
        }
    }

    /// A person has let a result in, or not.
    pub(crate) fn let_in(&mut self, id: HopId, approval: &crate::approval::Approval) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let held = approval.payload.clone();
        let weighed = self.weigh_ingress(&hop, &held, approval.granted_roles())?;
        let edge = EdgeFacts { dir: Dir::A2aIngress, brought: &held, price: 0, agent: None, from: None };
        self.record_judgement(&hop, Judging::Again, &edge, &weighed.verdict);
        if weighed.verdict.decision == Decision::Allow {
            self.end_hop(id, End::well(held))
        } else {
            self.end_hop(id, End::badly(Ending::Denied, ReasonCode::IngressDenied, &policies_of(&weighed)))
        }
    }

    fn weigh_ingress(
        &mut self,
        hop: &Hop,
        held: &Held,
        granted: BTreeSet<String>,
    ) -> Result<crate::gate::Weighed, Refusal> {
        let bridge = self.bridge(hop.id)?.clone();
        let agent = self.ctx.registry.agent_at(&bridge.agent, bridge.registry_version).cloned();
        let agent = agent.ok_or_else(|| wrong("a hop whose entry is gone"))?;
        let facts = self.facts(hop, held, Some(&bridge.agent), 0)?;
        let receiver = self.principal(hop);
        Ok(self.weigh(agent_entity(&agent), Action::A2aIngress, receiver, facts, None, granted))
    }

    pub(crate) fn bounded(&self, output: &Payload) -> Result<Payload, crate::payload::NotAPayload> {
        let mut output = output.clone();
        if output.parts.is_empty() {
            output = Payload::of_text("");
        }
        output.check(&self.ctx.registry.bounds.payload).map(|()| output)
    }

    /// Foreign content: the label of what was sent joined with the entry's output label, and tainted.
    fn hold_foreign(&mut self, hop: &Hop, payload: &Payload) -> Result<Held, Refusal> {
        let bridge = self.bridge(hop.id)?;
        let agent = self.ctx.registry.agent_at(&bridge.agent, bridge.registry_version);
        let own = agent
            .map(|a| a.posture.output_label.clone())
            .ok_or_else(|| wrong("a hop whose entry is gone"))?;
        let label = hop.seen.join(&bridge.payload.label).join(&own);
        Ok(self.hold(payload, label, true))
    }

    fn ended_badly(&mut self, id: HopId, shown: Shown, task: &ForeignTask) -> Result<(), Refusal> {
        let (ending, code) = match shown {
            Shown::Rejected => (Ending::Rejected, ReasonCode::ForeignRejected),
            Shown::Canceled => (Ending::Rejected, ReasonCode::ForeignCanceled),
            _ => (Ending::Failed, ReasonCode::ForeignFailed),
        };
        let text: String = task.output.text().chars().take(1_000).collect();
        let end = End::badly(ending, code, &text);
        self.close_turn(id, task.reported_microusd, Effects::Known)?;
        let hop = self.hop(id)?.clone();
        self.record_outcome(&hop, Dir::A2aEgress, &end, None, Effects::Known);
        self.end_bridge(id, shown, end.reason.clone(), ending)?;
        self.end_hop(id, end)
    }

    /// The agent is done, but with what it gave nothing can be done.
    pub(crate) fn give_up_done(&mut self, id: HopId, code: ReasonCode, detail: &str) -> Result<(), Refusal> {
        let end = End::badly(Ending::Failed, code, detail);
        self.close_turn(id, None, Effects::Known)?;
        let hop = self.hop(id)?.clone();
        self.record_outcome(&hop, Dir::A2aEgress, &end, None, Effects::Known);
        self.end_bridge(id, Shown::Failed, end.reason.clone(), Ending::Failed)?;
        self.end_hop(id, end)
    }

    pub(crate) fn end_bridge(
        &mut self,
        id: HopId,
        shown: Shown,
        reason: Option<crate::reason::Reason>,
        ending: Ending,
    ) -> Result<(), Refusal> {
        let now = self.now();
        self.takes(id, Event::Shown(shown))?;
        let bridge = self.bridge_mut(id)?;
        bridge.reason = reason;
        bridge.ending = Some(ending);
        bridge.ended_at = Some(now);
        bridge.due_at = None;
        Ok(())
    }

    /// Records something that came too late or isn't believed.
    pub(crate) fn record_note(
        &mut self,
        id: HopId,
        what: &'static str,
        why: &'static str,
        body: Option<SaltedDigest>,
    ) {
        let data = NoteData { what: Code::of(what), why: Code::of(why), payload: body };
        let agent = self.bridges.get(&id).map(|b| Actor::agent(&b.row.agent));
        self.record_apart(Some(id), agent.unwrap_or_else(|| Actor::system("ingress")), Data::Late(data));
    }
}
