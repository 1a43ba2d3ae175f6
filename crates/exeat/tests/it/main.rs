//! The binary, as people and scripts use it, against a small real server that follows the API's contract.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod commands;
mod e2e;
mod exeat;
mod hard;
mod licences;
mod requirements;
mod server;
mod terminal;
mod waiting;
mod worker;
