//! The walks: the short async functions over ports that order load → decide → commit → act.
//!
//! Free of any runtime: they start nothing and sleep nowhere. Server and simulator run these same walks, so
//! what the simulator proves is what ships. Crash points are exactly the commits.

pub mod batch;
