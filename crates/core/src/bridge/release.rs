//! Going out: a hop to a foreign agent is judged, parked, released, leased for an attempt, and stopped here.
//!
//! Every attempt passes the gate again: halt, posture, label, policy, budget, then the lease. What was
//! approved is what is sent, or a new approval is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::approval::Subject;
use crate::bridge::schedule::{HELD_BACK, LEASE_MARGIN};
use crate::bridge::state::Event;
use crate::bridge::{Bridge, BridgeState, CancelIntent, Grant, HopCost, LeasedAttempt, Push, Route};
use crate::change::{Effect, Row, Write};
use crate::cost::{self, Usage};
use crate::gate::exeat::{AttemptId, Bound, Parcel};
use crate::gate::verdict::{Action, Decision, Verdict};
use crate::gate::{Begun, Weighed, is_halted, posture_rule};
use crate::id::{AgentKey, CallbackId, ContextId, HopId, MessageId};
use crate::ledger::data::{ApprovalStatus, CostData, CostEntry, Effects};
use crate::ledger::{Actor, Data, Dir};
use crate::payload::Sha256Digest;
use crate::reason::ReasonCode;
use crate::registry::{AgentEntry, ContextChoice, PushChoice};
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::{EdgeFacts, Judging, agent_entity, code_of, policies_of, wrong};
use crate::task::{End, Ending, Held, Hop, HopState};
use crate::time::Span;

