//! What a task looks like once a change set is durable: its snapshot with the set's rows laid over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use exeat_core::change::{ChangeSet, Row, Snapshot, WorkflowRow};

/// The snapshot after the set.
#[must_use]
pub fn after(mut s: Snapshot, set: &ChangeSet) -> Snapshot {
    for w in &set.writes {
        let version = w.expected + 1;
        match &w.row {
            Row::Task(t) if t.id == s.task.0.id => s.task = (t.clone(), version),
            Row::Bridge(b) => put(&mut s.bridges, b, version, |o| o.hop == b.hop),
            Row::Envelope(e) => put(&mut s.envelopes, e, version, |o| o.id == e.id),
            Row::Approval(a) => put(&mut s.approvals, a, version, |o| o.id == a.id),
            Row::Payload(id, _, sealed) => {
                s.payloads.insert(*id, sealed.clone());
            }
            // Nobody is shown the others.
            _ => {}
        }
    }
    s
}

/// The snapshot of a task that the set begins; none if it begins none.
#[must_use]
pub fn begun(set: &ChangeSet, workflow: Option<Arc<WorkflowRow>>) -> Option<Snapshot> {
    let task =
        set.writes.iter().find_map(|w| if let Row::Task(t) = &w.row { Some(t.clone()) } else { None })?;
    let empty = Snapshot {
        now: set.at,
        task: (task, 1),
        workflow,
        bridges: Vec::new(),
        envelopes: Vec::new(),
        approvals: Vec::new(),
        cancels: Vec::new(),
        inbox: Vec::new(),
        payloads: BTreeMap::new(),
    };
    Some(after(empty, set))
}

fn put<T: Clone>(rows: &mut Vec<(T, u64)>, row: &T, version: u64, same: impl Fn(&T) -> bool) {
    match rows.iter_mut().find(|(o, _)| same(o)) {
        Some(held) => *held = (row.clone(), version),
        None => rows.push((row.clone(), version)),
    }
}
