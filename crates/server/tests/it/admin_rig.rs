//! A server without sockets for whoever governs: the real router and policy engine, the record in memory, a
//! clock that tests move, and no way out.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use exeat_core::change::{ChangeSet, PolicyRow, Row, Write};
use exeat_core::gate::exeat::{CancelPermit, Carry, Exeat, Look, ProbePermit};
use exeat_core::id::{ChangeId, Ids, KeyId, OrgName};
use exeat_core::key::{Ring, Root};
use exeat_core::label::Levels;
use exeat_core::ledger::LedgerKey;
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::{Clock, Entropy, Store};
use exeat_core::principal::{ApiKey, KeyScope};
use exeat_core::registry::{AgentEntry, Bounds, EgressMode, OrgDefaults};
use exeat_core::time::{Monotonic, Span, Timestamp};
use exeat_core::transport::{Auth, CancelOutcome, LookOutcome, Probed, Prober, SendReport, Transport};
use exeat_core::walk::Ports;
use exeat_server::app::{App, Settings, Switches};
use exeat_server::idempotency::InFlight;
use exeat_server::keyring::Keyring;
use exeat_server::metrics::Metrics;
use exeat_server::runtime::Runtime;
use exeat_server::{auth, judges, router};
use exeat_testkit::memory::Memory;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use zeroize::Zeroizing;

/// A clock that stands until a test moves it.
pub(crate) struct Standing(AtomicI64);

