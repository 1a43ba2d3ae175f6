//! What each kind of record says: one struct per kind, with the member names that exports show.
//!
//! Where a member is called `reason`, `detail` or `why`: from our own vocabulary it is a [`Code`];
//! written by a person it is the [`SaltedDigest`] of the text, which lies beside with its salt. An absent
//! member is left out, never null.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::record::Dir;
use super::word::{Code, OutsideId, Party, SaltedDigest};
use crate::gate::verdict::{Decision, Verdict};
use crate::id::{ApprovalId, KeyId, MessageId};
use crate::label::{Label, Tag};
use crate::payload::Sha256Digest;
use crate::time::Timestamp;

/// How many roles or policies one record names; a policy set may hold more than a record can.
const NAMED_AT_MOST: usize = 64;

/// What a record says, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum Data {
    /// A delivery across the coordinator, allowed or denied; once per edge.
    Edge(EdgeData),
    /// A later judgement of the edge.
    Verdict(Judged),
    /// An approval was asked for, decided, or ended otherwise.
    Approval(ApprovalData),
    /// A send to a foreign agent, written with its outcome.
    Attempt(AttemptData),
    /// The edge's end; at most once.
    Outcome(OutcomeData),
    /// A movement of money.
    Cost(CostData),
    /// A result that came after its hop had ended.
    Late(NoteData),
    /// A callback, destination or probe that was refused.
    Refused(NoteData),
    /// A change of what governs.
    Change(ChangeData),
    /// An operator's act.
    Operator(OperatorData),
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// See [`Data::Edge`].
    Edge,
    /// See [`Data::Verdict`].
    Verdict,
    /// See [`Data::Approval`].
    Approval,
    /// See [`Data::Attempt`].
    Attempt,
    /// See [`Data::Outcome`].
    Outcome,
    /// See [`Data::Cost`].
    Cost,
    /// See [`Data::Late`].
    Late,
    /// See [`Data::Refused`].
    Refused,
    /// See [`Data::Change`].
    Change,
    /// See [`Data::Operator`].
    Operator,
}

impl Kind {
    /// The word in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Verdict => "verdict",
            Self::Approval => "approval",
            Self::Attempt => "attempt",
            Self::Outcome => "outcome",
            Self::Cost => "cost",
            Self::Late => "late",
            Self::Refused => "refused",
            Self::Change => "change",
            Self::Operator => "operator",
        }
    }

    /// Must a record of this kind point to its edge?
    #[must_use]
    pub const fn is_child(self) -> bool {
        matches!(self, Self::Verdict | Self::Approval | Self::Attempt | Self::Outcome | Self::Cost)
    }
}

impl Data {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Edge(_) => Kind::Edge,
            Self::Verdict(_) => Kind::Verdict,
            Self::Approval(_) => Kind::Approval,
            Self::Attempt(_) => Kind::Attempt,
            Self::Outcome(_) => Kind::Outcome,
            Self::Cost(_) => Kind::Cost,
            Self::Late(_) => Kind::Late,
            Self::Refused(_) => Kind::Refused,
            Self::Change(_) => Kind::Change,
            Self::Operator(_) => Kind::Operator,
        }
    }
}

/// What crosses, from whom to whom, and the verdict on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeData {
    /// Which way. [`Draft::edge`](super::Draft::edge) sets it from the edge's key.
    pub dir: Dir,
    /// Who hands it over.
    pub from: Party,
    /// Who gets it.
    pub to: Party,
    /// The registered origin of the foreign agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OutsideId>,
    /// The skill asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<OutsideId>,
    /// The registry entry's version that governed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_version: Option<u64>,
    /// Salted digest of the payload bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<SaltedDigest>,
    /// How many payload bytes.
    pub bytes: u64,
    /// What the content carries.
    pub label: RecordedLabel,
    /// Has foreign content flowed into it?
    pub tainted: bool,
    /// What it is estimated to cost.
    pub price_microusd: u64,
    /// The verdict; its members stand beside these.
    #[serde(flatten)]
    pub verdict: Judged,
}

/// A label as the doors show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedLabel {
    /// The level's name.
    pub level: String,
    /// The tags.
    pub tags: BTreeSet<Tag>,
}

impl From<&Label> for RecordedLabel {
    fn from(label: &Label) -> Self {
        Self { level: label.level().name().to_owned(), tags: label.tags().clone() }
    }
}

/// A policy that determined a verdict. Its sentence is found by its id in the policy version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRef {
    /// Its `@id`, or the hard rule's code.
    pub id: OutsideId,
}

/// A verdict as recorded: without the policies' sentences, which are free text, and with at most
/// 64 roles and 64 policies named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// What.
    pub decision: Decision,
    /// Approver roles still needed.
    pub roles: Vec<OutsideId>,
    /// The determining policies.
    pub policies: Vec<PolicyRef>,
    /// How many roles or policies more there were than are named here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<u64>,
    /// The version of the sets asked.
    pub policy_version: OutsideId,
    /// When it was judged.
    pub at: Timestamp,
}

