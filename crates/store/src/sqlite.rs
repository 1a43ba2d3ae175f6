//! The record in one SQLite file: for one org and one process.
//!
//! WAL with full sync, one writer behind a bounded queue that commits in groups, a few readers that can't
//! write. A lock file beside the database keeps every other process out. Promises the contract of the
//! ports, and beyond it that no row refers to one that isn't there. Never: waits inside a transaction for
//! anything but the disk, or answers before the commit holds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use async_trait::async_trait;
use exeat_core::bridge::{Doorway, Unread};
use exeat_core::change::{ChangeSet, DueKind, Receipt, Refused, Snapshot};
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{CallbackId, ChangeId, EnvelopeId, OrgName};
use exeat_core::ports::{Clock, DueRow, Find, Store, Unreadable};
use exeat_core::registry::{OrgDefaults, Registry};
use exeat_core::time::{Span, StoreTime, Timestamp};
use sqlx::sqlite::SqlitePool;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

mod archive;
mod claim;
mod ground;
pub mod limit;
mod load;
mod open;
mod read;
mod rows;
mod sheets;
mod sql;
#[cfg(test)]
mod tests;
mod writer;

pub use open::OpenError;

use read::{corrupt, count, doc, get, unavailable};
use writer::{Job, Want, Writer};

/// What one transaction held.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Change sets that arrived together.
    pub sets: usize,
    /// Rows written.
    pub rows: u64,
}

/// Told of each transaction that holds.
pub type OnBatch = Arc<dyn Fn(Batch) + Send + Sync>;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Reading connections at most.
    pub readers: u32,
    /// Change sets in one transaction at most.
    pub batch: usize,
    /// How many may wait for the writer before callers wait to be let in.
    pub queue: usize,
    /// Pages of 4 KiB that the file may have; beyond, the disk counts as full.
    pub max_pages: Option<u32>,
    /// Told of each transaction that holds.
    pub on_batch: Option<OnBatch>,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, batch: 128, queue: 1_024, max_pages: None, on_batch: None }
    }
}

/// The store's time, by the process's clocks.
struct Time {
    clock: Arc<dyn Clock>,
    time: Mutex<StoreTime>,
}

impl Time {
    fn new(clock: Arc<dyn Clock>, last_at: i64) -> Self {
        let time = StoreTime::after(Timestamp::of_micros(last_at), clock.monotonic());
        Self { clock, time: Mutex::new(time) }
    }

    fn now(&self) -> Timestamp {
        let (wall, read) = (self.clock.now(), self.clock.monotonic());
        self.time.lock().unwrap_or_else(PoisonError::into_inner).now(wall, read)
    }

    fn raise(&self, to: Timestamp) {
        self.time.lock().unwrap_or_else(PoisonError::into_inner).raise(to);
    }
}

/// The registry as read last; forgotten by any commit that changes what it is built from.
#[derive(Default)]
struct Cache(Mutex<(u64, Option<Arc<Registry>>)>);

impl Cache {
    fn look(&self) -> (u64, Option<Arc<Registry>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what was read, unless something changed since the reading began.
    fn keep(&self, generation: u64, registry: &Arc<Registry>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 == generation {
            held.1 = Some(Arc::clone(registry));
        }
    }

    fn forget(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = (held.0 + 1, None);
    }
}

/// An open record.
pub struct Sqlite {
    org: OrgName,
    defaults: OrgDefaults,
    incarnation: u64,
    time: Arc<Time>,
    cache: Arc<Cache>,
    readers: SqlitePool,
    jobs: RwLock<Option<mpsc::Sender<Job>>>,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens the record of `org` at `path`, and makes it if it isn't there. Its incarnation rises, and
    /// claims of earlier ones are void. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// See [`OpenError`]; the file is as it was then.
    pub async fn open(
        path: &Path,
        org: OrgName,
        defaults: OrgDefaults,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Arc<Self>, OpenError> {
        let lock = open::lock(path)?;
        open::examine(path, &org).await?;
        open::keep_private(path)?;
        let fail = |e| open::database_error(path, e);
        let mut conn = open::writer(path, &options).await.map_err(fail)?;
        open::prepare(&mut conn, path, &org).await?;
        let begun = begin(&mut conn, &org, clock.now()).await.map_err(fail)?;
        let time = Arc::new(Time::new(clock, begun.last_at));
        let cache = Arc::<Cache>::default();
        let readers = open::readers(path, &options);
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let writer = Writer {
            db: PathBuf::from(path),
            org: org.clone(),
            options,
            time: Arc::clone(&time),
            cache: Arc::clone(&cache),
            conn: Some(conn),
            batches: 0,
            lock,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the store owns its writer, and `shutdown` waits for it"
        )]
        let writer = tokio::spawn(writer.run(queue));
        Ok(Arc::new(Self {
            org,
            defaults,
            incarnation: begun.incarnation,
            time,
            cache,
            readers,
            jobs: RwLock::new(Some(jobs)),
            writer: tokio::sync::Mutex::new(Some(writer)),
        }))
    }

