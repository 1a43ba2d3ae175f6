//! The runtime: runs acts, ticks the sweep, wakes whoever watches, and lets go in order at shutdown.
//!
//! Tasks are spawned here and nowhere else, through one tracker, so that shutdown waits for what is under
//! way. An act that fails is not retried in memory: its row's due time finds it again. The one exception is
//! the outcome of an attempt, which is worth holding on to while its lease lasts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use exeat_core::change::DueKind;
use exeat_core::id::{AgentKey, TaskId};
use exeat_core::registry::Registry;
use exeat_core::time::{Monotonic, Span};
use exeat_core::transport::SendOutcome;
use exeat_core::walk::{Act, Ports, Recording, Rooms, Stopped, relay, send, sweep};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Due rows claimed in one go, per kind.
const CLAIMED: u32 = 64;
/// The sweep looks at least this often, whatever it was told.
const TICK: Duration = Duration::from_secs(1);
/// The sweep looks at most this often.
const SHORTEST: Duration = Duration::from_millis(10);
/// Pauses between tries to write down an attempt's outcome.
const RECORD_AGAIN: [u64; 6] = [10, 50, 250, 1_000, 2_000, 4_000];

/// Contacts out at once, per agent: the bulkhead of this process.
#[derive(Default)]
pub struct Bulkheads(Mutex<BTreeMap<AgentKey, u32>>);

impl Rooms for Bulkheads {
    fn has_room(&self, registry: &Registry, agent: &AgentKey) -> bool {
        let out = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(agent).copied().unwrap_or(0);
        registry.agent(agent).is_none_or(|a| out < a.terms.max_in_flight)
    }
}

/// One contact in its agent's bulkhead, until dropped.
pub struct Place<'a> {
    bulkheads: &'a Bulkheads,
    agent: AgentKey,
}

impl Bulkheads {
    fn enter(&self, agent: &AgentKey) -> Place<'_> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(agent.clone()).or_insert(0) += 1;
        Place { bulkheads: self, agent: agent.clone() }
    }

    /// Contacts out now, over all agents.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut out = self.bulkheads.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = out.get_mut(&self.agent) {
            *n = n.saturating_sub(1);
        }
    }
}

/// Wakes who watches a task.
#[derive(Default)]
pub struct Watchers(Mutex<BTreeMap<TaskId, watch::Sender<u64>>>);

impl Watchers {
    /// Something that is marked changed whenever the task has new events.
    pub fn watch(&self, task: TaskId) -> watch::Receiver<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, tx| tx.receiver_count() > 0);
        all.entry(task).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    fn tell(&self, task: TaskId) {
        if let Some(tx) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&task) {
            tx.send_modify(|n| *n += 1);
        }
    }
}

/// Runs what is to be done.
pub struct Runtime {
    ports: OnceLock<Ports>,
    tracker: TaskTracker,
    stopping: CancellationToken,
    swept: Notify,
    first_swept: Notify,
    bulkheads: Arc<Bulkheads>,
    watchers: Watchers,
    send_timeout: Span,
    failures: AtomicU32,
    /// When the sweep last could ask for every kind, by the monotonic clock; 0: never.
    swept_at: AtomicU64,
}

impl Runtime {
    /// A runtime that isn't running yet: [`run`](Self::run) gives it its ports.
    #[must_use]
    pub fn new(send_timeout: Span) -> Arc<Self> {
        Arc::new(Self {
            ports: OnceLock::new(),
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
            swept: Notify::new(),
            first_swept: Notify::new(),
            bulkheads: Arc::default(),
            watchers: Watchers::default(),
            send_timeout,
            failures: AtomicU32::new(0),
            swept_at: AtomicU64::new(0),
        })
    }

    /// The bulkheads, as a port.
    #[must_use]
    pub fn bulkheads(&self) -> Arc<Bulkheads> {
        Arc::clone(&self.bulkheads)
    }

