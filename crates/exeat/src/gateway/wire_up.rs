//! From a data folder and a configuration to a running gateway, or a refusal by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_core::id::{Ids, OrgName};
use exeat_core::key::{Ring, Root};
use exeat_core::ledger::data::Governs;
use exeat_core::ports::{Archive, Clock, Entropy, Store};
use exeat_core::registry::OrgDefaults;
use exeat_core::time::{Span, Timestamp};
use exeat_core::walk::Ports;
use exeat_egress::a2a::A2a;
use exeat_egress::address::Addresses;
use exeat_egress::credential::{Credentials, Grant, Towards, process_environment};
use exeat_egress::resolve::{Dns, Resolver};
use exeat_egress::target::{Origins, Platform};
use exeat_server::app::{App, Settings};
use exeat_server::judges;
use exeat_server::keyring::Keyring;
use exeat_server::metrics::Metrics;
use exeat_server::metrics::metered::{MeteredStore, MeteredTransport};
use exeat_server::quota::Quota;
use exeat_server::runtime::Runtime;
use exeat_store::{Batch, Options, Sqlite};
use serde_json::Value;
use tokio::net::TcpListener;

use super::first_start::{self, Facts, LEDGER_KEY, ROOT_CHECK};
use super::keys::{Keys, NoKeys, StoreIs};
use super::system::{FolderDisk, SystemClock, SystemEntropy};
use crate::config::{self, BadConfig, Config};

/// The org of an embedded store.
const ORG: &str = "main";

/// Why the gateway doesn't start. Each has a code, and says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    /// The configuration.
    #[error("{0}")]
    Config(#[from] BadConfig),
    /// The data folder.
    #[error("{}: {why}", path.display())]
    Folder { path: PathBuf, why: std::io::Error },
    /// Others may put files of theirs in the place of ours.
    #[error("everybody may write to the data folder {}", .0.display())]
    Shared(PathBuf),
    /// Agents couldn't be told where to push to.
    #[error(
        "listening on every address ({0}) with an empty `server.public_url`: agents would be told to call {0}"
    )]
    NoPublicUrl(std::net::SocketAddr),
    /// The store.
    #[error("{}", with_causes(.0))]
    Store(#[from] exeat_store::OpenError),
    /// The record can't be read or written.
    #[error("{0}")]
    Record(String),
    /// Key material.
    #[error("{0}")]
    Keys(#[from] NoKeys),
    /// Another root than the one that the store was made with.
    #[error("keys/root-1 isn't the root that this store was made with")]
    OtherRoot,
    /// Another signing key than the one that signed before.
    #[error("keys/ledger-1 isn't the key that signed this store's heads before")]
    OtherLedgerKey,
    /// The listener.
    #[error("can't listen on {address}: {why}")]
    Listener { address: std::net::SocketAddr, why: std::io::Error },
    /// The clock was set back.
    #[error("the clock says {now}, and the record's newest entry is of {last}")]
    ClockBehind { last: Timestamp, now: Timestamp },
    /// The record isn't the one that the checkpoints outside it are of.
    #[error("the record has {records} records, and {} holds a checkpoint of {held} that they don't match", notes.display())]
    OlderRecord { records: u64, held: u64, notes: PathBuf },
}

impl NotStarted {
    /// A stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Config(BadConfig::Unsafe { .. }) => "unsafe_config",
            Self::Config(_) | Self::NoPublicUrl(_) => "bad_config",
            Self::Shared(_) => "data_exposed",
            Self::Folder { .. } => "data_unusable",
            Self::Store(exeat_store::OpenError::LockedByOther { .. }) => "store_locked",
            Self::Store(_) | Self::Record(_) => "store_unavailable",
            Self::Keys(NoKeys::Missing(_)) => "key_missing",
            Self::Keys(_) => "key_unusable",
            Self::OtherRoot => "other_root_key",
            Self::OtherLedgerKey => "other_ledger_key",
            Self::OlderRecord { .. } => "record_older",
            Self::ClockBehind { .. } => "clock_behind",
            Self::Listener { .. } => "listener_unusable",
        }
    }

    /// What to do.
    pub(crate) const fn next(&self) -> &'static str {
        match self {
            Self::Config(_) => "correct it where it is set: the line, the variable or the flag that is named",
            Self::Shared(_) => "take that right away (chmod o-w), after a look at what is in the folder",
            Self::NoPublicUrl(_) => {
                "set `public_url` under [server] in exeat.toml (or EXEAT_SERVER_PUBLIC_URL) to the URL that agents reach, \
                 or listen on one address"
            }
            Self::Folder { .. } => "choose a folder that this user may write to",
            Self::Store(exeat_store::OpenError::LockedByOther { .. }) => {
                "stop the other server on this folder first"
            }
            Self::Store(_) | Self::Record(_) => "see docs/guide.md, \"When it doesn't start\"",
            Self::Keys(_) | Self::OtherRoot | Self::OtherLedgerKey => {
                "restore the keys folder from its backup; it is never made anew over a store in use"
            }
            Self::OlderRecord { .. } => {
                "put the newer exeat.db back; if it is lost, move the checkpoint file away: what was recorded since \
                 is gone then, and what was sent since may be sent again"
            }
            Self::ClockBehind { .. } => {
                "set the machine's clock; if it is right, and the record was written with a clock that was ahead, wait \
                 until it has caught up"
            }
            Self::Listener { .. } => "choose another --listen, or stop what listens there",
        }
    }
}

fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        text = format!("{text}: {c}");
        cause = c.source();
    }
    text
}

/// What a gateway keeps its record in.
pub(crate) trait Record: Store + Archive {}
impl<T: Store + Archive> Record for T {}

/// Makes a record of a caller's own.
pub(crate) type MakeRecord = Box<dyn FnOnce(Arc<dyn Clock>, OrgDefaults) -> Arc<dyn Record> + Send>;

/// A gateway that is ready to serve.
pub(crate) struct Gateway {
    pub(crate) app: Arc<App>,
    pub(crate) listener: TcpListener,
    pub(crate) address: std::net::SocketAddr,
    /// The file that is to be closed at the end.
    pub(crate) file: Option<Arc<Sqlite>>,
    pub(crate) config: Config,
    pub(crate) is_first: bool,
}

/// Where to start from.
pub(crate) struct Place<'a> {
    pub(crate) data: &'a Path,
    pub(crate) config: Option<&'a Path>,
    pub(crate) listen: Option<std::net::SocketAddr>,
}

/// Opens everything, in the order in which a refusal is cheapest.
pub(crate) async fn open(place: &Place<'_>) -> Result<Gateway, NotStarted> {
    open_over(place, None).await
}

/// The same, over a record of the caller's own if there is one.
pub(crate) async fn open_over(place: &Place<'_>, own: Option<MakeRecord>) -> Result<Gateway, NotStarted> {
    let environment = std::env::vars().collect();
    make_folder(place.data)?;
    let mut config = Config::read(place.data, place.config, &environment, place.listen)?;
    if config.public_url.is_empty() && config.listen.ip().to_canonical().is_unspecified() {
        return Err(NotStarted::NoPublicUrl(config.listen));
    }
    if !config.store.exists() && place.config.is_none() {
        write_first_file(place.data, &config)?;
        config = Config::read(place.data, None, &environment, place.listen)?;
    }
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|why| NotStarted::Listener { address: config.listen, why })?;
    let address =
        listener.local_addr().map_err(|why| NotStarted::Listener { address: config.listen, why })?;
    let clock: Arc<SystemClock> = Arc::new(SystemClock::start());
    let org: OrgName = ORG.parse().map_err(|e| NotStarted::Record(format!("{e}")))?;
    let defaults = OrgDefaults {
        levels: config.levels.clone(),
        default_label: config.default_label.clone(),
        egress_cap: config.switches.egress_cap,
        bounds: Arc::clone(&config.bounds),
    };
    // What it reads of the configuration may be wrong, so it comes before anything is made.
    let transport = transport(place.data, &config, address, &org, clock.clone())?;
    let metrics = Arc::new(Metrics::default());
    let (store, file) = match own {
        Some(make) => (make(clock.clone(), defaults), None),
        None => {
            let counts = Arc::clone(&metrics);
            let on_batch = move |b: Batch| counts.batch(b.sets, b.rows);
            let options = Options { on_batch: Some(Arc::new(on_batch)), ..Options::default() };
            let file = Sqlite::open(&config.store, org.clone(), defaults, clock.clone(), options).await?;
            (Arc::clone(&file) as Arc<dyn Record>, Some(file))
        }
    };
    not_behind(store.as_ref(), clock.as_ref()).await?;
    let (keys, is_first) = key_material(place.data, store.as_ref(), &org, &config, clock.as_ref()).await?;
    not_older(store.as_ref(), &org, &place.data.join(&config.ledger.checkpoint_file), &keys).await?;
    let keyring = Arc::new(keyring(store.as_ref(), &org, &keys.root, clock.now()).await?);
    let app = assemble(
        place.data,
        &config,
        address,
        Arc::clone(&store),
        transport,
        org,
        keys,
        keyring,
        metrics,
        clock,
    );
    Ok(Gateway { app, listener, address, file, config, is_first })
}

