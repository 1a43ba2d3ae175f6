//! A tiny executor: the scheduler picks which job moves next, and a replica's jobs can be dropped at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::sim::chance::Chance;

/// Whose job it is: a replica's run (0, 1, …), or the world's, which never stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Dropped when that replica stops.
    Replica(u32),
    /// Never dropped.
    World,
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Job {
    owner: Owner,
    future: Boxed,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where jobs are handed in.
#[derive(Clone, Default)]
pub struct Spawner(Arc<Mutex<Vec<(Owner, Boxed)>>>);

impl Spawner {
    /// Hands a job in; it starts when the scheduler likes.
    pub fn spawn(&self, owner: Owner, job: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((owner, Box::pin(job)));
    }

    fn take(&self) -> Vec<(Owner, Boxed)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// All jobs that aren't over.
#[derive(Default)]
pub struct Executor {
    jobs: Vec<Job>,
    spawner: Spawner,
}

impl Executor {
    /// Where jobs are handed in.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Moves one job that can move; false if none can.
    pub fn step(&mut self, chance: &Chance) -> bool {
        for (owner, future) in self.spawner.take() {
            self.jobs.push(Job { owner, future, woken: Arc::new(Woken(AtomicBool::new(true))) });
        }
        let ready: Vec<usize> = (0..self.jobs.len())
            .filter(|i| self.jobs.get(*i).is_some_and(|j| j.woken.0.load(Ordering::Relaxed)))
            .collect();
        if ready.is_empty() {
            return false;
        }
        let at = chance.pick(&ready);
        if let Some(job) = self.jobs.get_mut(at) {
            job.woken.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&job.woken));
            if job.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.jobs.swap_remove(at));
            }
        }
        true
    }

    /// Drops all jobs of an owner: what a stopped process leaves behind is what is durable.
    pub fn stop(&mut self, owner: Owner) {
        for (o, future) in self.spawner.take() {
            if o != owner {
                self.jobs.push(Job { owner: o, future, woken: Arc::new(Woken(AtomicBool::new(true))) });
            }
        }
        self.jobs.retain(|j| j.owner != owner);
    }
}
