//! Probing an agent for an operator: is it there, what does its card say, what would be used.
//!
//! A recorded act of its own: it takes the permit of its durable record by value, carries no content, changes
//! nothing that is kept, and shows a secret only where it is told to (an unsigned entry's is never shown).

use async_trait::async_trait;
use exeat_core::gate::exeat::{Carry, ProbePermit};
use exeat_core::id::OrgName;
use exeat_core::registry::AgentEntry;
use exeat_core::time::{Monotonic, Span};
use exeat_core::transport::{Auth, Probed, ProbedCard, Prober};
use exeat_wire::answer::TaskAnswer;
use exeat_wire::card::Card;
use exeat_wire::request::{self, TaskFrame};
use http::StatusCode;

use super::cards::NoCard;
use super::choose::Found;
use super::contact::{Contact, Got};
use super::{A2a, REQUEST_ID, recorded};
use crate::credential::Presented;
use crate::credential::echo::Echoes;
use crate::entry::entry_of;
use crate::target::Entry;

/// No task of any agent.
const NO_TASK: &str = "no-such-task";
/// Skills shown at most.
const MOST_SKILLS: usize = 100;

#[async_trait]
impl Prober for A2a {
    async fn probe(&self, permit: ProbePermit) -> Probed {
        let (agent, not_after) = (&**permit.agent(), permit.not_after());
        let probed = Probed {
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
            Err(e) => return with(probed, e.to_string()),
        };
        let credential = match permit.carry() {
            Carry::Nothing => None,
            Carry::Credential => match self.present(permit.org(), agent, &entry, &entry.registered).await {
                Ok(credential) => credential,
                Err(e) => return with(probed, e.to_string()),
            },
        };
        // What was escaped in part in the agent's bytes shows only now.
        let echoes = Echoes::of(credential.iter().map(Presented::secret));
        let probed = self.fetch_and_weigh(permit.org(), agent, &entry, credential, not_after, probed).await;
        clean(probed, &echoes)
    }
}

impl A2a {
    async fn fetch_and_weigh(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        entry: &Entry,
        credential: Option<Presented>,
        not_after: Monotonic,
        mut probed: Probed,
    ) -> Probed {
        let began = self.connector.now();
        let found = self.fetch(agent, entry, credential.as_ref(), not_after).await;
        probed.latency = self.connector.now().left(began);
        match found {
            Ok(found) => self.weigh(org, agent, entry, credential, &found, not_after, probed).await,
            Err(NoCard::Refused { detail, .. }) => with(Probed { reachable: true, ..probed }, detail),
            Err(NoCard::Later { detail, .. } | NoCard::Never { detail, .. }) => with(probed, detail),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the probe above, apart only for its length")]
    async fn weigh(
        &self,
        org: &OrgName,
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
            Err((_, detail)) => return with(probed, detail),
        };
        let claimed = interface.dialect.unwrap_or(exeat_wire::Dialect::V1_0);
        let why = format!("the first interface that is allowed and spoken; spoken to in A2A {claimed}");
        probed.would_use = Some((recorded(&interface), why));
        if credential.is_none() {
            return probed;
        }
        match self.present(org, agent, entry, target.origin()).await {
            Err(e) => with(probed, e.to_string()),
            Ok(credential) => {
                let key = Self::key(org, agent, credential.as_ref());
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

fn with(mut probed: Probed, problem: String) -> Probed {
    probed.problems.push(problem.chars().take(500).collect());
    probed
}

/// The same without the secret that was shown, wherever the agent put it.
fn clean(mut probed: Probed, echoes: &Echoes) -> Probed {
    let scrub = |text: &mut String| *text = echoes.scrub_text(text);
    if let Some(card) = &mut probed.card {
        scrub(&mut card.found_at);
        scrub(&mut card.name);
        card.skills.iter_mut().for_each(scrub);
    }
    if let Some((interface, _)) = &mut probed.would_use {
        scrub(&mut interface.url);
        scrub(&mut interface.version);
    }
    probed.problems.iter_mut().for_each(scrub);
    probed
}

/// What the entry expects and the card doesn't show.
fn missing(card: &Card, agent: &AgentEntry) -> Vec<String> {
    let skills = agent.posture.skills.iter().filter(|s| !card.offers(s));
    let skills = skills.map(|s| format!("the card doesn't offer the skill {s:?}"));
    let unauthenticated = agent.posture.credential.is_none() && !card.requirements.is_empty();
    let asks = "the card asks for authentication, and the entry has no credential".to_owned();
    skills.chain(unauthenticated.then_some(asks)).collect()
}
