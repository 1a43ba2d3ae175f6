//! Runs walks over the record in memory, one after the other, with time moved as they need it.

use std::future::Future;
use std::sync::{Arc, Mutex};

use exeat_core::id::Ids;
use exeat_core::task::advance::start;
use exeat_core::task::desk::Hindsight;
use exeat_core::walk::{Act, Committed, Ports};
use exeat_testkit::sim::executor::{Executor, Owner};
use exeat_testkit::sim::faulty::Shared;
use exeat_testkit::sim::people::new_task;
use exeat_testkit::sim::setting::org;

/// Runs to the end, moving time as needed.
pub(crate) fn run<T: Send + 'static>(shared: &Shared, job: impl Future<Output = T> + Send + 'static) -> T {
    let (mut executor, out) = (Executor::default(), Arc::new(Mutex::new(None)));
    let slot = out.clone();
    executor.spawner().spawn(Owner::World, async move {
        let done = job.await;
        *slot.lock().unwrap() = Some(done);
    });
    while out.lock().unwrap().is_none() {
        if !executor.step(&shared.chance) {
            assert!(shared.clock.advance(), "nothing moves");
        }
    }
    out.lock().unwrap().take().unwrap()
}

/// Starts a task of a workflow.
pub(crate) async fn begin(ports: Ports, flow: &'static str) -> Vec<Act> {
    let registry = ports.store.registry(org()).await.unwrap();
    let now = ports.store.now().await.unwrap();
    let governor = ports.governors.of(&registry);
    let decided = ports.decide(&registry, governor.as_ref(), now, &Hindsight::default(), |c, i: Ids| {
        start(c, i, new_task(flow))
    });
    match ports.commit(decided.unwrap().1).await.unwrap() {
        Committed::Durable(acts) => acts,
        other => panic!("{other:?}"),
    }
}
