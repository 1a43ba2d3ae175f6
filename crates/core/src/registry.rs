//! The foreign agents, roles and switches of one org, as a versioned snapshot.
//!
//! An entry is versioned and never edited: a change is the next version. Its **posture** is the part
//! that a person signs; a change of posture unsigns the entry. A hop pins the version it was judged by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::change::PolicyRow;
use crate::cost::{Budget, Scope};
use crate::endpoint::Endpoint;
use crate::id::{AgentKey, KeyId, OrgName, RoleName, TeamName};
use crate::label::{Label, Levels};
use crate::ledger::data::CostRule;
use crate::payload::{Limits, Sha256Digest, canonical};
use crate::time::Span;

pub mod change;
mod credential;

pub use credential::{Credential, Handle, HeaderName};

/// Which kind of transport speaks to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Any A2A agent.
    A2a,
    /// A Google ADK agent, over A2A.
    GoogleAdk,
}

impl Provider {
    /// As stored and as policy sees it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A2a => "a2a",
            Self::GoogleAdk => "google_adk",
        }
    }
}

/// Which protocol generation to speak; `Auto` chooses from the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolPin {
    /// From the card.
    #[serde(rename = "auto")]
    Auto,
    /// A2A 1.0.
    #[serde(rename = "1.0")]
    V1_0,
    /// A2A 0.3.
    #[serde(rename = "0.3")]
    V0_3,
    /// A2A 0.2.
    #[serde(rename = "0.2")]
    V0_2,
}

/// How much a callback's body is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackTrust {
    /// A hint: the agent is asked before anything is believed.
    Confirm,
    /// The body counts as the result, and policy sees it as unconfirmed.
    Body,
}

/// Whether our context id goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// On 1.0 interfaces, which can list by it.
    Auto,
    /// Never: the agent makes its own.
    Theirs,
}

/// Whether the agent recognises a message that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedup {
    /// It doesn't: an ambiguous send is never repeated.
    None,
    /// By message id: an ambiguous send may be repeated with the same one.
    MessageId,
}

/// Whether push is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushChoice {
    /// Where the card declares it.
    Auto,
    /// Never.
    Off,
}

/// What a hop to the agent costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Reserved for each turn, in millionths of a dollar.
    #[serde(default)]
    pub estimate_microusd: u64,
    /// A reported figure counts at most this much.
    #[serde(default)]
    pub cap_microusd: Option<u64>,
    /// Which figure settles.
    #[serde(default = "Price::default_rule")]
    pub rule: CostRule,
}

impl Price {
    const fn default_rule() -> CostRule {
        CostRule::Estimate
    }
}

impl Default for Price {
    fn default() -> Self {
        Self { estimate_microusd: 0, cap_microusd: None, rule: CostRule::Estimate }
    }
}

/// The security-relevant part of an entry: what a person signs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Posture {
    /// A base or a whole card URL. Parsed by `egress`; its origin is [`AgentEntry::origin`].
    pub url: String,
    /// Transport.
    pub provider: Provider,
    /// Protocol generation.
    pub protocol: ProtocolPin,
    /// Skills that may be asked for; empty: any.
    pub skills: BTreeSet<String>,
    /// How we authenticate.
    pub credential: Option<Credential>,
    /// Origins beside the registered one that a card may name.
    pub allow_origins: BTreeSet<String>,
    /// Is plain http allowed?
    pub plaintext: bool,
    /// Address ranges, beyond globally routable ones, that this entry may reach where the platform lists them too.
    pub allow_cidrs: BTreeSet<String>,
    /// What it may get.
    pub ceiling: Label,
    /// What its output carries at least.
    pub output_label: Label,
    /// Its declared region.
    pub region: Option<String>,
    /// How much a callback's body is worth.
    pub callback_trust: CallbackTrust,
    /// May the callback's token travel in the query?
    pub token_in_query: bool,
}

/// The part of an entry that a change doesn't unsign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// What a hop costs.
    pub price: Price,
    /// From the first lease to giving up; the platform's default if none.
    pub deadline: Option<Span>,
    /// Attempts out at once.
    pub max_in_flight: u32,
    /// Is push asked for?
    pub push: PushChoice,
    /// Does our context id go along?
    pub context: ContextChoice,
    /// Does the agent recognise a repeated message?
    pub dedup: Dedup,
}

/// The life of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// Written, not signed: nothing leaves.
    PendingReview,
    /// Signed.
    Active,
    /// No new sends; open hops are still looked at.
    Disabled,
    /// No contact at all, for good.
    Revoked,
}

/// One version of a registry entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentEntry {
    /// Its key.
    pub key: AgentKey,
    /// Counts from 1.
    pub version: u32,
    /// Where it stands.
    pub status: AgentStatus,
    /// `scheme://host[:port]` of its URL.
    pub origin: String,
    /// What a person signs.
    pub posture: Posture,
    /// What they don't.
    pub terms: Terms,
    /// Who wrote this posture.
    pub written_by: KeyId,
    /// Who signed it.
    pub signed_by: Vec<KeyId>,
    /// Is the kill switch of this agent thrown?
    pub halted: bool,
}

impl AgentEntry {
    /// What a signature covers.
    #[must_use]
    pub fn posture_digest(&self) -> Sha256Digest {
        Sha256Digest::of(&canonical(
            &json!({ "key": self.key, "origin": self.origin, "posture": self.posture }),
        ))
    }
}

/// A switch of egress, per platform and per org.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressMode {
    /// Nothing leaves, nothing is looked at.
    Off,
    /// Kill switch: nothing leaves; callbacks are stored.
    Halt,
    /// What began before goes on; nothing new.
    Drain,
    /// On.
    On,
}

