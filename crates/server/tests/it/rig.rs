//! A whole server without sockets: real router, real walks, the record in memory, a clock that tests move,
//! and a transport that says what the test tells it to.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use exeat_core::change::{ChangeSet, PolicyRow, Row, WorkflowRow, Write};
use exeat_core::gate::exeat::{CancelPermit, Exeat, Interface, Look, Parcel};
use exeat_core::id::{ChangeId, Ids, OrgName};
use exeat_core::key::{CALLBACK_KEYS, CallbackKey, KeyState, Kid, Purpose, Ring, Root, derive};
use exeat_core::label::Levels;
use exeat_core::ledger::LedgerKey;
use exeat_core::payload::{Payload, Sha256Digest};
use exeat_core::ports::{Archive, Clock, Entropy, Store};
use exeat_core::principal::{ApiKey, KeyScope};
use exeat_core::registry::{
    AgentEntry, AgentStatus, Bounds, CallbackTrust, ContextChoice, Dedup, EgressMode, OrgDefaults, Posture,
    Price, ProtocolPin, Provider, PushChoice, RoleEntry, Terms,
};
use exeat_core::time::{Monotonic, Span, Timestamp};
use exeat_core::transport::{
    CancelOutcome, ForeignState, ForeignTask, LookOutcome, SendOutcome, SendReport, Transport,
};
use exeat_core::walk::Ports;
use exeat_core::workflow::Workflow;
use exeat_server::app::{App, Settings, Switches};
use exeat_server::disk::Disk;
use exeat_server::keyring::Keyring;
use exeat_server::metrics::Metrics;
use exeat_server::metrics::metered::{MeteredStore, MeteredTransport};
use exeat_server::runtime::Runtime;
use exeat_server::{auth, judges};
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

/// Says what it was told to say; otherwise that the agent is at work on `t-1`.
#[derive(Default)]
pub(crate) struct Scripted {
    pub(crate) sends: Mutex<VecDeque<SendOutcome>>,
    pub(crate) looks: Mutex<VecDeque<LookOutcome>>,
    pub(crate) sent: Mutex<Vec<Parcel>>,
    pub(crate) looked: AtomicU64,
}

pub(crate) fn foreign(state: ForeignState, text: &str) -> ForeignTask {
    ForeignTask {
        id: "t-1".into(),
        context: Some("c-1".into()),
        state,
        output: Payload::of_text(text),
        message_ids: Vec::new(),
        reported_microusd: None,
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn send(&self, exeat: Exeat) -> SendReport {
        let parcel = exeat.parcel().clone();
        let outcome = self.sends.lock().unwrap().pop_front();
        let push_asked = parcel.push.is_some();
        self.sent.lock().unwrap().push(parcel);
        SendReport {
            outcome: outcome.unwrap_or_else(|| SendOutcome::Task(foreign(ForeignState::Working, ""))),
            wire: Some(Sha256Digest::of(b"wire")),
            interface: Some(Interface {
                url: "https://peer.example/a2a".into(),
                binding: "JSONRPC".into(),
                version: "1.0".into(),
                tenant: None,
            }),
            card: Some(Sha256Digest::of(b"card")),
            push_asked,
            detail: "said by the peer".into(),
        }
    }
    async fn look(&self, _: Look) -> LookOutcome {
        self.looked.fetch_add(1, Ordering::SeqCst);
        let next = self.looks.lock().unwrap().pop_front();
        next.unwrap_or_else(|| LookOutcome::Task(foreign(ForeignState::Working, "")))
    }
    async fn cancel(&self, _: CancelPermit) -> CancelOutcome {
        CancelOutcome::Over
    }
    async fn scrubbed(&self, _: &OrgName, _: &AgentEntry, _: &[String], bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}

/// A disk with as much room as a test leaves it; at first with more than anybody needs.
#[derive(Default)]
pub(crate) struct Shelf(AtomicU64);

impl Shelf {
    /// Leaves so much; 0 is as much as ever.
    pub(crate) fn leave(&self, bytes: u64) {
        self.0.store(bytes, Ordering::SeqCst);
    }
}

impl Disk for Shelf {
    fn free_bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).map(|left| if left == 0 { u64::MAX } else { left })
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
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(&self.bytes)))
    }
    /// Demands a status and gives the body.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self.json()
    }
    /// Demands a problem.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.is(status);
        assert_eq!(body["code"], code, "{body}");
        body
    }
}

