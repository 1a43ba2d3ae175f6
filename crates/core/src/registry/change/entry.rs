//! Entries of foreign agents: written, signed, switched off and on.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Acting, Change, NotChanged, WrittenLabel, are_two, changed, condition_of};
use crate::change::{ChangeSet, Row, Write};
use crate::gate::verdict::Action;
use crate::id::AgentKey;
use crate::label::Levels;
use crate::ledger::Code;
use crate::ledger::data::{Condition, Governs};
use crate::payload::Sha256Digest;
use crate::principal::ApiKey;
use crate::registry::{
    AgentEntry, AgentStatus, CallbackTrust, ContextChoice, Credential, Dedup, Posture, Price, ProtocolPin,
    Provider, PushChoice, Terms,
};
use crate::time::Span;

const MAX_LISTED: usize = 100;
const MAX_SKILL: usize = 256;
const MAX_IN_FLIGHT: u32 = 10_000;

/// What may be written of an entry. A member that isn't said has its default, whatever it was before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// A base or a whole card URL.
    pub url: String,
    /// Transport.
    #[serde(default = "a2a")]
    pub provider: Provider,
    /// Protocol generation.
    #[serde(default = "auto_protocol")]
    pub protocol: ProtocolPin,
    /// Skills that may be asked for; empty: any.
    #[serde(default)]
    pub skills: Vec<String>,
    /// How we authenticate.
    #[serde(default)]
    pub credential: Option<Credential>,
    /// Origins beside the registered one that a card may name.
    #[serde(default)]
    pub allow_origins: Vec<String>,
    /// Is plain http allowed?
    #[serde(default)]
    pub plaintext: bool,
    /// Address ranges, beyond globally routable ones.
    #[serde(default)]
    pub allow_cidrs: Vec<String>,
    /// What it may get.
    pub ceiling: WrittenLabel,
    /// What its output carries at least; the org's default if it isn't said.
    #[serde(default)]
    pub output_label: Option<WrittenLabel>,
    /// Its declared region.
    #[serde(default)]
    pub region: Option<String>,
    /// Of what is sent: off.
    #[serde(default)]
    pub redaction: Redaction,
    /// How much a callback's body is worth.
    #[serde(default = "confirm")]
    pub callback_trust: CallbackTrust,
    /// May the callback's token travel in the query?
    #[serde(default)]
    pub token_in_query: bool,
    /// Does our context id go along?
    #[serde(default = "auto_context")]
    pub context: ContextChoice,
    /// Does the agent recognise a repeated message?
    #[serde(default = "no_dedup")]
    pub dedup: Dedup,
    /// Is push asked for?
    #[serde(default = "auto_push")]
    pub push: PushChoice,
    /// What a hop costs.
    #[serde(default)]
    pub price: Price,
    /// From the first lease to giving up.
    #[serde(default)]
    pub deadline: Option<Span>,
    /// Attempts out at once.
    #[serde(default = "sixteen")]
    pub max_in_flight: u32,
}

/// Redaction of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redaction {
    /// None.
    #[default]
    Off,
}

const fn a2a() -> Provider {
    Provider::A2a
}
const fn auto_protocol() -> ProtocolPin {
    ProtocolPin::Auto
}
const fn confirm() -> CallbackTrust {
    CallbackTrust::Confirm
}
const fn auto_context() -> ContextChoice {
    ContextChoice::Auto
}
const fn no_dedup() -> Dedup {
    Dedup::None
}
const fn auto_push() -> PushChoice {
    PushChoice::Auto
}
const fn sixteen() -> u32 {
    16
}

fn listed(pointer: &'static str, items: &[String], most: usize) -> Result<BTreeSet<String>, NotChanged> {
    if items.len() > MAX_LISTED {
        return Err(NotChanged::invalid(pointer, format!("at most {MAX_LISTED} can be listed")));
    }
    let fits = |s: &String| (1..=most).contains(&s.chars().count()) && !s.chars().any(char::is_control);
    if items.iter().all(fits) {
        Ok(items.iter().cloned().collect())
    } else {
        Err(NotChanged::invalid(pointer, format!("each must be 1 to {most} characters without controls")))
    }
}

