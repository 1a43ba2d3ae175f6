//! Verifies an export with nothing but the ledger's public key: no server, no network.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use exeat_core::ledger::export::other_signer;
use exeat_core::ledger::{Flaw, PublicKey, newest, verify_export};
use serde_json::Value;

use crate::cli::given::file_text;
use crate::failure::Failure;

/// Verifies the export in `file` against the public key in `pem`, and against the newest checkpoint in `held`; gives the
/// Verification, and who signed the export if that was another key. The export is read line by line, so that its size
/// doesn't matter.
///
/// # Errors
/// If a file can't be read, or the key isn't one. What is wrong with the export is in the answer.
pub(super) fn verify(
    file: &Path,
    pem: &Path,
    held: Option<&Path>,
) -> Result<(Value, Option<String>), Failure> {
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
    let signer = match verification.first_bad {
        Some(bad) if bad.why == Flaw::NoCheckpoint => {
            last_line(file).ok().and_then(|line| other_signer(&line, &key))
        }
        _ => None,
    };
    let shown = serde_json::to_value(&verification)
        .map_err(|e| Failure::usage(format!("cannot show the verification: {e}")))?;
    Ok((shown, signer))
}

/// Bytes at the end of an export in which its last line lies.
const TAIL: i64 = 128 << 10;

fn last_line(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
    file.seek(SeekFrom::End(-TAIL.min(length)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let tail = tail.trim_ascii_end();
    Ok(tail.rsplit(|b| *b == b'\n').next().unwrap_or_default().to_vec())
}
