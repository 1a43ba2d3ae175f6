//! The walks over the record in memory: simulated, and counted.
#![cfg(test)]

/// The simulator makes and drops small things all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod calls;
mod late;
mod redelivery;
mod rig;
mod scene;
mod sim;
mod unknown;
