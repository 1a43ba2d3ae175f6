//! Verifies an export with nothing but the ledger's public key: no server, no network.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use exeat_core::ledger::{PublicKey, newest, verify_export};
use serde_json::Value;

use crate::cli::given::file_text;
use crate::failure::Failure;

/// Verifies the export in `file` against the public key in `pem`, and against the newest checkpoint in `held`; gives the
/// Verification. The export is read line by line, so that its size doesn't matter.
///
/// # Errors
/// If a file can't be read, or the key isn't one. What is wrong with the export is in the answer.
pub(super) fn verify(file: &Path, pem: &Path, held: Option<&Path>) -> Result<Value, Failure> {
    let key = PublicKey::from_pem(&file_text(pem)?).map_err(|e| {
        Failure::usage(format!("{} isn't a ledger's public key: {e}", pem.display()))
            .next("use the PEM that `exeat audit key` prints")
    })?;
    let held = held
        .map(|path| {
            newest(&file_text(path)?, &key).ok_or_else(|| {
                Failure::usage(format!("{} holds no checkpoint that this key signed", path.display()))
                    .next("use a copy of the server's checkpoints.txt, and the key that signed it")
            })
        })
        .transpose()?;
    let cannot = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", file.display()));
    let export = BufReader::with_capacity(1 << 20, File::open(file).map_err(cannot)?);
    let verification = verify_export(export, &key, held.as_ref()).map_err(cannot)?;
    serde_json::to_value(&verification)
        .map_err(|e| Failure::usage(format!("cannot show the verification: {e}")))
}
