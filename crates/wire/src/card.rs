//! Agent cards, of every version and of none.
//!
//! A card is a claim by a stranger about itself. It may choose among addresses that the registry allows and
//! never add one: [`Card::choose_where`] asks about the exact URL that will be dialled, whichever field it
//! came from. Reading is tolerant (unknown members, nulls and empty strings are no fault); the digest is of
//! the bytes as fetched.
//!
//! Source: A2A 1.0 §4.4 and §8, 0.3 §5.5, 0.2 §5.5.

pub mod address;
mod security;

use exeat_core::payload::Sha256Digest;
use serde_json::{Map, Value, json};
use url::Url;

pub use self::address::{BadCardUrl, card_candidates, try_next};
pub use self::security::{SchemeKind, SecurityScheme};
use crate::dialect::{Binding, Dialect, Interface, ProtocolPin};
use crate::json::{self, BadJson, Limits, Look as _};

/// Interfaces of one card that are read at most.
const MAX_INTERFACES: usize = 64;

/// Something that the agent says it can do. Prose of a stranger: shown as such, never given to a model as ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its id: what the registry's capability ceiling is held against.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// An agent card.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// The agent's name; empty if it gives none.
    pub name: String,
    /// What it is.
    pub description: String,
    /// The agent's own version; empty if it gives none.
    pub version: String,
    /// Whether it streams, if it says.
    pub streaming: Option<bool>,
    /// Whether it pushes, if it says. A yes is no proof that it will.
    pub push: Option<bool>,
    /// Whether it shows another card to those who authenticate, if it says.
    pub extended: Option<bool>,
    /// What it offers, in its order.
    pub skills: Vec<Skill>,
    /// How it wants to be authenticated to.
    pub security: Vec<SecurityScheme>,
    /// Which sets of those schemes it accepts: any one of these, each whole.
    pub requirements: Vec<Vec<String>>,
    /// Ids (`kid`) of the keys that signed it, as claimed; nothing here verifies a signature.
    pub signing_keys: Vec<String>,
    interfaces: Vec<Interface>,
    digest: Sha256Digest,
}

/// Why bytes aren't a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// Not JSON that we read.
    #[error(transparent)]
    Json(#[from] BadJson),
    /// Some other JSON.
    #[error("this isn't an agent card: it has neither a name nor an address")]
    NotACard,
}

/// No interface of the card will do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCommonInterface {
    /// None that we speak.
    #[error("the card offers {offered}; protocol {pin} over JSONRPC is wanted")]
    NotSpoken {
        /// What it offers: bindings and versions, at most eight.
        offered: String,
        /// What the entry allows.
        pin: ProtocolPin,
    },
    /// The ones we speak are at addresses that the entry doesn't allow.
    #[error("the card's interfaces are at addresses that the entry doesn't allow: {}", .urls.join(", "))]
    NotAllowed {
        /// Where, as the card writes it, at most eight.
        urls: Vec<String>,
    },
}

