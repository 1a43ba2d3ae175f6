//! The choke-point: governor → ledger → costs, in this order, in one place.
//!
//! Every edge passes [`weigh`], whatever direction it has and however often it is judged: hard rules first,
//! which no policy can undo, then both sets of policies, then what was already granted. What follows from a
//! verdict (record, reservation, parking) is written by the desk in one change set.

use std::collections::BTreeSet;

use crate::gate::verdict::{
    Action, Because, Decision, Entity, Facts, Governor, HopFacts, Opinion, PolicyDenial, Question, Verdict,
};
use crate::id::OrgName;
use crate::reason::ReasonCode;
use crate::registry::{AgentEntry, AgentStatus, EgressMode, Registry};
use crate::time::Timestamp;

pub mod exeat;
pub mod verdict;

/// What is asked of the gate.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The tenant.
    pub org: &'a OrgName,
    /// Who.
    pub principal: Entity,
    /// Does what.
    pub action: Action,
    /// To whom.
    pub resource: Entity,
    /// Under which circumstances.
    pub facts: HopFacts,
    /// A hard rule that it breaks.
    pub broken: Option<ReasonCode>,
    /// The approver roles that said yes to exactly this.
    pub granted: BTreeSet<String>,
}

/// The gate's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighed {
    /// As it is recorded.
    pub verdict: Verdict,
    /// Why not, if not.
    pub denied: Option<ReasonCode>,
}

/// Judges one edge: the only way to a verdict.
#[must_use]
pub fn weigh(asked: &Asked<'_>, governor: &dyn Governor, now: Timestamp) -> Weighed {
    if let Some(code) = asked.broken {
        let because = Because { id: code.as_str().to_owned(), reason: Some(code.message().to_owned()) };
        return denied(code, vec![because], "0".to_owned(), now);
    }
    let judgement = governor.judge(&Question {
        org: asked.org.clone(),
        principal: asked.principal.clone(),
        action: asked.action,
        resource: asked.resource.clone(),
        facts: Facts::Hop(asked.facts.clone()),
    });
    let (because, version) = (judgement.because, judgement.policy_version);
    let allowed = |decision, roles| Weighed {
        verdict: Verdict {
            decision,
            roles,
            policies: because.clone(),
            policy_version: version.clone(),
            at: now,
        },
        denied: None,
    };
    match judgement.opinion {
        Opinion::Allow => allowed(Decision::Allow, BTreeSet::new()),
        Opinion::RequireApproval(roles) => {
            let open: BTreeSet<String> = roles.difference(&asked.granted).cloned().collect();
            if open.is_empty() {
                allowed(Decision::Allow, BTreeSet::new())
            } else {
                allowed(Decision::RequireApproval, open)
            }
        }
        Opinion::Deny(why) => denied(policy_code(why), because, version, now),
    }
}

fn denied(code: ReasonCode, policies: Vec<Because>, policy_version: String, at: Timestamp) -> Weighed {
    let verdict = Verdict { decision: Decision::Deny, roles: BTreeSet::new(), policies, policy_version, at };
    Weighed { verdict, denied: Some(code) }
}

const fn policy_code(why: PolicyDenial) -> ReasonCode {
    match why {
        PolicyDenial::DeniedByPolicy => ReasonCode::DeniedByPolicy,
        PolicyDenial::NoPolicyAllows => ReasonCode::NoPolicyAllows,
        PolicyDenial::PolicyError => ReasonCode::PolicyError,
    }
}

/// Has the hop begun, as the mode `drain` asks?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing of it has left yet.
    Not,
    /// An attempt of it was leased before.
    Before,
}

/// The hard rule of posture and switches that a send to this agent breaks, if any. `halt` breaks none: it makes hops wait.
#[must_use]
pub fn posture_rule(registry: &Registry, agent: &AgentEntry, begun: Begun) -> Option<ReasonCode> {
    match agent.status {
        AgentStatus::Revoked => return Some(ReasonCode::AgentRevoked),
        AgentStatus::Disabled => return Some(ReasonCode::AgentDisabled),
        AgentStatus::PendingReview => return Some(ReasonCode::PostureUnsigned),
        AgentStatus::Active => {}
    }
    match (registry.mode(), begun) {
        (EgressMode::Off, _) => Some(ReasonCode::EgressOff),
        (EgressMode::Drain, Begun::Not) => Some(ReasonCode::EgressDraining),
        (EgressMode::Drain, Begun::Before) | (EgressMode::Halt | EgressMode::On, _) => None,
    }
}

/// Does the kill switch hold sends to this agent back?
#[must_use]
pub fn is_halted(registry: &Registry, agent: &AgentEntry) -> bool {
    agent.halted || registry.mode() == EgressMode::Halt
}

/// May this agent be looked at, or asked to cancel? Not while halted, off or revoked.
#[must_use]
pub fn may_look(registry: &Registry, agent: &AgentEntry) -> bool {
    let current =
        registry.agent(&agent.key).is_none_or(|now| now.status != AgentStatus::Revoked && !now.halted);
    current && !matches!(registry.mode(), EgressMode::Off | EgressMode::Halt)
}