    /// A contact of another kind than an attempt, counted as out until dropped.
    pub fn contact(&self, agent: &AgentKey) -> Place<'_> {
        self.bulkheads.enter(agent)
    }

    /// Whoever watches tasks.
    #[must_use]
    pub const fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Cancelled when the server is to stop.
    #[must_use]
    pub const fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Walks that failed for reasons of the store, since the start.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// When the sweep last went round whole, by the monotonic clock. None: it hasn't yet.
    #[must_use]
    pub fn swept_at(&self) -> Option<Monotonic> {
        Some(self.swept_at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Monotonic)
    }

    /// Spawns something that shutdown waits for.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns, tracked")]
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.tracker.track_future(future));
    }

    /// Starts the sweep and runs acts from now on.
    pub fn run(self: &Arc<Self>, ports: Ports) {
        let _ = self.ports.set(ports);
        let this = Arc::clone(self);
        self.spawn(async move { this.sweep_loop().await });
    }

    /// Stops: no new claims, what is under way is finished, at most this long.
    pub async fn stop(&self, patience: Duration) {
        self.stopping.cancel();
        self.tracker.close();
        let _ = tokio::time::timeout(patience, self.tracker.wait()).await;
    }

    /// Waits until the sweep has tried once: from then on the server does what is due.
    pub async fn first_sweep(&self) {
        // Listen first, then look: a sweep between the two is not missed.
        let swept = self.first_swept.notified();
        if self.swept_at().is_none() {
            swept.await;
        }
    }

    /// Runs acts, each on its own.
    pub fn act(self: &Arc<Self>, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Tell(_, task) => self.watchers.tell(task),
                Act::Due(_) => self.swept.notify_one(),
                other => {
                    let this = Arc::clone(self);
                    self.spawn(async move { this.run_act(other).await });
                }
            }
        }
    }

    async fn run_act(self: &Arc<Self>, act: Act) {
        let Some(ports) = self.ports.get() else { return };
        let next = match act {
            Act::Send(sending) => {
                let place = self.bulkheads.enter(&sending.parcel.agent.key);
                let sent = send::send(ports, *sending, self.send_timeout).await;
                drop(place);
                match sent {
                    Ok(recording) => {
                        log_attempt(&recording);
                        self.record(ports, recording).await
                    }
                    Err(e) => Err(e),
                }
            }
            Act::Record(recording) => self.record(ports, *recording).await,
            Act::Ring(org, envelope, to) => {
                relay::ring(ports, &org, envelope, &to).await;
                Ok(Vec::new())
            }
            Act::Handle(row) => sweep::handle(ports, row).await,
            Act::Due(_) | Act::Tell(..) => Ok(Vec::new()),
        };
        match next {
            Ok(acts) => self.act(acts),
            Err(e) => self.failed(&e),
        }
    }

    fn failed(&self, e: &Stopped) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        match e {
            // Others moved the row, or it is gone: the next tick decides.
            Stopped::Busy | Stopped::NotFound(_) => tracing::debug!(error = %e, "a walk stopped"),
            // The store closes last; what it no longer takes is due at the next start.
            _ if self.stopping.is_cancelled() => tracing::info!(error = %e, "a walk was cut off by the stop"),
            _ => tracing::error!(error = %e, "a walk stopped"),
        }
    }

    async fn record(&self, ports: &Ports, recording: Recording) -> Result<Vec<Act>, Stopped> {
        for pause in RECORD_AGAIN {
            match send::record(ports, &recording).await {
                Err(Stopped::Commit(_) | Stopped::Unreadable(_) | Stopped::Busy) => {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                other => return other,
            }
        }
        send::record(ports, &recording).await
    }

    async fn sweep_loop(self: Arc<Self>) {
        while !self.stopping.is_cancelled() {
            let full = self.sweep_once().await;
            let pause = if full { SHORTEST } else { self.until_next().await };
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.swept.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One tick over all kinds. True if more may be due right away.
    async fn sweep_once(self: &Arc<Self>) -> bool {
        let Some(ports) = self.ports.get() else { return false };
        let (mut full, mut whole) = (false, true);
        for kind in DueKind::ALL {
            match sweep::claim(ports, kind, CLAIMED).await {
                Ok(acts) => {
                    full |= acts.len() >= CLAIMED as usize;
                    self.act(acts);
                }
                Err(e) => {
                    whole = false;
                    self.failed(&e);
                }
            }
        }
        // A round that couldn't ask saw nothing, which isn't that nothing was due: /readyz tells after a while.
        if whole {
            // Never 0, which stands for never.
            self.swept_at.store(ports.clock.monotonic().0.max(1), Ordering::Relaxed);
        }
        self.first_swept.notify_waiters();
        full
    }

    async fn until_next(&self) -> Duration {
        let Some(ports) = self.ports.get() else { return TICK };
        match (ports.store.next_due().await, ports.store.now().await) {
            (Ok(Some(next)), Ok(now)) => Duration::from(next.since(now)).clamp(SHORTEST, TICK),
            _ => TICK,
        }
    }
}

/// One line per attempt, for whoever reads the log at night. Secrets were taken out of the detail where it was made.
fn log_attempt(recording: &Recording) {
    let Recording { org, hop, n, report } = recording;
    let (org, hop, detail) = (org.as_str(), tracing::field::display(hop), report.detail.as_str());
    match &report.outcome {
        SendOutcome::Task(_) | SendOutcome::Message(_) => {
            tracing::info!(org.id = org, hop.id = hop, attempt = n, detail, "the agent answered");
        }
        SendOutcome::Ambiguous => {
            tracing::warn!(
                org.id = org,
                hop.id = hop,
                attempt = n,
                detail,
                "nobody knows whether the message arrived"
            );
        }
        other => {
            let outcome = outcome_word(other);
            tracing::warn!(org.id = org, hop.id = hop, attempt = n, outcome, detail, "the attempt failed");
        }
    }
}

const fn outcome_word(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Task(_) | SendOutcome::Message(_) => "answered",
        SendOutcome::NotSent(code) | SendOutcome::Impossible(code) | SendOutcome::Unusable(code) => {
            code.as_str()
        }
        SendOutcome::Refused { code, .. } => code.as_str(),
        SendOutcome::ContextRefused => "context_refused",
        SendOutcome::Ambiguous => "ambiguous",
        SendOutcome::OtherInterface(_) => "other_interface",
    }
}
