//! What the gate would say now of a hop that was made. Nothing of it is kept.

use std::collections::BTreeSet;

use crate::endpoint::Endpoint;
use crate::gate::verdict::{Action, Facts, Question};
use crate::gate::{Begun, Weighed};
use crate::id::HopId;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::agent_entity;

/// The present turn of a hop, held to what governs now.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What policy is asked.
    pub question: Question,
    /// The gate's answer, hard rules counted in.
    pub weighed: Weighed,
}

impl Desk<'_> {
    /// Judges the outgoing edge of a hop's present turn as if it were to leave now. The desk is used up: whatever was
    /// laid on it is dropped.
    ///
    /// # Errors
    /// If there is no such hop, its agent is gone, or its content was erased.
    pub fn explain(mut self, id: HopId) -> Result<Explained, Refusal> {
        let hop = self.hop(id)?.clone();
        let principal = self.principal(&hop);
        let (action, resource, facts, weighed) = if let Endpoint::Agent(key) = &hop.to {
            let agent = self.ctx.registry.agent(key).cloned().ok_or(Refusal::NotFound("agent"))?;
            let bridge = self.bridges.get(&id).map(|b| b.row.clone());
            let brought = bridge.as_ref().map_or(&hop.input, |b| &b.payload).clone();
            let begun = match &bridge {
                Some(b) if b.begun > 0 => Begun::Before,
                _ => Begun::Not,
            };
            let granted = bridge.as_ref().map_or_else(BTreeSet::new, |b| self.still_granted(&hop, b));
            let price = agent.terms.price.estimate_microusd;
            let facts = self.facts(&hop, &brought, Some(key), price)?;
            let weighed = self.weigh_egress(&hop, &agent, &brought, None, begun, granted)?;
            (Action::A2aEgress, agent_entity(&agent), facts, weighed)
        } else {
            let brought = hop.replies.clone().unwrap_or_else(|| hop.input.clone());
            let (resource, broken) = self.receiver(&hop, None)?;
            let facts = self.facts(&hop, &brought, None, 0)?;
            let (who, granted) = (principal.clone(), BTreeSet::new());
            let weighed = self.weigh(who, Action::Forward, resource.clone(), facts.clone(), broken, granted);
            (Action::Forward, resource, facts, weighed)
        };
        let question =
            Question { org: self.task.org.clone(), principal, action, resource, facts: Facts::Hop(facts) };
        Ok(Explained { question, weighed })
    }
}
