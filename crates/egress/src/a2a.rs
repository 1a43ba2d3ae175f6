//! A2A over JSON-RPC, 1.0 and 0.3: the transport that consumes permits.
//!
//! Each contact takes its permit by value and ends with it. A send fetches the card if the kept one is old,
//! chooses an interface that the entry allows and the decision was bound to, and writes one message: the
//! approved parts, our ids and the configuration, nothing else. A card chooses among what the registry allows
//! and never adds to it. One other dialect is tried where the agent says that it knows no such method or
//! version, which proves that nothing ran, and the entry pins none. Nothing else is ever sent twice here.

mod cards;
mod choose;
mod contact;
mod outcome;
mod probe;

use std::sync::Arc;

use async_trait::async_trait;
use exeat_core::gate::exeat::{CancelPermit, Exeat, Interface, Look, LookFor, Parcel};
use exeat_core::id::{ContextId, OrgName};
use exeat_core::payload::{Limits, Payload};
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, PushChoice};
use exeat_core::time::{Monotonic, Span};
use exeat_core::transport::{CancelOutcome, ForeignTask, LookOutcome, SendOutcome, SendReport, Transport};
use exeat_wire::answer::{ListAnswer, SendAnswer, TaskAnswer};
use exeat_wire::request::{ListFrame, PushConfig, SendFrame, TaskFrame};
use exeat_wire::{Dialect, ErrorClass, RpcError, request};
use secrecy::SecretString;

use self::cards::{Cards, Lifetimes};
use self::contact::{Contact, Got};
use self::outcome::{Sent, Status};
use crate::connect::proxy::Proxy;
use crate::connect::{BadTls, Dialer, tls};
use crate::credential::echo::Echoes;
use crate::credential::{Credentials, Presented};
use crate::entry::entry_of;
use crate::exchange::{Bounds, Connector, MonotonicClock};
use crate::resolve::Resolver;
use crate::target::Platform;

/// Id of a JSON-RPC exchange: one per connection, so one word does, and none of ours leaves.
const REQUEST_ID: &str = "1";
/// Messages of history asked for, so that a later turn whose answer was lost can be told apart.
const HISTORY: u32 = 20;
/// Pages of a listing that are read.
const MOST_PAGES: usize = 5;

/// What the platform's configuration says about going out.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Origins, ports, addresses.
    pub platform: Platform,
    /// Times and sizes of one exchange.
    pub bounds: Bounds,
    /// Further roots of TLS, PEM; may be empty.
    pub extra_roots: Vec<u8>,
    /// A proxy to go through; targets are checked before it is asked.
    pub proxy: Option<Proxy>,
    /// How long a card is kept.
    pub card_ttl: Span,
    /// How long it is kept that there is none.
    pub card_miss_ttl: Span,
    /// Bounds on what is taken in.
    pub payload: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            platform: Platform::default(),
            bounds: Bounds::default(),
            extra_roots: Vec::new(),
            proxy: None,
            card_ttl: Span::of_secs(300),
            card_miss_ttl: Span::of_secs(30),
            payload: Limits::default(),
        }
    }
}

/// Speaks to A2A agents.
pub struct A2a {
    connector: Connector,
    credentials: Credentials,
    cards: Cards,
    payload: Limits,
    wire: exeat_wire::Limits,
}

impl A2a {
    /// Of the platform's settings, a resolver, the credentials and a monotonic clock.
    ///
    /// # Errors
    /// If the further roots aren't certificates.
    pub fn new(
        settings: Settings,
        resolver: Arc<dyn Resolver>,
        credentials: Credentials,
        clock: MonotonicClock,
    ) -> Result<Self, BadTls> {
        let dialer = Dialer::new(resolver, tls(&settings.extra_roots)?).through(settings.proxy);
        let connector = Connector::new(dialer, Arc::new(settings.platform), settings.bounds, clock);
        let lifetimes = Lifetimes { card: settings.card_ttl, refusal: settings.card_miss_ttl };
        Ok(Self {
            connector,
            credentials,
            cards: Cards::new(lifetimes),
            payload: settings.payload,
            wire: exeat_wire::Limits::default(),
        })
    }