/// A role that workers play.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleEntry {
    /// Its name.
    pub name: RoleName,
    /// What its workers may see; also the ceiling of what reaches it.
    pub clearance: Label,
    /// Where it may delegate. Empty: nowhere.
    pub may: BTreeSet<Endpoint>,
    /// Teams it belongs to.
    pub teams: BTreeSet<TeamName>,
}

/// Bounds and defaults that decisions need (configuration).
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Payload limits.
    pub payload: Limits,
    /// A continuation's bytes at most.
    pub continuation_bytes: usize,
    /// Delegations nested at most.
    pub depth: u32,
    /// Hops of one task at most.
    pub hops: u32,
    /// A worker's lease.
    pub lease: Span,
    /// Deliveries of one envelope before it is a dead letter.
    pub max_deliveries: u32,
    /// A hop's deadline where nothing says otherwise, from its first lease.
    pub hop_deadline: Span,
    /// One attempt's lease, and the longest exchange.
    pub send_timeout: Span,
    /// Attempts of one turn.
    pub send_attempts: u32,
    /// First pause between attempts.
    pub retry_first: Span,
    /// Longest pause between attempts.
    pub retry_max: Span,
    /// How long an unknown send waits for a sign.
    pub unknown_grace: Span,
    /// First look after a send.
    pub poll_first: Span,
    /// Longest pause between looks.
    pub poll_max: Span,
    /// Looks in a row that must say "not found" before a task counts as lost.
    pub lost_looks: u32,
    /// How long an approval stays open.
    pub approval_ttl: Span,
    /// How long past the deadline a callback's token still verifies.
    pub callback_grace: Span,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            payload: Limits::default(),
            continuation_bytes: 262_144,
            depth: 8,
            hops: 100,
            lease: Span::of_secs(60),
            max_deliveries: 5,
            hop_deadline: Span::of_secs(86_400),
            send_timeout: Span::of_secs(30),
            send_attempts: 5,
            retry_first: Span::of_secs(1),
            retry_max: Span::of_secs(300),
            unknown_grace: Span::of_secs(900),
            poll_first: Span::of_secs(1),
            poll_max: Span::of_secs(300),
            lost_looks: 3,
            approval_ttl: Span::of_secs(86_400),
            callback_grace: Span::of_secs(3_600),
        }
    }
}

/// What an org's decisions are made against; replaced whole when any of it changes.
#[derive(Clone, Debug)]
pub struct Registry {
    /// The tenant.
    pub org: OrgName,
    /// Counts every change of entries, roles, switches and policy; a lease of an attempt expects it.
    pub version: u64,
    /// The org's levels.
    pub levels: Levels,
    /// What content carries that says nothing.
    pub default_label: Label,
    /// The platform's switch, already capped by configuration.
    pub platform_mode: EgressMode,
    /// The org's switch.
    pub org_mode: EgressMode,
    /// All versions of all entries, by key and version.
    pub agents: BTreeMap<AgentKey, BTreeMap<u32, Arc<AgentEntry>>>,
    /// The roles that were set.
    pub roles: BTreeMap<RoleName, RoleEntry>,
    /// Limits on spending.
    pub budgets: BTreeMap<Scope, Budget>,
    /// Agents that have answered before.
    pub met: BTreeSet<AgentKey>,
    /// The org's policy, if one was pushed.
    pub policy: Option<Arc<PolicyRow>>,
    /// Bounds and defaults.
    pub bounds: Arc<Bounds>,
}

/// What configuration says of an org; a store is opened with it.
#[derive(Clone, Debug)]
pub struct OrgDefaults {
    /// The org's levels.
    pub levels: Levels,
    /// What content carries that says nothing.
    pub default_label: Label,
    /// The upper bound that configuration sets on every switch of egress.
    pub egress_cap: EgressMode,
    /// Bounds and defaults.
    pub bounds: Arc<Bounds>,
}

impl Registry {
    /// The current version of an entry.
    #[must_use]
    pub fn agent(&self, key: &AgentKey) -> Option<&Arc<AgentEntry>> {
        self.agents.get(key)?.values().next_back()
    }

    /// One version of an entry.
    #[must_use]
    pub fn agent_at(&self, key: &AgentKey, version: u32) -> Option<&Arc<AgentEntry>> {
        self.agents.get(key)?.get(&version)
    }

    /// A role; one that was never set has the default label as clearance and may delegate nowhere.
    #[must_use]
    pub fn role(&self, name: &RoleName) -> RoleEntry {
        self.roles.get(name).cloned().unwrap_or_else(|| RoleEntry {
            name: name.clone(),
            clearance: self.default_label.clone(),
            may: BTreeSet::new(),
            teams: BTreeSet::new(),
        })
    }

    /// The most that any internal receiver of that name may get: a team's is the meet of its roles'.
    #[must_use]
    pub fn internal_ceiling(&self, to: &Endpoint) -> Option<Label> {
        match to {
            Endpoint::Role(name) => Some(self.role(name).clearance),
            Endpoint::Team(team) => Some(
                self.roles
                    .values()
                    .filter(|r| r.teams.contains(team))
                    .map(|r| r.clearance.clone())
                    .reduce(|a, b| a.meet(&b))
                    .unwrap_or_else(|| self.default_label.clone()),
            ),
            Endpoint::Agent(_) => None,
        }
    }

    /// The lower of the two switches. `Halt` counts as lower than `Drain`, `Off` as lowest.
    #[must_use]
    pub fn mode(&self) -> EgressMode {
        self.platform_mode.min(self.org_mode)
    }
}
