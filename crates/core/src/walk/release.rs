//! An approver's decision, and what it releases.

use crate::approval::Choice;
use crate::change::ChangeSet;
use crate::id::{ApprovalId, OrgName};
use crate::payload::Sha256Digest;
use crate::ports::Find;
use crate::principal::ApiKey;
use crate::task::decision::{self, Decision};
use crate::walk::{Act, Ports, Stopped};

/// One decision, as it was made at a door.
#[derive(Clone, Debug)]
pub struct Said {
    /// About which approval.
    pub approval: ApprovalId,
    /// By whom.
    pub who: ApiKey,
    /// What.
    pub choice: Choice,
    /// The digest that the approver saw.
    pub seen: Sha256Digest,
    /// Why.
    pub reason: Option<String>,
}

/// Takes a decision: one read, one commit.
///
/// # Errors
/// Why it isn't taken.
pub async fn decide(ports: &Ports, org: &OrgName, said: &Said) -> Result<Vec<Act>, Stopped> {
    let walked = ports.walk(org, Find::Approval(said.approval), |ctx, ids, flow, snapshot| {
        let empty = ChangeSet::new(crate::id::ChangeId::draw(&mut ids.clone()), org.clone(), ctx.now);
        let (seen, reason) = (said.seen, said.reason.as_deref());
        match decision::decide(ctx, ids, flow, snapshot, said.approval, &said.who, said.choice, seen, reason)?
        {
            Decision::Again => Ok(((), empty)),
            Decision::Made(set) => Ok(((), *set)),
        }
    });
    walked.await.map(|((), acts)| acts)
}