    async fn deliver(
        &self,
        parcel: &Parcel,
        payload: &Payload,
        chosen: &choose::Chosen,
        not_after: Monotonic,
    ) -> SendReport {
        let wants_push = chosen.pushes && parcel.agent.terms.push == PushChoice::Auto;
        let push = parcel.push.as_ref().filter(|_| wants_push);
        let (message_id, ours) = (parcel.message_id.to_string(), parcel.context_id.map(|c| c.to_string()));
        let context = |dialect| match (&parcel.foreign, dialect) {
            (Some(foreign), _) => foreign.context.as_deref(),
            // Older interfaces can't list by it, so it would tell the agent something for nothing.
            (None, Dialect::V1_0) => ours.as_deref(),
            (None, Dialect::V0_3) => None,
        };
        let build = |dialect| {
            let frame = SendFrame {
                request_id: REQUEST_ID,
                message_id: &message_id,
                context_id: context(dialect),
                task_id: parcel.foreign.as_ref().map(|f| f.task.as_str()),
                parts: &payload.parts,
                push: push.map(|p| PushConfig { url: &p.url, token: &p.token }),
                tenant: chosen.interface.tenant.as_deref(),
                accepted_output_modes: &[],
            };
            request::send(dialect, &frame)
        };
        let secrets = push.map(|p| SecretString::from(p.token.clone())).into_iter().collect();
        let called = self.call::<SendAnswer>(&chosen.contact, secrets, &build, not_after).await;
        let sent = match (&parcel.foreign, context(called.dialect)) {
            (Some(_), _) => Sent::Later,
            (None, Some(_)) => Sent::FirstInContext,
            (None, None) => Sent::First,
        };
        let (outcome, detail) = self.send_outcome(&called.got, sent);
        let mut report = SendReport::bare(outcome, detail);
        report.push_asked = push.is_some() && called.wire.is_some();
        report.wire = called.wire;
        report.interface = Some(chosen.interface.clone());
        report.card = Some(chosen.card);
        report
    }

    fn send_outcome(&self, got: &Got<SendAnswer>, sent: Sent) -> (SendOutcome, String) {
        match got {
            Got::NotSent(why) => (outcome::not_sent(why), why.to_string()),
            Got::Ambiguous(why) => (SendOutcome::Ambiguous, why.to_string()),
            Got::Unusable(u) => (outcome::unusable(u), u.why.to_string()),
            Got::Answered { status, retry_after, echoes, read } => match read {
                Ok(SendAnswer::Error(e)) => {
                    let detail = error_line(e, status.as_u16());
                    (outcome::error(e, *status, retry_after.as_deref(), sent), echoes.scrub_text(&detail))
                }
                _ if outcome::status(*status) != Status::Fine => {
                    let detail = format!("the agent answered HTTP {status} to a JSON-RPC request");
                    (outcome::by_status(*status, retry_after.as_deref()), detail)
                }
                Ok(SendAnswer::Task(view)) => match outcome::task(view, &self.payload, echoes) {
                    Ok(task) => (SendOutcome::Task(task), format!("HTTP {status}: a task")),
                    Err(code) => (SendOutcome::Unusable(code), code.message().to_owned()),
                },
                Ok(SendAnswer::Message(m)) => match outcome::payload(m.payload(), &self.payload, echoes) {
                    Ok(payload) => (SendOutcome::Message(payload), format!("HTTP {status}: a message")),
                    Err(code) => (SendOutcome::Unusable(code), code.message().to_owned()),
                },
                Err(bad) => (SendOutcome::Unusable(ReasonCode::InvalidResponse), bad.to_string()),
            },
        }
    }

    async fn look_at(&self, contact: &Contact, id: &str, look: &Look) -> LookOutcome {
        let tenant = contact.tenant.as_deref();
        let frame = TaskFrame { request_id: REQUEST_ID, task_id: id, tenant };
        let build = |dialect| request::get(dialect, &frame, Some(HISTORY));
        let called = self.call::<TaskAnswer>(contact, told(look), &build, look.not_after()).await;
        match self.taken(called.got, TaskAnswer::into_task) {
            Taken::Task(task) if task.id == id => LookOutcome::Task(task),
            Taken::Task(_) => LookOutcome::Nothing { code: ReasonCode::InvalidResponse, after: None },
            Taken::Error(ErrorClass::TaskNotFound, _) => LookOutcome::NotFound,
            Taken::Error(class, _) if cannot_be_asked(class) => LookOutcome::Unsupported,
            Taken::Error(_, after) => LookOutcome::Nothing { code: ReasonCode::SendRefused, after },
            Taken::Nothing { code, after } => LookOutcome::Nothing { code, after },
        }
    }