/// One call to be made.
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

pub(crate) fn get(path: impl Into<String>) -> Call {
    Call { method: "GET", path: path.into(), headers: Vec::new(), body: Vec::new() }
}

pub(crate) fn post(path: impl Into<String>, body: &Value) -> Call {
    let call = Call { method: "POST", path: path.into(), headers: Vec::new(), body: body.to_string().into() };
    call.with("content-type", "application/json")
}

impl Call {
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
    pub(crate) fn key(self, key: &str) -> Self {
        let value = format!("Bearer {key}");
        self.with("authorization", &value)
    }
    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
    pub(crate) const fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }
}

pub(crate) struct Rig {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<Standing>,
    pub(crate) store: Memory,
    pub(crate) peer: Arc<Scripted>,
    pub(crate) disk: Arc<Shelf>,
    pub(crate) org: OrgName,
    router: Router,
    seeds: AtomicU64,
    /// All scopes but worker's; sees everything untagged.
    pub(crate) admin: String,
    /// Approves as `ops`.
    pub(crate) second: String,
    /// Leases for `writer` and `publisher`.
    pub(crate) worker: String,
}

pub(crate) const ASKS: &str = r#"
@id("internal") permit (principal, action == Action::"forward", resource);
@id("foreign") permit (principal, action in [Action::"a2a_egress", Action::"a2a_ingress"], resource);
@id("careful-asks") @approval("ops") @reason("Careful wants a look.")
forbid (principal, action == Action::"a2a_egress", resource == Agent::"careful");
"#;

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
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
        let root = Root::of(Zeroizing::new([7; 32]));
        let mut ring = Ring::new();
        let mut ids = Ids::new(Timestamp::EPOCH, [9; 32]);
        let own = Kid::draw(&mut ids);
        for (name, kid) in [("main", own), ("other", Kid::draw(&mut ids))] {
            let of: OrgName = name.parse().unwrap();
            let key = derive(&root, Purpose::Callback, Some(&of), 1);
            ring.insert(kid, of, Purpose::Callback, KeyState::Active, key);
        }
        let keyring = Arc::new(Keyring::new(ring));
        let runtime = Runtime::new(Span::of_secs(30));
        let peer = Arc::new(Scripted::default());
        let (metrics, disk) = (Arc::new(Metrics::default()), Arc::new(Shelf::default()));
        let public_url = "https://exeat.example".to_owned();
        let ports = Ports {
            store: Arc::new(MeteredStore {
                store: Arc::new(store.clone()),
                clock: clock.clone(),
                metrics: Arc::clone(&metrics),
            }),
            transport: Arc::new(MeteredTransport { transport: peer.clone(), metrics: Arc::clone(&metrics) }),
            governors: Arc::new(judges::Policies::default()),
            schemas: Arc::new(judges::JsonSchemas::default()),
            flows: Arc::new(judges::Workflows::default()),
            door: Arc::new(judges::CallbackDoor::new(Arc::clone(&keyring), public_url.clone())),
            rooms: runtime.bulkheads(),
            bus: Arc::new(exeat_bus::Local::new()),
            clock: clock.clone(),
            entropy: Arc::new(Counted::default()),
        };
        let all = || vec!["*".to_owned()];
        let mut settings = Settings {
            org: org.clone(),
            public_url,
            switches: Switches {
                bus: true,
                coordinator: true,
                harness: true,
                harness_roles: all(),
                harness_teams: all(),
                egress_cap: EgressMode::On,
                single_operator: true,
            },
            bounds,
            callback_body_bytes: 65_536,
            callback_per_minute: 600,
            connections: 4,
            checkpoint_every: 1_000,
            checkpoint_interval: Span::of_secs(60),
            open_tasks: 100,
            disk_reserve_bytes: 1_000,
            key_files: Vec::new(),
            checkpoint_file: "checkpoints.txt".into(),
        };
        change(&mut settings);
        let app = Arc::new(App {
            ports: ports.clone(),
            archive: Arc::new(store.clone()),
            prober: Arc::new(crate::admin_rig::Scout::default()),
            runtime: Arc::clone(&runtime),
            settings,
            keyring,
            metrics: Arc::clone(&metrics),
            disk: disk.clone(),
            quota: exeat_server::quota::Quota::default(),
            root,
            ledger_key: LedgerKey::of_seed(&[3; 32]),
            in_flight: exeat_server::idempotency::InFlight::default(),
        });
        runtime.run(ports);
        let router = exeat_server::router(Arc::clone(&app));
        let mut rig = Self {
            app,
            clock,
            store,
            peer,
            disk,
            org,
            router,
            seeds: AtomicU64::new(1_000_000),
            admin: String::new(),
            second: String::new(),
            worker: String::new(),
        };
        let listed = CallbackKey { kid: own, epoch: 1, state: KeyState::Active, retires_at: None };
        rig.write(0, Row::Setting(CALLBACK_KEYS.to_owned(), json!([listed]))).await;
        rig.seed().await;
        rig
    }

    async fn seed(&mut self) {
        use KeyScope as S;
        self.policy(1, ASKS).await;
        self.write(0, Row::Mode(EgressMode::On)).await;
        for agent in ["auditor", "careful"] {
            self.agent(agent, "confidential+eu", |_| {}).await;
        }
        let all = [S::Admin, S::Operator, S::Approver, S::Requester, S::Viewer];
        self.admin = self
            .key("admin", &all, "restricted", |k| {
                k.approver_roles.insert("ops".into());
            })
            .await;
        self.second = self
            .key("second", &[S::Approver, S::Viewer], "restricted", |k| {
                k.approver_roles.insert("ops".into());
            })
            .await;
        self.worker = self
            .key("worker", &[S::Worker], "restricted", |k| {
                k.worker_roles = ["writer", "publisher"].map(|r| r.parse().unwrap()).into();
            })
            .await;
        self.role("writer", "confidential", &["agent:auditor", "agent:careful"], &["press"]).await;
    }

    pub(crate) fn ids(&self) -> Ids {
        let n = self.seeds.fetch_add(1, Ordering::SeqCst);
        Ids::new(self.clock.now(), *Sha256Digest::of(&n.to_le_bytes()).bytes())
    }

    pub(crate) async fn write(&self, expected: u64, row: Row) {
        self.write_in(&self.org, expected, row).await;
    }

    /// Writes a row as an admin's change does: with the registry's version.
    pub(crate) async fn write_in(&self, org: &OrgName, expected: u64, row: Row) {
        let mut ids = self.ids();
        let mut set = ChangeSet::new(ChangeId::draw(&mut ids), org.clone(), self.clock.now());
        let version = self.store.version(org, &exeat_core::change::Key::Registry).await.unwrap();
        set.writes.push(Write { expected, row });
        set.writes.push(Write { expected: version, row: Row::Registry });
        self.store.commit(set).await.unwrap();
    }

    pub(crate) async fn policy(&self, version: u32, text: &str) {
        let row = PolicyRow { version, source: text.to_owned(), at: self.clock.now(), by: None };
        self.write(0, Row::Policy(row)).await;
    }

    pub(crate) async fn agent(&self, key: &str, ceiling: &str, change: impl FnOnce(&mut AgentEntry)) {
        let levels = Levels::default();
        let mut entry = AgentEntry {
            key: key.parse().unwrap(),
            version: 1,
            status: AgentStatus::Active,
            origin: format!("https://{key}.example"),
            posture: Posture {
                url: format!("https://{key}.example"),
                provider: Provider::A2a,
                protocol: ProtocolPin::Auto,
                skills: BTreeSet::new(),
                credential: None,
                allow_origins: BTreeSet::new(),
                plaintext: false,
                allow_cidrs: BTreeSet::new(),
                ceiling: levels.parse(ceiling).unwrap(),
                output_label: levels.parse("internal").unwrap(),
                region: None,
                callback_trust: CallbackTrust::Confirm,
                token_in_query: false,
            },
            terms: Terms {
                price: Price::default(),
                deadline: None,
                max_in_flight: 16,
                push: PushChoice::Auto,
                context: ContextChoice::Auto,
                dedup: Dedup::None,
            },
            written_by: "k0".parse().unwrap(),
            signed_by: vec!["k0".parse().unwrap()],
            halted: false,
        };
        change(&mut entry);
        self.write(0, Row::Agent(entry)).await;
    }

    pub(crate) async fn role(&self, name: &str, clearance: &str, may: &[&str], teams: &[&str]) {
        let entry = RoleEntry {
            name: name.parse().unwrap(),
            clearance: Levels::default().parse(clearance).unwrap(),
            may: may.iter().map(|e| e.parse().unwrap()).collect(),
            teams: teams.iter().map(|t| t.parse().unwrap()).collect(),
        };
        let key = exeat_core::change::Key::Role(entry.name.clone());
        let version = self.store.version(&self.org, &key).await.unwrap();
        self.write(version, Row::Role(entry)).await;
    }

    pub(crate) async fn workflow(&self, text: &str) {
        let flow = Workflow::parse(text, &Levels::default()).unwrap();
        let row = WorkflowRow {
            name: flow.name.clone(),
            version: 1,
            digest: flow.digest(),
            source: text.to_owned(),
            at: self.clock.now(),
            by: "k0".parse().unwrap(),
        };
        self.write(0, Row::Workflow(row)).await;
    }

    /// Makes an API key and gives its text.
    pub(crate) async fn key(
        &self,
        name: &str,
        scopes: &[KeyScope],
        clearance: &str,
        change: impl FnOnce(&mut ApiKey),
    ) -> String {
        let minted = auth::mint(&mut self.ids());
        let mut key = ApiKey {
            id: minted.id.clone(),
            org: self.org.clone(),
            name: name.to_owned(),
            hash: minted.hash.clone(),
            scopes: scopes.iter().copied().collect(),
            approver_roles: BTreeSet::new(),
            worker_roles: BTreeSet::new(),
            clearance: Levels::default().parse(clearance).unwrap(),
            minted_by: None,
            created_at: self.clock.now(),
            expires_at: None,
            revoked_at: None,
        };
        change(&mut key);
        self.write_in(&key.org.clone(), 0, Row::ApiKey(key)).await;
        minted.text.to_string()
    }

    /// The answer to a call, before its body was read.
    pub(crate) async fn open(&self, call: Call) -> http::Response<Body> {
        let mut request = Request::builder().method(call.method).uri(call.path);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        self.router.clone().oneshot(request.body(Body::from(call.body)).unwrap()).await.unwrap()
    }

    pub(crate) async fn call(&self, call: Call) -> Answer {
        let (parts, body) = self.open(call).await.into_parts();
        let bytes = in_time(body.collect()).await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    /// Starts a task as the admin.
    pub(crate) async fn start(&self, body: &Value) -> Value {
        self.call(post("/api/v1/tasks", body).key(&self.admin)).await.is(201)
    }

    pub(crate) async fn task(&self, id: &Value) -> Value {
        let path = format!("/api/v1/tasks/{}", id.as_str().unwrap());
        self.call(get(path).key(&self.admin)).await.is(200)
    }

    /// Waits until the task looks so.
    pub(crate) async fn until(&self, id: &Value, what: impl Fn(&Value) -> bool) -> Value {
        in_time(async {
            loop {
                let task = self.task(id).await;
                if what(&task) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// One lease for the writer.
    pub(crate) async fn lease(&self) -> Value {
        let body = json!({"role": "writer", "worker": "w1"});
        let leases = self.call(post("/api/v1/leases", &body).key(&self.worker)).await.is(200);
        leases["leases"][0].clone()
    }

    /// A call on a lease.
    pub(crate) async fn settle(&self, lease: &Value, call: &str, body: &Value) -> Answer {
        let path = format!("/api/v1/leases/{}/{call}", lease["lease_id"].as_str().unwrap());
        self.call(post(path, body).key(&self.worker)).await
    }

    /// Kinds and data of all ledger records.
    pub(crate) async fn records(&self) -> Vec<Value> {
        let all = self.store.records(&self.org, 1, 10_000).await.unwrap();
        all.iter().map(|r| serde_json::from_slice(&r.bytes).unwrap()).collect()
    }
}

/// Nothing here takes long; what hangs fails.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it took too long")
}
