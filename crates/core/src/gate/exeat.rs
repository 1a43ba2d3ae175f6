//! Permits: the exeat of one attempt, the look of one contact, the permit of one cancel.
//!
//! Promise: none of them exists before the commit that allows it. Each is built here and nowhere else,
//! from proof that only a store hands out ([`AttemptLease`], [`Claim`]), and each is consumed by the
//! transport. A process that slept past `not_after` sends nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallbackId, ContextId, HopId, MessageId, OrgName};
use crate::registry::AgentEntry;
use crate::time::{Monotonic, Timestamp};

/// One interface of a foreign agent, as its card lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Where.
    pub url: String,
    /// `JSONRPC`, ….
    pub binding: String,
    /// As the card says: `1.0`, `0.3`, ….
    pub version: String,
    /// Echoed in each request where the card names one. Not our org.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// What the decision bound the destination to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// No card was seen before: the registered origin alone.
    Origin(String),
    /// This interface and no other.
    Interface(Interface),
}

/// Where the agent shall push to. The token is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PushTarget {
    /// Our callback door for this attempt.
    pub url: String,
    /// The token for it.
    pub token: String,
}

impl PushTarget {
    /// With the token in the URL as well, for agents that send no credential of their own with a push. The URL is then a
    /// secret too.
    #[must_use]
    pub fn in_query(self) -> Self {
        Self { url: format!("{}?t={}", self.url, self.token), ..self }
    }
}

impl std::fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PushTarget")
    }
}

/// Which attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The tenant.
    pub org: OrgName,
    /// The hop.
    pub hop: HopId,
    /// The turn, from 1.
    pub turn: u32,
    /// The attempt, from 1 over all turns; fences the row.
    pub n: u32,
    /// Names it at the callback door.
    pub callback: CallbackId,
}

/// Proof that an attempt's lease is durable. Not `Clone`; a store makes it when the commit holds.
#[derive(Debug)]
#[must_use = "a lease that is dropped is an attempt whose outcome nobody will know"]
pub struct AttemptLease {
    id: AttemptId,
}

impl AttemptLease {
    /// The receipt of a durable lease. Only a store may call this, after its commit.
    pub const fn receipted(id: AttemptId) -> Self {
        Self { id }
    }
    /// Which attempt.
    #[must_use]
    pub const fn id(&self) -> &AttemptId {
        &self.id
    }
}

/// Proof that a due row is claimed by us. Not `Clone`; a store makes it when the claim holds.
#[derive(Debug)]
#[must_use = "a claim that is dropped holds its row back until it runs out"]
pub struct Claim {
    org: OrgName,
    fence: u64,
}

impl Claim {
    /// The receipt of a claim. Only a store may call this.
    pub const fn receipted(org: OrgName, fence: u64) -> Self {
        Self { org, fence }
    }
    /// The tenant.
    #[must_use]
    pub const fn org(&self) -> &OrgName {
        &self.org
    }
    /// Rises with each claim.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.fence
    }
}

/// What is to be sent: a pure function of what was approved, our ids and the registry entry.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Which attempt.
    pub attempt: AttemptId,
    /// The entry as it stands now; its version was expected by the lease's commit.
    pub agent: Arc<AgentEntry>,
    /// What the destination is bound to.
    pub bound: Bound,
    /// The payload bytes, exactly as judged and, if need be, approved.
    pub payload: Arc<[u8]>,
    /// Stable over all attempts of the turn.
    pub message_id: MessageId,
    /// Our conversation, sent where the interface can list by it and the entry allows it.
    pub context_id: Option<ContextId>,
    /// On a later turn: the agent's own ids, always both.
    pub foreign: Option<ForeignIds>,
    /// The skill that was judged; checked against the card, never sent.
    pub skill: Option<String>,
    /// Where to push to, used where the card declares push.
    pub push: Option<PushTarget>,
}

/// The agent's ids of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignIds {
    /// Its task.
    pub task: String,
    /// Its conversation.
    pub context: Option<String>,
}

/// The proof that this attempt was cleared: consumed by sending, once, before it runs out.
///
/// Private fields, not `Clone`, no public constructor but [`pass`]:
///
/// ```compile_fail,E0451
/// # use exeat_core::gate::exeat::{Exeat, Parcel};
/// # use exeat_core::time::Monotonic;
/// fn forge(parcel: Parcel) -> Exeat {
///     Exeat { parcel, not_after: Monotonic(u64::MAX) }
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use exeat_core::gate::exeat::Exeat;
/// fn twice(exeat: Exeat) -> (Exeat, Exeat) {
///     (exeat.clone(), exeat)
/// }
/// ```
#[derive(Debug)]
#[must_use = "an exeat that is dropped leaves a lease behind for an attempt that never left"]
pub struct Exeat {
    parcel: Parcel,
    not_after: Monotonic,
}

