//! `/metrics`: numbers for whoever watches over the server, in the text format of Prometheus (OpenMetrics).
//!
//! Promises: every label is a closed set of words of ours; no org, agent, role or task is ever one, and no content
//! is shown. It needs a key all the same: how much is going on is nobody's business at a door that faces agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use exeat_core::ports::{Crowd, Unreadable, Vitals};
use exeat_core::time::Timestamp;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::auth::Reader;
use crate::problem::Problem;

pub mod metered;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Its door.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/metrics", get(show))
}

macro_rules! label {
    ($(#[$doc:meta])* $set:ident.$member:ident: $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$each])* $variant,)* }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                EncodeLabelValue::encode(&self.as_str(), encoder)
            }
        }

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $set { $member: $name }
    };
}

label! {
    /// How a send came out.
    Sent.outcome: Attempt {
        /// With a task or a message.
        Answered = "answered",
        /// Nothing left.
        NotSent = "not_sent",
        /// The agent said no.
        Refused = "refused",
        /// Nobody knows.
        Ambiguous = "ambiguous",
        /// Nothing would come of it, whatever is tried.
        Impossible = "impossible",
        /// The answer is of no use.
        Unusable = "unusable",
        /// The card offers another interface than the decision was bound to.
        OtherInterface = "other_interface",
    }
}
label! {
    /// How a look came out.
    Looked.outcome: Look {
        /// The task.
        Task = "task",
        /// The tasks of a conversation.
        Tasks = "tasks",
        /// The agent doesn't know it.
        NotFound = "not_found",
        /// The agent can't be asked that.
        Unsupported = "unsupported",
        /// No usable answer.
        Nothing = "nothing",
    }
}
label! {
    /// How a cancel came out.
    Canceled.outcome: Cancel {
        /// The task as it stands after it.
        Task = "task",
        /// Nothing more to do.
        Over = "over",
        /// No usable answer.
        Nothing = "nothing",
    }
}
label! {
    /// What who pushes is told.
    Pushed.answer: Callback {
        /// 202.
        Accepted = "accepted",
        /// 404.
        NotFound = "not_found",
        /// 413.
        TooLarge = "too_large",
        /// 429.
        TooMany = "too_many",
        /// 503.
        Unavailable = "unavailable",
    }
}
label! {
    /// What became of a change set.
    Committed.outcome: Commit {
        /// It is durable.
        Durable = "durable",
        /// Others were faster, or it was there already.
        Moved = "moved",
        /// A budget doesn't cover it.
        OverBudget = "over_budget",
        /// The disk is full.
        DiskFull = "disk_full",
        /// The store isn't to be had.
        Unavailable = "unavailable",
        /// Nobody knows.
        Unknown = "unknown",
        /// A fault of ours.
        Wrong = "wrong",
    }
}
label! {
    /// The state of an open hop; one that waits for a person is an approval.
    InState.state: HopState {
        /// To be sent.
        Ready = "ready",
        /// An attempt is out.
        Sending = "sending",
        /// Nobody knows whether the message arrived.
        SendUnknown = "send_unknown",
        /// The agent is at work.
        Working = "working",
        /// It asks.
        InputRequired = "input_required",
        /// It wants to be authorised.
        AuthRequired = "auth_required",
    }
}

type Seconds = Gauge<f64, AtomicU64>;
type Number = Gauge<i64, AtomicI64>;

/// A number of things, and how old the oldest is.
#[derive(Default)]
struct Shown {
    count: Number,
    oldest: Seconds,
}

impl Shown {
    fn register(&self, registry: &mut Registry, name: &str, what: &str) {
        registry.register(name, what, self.count.clone());
        let help = format!("{what}: age of the oldest, in seconds");
        registry.register(format!("{name}_oldest_seconds"), help, self.oldest.clone());
    }

    fn set(&self, crowd: Crowd, now: Timestamp) {
        self.count.set(number(crowd.count));
        self.oldest.set(age(crowd, now));
    }
}

