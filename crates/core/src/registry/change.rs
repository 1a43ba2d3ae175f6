//! What governs, changed: entries, roles, switches, policy, budgets, API keys, workflows.
//!
//! Pure decisions, each one change set with its record. Promises: whatever hops are judged by raises the
//! registry's version in the same commit, so that no attempt is leased on what stood before; a person's
//! reason lies beside the ledger, which holds its salted digest; where two persons are wanted, the second is
//! another key, and neither has made the other. Never: edits what an entry says (a change is the next version).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::change::{ChangeSet, Key, Row, Write};
use crate::gate::verdict::{Action, AgentFacts, Because, Entity, Facts, Governor, Opinion, Question};
use crate::id::{ChangeId, Ids, KeyId, Malformed};
use crate::label::{Label, Levels};
use crate::ledger::data::{ChangeData, Condition, Governs};
use crate::ledger::{Actor, Code, Data, Draft, OutsideId, SaltedDigest};
use crate::payload::{Sha256Digest, canonical};
use crate::principal::ApiKey;
use crate::registry::{AgentEntry, Registry};
use crate::time::{Span, Timestamp};

pub mod discover;
pub mod entry;
pub mod grant;
pub mod rotate;
pub mod rule;

#[cfg(test)]
mod tests;

/// How long a first person's word waits for the second.
pub const ASKED_FOR: Span = Span::of_secs(86_400);
/// A person's reason, in characters.
const REASON: usize = 1_000;

/// Does one person count as two? Never for approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operators {
    /// Yes: it was configured so, and is recorded.
    Single,
    /// No.
    Several,
}

/// Who changes what governs, and on what ground.
pub struct Acting<'a> {
    /// The store's time.
    pub now: Timestamp,
    /// What governs now.
    pub registry: &'a Registry,
    /// Who.
    pub by: &'a ApiKey,
    /// Does one count as two?
    pub operators: Operators,
    /// The policies, which are asked about entries.
    pub governor: &'a dyn Governor,
    /// New ids.
    pub ids: Ids,
}

/// What became of a wish.
#[derive(Debug)]
pub enum Change<T> {
    /// It is so already.
    Same(T),
    /// It is to be made so.
    Made(T, Box<ChangeSet>),
    /// A first person has asked; once that is durable, a second must ask for the same.
    Asked(Box<ChangeSet>),
}

/// Why nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// There is one of that name.
    #[error("there is one of that name already")]
    Exists,
    /// There is none of that name.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// It is at another version than the one that was seen.
    #[error("it is at version {now}")]
    Moved {
        /// The version now.
        now: u32,
    },
    /// The posture isn't the one that was seen.
    #[error("the posture isn't the one that you saw; it is at version {now}")]
    PostureChanged {
        /// The version now.
        now: u32,
    },
    /// A second person must do it.
    #[error("{0}")]
    FourEyes(&'static str),
    /// The org's or the platform's policy says no.
    #[error("policy doesn't allow it: {}", .0.join(", "))]
    Policy(Vec<String>),
    /// A key would be more than the one that makes it may give.
    #[error("only a key with the scope platform gives that scope")]
    ScopeMissing,
    /// A key would see more than the one that makes it.
    #[error("a key's clearance is at most that of the key that makes it, {0}")]
    ClearanceTooLow(Label),
    /// A label that isn't one.
    #[error("{why}")]
    BadLabel {
        /// JSON pointer to it.
        pointer: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Something that can't be, and where.
    #[error("{why}")]
    Invalid {
        /// JSON pointer to it; empty: the whole.
        pointer: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl NotChanged {
    fn invalid(pointer: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { pointer, why: why.into() }
    }
}

/// A label as it is written at the doors: `internal+eu`, or `{"level":"internal","tags":["eu"]}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WrittenLabel {
    /// As text.
    Text(String),
    /// As an object.
    Object(LabelObject),
}

/// The object form of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelObject {
    /// The level's name.
    pub level: String,
    /// The tags.
    #[serde(default)]
    pub tags: BTreeSet<String>,
}

impl WrittenLabel {
    /// As one of the org's.
    ///
    /// # Errors
    /// If it isn't.
    pub fn read(&self, levels: &Levels) -> Result<Label, Malformed> {
        match self {
            Self::Text(text) => levels.parse(text),
            Self::Object(o) => levels.label(&o.level, o.tags.iter().cloned()),
        }
    }

    fn at(&self, pointer: &'static str, levels: &Levels) -> Result<Label, NotChanged> {
        self.read(levels).map_err(|e| NotChanged::BadLabel { pointer, why: e.to_string() })
    }
}

/// Are these two persons: two keys, neither of which has made the other?
#[must_use]
pub fn are_two(one: &ApiKey, other: &ApiKey) -> bool {
    one.id != other.id
        && one.minted_by.as_ref() != Some(&other.id)
        && other.minted_by.as_ref() != Some(&one.id)
}

/// What a first person has asked for, in the setting [`asked_name`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedBefore {
    /// Who.
    pub by: KeyId,
    /// For what.
    pub digest: Sha256Digest,
    /// When.
    pub at: Timestamp,
}

/// What lies in the store about an earlier wish, with the version of its row, and the key that had it.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// The setting.
    pub asked: Option<AskedBefore>,
    /// Its version; 0: none.
    pub version: u64,
    /// The key that asked, if it still is there.
    pub key: Option<ApiKey>,
}

