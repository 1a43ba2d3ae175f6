//! The transport as a whole: permits in, real sockets out.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod agent;
mod cards;
mod contacts;
mod peers;
mod probes;
mod reach;
mod sends;
