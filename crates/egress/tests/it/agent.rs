//! An agent of exact answers, an entry for it, and permits.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use exeat_core::gate::exeat::{
    self, Address, AttemptId, AttemptLease, Bound, CancelPermit, Claim, Exeat, Interface, Look, LookFor,
    Parcel,
};
use exeat_core::id::{CallbackId, HopId, Ids, MessageId, OrgName};
use exeat_core::label::Levels;
use exeat_core::payload::Payload;
use exeat_core::registry::{
    AgentEntry, AgentStatus, CallbackTrust, ContextChoice, Credential, Dedup, Posture, Price, ProtocolPin,
    Provider, PushChoice, Terms,
};
use exeat_core::time::{Monotonic, Span, Timestamp};
use exeat_egress::a2a::{A2a, Settings};
use exeat_egress::address::Addresses;
use exeat_egress::credential::{Credentials, Grant, Towards};
use exeat_egress::resolve::{Resolver, Table};
use exeat_egress::target::{Origins, Platform};
use serde_json::{Value, json};

use crate::peers::{Identity, Peer, ok};

pub(crate) const LATER: Monotonic = Monotonic(3_600_000_000);

/// The card of an interface list, with `{base}` standing for the agent's own origin.
pub(crate) fn card_1_0(extra: &Value) -> Value {
    let mut card = json!({
        "name": "p", "description": "", "version": "1", "capabilities": {}, "skills": [],
        "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
        "supportedInterfaces": [{ "url": "{base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    });
    for (k, v) in extra.as_object().unwrap() {
        card[k] = v.clone();
    }
    card
}
pub(crate) fn card_0_3(extra: &Value) -> Value {
    let mut card = json!({
        "name": "p", "protocolVersion": "0.3.0", "version": "1", "url": "{base}/rpc",
        "preferredTransport": "JSONRPC", "skills": [], "capabilities": {},
        "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
    });
    for (k, v) in extra.as_object().unwrap() {
        card[k] = v.clone();
    }
    card
}

pub(crate) fn rpc_ok(result: &Value) -> String {
    ok(&json!({ "jsonrpc": "2.0", "id": "1", "result": result }).to_string())
}
pub(crate) fn rpc_error(code: i64, message: &str) -> String {
    ok(&json!({ "jsonrpc": "2.0", "id": "1", "error": { "code": code, "message": message } }).to_string())
}
pub(crate) fn status(code: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {code} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}
pub(crate) fn working() -> Value {
    json!({ "task": { "id": "t1", "contextId": "c1", "status": { "state": "TASK_STATE_WORKING" } } })
}

/// Serves a card at the current well-known path and answers calls.
pub(crate) struct Agent {
    pub(crate) peer: Peer,
    card: Arc<Mutex<Value>>,
}

impl Agent {
    /// `say` is given the request's body and answers with a whole HTTP response; an empty one closes.
    pub(crate) fn new(card: Value, say: impl Fn(&Value) -> String + Send + Sync + 'static) -> Self {
        let card = Arc::new(Mutex::new(card));
        let own = Arc::clone(&card);
        Self::routed(card, move |path, request| match path {
            "/.well-known/agent-card.json" => Some(ok(&own.lock().unwrap().to_string())),
            _ => request.starts_with("POST").then(|| say(&body(request))),
        })
    }
    /// Answers 404 where `route` has nothing; `{base}` in an answer becomes the agent's origin.
    pub(crate) fn by_path(route: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::routed(Arc::default(), route)
    }
    /// Under TLS, as `identity`; every GET is answered with the card.
    pub(crate) fn tls(
        identity: &Identity,
        card: Value,
        say: impl Fn(&Value) -> String + Send + Sync + 'static,
    ) -> Self {
        let (kept, own) = (Arc::new(Mutex::new(card.clone())), card.to_string());
        let peer = Peer::tls(identity, move |wire, request| {
            let host = request.lines().find_map(|l| l.strip_prefix("host: ")).unwrap();
            let said = if request.starts_with("GET") {
                ok(&own.replace("{base}", &format!("https://{host}")))
            } else {
                say(&body(request))
            };
            drop(wire.write_all(said.as_bytes()));
        });
        Self { peer, card: kept }
    }
    fn routed(
        card: Arc<Mutex<Value>>,
        route: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let peer = Peer::new(move |wire, request| {
            let path = request.split(' ').nth(1).unwrap();
            let host = request.lines().find_map(|l| l.strip_prefix("host: ")).unwrap();
            let answer = route(path, request).unwrap_or_else(|| status(404, "", "nothing here"));
            let answer = match answer.split_once("\r\n\r\n") {
                Some((head, said)) if said.contains("{base}") => {
                    let said = said.replace("{base}", &format!("http://{host}"));
                    let first = head.lines().next().unwrap();
                    format!("{first}\r\nContent-Length: {}\r\n\r\n{said}", said.len())
                }
                _ => answer,
            };
            drop(wire.write_all(answer.as_bytes()));
        });
        Self { peer, card }
    }
    pub(crate) fn set_card(&self, card: Value) {
        *self.card.lock().unwrap() = card;
    }
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.peer.address)
    }
    pub(crate) fn entry(&self) -> AgentEntry {
        entry(&self.base())
    }
    pub(crate) fn rpc(&self) -> Interface {
        interface(&format!("{}/rpc", self.base()), "1.0")
    }
    /// Bodies of the calls.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.peer.requests().iter().filter(|r| r.starts_with("POST")).map(|r| body(r)).collect()
    }
    /// Paths of the GETs.
    pub(crate) fn gets(&self) -> Vec<String> {
        let requests = self.peer.requests();
        let gets = requests.iter().filter(|r| r.starts_with("GET"));
        gets.map(|r| r.split(' ').nth(1).unwrap().to_owned()).collect()
    }
}

pub(crate) fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

pub(crate) fn interface(url: &str, version: &str) -> Interface {
    Interface {
        url: url.to_owned(),
        binding: "JSONRPC".to_owned(),
        version: version.to_owned(),
        tenant: None,
    }
}

/// A plaintext entry that lists loopback.
pub(crate) fn entry(url: &str) -> AgentEntry {
    let levels = Levels::default();
    let label = levels.parse("internal").unwrap();
    let posture = Posture {
        url: url.to_owned(),
        provider: Provider::A2a,
        protocol: ProtocolPin::Auto,
        skills: BTreeSet::new(),
        credential: None,
        allow_origins: BTreeSet::new(),
        plaintext: true,
        allow_cidrs: ["127.0.0.0/8".to_owned()].into(),
        ceiling: label.clone(),
        output_label: label,
        region: None,
        callback_trust: CallbackTrust::Confirm,
        token_in_query: false,
    };
    let terms = Terms {
        price: Price::default(),
        deadline: None,
        max_in_flight: 16,
        push: PushChoice::Auto,
        context: ContextChoice::Auto,
        dedup: Dedup::None,
    };
    AgentEntry {
        key: "auditor".parse().unwrap(),
        version: 1,
        status: AgentStatus::Active,
        origin: exeat_egress::entry::origin_of(url).unwrap().to_string(),
        posture,
        terms,
        written_by: "k".parse().unwrap(),
        signed_by: vec![],
        halted: false,
    }
}

/// The transport and its clock.
pub(crate) struct World {
    pub(crate) a2a: A2a,
    pub(crate) clock: Arc<AtomicU64>,
    pub(crate) secret: Arc<Mutex<Option<String>>>,
}

impl World {
    /// Reaches loopback; every variable is granted and resolves to `secret`.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::asking(Arc::new(Table::default()), change)
    }
    pub(crate) fn asking(resolver: Arc<dyn Resolver>, change: impl FnOnce(&mut Settings)) -> Self {
        let addresses = Addresses { allow: vec!["127.0.0.0/8".parse().unwrap()], ..Addresses::default() };
        let platform = Platform { origins: Origins::Any, ports: vec![443], addresses };
        let mut settings = Settings { platform, ..Settings::default() };
        change(&mut settings);
        let clock = Arc::new(AtomicU64::new(0));
        let secret = Arc::new(Mutex::new(Some("tok-1".to_owned())));
        let (reads, held) = (Arc::clone(&clock), Arc::clone(&secret));
        let grant = Grant { org: org(), handles: "env:*".parse().unwrap(), towards: Towards::Registered };
        let credentials = Credentials::new(
            vec![grant],
            Arc::new(move |_| held.lock().unwrap().clone().map(Into::into)),
            "/nonexistent".into(),
        );
        let a2a = A2a::new(
            settings,
            resolver,
            credentials,
            Arc::new(move || Monotonic(reads.load(Ordering::SeqCst))),
        );
        Self { a2a: a2a.unwrap(), clock, secret }
    }
    pub(crate) fn pass(&self, span: Span) {
        self.clock.fetch_add(span.micros(), Ordering::SeqCst);
    }
}

