//! The embedded store keeps the contract, and refuses to be opened where it couldn't.

mod contract;
mod opening;
mod writing;
