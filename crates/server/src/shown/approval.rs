//! An approval, as its approvers see it.

use std::collections::BTreeMap;

use exeat_core::approval::{Approval, interface_shown};
use exeat_core::id::PayloadId;
use exeat_core::payload::Sealed;
use serde_json::{Value, json};

use crate::shown::Sight;

/// An approval with its exact content: `content` is the payload bytes as text, null where they are withheld.
#[must_use]
pub fn shown(a: &Approval, payloads: &BTreeMap<PayloadId, Sealed>, sight: Sight<'_>) -> Value {
    let cleared = sight.sees(&a.label) && sight.sees(&a.payload.label);
    let bytes = payloads.get(&a.payload.id).filter(|_| cleared);
    let payload = if cleared {
        sight.payload(&a.payload, payloads)
    } else {
        super::withheld("clearance_too_low", &a.label)
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
