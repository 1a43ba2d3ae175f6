//! The per-org hash chain of audit records, with signed checkpoints.
