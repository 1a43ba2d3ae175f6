//! Hops set out here: every edge to a role or to a foreign agent passes the gate in this file, and each
//! verdict is written down with what follows from it.

use std::collections::BTreeSet;

use crate::approval::{Approval, Subject};
use crate::change::Effect;
use crate::cost::{Account, Scope, accounts_of};
use crate::endpoint::Endpoint;
use crate::envelope::{Envelope, EnvelopeKind, EnvelopeState};
use crate::gate::exeat::{Bound, ForeignIds};
use crate::gate::verdict::{Action, AgentFacts, Decision, Entity, HopFacts, RoleFacts, Verdict};
use crate::gate::{Asked, Weighed, weigh};
use crate::id::{AgentKey, ApprovalId, EnvelopeId, HopId, StepName};
use crate::label::Label;
use crate::ledger::data::{ApprovalData, ApprovalStatus, EdgeData, Judged};
use crate::ledger::{Actor, Data, Dir, Draft, OutsideId, Party};
use crate::reason::ReasonCode;
use crate::registry::AgentEntry;
use crate::task::desk::{Desk, Refusal};
use crate::task::{End, Ending, Held, Hop, HopOwner, HopState};
use crate::time::Span;

/// How often an envelope that nobody took is rung again.
const RING_AGAIN: Span = Span::of_secs(60);

/// A hop to be made.
pub(crate) struct NewHop {
    pub(crate) step: StepName,
    pub(crate) owner: HopOwner,
    pub(crate) to: Endpoint,
    pub(crate) depth: u32,
    pub(crate) skill: Option<String>,
    pub(crate) deadline: Option<Span>,
    pub(crate) input: Held,
}

/// Is the edge new, or judged again?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judging {
    /// Its record is to be written.
    First,
    /// It has its record.
    Again,
}

