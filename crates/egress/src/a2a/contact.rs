//! One call to an interface: which dialect, which credential, and the one switch of dialect that is allowed.

use exeat_core::gate::exeat::{Address, Bound};
use exeat_core::id::OrgName;
use exeat_core::payload::Sha256Digest;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, ProtocolPin};
use exeat_core::time::Monotonic;
use exeat_wire::answer::{
    BadAnswer, ListAnswer, SendAnswer, TaskAnswer, is_to_another, list_answer, send_answer, task_answer,
};
use exeat_wire::{Binding, Dialect, Limits, RpcError, request};
use http::StatusCode;
use http::header::RETRY_AFTER;
use secrecy::SecretString;

use super::cards::Key;
use super::{A2a, REQUEST_ID};
use crate::credential::echo::Echoes;
use crate::credential::{Presented, Unavailable};
use crate::entry::entry_of;
use crate::exchange::{Ambiguous, Exchanged, NotSent, Request, Unusable};
use crate::target::{Entry, Origin, Target};

/// Whether the other dialect may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// Once, where the answer proves that nothing ran.
    Once,
    /// The entry pins a version.
    Never,
}

/// A way to an interface that the entry allows.
#[derive(Clone)]
pub(super) struct Contact {
    pub(super) key: Key,
    pub(super) entry: Entry,
    pub(super) target: Target,
    pub(super) tenant: Option<String>,
    pub(super) credential: Option<Presented>,
    pub(super) dialect: Dialect,
    pub(super) switch: Switch,
}

impl Contact {
    /// The same, in this dialect and no other.
    pub(super) fn pinned(&self) -> Self {
        Self { switch: Switch::Never, ..self.clone() }
    }
}

/// What a call brought.
pub(super) enum Got<A> {
    /// Nothing left.
    NotSent(NotSent),
    /// Nobody knows.
    Ambiguous(Ambiguous),
    /// An answer that isn't read.
    Unusable(Unusable),
    /// A whole answer, read.
    Answered { status: StatusCode, retry_after: Option<String>, echoes: Echoes, read: Result<A, BadAnswer> },
}

pub(super) struct Called<A> {
    pub(super) got: Got<A>,
    /// Digest of the body that was written last, if any was.
    pub(super) wire: Option<Sha256Digest>,
    /// The dialect that was spoken last.
    pub(super) dialect: Dialect,
}

/// An answer that may be an error of the agent's.
pub(super) trait Reply: Sized {
    fn read(bytes: &[u8], limits: &Limits) -> Result<Self, BadAnswer>;
    fn error(&self) -> Option<&RpcError>;
}

macro_rules! reply {
    ($answer:ident, $read:ident) => {
        impl Reply for $answer {
            fn read(bytes: &[u8], limits: &Limits) -> Result<Self, BadAnswer> {
                if is_to_another(bytes, REQUEST_ID) {
                    return Err(BadAnswer::OtherRequest);
                }
                $read(bytes, limits)
            }
            fn error(&self) -> Option<&RpcError> {
                if let Self::Error(e) = self { Some(e) } else { None }
            }
        }
    };
}
reply!(SendAnswer, send_answer);
reply!(TaskAnswer, task_answer);
reply!(ListAnswer, list_answer);

impl A2a {
    /// The credential of `agent` for `origin`: none if it has none, an error if it has one that can't be shown.
    pub(super) async fn present(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        entry: &Entry,
        origin: &Origin,
    ) -> Result<Option<Presented>, Unavailable> {
        match &agent.posture.credential {
            None => Ok(None),
            Some(c) => self.credentials.present(org, c, &entry.registered, origin).await.map(Some),
        }
    }

    pub(super) fn key(org: &OrgName, agent: &AgentEntry, credential: Option<&Presented>) -> Key {
        let credential = credential.map(Presented::version);
        Key { org: org.clone(), agent: agent.key.clone(), version: agent.version, credential }
    }

