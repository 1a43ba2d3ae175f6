//! The record as a replica sees it: each question and each commit is a point at which the replica may
//! stop, the answer may get lost, or the record be out of reach.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use exeat_core::bridge::Doorway;
use exeat_core::bridge::state::Moved;
use exeat_core::change::{ChangeSet, DueKind, Receipt, Refused, Snapshot};
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{CallbackId, ChangeId, EnvelopeId, OrgName};
use exeat_core::ports::{DueRow, Find, Store, Unreadable};
use exeat_core::registry::Registry;
use exeat_core::time::{Span, Timestamp};

use crate::memory::Memory;
use crate::sim::audit::Audit;
use crate::sim::chance::Chance;
use crate::sim::clock::VirtualClock;

/// What has happened so far, by name; and what happened to bridges, by state and event.
#[derive(Clone, Default)]
pub struct Tally {
    named: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    cells: Arc<Mutex<Cells>>,
}

/// How often an event came in a state.
pub type Cells = BTreeMap<(&'static str, &'static str), u64>;

impl Tally {
    /// One more.
    pub fn one(&self, what: &'static str) {
        *self.named.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }
    /// All of them.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn moved(&self, moves: &[Moved]) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        for m in moves {
            *cells.entry((m.from.as_str(), m.event.as_str())).or_default() += 1;
        }
    }
    /// What happened to bridges, of all that became durable.
    #[must_use]
    pub fn cells(&self) -> Cells {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How wild it gets, in thousandths, until it is calmed.
pub struct Weather {
    calm: AtomicBool,
    crash: AtomicU64,
    lost: AtomicU64,
}

impl Weather {
    /// Crashes and lost answers per thousand points.
    #[must_use]
    pub const fn new(crash: u64, lost: u64) -> Self {
        Self { calm: AtomicBool::new(false), crash: AtomicU64::new(crash), lost: AtomicU64::new(lost) }
    }
    /// Is it calm?
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }
    /// Calms it for good.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }
    fn rate(&self, of: &AtomicU64) -> u64 {
        if self.is_calm() { 0 } else { of.load(Ordering::Relaxed) }
    }
}

/// What all replicas share.
#[derive(Clone)]
pub struct Shared {
    /// The record itself.
    pub memory: Memory,
    /// The promises.
    pub audit: Audit,
    /// Chance.
    pub chance: Arc<Chance>,
    /// Time.
    pub clock: VirtualClock,
    /// Faults.
    pub weather: Arc<Weather>,
    /// What happened.
    pub tally: Tally,
}

/// The record, as one run of a replica sees it.
pub struct Faulty {
    shared: Shared,
    stopped: Arc<AtomicBool>,
}

impl Faulty {
    /// For one run of a replica; `stopped` is set when it is to stop here.
    #[must_use]
    pub const fn new(shared: Shared, stopped: Arc<AtomicBool>) -> Self {
        Self { shared, stopped }
    }

    /// Others may go first, or this replica stops for good.
    async fn point(&self, what: &'static str) {
        let s = &self.shared;
        if s.chance.permille(s.weather.rate(&s.weather.crash)) {
            s.tally.one(what);
            self.stopped.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        if s.chance.permille(600) {
            s.clock.sleep(Span::ZERO).await;
        }
    }

    fn away(&self) -> bool {
        let s = &self.shared;
        let away = s.chance.permille(s.weather.rate(&s.weather.lost) / 2);
        if away {
            s.tally.one("store unavailable");
        }
        away
    }

    fn reach(&self) -> Result<(), Unreadable> {
        if self.away() { Err(Unreadable::Unavailable("simulated".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused> {
        let s = &self.shared;
        self.point("crash before commit").await;
        if self.away() {
            return Err(Refused::Unavailable("simulated".into()));
        }
        let id = set.id;
        if s.chance.permille(s.weather.rate(&s.weather.lost)) {
            s.tally.one("answer lost, not durable");
            return Err(Refused::Unknown(id));
        }
        let copy = set.clone();
        let answer = s.memory.commit(set).await;
        match &answer {
            Ok(_) => {
                s.tally.one("commits");
                s.tally.moved(&copy.moves);
                s.audit.durable(&s.memory, &copy).await;
            }
            Err(Refused::Conflict(_)) => s.tally.one("conflicts"),
            Err(Refused::Duplicate(what)) if *what == "edge" => {
                s.audit.broken(format!("P2: a second edge in {copy:#?}"))
            }
            Err(Refused::Duplicate(_)) => s.tally.one("pushes doubled"),
            Err(Refused::Taken(_)) => s.tally.one("foreign tasks of another hop"),
            Err(Refused::OverBudget(_)) => s.tally.one("over budget"),
            Err(e) => s.audit.broken(format!("a set is refused: {e}: {copy:#?}")),
        }
        self.point("crash after commit").await;
        if answer.is_ok() && s.chance.permille(s.weather.rate(&s.weather.lost)) {
            s.tally.one("answer lost, durable");
            return Err(Refused::Unknown(id));
        }
        answer
    }

    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable> {
        self.point("crash while asking").await;
        self.reach()?;
        self.shared.memory.settled(org, change).await
    }

    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable> {
        self.point("crash before load").await;
        self.reach()?;
        self.shared.tally.one("loads");
        self.shared.memory.load(org, find).await
    }

    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable> {
        self.shared.memory.registry(org).await
    }

    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable> {
        self.point("crash before claim").await;
        self.reach()?;
        let claimed = self.shared.memory.claim_due(kind, limit, hold).await;
        self.point("crash after claim").await;
        claimed
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable> {
        self.shared.memory.next_due().await
    }

    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable> {
        self.reach()?;
        self.shared.memory.route(callback).await
    }

    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        limit: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable> {
        self.shared.memory.ready_envelopes(org, to, limit).await
    }

    async fn now(&self) -> Result<Timestamp, Unreadable> {
        self.shared.memory.now().await
    }
}
