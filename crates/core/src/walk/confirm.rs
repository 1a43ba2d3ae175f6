//! Coming in: a pushed event is stored before anything acts on it.
//!
//! Nothing is read before the token's MAC holds (the door's business), and one commit is all that happens
//! on the request. Acting on it is the sweep's: see [`sweep`](super::sweep).

use crate::bridge::{Doorway, InboxRow, PushClaim};
use crate::change::{ChangeSet, DueKind, Effect, Refused, Row, Write};
use crate::faults::Fault;
use crate::id::{ChangeId, Ids, InboxId, PayloadId};
use crate::payload::{Payload, Sealed, Sha256Digest};
use crate::registry::CallbackTrust;
use crate::walk::{Act, Committed, Ports, Stopped};

/// How often an event is stored anew when nobody knows whether it was.
const TRIES: u32 = 4;

/// A pushed event, read.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// What it claims.
    pub claim: PushClaim,
    /// The foreign task that it names.
    pub foreign_task: Option<String>,
    /// The conversation that it names.
    pub foreign_context: Option<String>,
    /// What it gives, if it claims something that content belongs to.
    pub body: Option<Payload>,
    /// Digest of the event, without its envelope.
    pub digest: Sha256Digest,
}

/// What became of a pushed event.
#[derive(Debug)]
pub enum Accepted {
    /// Stored, now or before.
    Stored(Vec<Act>),
    /// It names another task than the one that is known behind that door.
    OtherTask,
    /// Too much lies there unread: the sender may try again.
    Full,
}

/// Stores a pushed event behind the door at which it came. Where a push is only a hint, one unread body is kept;
/// of the others the digest.
///
/// # Errors
/// If it can't be made durable: the sender may try again.
pub async fn accept(
    ports: &Ports,
    door: &Doorway,
    trust: CallbackTrust,
    pushed: Pushed,
) -> Result<Accepted, Stopped> {
    let named = pushed.foreign_task.as_deref();
    if Fault::EarlyEventTurnedAway.is_back() && door.foreign_task.is_none() {
        return Ok(Accepted::OtherTask);
    }
    if door.foreign_task.as_deref().is_some_and(|known| named.is_some_and(|n| n != known)) {
        return Ok(Accepted::OtherTask);
    }
    let is_hint = trust == CallbackTrust::Confirm && door.unread.body_bytes > 0;
    let body = pushed.body.as_ref().filter(|_| !is_hint).map(Payload::bytes);
    let bytes = body.as_ref().map_or(0, Vec::len);
    if !door.unread.has_room_for(u64::try_from(bytes).unwrap_or(u64::MAX)) {
        return Ok(Accepted::Full);
    }
    for _ in 0..TRIES {
        match ports.commit(stored(ports, door, &pushed, body.as_deref()).await?).await {
            Ok(Committed::Durable(acts)) => return Ok(Accepted::Stored(acts)),
            // A duplicate is as good as stored.
            Err(Stopped::Commit(Refused::Duplicate(_))) => return Ok(Accepted::Stored(Vec::new())),
            // The answer to the commit was lost, and it isn't durable: what isn't stored is never acknowledged.
            Ok(Committed::Moved | Committed::Learned(_)) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Stopped::Busy)
}

/// The change set that stores an event.
async fn stored(
    ports: &Ports,
    door: &Doorway,
    pushed: &Pushed,
    body: Option<&[u8]>,
) -> Result<ChangeSet, Stopped> {
    let now = ports.store.now().await?;
    let mut ids = Ids::new(now, ports.entropy.seed());
    let route = &door.route;
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), route.org.clone(), now);
    let body = body.map(|bytes| {
        let id = PayloadId::draw(&mut ids);
        let sealed = Sealed::new(bytes.to_vec(), &mut ids);
        set.writes.push(Write { expected: 0, row: Row::Payload(id, route.task, sealed) });
        id
    });
    let row = InboxRow {
        id: InboxId::draw(&mut ids),
        org: route.org.clone(),
        hop: route.hop,
        n: route.n,
        digest: if Fault::OneEventPerToken.is_back() {
            Sha256Digest::of(route.callback.to_string().as_bytes())
        } else {
            pushed.digest
        },
        claim: pushed.claim,
        foreign_task: pushed.foreign_task.clone(),
        foreign_context: pushed.foreign_context.clone(),
        body,
        at: now,
        checks: 0,
        due_at: Some(now),
    };
    set.writes.push(Write { expected: 0, row: Row::Inbox(row) });
    set.effects.push(Effect::Due(DueKind::Inbox));
    Ok(set)
}
