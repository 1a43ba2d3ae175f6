//! What a worker delegates in the middle of its turn, how it is resumed, and how a question is answered.
//!
//! A suspended worker is a row: its continuation and the hops that it waits for. It is resumed once per
//! turn, when each of them has ended or asks something, with the answers in the order of the request.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::id::{HopId, QuestionId, RoleName};
use crate::label::Label;
use crate::ledger::data::{Act, Effects, NoteData, OperatorData};
use crate::ledger::{Actor, Code, Data, Dir, OutsideId};
use crate::payload::{NotAPayload, Payload, canonical};
use crate::principal::ApiKey;
use crate::reason::ReasonCode;
use crate::task::advance::raised;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::{Judging, NewHop};
use crate::task::{Delegated, End, Ending, Hop, HopOwner, HopState, Question, Wait, Wants};
use crate::time::Span;

/// A worker's suspension.
#[derive(Clone, Debug)]
pub struct Suspend {
    /// Its opaque state.
    pub continuation: Value,
    /// What it delegates, in the order in which it wants the answers.
    pub delegations: Vec<Wish>,
}

/// One thing that a suspending worker wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The worker's own name for it; unique in the request.
    pub id: String,
    /// What.
    pub what: What,
}

/// What a suspending worker wants done.
#[derive(Clone, Debug)]
pub enum What {
    /// A new hop.
    Delegate {
        /// Whereto.
        to: Endpoint,
        /// With what.
        input: Value,
        /// Which skill.
        skill: Option<String>,
        /// A label that raises the worker's.
        label: Option<String>,
        /// How long it may take.
        deadline: Option<Span>,
    },
    /// The answer to a question that an earlier delegation asked.
    Answer {
        /// Which.
        question: QuestionId,
        /// The answer.
        input: Value,
    },
}

/// Delegations in one suspension, at most.
const WISHES: usize = 32;
/// Longest name of one, in bytes.
const WISH_ID: usize = 64;