impl Exeat {
    /// What to send.
    #[must_use]
    pub const fn parcel(&self) -> &Parcel {
        &self.parcel
    }
    /// Checked before the first request byte; also caps the exchange.
    #[must_use]
    pub const fn not_after(&self) -> Monotonic {
        self.not_after
    }
}

/// The parcel belongs to another attempt than the lease.
#[derive(Debug, thiserror::Error)]
#[error("the lease is of another attempt than the parcel")]
pub struct OtherAttempt;

/// Mints the exeat of one attempt from the receipt of its lease: the only function that does.
///
/// # Errors
/// If the parcel isn't the one that this lease cleared.
pub fn pass(lease: AttemptLease, parcel: Parcel, not_after: Monotonic) -> Result<Exeat, OtherAttempt> {
    if lease.id == parcel.attempt { Ok(Exeat { parcel, not_after }) } else { Err(OtherAttempt) }
}

/// What a look asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookFor {
    /// The state of this foreign task.
    Task(String),
    /// The tasks of our conversation.
    Context(ContextId),
}

/// Where a look goes: the pinned entry, and the interface of the attempt; where no attempt told of one, as after a
/// crash, the one that the card offers at the origin that the decision was bound to.
#[derive(Clone, Debug)]
pub struct Address {
    /// The hop it is for.
    pub hop: HopId,
    /// The entry that the hop pins.
    pub agent: Arc<AgentEntry>,
    /// The interface, or where to find one.
    pub at: Bound,
    /// The door of the last attempt, and until when its token holds.
    pub door: Option<(CallbackId, Timestamp)>,
}

/// A contact that carries no content out, under the edge that allowed it.
#[derive(Debug)]
#[must_use = "a look that isn't taken leaves its row claimed"]
pub struct Look {
    claim: Claim,
    address: Address,
    ask: LookFor,
    not_after: Monotonic,
    told: Vec<PushTarget>,
}

impl Look {
    /// The tenant.
    #[must_use]
    pub const fn org(&self) -> &OrgName {
        &self.claim.org
    }
    /// Where.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
    /// What for.
    #[must_use]
    pub const fn ask(&self) -> &LookFor {
        &self.ask
    }
    /// Until when.
    #[must_use]
    pub const fn not_after(&self) -> Monotonic {
        self.not_after
    }
    /// Where the agent was told to push, with every token that it may have and show.
    #[must_use]
    pub fn told(&self) -> &[PushTarget] {
        &self.told
    }
}

/// Mints a look from the receipt of its claim. `told`: what the agent was told of our door, so that it comes back to
/// nobody.
pub const fn look(
    claim: Claim,
    address: Address,
    ask: LookFor,
    not_after: Monotonic,
    told: Vec<PushTarget>,
) -> Look {
    Look { claim, address, ask, not_after, told }
}

/// The permit to ask a foreign agent to stop one task of ours, minted from a claimed cancel intent.
#[derive(Debug)]
#[must_use = "a cancel permit that isn't used leaves its intent claimed"]
pub struct CancelPermit {
    claim: Claim,
    address: Address,
    task: String,
    not_after: Monotonic,
}

impl CancelPermit {
    /// The tenant.
    #[must_use]
    pub const fn org(&self) -> &OrgName {
        &self.claim.org
    }
    /// Where.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
    /// The foreign task.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.task
    }
    /// Until when.
    #[must_use]
    pub const fn not_after(&self) -> Monotonic {
        self.not_after
    }
}

/// Mints a cancel permit from the receipt of its intent's claim.
pub const fn cancel(claim: Claim, address: Address, task: String, not_after: Monotonic) -> CancelPermit {
    CancelPermit { claim, address, task, not_after }
}

/// Whether a probe shows the entry's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// The posture is signed.
    Credential,
    /// It isn't.
    Nothing,
}

/// The permit to look at an agent for an operator, minted from the receipt of the act's record.
#[derive(Debug)]
#[must_use = "a probe that isn't made leaves a record of an act that nobody did"]
pub struct ProbePermit {
    claim: Claim,
    agent: Arc<AgentEntry>,
    carry: Carry,
    not_after: Monotonic,
}

impl ProbePermit {
    /// The tenant.
    #[must_use]
    pub const fn org(&self) -> &OrgName {
        &self.claim.org
    }
    /// Whom.
    #[must_use]
    pub const fn agent(&self) -> &Arc<AgentEntry> {
        &self.agent
    }
    /// With or without the credential.
    #[must_use]
    pub const fn carry(&self) -> Carry {
        self.carry
    }
    /// Until when.
    #[must_use]
    pub const fn not_after(&self) -> Monotonic {
        self.not_after
    }
}

/// Mints the permit of a probe from the receipt of its record.
pub const fn probe(claim: Claim, agent: Arc<AgentEntry>, carry: Carry, not_after: Monotonic) -> ProbePermit {
    ProbePermit { claim, agent, carry, not_after }
}
