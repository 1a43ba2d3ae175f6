//! Who calls: API keys, their scopes and what they may see.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::gate::verdict::KeyFacts;
use crate::id::{KeyId, OrgName, RoleName};
use crate::label::Label;
use crate::time::Timestamp;

/// What a key may do. None includes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// Registry, policy, workflows, keys, budgets.
    Admin,
    /// Egress, halt, cancel, answers.
    Operator,
    /// Decisions.
    Approver,
    /// Starting tasks.
    Requester,
    /// Leases.
    Worker,
    /// Reading.
    Viewer,
    /// Orgs and the platform's switch.
    Platform,
}

impl KeyScope {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Admin,
        Self::Operator,
        Self::Approver,
        Self::Requester,
        Self::Worker,
        Self::Viewer,
        Self::Platform,
    ];

    /// As scripts see it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Requester => "requester",
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Platform => "platform",
        }
    }
}

/// An API key. Only its hash is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The public half.
    pub id: KeyId,
    /// Its only org.
    pub org: OrgName,
    /// For people.
    pub name: String,
    /// SHA-256 of the whole key, hex.
    pub hash: String,
    /// What it may do.
    pub scopes: BTreeSet<KeyScope>,
    /// Which approver roles it holds.
    pub approver_roles: BTreeSet<String>,
    /// Which roles it may lease for; empty: none.
    pub worker_roles: BTreeSet<RoleName>,
    /// What its holder may see.
    pub clearance: Label,
    /// Who made it; none for the first ones.
    pub minted_by: Option<KeyId>,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when.
    pub expires_at: Option<Timestamp>,
    /// Revoked since.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Does it hold at that time?
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|e| now < e)
    }

    /// As policy sees it.
    #[must_use]
    pub fn facts(&self) -> KeyFacts {
        KeyFacts {
            id: self.id.clone(),
            name: self.name.clone(),
            scopes: self.scopes.iter().map(|s| s.as_str().to_owned()).collect(),
            roles: self.approver_roles.clone(),
            clearance: self.clearance.clone(),
        }
    }
}