    async fn list(&self, contact: &Contact, context: ContextId, look: &Look) -> LookOutcome {
        if contact.dialect != Dialect::V1_0 {
            return LookOutcome::Unsupported;
        }
        let (ours, mut page, mut found) = (context.to_string(), None::<String>, Vec::new());
        for _ in 0..MOST_PAGES {
            let frame = ListFrame {
                request_id: REQUEST_ID,
                context_id: Some(&ours),
                status_after: None,
                page_size: Some(100),
                page_token: page.as_deref(),
                tenant: contact.tenant.as_deref(),
            };
            let build = |_| request::list(&frame);
            // A listing exists in one dialect only: no other one is tried.
            let fixed = contact.pinned();
            let called = self.call::<ListAnswer>(&fixed, told(look), &build, look.not_after()).await;
            let echoes_and_listing = match called.got {
                Got::Answered { status, echoes, read: Ok(ListAnswer::Tasks(l)), .. }
                    if outcome::status(status) == Status::Fine =>
                {
                    (echoes, l)
                }
                Got::Answered { status, read: Ok(ListAnswer::Error(e)), .. }
                    if cannot_be_asked(e.class(Some(status.as_u16()))) =>
                {
                    return LookOutcome::Unsupported;
                }
                other => {
                    let (code, after) = nothing(&other);
                    return LookOutcome::Nothing { code, after };
                }
            };
            let (echoes, listing) = echoes_and_listing;
            // Some servers ignore the filter: only what names our conversation is ours.
            let in_ours = listing.tasks.iter().filter(|t| t.context_id.as_deref() == Some(ours.as_str()));
            found.extend(in_ours.filter_map(|t| outcome::task(t, &self.payload, &echoes).ok()));
            page = listing.next_page_token.filter(|t| !t.is_empty());
            if page.is_none() {
                break;
            }
        }
        LookOutcome::Tasks(found)
    }

    /// A task out of an answer, or why there is none.
    fn taken<A>(&self, got: Got<A>, into: impl FnOnce(A) -> Result<exeat_wire::TaskView, RpcError>) -> Taken {
        match got {
            Got::Answered { status, retry_after, echoes, read: Ok(answer) } => {
                let after = outcome::pause(retry_after.as_deref());
                let refused = Taken::Nothing { code: ReasonCode::SendRefused, after };
                match into(answer) {
                    Err(e) if outcome::is_rpc(&e) => Taken::Error(e.class(Some(status.as_u16())), after),
                    Err(_) => refused,
                    Ok(_) if outcome::status(status) != Status::Fine => refused,
                    Ok(view) => match outcome::task(&view, &self.payload, &echoes) {
                        Ok(task) => Taken::Task(task),
                        Err(code) => Taken::Nothing { code, after: None },
                    },
                }
            }
            other => {
                let (code, after) = nothing(&other);
                Taken::Nothing { code, after }
            }
        }
    }
}

/// The tokens that the agent has of us: what it shows of them is taken out.
fn told(look: &Look) -> Vec<SecretString> {
    look.told().iter().map(|t| SecretString::from(t.token.clone())).collect()
}

enum Taken {
    Task(ForeignTask),
    Error(ErrorClass, Option<Span>),
    Nothing { code: ReasonCode, after: Option<Span> },
}

trait IntoTask {
    fn into_task(self) -> Result<exeat_wire::TaskView, RpcError>;
}

impl IntoTask for TaskAnswer {
    fn into_task(self) -> Result<exeat_wire::TaskView, RpcError> {
        match self {
            Self::Task(view) => Ok(view),
            Self::Error(e) => Err(e),
        }
    }
}

