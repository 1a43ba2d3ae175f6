//! The walks: the short async functions over ports that order load → decide → commit → act.
//!
//! Free of any runtime: they start nothing and sleep nowhere. Server and simulator run these same walks, so
//! what the simulator proves is what ships. Crash points are exactly the commits. What is to be done once a
//! change set is durable comes back as [`Act`]s, for the runtime to run when and where it likes; an act that
//! is lost is found again by its row's due time.

use std::sync::Arc;

use crate::bridge::ForeignKey;
use crate::change::{ChangeSet, DueKind, Effect, Receipt, Refused, Row, Snapshot, Write};
use crate::cost::Account;
use crate::endpoint::Endpoint;
use crate::faults::Fault;
use crate::gate::exeat::{AttemptLease, Parcel, PushTarget};
use crate::gate::verdict::Governor;
use crate::id::{AgentKey, CallbackId, ChangeId, EnvelopeId, HopId, Ids, OrgName, TaskId};
use crate::ports::{Bus, Clock, DueRow, Entropy, Find, Store, Unreadable};
use crate::registry::Registry;
use crate::task::desk::{Context, Hindsight, Refusal, Schemas};
use crate::time::{Monotonic, Timestamp};
use crate::transport::{SendReport, Transport};
use crate::workflow::Workflow;

pub mod batch;
pub mod confirm;
pub mod probe;
pub mod relay;
pub mod release;
pub mod send;
pub mod sweep;

/// The policies of an org as they stand, ready to be asked.
pub trait Governors: Send + Sync {
    /// The governor of the registry's policy version. One that can't be read denies everything.
    fn of(&self, registry: &Registry) -> Arc<dyn Governor>;
}

/// Workflows, read from their text.
pub trait Flows: Send + Sync {
    /// The workflow that a task runs.
    ///
    /// # Errors
    /// Why its stored text isn't one.
    fn of(&self, snapshot: &Snapshot, registry: &Registry) -> Result<Arc<Workflow>, String>;
}

/// Our callback door, as agents are told of it.
pub trait PushDoor: Send + Sync {
    /// Where an attempt's agent shall push to, with a token that holds until then. None: push isn't to be had.
    fn target(&self, org: &OrgName, callback: &CallbackId, until: Timestamp) -> Option<PushTarget>;

    /// The same by every key that still verifies: what agents may have been told.
    fn told(&self, org: &OrgName, callback: &CallbackId, until: Timestamp) -> Vec<PushTarget>;
}

/// Bulkheads of this process: attempts out at once, per agent. Advisory.
pub trait Rooms: Send + Sync {
    /// Has the agent room for one more?
    fn has_room(&self, registry: &Registry, agent: &AgentKey) -> bool;
}

/// All that the walks need of the world.
#[derive(Clone)]
pub struct Ports {
    /// The record.
    pub store: Arc<dyn Store>,
    /// The way out.
    pub transport: Arc<dyn Transport>,
    /// The policies.
    pub governors: Arc<dyn Governors>,
    /// JSON Schema.
    pub schemas: Arc<dyn Schemas>,
    /// Workflows.
    pub flows: Arc<dyn Flows>,
    /// Our callback door.
    pub door: Arc<dyn PushDoor>,
    /// Bulkheads.
    pub rooms: Arc<dyn Rooms>,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// Clocks.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
}

/// What is to be done now that something is durable.
#[derive(Debug)]
pub enum Act {
    /// Send what a lease cleared: [`send::send`].
    Send(Box<Sending>),
    /// Record how an attempt came out: [`send::record`].
    Record(Box<Recording>),
    /// Ring the bus: [`relay::ring`].
    Ring(OrgName, EnvelopeId, Endpoint),
    /// Rows of this kind may be due: [`sweep::claim`].
    Due(DueKind),
    /// A claimed row: [`sweep::handle`].
    Handle(DueRow),
    /// Tell whoever watches the task.
    Tell(OrgName, TaskId),
}

/// An attempt that may leave.
#[derive(Debug)]
pub struct Sending {
    /// Proof that its lease is durable.
    pub lease: AttemptLease,
    /// What to send.
    pub parcel: Parcel,
    /// If push is wanted: until when its token holds.
    pub push_until: Option<Timestamp>,
    /// The monotonic clock, read before the lease was committed.
    pub leased_at: Monotonic,
}

/// An attempt whose outcome must be written down.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The tenant.
    pub org: OrgName,
    /// The hop.
    pub hop: HopId,
    /// The attempt.
    pub n: u32,
    /// How it came out.
    pub report: SendReport,
}

/// Why a walk stopped. Nothing is half-done: the row's due time finds it again.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The decision wasn't taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such thing in this org.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The record can't be asked.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The record doesn't take it.
    #[error(transparent)]
    Commit(#[from] Refused),
    /// The rows moved again and again; somebody else is at it.
    #[error("the rows moved too often")]
    Busy,
}

/// How often a decision is made anew when its rows have moved.
const TRIES: u32 = 32;

/// Everything a decision is made with, loaded for one try.
pub struct Loaded {
    /// The registry.
    pub registry: Arc<Registry>,
    /// The policies.
    pub governor: Arc<dyn Governor>,
    /// The task.
    pub snapshot: Snapshot,
    /// What it runs.
    pub flow: Arc<Workflow>,
}

