//! Checkpoints: the ledger's head, signed every so many records or seconds, in the store and outside of it.
//!
//! Outside first: what lies there vouches against a store that was cut or put back. A file that can't be
//! written is an error in the log at each tick, and the store keeps no checkpoint that the file hasn't.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exeat_core::ledger::checkpoint::{Checkpoint, PublicKey, newest};
use exeat_core::ports::Unreadable;
use exeat_core::time::Monotonic;

use crate::app::App;

/// How often the head is looked at, at least.
const TICK: Duration = Duration::from_secs(1);

/// Why there is no checkpoint now.
#[derive(Debug, thiserror::Error)]
pub enum NotSigned {
    /// The store.
    #[error("the store can't be asked")]
    Store(#[from] Unreadable),
    /// The file.
    #[error("{} can't be written", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        why: io::Error,
    },
}

/// Runs the loop until shutdown, and signs once more then.
pub fn spawn(app: &Arc<App>) {
    let this = Arc::clone(app);
    app.runtime.spawn(async move { run(&this).await });
}

async fn run(app: &App) {
    let mut signed = Signed::load(app).await;
    let tick = Duration::from(app.settings.checkpoint_interval).min(TICK).max(Duration::from_millis(10));
    loop {
        let stopping = tokio::select! {
            () = app.runtime.stopping().cancelled() => true,
            () = tokio::time::sleep(tick) => false,
        };
        let when = if stopping { When::Changed } else { When::Due };
        if let Err(e) = signed.sign(app, when).await {
            let cause = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
            tracing::error!(error = %e, cause, "no checkpoint was signed");
        }
        if stopping {
            return;
        }
    }
}

/// When to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// If enough records or seconds have passed.
    Due,
    /// If anything was recorded at all.
    Changed,
}

/// What was signed last.
#[derive(Clone, Copy, Debug)]
pub struct Signed {
    size: u64,
    at: Monotonic,
}

impl Signed {
    /// As the store has it; nothing, if it can't be asked.
    pub async fn load(app: &App) -> Self {
        let at = app.ports.clock.monotonic();
        let note = app.archive.checkpoint(&app.settings.org).await.ok().flatten();
        let public = app.ledger_key.public();
        let size = note.and_then(|n| Checkpoint::open(&n, &public).ok()).map_or(0, |c| c.size);
        Self { size, at }
    }

    /// Signs the head, if it is time. Says how long the chain is that was signed.
    ///
    /// # Errors
    /// If the store or the file can't; the next try signs what there is then.
    pub async fn sign(&mut self, app: &App, when: When) -> Result<Option<u64>, NotSigned> {
        let settings = &app.settings;
        let head = app.archive.head(&settings.org).await?;
        let now = app.ports.clock.monotonic();
        let grown = head.size.saturating_sub(self.size);
        let waited = (self.at + settings.checkpoint_interval) <= now;
        let due = match when {
            When::Changed => grown > 0,
            When::Due => grown >= settings.checkpoint_every.max(1) || (grown > 0 && waited),
        };
        if !due {
            return Ok(None);
        }
        let at = app.ports.store.now().await?;
        let note = app.ledger_key.sign(&Checkpoint::of(settings.org.clone(), head, at));
        let (path, text) = (settings.checkpoint_file.clone(), note.clone());
        let written = tokio::task::spawn_blocking(move || append(&path, &text)).await;
        let file = |why| NotSigned::File { path: settings.checkpoint_file.clone(), why };
        written.map_err(io::Error::other).and_then(|w| w).map_err(file)?;
        app.archive.keep_checkpoint(&settings.org, head.size, &note).await?;
        *self = Self { size: head.size, at: now };
        Ok(Some(head.size))
    }
}

/// How much of the file's end is read: some dozens of notes.
const TAIL: u64 = 64 * 1024;

/// The newest checkpoint in a file of notes that `key` signed; none if there is no such file.
///
/// # Errors
/// If the file can't be read.
pub fn newest_in(path: &Path, key: &PublicKey) -> io::Result<Option<Checkpoint>> {
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(newest(&String::from_utf8_lossy(&tail), key))
}

/// Appends a note and an empty line, and waits until they are on the disk.
fn append(path: &Path, note: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(format!("{note}\n").as_bytes())?;
    file.sync_all()
}
