//! From a parcel to the one interface that its message may go to.

use std::sync::Arc;
use std::time::Duration;

use exeat_core::gate::exeat::{Bound, Interface, Parcel};
use exeat_core::id::OrgName;
use exeat_core::payload::Sha256Digest;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, ProtocolPin};
use exeat_core::time::Monotonic;
use exeat_core::transport::{SendOutcome, SendReport};
use exeat_wire::Dialect;
use exeat_wire::card::{Card, NoCommonInterface, card_candidates, try_next};
use http::StatusCode;

use super::cards::{Came, NoCard, Want};
use super::contact::Contact;
use super::outcome::{self, Status};
use super::{A2a, recorded};
use crate::credential::Presented;
use crate::entry::entry_of;
use crate::exchange::{Answer, Exchanged, Request, Unread, Unusable};
use crate::target::{Entry, Target};

/// The interface, and the way to it.
pub(super) struct Chosen {
    /// As the card lists it.
    pub(super) interface: Interface,
    /// The way.
    pub(super) contact: Contact,
    /// Digest of the card that it was chosen from.
    pub(super) card: Sha256Digest,
    /// Whether the card says that the agent pushes.
    pub(super) pushes: bool,
}

/// A card, and where it lay.
pub(super) struct Found {
    pub(super) card: Card,
    pub(super) at: String,
}

/// An interface of a card that fits, and its target; else how the attempt ends.
type Fitted = Result<(exeat_wire::Interface, Target), Box<SendReport>>;

/// The report of an attempt that stopped before its message was written: nothing will run, whatever we try.
fn never(code: ReasonCode, detail: impl ToString) -> Box<SendReport> {
    Box::new(SendReport::bare(SendOutcome::Impossible(code), detail.to_string()))
}

fn without_card(none: NoCard) -> Box<SendReport> {
    let (outcome, detail) = match none {
        NoCard::Refused { code, detail } | NoCard::Never { code, detail } => {
            (SendOutcome::Impossible(code), detail)
        }
        NoCard::Later { code, detail } => (SendOutcome::NotSent(code), detail),
    };
    Box::new(SendReport::bare(outcome, detail))
}

impl A2a {
    /// The interface for this parcel, and the way to it.
    pub(super) async fn choose(
        &self,
        parcel: &Parcel,
        not_after: Monotonic,
    ) -> Result<Chosen, Box<SendReport>> {
        let fit = |card: &Card, entry: &Entry| self.fit(card, parcel, entry);
        self.through_card(&parcel.attempt.org, &parcel.agent, not_after, &fit).await
    }

    /// The way to the interface that an attempt would choose at this origin.
    ///
    /// # Errors
    /// The code of what stands in the way.
    pub(super) async fn found_at(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        origin: &str,
        not_after: Monotonic,
    ) -> Result<Contact, ReasonCode> {
        let fit = |card: &Card, entry: &Entry| {
            let (interface, target) =
                self.pick(card, agent, entry).map_err(|(code, detail)| never(code, detail))?;
            if origin.parse().ok().as_ref() == Some(target.origin()) {
                Ok((interface, target))
            } else {
                Err(never(
                    ReasonCode::EndpointNotAllowed,
                    "the card offers another origin than the one bound",
                ))
            }
        };
        match self.through_card(org, agent, not_after, &fit).await {
            Ok(chosen) => Ok(chosen.contact),
            Err(stopped) => match stopped.outcome {
                SendOutcome::Impossible(code) | SendOutcome::NotSent(code) => Err(code),
                _ => Err(ReasonCode::CardInvalid),
            },
        }
    }

