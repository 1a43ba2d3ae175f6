//! A decision that a person must make before something goes on.
//!
//! An approval is bound to a digest of what was judged: payload bytes, destination, label, turn. It
//! never mints a permit; it is one more fact that the gate is asked with, and the gate judges anew.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gate::exeat::{Bound, ForeignIds};
use crate::gate::verdict::Because;
use crate::id::{ApprovalId, HopId, KeyId, OrgName, StepName, TaskId};
use crate::label::Label;
use crate::ledger::Dir;
use crate::ledger::data::ApprovalStatus;
use crate::payload::{Sha256Digest, canonical};
use crate::principal::{ApiKey, KeyScope};
use crate::task::Held;
use crate::time::Timestamp;

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Let it go.
    Approve,
    /// Don't.
    Deny,
}

/// What one approver said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Who.
    pub by: KeyId,
    /// The approver's roles that counted.
    pub roles: BTreeSet<String>,
    /// What.
    pub decision: Choice,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A parked decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The tenant.
    pub org: OrgName,
    /// Where it stands.
    pub status: ApprovalStatus,
    /// Which edge it is about.
    pub dir: Dir,
    /// The task.
    pub task: TaskId,
    /// The step.
    pub step: StepName,
    /// The hop.
    pub hop: HopId,
    /// The hop's turn.
    pub turn: u32,
    /// Who started the task; may not decide.
    pub requester: KeyId,
    /// The destination; for a result, where it comes from.
    pub to: String,
    /// The registered origin, for a foreign agent.
    pub origin: Option<String>,
    /// The skill.
    pub skill: Option<String>,
    /// The entry's version, for a foreign agent.
    pub registry_version: Option<u32>,
    /// What the content carries.
    pub label: Label,
    /// Has foreign content flowed into it?
    pub tainted: bool,
    /// The content.
    pub payload: Held,
    /// What a decision must name: see [`Subject::digest`].
    pub digest: Sha256Digest,
    /// What the destination is bound to, for a foreign agent.
    pub bound: Option<Bound>,
    /// The agent's ids of the work, on a later turn.
    pub foreign: Option<ForeignIds>,
    /// What it is estimated to cost.
    pub price_microusd: u64,
    /// The policies that ask for it.
    pub because: Vec<Because>,
    /// The roles that must say yes, one holder of each.
    pub roles: BTreeSet<String>,
    /// Decisions so far.
    pub decisions: Vec<Decided>,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when.
    pub expires_at: Timestamp,
    /// The one whose place it took.
    pub supersedes: Option<ApprovalId>,
}

/// What exactly is approved.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The hop.
    pub hop: HopId,
    /// Its turn.
    pub turn: u32,
    /// Which edge.
    pub dir: Dir,
    /// Whereto.
    pub to: &'a str,
    /// The entry's version.
    pub registry_version: Option<u32>,
    /// The interface, or the origin where no card was seen.
    pub bound: Option<&'a Bound>,
    /// The skill.
    pub skill: Option<&'a str>,
    /// What the content carries.
    pub label: &'a Label,
    /// The agent's ids, on a later turn.
    pub foreign: Option<&'a ForeignIds>,
    /// SHA-256 of the payload bytes.
    pub payload: Sha256Digest,
}

impl Subject<'_> {
    /// SHA-256 over the JCS of the subject: what approver, gate and attempt compare.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        let interface = interface_shown(self.bound);
        Sha256Digest::of(&canonical(&json!({
            "hop_id": self.hop,
            "turn": self.turn,
            "dir": self.dir,
            "to": self.to,
            "registry_version": self.registry_version,
            "interface": interface,
            "skill": self.skill,
            "label": self.label.shown(),
            "foreign_task_id": self.foreign.map(|f| &f.task),
            "foreign_context_id": self.foreign.and_then(|f| f.context.as_ref()),
            "payload": self.payload,
        })))
    }
}

/// The interface as a digest covers it: all members, whether known or not.
#[must_use]
pub fn interface_shown(bound: Option<&Bound>) -> Value {
    match bound {
        None => Value::Null,
        Some(Bound::Origin(o)) => json!({ "url": o, "binding": null, "version": null, "tenant": null }),
        Some(Bound::Interface(i)) => {
            json!({ "url": i.url, "binding": i.binding, "version": i.version, "tenant": i.tenant })
        }
    }
}