/// The setting that holds a first person's word.
#[must_use]
pub fn asked_name(what: Governs) -> String {
    match what {
        Governs::Policy => "asked_policy".to_owned(),
        Governs::Egress => "asked_egress".to_owned(),
        other => format!("asked_{other:?}").to_ascii_lowercase(),
    }
}

/// Is it a second person's word?
enum Second {
    /// Yes.
    Said,
    /// One counts as two.
    Waived,
    /// It is the first one's.
    Wanted,
}

impl Acting<'_> {
    fn begin(&mut self) -> ChangeSet {
        ChangeSet::new(ChangeId::draw(&mut self.ids), self.registry.org.clone(), self.now)
    }

    /// Raises the registry's version, so that whatever was decided on the old one is decided anew.
    fn govern(&self, set: &mut ChangeSet) {
        set.writes.push(Write { expected: self.registry.version, row: Row::Registry });
    }

    fn record(&self, set: &mut ChangeSet, data: ChangeData) {
        let actor = Actor::key(&self.by.id);
        set.drafts.push(Draft::apart(set.at, set.id, actor, Data::Change(data)));
    }

    fn note(
        &mut self,
        set: &mut ChangeSet,
        reason: Option<&str>,
    ) -> Result<Option<SaltedDigest>, NotChanged> {
        let Some(text) = reason.map(str::trim).filter(|t| !t.is_empty()) else { return Ok(None) };
        if text.chars().count() > REASON {
            return Err(NotChanged::invalid("/reason", format!("a reason has at most {REASON} characters")));
        }
        let salt = self.ids.bytes::<32>();
        let digest = SaltedDigest::of(&salt, text.as_bytes());
        let row = Row::Note(digest.as_str().to_owned(), salt, text.to_owned());
        set.writes.push(Write { expected: 0, row });
        Ok(Some(digest))
    }

    /// May the caller do that to this entry?
    fn ask_policy(&self, action: Action, agent: &AgentEntry) -> Result<(), NotChanged> {
        let judgement = self.governor.judge(&Question {
            org: self.registry.org.clone(),
            principal: Entity::Key(self.by.facts()),
            action,
            resource: Entity::Agent(agent_facts(agent)),
            facts: Facts::Nothing {},
        });
        let named = |because: Vec<Because>| because.into_iter().map(|b| b.id).collect::<Vec<_>>();
        match judgement.opinion {
            Opinion::Allow => Ok(()),
            Opinion::Deny(why) => {
                let ids = named(judgement.because);
                let word = json!(why).as_str().unwrap_or_default().to_owned();
                Err(NotChanged::Policy(if ids.is_empty() { vec![word] } else { ids }))
            }
            // Nobody can be asked about a registry act: its second person is the signer.
            Opinion::RequireApproval(_) => Err(NotChanged::Policy(named(judgement.because))),
        }
    }

    fn second(&self, earlier: &Earlier, digest: Sha256Digest) -> Second {
        let same =
            earlier.asked.as_ref().is_some_and(|a| a.digest == digest && self.now.since(a.at) < ASKED_FOR);
        let other = earlier.key.as_ref().is_some_and(|k| are_two(k, self.by) && k.is_live(self.now));
        match self.operators {
            _ if same && other => Second::Said,
            Operators::Single => Second::Waived,
            Operators::Several => Second::Wanted,
        }
    }

    /// Notes a first person's word.
    fn asked<T>(
        &mut self,
        mut set: ChangeSet,
        earlier: &Earlier,
        mut data: ChangeData,
        digest: Sha256Digest,
    ) -> Change<T> {
        let word = AskedBefore { by: self.by.id.clone(), digest, at: self.now };
        let row = Row::Setting(asked_name(data.what), json!(word));
        set.writes.push(Write { expected: earlier.version, row });
        data.after = Some(Condition::Word(Code::of("proposed")));
        data.digest = Some(digest);
        self.record(&mut set, data);
        Change::Asked(Box::new(set))
    }

    /// Forgets a first person's word.
    fn settle(&self, set: &mut ChangeSet, what: Governs, earlier: &Earlier) {
        if earlier.version > 0 {
            let row = Row::Setting(asked_name(what), Value::Null);
            set.writes.push(Write { expected: earlier.version, row });
        }
    }
}

fn changed(what: Governs, name: &str) -> ChangeData {
    ChangeData {
        what,
        name: OutsideId::of(name),
        version: None,
        before: None,
        after: None,
        digest: None,
        reason: None,
        four_eyes: false,
    }
}

fn digest_of(value: &impl Serialize) -> Sha256Digest {
    Sha256Digest::of(&canonical(&json!(value)))
}

fn condition_of(value: &impl Serialize) -> Condition {
    Condition::Digest(digest_of(value))
}

/// An entry as policy sees it.
#[must_use]
pub fn agent_facts(agent: &AgentEntry) -> AgentFacts {
    AgentFacts {
        key: agent.key.clone(),
        origin: agent.origin.clone(),
        provider: agent.posture.provider.as_str().to_owned(),
        region: agent.posture.region.clone(),
        ceiling: agent.posture.ceiling.clone(),
    }
}

/// The rows whose versions a change of an entry's standing needs.
#[must_use]
pub fn row_of(agent: &AgentEntry) -> Key {
    Key::Agent(agent.key.clone(), agent.version)
}