/// How far the clock may be behind the record: less is waited for.
const BEHIND: Span = Span::of_secs(300);

/// A clock that was set back would write times into the ledger that nobody can hold to anything.
async fn not_behind(store: &dyn Record, clock: &dyn Clock) -> Result<(), NotStarted> {
    let last = store.now().await.map_err(|e| NotStarted::Record(e.to_string()))?;
    let now = clock.now();
    if last.since(now) > BEHIND { Err(NotStarted::ClockBehind { last, now }) } else { Ok(()) }
}

fn make_folder(data: &Path) -> Result<(), NotStarted> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    let unusable = |why| NotStarted::Folder { path: data.to_owned(), why };
    made.map_err(unusable)?;
    // Whoever may write to it can put another record, key or configuration in the place of ours.
    let mode = std::fs::metadata(data).map_err(unusable)?.permissions().mode();
    if mode & 0o002 != 0 {
        return Err(NotStarted::Shared(data.to_owned()));
    }
    Ok(())
}

fn write_first_file(data: &Path, config: &Config) -> Result<(), NotStarted> {
    use std::io::Write as _;
    let path = data.join("exeat.toml");
    let created = std::fs::OpenOptions::new().write(true).create_new(true).open(&path);
    match created {
        Ok(mut file) => file
            .write_all(config::first_file(config.listen).as_bytes())
            .map_err(|why| NotStarted::Folder { path, why }),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(NotStarted::Folder { path, why }),
    }
}

async fn key_material(
    data: &Path,
    store: &dyn Record,
    org: &OrgName,
    config: &Config,
    clock: &dyn Clock,
) -> Result<(Keys, bool), NotStarted> {
    let unreadable = |e: exeat_core::ports::Unreadable| NotStarted::Record(e.to_string());
    let check = store.setting(org, ROOT_CHECK).await.map_err(unreadable)?;
    let notes = data.join(&config.ledger.checkpoint_file);
    if check.is_none() && std::fs::metadata(&notes).is_ok_and(|m| m.len() > 0) {
        // A record was here before: nothing is made over what is left of it.
        not_older(store, org, &notes, &Keys::of(data, StoreIs::InUse, &SystemEntropy)?).await?;
    }
    let state = if check.is_some() { StoreIs::InUse } else { StoreIs::Empty };
    let keys = Keys::of(data, state, &SystemEntropy)?;
    match check {
        Some((Value::String(known), _)) if known == hex::encode(keys.root.check()) => {
            let signer = store.setting(org, LEDGER_KEY).await.map_err(unreadable)?;
            if signer.map(|(pem, _)| pem) != Some(Value::String(keys.ledger.public().to_pem())) {
                return Err(NotStarted::OtherLedgerKey);
            }
            note_single_operator(store, org, config).await?;
            Ok((keys, false))
        }
        Some(_) => Err(NotStarted::OtherRoot),
        None => {
            let facts = Facts {
                org,
                now: clock.now(),
                top: &config.levels.top(),
                root_check: keys.root.check(),
                ledger_key: &keys.ledger.public().to_pem(),
                single_operator: config.switches.single_operator,
            };
            let first = first_start::first(&facts, Ids::new(clock.now(), SystemEntropy.seed()));
            let written = first_start::write_files(data, &first.files);
            written.map_err(|why| NotStarted::Folder { path: data.to_owned(), why })?;
            store.commit(first.set).await.map_err(|e| NotStarted::Record(e.to_string()))?;
            Ok((keys, true))
        }
    }
}

