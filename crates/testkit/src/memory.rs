//! The record in memory: the reference implementation of the store's ports.
//!
//! Promises what every store promises, but for outliving its process, and settles with the very code
//! that the others use ([`exeat_core::walk::batch`]). Its answers are a pure function of the calls and
//! the clock that it was given; its futures are ready at once, so any executor will do. Handles are
//! cheap to clone and all speak to one record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use exeat_core::approval::Approval;
use exeat_core::bridge::Doorway;
use exeat_core::change::{
    ChangeSet, DeadLetter, Done, DueKind, Key, PolicyRow, Receipt, Refused, Row, Snapshot, WorkflowRow,
};
use exeat_core::cost::{Account, Balance};
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::exeat::Claim;
use exeat_core::id::{
    CallbackId, ChangeId, DeadLetterId, EnvelopeId, HopId, KeyId, OrgName, PayloadId, TaskId, WorkflowName,
};
use exeat_core::ledger::chain::Head;
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::{Sealed, Sha256Digest};
use exeat_core::ports::{
    Archive, Clock, CostBy, CostLine, DueRow, Find, Page, Store, StoredEvent, StoredRecord, TaskFilter,
    Unreadable, Vitals,
};
use exeat_core::principal::ApiKey;
use exeat_core::registry::{OrgDefaults, Registry};
use exeat_core::task::Task;
use exeat_core::time::{Span, StoreTime, Timestamp};
use exeat_core::walk::batch;
use serde_json::Value;

mod org;

use org::Org;

/// A handle on a record in memory. It holds any number of orgs, all with the same defaults.
#[derive(Clone)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    defaults: Arc<OrgDefaults>,
    state: Arc<Mutex<State>>,
}

struct State {
    time: StoreTime,
    orgs: BTreeMap<OrgName, Org>,
}

impl State {
    fn now(&mut self, clock: &dyn Clock) -> Timestamp {
        self.time.now(clock.now(), clock.monotonic())
    }
}

