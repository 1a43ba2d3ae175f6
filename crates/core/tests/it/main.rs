//! The walks over the record in memory: simulated, and counted.
#![cfg(test)]

mod calls;
mod late;
mod redelivery;
mod rig;
mod scene;
mod sim;
mod unknown;
