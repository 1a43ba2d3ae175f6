//! The choke-point: governor → ledger → costs, in this order, in one place.

pub mod exeat;
pub mod verdict;
