//! The simulator: replicas of the real walks over the record in memory, in a world that lies, loses and
//! delays, under a scheduler that is a pure function of a seed.
//!
//! One thread, no runtime, no real time: a run replays exactly. Whatever may happen between two commits
//! happens here: a replica stops before or after any of them, answers get lost, two replicas race. After
//! each commit the [`audit`] holds the promises against what became durable.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a harness: what can't be stops the run, and the seed is printed"
)]

pub mod audit;
pub mod calls;
pub mod chance;
pub mod clock;
pub mod executor;
pub mod faulty;
pub mod people;
pub mod policy;
pub mod run;
pub mod setting;
pub mod workers;

pub use run::{Report, run};