impl Desk<'_> {
    /// Makes a hop and sets it out. It may be over at once, denied.
    pub(crate) fn set_out(&mut self, new: NewHop) -> Result<HopId, Refusal> {
        let id = HopId::draw(&mut self.ids);
        let broken = if new.depth > self.ctx.registry.bounds.depth {
            Some(ReasonCode::DepthExceeded)
        } else if self.task.hops.len() >= self.task.max_hops as usize {
            Some(ReasonCode::HopsExceeded)
        } else {
            None
        };
        let until = match &new.to {
            Endpoint::Agent(_) => None,
            Endpoint::Role(_) | Endpoint::Team(_) => new.deadline.map(|d| self.now() + d),
        };
        let (owner, step) = (new.owner, new.step);
        self.task.hops.push(Hop {
            id,
            step: step.clone(),
            owner: owner.clone(),
            to: new.to.clone(),
            depth: new.depth,
            skill: new.skill,
            deadline: new.deadline,
            seen: new.input.label.clone(),
            tainted: new.input.tainted,
            input: new.input,
            turn: 1,
            closed: 0,
            state: HopState::Foreign,
            wait: None,
            replies: None,
            until,
            deliveries: 0,
            created_at: self.now(),
        });
        if let HopOwner::Step { run } = owner {
            self.run_is_out(&step, run, id)?;
        }
        match &new.to {
            Endpoint::Agent(key) => self.begin_egress(id, &key.clone(), broken)?,
            Endpoint::Role(_) | Endpoint::Team(_) => {
                self.forward(id, Judging::First, broken, BTreeSet::new())?
            }
        }
        Ok(id)
    }

    /// Judges the edge to a role and hands the envelope out, parks it, or ends the hop.
    pub(crate) fn forward(
        &mut self,
        id: HopId,
        judging: Judging,
        broken: Option<ReasonCode>,
        granted: BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let brought = hop.replies.clone().unwrap_or_else(|| hop.input.clone());
        let (resource, broken) = self.receiver(&hop, broken)?;
        let facts = self.facts(&hop, &brought, None, 0)?;
        let weighed = self.weigh(self.principal(&hop), Action::Forward, resource, facts, broken, granted);
        let edge = EdgeFacts { dir: Dir::Forward, brought: &brought, price: 0, agent: None, from: None };
        self.record_judgement(&hop, judging, &edge, &weighed.verdict);
        match weighed.verdict.decision {
            Decision::Deny => {
                self.end_hop(id, End::badly(Ending::Denied, code_of(&weighed), &policies_of(&weighed)))
            }
            Decision::RequireApproval => {
                let approval = self.open_approval(&hop, &edge, &weighed.verdict, None, None, None)?;
                self.hop_mut(id)?.state = HopState::AwaitingForward { approval };
                Ok(())
            }
            Decision::Allow => self.hand_out(id),
        }
    }

    /// A role or team as policy sees it, and the hard rule that handing this hop over breaks.
    pub(crate) fn receiver(
        &self,
        hop: &Hop,
        broken: Option<ReasonCode>,
    ) -> Result<(Entity, Option<ReasonCode>), Refusal> {
        let ceiling =
            self.ctx.registry.internal_ceiling(&hop.to).ok_or_else(|| wrong("a foreign forward"))?;
        let broken = broken
            .or_else(|| (!hop.seen.flows_to(&ceiling)).then_some(ReasonCode::LabelAboveCeiling))
            .or_else(|| self.above_delegator(hop, &ceiling));
        let resource = Entity::of_internal(&hop.to, &ceiling).ok_or_else(|| wrong("a foreign forward"))?;
        Ok((resource, broken))
    }

    fn above_delegator(&self, hop: &Hop, ceiling: &Label) -> Option<ReasonCode> {
        let HopOwner::Worker { role, .. } = &hop.owner else { return None };
        let own = self.ctx.registry.role(role).clearance;
        (hop.turn == 1 && !ceiling.flows_to(&own)).then_some(ReasonCode::LabelAboveCeiling)
    }

    fn hand_out(&mut self, id: HopId) -> Result<(), Refusal> {
        let envelope = EnvelopeId::draw(&mut self.ids);
        let now = self.now();
        let hop = self.hop_mut(id)?;
        hop.state = HopState::Out { envelope };
        let kind = match (&hop.owner, hop.turn) {
            (HopOwner::Step { .. }, 1) => EnvelopeKind::Work,
            (HopOwner::Worker { .. }, 1) => EnvelopeKind::Query,
            _ => EnvelopeKind::Reply,
        };
        let (to, step, turn) = (hop.to.clone(), hop.step.clone(), hop.turn);
        self.add_envelope(Envelope {
            id: envelope,
            org: self.task.org.clone(),
            kind,
            to,
            task: self.task.id,
            step,
            hop: id,
            turn,
            delivery: 0,
            state: EnvelopeState::Ready,
            created_at: now,
            due_at: Some(now + RING_AGAIN),
        });
        Ok(())
    }

    /// Asks the gate, in the name of this task.
    pub(crate) fn weigh(
        &mut self,
        principal: Entity,
        action: Action,
        resource: Entity,
        facts: HopFacts,
        broken: Option<ReasonCode>,
        granted: BTreeSet<String>,
    ) -> Weighed {
        self.judged();
        let asked = Asked { org: &self.task.org, principal, action, resource, facts, broken, granted };
        weigh(&asked, self.ctx.governor, self.ctx.now)
    }

    /// Who sends a hop: the requester's key, or the role whose worker delegates.
    pub(crate) fn principal(&self, hop: &Hop) -> Entity {
        match &hop.owner {
            HopOwner::Step { .. } => Entity::Key(self.task.requester.clone()),
            HopOwner::Worker { role, .. } => Entity::Role(RoleFacts {
                name: role.clone(),
                clearance: self.ctx.registry.role(role).clearance,
            }),
        }
    }

    /// The facts of an edge.
    pub(crate) fn facts(
        &self,
        hop: &Hop,
        brought: &Held,
        agent: Option<&AgentKey>,
        price_microusd: u64,
    ) -> Result<HopFacts, Refusal> {
        let parts = self.payload(brought)?.kinds();
        let (hour_utc, weekday) = HopFacts::clock(self.now());
        Ok(HopFacts {
            task: self.task.id.to_string(),
            workflow: self.task.workflow.as_ref().map(ToString::to_string).unwrap_or_default(),
            step: hop.step.to_string(),
            turn: hop.turn,
            depth: hop.depth,
            hops: u32::try_from(self.task.hops.len()).unwrap_or(u32::MAX),
            label: hop.seen.join(&brought.label),
            tainted: hop.tainted || brought.tainted,
            parts,
            size_bytes: brought.bytes,
            skill: hop.skill.clone(),
            first_contact: agent.is_some_and(|a| !self.ctx.registry.met.contains(a)),
            price_microusd,
            budget_left_microusd: self.task.budget_left(),
            hour_utc,
            weekday,
        })
    }

    /// Writes the edge record, or another verdict under it.
    pub(crate) fn record_judgement(
        &mut self,
        hop: &Hop,
        judging: Judging,
        edge: &EdgeFacts<'_>,
        verdict: &Verdict,
    ) {
        let key = self.edge_key(hop, edge.dir);
        let actor = Actor::system("coordinator");
        if judging == Judging::Again {
            return self.record_about(key, actor, Data::Verdict(Judged::from(verdict)));
        }
        let own = Party::Coordinator;
        let other = Party::Endpoint(hop.to.clone());
        let (from, to) = match edge.dir {
            Dir::Forward | Dir::A2aEgress => (own, other),
            Dir::A2aIngress => (other, own),
        };
        let data = EdgeData {
            dir: edge.dir,
            from: edge.from.clone().unwrap_or(from),
            to,
            origin: edge.agent.map(|a| OutsideId::of(&a.origin)),
            skill: hop.skill.as_deref().map(OutsideId::of),
            registry_version: edge.agent.map(|a| u64::from(a.version)),
            payload: Some(edge.brought.digest.clone()),
            bytes: edge.brought.bytes,
            label: (&hop.seen.join(&edge.brought.label)).into(),
            tainted: hop.tainted || edge.brought.tainted,
            price_microusd: edge.price,
            verdict: Judged::from(verdict),
        };
        self.set.drafts.push(Draft::edge(self.ctx.now, self.set.id, actor, key, data));
    }

    /// Opens an approval for an edge.
    pub(crate) fn open_approval(
        &mut self,
        hop: &Hop,
        edge: &EdgeFacts<'_>,
        verdict: &Verdict,
        bound: Option<&Bound>,
        foreign: Option<&ForeignIds>,
        supersedes: Option<ApprovalId>,
    ) -> Result<ApprovalId, Refusal> {
        let label = hop.seen.join(&edge.brought.label);
        let to = hop.to.to_string();
        let subject = Subject {
            hop: hop.id,
            turn: hop.turn,
            dir: edge.dir,
            to: &to,
            registry_version: edge.agent.map(|a| a.version),
            bound,
            skill: hop.skill.as_deref(),
            label: &label,
            foreign,
            payload: edge.brought.plain,
        };
        let digest = subject.digest();
        let approval = Approval {
            id: ApprovalId::draw(&mut self.ids),
            org: self.task.org.clone(),
            status: ApprovalStatus::Pending,
            dir: edge.dir,
            task: self.task.id,
            step: hop.step.clone(),
            hop: hop.id,
            turn: hop.turn,
            requester: self.task.requester.id.clone(),
            to,
            origin: edge.agent.map(|a| a.origin.clone()),
            skill: hop.skill.clone(),
            registry_version: edge.agent.map(|a| a.version),
            label,
            tainted: hop.tainted || edge.brought.tainted,
            payload: edge.brought.clone(),
            digest,
            bound: bound.cloned(),
            foreign: foreign.cloned(),
            price_microusd: edge.price,
            because: verdict.policies.clone(),
            roles: verdict.roles.clone(),
            decisions: Vec::new(),
            created_at: self.now(),
            expires_at: self.now() + self.ctx.registry.bounds.approval_ttl,
            supersedes,
        };
        let id = approval.id;
        self.record_approval(&approval, Actor::system("coordinator"));
        if let Some(old) = supersedes {
            self.close_approval(old, ApprovalStatus::Superseded)?;
        }
        self.put_approval(approval);
        Ok(id)
    }

    /// Takes a pending approval back. One that was decided stays as it is.
    pub(crate) fn close_approval(&mut self, id: ApprovalId, status: ApprovalStatus) -> Result<(), Refusal> {
        let Ok(approval) = self.approval(id) else { return Ok(()) };
        if approval.status != ApprovalStatus::Pending {
            return Ok(());
        }
        let mut approval = approval.clone();
        approval.status = status;
        self.record_approval(&approval, Actor::system("coordinator"));
        self.put_approval(approval);
        Ok(())
    }

    /// Records where an approval stands.
    pub(crate) fn record_approval(&mut self, approval: &Approval, actor: Actor) {
        let reason = approval.decisions.last().and_then(|d| d.reason.clone()).map(|r| self.note(&r));
        let hop = self.task.hop(approval.hop).and_then(|h| self.task.edge_hop(h));
        let edge = crate::ledger::EdgeKey {
            task: approval.task,
            step: approval.step.clone(),
            hop,
            turn: approval.turn,
            dir: approval.dir,
        };
        let data = ApprovalData {
            approval_id: approval.id,
            status: approval.status,
            digest: approval.digest,
            roles: approval.roles.iter().map(|r| OutsideId::of(r)).collect(),
            by: approval.decisions.last().map(|d| d.by.clone()),
            reason,
        };
        self.record_about(edge, actor, Data::Approval(data));
    }

    /// The accounts that a hop to this agent draws on, with their limits.
    pub(crate) fn accounts(&self, agent: &AgentKey) -> Vec<(Account, Option<u64>)> {
        let workflow = self.task.workflow.as_ref().map(|w| Scope::Workflow(w.name.clone()));
        let shared = [Some(Scope::Org), Some(Scope::Agent(agent.clone())), workflow];
        let mut accounts: Vec<_> = shared
            .into_iter()
            .flatten()
            .flat_map(|scope| accounts_of(&scope, self.ctx.registry.budgets.get(&scope), self.now()))
            .collect();
        if let Some(limit) = self.task.budget_microusd {
            let account = Account { scope: Scope::Task(self.task.id), since: crate::time::Timestamp::EPOCH };
            accounts.push((account, Some(limit)));
        }
        accounts
    }

    /// Starts sending what this attempt's lease clears, once the change set is durable.
    pub(crate) fn send_later(
        &mut self,
        parcel: crate::gate::exeat::Parcel,
        push_until: Option<crate::time::Timestamp>,
    ) {
        self.set.effects.push(Effect::Send(Box::new(parcel), push_until));
    }
}

