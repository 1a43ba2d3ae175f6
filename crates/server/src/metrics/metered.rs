//! The store and the way out, counted as the walks meet them. Whatever they answer goes through unchanged.

use std::sync::Arc;

use async_trait::async_trait;
use exeat_core::bridge::Doorway;
use exeat_core::change::{ChangeSet, DueKind, Receipt, Refused, Snapshot};
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::exeat::{CancelPermit, Exeat, Look as LookPermit};
use exeat_core::id::{CallbackId, ChangeId, EnvelopeId, OrgName};
use exeat_core::ports::{Clock, DueRow, Find, Store, Unreadable};
use exeat_core::registry::{AgentEntry, Registry};
use exeat_core::time::{Span, Timestamp};
use exeat_core::transport::{CancelOutcome, LookOutcome, SendOutcome, SendReport, Transport};

use super::{Attempt, Cancel, Commit, Look, Metrics, seconds};

/// A store, counted.
pub struct MeteredStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Reads the time that a commit takes.
    pub clock: Arc<dyn Clock>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

const fn became(answer: &Result<Receipt, Refused>) -> Commit {
    match answer {
        Ok(_) => Commit::Durable,
        Err(Refused::Conflict(_) | Refused::Duplicate(_) | Refused::Taken(_)) => Commit::Moved,
        Err(Refused::OverBudget(_)) => Commit::OverBudget,
        Err(Refused::DiskFull) => Commit::DiskFull,
        Err(Refused::Unavailable(_)) => Commit::Unavailable,
        Err(Refused::Unknown(_)) => Commit::Unknown,
        Err(Refused::Wrong(_)) => Commit::Wrong,
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn commit(&self, set: ChangeSet) -> Result<Receipt, Refused> {
        let began = self.clock.monotonic();
        let answer = self.store.commit(set).await;
        let took = self.clock.monotonic().left(began);
        self.metrics.commit(became(&answer), seconds(took.micros()));
        answer
    }
    async fn settled(&self, org: &OrgName, change: ChangeId) -> Result<bool, Unreadable> {
        self.store.settled(org, change).await
    }
    async fn load(&self, org: &OrgName, find: Find) -> Result<Option<Snapshot>, Unreadable> {
        self.store.load(org, find).await
    }
    async fn registry(&self, org: &OrgName) -> Result<Arc<Registry>, Unreadable> {
        self.store.registry(org).await
    }
    async fn claim_due(&self, kind: DueKind, limit: u32, hold: Span) -> Result<Vec<DueRow>, Unreadable> {
        self.store.claim_due(kind, limit, hold).await
    }
    async fn next_due(&self) -> Result<Option<Timestamp>, Unreadable> {
        self.store.next_due().await
    }
    async fn route(&self, callback: &CallbackId) -> Result<Option<Doorway>, Unreadable> {
        self.store.route(callback).await
    }
    async fn ready_envelopes(
        &self,
        org: &OrgName,
        to: &[Endpoint],
        limit: u32,
    ) -> Result<Vec<EnvelopeId>, Unreadable> {
        self.store.ready_envelopes(org, to, limit).await
    }
    async fn now(&self) -> Result<Timestamp, Unreadable> {
        self.store.now().await
    }
}

/// A transport, counted.
pub struct MeteredTransport {
    /// The transport.
    pub transport: Arc<dyn Transport>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl Transport for MeteredTransport {
    async fn send(&self, exeat: Exeat) -> SendReport {
        let report = self.transport.send(exeat).await;
        self.metrics.attempt(match &report.outcome {
            SendOutcome::Task(_) | SendOutcome::Message(_) => Attempt::Answered,
            SendOutcome::NotSent(_) => Attempt::NotSent,
            SendOutcome::Impossible(_) => Attempt::Impossible,
            SendOutcome::Refused { .. } | SendOutcome::ContextRefused => Attempt::Refused,
            SendOutcome::Unusable(_) => Attempt::Unusable,
            SendOutcome::Ambiguous => Attempt::Ambiguous,
            SendOutcome::OtherInterface(_) => Attempt::OtherInterface,
        });
        report
    }
    async fn look(&self, look: LookPermit) -> LookOutcome {
        let outcome = self.transport.look(look).await;
        self.metrics.look(match &outcome {
            LookOutcome::Task(_) => Look::Task,
            LookOutcome::Tasks(_) => Look::Tasks,
            LookOutcome::NotFound => Look::NotFound,
            LookOutcome::Unsupported => Look::Unsupported,
            LookOutcome::Nothing { .. } => Look::Nothing,
        });
        outcome
    }
    async fn cancel(&self, permit: CancelPermit) -> CancelOutcome {
        let outcome = self.transport.cancel(permit).await;
        self.metrics.cancel(match &outcome {
            CancelOutcome::Task(_) => Cancel::Task,
            CancelOutcome::Over => Cancel::Over,
            CancelOutcome::Nothing { .. } => Cancel::Nothing,
        });
        outcome
    }
    async fn scrubbed(
        &self,
        org: &OrgName,
        agent: &AgentEntry,
        tokens: &[String],
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        self.transport.scrubbed(org, agent, tokens, bytes).await
    }
}