    /// Counts the openings of this record.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Takes nothing more, commits what is queued, and lets go of the file. Returns once another may open it.
    pub async fn shutdown(&self) {
        drop(self.jobs.write().unwrap_or_else(PoisonError::into_inner).take());
        let mut writer = self.writer.lock().await;
        self.readers.close().await;
        if let Some(writer) = writer.take()
            && let Err(e) = writer.await
        {
            tracing::error!(error = %e, "the store's writer stopped by itself");
        }
    }

    /// Hands the writer a job.
    async fn send(&self, job: Job) -> Result<(), Closed> {
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.ok_or(Closed)?.send(job).await.map_err(|_| Closed)
    }

    fn ours(&self, org: &OrgName) -> Result<(), Unreadable> {
        if *org == self.org {
            return Ok(());
        }
        Err(Unreadable::Unavailable(format!("this store holds the org {}", self.org)))
    }
}

/// The store is shutting down.
struct Closed;

impl From<Closed> for Unreadable {
    fn from(_: Closed) -> Self {
        Self::Unavailable("it is shutting down".to_owned())
    }
}

impl From<Closed> for Refused {
    fn from(_: Closed) -> Self {
        Self::Unavailable("it is shutting down".to_owned())
    }
}

struct Begun {
    incarnation: u64,
    last_at: i64,
}

/// The first transaction of an incarnation.
async fn begin(conn: &mut SqliteConnection, org: &OrgName, now: Timestamp) -> Result<Begun, sqlx::Error> {
    let mut tx = conn.begin_with(sql::BEGIN).await?;
    let incarnation: i64 =
        sqlx::query_scalar(sql::RAISE_INCARNATION).bind(org.as_str()).fetch_one(&mut *tx).await?;
    for statement in sql::VOID_CLAIMS {
        sqlx::query(statement).bind(org.as_str()).execute(&mut *tx).await?;
    }
    let last_at: Option<i64> =
        sqlx::query_scalar(sql::LAST_AT).bind(org.as_str()).fetch_optional(&mut *tx).await?;
    let old = (now - writer::SILENT_FOR).micros();
    sqlx::query(sql::FORGET_SILENT).bind(org.as_str()).bind(old).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Begun { incarnation: u64::try_from(incarnation).unwrap_or(0), last_at: last_at.unwrap_or(0) })
}

#[async_trait]
impl Store for Sqlite {
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused> {
        let (reply, answer) = oneshot::channel();
        let id = set.id;
        self.send(Job::Commit(Box::new(set), reply)).await?;
        // A writer that is gone may have committed before it went.
        answer.await.unwrap_or(Err(Refused::Unknown(id)))
    }

    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable> {
        let query = sqlx::query_scalar(sql::SETTLED).bind(org.as_str()).bind(change.to_string());
        query.fetch_one(&self.readers).await.map_err(|e| unavailable(&e))
    }

    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable> {
        load::snapshot(&self.readers, org, find, || self.time.now()).await
    }

    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable> {
        self.ours(org)?;
        let (generation, known) = self.cache.look();
        if let Some(known) = known {
            return Ok(known);
        }
        let fresh = Arc::new(load::registry(&self.readers, org, &self.defaults).await?);
        self.cache.keep(generation, &fresh);
        Ok(fresh)
    }

    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Claim(Want { kind, limit, hold }, reply)).await?;
        answer.await.unwrap_or_else(|_| Err(Closed.into()))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable> {
        let query = sqlx::query_scalar(sql::NEXT_DUE).bind(self.org.as_str());
        let at: Option<i64> = query.fetch_one(&self.readers).await.map_err(|e| unavailable(&e))?;
        Ok(at.map(Timestamp::of_micros))
    }

    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable> {
        let query = sqlx::query(sql::DOOR).bind(self.org.as_str()).bind(callback.as_str());
        let Some(row) = query.fetch_optional(&self.readers).await.map_err(|e| unavailable(&e))? else {
            return Ok(None);
        };
        let key = callback.as_str();
        let route = doc("callback_route", key, get(&row, "callback_route", key, 0)?)?;
        let foreign_task = get(&row, "a2a_bridge", key, 1)?;
        let agent: String = get(&row, "a2a_bridge", key, 2)?;
        let agent = agent.parse().map_err(|e| corrupt("a2a_bridge", key, e))?;
        let agent = (agent, get(&row, "a2a_bridge", key, 3)?);
        let unread =
            Unread { events: count(&row, "inbox", key, 4)?, body_bytes: count(&row, "payload", key, 5)? };
        Ok(Some(Doorway { route, agent, foreign_task, unread }))
    }

    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        limit: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable> {
        let mut ready: std::collections::BTreeSet<(i64, EnvelopeId)> = std::collections::BTreeSet::new();
        for endpoint in to {
            let query = sqlx::query(sql::READY).bind(org.as_str()).bind(endpoint.to_string());
            let rows = query.bind(i64::from(limit)).fetch_all(&self.readers).await;
            for row in &rows.map_err(|e| unavailable(&e))? {
                let id: &str = get(row, "envelope", "?", 1)?;
                let parsed = id.parse().map_err(|e| corrupt("envelope", id, e))?;
                ready.insert((get(row, "envelope", id, 0)?, parsed));
            }
        }
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(ready.into_iter().take(most).map(|(_, id)| id).collect())
    }

    async fn now(&self) -> Result<Timestamp, Unreadable> {
        Ok(self.time.now())
    }
}
