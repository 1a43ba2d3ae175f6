//! The relay: envelopes that are ready are rung on the bus, which may have lost them.

use crate::endpoint::Endpoint;
use crate::id::{EnvelopeId, OrgName};
use crate::walk::{Ports, Stopped};

/// Rings for one envelope.
pub async fn ring(ports: &Ports, org: &OrgName, envelope: EnvelopeId, to: &Endpoint) {
    ports.bus.ring(org, to, envelope).await;
}

/// Rings for everything that is ready at these endpoints: after a start, or when the bus has lost its memory.
///
/// # Errors
/// If the record can't be read.
pub async fn refill(ports: &Ports, org: &OrgName, to: &[Endpoint], limit: u32) -> Result<usize, Stopped> {
    let ready = ports.store.ready_envelopes(org, to, limit).await?;
    let rung = ready.len();
    for envelope in ready {
        for endpoint in to {
            ports.bus.ring(org, endpoint, envelope).await;
        }
    }
    Ok(rung)
}
