//! A foreign hop: its bridge, as operators see it.

use exeat_core::bridge::Bridge;
use exeat_core::change::Snapshot;
use exeat_core::ledger::{Data, Record};
use exeat_core::ports::StoredRecord;
use exeat_core::task::{Hop, HopOwner, HopState};
use serde_json::{Value, json};

use crate::shown::Sight;

/// An edge's place in the ledger.
#[derive(Clone, Debug)]
pub struct Edge {
    record: Record,
}

/// The edges among a task's records.
#[must_use]
pub fn edges(records: &[StoredRecord]) -> Vec<Edge> {
    records
        .iter()
        .filter_map(|r| serde_json::from_slice::<Record>(&r.bytes).ok())
        .filter(|r| matches!(r.data, Data::Edge(_)))
        .map(|record| Edge { record })
        .collect()
}

/// A hop to a foreign agent. Its `payload_digest` is the plain SHA-256 of the payload bytes for who may see them,
/// and the ledger's salted one for anybody else: a plain digest of few possible contents gives them away.
#[must_use]
pub fn shown(b: &Bridge, hop: &Hop, snapshot: &Snapshot, edges: &[Edge], sight: Sight<'_>) -> Value {
    let seen = &hop.seen;
    let cleared = sight.sees(&b.payload.label) && sight.sees(seen);
    let delegation = match &hop.owner {
        HopOwner::Worker { delegation, .. } => Some(delegation),
        HopOwner::Step { .. } => None,
    };
    let digest = if cleared { b.payload.plain.to_string() } else { b.payload.digest.as_str().to_owned() };
    let attempts: Vec<Value> = b
        .attempts
        .iter()
        .map(|a| {
            let detail = if cleared { a.detail.as_str() } else { "" };
            json!({ "n": a.n, "turn": a.turn, "at": a.at, "outcome": a.outcome, "detail": detail })
        })
        .collect();
    let edges: Vec<Value> = edges
        .iter()
        .filter(|e| e.record.hop == Some(b.hop))
        .filter_map(|e| match &e.record.data {
            Data::Edge(d) => Some(json!({ "seq": e.record.seq, "turn": e.record.turn, "dir": d.dir })),
            _ => None,
        })
        .collect();
    json!({
        "hop_id": b.hop,
        "to": format!("agent:{}", b.agent),
        "delegation": delegation,
        "registry_version": b.registry_version,
        "origin": b.origin,
        "skill": b.skill,
        "state": b.state.as_str(),
        "reason": sight.reason(b.reason.as_ref(), seen),
        "turn": b.turn,
        "label": b.payload.label.shown(),
        "payload_digest": digest,
        "verdict": b.verdict,
        "approval_id": b.approval,
        "message_ids": b.message_ids,
        "foreign_task_id": b.foreign.as_ref().map(|f| &f.task),
        "foreign_context_id": b.foreign.as_ref().and_then(|f| f.context.as_ref()),
        "protocol": b.interface.as_ref().map(|i| &i.version),
        "binding": b.interface.as_ref().map(|i| &i.binding),
        "card_digest": b.card_digest,
        "attempts": attempts,
        "push": { "asked": b.push.asked, "arrived": b.push.arrived },
        "looks": b.looks,
        "due_at": b.due_at,
        "deadline": b.deadline,
        "question": question(hop, snapshot, sight),
        "cost": {
            "rule": b.cost.rule,
            "estimate_microusd": b.cost.estimate_microusd,
            "reported_microusd": b.cost.reported_microusd,
            "elapsed_ms": b.cost.elapsed.millis(),
            "reserved_microusd": b.cost.reserved_microusd,
            "settled_microusd": b.cost.settled_microusd,
        },
        "edges": edges,
    })
}

fn question(hop: &Hop, snapshot: &Snapshot, sight: Sight<'_>) -> Value {
    match &hop.state {
        HopState::Asking(q) => json!({
            "question_id": q.id,
            "prompt": sight.payload(&q.prompt, &snapshot.payloads),
            "until": q.until,
        }),
        _ => Value::Null,
    }
}