/// What is known of an edge when it is judged.
pub(crate) struct EdgeFacts<'a> {
    pub(crate) dir: Dir,
    pub(crate) brought: &'a Held,
    pub(crate) price: u64,
    pub(crate) agent: Option<&'a AgentEntry>,
    pub(crate) from: Option<Party>,
}

/// A foreign agent, as policy sees it.
pub(crate) fn agent_entity(agent: &AgentEntry) -> Entity {
    Entity::Agent(AgentFacts {
        key: agent.key.clone(),
        origin: agent.origin.clone(),
        provider: agent.posture.provider.as_str().to_owned(),
        region: agent.posture.region.clone(),
        ceiling: agent.posture.ceiling.clone(),
    })
}

pub(crate) fn code_of(weighed: &Weighed) -> ReasonCode {
    weighed.denied.unwrap_or(ReasonCode::PolicyError)
}

/// The policies that decided, for the sentence of a denial.
pub(crate) fn policies_of(weighed: &Weighed) -> String {
    let said: Vec<String> = weighed
        .verdict
        .policies
        .iter()
        .filter(|p| weighed.denied.is_none_or(|c| c.as_str() != p.id))
        .map(|p| {
            let said = |r: &String| format!("{}: {}", p.id, r.trim_end_matches('.'));
            p.reason.as_ref().map_or_else(|| p.id.clone(), said)
        })
        .collect();
    said.join("; ")
}

pub(crate) fn wrong(what: &str) -> Refusal {
    Refusal::Wrong(what.to_owned())
}
