//! Outbound: mint the exeat of a leased attempt, send it, write down how it came out.
//!
//! Two commits and one exchange: the intent with its lease was the first, the outcome is the second.

use crate::faults::Fault;
use crate::gate::exeat::{PushTarget, pass};
use crate::ports::Find;
use crate::task::decision;
use crate::time::{Monotonic, Span};
use crate::walk::{Act, Ports, Recording, Sending, Stopped};

/// Sends one attempt. What is returned must be recorded.
///
/// # Errors
/// Only if the lease is another attempt's: a fault of ours; nothing was sent then.
pub async fn send(ports: &Ports, sending: Sending, send_timeout: Span) -> Result<Recording, Stopped> {
    let Sending { lease, mut parcel, push_until, leased_at } = sending;
    let id = lease.id().clone();
    let target = push_until.and_then(|until| ports.door.target(&id.org, &id.callback, until));
    parcel.push = if parcel.agent.posture.token_in_query { target.map(PushTarget::in_query) } else { target };
    let not_after = if Fault::ZombieExeat.is_back() { Monotonic(u64::MAX) } else { leased_at + send_timeout };
    let exeat =
        pass(lease, parcel, not_after).map_err(|e| crate::task::desk::Refusal::Wrong(e.to_string()))?;
    let report = ports.transport.send(exeat).await;
    Ok(Recording { org: id.org, hop: id.hop, n: id.n, report })
}

/// Writes down how an attempt came out, and what follows from it.
///
/// # Errors
/// If the record can't be reached: try again; the attempt's lease finds it otherwise.
pub async fn record(ports: &Ports, recording: &Recording) -> Result<Vec<Act>, Stopped> {
    let Recording { org, hop, n, report } = recording;
    let walked = ports.walk(org, Find::Hop(*hop), |ctx, ids, flow, snapshot| {
        decision::attempted(ctx, ids, flow, snapshot, *hop, *n, report).map(|set| ((), set))
    });
    walked.await.map(|((), acts)| acts)
}
