//! What a hop, task, step, bridge, label, verdict, exeat and ledger record are, and the gate.
//!
//! Everything here is pure and synchronous but the walks, which are async over ports and free of any
//! runtime. Nothing in this crate can do I/O, read a clock or draw a random number.

pub mod approval;
pub mod bridge;
pub mod change;
pub mod cost;
pub mod endpoint;
pub mod envelope;
pub mod faults;
pub mod gate;
pub mod id;
pub mod key;
pub mod label;
pub mod ledger;
pub mod payload;
pub mod ports;
pub mod principal;
pub mod reason;
pub mod registry;
pub mod task;
pub mod time;
pub mod transport;
pub mod walk;
pub mod workflow;