impl Desk<'_> {
    /// Parks a worker's hop on what it delegates.
    pub(crate) fn suspend(
        &mut self,
        hop: &Hop,
        role: &RoleName,
        worker: &str,
        suspend: Suspend,
    ) -> Result<(), Refusal> {
        self.check_wishes(hop, role, &suspend)?;
        let (got, max) =
            (canonical(&suspend.continuation).len(), self.ctx.registry.bounds.continuation_bytes);
        if got > max {
            return Err(Refusal::Payload(NotAPayload::TooLarge { got, max }));
        }
        let continuation = Payload::of_data(suspend.continuation);
        let continuation = self.hold(&continuation, hop.seen.clone(), hop.tainted);
        let answered: BTreeSet<QuestionId> = suspend
            .delegations
            .iter()
            .filter_map(|w| if let What::Answer { question, .. } = &w.what { Some(*question) } else { None })
            .collect();
        self.drop_unanswered(hop, &answered)?;
        let end = End { ending: Ending::Completed, reason: None, output: None };
        self.record_outcome(
            hop,
            Dir::Forward,
            &End { output: Some(continuation.clone()), ..end },
            None,
            Effects::Known,
        );
        let mut delegated = Vec::with_capacity(suspend.delegations.len());
        for wish in suspend.delegations {
            let child = match wish.what {
                What::Delegate { to, input, skill, label, deadline } => {
                    let payload = Payload::from_json(&input, &self.ctx.registry.bounds.payload)?;
                    let label = raised(&self.ctx.registry.levels, &hop.seen, label.as_deref())?;
                    let input = self.hold(&payload, label, hop.tainted);
                    let owner =
                        HopOwner::Worker { hop: hop.id, delegation: wish.id.clone(), role: role.clone() };
                    let depth = hop.depth + 1;
                    self.set_out(NewHop { step: hop.step.clone(), owner, to, depth, skill, deadline, input })?
                }
                What::Answer { question, input } => {
                    let child = self.asking(question)?;
                    self.answer_turn(child, &input, &hop.seen.clone(), hop.tainted, Actor::worker(worker))?;
                    child
                }
            };
            delegated.push(Delegated { id: wish.id, hop: child });
        }
        let hop = self.hop_mut(hop.id)?;
        hop.wait = Some(Wait { continuation, delegated });
        hop.state = HopState::Parked;
        let id = hop.id;
        self.resume_if_answered(id)
    }

    /// Holds a suspension to the contract before anything moves: a bad one leaves the lease as it was.
    fn check_wishes(&self, hop: &Hop, role: &RoleName, suspend: &Suspend) -> Result<(), Refusal> {
        if suspend.delegations.is_empty() || suspend.delegations.len() > WISHES {
            let why = format!("a suspension has 1 to {WISHES} delegations");
            return Err(Refusal::InvalidAt { pointer: "/delegations".to_owned(), why });
        }
        let mut names = BTreeSet::new();
        let is_wrong = |w: &Wish| !(1..=WISH_ID).contains(&w.id.len());
        if let Some(n) = suspend.delegations.iter().position(|w| is_wrong(w) || !names.insert(w.id.as_str()))
        {
            let why = format!("each delegation has an id of its own, 1 to {WISH_ID} bytes");
            return Err(Refusal::InvalidAt { pointer: format!("/delegations/{n}/id"), why });
        }
        let may = self.may(&hop.step, role);
        for wish in &suspend.delegations {
            match &wish.what {
                What::Delegate { to, .. } if !may.contains(to) => {
                    return Err(Refusal::DestinationNotAllowed(to.to_string()));
                }
                What::Delegate { input, label, .. } => {
                    Payload::from_json(input, &self.ctx.registry.bounds.payload)?;
                    raised(&self.ctx.registry.levels, &hop.seen, label.as_deref())?;
                }
                What::Answer { question, input } => {
                    let child = self.hop(self.asking(*question)?)?;
                    if !matches!(child.owner, HopOwner::Worker { hop: parent, .. } if parent == hop.id) {
                        return Err(Refusal::QuestionAnswered);
                    }
                    Payload::from_json(input, &self.ctx.registry.bounds.payload)?;
                }
            }
        }
        Ok(())
    }

    /// Records that a worker named a destination it may not have. Nothing else changes.
    pub(crate) fn refuse_destination(&mut self, hop: &Hop, worker: &str) {
        let data = NoteData {
            what: Code::of("delegation"),
            why: Code::of(ReasonCode::DestinationNotAllowed.as_str()),
            payload: None,
        };
        self.record_apart(Some(hop.id), Actor::worker(worker), Data::Refused(data));
    }

    /// Questions of earlier delegations that the worker leaves unanswered are canceled.
    fn drop_unanswered(&mut self, hop: &Hop, answered: &BTreeSet<QuestionId>) -> Result<(), Refusal> {
        let dropped: Vec<HopId> = self
            .task
            .hops
            .iter()
            .filter(|h| matches!(h.owner, HopOwner::Worker { hop: parent, .. } if parent == hop.id))
            .filter(|h| matches!(&h.state, HopState::Asking(q) if !answered.contains(&q.id)))
            .map(|h| h.id)
            .collect();
        dropped.into_iter().try_for_each(|id| self.cancel_hop(id, ReasonCode::CanceledByRequester))
    }

    /// The hop that asks this question for an answer.
    pub(crate) fn asking(&self, question: QuestionId) -> Result<HopId, Refusal> {
        self.task
            .hops
            .iter()
            .find(|h| matches!(&h.state, HopState::Asking(q) if q.id == question && q.wants == Wants::Input))
            .map(|h| h.id)
            .ok_or(Refusal::QuestionAnswered)
    }

    /// Resumes a parked worker if everything that it waits for has ended or asks.
    pub(crate) fn resume_if_answered(&mut self, id: HopId) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let (HopState::Parked, Some(wait)) = (&hop.state, &hop.wait) else { return Ok(()) };
        let answered = |d: &Delegated| self.task.hop(d.hop).is_some_and(Hop::answers);
        if !wait.delegated.iter().all(answered) {
            return Ok(());
        }
        let (label, tainted) = self.reply_label(&hop, wait);
        let replies = Payload::of_data(Value::Array(self.replies_shown(wait)?));
        let replies = self.hold(&replies, label.clone(), tainted);
        let hop = self.hop_mut(id)?;
        hop.turn += 1;
        hop.seen = label;
        hop.tainted = tainted;
        hop.replies = Some(replies);
        self.forward(id, Judging::First, None, BTreeSet::new())
    }

    fn reply_label(&self, hop: &Hop, wait: &Wait) -> (Label, bool) {
        let content = wait.delegated.iter().filter_map(|d| match &self.task.hop(d.hop)?.state {
            HopState::Ended { output, .. } => output.as_ref(),
            HopState::Asking(q) => Some(&q.prompt),
            _ => None,
        });
        content.fold((hop.seen.clone(), hop.tainted), |(l, t), h| (l.join(&h.label), t || h.tainted))
    }

    /// The answers to a suspension, in request order, as its worker sees them.
    pub(crate) fn replies_shown(&self, wait: &Wait) -> Result<Vec<Value>, Refusal> {
        wait.delegated
            .iter()
            .map(|d| {
                let hop = self.hop(d.hop)?;
                let (status, reason, output, question, cost) = match &hop.state {
                    HopState::Ended { ending, reason, output, cost_microusd } => {
                        let output = output.as_ref().map(|h| self.shown(h));
                        (ending.as_str(), json!(reason), output, Value::Null, *cost_microusd)
                    }
                    HopState::Asking(q) => {
                        // The turn that asks is paid for already.
                        let cost = self.bridges.get(&hop.id).map_or(0, |b| b.row.cost.settled_microusd);
                        ("awaiting_input", Value::Null, None, self.question_shown(q), cost)
                    }
                    _ => ("dispatched", Value::Null, None, Value::Null, 0),
                };
                Ok(json!({
                    "id": d.id, "to": hop.to, "status": status, "reason": reason, "output": output,
                    "hop_id": hop.id, "cost_microusd": cost, "question": question,
                }))
            })
            .collect()
    }

    /// A question, as it is shown.
    pub(crate) fn question_shown(&self, q: &Question) -> Value {
        json!({ "question_id": q.id, "prompt": self.shown(&q.prompt), "until": q.until })
    }

    /// A person answers a step's question, if they may see it.
    pub(crate) fn answer(&mut self, question: QuestionId, input: &Value, by: &ApiKey) -> Result<(), Refusal> {
        if self.task.status.is_ended() {
            return Err(Refusal::TaskEnded);
        }
        let id = self.asking(question)?;
        let hop = self.hop(id)?.clone();
        let HopState::Asking(Question { wants: Wants::Input, prompt, .. }) = &hop.state else {
            return Err(Refusal::QuestionAnswered);
        };
        if !prompt.label.flows_to(&by.clearance) {
            return Err(Refusal::ClearanceTooLow);
        }
        let label = self.ctx.registry.default_label.join(&hop.seen);
        self.answer_turn(id, input, &label, hop.tainted, Actor::key(&by.id))
    }

    /// The answer is the next turn of the same foreign task: governed, recorded and paid like the first.
    fn answer_turn(
        &mut self,
        id: HopId,
        input: &Value,
        label: &Label,
        tainted: bool,
        actor: Actor,
    ) -> Result<(), Refusal> {
        let payload = Payload::from_json(input, &self.ctx.registry.bounds.payload)?;
        let hop = self.hop(id)?;
        let label = hop.seen.join(label);
        let tainted = hop.tainted || tainted;
        let held = self.hold(&payload, label.clone(), tainted);
        let HopState::Asking(question) = self.hop(id)?.state.clone() else {
            return Err(Refusal::QuestionAnswered);
        };
        let data =
            OperatorData { act: Act::Answer, target: OutsideId::of(&question.id.to_string()), reason: None };
        self.record_apart(Some(id), actor, Data::Operator(data));
        let hop = self.hop_mut(id)?;
        hop.turn += 1;
        hop.seen = label;
        hop.tainted = tainted;
        self.next_turn(id, held)
    }
}