impl Written {
    fn parts(&self, levels: &Levels, acting: &Acting<'_>) -> Result<(Posture, Terms), NotChanged> {
        let bad_region = |r: &String| {
            !(1..=64).contains(&r.len())
                || !r.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if self.region.as_ref().is_some_and(bad_region) {
            return Err(NotChanged::invalid("/region", "a region must be 1 to 64 of [a-z0-9-]"));
        }
        if !(1..=MAX_IN_FLIGHT).contains(&self.max_in_flight) {
            return Err(NotChanged::invalid("/max_in_flight", format!("it must be 1 to {MAX_IN_FLIGHT}")));
        }
        if self.deadline == Some(Span::ZERO) {
            return Err(NotChanged::invalid("/deadline", "a deadline can't be no time at all"));
        }
        if self.price.cap_microusd.is_some_and(|cap| cap < self.price.estimate_microusd) {
            let why = "a turn can't be capped below what is reserved for it, estimate_microusd";
            return Err(NotChanged::invalid("/price/cap_microusd", why));
        }
        if self.token_in_query && self.callback_trust == CallbackTrust::Body {
            let why = "a body never counts on a token that stands in a URL, where proxies log it; use callback_trust confirm";
            return Err(NotChanged::invalid("/token_in_query", why));
        }
        let ceiling = self.ceiling.at("/ceiling", levels)?;
        let output_label = match &self.output_label {
            Some(label) => label.at("/output_label", levels)?,
            None => acting.registry.default_label.clone(),
        };
        let posture = Posture {
            url: self.url.clone(),
            provider: self.provider,
            protocol: self.protocol,
            skills: listed("/skills", &self.skills, MAX_SKILL)?,
            credential: self.credential.clone(),
            allow_origins: listed("/allow_origins", &self.allow_origins, MAX_SKILL)?,
            plaintext: self.plaintext,
            allow_cidrs: listed("/allow_cidrs", &self.allow_cidrs, MAX_SKILL)?,
            ceiling,
            output_label,
            region: self.region.clone(),
            callback_trust: self.callback_trust,
            token_in_query: self.token_in_query,
        };
        let terms = Terms {
            price: self.price.clone(),
            deadline: self.deadline,
            max_in_flight: self.max_in_flight,
            push: self.push,
            context: self.context,
            dedup: self.dedup,
        };
        Ok((posture, terms))
    }
}

/// What the writer has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing: it is to be new.
    New,
    /// This version.
    Version(u32),
}

/// Writes an entry: a new one, or the next version of one. Another posture must be signed anew; other terms
/// leave the signature. `origin` is that of the URL.
///
/// # Errors
/// Why not.
pub fn put(
    mut acting: Acting<'_>,
    key: &AgentKey,
    written: &Written,
    origin: String,
    seen: Seen,
) -> Result<Change<AgentEntry>, NotChanged> {
    let before = acting.registry.agent(key).cloned();
    let (posture, terms) = written.parts(&acting.registry.levels, &acting)?;
    let next = match (&before, seen) {
        (Some(_), Seen::New) => return Err(NotChanged::Exists),
        (None, Seen::Version(_)) => return Err(NotChanged::NotFound("agent")),
        (None, Seen::New) => AgentEntry {
            key: key.clone(),
            version: 1,
            status: AgentStatus::PendingReview,
            origin,
            posture,
            terms,
            written_by: acting.by.id.clone(),
            signed_by: Vec::new(),
            halted: false,
        },
        (Some(b), Seen::Version(v)) if b.version != v => return Err(NotChanged::Moved { now: b.version }),
        (Some(b), _) if b.status == AgentStatus::Revoked => {
            return Err(NotChanged::invalid("", "the entry is revoked, for good; register another key"));
        }
        (Some(b), _) if b.posture == posture && b.terms == terms => {
            return Ok(Change::Same(b.as_ref().clone()));
        }
        (Some(b), _) => {
            let kept = b.posture == posture && b.origin == origin;
            AgentEntry {
                key: key.clone(),
                version: b.version + 1,
                status: if kept { b.status } else { AgentStatus::PendingReview },
                origin,
                posture,
                terms,
                written_by: if kept { b.written_by.clone() } else { acting.by.id.clone() },
                signed_by: if kept { b.signed_by.clone() } else { Vec::new() },
                halted: b.halted,
            }
        }
    };
    acting.ask_policy(Action::RegisterAgent, &next)?;
    let mut set = acting.begin();
    acting.govern(&mut set);
    set.writes.push(Write { expected: 0, row: Row::Agent(next.clone()) });
    let mut data = changed(Governs::Agent, key.as_str());
    data.version = Some(u64::from(next.version));
    data.before = before.as_deref().map(condition_of);
    data.after = Some(condition_of(&next));
    data.digest = Some(next.posture_digest());
    acting.record(&mut set, data);
    Ok(Change::Made(next, Box::new(set)))
}

/// What stands of an entry beside what it says: its row's version, and the key that wrote its posture.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The version of the row of the entry's current version.
    pub row: u64,
    /// Who wrote the posture, if that key still is there.
    pub writer: Option<ApiKey>,
}

fn current(acting: &Acting<'_>, key: &AgentKey) -> Result<AgentEntry, NotChanged> {
    acting.registry.agent(key).map(|a| a.as_ref().clone()).ok_or(NotChanged::NotFound("agent"))
}