impl Ports {
    /// Loads what a decision about `find` needs.
    ///
    /// # Errors
    /// If there is no such task, or the record can't be read.
    pub async fn load(&self, org: &OrgName, find: Find) -> Result<Loaded, Stopped> {
        let registry = self.store.registry(org).await?;
        let snapshot = self.store.load(org, find).await?.ok_or(Stopped::NotFound("task"))?;
        let flow = self.flows.of(&snapshot, &registry).map_err(Refusal::Wrong)?;
        let governor = self.governors.of(&registry);
        Ok(Loaded { registry, governor, snapshot, flow })
    }

    /// Runs a pure decision with a context of now.
    pub fn decide<T>(
        &self,
        registry: &Registry,
        governor: &dyn Governor,
        now: Timestamp,
        hindsight: &Hindsight,
        decision: impl FnOnce(Context<'_>, Ids) -> T,
    ) -> T {
        let has_room = |agent: &AgentKey| self.rooms.has_room(registry, agent);
        let schemas = self.schemas.as_ref();
        let ctx = Context { now, registry, governor, schemas, has_room: &has_room, hindsight };
        decision(ctx, Ids::new(now, self.entropy.seed()))
    }

    /// Load, decide, commit; anew when the rows have moved.
    ///
    /// # Errors
    /// Why nothing was committed.
    pub async fn walk<T>(
        &self,
        org: &OrgName,
        find: Find,
        decision: impl Fn(Context<'_>, Ids, Arc<Workflow>, Snapshot) -> Result<(T, ChangeSet), Refusal>,
    ) -> Result<(T, Vec<Act>), Stopped> {
        let mut hindsight = Hindsight::default();
        for _ in 0..TRIES {
            let Loaded { registry, governor, snapshot, flow } = self.load(org, find).await?;
            let now = snapshot.now;
            let (t, set) = self.decide(&registry, governor.as_ref(), now, &hindsight, |ctx, ids| {
                decision(ctx, ids, flow, snapshot)
            })?;
            match self.commit(set).await? {
                Committed::Durable(acts) => return Ok((t, acts)),
                Committed::Moved => {}
                Committed::Learned(lesson) => hindsight.learn(lesson),
            }
        }
        Err(Stopped::Busy)
    }

    /// Commits a change set and gives what is to be done now.
    ///
    /// # Errors
    /// If the record doesn't take it, or nobody knows whether it did.
    pub async fn commit(&self, mut set: ChangeSet) -> Result<Committed, Stopped> {
        if set.is_empty() {
            return Ok(Committed::Durable(acts(
                &set.org,
                std::mem::take(&mut set.effects),
                None,
                Monotonic(0),
            )));
        }
        let (org, id) = (set.org.clone(), set.id);
        let effects = std::mem::take(&mut set.effects);
        let leased_at = self.clock.monotonic();
        let second = Fault::DualWrite.is_back().then(|| self.split(&mut set));
        match self.store.commit(set).await {
            Ok(receipt) => {
                if let Some(second) = second {
                    self.store.commit(second).await?;
                }
                Ok(Committed::Durable(acts(&org, effects, Some(receipt), leased_at)))
            }
            Err(Refused::Conflict(_) | Refused::Duplicate("edge")) => Ok(Committed::Moved),
            Err(Refused::OverBudget(account)) => Ok(Committed::Learned(Lesson::OverBudget(account))),
            Err(Refused::Taken(key)) => Ok(Committed::Learned(Lesson::Taken(key))),
            Err(Refused::Unknown(_)) => {
                // Whatever it leased is never sent: without a receipt there is no exeat, and its lease runs out.
                let durable = self.store.settled(&org, id).await?;
                Ok(if durable {
                    Committed::Durable(acts(&org, effects, None, leased_at))
                } else {
                    Committed::Moved
                })
            }
            Err(e) => Err(e.into()),
        }
    }
}

impl Ports {
    /// [`Fault::DualWrite`]: the envelopes of a set, to be written by a commit of their own.
    fn split(&self, set: &mut ChangeSet) -> ChangeSet {
        let mut ids = Ids::new(set.at, self.entropy.seed());
        let mut second = ChangeSet::new(ChangeId::draw(&mut ids), set.org.clone(), set.at);
        let is_envelope = |w: &mut Write| matches!(w.row, Row::Envelope(_));
        second.writes = set.writes.extract_if(.., is_envelope).collect();
        second
    }
}

/// How a commit came out.
#[derive(Debug)]
pub enum Committed {
    /// It is durable.
    Durable(Vec<Act>),
    /// A row has moved: decide anew.
    Moved,
    /// It doesn't hold, for a reason that a decision can heed: decide anew, knowing that.
    Learned(Lesson),
}

/// What a commit found that the decision couldn't know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// A balance doesn't cover it.
    OverBudget(Account),
    /// That foreign task is another hop's.
    Taken(ForeignKey),
}

fn acts(org: &OrgName, effects: Vec<Effect>, receipt: Option<Receipt>, leased_at: Monotonic) -> Vec<Act> {
    let mut leases = receipt.map(|r| r.leases).unwrap_or_default();
    effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send(parcel, push_until) => {
                let at = leases.iter().position(|l| *l.id() == parcel.attempt)?;
                let lease = leases.swap_remove(at);
                Some(Act::Send(Box::new(Sending { lease, parcel: *parcel, push_until, leased_at })))
            }
            Effect::Ring(envelope, to) => Some(Act::Ring(org.clone(), envelope, to)),
            Effect::Due(kind) => Some(Act::Due(kind)),
            Effect::Tell(task) => Some(Act::Tell(org.clone(), task)),
        })
        .collect()
}
