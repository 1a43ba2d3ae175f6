//! A task and its steps.

use std::collections::BTreeMap;

use exeat_core::change::Snapshot;
use exeat_core::id::PayloadId;
use exeat_core::label::Label;
use exeat_core::payload::Sealed;
use exeat_core::registry::Registry;
use exeat_core::task::{Hop, HopOwner, HopState, Run, RunState, Step, Task};
use exeat_core::workflow::Workflow;
use serde_json::{Value, json};

use crate::shown::{Sight, hop, waiting};

/// A task with its steps; the edges of its hops are [put in](hop::put_edges) from the ledger.
#[must_use]
pub fn whole(snapshot: &Snapshot, flow: &Workflow, registry: &Registry, sight: Sight<'_>) -> Value {
    let task = &snapshot.task.0;
    let steps: Vec<Value> = task.steps.iter().map(|s| step(s, snapshot, flow, sight)).collect();
    let mut shown = bare(task, &snapshot.payloads, sight, waiting::shown(snapshot, registry));
    if let Some(m) = shown.as_object_mut() {
        m.insert("steps".to_owned(), Value::Array(steps));
    }
    shown
}

/// A task without its steps, as listings show it.
#[must_use]
pub fn bare(
    task: &Task,
    payloads: &BTreeMap<PayloadId, Sealed>,
    sight: Sight<'_>,
    waiting: Vec<Value>,
) -> Value {
    json!({
        "task_id": task.id,
        "org": task.org,
        "workflow": task.workflow,
        "status": task.status,
        "reason": sight.reason(task.reason.as_ref(), &carried(task)),
        "waiting": waiting,
        "requester": task.requester.id,
        "label": task.input.label.shown(),
        "input": sight.payload(&task.input, payloads),
        "output": sight.maybe(task.output.as_ref(), payloads),
        "cost_microusd": task.cost_microusd,
        "reserved_microusd": task.reserved_microusd,
        "created_at": task.created_at,
        "deadline": task.deadline,
        "ended_at": task.ended_at,
        "continues": task.continues,
    })
}

/// The join of all labels in a task: what words about the whole of it carry.
#[must_use]
pub fn carried(task: &Task) -> Label {
    let held = task.steps.iter().flat_map(|s| s.input.iter().chain(&s.output)).chain(&task.output);
    let label = held.fold(task.input.label.clone(), |l, h| l.join(&h.label));
    task.hops.iter().fold(label, |l, h| l.join(&hop_label(h)))
}

/// The join of all labels that a hop has seen or given.
fn hop_label(h: &Hop) -> Label {
    match &h.state {
        HopState::Asking(q) => h.seen.join(&q.prompt.label),
        HopState::Ended { output: Some(o), .. } => h.seen.join(&o.label),
        _ => h.seen.clone(),
    }
}

fn step(s: &Step, snapshot: &Snapshot, flow: &Workflow, sight: Sight<'_>) -> Value {
    let task = &snapshot.task.0;
    let def = flow.step(&s.name);
    // The elements of a list have labels of their own; the step shows the list's.
    let only = if let [run] = s.runs.as_slice() { Some(run) } else { None };
    let own = only.and_then(Run::hop).and_then(|id| task.hop(id));
    let label = own.map(|h| &h.seen).or(s.input.as_ref().map(|i| &i.label));
    let carried = task
        .hops
        .iter()
        .filter(|h| h.step == s.name)
        .fold(label.unwrap_or(&task.input.label).clone(), |l, h| l.join(&hop_label(h)));
    let to = only.and_then(|r| r.on_fallback.as_ref()).or(def.map(|d| &d.to));
    let is_over = |r: &&Run| matches!(r.state, RunState::Over { .. });
    let elements = def.and_then(|d| d.for_each.as_ref()).filter(|_| s.started_at.is_some());
    let elements =
        elements.map(|_| json!({ "total": s.runs.len(), "over": s.runs.iter().filter(is_over).count() }));
    let tainted = own.map_or_else(|| s.input.as_ref().is_some_and(|i| i.tainted), |h| h.tainted);
    // In the order in which the task made them.
    let bridge_of = |h: &Hop| snapshot.bridges.iter().map(|(b, _)| b).find(|b| b.hop == h.id);
    let own_hops = task.hops.iter().filter(|h| h.step == s.name);
    let hops: Vec<Value> =
        own_hops.filter_map(|h| Some(hop::shown(bridge_of(h)?, h, snapshot, sight))).collect();
    json!({
        "name": s.name,
        "to": to,
        "status": s.status,
        "reason": sight.reason(s.reason.as_ref(), &carried),
        "needs": def.map(|d| d.needs.clone()).unwrap_or_default(),
        "label": label.map(Label::shown),
        "tainted": tainted,
        "input": sight.maybe(s.input.as_ref(), &snapshot.payloads),
        "output": sight.maybe(s.output.as_ref(), &snapshot.payloads),
        "elements": elements,
        "deliveries": deliveries(s, snapshot),
        "started_at": s.started_at,
        "ended_at": s.ended_at,
        "hops": hops,
    })
}

/// How often the step's work was handed to a worker: what is over, and the envelope that is out.
fn deliveries(s: &Step, snapshot: &Snapshot) -> u32 {
    let task = &snapshot.task.0;
    let of_step = |h: &&Hop| h.step == s.name && matches!(h.owner, HopOwner::Step { .. });
    task.hops
        .iter()
        .filter(of_step)
        .map(|h| {
            let out = match &h.state {
                HopState::Out { envelope } => {
                    snapshot.envelopes.iter().find(|(e, _)| e.id == *envelope).map_or(0, |(e, _)| e.delivery)
                }
                _ => 0,
            };
            h.deliveries.saturating_add(out)
        })
        .fold(0, u32::saturating_add)
}