pub(crate) fn org() -> OrgName {
    "main".parse().unwrap()
}
fn ids() -> Ids {
    Ids::new(Timestamp::of_micros(1_700_000_000_000_000), [3; 32])
}
pub(crate) fn message_id() -> MessageId {
    MessageId::draw(&mut ids())
}

pub(crate) fn bearer() -> Option<Credential> {
    Some(Credential::Bearer { from: "env:TOKEN".to_owned().try_into().unwrap() })
}

/// A first message, bound to the registered origin.
pub(crate) fn parcel(agent: AgentEntry) -> Parcel {
    let mut ids = ids();
    let attempt = AttemptId {
        org: org(),
        hop: HopId::draw(&mut ids),
        turn: 1,
        n: 1,
        callback: CallbackId::draw(&mut ids),
    };
    Parcel {
        attempt,
        bound: Bound::Origin(agent.origin.clone()),
        agent: Arc::new(agent),
        payload: Payload::of_text("hi").bytes().into(),
        message_id: message_id(),
        context_id: None,
        foreign: None,
        skill: None,
        push: None,
    }
}

pub(crate) fn exeat(parcel: Parcel) -> Exeat {
    exeat_until(parcel, LATER)
}
pub(crate) fn exeat_until(parcel: Parcel, not_after: Monotonic) -> Exeat {
    exeat::pass(AttemptLease::receipted(parcel.attempt.clone()), parcel, not_after).unwrap()
}

fn address(agent: AgentEntry, at: Bound) -> Address {
    Address { hop: HopId::draw(&mut ids()), agent: Arc::new(agent), at, door: None }
}
pub(crate) fn look(agent: AgentEntry, interface: Interface, ask: LookFor) -> Look {
    look_at(agent, Bound::Interface(interface), ask)
}
pub(crate) fn look_at(agent: AgentEntry, at: Bound, ask: LookFor) -> Look {
    exeat::look(Claim::receipted(org(), 1), address(agent, at), ask, LATER, Vec::new())
}
pub(crate) fn cancel(agent: AgentEntry, interface: Interface, task: &str) -> CancelPermit {
    let address = address(agent, Bound::Interface(interface));
    exeat::cancel(Claim::receipted(org(), 1), address, task.to_owned(), LATER)
}
