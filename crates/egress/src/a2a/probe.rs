//! Probing an agent for an operator: is it there, what does its card say, what would be used.
//!
//! A recorded act of its own: it takes the claim of its durable record by value, carries no content, changes
//! nothing that is kept, and shows a secret only where it is told to (an unsigned entry's is never shown).

use exeat_core::gate::exeat::{Claim, Interface};
use exeat_core::payload::Sha256Digest;
use exeat_core::registry::AgentEntry;
use exeat_core::time::{Monotonic, Span};
use exeat_wire::answer::TaskAnswer;
use exeat_wire::card::Card;
use exeat_wire::request::{self, TaskFrame};
use http::StatusCode;

use super::cards::NoCard;
use super::choose::Found;
use super::contact::{Contact, Got};
use super::{A2a, REQUEST_ID, recorded};
use crate::credential::Presented;
use crate::entry::entry_of;
use crate::target::Entry;

/// No task of any agent.
const NO_TASK: &str = "no-such-task";
/// Skills shown at most.
const MOST_SKILLS: usize = 100;

/// Whether the entry's credential is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// The posture is signed.
    Credential,
    /// It isn't.
    Nothing,
}

/// Whether the agent takes the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It answered a call that carried it.
    Ok,
    /// It answered 401 or 403.
    Refused,
    /// There is none, it wasn't to be shown, or the call brought no answer.
    NotTried,
}

/// What the card says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedCard {
    /// Where it lay.
    pub found_at: String,
    /// Digest of its bytes.
    pub digest: Sha256Digest,
    /// The agent's name for itself.
    pub name: String,
    /// Ids of its skills, at most a hundred.
    pub skills: Vec<String>,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Did anybody answer?
    pub reachable: bool,
    /// The card, if there is one.
    pub card: Option<ProbedCard>,
    /// The interface that a send would use, and why.
    pub would_use: Option<(Interface, String)>,
    /// Does it take the credential?
    pub auth: Auth,
    /// Does the card claim push? A yes is no proof.
    pub push_claimed: bool,
    /// From the first look-up to the card's last byte.
    pub latency: Span,
    /// What would stand in the way of a send, one sentence each.
    pub problems: Vec<String>,
}

impl A2a {
    /// Probes `agent`, over by `not_after`. The claim is the proof of the probe's durable record.
    pub async fn probe(
        &self,
        claim: Claim,
        agent: &AgentEntry,
        carry: Carry,
        not_after: Monotonic,
    ) -> Probed {
        let mut probed = Probed {
            reachable: false,
            card: None,
            would_use: None,
            auth: Auth::NotTried,
            push_claimed: false,
            latency: Span::ZERO,
            problems: Vec::new(),
        };
        let entry = match entry_of(agent) {
            Ok(entry) => entry,
            Err(e) => return probed.with(e.to_string()),
        };
        let credential = match carry {
            Carry::Nothing => None,
            Carry::Credential => match self.present(claim.org(), agent, &entry, &entry.registered).await {
                Ok(credential) => credential,
                Err(e) => return probed.with(e.to_string()),
            },
        };
        let began = self.connector.now();
        let found = self.fetch(agent, &entry, credential.as_ref(), not_after).await;
        probed.latency = self.connector.now().left(began);
        match found {
            Ok(found) => self.weigh(&claim, agent, &entry, credential, &found, not_after, probed).await,
            Err(NoCard::Refused { detail, .. }) => Probed { reachable: true, ..probed }.with(detail),
            Err(NoCard::Later { detail, .. } | NoCard::Never { detail, .. }) => probed.with(detail),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the probe above, apart only for its length")]
    async fn weigh(
        &self,
        claim: &Claim,
        agent: &AgentEntry,
        entry: &Entry,
        credential: Option<Presented>,
        found: &Found,
        not_after: Monotonic,
        mut probed: Probed,
    ) -> Probed {
        let card = &found.card;
        probed.reachable = true;
        probed.push_claimed = card.push == Some(true);
        probed.card = Some(ProbedCard {
            found_at: found.at.clone(),
            digest: card.digest(),
            name: card.name.chars().take(200).collect(),
            skills: card.skills.iter().take(MOST_SKILLS).map(|s| s.id.chars().take(200).collect()).collect(),
        });
        probed.problems.extend(missing(card, agent));
        let (interface, target) = match self.pick(card, agent, entry) {
            Ok(picked) => picked,
            Err((_, detail)) => return probed.with(detail),
        };
        let claimed = interface.dialect.unwrap_or(exeat_wire::Dialect::V1_0);
        let why = format!("the first interface that is allowed and spoken; spoken to in A2A {claimed}");
        probed.would_use = Some((recorded(&interface), why));
        if credential.is_none() {
            return probed;
        }
        match self.present(claim.org(), agent, entry, target.origin()).await {
            Err(e) => probed.with(e.to_string()),
            Ok(credential) => {
                let key = Self::key(claim.org(), agent, credential.as_ref());
                let (dialect, switch) = self.dialect(agent, &key, &target.to_string(), claimed);
                let tenant = interface.tenant.clone();
                let contact =
                    Contact { key, entry: entry.clone(), target, tenant, credential, dialect, switch };
                probed.auth = self.try_auth(&contact, not_after).await;
                probed
            }
        }
    }

    /// Asks for a task that isn't there: whatever the agent says of it, it has looked at the credential first.
    async fn try_auth(&self, contact: &Contact, not_after: Monotonic) -> Auth {
        let tenant = contact.tenant.as_deref();
        let frame = TaskFrame { request_id: REQUEST_ID, task_id: NO_TASK, tenant };
        let build = |dialect| request::get(dialect, &frame, Some(0));
        let called = self.call::<TaskAnswer>(contact, Vec::new(), &build, not_after).await;
        match called.got {
            Got::Answered { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. } => Auth::Refused,
            Got::Answered { read: Ok(_), .. } => Auth::Ok,
            Got::Answered { .. } | Got::NotSent(_) | Got::Ambiguous(_) | Got::Unusable(_) => Auth::NotTried,
        }
    }
}

impl Probed {
    fn with(mut self, problem: String) -> Self {
        self.problems.push(problem.chars().take(500).collect());
        self
    }
}

/// What the entry expects and the card doesn't show.
fn missing(card: &Card, agent: &AgentEntry) -> Vec<String> {
    let skills = agent.posture.skills.iter().filter(|s| !card.offers(s));
    let skills = skills.map(|s| format!("the card doesn't offer the skill {s:?}"));
    let unauthenticated = agent.posture.credential.is_none() && !card.requirements.is_empty();
    let asks = "the card asks for authentication, and the entry has no credential".to_owned();
    skills.chain(unauthenticated.then_some(asks)).collect()
}
