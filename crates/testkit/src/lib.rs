//! Dev only: the record in memory, contract suites, and what stands in for the outside in tests.
//!
//! Nothing here ships. A crate uses it in its `tests/it` only.

pub mod contract;
pub mod memory;
pub mod sim;
pub mod world;
