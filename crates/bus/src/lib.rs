//! The bus: ids of envelopes, rung for whoever waits for them.
//!
//! It may lose, double and reorder; the store is the record, and whatever is forgotten here is found again
//! by its due time. [`Local`] is the carrier within one process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{EnvelopeId, OrgName};
use exeat_core::ports::Bus;
use exeat_core::time::Span;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Ids kept per endpoint; more are dropped, and rung again when they are due.
const KEPT: usize = 10_000;

type Queues = BTreeMap<(OrgName, Endpoint), VecDeque<EnvelopeId>>;

/// The bus of one process.
#[derive(Default)]
pub struct Local {
    queues: Mutex<Queues>,
    rung: Notify,
}

impl Local {
    /// An empty one: what is ready is rung by the relay at start.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn take(&self, org: &OrgName, to: &[Endpoint]) -> Option<EnvelopeId> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        to.iter().find_map(|e| queues.get_mut(&(org.clone(), e.clone()))?.pop_front())
    }
}

#[async_trait]
impl Bus for Local {
    async fn ring(&self, org: &OrgName, to: &Endpoint, envelope: EnvelopeId) {
        {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = queues.entry((org.clone(), to.clone())).or_default();
            if queue.contains(&envelope) || queue.len() >= KEPT {
                return;
            }
            queue.push_back(envelope);
        }
        self.rung.notify_waiters();
    }

    async fn wait(&self, org: &OrgName, to: &[Endpoint], patience: Span) -> Option<EnvelopeId> {
        let until = Instant::now() + std::time::Duration::from(patience);
        loop {
            // Listen first, then look: a ring between the two is not missed.
            let rung = self.rung.notified();
            if let Some(envelope) = self.take(org, to) {
                return Some(envelope);
            }
            timeout_at(until, rung).await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exeat_core::id::Ids;
    use exeat_core::time::Timestamp;

    use super::*;

    fn org() -> OrgName {
        "main".parse().unwrap()
    }

    #[tokio::test]
    async fn a_ring_wakes_one_who_waits_for_that_endpoint_and_no_other() {
        let bus = Arc::new(Local::new());
        let writer: Endpoint = "role:writer".parse().unwrap();
        let other: Endpoint = "role:other".parse().unwrap();
        let id = EnvelopeId::draw(&mut Ids::new(Timestamp::EPOCH, [1; 32]));
        let (org, both) = (org(), [other.clone(), writer.clone()]);
        let waiting = bus.wait(&org, &both, Span::of_secs(30));
        let ringing = async {
            tokio::task::yield_now().await;
            bus.ring(&org, &writer, id).await;
            bus.ring(&org, &writer, id).await;
        };
        let (got, ()) = tokio::join!(waiting, ringing);
        assert_eq!(got, Some(id));
        assert_eq!(bus.wait(&org, &[other], Span::ZERO).await, None);
        assert!(bus.wait(&org, &both, Span::ZERO).await.is_none_or(|again| again == id));
    }
}