/// Why a decision isn't taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDecided {
    /// The key isn't an approver's.
    #[error("the key has no approver scope")]
    ScopeMissing,
    /// The approver holds none of the roles that are still needed.
    #[error("the approver holds none of the roles that are needed")]
    RoleMissing,
    /// Nobody approves what they asked for.
    #[error("the requester of a task may not decide about it")]
    OwnRequest,
    /// The approver may not see the content.
    #[error("the approver's clearance is below the content's label")]
    ClearanceTooLow,
    /// The digest isn't this approval's: what was seen isn't what is asked.
    #[error("the digest isn't this approval's")]
    DigestMismatch,
    /// It expired.
    #[error("the approval has expired")]
    Expired,
    /// It was decided before, otherwise or by another.
    #[error("the approval is decided already")]
    AlreadyDecided,
    /// A denial needs a reason.
    #[error("a denial needs a reason")]
    ReasonMissing,
}

/// What a decision does to an approval.
#[derive(Clone, Debug, PartialEq)]
pub enum Counted {
    /// The same decision by the same key again: nothing changes.
    Again,
    /// Counted; others must still say yes.
    Pending(Approval),
    /// That was the last yes.
    Approved(Approval),
    /// That was a no.
    Denied(Approval),
}

impl Approval {
    /// The roles that nobody has granted yet.
    #[must_use]
    pub fn missing_roles(&self) -> BTreeSet<String> {
        let granted = self.granted_roles();
        self.roles.difference(&granted).cloned().collect()
    }

    /// The roles that were granted.
    #[must_use]
    pub fn granted_roles(&self) -> BTreeSet<String> {
        self.decisions
            .iter()
            .filter(|d| d.decision == Choice::Approve)
            .flat_map(|d| d.roles.clone())
            .collect()
    }

    /// Counts one decision.
    ///
    /// # Errors
    /// Why it isn't taken; nothing has changed then.
    pub fn decide(
        &self,
        who: &ApiKey,
        choice: Choice,
        seen: Sha256Digest,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Counted, NotDecided> {
        if !who.scopes.contains(&KeyScope::Approver) {
            return Err(NotDecided::ScopeMissing);
        }
        if let Some(before) = self.decisions.iter().find(|d| d.by == who.id) {
            let same = before.decision == choice && seen == self.digest;
            return if same { Ok(Counted::Again) } else { Err(NotDecided::AlreadyDecided) };
        }
        match self.status {
            ApprovalStatus::Pending if now < self.expires_at => {}
            ApprovalStatus::Pending | ApprovalStatus::Expired => return Err(NotDecided::Expired),
            _ => return Err(NotDecided::AlreadyDecided),
        }
        if who.id == self.requester {
            return Err(NotDecided::OwnRequest);
        }
        if !self.label.flows_to(&who.clearance) {
            return Err(NotDecided::ClearanceTooLow);
        }
        let roles: BTreeSet<String> =
            self.missing_roles().intersection(&who.approver_roles).cloned().collect();
        if roles.is_empty() {
            return Err(NotDecided::RoleMissing);
        }
        if seen != self.digest {
            return Err(NotDecided::DigestMismatch);
        }
        let reason = reason.map(str::trim).filter(|r| !r.is_empty()).map(|r| r.chars().take(2_000).collect());
        if choice == Choice::Deny && reason.is_none() {
            return Err(NotDecided::ReasonMissing);
        }
        let mut next = self.clone();
        next.decisions.push(Decided { by: who.id.clone(), roles, decision: choice, reason, at: now });
        Ok(match choice {
            Choice::Deny => {
                next.status = ApprovalStatus::Denied;
                Counted::Denied(next)
            }
            Choice::Approve if next.missing_roles().is_empty() => {
                next.status = ApprovalStatus::Approved;
                Counted::Approved(next)
            }
            Choice::Approve => Counted::Pending(next),
        })
    }
}

#[cfg(test)]
#[path = "approval/tests.rs"]
mod tests;