/// An older copy of the record was put back, or another one, if it doesn't reach the newest checkpoint outside it. Going
/// on with it could send again what was sent since.
async fn not_older(store: &dyn Record, org: &OrgName, notes: &Path, keys: &Keys) -> Result<(), NotStarted> {
    let read = exeat_server::checkpoints::newest_in(notes, &keys.ledger.public());
    let held = read.map_err(|why| NotStarted::Folder { path: notes.to_owned(), why })?;
    let Some(held) = held.filter(|c| c.org == *org && c.size > 0) else { return Ok(()) };
    let unreadable = |e: exeat_core::ports::Unreadable| NotStarted::Record(e.to_string());
    let there = store.records(org, held.size, 1).await.map_err(unreadable)?;
    if there.first().is_some_and(|r| r.seq == held.size && r.hash == held.head) {
        return Ok(());
    }
    let records = store.head(org).await.map_err(unreadable)?.size;
    Err(NotStarted::OlderRecord { records, held: held.size, notes: notes.to_owned() })
}

/// Single-operator mode is recorded whenever a start finds it changed.
async fn note_single_operator(store: &dyn Record, org: &OrgName, config: &Config) -> Result<(), NotStarted> {
    const NAME: &str = "single_operator";
    let (now_on, unreadable) = (config.switches.single_operator, |e: exeat_core::ports::Unreadable| {
        NotStarted::Record(e.to_string())
    });
    let before = store.setting(org, NAME).await.map_err(unreadable)?;
    let (was_on, version) = before.map_or((None, 0), |(v, n)| (v.as_bool(), n));
    if was_on == Some(now_on) {
        return Ok(());
    }
    let now = store.now().await.map_err(unreadable)?;
    let mut ids = Ids::new(now, SystemEntropy.seed());
    let mut set =
        exeat_core::change::ChangeSet::new(exeat_core::id::ChangeId::draw(&mut ids), org.clone(), now);
    let row = exeat_core::change::Row::Setting(NAME.into(), Value::Bool(now_on));
    set.writes.push(exeat_core::change::Write { expected: version, row });
    first_start::record(&mut set, Governs::Setting, NAME, None, Some(if now_on { "on" } else { "off" }));
    store.commit(set).await.map_err(|e| NotStarted::Record(e.to_string())).map(|_| ())
}

/// The keys that the record lists, derived.
async fn keyring(
    store: &dyn Record,
    org: &OrgName,
    root: &Root,
    now: Timestamp,
) -> Result<Keyring, NotStarted> {
    let keyring = Keyring::new(Ring::new());
    let read = keyring.reload(store, root, org, now).await;
    read.map_err(|e| NotStarted::Record(e.to_string()))?;
    Ok(keyring)
}