/// All that is counted, and what is read when it is asked for.
pub struct Metrics {
    registry: Registry,
    attempts: Family<Sent, Counter>,
    looks: Family<Looked, Counter>,
    cancels: Family<Canceled, Counter>,
    callbacks: Family<Pushed, Counter>,
    commits: Family<Committed, Counter>,
    commit_seconds: Histogram,
    batch_sets: Histogram,
    rows: Counter,
    hops: Family<InState, Number>,
    hop_oldest: Family<InState, Seconds>,
    ready: Shown,
    leased: Shown,
    inbox: Shown,
    approvals: Shown,
    dead_letters: Shown,
    tasks: Number,
    out: Number,
    failures: Number,
    sweep_lag: Seconds,
    sweep_silent: Seconds,
    records: Number,
    disk_free: Number,
    /// Did the last commit fail for a reason of the store's?
    failing: std::sync::atomic::AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        // From 50 µs to 26 s.
        let commit_seconds = Histogram::new(exponential_buckets(0.000_05, 2.0, 20));
        let batch_sets = Histogram::new(exponential_buckets(1.0, 2.0, 8));
        let mut m = Self {
            registry: Registry::with_prefix("exeat"),
            attempts: Family::default(),
            looks: Family::default(),
            cancels: Family::default(),
            callbacks: Family::default(),
            commits: Family::default(),
            commit_seconds,
            batch_sets,
            rows: Counter::default(),
            hops: Family::default(),
            hop_oldest: Family::default(),
            ready: Shown::default(),
            leased: Shown::default(),
            inbox: Shown::default(),
            approvals: Shown::default(),
            dead_letters: Shown::default(),
            tasks: Number::default(),
            out: Number::default(),
            failures: Number::default(),
            sweep_lag: Seconds::default(),
            sweep_silent: Seconds::default(),
            records: Number::default(),
            disk_free: Number::default(),
            failing: std::sync::atomic::AtomicBool::new(false),
        };
        m.register();
        m
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("attempts", "Sends to foreign agents, by how they came out", self.attempts.clone());
        r.register("looks", "Looks at foreign agents, by how they came out", self.looks.clone());
        r.register("cancels", "Cancels at foreign agents, by how they came out", self.cancels.clone());
        r.register("callbacks", "Pushes of foreign agents, by what they were told", self.callbacks.clone());
        r.register("commits", "Change sets, by what became of them", self.commits.clone());
        r.register(
            "commit_seconds",
            "From a change set's hand-in to its receipt",
            self.commit_seconds.clone(),
        );
        r.register("commit_batch_sets", "Change sets in one transaction", self.batch_sets.clone());
        r.register("commit_rows", "Rows written by transactions that hold", self.rows.clone());
        r.register("hops", "Open hops to foreign agents, by state", self.hops.clone());
        let oldest = "Age of the oldest open hop, by state, in seconds";
        r.register("hops_oldest_seconds", oldest, self.hop_oldest.clone());
        self.ready.register(r, "work_ready", "Work that waits for a worker");
        self.leased.register(r, "work_leased", "Work that a worker has");
        self.inbox.register(r, "inbox_events", "Pushed events that nobody acted on yet");
        self.approvals.register(r, "approvals_pending", "Approvals that wait for a person");
        self.dead_letters.register(r, "dead_letters", "Items that gave up");
        r.register("tasks_open", "Tasks that aren't over", self.tasks.clone());
        r.register("contacts_out", "Contacts with foreign agents that are out now", self.out.clone());
        r.register("walk_failures", "Walks that failed since the start", self.failures.clone());
        let lag = "How long the row that is due longest has been waiting, in seconds";
        r.register("sweep_lag_seconds", lag, self.sweep_lag.clone());
        r.register("sweep_silent_seconds", "Since the sweep last went round", self.sweep_silent.clone());
        r.register("ledger_records", "Records in the ledger", self.records.clone());
        r.register("disk_free_bytes", "Room on the disk of the store; -1: unknown", self.disk_free.clone());
        // A series that isn't there can't be told from one that stands at nothing.
        Attempt::ALL.iter().for_each(|o| drop(self.attempts.get_or_create(&Sent { outcome: *o })));
        Look::ALL.iter().for_each(|o| drop(self.looks.get_or_create(&Looked { outcome: *o })));
        Cancel::ALL.iter().for_each(|o| drop(self.cancels.get_or_create(&Canceled { outcome: *o })));
        Callback::ALL.iter().for_each(|a| drop(self.callbacks.get_or_create(&Pushed { answer: *a })));
        Commit::ALL.iter().for_each(|o| drop(self.commits.get_or_create(&Committed { outcome: *o })));
    }

    /// A send came back.
    pub fn attempt(&self, outcome: Attempt) {
        self.attempts.get_or_create(&Sent { outcome }).inc();
    }

    /// A look came back.
    pub fn look(&self, outcome: Look) {
        self.looks.get_or_create(&Looked { outcome }).inc();
    }

    /// A cancel came back.
    pub fn cancel(&self, outcome: Cancel) {
        self.cancels.get_or_create(&Canceled { outcome }).inc();
    }

    /// A push was answered.
    pub fn callback(&self, answer: Callback) {
        self.callbacks.get_or_create(&Pushed { answer }).inc();
    }

    /// A change set came back.
    pub fn commit(&self, outcome: Commit, seconds: f64) {
        let of_the_store = matches!(outcome, Commit::DiskFull | Commit::Unavailable | Commit::Unknown);
        self.failing.store(of_the_store, Ordering::Relaxed);
        self.commits.get_or_create(&Committed { outcome }).inc();
        self.commit_seconds.observe(seconds);
    }

    /// A transaction held so many change sets, and wrote so many rows.
    pub fn batch(&self, sets: usize, rows: u64) {
        self.rows.inc_by(rows);
        self.batch_sets.observe(f64::from(u32::try_from(sets).unwrap_or(u32::MAX)));
    }

    /// Did the last commit fail for a reason of the store's?
    #[must_use]
    pub fn store_fails(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    fn read(&self, vitals: &Vitals, now: Timestamp) {
        for state in HopState::ALL {
            let crowd = vitals.hops.get(state.as_str()).copied().unwrap_or_default();
            self.hops.get_or_create(&InState { state: *state }).set(number(crowd.count));
            self.hop_oldest.get_or_create(&InState { state: *state }).set(age(crowd, now));
        }
        let ready = vitals.ready.values().fold(Crowd::default(), |sum, c| Crowd {
            count: sum.count + c.count,
            oldest: [sum.oldest, c.oldest].into_iter().flatten().min(),
        });
        self.ready.set(ready, now);
        self.leased.set(vitals.leased, now);
        self.inbox.set(vitals.inbox, now);
        self.approvals.set(vitals.approvals, now);
        self.dead_letters.set(vitals.dead_letters, now);
        self.tasks.set(number(vitals.tasks));
    }
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Seconds, to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "a double holds microseconds exactly for 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
}