    /// Fetches the card if the kept one is old and chooses the interface. What doesn't fit a kept card is held
    /// against a fresh one, once.
    async fn through_card(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        not_after: Monotonic,
        fit: &(dyn Fn(&Card, &Entry) -> Fitted + Sync),
    ) -> Result<Chosen, Box<SendReport>> {
        let entry = entry_of(agent).map_err(|e| never(ReasonCode::EndpointNotAllowed, e))?;
        let credential = self
            .present(org, agent, &entry, &entry.registered)
            .await
            .map_err(|e| never(ReasonCode::CredentialUnavailable, e))?;
        let key = Self::key(org, agent, credential.as_ref());
        let mut want = Want::Any;
        let (card, interface, target) = loop {
            let fetch = async {
                let found = self.fetch(agent, &entry, credential.as_ref(), not_after).await;
                found.map(|found| found.card)
            };
            let now = self.connector.now();
            let within = Duration::from(not_after.left(now));
            let (card, came) = self.cards.card(&key, want, now, within, fetch).await;
            let card: Arc<Card> = card.map_err(without_card)?;
            match fit(&card, &entry) {
                Ok((interface, target)) => break (card, interface, target),
                Err(_) if came == Came::Kept => want = Want::Fresh,
                Err(misfit) => return Err(misfit),
            }
        };
        // The card's own origin got the registered credential; another one needs a grant of its own.
        let shown = self.present(org, agent, &entry, target.origin()).await;
        let shown = shown.map_err(|e| never(ReasonCode::CredentialUnavailable, e))?;
        let claimed = interface.dialect.unwrap_or(Dialect::V1_0);
        let (dialect, switch) = self.dialect(agent, &key, &target.to_string(), claimed);
        let tenant = interface.tenant.clone();
        let contact = Contact { key, entry, target, tenant, credential: shown, dialect, switch };
        let (card, pushes) = (card.digest(), card.push == Some(true));
        Ok(Chosen { interface: recorded(&interface), contact, card, pushes })
    }

    /// The interface of `card` for this parcel: the one that `pick` finds, if the decision was bound to it and the
    /// card has the skill that was judged.
    fn fit(&self, card: &Card, parcel: &Parcel, entry: &Entry) -> Fitted {
        let stop = |code, detail: String| {
            let mut report = never(code, detail);
            report.card = Some(card.digest());
            report
        };
        let picked = self.pick(card, &parcel.agent, entry);
        let (interface, target) = picked.map_err(|(code, detail)| stop(code, detail))?;
        let found = recorded(&interface);
        let is_bound = match &parcel.bound {
            Bound::Interface(bound) => *bound == found,
            Bound::Origin(origin) => origin.parse().ok().as_ref() == Some(target.origin()),
        };
        if !is_bound {
            let detail = format!("the card offers {}, which the decision was not about", found.url);
            let mut report = SendReport::bare(SendOutcome::OtherInterface(found.clone()), detail);
            (report.interface, report.card) = (Some(found), Some(card.digest()));
            return Err(Box::new(report));
        }
        match &parcel.skill {
            Some(skill) if !card.offers(skill) => {
                Err(stop(ReasonCode::SkillNotOffered, format!("the card doesn't offer the skill {skill:?}")))
            }
            _ => Ok((interface, target)),
        }
    }

    /// The interface of `card` that is spoken and that the entry and the platform allow; else why there is none.
    pub(super) fn pick(
        &self,
        card: &Card,
        agent: &AgentEntry,
        entry: &Entry,
    ) -> Result<(exeat_wire::Interface, Target), (ReasonCode, String)> {
        let platform = self.connector.platform();
        let pin = match agent.posture.protocol {
            ProtocolPin::Auto => exeat_wire::ProtocolPin::Auto,
            ProtocolPin::V1_0 => exeat_wire::ProtocolPin::V1_0,
            ProtocolPin::V0_3 => exeat_wire::ProtocolPin::V0_3,
            ProtocolPin::V0_2 => exeat_wire::ProtocolPin::V0_2,
        };
        let interface = card.choose_where(pin, |url| platform.clear(entry, url.as_str()).is_ok()).map_err(
            |e| match e {
                NoCommonInterface::NotSpoken { .. } => (ReasonCode::NoCommonInterface, e.to_string()),
                NoCommonInterface::NotAllowed { .. } => (ReasonCode::EndpointNotAllowed, e.to_string()),
            },
        )?;
        // Exactly the text that will be dialled, whichever field of the card it came from.
        let target = platform
            .clear(entry, &interface.url)
            .map_err(|e| (ReasonCode::EndpointNotAllowed, e.to_string()))?;
        Ok((interface, target))
    }

