//! A foreign hop: its bridge, as operators see it.

use std::collections::BTreeMap;

use exeat_core::bridge::Bridge;
use exeat_core::change::Snapshot;
use exeat_core::id::HopId;
use exeat_core::ledger::{Data, Record};
use exeat_core::ports::StoredRecord;
use exeat_core::task::{Hop, HopOwner, HopState};
use exeat_core::time::Timestamp;
use serde_json::{Value, json};

use crate::shown::Sight;

/// Up to when edges are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpTo {
    /// All there are.
    Now,
    /// Those that were there when an answer was decided, which its replay shows again.
    Then(Timestamp),
}

/// Puts the edges among a task's records into its hops, wherever they stand in a shown task. An edge's number is given
/// at its commit, so an answer that is a part of the commit can't have it yet.
pub fn put_edges(task: &mut Value, records: &[StoredRecord], up_to: UpTo) {
    let within = |r: &Record| match up_to {
        UpTo::Now => true,
        UpTo::Then(at) => r.at <= at,
    };
    let mut of_hop: BTreeMap<HopId, Vec<Value>> = BTreeMap::new();
    for record in
        records.iter().filter_map(|r| serde_json::from_slice::<Record>(&r.bytes).ok()).filter(within)
    {
        if let (Some(hop), Data::Edge(d)) = (record.hop, &record.data) {
            let edge = json!({ "seq": record.seq, "turn": record.turn, "dir": d.dir });
            of_hop.entry(hop).or_default().push(edge);
        }
    }
    for hop in hops_of(task) {
        let id = hop.get("hop_id").and_then(Value::as_str).and_then(|id| id.parse().ok());
        if let (Some(edges), Some(m)) = (id.and_then(|id: HopId| of_hop.remove(&id)), hop.as_object_mut()) {
            m.insert("edges".to_owned(), Value::Array(edges));
        }
    }
}

/// The hops of a shown task.
pub fn hops_of(task: &mut Value) -> impl Iterator<Item = &mut Value> {
    let steps = task.get_mut("steps").and_then(Value::as_array_mut).into_iter().flatten();
    steps.filter_map(|s| s.get_mut("hops").and_then(Value::as_array_mut)).flatten()
}

/// A hop to a foreign agent. Its `payload_digest` is the plain SHA-256 of the payload bytes for who may see them,
/// and the ledger's salted one for anybody else: a plain digest of few possible contents gives them away. Its edges are
/// [put in](put_edges) from the ledger.
#[must_use]
pub fn shown(b: &Bridge, hop: &Hop, snapshot: &Snapshot, sight: Sight<'_>) -> Value {
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
        "edges": [],
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