fn age(crowd: Crowd, now: Timestamp) -> f64 {
    crowd.oldest.map_or(0.0, |oldest| seconds(now.since(oldest).micros()))
}

/// How long the row that is due longest has been waiting, in microseconds.
///
/// # Errors
/// If the record can't be asked.
pub async fn sweep_lag(app: &App) -> Result<u64, Unreadable> {
    let (now, next) = (app.ports.store.now().await?, app.ports.store.next_due().await?);
    Ok(next.filter(|due| *due < now).map_or(0, |due| now.since(due).micros()))
}

async fn show(State(app): State<Arc<App>>, Reader(caller): Reader) -> Result<Response, Problem> {
    let m = &app.metrics;
    let now = app.ports.store.now().await?;
    m.read(&app.archive.vitals(caller.org()).await?, now);
    m.sweep_lag.set(seconds(sweep_lag(&app).await?));
    let silent = app.runtime.swept_at().map_or(0, |at| app.ports.clock.monotonic().left(at).micros());
    m.sweep_silent.set(seconds(silent));
    m.out.set(i64::from(app.runtime.bulkheads().out()));
    m.failures.set(i64::from(app.runtime.failures()));
    m.records.set(number(app.archive.head(caller.org()).await?.size));
    m.disk_free.set(app.disk.free_bytes().map_or(-1, number));
    let mut text = String::new();
    encode(&mut text, &m.registry).map_err(|e| Problem::internal(&e))?;
    Ok((StatusCode::OK, [(CONTENT_TYPE, TEXT)], text).into_response())
}
