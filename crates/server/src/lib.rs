//! Doors (REST, callback) and loops (coordinator, egress, outbox, sweep).
//!
//! Every decision is the core's: a door loads nothing and decides nothing by itself, it reads a request,
//! walks, and shows what came of it. A loop claims what is due and walks. Nothing here dials a foreign host
//! or writes SQL.

pub mod app;
pub mod auth;
pub mod body;
pub mod idempotency;
pub mod page;
pub mod problem;
pub mod runtime;