impl Desk<'_> {
    /// A new hop to a foreign agent: judged, and sent, parked or over.
    pub(crate) fn begin_egress(
        &mut self,
        id: HopId,
        key: &AgentKey,
        broken: Option<ReasonCode>,
    ) -> Result<(), Refusal> {
        self.judged();
        let hop = self.hop(id)?.clone();
        let Some(agent) = self.ctx.registry.agent(key).cloned() else {
            return self.unknown_agent(&hop, broken.unwrap_or(ReasonCode::UnknownAgent));
        };
        let price = agent.terms.price.estimate_microusd;
        let weighed = self.weigh_egress(&hop, &agent, &hop.input, broken, Begun::Not, BTreeSet::new())?;
        let edge =
            EdgeFacts { dir: Dir::A2aEgress, brought: &hop.input, price, agent: Some(&agent), from: None };
        self.record_judgement(&hop, Judging::First, &edge, &weighed.verdict);
        let bridge = self.new_bridge(&hop, &agent, weighed.verdict.clone());
        self.add_bridge(bridge);
        self.follow(id, &agent, &weighed)
    }

    fn unknown_agent(&mut self, hop: &Hop, code: ReasonCode) -> Result<(), Refusal> {
        let verdict = Verdict {
            decision: Decision::Deny,
            roles: BTreeSet::new(),
            policies: Vec::new(),
            policy_version: "0".to_owned(),
            at: self.now(),
        };
        let edge = EdgeFacts { dir: Dir::A2aEgress, brought: &hop.input, price: 0, agent: None, from: None };
        self.record_judgement(hop, Judging::First, &edge, &verdict);
        let end = End::badly(Ending::Denied, code, "");
        self.record_outcome(hop, Dir::A2aEgress, &end, None, Effects::None);
        self.end_hop(hop.id, end)
    }

    fn new_bridge(&mut self, hop: &Hop, agent: &AgentEntry, verdict: Verdict) -> Bridge {
        let message_id = MessageId::draw(&mut self.ids);
        let bounds = &self.ctx.registry.bounds;
        Bridge {
            hop: hop.id,
            org: self.task.org.clone(),
            task: self.task.id,
            step: hop.step.clone(),
            agent: agent.key.clone(),
            registry_version: agent.version,
            origin: agent.origin.clone(),
            // `follow` moves it on in the same change set.
            state: BridgeState::AwaitingApproval,
            turn: 1,
            payload: hop.input.clone(),
            skill: hop.skill.clone(),
            message_id,
            message_ids: vec![message_id],
            context_id: ContextId::draw(&mut self.ids),
            context_refused: false,
            foreign: None,
            interface: None,
            bound: Bound::Origin(agent.origin.clone()),
            card_digest: None,
            attempts: Vec::new(),
            begun: 0,
            leases: Vec::new(),
            callback: None,
            push: Push::default(),
            looks: 0,
            lost: 0,
            lost_since: None,
            quiet_looks: 0,
            claimed: None,
            question: None,
            verdict,
            approval: None,
            grant: None,
            cost: HopCost {
                rule: agent.terms.price.rule,
                estimate_microusd: agent.terms.price.estimate_microusd,
                reported_microusd: None,
                elapsed: Span::ZERO,
                reserved_microusd: 0,
                settled_microusd: 0,
                accounts: Vec::new(),
            },
            deadline_after: hop.deadline.or(agent.terms.deadline).unwrap_or(bounds.hop_deadline),
            deadline: None,
            turn_began: None,
            reason: None,
            ending: None,
            created_at: self.now(),
            ended_at: None,
            due_at: None,
        }
    }

    /// Hard rules and policy for what a turn carries out.
    fn weigh_egress(
        &mut self,
        hop: &Hop,
        agent: &AgentEntry,
        brought: &Held,
        broken: Option<ReasonCode>,
        begun: Begun,
        granted: BTreeSet<String>,
    ) -> Result<Weighed, Refusal> {
        let price = agent.terms.price.estimate_microusd;
        let label = hop.seen.join(&brought.label);
        let skills = &agent.posture.skills;
        let reserved = self.bridges.get(&hop.id).map_or(0, |b| b.row.cost.reserved_microusd);
        // The task's own limit is known here, and its row is locked by its version; a new task has another id at
        // each try, so its account can't be found in what an earlier try ran into.
        let beyond_task = self.task.budget_left().is_some_and(|left| left.saturating_add(reserved) < price);
        let over = reserved < price
            && (beyond_task
                || self.accounts(&agent.key).iter().any(|(a, _)| self.ctx.over_budget.contains(a)));
        let broken = broken
            .or_else(|| posture_rule(self.ctx.registry, agent, begun))
            .or_else(|| (!label.flows_to(&agent.posture.ceiling)).then_some(ReasonCode::LabelAboveCeiling))
            .or_else(|| match &hop.skill {
                Some(s) if !skills.is_empty() && !skills.contains(s) => Some(ReasonCode::SkillNotOffered),
                _ => None,
            })
            .or_else(|| over.then_some(ReasonCode::BudgetExceeded));
        let facts = self.facts(hop, brought, Some(&agent.key), price)?;
        let principal = self.principal(hop);
        Ok(self.weigh(principal, Action::A2aEgress, agent_entity(agent), facts, broken, granted))
    }

    /// What follows from a verdict about a turn that was not sent yet.
    fn follow(&mut self, id: HopId, agent: &Arc<AgentEntry>, weighed: &Weighed) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let bridge = self.bridge_mut(id)?;
        bridge.verdict = weighed.verdict.clone();
        match weighed.verdict.decision {
            Decision::Deny => self.deny_turn(id, code_of(weighed), &policies_of(weighed)),
            Decision::RequireApproval => {
                bridge.state = bridge.state.on(Event::NeedsApproval)?;
                let (brought, bound, foreign, old) =
                    (bridge.payload.clone(), bridge.bound.clone(), bridge.foreign.clone(), bridge.approval);
                let price = agent.terms.price.estimate_microusd;
                let edge = EdgeFacts {
                    dir: Dir::A2aEgress,
                    brought: &brought,
                    price,
                    agent: Some(agent.as_ref()),
                    from: None,
                };
                let approval =
                    self.open_approval(&hop, &edge, &weighed.verdict, Some(&bound), foreign.as_ref(), old)?;
                let due = self.now() + self.ctx.registry.bounds.approval_ttl;
                let due = self.bridge(id)?.deadline.map_or(due, |d| d.min(due));
                self.unreserve(id)?;
                let bridge = self.bridge_mut(id)?;
                bridge.approval = Some(approval);
                bridge.grant = None;
                bridge.due_at = Some(due);
                self.hop_mut(id)?.state = HopState::AwaitingEgress { approval };
                Ok(())
            }
            Decision::Allow => {
                self.reserve(id, agent)?;
                self.hop_mut(id)?.state = HopState::Foreign;
                self.send_or_wait(id, agent)
            }
        }
    }

    /// Leases an attempt if the agent may and can take one now; else the hop waits in `ready`.
    fn send_or_wait(&mut self, id: HopId, agent: &Arc<AgentEntry>) -> Result<(), Refusal> {
        let held_back = is_halted(self.ctx.registry, agent) || !(self.ctx.has_room)(&agent.key);
        if !held_back {
            return self.lease_attempt(id, agent);
        }
        let due = self.now() + HELD_BACK;
        let bridge = self.bridge_mut(id)?;
        if bridge.state != BridgeState::Ready {
            bridge.state = bridge.state.on(Event::Approved)?;
        }
        bridge.due_at = Some(due);
        Ok(())
    }

    fn lease_attempt(&mut self, id: HopId, agent: &Arc<AgentEntry>) -> Result<(), Refusal> {
        let now = self.now();
        let bounds = self.ctx.registry.bounds.clone();
        let until = now + bounds.send_timeout + LEASE_MARGIN;
        let callback = CallbackId::draw(&mut self.ids);
        let held = self.bridge(id)?.payload.clone();
        let sealed = self.sealed(&held)?.clone();
        if Sha256Digest::of(&sealed.bytes) != held.plain {
            return self.give_up(id, ReasonCode::Tampered, "");
        }
        let task_deadline = self.task.deadline;
        let (org, task) = (self.task.org.clone(), self.task.id);
        let bridge = self.bridge_mut(id)?;
        bridge.begun += 1;
        let leased =
            LeasedAttempt { turn: bridge.turn, message_id: bridge.message_id, payload: bridge.payload.id };
        bridge.leases.push(leased);
        bridge.state = bridge.state.on(Event::Leased { n: bridge.begun, until })?;
        let deadline = bridge.deadline.unwrap_or(now + bridge.deadline_after);
        let deadline = task_deadline.map_or(deadline, |d| d.min(deadline));
        bridge.deadline = Some(deadline);
        bridge.turn_began = bridge.turn_began.or(Some(now));
        bridge.registry_version = agent.version;
        bridge.origin.clone_from(&agent.origin);
        bridge.callback = Some(callback.clone());
        bridge.due_at = Some(until);
        let attempt = AttemptId {
            org: org.clone(),
            hop: id,
            turn: bridge.turn,
            n: bridge.begun,
            callback: callback.clone(),
        };
        let ours =
            bridge.foreign.is_none() && !bridge.context_refused && agent.terms.context == ContextChoice::Auto;
        let parcel = Parcel {
            attempt: attempt.clone(),
            agent: Arc::clone(agent),
            bound: bridge.bound.clone(),
            payload: sealed.bytes.into(),
            message_id: bridge.message_id,
            context_id: ours.then_some(bridge.context_id),
            foreign: bridge.foreign.clone(),
            skill: bridge.skill.clone(),
            push: None,
        };
        let expires = deadline + bounds.callback_grace;
        let route =
            Route { callback, org, task, hop: id, turn: bridge.turn, n: bridge.begun, until: expires };
        self.set.writes.push(Write { expected: 0, row: Row::Route(route) });
        self.set.leases.push(attempt);
        self.send_later(parcel, (agent.terms.push == PushChoice::Auto).then_some(expires));
        Ok(())
    }

    /// A person has let a turn go: the gate is asked again with that fact, and only then anything is sent.
    pub(crate) fn release(&mut self, id: HopId) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let bridge = self.bridge(id)?.clone();
        if bridge.state != BridgeState::AwaitingApproval {
            return Ok(());
        }
        let approval = bridge
            .approval
            .and_then(|a| self.approval(a).ok().cloned())
            .ok_or_else(|| wrong("a release without an approval"))?;
        let grant = Grant { approval: approval.id, digest: approval.digest, roles: approval.granted_roles() };
        self.bridge_mut(id)?.grant = Some(grant);
        self.judge_again(id, &hop)
    }

    /// Judges a turn that was not sent yet as things stand now, and follows the verdict.
    pub(crate) fn judge_again(&mut self, id: HopId, hop: &Hop) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?.clone();
        let Some(agent) = self.ctx.registry.agent(&bridge.agent).cloned() else {
            return self.deny_turn(id, ReasonCode::UnknownAgent, "");
        };
        if agent.version != bridge.registry_version {
            // Another entry is another destination: whatever was bound or granted is about the old one.
            let bound = Bound::Origin(agent.origin.clone());
            let b = self.bridge_mut(id)?;
            b.registry_version = agent.version;
            b.origin.clone_from(&agent.origin);
            b.bound = bound;
            b.cost.rule = agent.terms.price.rule;
            b.cost.estimate_microusd = agent.terms.price.estimate_microusd;
        }
        let bridge = self.bridge(id)?.clone();
        let granted = self.still_granted(hop, &bridge);
        let begun = if bridge.begun > 0 { Begun::Before } else { Begun::Not };
        let weighed = self.weigh_egress(hop, &agent, &bridge.payload, None, begun, granted)?;
        let price = agent.terms.price.estimate_microusd;
        let edge = EdgeFacts {
            dir: Dir::A2aEgress,
            brought: &bridge.payload,
            price,
            agent: Some(agent.as_ref()),
            from: None,
        };
        self.record_judgement(hop, Judging::Again, &edge, &weighed.verdict);
        self.follow(id, &agent, &weighed)
    }

    /// The roles that said yes to exactly what would be sent now.
    fn still_granted(&self, hop: &Hop, bridge: &Bridge) -> BTreeSet<String> {
        let to = hop.to.to_string();
        let label = hop.seen.join(&bridge.payload.label);
        let subject = Subject {
            hop: hop.id,
            turn: hop.turn,
            dir: Dir::A2aEgress,
            to: &to,
            registry_version: Some(bridge.registry_version),
            bound: Some(&bridge.bound),
            skill: bridge.skill.as_deref(),
            label: &label,
            foreign: bridge.foreign.as_ref(),
            payload: bridge.payload.plain,
        };
        match &bridge.grant {
            Some(g) if g.digest == subject.digest() => g.roles.clone(),
            _ => BTreeSet::new(),
        }
    }

    /// A turn in `ready` is due: judged again, then leased.
    pub(crate) fn ready_due(&mut self, id: HopId) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let bridge = self.bridge(id)?;
        let agent = self.ctx.registry.agent(&bridge.agent).cloned();
        if let Some(agent) = agent
            && (is_halted(self.ctx.registry, &agent) || !(self.ctx.has_room)(&agent.key))
            && posture_rule(self.ctx.registry, &agent, Begun::Before).is_none()
        {
            let due = self.now() + HELD_BACK;
            self.bridge_mut(id)?.due_at = Some(due);
            return Ok(());
        }
        self.judge_again(id, &hop)
    }

    /// The answer to a question: a new turn of the same foreign task.
    pub(crate) fn next_turn(&mut self, id: HopId, held: Held) -> Result<(), Refusal> {
        let message_id = MessageId::draw(&mut self.ids);
        let bridge = self.bridge_mut(id)?;
        bridge.state = bridge.state.on(Event::NextTurn)?;
        bridge.turn += 1;
        bridge.payload = held;
        bridge.message_id = message_id;
        bridge.message_ids.push(message_id);
        bridge.approval = None;
        bridge.grant = None;
        bridge.turn_began = None;
        bridge.lost = 0;
        bridge.lost_since = None;
        if let Some(i) = bridge.interface.clone() {
            bridge.bound = Bound::Interface(i);
        }
        let bridge = bridge.clone();
        let hop = self.hop(id)?.clone();
        let Some(agent) = self.ctx.registry.agent(&bridge.agent).cloned() else {
            return self.deny_turn(id, ReasonCode::UnknownAgent, "");
        };
        let weighed =
            self.weigh_egress(&hop, &agent, &bridge.payload, None, Begun::Before, BTreeSet::new())?;
        let price = agent.terms.price.estimate_microusd;
        let edge = EdgeFacts {
            dir: Dir::A2aEgress,
            brought: &bridge.payload,
            price,
            agent: Some(agent.as_ref()),
            from: None,
        };
        self.record_judgement(&hop, Judging::First, &edge, &weighed.verdict);
        self.follow(id, &agent, &weighed)
    }

    /// Policy, a hard rule or a person said no. A first turn ends the hop before anything left; an answer goes
    /// back to the question, which somebody may answer otherwise.
    pub(crate) fn deny_turn(&mut self, id: HopId, code: ReasonCode, detail: &str) -> Result<(), Refusal> {
        if self.bridge(id)?.question.is_some() {
            return self.back_to_question(id, code, detail);
        }
        let end = End::badly(Ending::Denied, code, detail);
        self.stop_bridge(id, Event::Refused, &end)?;
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
        let bridge = self.bridge_mut(id)?;
        bridge.state = bridge.state.on(Event::AnswerLost)?;
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
        let now = self.now();
        let bridge = self.bridge_mut(id)?;
        if bridge.state.is_terminal() {
            return Ok(());
        }
        // A lease of this very change set is taken back: its attempt never leaves.
        let before = if self.take_lease_back(id)? { BridgeState::Ready } else { self.bridge(id)?.state };
        let bridge = self.bridge_mut(id)?;
        bridge.state = before.on(event)?;
        bridge.reason.clone_from(&end.reason);
        bridge.ending = Some(end.ending);
        bridge.ended_at = Some(now);
        bridge.due_at = None;
        let approval = bridge.approval;
        if let Some(a) = approval {
            self.close_approval(a, ApprovalStatus::Canceled)?;
        }
        let effects = self.effects_of(id, before)?;
        let of_turn = if before.is_parked() { Effects::Known } else { self.effects_of_turn(id, before)? };
        self.close_turn(id, None, of_turn)?;
        let hop = self.hop(id)?.clone();
        self.record_outcome(&hop, Dir::A2aEgress, end, None, effects);
        if before.is_parked() || (self.bridge(id)?.begun > 0 && effects != Effects::None) {
            self.intend_cancel(id)?;
        }
        Ok(())
    }

    /// Takes back an attempt that this change set would have leased. Without its receipt nothing is sent.
    fn take_lease_back(&mut self, id: HopId) -> Result<bool, Refusal> {
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
    fn effects_of(&self, id: HopId, state: BridgeState) -> Result<Effects, Refusal> {
        use crate::ledger::data::AttemptOutcome as A;
        let bridge = self.bridge(id)?;
        let out = matches!(state, BridgeState::Sending { .. } | BridgeState::SendUnknown { .. });
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

    fn effects_of_turn(&self, id: HopId, state: BridgeState) -> Result<Effects, Refusal> {
        use crate::ledger::data::AttemptOutcome as A;
        let bridge = self.bridge(id)?;
        let out = matches!(state, BridgeState::Sending { .. } | BridgeState::SendUnknown { .. });
        let ambiguous = bridge.attempts.iter().any(|a| a.turn == bridge.turn && a.outcome == A::Ambiguous);
        Ok(if out || ambiguous { Effects::Possible } else { Effects::None })
    }

    /// Files the intent to cancel the foreign task: known, or still to be bound.
    pub(crate) fn intend_cancel(&mut self, id: HopId) -> Result<(), Refusal> {
        let now = self.now();
        let bridge = self.bridge(id)?;
        let foreign_task = bridge.foreign.as_ref().map(|f| f.task.clone());
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

    fn reserve(&mut self, id: HopId, agent: &AgentEntry) -> Result<(), Refusal> {
        let price = agent.terms.price.estimate_microusd;
        if self.bridge(id)?.cost.reserved_microusd != price {
            // The entry's price has changed since: the old reservation goes back to where it came from.
            self.unreserve(id)?;
        }
        let accounts = self.accounts(&agent.key);
        let bridge = self.bridge_mut(id)?;
        let turn = bridge.turn;
        if bridge.cost.reserved_microusd == price && price > 0 {
            return Ok(());
        }
        bridge.cost.accounts = accounts.iter().map(|(a, _)| a.clone()).collect();
        if price == 0 {
            return Ok(());
        }
        bridge.cost.reserved_microusd = price;
        let m = cost::reserve(id, turn, price, accounts);
        self.record_move(id, &m, None)?;
        self.task.reserved_microusd = self.task.reserved_microusd.saturating_add(price);
        self.tell_cost(id, CostEntry::Reserve, price);
        self.set.costs.push(m);
        Ok(())
    }

    fn unreserve(&mut self, id: HopId) -> Result<(), Refusal> {
        if self.bridge(id)?.cost.reserved_microusd > 0 {
            self.close_turn(id, None, Effects::None)
        } else {
            Ok(())
        }
    }

    /// Closes the present turn's money: settled by the entry's rule if anything may have run, else released.
    pub(crate) fn close_turn(
        &mut self,
        id: HopId,
        reported: Option<u64>,
        effects: Effects,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let (bridge, registry) = (self.bridge(id)?.clone(), self.ctx.registry);
        let elapsed = bridge.turn_began.map_or(Span::ZERO, |t| now.since(t));
        let usage = Usage { reported_microusd: reported, elapsed };
        let price = registry
            .agent_at(&bridge.agent, bridge.registry_version)
            .map(|a| a.terms.price.clone())
            .unwrap_or_default();
        // A turn that never began, or was closed before, has nothing to settle.
        let runs = effects != Effects::None && bridge.turn_began.is_some();
        let settled = if runs { cost::settled_amount(&price, &usage) } else { 0 };
        let reserved = bridge.cost.reserved_microusd;
        for m in cost::close(id, bridge.turn, reserved, settled, &bridge.cost.accounts) {
            self.record_move(id, &m, Some(&usage))?;
            if m.entry == CostEntry::Settle {
                self.task.cost_microusd = self.task.cost_microusd.saturating_add(m.amount_microusd);
            }
            self.tell_cost(id, m.entry, m.amount_microusd);
            self.set.costs.push(m);
        }
        self.task.reserved_microusd = self.task.reserved_microusd.saturating_sub(reserved);
        let bridge = self.bridge_mut(id)?;
        if runs {
            bridge.turn_began = None;
        }
        let cost = &mut bridge.cost;
        cost.reserved_microusd = 0;
        cost.settled_microusd = cost.settled_microusd.saturating_add(settled);
        if runs {
            cost.elapsed = Span::of_micros(cost.elapsed.micros() + elapsed.micros());
            if let Some(r) = reported {
                cost.reported_microusd = Some(cost.reported_microusd.unwrap_or(0).saturating_add(r));
            }
        }
        Ok(())
    }

    fn record_move(&mut self, id: HopId, m: &cost::CostMove, usage: Option<&Usage>) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let data = CostData {
            entry: m.entry,
            amount_microusd: m.amount_microusd,
            rule: Some(bridge.cost.rule),
            estimate_microusd: Some(bridge.cost.estimate_microusd),
            reported_microusd: usage.and_then(|u| u.reported_microusd),
            elapsed_ms: usage.map(|u| u.elapsed.millis()),
        };
        let mut hop = self.hop(id)?.clone();
        hop.turn = m.turn;
        let edge = self.edge_key(&hop, Dir::A2aEgress);
        self.record_about(edge, Actor::system("coordinator"), Data::Cost(data));
        Ok(())
    }
}
