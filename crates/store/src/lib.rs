//! The record: what is durable, and the only room with SQL in it.
//!
//! One implementation of the domain's `Store` and `Archive` ports so far: [`sqlite`], embedded, for one
//! org and one process. It promises what the contract suite checks, and never acts on what it stores.

pub mod sqlite;

pub use sqlite::{Batch, OpenError, Options, Sqlite};
