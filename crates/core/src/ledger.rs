//! The per-org hash chain of audit records, with signed checkpoints.
//!
//! Promises: each record is covered by the hash of every later one; changing, removing, inserting or
//! reordering any shows at that record; an export and a public key verify offline, without Exeat. Never:
//! holds free text or content (a record outlives both), a number that isn't an integer, or a secret.

pub mod data;
pub mod record;
pub mod word;

pub use data::{Data, Kind};
pub use record::{Actor, Dir, Draft, EdgeKey, Record};
pub use word::{Code, OutsideId, Party, SaltedDigest};
