//! An operator's look at an agent: recorded first, then one permit.

use std::sync::Arc;

use crate::change::{ChangeSet, Refused};
use crate::gate::exeat::{self, Carry, ProbePermit};
use crate::registry::AgentEntry;
use crate::time::Span;
use crate::walk::{Ports, Stopped};

/// Records the act, and gives the permit for it. None: what it was decided on has moved; decide anew. A commit whose
/// answer was lost gives no permit, and nothing is contacted.
///
/// # Errors
/// If the record doesn't take it, or nobody knows whether it did.
pub async fn clear(
    ports: &Ports,
    set: ChangeSet,
    agent: Arc<AgentEntry>,
    carry: Carry,
    patience: Span,
) -> Result<Option<ProbePermit>, Stopped> {
    // Read before the commit: a process that sleeps in between contacts nobody.
    let not_after = ports.clock.monotonic() + patience;
    match ports.store.commit(set).await {
        Ok(receipt) => {
            let claim = receipt.discoveries.into_iter().next();
            Ok(claim.map(|claim| exeat::probe(claim, agent, carry, not_after)))
        }
        Err(Refused::Conflict(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