/// Signs a posture as it was seen: the entry is active from now on.
///
/// # Errors
/// Why not; `PostureChanged` if it isn't what was seen, `FourEyes` if the signer wrote it, or one of the two
/// keys has made the other.
pub fn sign(
    mut acting: Acting<'_>,
    key: &AgentKey,
    version: u32,
    digest: Sha256Digest,
    standing: &Standing,
) -> Result<Change<AgentEntry>, NotChanged> {
    let before = current(&acting, key)?;
    if before.version != version || before.posture_digest() != digest {
        return Err(NotChanged::PostureChanged { now: before.version });
    }
    match before.status {
        AgentStatus::Active => return Ok(Change::Same(before)),
        AgentStatus::PendingReview => {}
        AgentStatus::Disabled => {
            return Err(NotChanged::invalid("", "the entry is disabled; enable it"));
        }
        AgentStatus::Revoked => {
            return Err(NotChanged::invalid("", "the entry is revoked, for good; register another key"));
        }
    }
    let two = standing.writer.as_ref().is_some_and(|w| are_two(w, acting.by));
    if !two && acting.operators == super::Operators::Several {
        return Err(NotChanged::FourEyes(
            "Another admin must sign: neither the key that wrote the posture, nor one that made it or was made by it.",
        ));
    }
    acting.ask_policy(Action::SignPosture, &before)?;
    let mut next = before.clone();
    next.status = AgentStatus::Active;
    next.signed_by = vec![acting.by.id.clone()];
    let set = stand(&mut acting, &before, &next, standing, None, two)?;
    Ok(Change::Made(next, Box::new(set)))
}

/// What an operator or admin may do to an entry's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// No new sends.
    Disable,
    /// Sends again.
    Enable,
    /// No contact any more, for good.
    Revoke,
    /// The kill switch.
    Halt,
    /// The kill switch back.
    Resume,
}

impl Act {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Disable, Self::Enable, Self::Revoke, Self::Halt, Self::Resume];

    /// As in the path of its door.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::Revoke => "revoke",
            Self::Halt => "halt",
            Self::Resume => "resume",
        }
    }
}

/// Changes an entry's standing. What it says stays.
///
/// # Errors
/// Why not.
pub fn act(
    mut acting: Acting<'_>,
    key: &AgentKey,
    act: Act,
    reason: Option<&str>,
    standing: &Standing,
) -> Result<Change<AgentEntry>, NotChanged> {
    let before = current(&acting, key)?;
    let mut next = before.clone();
    match (act, before.status) {
        (_, AgentStatus::Revoked) if act != Act::Revoke => {
            return Err(NotChanged::invalid("", "the entry is revoked, for good; register another key"));
        }
        (Act::Disable, _) => next.status = AgentStatus::Disabled,
        (Act::Enable, AgentStatus::Disabled) if before.signed_by.is_empty() => {
            next.status = AgentStatus::PendingReview;
        }
        (Act::Enable, AgentStatus::Disabled) => next.status = AgentStatus::Active,
        // It isn't disabled: nothing to enable.
        (Act::Enable, _) => {}
        (Act::Revoke, _) => next.status = AgentStatus::Revoked,
        (Act::Halt, _) => next.halted = true,
        (Act::Resume, _) => next.halted = false,
    }
    if next == before {
        return Ok(Change::Same(before));
    }
    let set = stand(&mut acting, &before, &next, standing, reason, false)?;
    Ok(Change::Made(next, Box::new(set)))
}

fn stand(
    acting: &mut Acting<'_>,
    before: &AgentEntry,
    next: &AgentEntry,
    standing: &Standing,
    reason: Option<&str>,
    four_eyes: bool,
) -> Result<ChangeSet, NotChanged> {
    let mut set = acting.begin();
    acting.govern(&mut set);
    set.writes.push(Write { expected: standing.row, row: Row::Agent(next.clone()) });
    let mut data = changed(Governs::Agent, next.key.as_str());
    data.version = Some(u64::from(next.version));
    data.before = Some(Condition::Word(word(before)));
    data.after = Some(Condition::Word(word(next)));
    data.digest = Some(next.posture_digest());
    data.reason = acting.note(&mut set, reason)?;
    data.four_eyes = four_eyes;
    acting.record(&mut set, data);
    Ok(set)
}

fn word(entry: &AgentEntry) -> Code {
    Code::of(match (entry.status, entry.halted) {
        (AgentStatus::Revoked, _) => "revoked",
        (_, true) => "halted",
        (status, false) => status_word(status),
    })
}

/// As the doors show it.
#[must_use]
pub const fn status_word(status: AgentStatus) -> &'static str {
    match status {
        AgentStatus::PendingReview => "pending_review",
        AgentStatus::Active => "active",
        AgentStatus::Disabled => "disabled",
        AgentStatus::Revoked => "revoked",
    }
}
