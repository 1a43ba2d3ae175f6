//! Verifies an export with nothing but the ledger's public key: no server, no network.

use std::path::Path;

use serde_json::Value;

use crate::failure::{Exit, Failure, Problem};

/// Verifies the export in `file` against the public key in `pem`; gives the Verification.
pub(super) fn verify(_file: &Path, _pem: &Path) -> Result<Value, Failure> {
    Err(Failure::of(
        Exit::Usage,
        Problem::new("not_built", "offline verification isn't built into this binary yet"),
    ))
}
