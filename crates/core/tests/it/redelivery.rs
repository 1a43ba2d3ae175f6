//! What becomes of work whose worker fails at once, again and again.

use std::sync::Arc;

use exeat_core::change::DueKind;
use exeat_core::id::LeaseId;
use exeat_core::ports::Find;
use exeat_core::reason::ReasonCode;
use exeat_core::task::worker::{Call, Retry, lease, settle};
use exeat_core::task::{Ending, TaskStatus};
use exeat_core::time::Span;
use exeat_core::walk::{Ports, sweep};
use exeat_testkit::sim::calls::ports;
use exeat_testkit::sim::run::{Kind, scene};
use exeat_testkit::sim::setting::{name, org, person};
use serde_json::json;

use crate::rig;

/// Leases the one ready envelope and fails it, if there is one that is ready.
async fn fail_once(ports: &Ports) -> bool {
    let ready = ports.store.ready_envelopes(org(), &[name("role:writer")], 5).await.unwrap();
    let Some(id) = ready.first().copied() else { return false };
    let key = person("worker", &[]);
    let walked = ports
        .walk(org(), Find::Envelope(id), |c, i, f, s| lease(c, i, f, s, id, &key, ("w", &name("writer"))));
    let (held, _) = walked.await.unwrap();
    let held: LeaseId = name(held["lease_id"].as_str().unwrap());
    let call = Call::Fail { reason: "no".to_owned(), retry: Retry::Again };
    let settled = ports.walk(org(), Find::Lease(held), |c, i, f, s| {
        settle(c, i, f, s, (held, &key), call.clone(), &json!({ "reason": "no" }))
    });
    settled.await.unwrap();
    true
}

#[test]
fn work_that_fails_at_once_is_handed_out_again_after_pauses_that_double() {
    let (shared, world) = scene(7, Kind::Plain, false);
    let ports = ports(&shared, Arc::new(shared.memory.clone()), Arc::new(world));
    let clock = shared.clock.clone();
    drop(rig::run(&shared, rig::begin(ports.clone(), "hop-writer")));
    let pauses = rig::run(&shared, async move {
        let mut pauses = Vec::new();
        let mut failed_at = clock.elapsed();
        for _ in 0..20 {
            if fail_once(&ports).await {
                pauses.push(clock.elapsed().less(failed_at).micros().div_euclid(100_000));
                failed_at = clock.elapsed();
                let ready = ports.store.ready_envelopes(org(), &[name("role:writer")], 5).await.unwrap();
                assert!(ready.is_empty(), "it isn't handed out again at once");
            }
            clock.sleep(Span::of_millis(100)).await;
            for row in ports.store.claim_due(DueKind::Envelope, 8, Span::of_secs(5)).await.unwrap() {
                sweep::handle(&ports, row).await.unwrap();
            }
        }
        pauses
    });
    assert_eq!(pauses, [0, 2, 4], "tenths: 0.2 s, then twice as long, until three deliveries are used up");
    let tasks = shared.memory.rows(org());
    let task = tasks.into_iter().find_map(|(_, r)| match r {
        exeat_core::change::Row::Task(t) => Some(t),
        _ => None,
    });
    let task = task.expect("the task");
    assert_eq!(task.status, TaskStatus::Ended(Ending::Failed));
    assert_eq!(task.reason.map(|r| r.code), Some(ReasonCode::WorkerFailed));
}