impl From<&Verdict> for Judged {
    fn from(v: &Verdict) -> Self {
        let over =
            v.roles.len().saturating_sub(NAMED_AT_MOST) + v.policies.len().saturating_sub(NAMED_AT_MOST);
        Self {
            decision: v.decision,
            roles: v.roles.iter().take(NAMED_AT_MOST).map(|r| OutsideId::of(r)).collect(),
            policies: v
                .policies
                .iter()
                .take(NAMED_AT_MOST)
                .map(|p| PolicyRef { id: OutsideId::of(&p.id) })
                .collect(),
            unnamed: u64::try_from(over).ok().filter(|n| *n > 0),
            policy_version: OutsideId::of(&v.policy_version),
            at: v.at,
        }
    }
}

/// Where an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// Asked for.
    Pending,
    /// Given.
    Approved,
    /// Refused.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// Another one took its place.
    Superseded,
    /// Its hop ended.
    Canceled,
}

/// An approval's step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalData {
    /// Which.
    pub approval_id: ApprovalId,
    /// Where it stands now.
    pub status: ApprovalStatus,
    /// What is approved: the digest that the approver saw.
    pub digest: Sha256Digest,
    /// The approver roles it needs.
    pub roles: Vec<OutsideId>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<KeyId>,
    /// Salted digest of the approver's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SaltedDigest>,
}

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// With an answer.
    Answered,
    /// Before the first byte of the request.
    NotSent,
    /// The agent said no.
    Refused,
    /// Written, and no whole answer.
    Ambiguous,
}

/// One send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptData {
    /// Its number within the hop, from 1.
    pub n: u32,
    /// The id of our message, the same over all attempts of a turn.
    pub message_id: MessageId,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The protocol version spoken, e.g. `1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<OutsideId>,
    /// The binding spoken, e.g. `JSONRPC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<OutsideId>,
    /// The origin dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OutsideId>,
    /// Digest of the card that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_digest: Option<Sha256Digest>,
    /// Digest of the bytes on the wire, under the salt of the payload that they carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<SaltedDigest>,
    /// What went wrong, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Code>,
}

/// Did the work take effect outside?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing reached the receiver.
    None,
    /// Nobody knows.
    Possible,
    /// The receiver told us.
    Known,
}

/// How an edge ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeData {
    /// The status it ended with.
    pub status: Code,
    /// Why, if it ended badly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Code>,
    /// The foreign agent's id of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_task_id: Option<OutsideId>,
    /// Salted digest of what came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<SaltedDigest>,
    /// How many looks it took; they have no records of their own.
    pub looks: u64,
    /// Did it take effect?
    pub effects: Effects,
}

/// Which movement of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostEntry {
    /// Set aside before sending.
    Reserve,
    /// Spent.
    Settle,
    /// Given back.
    Release,
    /// Spent beyond what was set aside.
    Overrun,
}

/// Which figure was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostRule {
    /// Our estimate.
    Estimate,
    /// What the agent reported, within the cap.
    ReportedClamped,
    /// The time it took.
    Elapsed,
}

/// A movement of money, in micro-dollars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostData {
    /// Which movement.
    pub entry: CostEntry,
    /// How much.
    pub amount_microusd: u64,
    /// By which rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CostRule>,
    /// What we estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_microusd: Option<u64>,
    /// What the agent reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_microusd: Option<u64>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
}

/// Something that came and was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteData {
    /// What it was, e.g. `callback`.
    pub what: Code,
    /// Why it wasn't taken.
    pub why: Code,
    /// Salted digest of its bytes, where they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<SaltedDigest>,
}

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Governs {
    /// A registry entry.
    Agent,
    /// A policy set.
    Policy,
    /// The egress mode.
    Egress,
    /// A role.
    Role,
    /// An API key or a key of ours.
    Key,
    /// A budget.
    Budget,
    /// A workflow.
    Workflow,
    /// An org.
    Org,
    /// A setting.
    Setting,
}

/// What something was before or after a change: a word (`off`) or the digest of its canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Condition {
    /// The digest of its canonical form.
    Digest(Sha256Digest),
    /// A word of ours.
    Word(Code),
}

/// A change of what governs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeData {
    /// What sort of thing.
    pub what: Governs,
    /// Which one.
    pub name: OutsideId,
    /// The version that the change made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// What it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Condition>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Condition>,
    /// Digest of what the person saw when deciding, e.g. allow lists, regions and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256Digest>,
    /// Salted digest of the person's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SaltedDigest>,
    /// Did a second person take part?
    pub four_eyes: bool,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Ran a dead item anew.
    Retry,
    /// Took a kept result over.
    Adopt,
    /// Gave a dead item up.
    Discard,
    /// Said what had become of an unknown send.
    Resolve,
    /// Canceled a task.
    Cancel,
    /// Answered a question.
    Answer,
    /// Looked at an agent's card.
    Discover,
    /// Erased content.
    Erase,
}

/// An operator's act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorData {
    /// What.
    pub act: Act,
    /// On what: an id.
    pub target: OutsideId,
    /// Salted digest of the person's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SaltedDigest>,
}