#[expect(clippy::too_many_arguments, reason = "everything comes together here, once")]
fn assemble(
    data: &Path,
    config: &Config,
    address: std::net::SocketAddr,
    store: Arc<dyn Record>,
    transport: A2a,
    org: OrgName,
    keys: Keys,
    keyring: Arc<Keyring>,
    metrics: Arc<Metrics>,
    clock: Arc<SystemClock>,
) -> Arc<App> {
    let runtime = Runtime::new(config.bounds.send_timeout);
    let transport = Arc::new(transport);
    let public_url = match config.public_url.as_str() {
        "" => format!("http://{address}"),
        url => url.to_owned(),
    };
    let ports = Ports {
        store: Arc::new(MeteredStore {
            store: store.clone(),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        }),
        transport: Arc::new(MeteredTransport { transport: transport.clone(), metrics: Arc::clone(&metrics) }),
        governors: Arc::new(judges::Policies::default()),
        schemas: Arc::new(judges::JsonSchemas::default()),
        flows: Arc::new(judges::Workflows::default()),
        door: Arc::new(judges::CallbackDoor::new(Arc::clone(&keyring), public_url.clone())),
        rooms: runtime.bulkheads(),
        bus: Arc::new(exeat_bus::Local::new()),
        clock,
        entropy: Arc::new(SystemEntropy),
    };
    let settings = Settings {
        org,
        public_url,
        switches: config.switches.clone(),
        bounds: Arc::clone(&config.bounds),
        callback_body_bytes: config.callback_body_bytes,
        callback_per_minute: config.callback_per_minute,
        connections: exeat_server::connections_within(super::system::raised_descriptors()),
        checkpoint_every: config.ledger.checkpoint_every,
        checkpoint_interval: config.ledger.checkpoint_interval,
        open_tasks: config.open_tasks,
        disk_reserve_bytes: config.disk_reserve_bytes,
        key_files: Keys::files(data),
        checkpoint_file: data.join(&config.ledger.checkpoint_file),
    };
    Arc::new(App {
        ports,
        archive: store,
        prober: transport,
        runtime,
        settings,
        keyring,
        metrics,
        disk: Arc::new(FolderDisk(data.to_owned())),
        quota: Quota::default(),
        root: keys.root,
        ledger_key: keys.ledger,
        in_flight: exeat_server::idempotency::InFlight::default(),
    })
}

fn transport(
    data: &Path,
    config: &Config,
    address: std::net::SocketAddr,
    org: &OrgName,
    clock: Arc<SystemClock>,
) -> Result<A2a, NotStarted> {
    let bad = |key: &str, why: String| NotStarted::Config(config.bad_value(key, why));
    let egress = &config.egress;
    let origins = Origins::parse(&egress.allow_origins)
        .map_err(|(text, why)| bad("egress.allow_origins", format!("{text:?}: {why}")))?;
    let allow = egress
        .allow_cidrs
        .iter()
        .map(|c| c.parse().map_err(|e| bad("egress.allow_cidrs", format!("{c:?}: {e}"))))
        .collect::<Result<_, _>>()?;
    let grants = config
        .grants
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|g| {
            let handles = g.parse().map_err(|e| bad("credentials.grants", format!("{e}")))?;
            Ok(Grant { org: org.clone(), handles, towards: Towards::Registered })
        })
        .collect::<Result<_, NotStarted>>()?;
    let proxy = match egress.proxy.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|e| bad("egress.proxy", format!("{e}")))?),
    };
    let resolver: Arc<dyn Resolver> = match egress.dns.as_str() {
        "" => Arc::new(Dns::system().map_err(|e| bad("egress.dns", e.to_string()))?),
        text => {
            let server = text
                .parse()
                .map_err(|_| bad("egress.dns", format!("expected ADDRESS:PORT, got {text:?}")))?;
            Arc::new(Dns::server(server).map_err(|e| bad("egress.dns", e.to_string()))?)
        }
    };
    let settings = exeat_egress::a2a::Settings {
        platform: Platform {
            origins,
            ports: egress.ports.clone(),
            addresses: Addresses { allow, deny: Vec::new(), own: vec![address] },
        },
        bounds: exeat_egress::Bounds {
            connect: egress.connect_timeout,
            total: config.bounds.send_timeout,
            body_bytes: egress.response_bytes,
            ..exeat_egress::Bounds::default()
        },
        extra_roots: Vec::new(),
        proxy,
        card_ttl: egress.card_ttl,
        card_miss_ttl: egress.card_miss_ttl,
        payload: config.bounds.payload,
    };
    let credentials = Credentials::new(grants, process_environment(), data.join("credentials"));
    let monotonic: exeat_egress::MonotonicClock = Arc::new(move || clock.monotonic());
    A2a::new(settings, resolver, credentials, monotonic).map_err(|e| bad("egress", e.to_string()))
}
