//! Going out: a hop to a foreign agent is judged, parked, released, leased for an attempt, and stopped here.
//!
//! Every attempt passes the gate again: halt, posture, label, policy, budget, then the lease. What was
//! approved is what is sent, or a new approval is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::approval::Subject;
use crate::bridge::schedule::{HELD_BACK, LEASE_MARGIN};
use crate::bridge::state::Event;
use crate::bridge::{Bridge, BridgeState, Grant, HopCost, LeasedAttempt, Push, Route};
use crate::change::{Row, Write};
use crate::cost::{Account, Usd};
use crate::gate::exeat::{AttemptId, Bound, Parcel};
use crate::gate::verdict::{Action, Decision, Verdict};
use crate::gate::{Begun, Weighed, is_halted, posture_rule};
use crate::id::{AgentKey, CallbackId, ContextId, HopId, MessageId};
use crate::ledger::Dir;
use crate::ledger::data::Effects;
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
        if let Some(adopting) = self.adopted(&hop) {
            return self.adopt(id, &adopting, broken);
        }
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

    pub(crate) fn new_bridge(&mut self, hop: &Hop, agent: &AgentEntry, verdict: Verdict) -> Bridge {
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
            cannot_list: false,
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
            look: None,
            lost: 0,
            lost_since: None,
            quiet_looks: 0,
            strays: BTreeSet::new(),
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
    pub(crate) fn weigh_egress(
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
                || self.accounts(&agent.key).iter().any(|(a, _)| self.ctx.hindsight.over_budget.contains(a)));
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

    /// Which budget doesn't cover a hop to the agent, and by how much.
    fn too_little(&self, agent: &AgentEntry) -> String {
        let price = Usd(agent.terms.price.estimate_microusd);
        let left = self.task.budget_left().filter(|left| *left < price.0);
        if let Some(left) = left {
            return format!("it costs {price}, and the task's own budget has {} left", Usd(left));
        }
        let small = |(account, _): &(Account, Option<u64>)| {
            self.ctx.hindsight.over_budget.contains(account).then(|| account.scope.to_string())
        };
        let scopes: Vec<String> = self.accounts(&agent.key).iter().filter_map(small).collect();
        format!("it costs {price}, and the budget of {} has less left", scopes.join(" and "))
    }

    /// What follows from a verdict about a turn that was not sent yet.
    fn follow(&mut self, id: HopId, agent: &Arc<AgentEntry>, weighed: &Weighed) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        self.bridge_mut(id)?.verdict = weighed.verdict.clone();
        match weighed.verdict.decision {
            Decision::Deny => {
                let why = match code_of(weighed) {
                    ReasonCode::BudgetExceeded => self.too_little(agent),
                    _ => policies_of(weighed),
                };
                self.deny_turn(id, code_of(weighed), &why)
            }
            Decision::RequireApproval => {
                self.takes(id, Event::NeedsApproval)?;
                let bridge = self.bridge(id)?;
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
        if self.bridge(id)?.state != BridgeState::Ready {
            self.takes(id, Event::Approved)?;
        }
        self.bridge_mut(id)?.due_at = Some(due);
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
        let n = bridge.begun;
        self.takes(id, Event::Leased { n, until })?;
        let bridge = self.bridge_mut(id)?;
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
    pub(crate) fn still_granted(&self, hop: &Hop, bridge: &Bridge) -> BTreeSet<String> {
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
        self.takes(id, Event::NextTurn)?;
        let bridge = self.bridge_mut(id)?;
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
}
