//! An approval, as its approvers see it.

use std::collections::BTreeMap;

use exeat_core::approval::{Approval, interface_shown};
use exeat_core::id::PayloadId;
use exeat_core::ledger::Dir;
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::Sealed;
use exeat_core::principal::{ApiKey, KeyScope};
use serde_json::{Value, json};

use crate::shown::Sight;

/// Why this key may not see the content, if it may not. What came from outside and wasn't let in is for those alone
/// who are asked to judge it.
fn withheld_from(a: &Approval, who: &ApiKey) -> Option<&'static str> {
    let sight = Sight::of(&who.clearance);
    let is_in = a.dir != Dir::A2aIngress || a.status == ApprovalStatus::Approved;
    let is_asked = who.scopes.contains(&KeyScope::Approver) && !a.roles.is_disjoint(&who.approver_roles);
    if !(sight.sees(&a.label) && sight.sees(&a.payload.label)) {
        Some("clearance_too_low")
    } else if !is_in && !is_asked {
        Some("not_let_in")
    } else {
        None
    }
}

/// An approval with its exact content: `content` is the payload bytes as text, null where they are withheld; of what
/// wasn't let in, salted digest and size are shown instead.
#[must_use]
pub fn shown(a: &Approval, payloads: &BTreeMap<PayloadId, Sealed>, who: &ApiKey) -> Value {
    let withheld = withheld_from(a, who);
    let bytes = payloads.get(&a.payload.id).filter(|_| withheld.is_none());
    let payload = match withheld {
        None => Sight::of(&who.clearance).payload(&a.payload, payloads),
        Some(why) => {
            let mut payload = super::withheld(why, &a.label);
            if let Some(m) = payload.as_object_mut() {
                m.insert("digest".to_owned(), json!(a.payload.digest));
                m.insert("bytes".to_owned(), json!(a.payload.bytes));
            }
            payload
        }
    };
    let decisions: Vec<Value> = a
        .decisions
        .iter()
        .map(|d| json!({ "by": d.by, "decision": d.decision, "reason": d.reason, "at": d.at }))
        .collect();
    json!({
        "approval_id": a.id,
        "status": a.status,
        "dir": a.dir,
        "task_id": a.task,
        "step": a.step,
        "hop_id": a.hop,
        "turn": a.turn,
        "requester": a.requester,
        "to": a.to,
        "origin": a.origin,
        "skill": a.skill,
        "registry_version": a.registry_version,
        "interface": interface_shown(a.bound.as_ref()),
        "foreign_task_id": a.foreign.as_ref().map(|f| &f.task),
        "foreign_context_id": a.foreign.as_ref().and_then(|f| f.context.as_ref()),
        "label": a.label.shown(),
        "tainted": a.tainted,
        "content": bytes.map(|s| String::from_utf8_lossy(&s.bytes)),
        "payload": payload,
        "digest": a.digest,
        "price_microusd": a.price_microusd,
        "because": a.because,
        "roles": a.roles,
        "missing_roles": a.missing_roles(),
        "quorum": 1,
        "decisions": decisions,
        "created_at": a.created_at,
        "expires_at": a.expires_at,
        "supersedes": a.supersedes,
    })
}