const fn cannot_be_asked(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::MethodNotFound | ErrorClass::Unsupported | ErrorClass::VersionNotSupported)
}

/// Why a contact that carries no content brought nothing, and how long the agent wants to be left alone.
fn nothing<A>(got: &Got<A>) -> (ReasonCode, Option<Span>) {
    match got {
        Got::NotSent(why) => (outcome::code_of(why), None),
        Got::Ambiguous(_) => (ReasonCode::InvalidResponse, None),
        Got::Unusable(u) => (outcome::unusable_code(u), outcome::pause(u.retry_after.as_deref())),
        Got::Answered { status, retry_after, .. } => {
            let code = match outcome::status(*status) {
                Status::Fine => ReasonCode::InvalidResponse,
                Status::Busy | Status::Refused | Status::Broke => ReasonCode::SendRefused,
            };
            (code, outcome::pause(retry_after.as_deref()))
        }
    }
}

fn error_line(e: &RpcError, status: u16) -> String {
    let code = e.code.map_or_else(|| "without a code".to_owned(), |c| c.to_string());
    format!("the agent answered error {code} (HTTP {status}): {}", e.message)
}

#[async_trait]
impl Transport for A2a {
    async fn send(&self, exeat: Exeat) -> SendReport {
        let (parcel, not_after) = (exeat.parcel(), exeat.not_after());
        // The stored bytes were held to their digest before; what doesn't read is no payload of ours.
        let Ok(payload) = Payload::from_bytes(&parcel.payload) else {
            return SendReport::bare(
                SendOutcome::Impossible(ReasonCode::Tampered),
                "the payload doesn't read",
            );
        };
        match self.choose(parcel, not_after).await {
            Ok(chosen) => self.deliver(parcel, &payload, &chosen, not_after).await,
            Err(stopped) => *stopped,
        }
    }

    async fn look(&self, look: Look) -> LookOutcome {
        let contact = match self.contact(look.org(), look.address(), look.not_after()).await {
            Ok(contact) => contact,
            Err(code) => return LookOutcome::Nothing { code, after: None },
        };
        match look.ask() {
            LookFor::Task(id) => self.look_at(&contact, id, &look).await,
            LookFor::Context(context) => self.list(&contact, *context, &look).await,
        }
    }

    async fn cancel(&self, permit: CancelPermit) -> CancelOutcome {
        let contact = self.contact(permit.org(), permit.address(), permit.not_after()).await;
        let Ok(contact) = contact else {
            return CancelOutcome::Nothing { after: None };
        };
        let tenant = contact.tenant.as_deref();
        let frame = TaskFrame { request_id: REQUEST_ID, task_id: permit.task(), tenant };
        let build = |dialect| request::cancel(dialect, &frame);
        let called = self.call::<TaskAnswer>(&contact, Vec::new(), &build, permit.not_after()).await;
        match self.taken(called.got, TaskAnswer::into_task) {
            Taken::Task(task) if task.id == permit.task() => CancelOutcome::Task(task),
            Taken::Task(_) => CancelOutcome::Nothing { after: None },
            Taken::Error(ErrorClass::TaskNotFound | ErrorClass::TaskNotCancelable, _) => CancelOutcome::Over,
            Taken::Error(class, _) if cannot_be_asked(class) => CancelOutcome::Over,
            Taken::Error(_, after) => CancelOutcome::Nothing { after },
            Taken::Nothing { after, .. } => CancelOutcome::Nothing { after },
        }
    }

    async fn scrubbed(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        tokens: &[String],
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let entry = entry_of(agent).ok()?;
        let shown = self.present(org, agent, &entry, &entry.registered).await.ok()?;
        let tokens: Vec<SecretString> = tokens.iter().cloned().map(SecretString::from).collect();
        let echoes = Echoes::of(tokens.iter().chain(shown.iter().map(Presented::secret)));
        Some(echoes.scrub(bytes.into()).into())
    }
}

/// The interface in the record's words.
fn recorded(interface: &exeat_wire::Interface) -> Interface {
    Interface {
        url: interface.url.clone(),
        binding: interface.binding.name().to_owned(),
        version: interface.version.clone(),
        tenant: interface.tenant.clone(),
    }
}
