//! Coming in: a pushed event is stored before anything acts on it.
//!
//! Nothing is read before the token's MAC holds (the door's business), and one commit is all that happens
//! on the request. Acting on it is the sweep's: see [`sweep`](super::sweep).

use crate::bridge::{Doorway, InboxRow, PushClaim};
use crate::change::{ChangeSet, DueKind, Effect, Refused, Row, Write};
use crate::id::{ChangeId, Ids, InboxId, PayloadId};
use crate::payload::{Payload, Sealed, Sha256Digest};
use crate::registry::CallbackTrust;
use crate::walk::{Act, Committed, Ports, Stopped};

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
    if door.foreign_task.as_deref().is_some_and(|known| named.is_some_and(|n| n != known)) {
        return Ok(Accepted::OtherTask);
    }
    let is_hint = trust == CallbackTrust::Confirm && door.unread.body_bytes > 0;
    let body = pushed.body.filter(|_| !is_hint).map(|p| p.bytes());
    let bytes = body.as_ref().map_or(0, Vec::len);
    if !door.unread.has_room_for(u64::try_from(bytes).unwrap_or(u64::MAX)) {
        return Ok(Accepted::Full);
    }
    let now = ports.store.now().await?;
    let mut ids = Ids::new(now, ports.entropy.seed());
    let route = &door.route;
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), route.org.clone(), now);
    let body = body.map(|bytes| {
        let id = PayloadId::draw(&mut ids);
        let sealed = Sealed::new(bytes, &mut ids);
        set.writes.push(Write { expected: 0, row: Row::Payload(id, route.task, sealed) });
        id
    });
    let row = InboxRow {
        id: InboxId::draw(&mut ids),
        org: route.org.clone(),
        hop: route.hop,
        n: route.n,
        digest: pushed.digest,
        claim: pushed.claim,
        foreign_task: pushed.foreign_task,
        foreign_context: pushed.foreign_context,
        body,
        at: now,
        checks: 0,
        due_at: Some(now),
    };
    set.writes.push(Write { expected: 0, row: Row::Inbox(row) });
    set.effects.push(Effect::Due(DueKind::Inbox));
    match ports.commit(set).await {
        Ok(Committed::Durable(acts)) => Ok(Accepted::Stored(acts)),
        // A duplicate is as good as stored.
        Err(Stopped::Commit(Refused::Duplicate(_))) | Ok(Committed::Moved | Committed::Learned(_)) => {
            Ok(Accepted::Stored(Vec::new()))
        }
        Err(e) => Err(e),
    }
}
