//! An operator's wish to look at an agent: what stands in its way, and the record of the act.

use std::sync::Arc;

use super::{Acting, NotChanged};
use crate::change::{ChangeSet, Expect, Key};
use crate::gate::exeat::Carry;
use crate::id::AgentKey;
use crate::ledger::data::{Act, NoteData, OperatorData};
use crate::ledger::{Actor, Code, Data, Draft, OutsideId};
use crate::registry::{AgentEntry, AgentStatus, EgressMode};

/// What forbids looking at an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// Egress is off.
    Off,
    /// Only what began before goes on.
    Draining,
    /// The kill switch is thrown.
    Halted,
    /// The agent's own is.
    AgentHalted,
    /// All contact with it has ended.
    Revoked,
}

impl Barred {
    /// As the ledger has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "egress_off",
            Self::Draining => "egress_draining",
            Self::Halted => "egress_halted",
            Self::AgentHalted => "agent_halted",
            Self::Revoked => "agent_revoked",
        }
    }
}

/// What becomes of the wish.
#[derive(Debug)]
pub enum Discovery {
    /// Once the set is durable, this entry may be looked at.
    Cleared(Arc<AgentEntry>, Carry),
    /// It may not; the set says so.
    Barred(Barred),
}

/// Decides whether an agent may be looked at for an operator. Nothing is contacted before the set is durable, and it
/// isn't once a switch was thrown in between: the registry's version is expected.
///
/// # Errors
/// If there is no such agent, or the reason is too long.
pub fn discover(
    mut acting: Acting<'_>,
    key: &AgentKey,
    reason: Option<&str>,
) -> Result<(Discovery, ChangeSet), NotChanged> {
    let agent = acting.registry.agent(key).ok_or(NotChanged::NotFound("agent"))?.clone();
    let mut set = acting.begin();
    let reason = acting.note(&mut set, reason)?;
    set.expects.push(Expect { key: Key::Registry, version: acting.registry.version });
    let barred = match (agent.status, acting.registry.mode()) {
        (AgentStatus::Revoked, _) => Some(Barred::Revoked),
        (_, EgressMode::Off) => Some(Barred::Off),
        (_, EgressMode::Drain) => Some(Barred::Draining),
        (_, EgressMode::Halt) => Some(Barred::Halted),
        (_, EgressMode::On) => agent.halted.then_some(Barred::AgentHalted),
    };
    let (discovery, data) = match barred {
        Some(barred) => {
            let data = NoteData { what: Code::of("probe"), why: Code::of(barred.as_str()), payload: None };
            (Discovery::Barred(barred), Data::Refused(data))
        }
        None => {
            // Only what is signed now vouches for where the secret goes.
            let carry = if agent.status == AgentStatus::Active { Carry::Credential } else { Carry::Nothing };
            let target = OutsideId::of(key.as_str());
            let data = OperatorData { act: Act::Discover, target, reason };
            (Discovery::Cleared(agent, carry), Data::Operator(data))
        }
    };
    set.drafts.push(Draft::apart(set.at, set.id, Actor::key(&acting.by.id), data));
    Ok((discovery, set))
}