impl Memory {
    /// An empty record that reads this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, defaults: OrgDefaults) -> Self {
        let state =
            State { time: StoreTime::after(Timestamp::EPOCH, clock.monotonic()), orgs: BTreeMap::new() };
        Self { clock, defaults: Arc::new(defaults), state: Arc::new(Mutex::new(state)) }
    }

    /// Commits what arrived together, in arrival order, as one batch of one org; one answer per set.
    #[must_use]
    pub fn commit_batch(&self, org: &OrgName, sets: Vec<ChangeSet>) -> Vec<Result<Receipt, Refused>> {
        if let Some(other) = sets.iter().find(|s| s.org != *org) {
            let why = format!("a batch of {org} holds a set of {}", other.org);
            return sets.iter().map(|_| Err(Refused::Wrong(why.clone()))).collect();
        }
        let mut state = self.state();
        let now = sets.iter().map(|s| s.at).fold(state.now(&*self.clock), Timestamp::max);
        state.time.raise(now);
        let record = state.orgs.entry(org.clone()).or_default();
        let settled = batch::settle(record.ground(&batch::touched(&sets)), sets);
        settled
            .answers
            .into_iter()
            .map(|answer| {
                let planned = answer?;
                record.apply(&planned);
                Ok(planned.receipt())
            })
            .collect()
    }

    /// Every row of an org with its version, in the order of their keys: what a checker of invariants reads.
    #[must_use]
    pub fn rows(&self, org: &OrgName) -> Vec<(u64, Row)> {
        self.read(org, |o| o.rows.values().map(|h| (h.version, h.row.clone())).collect())
    }

    /// Shows every row of an org with its version, in the order of their keys, without copying any.
    pub fn each_row(&self, org: &OrgName, mut see: impl FnMut(u64, &Row)) {
        self.read(org, |o| o.rows.values().for_each(|h| see(h.version, &h.row)));
    }

    /// Is a pushed event of this hop stored?
    #[must_use]
    pub fn has_event(&self, org: &OrgName, hop: HopId, digest: Sha256Digest) -> bool {
        self.read(org, |o| o.has_event(hop, digest))
    }

    /// Every balance of an org.
    #[must_use]
    pub fn balances(&self, org: &OrgName) -> BTreeMap<Account, Balance> {
        self.read(org, |o| o.balances.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves no half of a commit behind: nothing in `apply` can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T: Default>(&self, org: &OrgName, ask: impl FnOnce(&Org) -> T) -> T {
        self.state().orgs.get(org).map(ask).unwrap_or_default()
    }
}

#[async_trait]
impl Store for Memory {
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused> {
        let org = set.org.clone();
        let none = || Err(Refused::Wrong("a batch of one has one answer".to_owned()));
        self.commit_batch(&org, vec![set]).pop().unwrap_or_else(none)
    }

    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable> {
        Ok(self.read(org, |o| o.changes.contains(&change)))
    }

    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable> {
        let mut state = self.state();
        let now = state.now(&*self.clock);
        Ok(state.orgs.get(org).and_then(|o| o.snapshot(find, now)))
    }

    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable> {
        Ok(self.state().orgs.entry(org.clone()).or_default().registry(org, &self.defaults))
    }

    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable> {
        let mut state = self.state();
        let now = state.now(&*self.clock);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut due: Vec<(Timestamp, OrgName, Key)> = Vec::new();
        for (name, org) in &state.orgs {
            due.extend(org.due(kind, now).take(most).map(|(at, key)| (at, name.clone(), key)));
        }
        due.sort();
        due.truncate(most);
        let mut claimed = Vec::with_capacity(due.len());
        for (_, name, key) in due {
            let Some((find, fence)) = state.orgs.get_mut(&name).and_then(|o| o.claim(kind, &key, now + hold))
            else {
                continue;
            };
            claimed.push(DueRow { key, find, claim: Claim::receipted(name, fence) });
        }
        Ok(claimed)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable> {
        Ok(self.state().orgs.values().filter_map(Org::next_due).min())
    }

    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable> {
        Ok(self.state().orgs.values().find_map(|o| o.door(callback)))
    }

    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        limit: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable> {
        Ok(self.read(org, |o| o.ready(to, limit)))
    }

    async fn now(&self) -> Result<Timestamp, Unreadable> {
        Ok(self.state().now(&*self.clock))
    }
}

#[async_trait]
impl Archive for Memory {
    async fn tasks(
        &self,
        org: &OrgName,
        filter: &TaskFilter,
        page: &Page,
    ) -> Result<(Vec<Task>, Option<String>), Unreadable> {
        Ok(self.read(org, |o| {
            let all = o.rows.values().rev().filter_map(|h| match &h.row {
                Row::Task(t) if o.fits(t, filter) => Some(t),
                _ => None,
            });
            page_of(all, |t| t.id.to_string(), page)
        }))
    }

    async fn open_hops(&self, org: &OrgName) -> Result<u64, Unreadable> {
        Ok(self.read(org, |o| {
            let open = |h: &&org::Held| matches!(&h.row, Row::Bridge(b) if !b.state.is_terminal());
            u64::try_from(o.rows.values().filter(open).count()).unwrap_or(u64::MAX)
        }))
    }

    async fn events(
        &self,
        org: &OrgName,
        task: TaskId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, Unreadable> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.read(org, |o| {
            o.events.get(&task).into_iter().flatten().filter(|e| e.id > after).take(most).cloned().collect()
        }))
    }

    async fn approvals(
        &self,
        org: &OrgName,
        status: Option<ApprovalStatus>,
        page: &Page,
    ) -> Result<(Vec<Approval>, Option<String>), Unreadable> {
        Ok(self.read(org, |o| {
            let all = o.rows.values().rev().filter_map(|h| match &h.row {
                Row::Approval(a) if status.is_none_or(|s| a.status == s) => Some(a),
                _ => None,
            });
            page_of(all, |a| a.id.to_string(), page)
        }))
    }

    async fn workflows(&self, org: &OrgName) -> Result<Vec<WorkflowRow>, Unreadable> {
        Ok(self.read(org, |o| {
            let all = o.workflows().map(|w| (w.name.clone(), w.clone()));
            // Versions come in rising order, so the last of a name stays.
            all.collect::<BTreeMap<_, _>>().into_values().collect()
        }))
    }

    async fn workflow(
        &self,
        org: &OrgName,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<WorkflowRow>, Unreadable> {
        Ok(self.read(org, |o| {
            o.workflows()
                .filter(|w| w.name == *name && version.is_none_or(|v| w.version == v))
                .last()
                .cloned()
        }))
    }

    async fn policy(&self, org: &OrgName, version: u32) -> Result<Option<PolicyRow>, Unreadable> {
        Ok(self.read(org, |o| match o.rows.get(&Key::Policy(version)) {
            Some(org::Held { row: Row::Policy(p), .. }) => Some(p.clone()),
            _ => None,
        }))
    }

    async fn api_keys(&self, org: &OrgName) -> Result<Vec<(ApiKey, u64)>, Unreadable> {
        Ok(self.read(org, |o| {
            let mut keys: Vec<_> = o.rows.values().filter_map(as_key).collect();
            keys.sort_by(|(a, _), (b, _)| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
            keys
        }))
    }

    async fn api_key(&self, id: &KeyId) -> Result<Option<(ApiKey, u64)>, Unreadable> {
        let key = Key::ApiKey(id.clone());
        Ok(self.state().orgs.values().find_map(|o| o.rows.get(&key).and_then(as_key)))
    }

    async fn done(
        &self,
        org: &OrgName,
        by: &KeyId,
        route: &str,
        key: &str,
    ) -> Result<Option<Done>, Unreadable> {
        let name = Key::Idempotency(by.clone(), route.to_owned(), key.to_owned());
        Ok(self.read(org, |o| match o.row(&name) {
            Some(Row::Idempotency(_, _, _, done)) => Some(done.clone()),
            _ => None,
        }))
    }

    async fn dead_letter(
        &self,
        org: &OrgName,
        id: DeadLetterId,
    ) -> Result<Option<(DeadLetter, u64)>, Unreadable> {
        Ok(self.read(org, |o| {
            let held = o.rows.get(&Key::DeadLetter(id))?;
            if let Row::DeadLetter(d) = &held.row { Some((d.clone(), held.version)) } else { None }
        }))
    }

    async fn dead_letters(
        &self,
        org: &OrgName,
        page: &Page,
    ) -> Result<(Vec<DeadLetter>, Option<String>), Unreadable> {
        Ok(self.read(org, |o| {
            let all = o.rows.values().rev().filter_map(|h| match &h.row {
                Row::DeadLetter(d) => Some(d),
                _ => None,
            });
            page_of(all, |d| d.id.to_string(), page)
        }))
    }

    async fn costs(
        &self,
        org: &OrgName,
        by: CostBy,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CostLine>, Unreadable> {
        Ok(self.read(org, |o| o.costs(by, from, to)))
    }

    async fn balance(&self, org: &OrgName, account: &Account) -> Result<Balance, Unreadable> {
        Ok(self.read(org, |o| o.balances.get(account).copied().unwrap_or_default()))
    }

    async fn open_tasks(&self, org: &OrgName) -> Result<u64, Unreadable> {
        Ok(self.read(org, |o| o.vitals().tasks))
    }

    async fn vitals(&self, org: &OrgName) -> Result<Vitals, Unreadable> {
        Ok(self.read(org, Org::vitals))
    }

    async fn last_callback(&self, org: &OrgName) -> Result<Option<Timestamp>, Unreadable> {
        Ok(self.read(org, |o| {
            let until =
                o.rows.values().filter_map(|h| if let Row::Route(r) = &h.row { Some(r.until) } else { None });
            until.max()
        }))
    }

    async fn payload(&self, org: &OrgName, id: PayloadId) -> Result<Option<Sealed>, Unreadable> {
        Ok(self.read(org, |o| match o.row(&Key::Payload(id)) {
            Some(Row::Payload(_, _, sealed)) => Some(sealed.clone()),
            _ => None,
        }))
    }

    async fn note(&self, org: &OrgName, digest: &str) -> Result<Option<String>, Unreadable> {
        Ok(self.read(org, |o| match o.row(&Key::Note(digest.to_owned())) {
            Some(Row::Note(_, _, text)) => Some(text.clone()),
            _ => None,
        }))
    }

    async fn head(&self, org: &OrgName) -> Result<Head, Unreadable> {
        Ok(self.read(org, |o| o.head))
    }

    async fn records(&self, org: &OrgName, from: u64, limit: u32) -> Result<Vec<StoredRecord>, Unreadable> {
        let skip = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(self.read(org, |o| o.records.iter().skip(skip).take(most).map(|(_, r)| r.clone()).collect()))
    }

    async fn records_of(&self, org: &OrgName, task: TaskId) -> Result<Vec<StoredRecord>, Unreadable> {
        Ok(self.read(org, |o| {
            o.records.iter().filter(|(t, _)| *t == Some(task)).map(|(_, r)| r.clone()).collect()
        }))
    }

    async fn setting(&self, org: &OrgName, name: &str) -> Result<Option<(Value, u64)>, Unreadable> {
        Ok(self.read(org, |o| {
            let held = o.rows.get(&Key::Setting(name.to_owned()))?;
            if let Row::Setting(_, value) = &held.row { Some((value.clone(), held.version)) } else { None }
        }))
    }

    async fn version(&self, org: &OrgName, key: &Key) -> Result<u64, Unreadable> {
        Ok(self.read(org, |o| o.rows.get(key).map_or(0, |h| h.version)))
    }

    async fn keep_checkpoint(&self, org: &OrgName, size: u64, note: &str) -> Result<(), Unreadable> {
        self.state().orgs.entry(org.clone()).or_default().checkpoints.insert(size, note.to_owned());
        Ok(())
    }

    async fn checkpoint(&self, org: &OrgName) -> Result<Option<String>, Unreadable> {
        Ok(self.read(org, |o| o.checkpoints.values().next_back().cloned()))
    }
}

fn as_key(held: &org::Held) -> Option<(ApiKey, u64)> {
    if let Row::ApiKey(k) = &held.row { Some((k.clone(), held.version)) } else { None }
}

/// One page of what comes newest first, and where the next begins: the id of the last one shown.
fn page_of<'a, T: Clone + 'a>(
    newest_first: impl Iterator<Item = &'a T>,
    id: impl Fn(&T) -> String,
    page: &Page,
) -> (Vec<T>, Option<String>) {
    let most = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let mut rest = newest_first.filter(|t| page.after.as_ref().is_none_or(|a| id(t) < *a));
    let shown: Vec<T> = rest.by_ref().take(most).cloned().collect();
    let next = rest.next().and(shown.last()).map(id);
    (shown, next)
}

/// Keys that only the registry is built from.
fn governs(key: &Key) -> bool {
    matches!(
        key,
        Key::Registry
            | Key::Agent(..)
            | Key::Role(_)
            | Key::Mode
            | Key::Policy(_)
            | Key::Budget(_)
            | Key::Contact(_)
    )
}

fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    items.into_iter().collect()
}
