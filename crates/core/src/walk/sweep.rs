//! The sweep: whatever is due is claimed, decided and moved; looks are taken between a claim and a commit.
//!
//! One read a tick claims the rows; each is then handled on its own, so that a slow agent holds nobody up.

use crate::bridge::schedule::LOOK;
use crate::change::{ChangeSet, DueKind, Key};
use crate::gate::exeat::{Address, Claim, LookFor, cancel, look};
use crate::id::{HopId, OrgName};
use crate::ports::{DueRow, Find};
use crate::task::decision::{self, Because, Next};
use crate::task::desk::Hindsight;
use crate::task::worker;
use crate::time::Span;
use crate::walk::{Act, Committed, Loaded, Ports, Stopped};

/// How long a claimed row is held.
const HOLD: Span = Span::of_secs(45);
/// How often a due row is decided anew in one go.
const TRIES: u32 = 8;

/// Claims due rows of a kind.
///
/// # Errors
/// If the record can't be asked.
pub async fn claim(ports: &Ports, kind: DueKind, limit: u32) -> Result<Vec<Act>, Stopped> {
    let rows = ports.store.claim_due(kind, limit, HOLD).await?;
    Ok(rows.into_iter().map(Act::Handle).collect())
}

/// Moves one claimed row.
///
/// # Errors
/// If the record can't be reached, or the row can't be decided; its claim runs out then.
pub async fn handle(ports: &Ports, row: DueRow) -> Result<Vec<Act>, Stopped> {
    let org = row.claim.org().clone();
    match row.key {
        Key::Task(_) => committed(ports, &org, row.find, decision::tick).await,
        Key::Approval(id) => {
            committed(ports, &org, row.find, |c, i, f, s| decision::expire(c, i, f, s, id)).await
        }
        Key::Envelope(id) => {
            committed(ports, &org, row.find, |c, i, f, s| worker::envelope_due(c, i, f, s, id)).await
        }
        Key::Bridge(hop) => contact(ports, &org, hop, row.claim, Kind::Bridge).await,
        Key::Inbox(_) => match row.find {
            Find::Hop(hop) => contact(ports, &org, hop, row.claim, Kind::Inbox).await,
            _ => Ok(Vec::new()),
        },
        Key::Cancel(hop, foreign) => contact(ports, &org, hop, row.claim, Kind::Cancel(foreign)).await,
        _ => Ok(Vec::new()),
    }
}

async fn committed(
    ports: &Ports,
    org: &OrgName,
    find: Find,
    decision: impl Fn(
        crate::task::desk::Context<'_>,
        crate::id::Ids,
        std::sync::Arc<crate::workflow::Workflow>,
        crate::change::Snapshot,
    ) -> Result<ChangeSet, crate::task::desk::Refusal>,
) -> Result<Vec<Act>, Stopped> {
    let walked = ports.walk(org, find, |c, i, f, s| decision(c, i, f, s).map(|set| ((), set)));
    walked.await.map(|((), acts)| acts)
}

/// Rows that may need a contact first.
enum Kind {
    Bridge,
    Inbox,
    Cancel(String),
}

async fn contact(
    ports: &Ports,
    org: &OrgName,
    hop: HopId,
    claim: Claim,
    kind: Kind,
) -> Result<Vec<Act>, Stopped> {
    match next(ports, org, hop, &kind).await? {
        Step::Done(acts) => Ok(acts),
        Step::Look(address, ask, n) => {
            let not_after = ports.clock.monotonic() + LOOK;
            let told = address.door.as_ref().map(|(door, until)| ports.door.told(org, door, *until));
            let look = look(claim, address, ask, not_after, told.unwrap_or_default());
            let outcome = ports.transport.look(look).await;
            let because = if matches!(kind, Kind::Inbox) { Because::Pushed } else { Because::Due };
            committed(ports, org, Find::Hop(hop), |c, i, f, s| {
                decision::looked(c, i, f, s, (hop, n), &outcome, because)
            })
            .await
        }
        Step::Cancel(address, task) => {
            let not_after = ports.clock.monotonic() + LOOK;
            let outcome = ports.transport.cancel(cancel(claim, address, task.clone(), not_after)).await;
            committed(ports, org, Find::Hop(hop), |c, i, f, s| {
                decision::canceled(c, i, f, s, hop, &task, &outcome)
            })
            .await
        }
    }
}

enum Step {
    Done(Vec<Act>),
    /// Its lease is durable.
    Look(Address, LookFor, u32),
    Cancel(Address, String),
}

/// Decides what a due row wants, and commits it unless a contact comes first.
async fn next(ports: &Ports, org: &OrgName, hop: HopId, kind: &Kind) -> Result<Step, Stopped> {
    let mut hindsight = Hindsight::default();
    for _ in 0..TRIES {
        let Loaded { registry, governor, snapshot, flow } = ports.load(org, Find::Hop(hop)).await?;
        let now = snapshot.now;
        let next = ports.decide(&registry, governor.as_ref(), now, &hindsight, |ctx, ids| match kind {
            Kind::Bridge => decision::bridge_due(ctx, ids, flow, snapshot, hop),
            Kind::Inbox => decision::push_due(ctx, ids, flow, snapshot, hop),
            Kind::Cancel(foreign) => decision::cancel_due(ctx, ids, flow, snapshot, hop, foreign),
        })?;
        let (set, look) = match next {
            Next::Look(out) => (out.set, Some((out.address, out.ask, out.n))),
            Next::Cancel(address, task) => return Ok(Step::Cancel(address, task)),
            Next::Commit(set) => (*set, None),
        };
        match (ports.commit(set).await?, look) {
            (Committed::Durable(acts), None) => return Ok(Step::Done(acts)),
            // All that a lease could want done is told by what the look brings.
            (Committed::Durable(_), Some((address, ask, n))) => return Ok(Step::Look(address, ask, n)),
            (Committed::Moved, _) => {}
            (Committed::Learned(lesson), _) => hindsight.learn(lesson),
        }
    }
    Err(Stopped::Busy)
}