    /// The way to an interface that an attempt used before, checked against the entry as anew; or, where none told of
    /// it, to the one that the card offers at that origin.
    ///
    /// # Errors
    /// The code of what stands in the way; nothing was contacted.
    pub(super) async fn contact(
        &self,
        org: &OrgName,
        address: &Address,
        not_after: Monotonic,
    ) -> Result<Contact, ReasonCode> {
        let agent = &*address.agent;
        let interface = match &address.at {
            Bound::Interface(interface) => interface,
            Bound::Origin(origin) => return self.found_at(org, agent, origin, not_after).await,
        };
        let entry = entry_of(agent).map_err(|_| ReasonCode::EndpointNotAllowed)?;
        let cleared = self.connector.platform().clear(&entry, &interface.url);
        let target = cleared.map_err(|_| ReasonCode::EndpointNotAllowed)?;
        if Binding::parse(&interface.binding) != Binding::JsonRpc {
            return Err(ReasonCode::NoCommonInterface);
        }
        let presented = self.present(org, agent, &entry, target.origin()).await;
        let credential = presented.map_err(|_| ReasonCode::CredentialUnavailable)?;
        let key = Self::key(org, agent, credential.as_ref());
        let claimed = Dialect::of_version(&interface.version).unwrap_or(Dialect::V1_0);
        let (dialect, switch) = self.dialect(agent, &key, &target.to_string(), claimed);
        Ok(Contact { key, entry, target, tenant: interface.tenant.clone(), credential, dialect, switch })
    }

    /// The dialect to begin with: the entry's pin, else what the interface turned out to speak, else its claim.
    pub(super) fn dialect(
        &self,
        agent: &AgentEntry,
        key: &Key,
        url: &str,
        claimed: Dialect,
    ) -> (Dialect, Switch) {
        match agent.posture.protocol {
            ProtocolPin::V1_0 => (Dialect::V1_0, Switch::Never),
            ProtocolPin::V0_3 | ProtocolPin::V0_2 => (Dialect::V0_3, Switch::Never),
            ProtocolPin::Auto => (self.cards.dialect(key, url).unwrap_or(claimed), Switch::Once),
        }
    }

    /// One call, and at most one more in the other dialect.
    pub(super) async fn call<A: Reply>(
        &self,
        contact: &Contact,
        secrets: Vec<SecretString>,
        build: &(dyn Fn(Dialect) -> request::Request + Sync),
        not_after: Monotonic,
    ) -> Called<A> {
        let first = self.call_once::<A>(contact, &secrets, contact.dialect, build, not_after).await;
        if contact.switch == Switch::Never || !is_about_dialect(&first.got) {
            return first;
        }
        let other = contact.dialect.other();
        let second = self.call_once::<A>(contact, &secrets, other, build, not_after).await;
        if matches!(&second.got, Got::Answered { read: Ok(_), .. }) && !is_about_dialect(&second.got) {
            self.cards.speaks(&contact.key, &contact.target.to_string(), other);
        }
        second
    }

    async fn call_once<A: Reply>(
        &self,
        contact: &Contact,
        secrets: &[SecretString],
        dialect: Dialect,
        build: &(dyn Fn(Dialect) -> request::Request + Sync),
        not_after: Monotonic,
    ) -> Called<A> {
        let body = build(dialect).body;
        let digest = Sha256Digest::of(&body);
        let request = Request::post_json(contact.target.clone(), body.into()).version(dialect.version());
        let request = match request {
            Ok(request) => request.credential(contact.credential.clone()),
            Err(_) => return Called { got: Got::NotSent(NotSent::Malformed), wire: None, dialect },
        };
        let request = secrets.iter().fold(request, |r, s| r.carries(s.clone()));
        let got = match self.connector.exchange(&contact.entry, request, not_after).await {
            Exchanged::NotSent(why) => Got::NotSent(why),
            Exchanged::Ambiguous(why) => Got::Ambiguous(why),
            Exchanged::Unusable(u) => Got::Unusable(u),
            Exchanged::Answered(a) => Got::Answered {
                status: a.status,
                retry_after: a.header(RETRY_AFTER.as_str()).map(str::to_owned),
                read: A::read(&a.body, &self.wire),
                echoes: a.echoes,
            },
        };
        let wire = (!matches!(got, Got::NotSent(_))).then_some(digest);
        Called { got, wire, dialect }
    }
}

fn is_about_dialect<A: Reply>(got: &Got<A>) -> bool {
    match got {
        Got::Answered { status, read: Ok(answer), .. } => {
            answer.error().is_some_and(|e| e.class(Some(status.as_u16())).is_about_dialect())
        }
        _ => false,
    }
}
