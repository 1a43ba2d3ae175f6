//! The walks over the record in memory: simulated, and counted.
#![cfg(test)]

mod calls;
mod late;
mod rig;
mod sim;