impl Card {
    /// Reads a card of any version.
    ///
    /// # Errors
    /// If the bytes aren't JSON within the limits, or plainly no card. A card without any interface is one;
    /// [`choose`](Self::choose) refuses it.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self, CardError> {
        let value = json::read(bytes, limits)?;
        let m = value.as_object().ok_or(CardError::NotACard)?;
        let interfaces = interfaces(m);
        if interfaces.is_empty() && m.text("name").is_none() {
            return Err(CardError::NotACard);
        }
        let said = |m: &Map<String, Value>, name: &str| m.text(name).unwrap_or_default().to_owned();
        let capability = |name: &str| m.object("capabilities").and_then(|c| c.flag(name));
        Ok(Self {
            name: said(m, "name"),
            description: said(m, "description"),
            version: said(m, "version"),
            streaming: capability("streaming"),
            push: capability("pushNotifications"),
            extended: capability("extendedAgentCard").or_else(|| m.flag("supportsAuthenticatedExtendedCard")),
            skills: m
                .list("skills")
                .iter()
                .filter_map(Value::as_object)
                .filter(|s| s.text("id").is_some())
                .map(|s| Skill {
                    id: said(s, "id"),
                    name: said(s, "name"),
                    description: said(s, "description"),
                })
                .collect(),
            security: security::schemes(m),
            requirements: security::requirements(m),
            signing_keys: signing_keys(m),
            interfaces,
            digest: Sha256Digest::of(bytes),
        })
    }

    /// What it offers, in order of preference: JSON-RPC before what we don't speak; then 1.0, other 1.x, 0.3,
    /// 0.2, no claim, others; then the card's own order. Those of `supportedInterfaces` come before the ones of
    /// the older fields.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface to use, wherever it is. Its URL must then be held against the entry's origins.
    ///
    /// # Errors
    /// If none is spoken within the pin.
    pub fn choose(&self, pin: ProtocolPin) -> Result<Interface, NoCommonInterface> {
        self.choose_where(pin, |_| true)
    }

    /// The first interface that is spoken within the pin and whose URL is allowed. Only JSON-RPC over http or
    /// https is ever chosen. The `dialect` of what is returned is `Some`.
    ///
    /// # Errors
    /// If none is spoken, or none of the spoken ones is allowed.
    pub fn choose_where(
        &self,
        pin: ProtocolPin,
        allowed: impl Fn(&Url) -> bool,
    ) -> Result<Interface, NoCommonInterface> {
        let spoken = |i: &Interface| -> Option<(Dialect, Url)> {
            let url = Url::parse(&i.url).ok().filter(|u| matches!(u.scheme(), "http" | "https"))?;
            (i.binding == Binding::JsonRpc).then_some(())?;
            Some((pin.dialect(i)?, url))
        };
        let mut refused = Vec::new();
        for interface in &self.interfaces {
            match spoken(interface) {
                Some((dialect, url)) if allowed(&url) => {
                    return Ok(Interface { dialect: Some(dialect), ..interface.clone() });
                }
                Some(_) => refused.push(json::line(&interface.url, 200)),
                None => {}
            }
        }
        refused.truncate(8);
        Err(if refused.is_empty() {
            NoCommonInterface::NotSpoken { offered: self.offered(), pin }
        } else {
            NoCommonInterface::NotAllowed { urls: refused }
        })
    }

    fn offered(&self) -> String {
        let names: Vec<String> = self
            .interfaces
            .iter()
            .take(8)
            .map(|i| json::line(&format!("{} {}", i.binding, i.version), 40).trim_end().to_owned())
            .collect();
        if names.is_empty() { "no interface".to_owned() } else { names.join(", ") }
    }

    /// Whether the card offers this skill.
    #[must_use]
    pub fn offers(&self, skill: &str) -> bool {
        self.skills.iter().any(|s| s.id == skill)
    }

    /// SHA-256 of the bytes as fetched.
    #[must_use]
    pub const fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// What a change of which must be seen: interfaces in order, schemes and requirements, skills, signing keys.
    /// Equal for cards that differ only in spacing, order of unordered things, prose or unknown members.
    #[must_use]
    pub fn projection(&self) -> Value {
        let interfaces: Vec<Value> = self
            .interfaces
            .iter()
            .map(|i| json!({ "url": i.url, "binding": i.binding.name(), "version": i.version, "tenant": i.tenant }))
            .collect();
        let mut skills: Vec<&str> = self.skills.iter().map(|s| s.id.as_str()).collect();
        skills.sort_unstable();
        skills.dedup();
        let schemes: Map<String, Value> =
            self.security.iter().map(|s| (s.name.clone(), s.kind.projection())).collect();
        let mut requirements = self.requirements.clone();
        requirements.sort_unstable();
        let mut keys = self.signing_keys.clone();
        keys.sort_unstable();
        json!({
            "interfaces": interfaces, "schemes": schemes, "requirements": requirements, "skills": skills,
            "signing_keys": keys,
        })
    }
}

fn interfaces(card: &Map<String, Value>) -> Vec<Interface> {
    let mut out: Vec<Interface> = card
        .list("supportedInterfaces")
        .iter()
        .filter_map(Value::as_object)
        .filter_map(|i| {
            let binding = Binding::parse(i.text("protocolBinding").or_else(|| i.text("transport"))?);
            Some(Interface::new(i.text("url")?, binding, &version(i), i.text("tenant")))
        })
        .take(MAX_INTERFACES)
        .collect();
    let order = |list: &mut [Interface]| list.sort_by_key(|i| (i.binding != Binding::JsonRpc, i.rank()));
    order(&mut out);
    let mut older = older_interfaces(card);
    order(&mut older);
    // An older field that repeats a listed address says nothing new, unless it claims another dialect for it.
    let listed = out.clone();
    let news = |older: &Interface| {
        !listed.iter().any(|i| {
            let same = i.url == older.url && i.binding == older.binding;
            same && (older.version.is_empty() || i.dialect == older.dialect)
        })
    };
    out.extend(older.into_iter().filter(news));
    out
}

/// A version, which some cards write as a number.
fn version(m: &Map<String, Value>) -> String {
    match m.member("protocolVersion") {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Number(n)) => n.to_string(),
        _ => String::new(),
    }
}

/// The fields of 0.3 and before, which a hybrid card has beside the new one.
fn older_interfaces(card: &Map<String, Value>) -> Vec<Interface> {
    let version = &version(card);
    let preferred = card.text("preferredTransport").map_or(Binding::JsonRpc, Binding::parse);
    let main = card.text("url").map(|url| Interface::new(url, preferred, version, None));
    let additional = card.list("additionalInterfaces").iter().filter_map(Value::as_object).filter_map(|i| {
        let binding = Binding::parse(i.text("transport").or_else(|| i.text("protocolBinding"))?);
        Some(Interface::new(i.text("url")?, binding, version, None))
    });
    main.into_iter().chain(additional).take(MAX_INTERFACES).fold(Vec::new(), |mut seen, i| {
        if !seen.contains(&i) {
            seen.push(i);
        }
        seen
    })
}

/// The `kid` of each signature: of its protected header, or of the unprotected one.
fn signing_keys(card: &Map<String, Value>) -> Vec<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let protected = |s: &Map<String, Value>| -> Option<String> {
        let header = URL_SAFE_NO_PAD.decode(s.text("protected")?).ok()?;
        let header = json::read(&header, &Limits { depth: 8, values: 64 }).ok()?;
        Some(header.as_object()?.text("kid")?.to_owned())
    };
    card.list("signatures")
        .iter()
        .filter_map(Value::as_object)
        .filter_map(|s| protected(s).or_else(|| Some(s.object("header")?.text("kid")?.to_owned())))
        .collect()
}