    /// Fetches the card from the candidates in order; the next only where the last says that it isn't there.
    pub(super) async fn fetch(
        &self,
        agent: &AgentEntry,
        entry: &Entry,
        credential: Option<&Presented>,
        not_after: Monotonic,
    ) -> Result<Found, NoCard> {
        let never = |detail: String| NoCard::Never { code: ReasonCode::EndpointNotAllowed, detail };
        let candidates = card_candidates(&agent.posture.url).map_err(|e| never(e.to_string()))?;
        let mut tried = Vec::new();
        for candidate in candidates {
            let platform = self.connector.platform();
            let target = platform.clear(entry, candidate.as_str()).map_err(|e| never(e.to_string()))?;
            tried.push(target.path_and_query().path().to_owned());
            let request = Request::get(target).version(Dialect::V1_0.version());
            let request = request.map_err(|e| never(e.to_string()))?.credential(credential.cloned());
            match self.connector.exchange(entry, request, not_after).await {
                Exchanged::Answered(a) if try_next(a.status.as_u16()) => {}
                Exchanged::Answered(a) => {
                    return self.read_card(&a).map(|card| Found { card, at: candidate.to_string() });
                }
                Exchanged::Unusable(Unusable { status: Some(s), .. }) if try_next(s.as_u16()) => {}
                other => return Err(no_card(&other)),
            }
        }
        let detail = format!("no card at any of: {}", tried.join(", "));
        Err(NoCard::Refused { code: ReasonCode::CardInvalid, detail })
    }

    fn read_card(&self, answer: &Answer) -> Result<Card, NoCard> {
        by_status(answer.status)?;
        Card::parse(&answer.body, &self.wire)
            .map_err(|e| NoCard::Refused { code: ReasonCode::CardInvalid, detail: e.to_string() })
    }
}

fn by_status(status: StatusCode) -> Result<(), NoCard> {
    let (code, detail) = (ReasonCode::CardInvalid, format!("the card was answered with HTTP {status}"));
    match outcome::status(status) {
        Status::Fine => Ok(()),
        Status::Busy | Status::Broke => Err(NoCard::Later { code, detail }),
        Status::Refused => Err(NoCard::Refused { code, detail }),
    }
}

/// Why an exchange brought no card.
fn no_card(exchanged: &Exchanged) -> NoCard {
    let code = ReasonCode::CardInvalid;
    match exchanged {
        Exchanged::NotSent(why) => match outcome::not_sent(why) {
            SendOutcome::Impossible(code) => NoCard::Never { code, detail: why.to_string() },
            _ => NoCard::Later { code: ReasonCode::AttemptsExhausted, detail: why.to_string() },
        },
        Exchanged::Ambiguous(why) => NoCard::Later { code, detail: why.to_string() },
        Exchanged::Unusable(Unusable { why: why @ Unread::Redirect(_), .. }) => {
            NoCard::Refused { code: ReasonCode::RedirectRefused, detail: why.to_string() }
        }
        Exchanged::Unusable(u) => match u.status.map(by_status) {
            Some(Err(none)) => none,
            _ => NoCard::Refused { code, detail: u.why.to_string() },
        },
        Exchanged::Answered(a) => match by_status(a.status) {
            Err(none) => none,
            Ok(()) => NoCard::Refused { code, detail: "the card doesn't read".to_owned() },
        },
    }
}