impl Standing {
    pub(crate) fn pass(&self, span: Span) {
        self.0.fetch_add(i64::try_from(span.micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::of_micros(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Monotonic {
        Monotonic(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }
}

#[derive(Default)]
struct Counted(AtomicU64);

impl Entropy for Counted {
    fn seed(&self) -> [u8; 32] {
        let n = self.0.fetch_add(1, Ordering::SeqCst);
        *Sha256Digest::of(&n.to_be_bytes()).bytes()
    }
}

/// No doors of these tests may make contact.
struct Walled;

#[async_trait]
impl Transport for Walled {
    async fn send(&self, _: Exeat) -> SendReport {
        panic!("something was sent")
    }
    async fn look(&self, _: Look) -> LookOutcome {
        panic!("something was looked at")
    }
    async fn cancel(&self, _: CancelPermit) -> CancelOutcome {
        panic!("something was canceled")
    }
    async fn scrubbed(&self, _: &OrgName, _: &AgentEntry, _: &[String], bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}

/// Says what it was told to say, or that nobody is there, and keeps what it was let to do.
#[derive(Default)]
pub(crate) struct Scout {
    pub(crate) says: Mutex<Option<Probed>>,
    pub(crate) seen: Mutex<Vec<(String, u32, Carry)>>,
}

#[async_trait]
impl Prober for Scout {
    async fn probe(&self, permit: ProbePermit) -> Probed {
        let agent = permit.agent();
        self.seen.lock().unwrap().push((agent.key.to_string(), agent.version, permit.carry()));
        self.says.lock().unwrap().clone().unwrap_or_else(nobody)
    }
}

pub(crate) fn nobody() -> Probed {
    Probed {
        reachable: false,
        card: None,
        would_use: None,
        auth: Auth::NotTried,
        push_claimed: false,
        latency: Span::ZERO,
        problems: vec!["nobody is there".to_owned()],
    }
}

/// What a call got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }
    /// Demands a status and gives the body.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }
    /// Demands a problem.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.is(status);
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        body
    }
}

/// One call to be made.
pub(crate) struct Call(http::request::Builder, Vec<u8>);

pub(crate) fn call(method: &str, path: &str) -> Call {
    Call(Request::builder().method(method).uri(path), Vec::new())
}

pub(crate) fn get(path: &str) -> Call {
    call("GET", path)
}

pub(crate) fn post(path: &str, body: &Value) -> Call {
    call("POST", path).json(body)
}

pub(crate) fn put(path: &str, body: &Value) -> Call {
    call("PUT", path).json(body)
}

impl Call {
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }
    pub(crate) fn key(self, key: &str) -> Self {
        self.with("authorization", &format!("Bearer {key}"))
    }
    pub(crate) fn body(self, media: &str, body: impl Into<Vec<u8>>) -> Self {
        let Self(request, _) = self.with("content-type", media);
        Self(request, body.into())
    }
    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }
}

pub(crate) struct Rig {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<Standing>,
    pub(crate) store: Memory,
    pub(crate) org: OrgName,
    pub(crate) scout: Arc<Scout>,
    pub(crate) router: Router,
    _folder: tempfile::TempDir,
    seeds: AtomicU64,
    /// All scopes but worker's.
    pub(crate) admin: String,
    /// A second admin, made by nobody here.
    pub(crate) second: String,
}

impl Rig {
    pub(crate) async fn several() -> Self {
        Self::new(false).await
    }

    pub(crate) async fn single() -> Self {
        Self::new(true).await
    }

    async fn new(single_operator: bool) -> Self {
        let org: OrgName = "main".parse().unwrap();
        let levels = Levels::default();
        let clock = Arc::new(Standing(AtomicI64::new(1_767_225_600_000_000)));
        let bounds = Arc::new(Bounds::default());
        let defaults = OrgDefaults {
            default_label: levels.parse("internal").unwrap(),
            levels,
            egress_cap: EgressMode::On,
            bounds: Arc::clone(&bounds),
        };
        let store = Memory::new(clock.clone(), defaults);
        let keyring = Arc::new(Keyring::new(Ring::new()));
        let runtime = Runtime::new(Span::of_secs(30));
        let folder = tempfile::tempdir().unwrap();
        let ports = Ports {
            store: Arc::new(store.clone()),
            transport: Arc::new(Walled),
            governors: Arc::new(judges::Policies::default()),
            schemas: Arc::new(judges::JsonSchemas::default()),
            flows: Arc::new(judges::Workflows::default()),
            door: Arc::new(judges::CallbackDoor::new(Arc::clone(&keyring), "http://127.0.0.1:1".to_owned())),
            rooms: runtime.bulkheads(),
            bus: Arc::new(exeat_bus::Local::new()),
            clock: clock.clone(),
            entropy: Arc::new(Counted::default()),
        };
        let all = || vec!["*".to_owned()];
        let settings = Settings {
            org: org.clone(),
            public_url: "http://127.0.0.1:1".to_owned(),
            switches: Switches {
                bus: true,
                coordinator: true,
                harness: true,
                harness_roles: all(),
                harness_teams: all(),
                egress_cap: EgressMode::On,
                single_operator,
            },
            bounds,
            callback_body_bytes: 65_536,
            callback_per_minute: 600,
            connections: 4,
            checkpoint_every: 3,
            checkpoint_interval: Span::of_secs(60),
            open_tasks: 100,
            disk_reserve_bytes: 1_000,
            key_files: Vec::new(),
            checkpoint_file: folder.path().join("checkpoints.txt"),
        };
        let scout = Arc::new(Scout::default());
        let (metrics, disk) = (Arc::new(Metrics::default()), Arc::new(crate::rig::Shelf::default()));
        let app = Arc::new(App {
            ports,
            archive: Arc::new(store.clone()),
            prober: scout.clone(),
            runtime,
            settings,
            keyring,
            metrics: Arc::clone(&metrics),
            disk: disk.clone(),
            quota: exeat_server::quota::Quota::default(),
            root: Root::of(Zeroizing::new([7; 32])),
            ledger_key: LedgerKey::of_seed(&[3; 32]),
            in_flight: InFlight::default(),
        });
        let mut rig = Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            store,
            org,
            scout,
            _folder: folder,
            seeds: AtomicU64::new(1_000_000),
            admin: String::new(),
            second: String::new(),
        };
        let starter =
            PolicyRow { version: 1, source: exeat_policy::STARTER.to_owned(), at: rig.clock.now(), by: None };
        rig.write(vec![Row::Policy(starter), Row::Registry, Row::Mode(EgressMode::Off)]).await;
        let most: Vec<_> = KeyScope::ALL.into_iter().filter(|s| *s != KeyScope::Worker).collect();
        rig.admin = rig.key("admin", &most).await;
        rig.second = rig.key("second", &[KeyScope::Admin, KeyScope::Operator]).await;
        rig
    }

    fn ids(&self) -> Ids {
        let n = self.seeds.fetch_add(1, Ordering::SeqCst);
        Ids::new(self.clock.now(), *Sha256Digest::of(&n.to_le_bytes()).bytes())
    }

    async fn write(&self, rows: Vec<Row>) {
        let mut set = ChangeSet::new(ChangeId::draw(&mut self.ids()), self.org.clone(), self.clock.now());
        set.writes = rows.into_iter().map(|row| Write { expected: 0, row }).collect();
        self.store.commit(set).await.unwrap();
    }

    /// Makes an API key and gives its text.
    pub(crate) async fn key(&self, name: &str, scopes: &[KeyScope]) -> String {
        self.key_with(name, scopes, |_| {}).await
    }

    pub(crate) async fn key_with(
        &self,
        name: &str,
        scopes: &[KeyScope],
        change: impl FnOnce(&mut ApiKey),
    ) -> String {
        let minted = auth::mint(&mut self.ids());
        let mut key = ApiKey {
            id: minted.id,
            org: self.org.clone(),
            name: name.to_owned(),
            hash: minted.hash,
            scopes: scopes.iter().copied().collect(),
            approver_roles: BTreeSet::new(),
            worker_roles: BTreeSet::new(),
            clearance: Levels::default().top(),
            minted_by: None,
            created_at: self.clock.now(),
            expires_at: None,
            revoked_at: None,
        };
        change(&mut key);
        self.write(vec![Row::ApiKey(key)]).await;
        minted.text
    }

    pub(crate) async fn call(&self, Call(request, body): Call) -> Answer {
        let request = request.body(Body::from(body)).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    /// A call by the admin.
    pub(crate) async fn admin(&self, call: Call) -> Answer {
        self.call(call.key(&self.admin)).await
    }

    /// A call by the second admin.
    pub(crate) async fn second(&self, call: Call) -> Answer {
        self.call(call.key(&self.second)).await
    }

    /// Registers an agent as the admin.
    pub(crate) async fn agent(&self, key: &str) -> Value {
        let body = json!({ "url": format!("https://{key}.example"), "ceiling": "internal" });
        let path = format!("/api/v1/agents/{key}");
        self.admin(put(&path, &body).with("if-none-match", "*")).await.is(201)
    }

    /// Signs what is shown.
    pub(crate) fn signature(agent: &Value) -> Value {
        json!({ "version": agent["version"], "posture_digest": agent["posture_digest"] })
    }

    pub(crate) fn checkpoint_file(&self) -> PathBuf {
        self.app.settings.checkpoint_file.clone()
    }

    /// Data of all records of a kind, oldest first.
    pub(crate) async fn records(&self, kind: &str) -> Vec<Value> {
        let page = self.admin(get(&format!("/api/v1/ledger?limit=200&kind={kind}"))).await.is(200);
        page["items"].as_array().unwrap().clone()
    }
}

/// The id in a key's text.
pub(crate) fn id_of(text: &str) -> KeyId {
    text.split('_').nth(1).unwrap().parse().unwrap()
}
