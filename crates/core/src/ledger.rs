//! The per-org hash chain of audit records, with signed checkpoints.
//!
//! Promises: each record is covered by the hash of every later one; changing, removing, inserting or
//! reordering any shows at that record; an export and a public key verify offline, without Exeat. Never:
//! holds free text or content (a record outlives both), a number that isn't an integer, or a secret.

pub mod canonical;
pub mod chain;
pub mod checkpoint;
pub mod data;
pub mod export;
pub mod record;
pub mod verify;
pub mod word;

#[cfg(test)]
mod tests;

pub use chain::{AppendError, Appended, Hash, Head, append, append_all};
pub use checkpoint::{Checkpoint, LedgerKey, PublicKey, newest};
pub use data::{Data, Kind};
pub use export::verify_export;
pub use record::{Actor, Dir, Draft, EdgeKey, Record};
pub use verify::{FirstBad, Flaw, Verification, Verifier};
pub use word::{Code, OutsideId, Party, SaltedDigest};
