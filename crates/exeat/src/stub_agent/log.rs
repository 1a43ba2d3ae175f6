//! The record of what came: one JSON line per accepted connection, request and push, flushed at once.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde_json::Value;

/// Where the lines go, if anywhere.
pub(super) struct Log(Option<Mutex<File>>);

impl Log {
    /// Opens for appending.
    ///
    /// # Errors
    /// If the file can't be opened.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("can't open the log {}", path.display()))?;
        Ok(Self(Some(Mutex::new(file))))
    }

    /// Appends a line in one write, so that a reader never meets half of one that is done.
    pub(super) fn line(&self, event: &Value) {
        let Some(file) = &self.0 else { return };
        let line = format!("{event}\n");
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.flush()) {
            let _ = writeln!(std::io::stderr(), "stub-agent: log: {error}");
        }
    }
}
