//! Room on the disk of the store, and what is refused while little is left.
//!
//! When the disk runs full, new starts fail first: what is left is kept for outcomes, cancels, denials and the kill
//! switch, which make room for nobody but end what is out.

use crate::app::App;
use crate::problem::{Code, Problem};

/// Room on the disk of the store.
pub trait Disk: Send + Sync {
    /// What is left, in bytes. None: it can't be told.
    fn free_bytes(&self) -> Option<u64>;
}

/// Is less left than what is kept for work that is under way? The room that there is, if so.
#[must_use]
pub fn too_little(app: &App) -> Option<u64> {
    app.disk.free_bytes().filter(|free| *free < app.settings.disk_reserve_bytes)
}

/// Refuses what is new while little is left.
///
/// # Errors
/// 503 `disk_full`.
pub fn room_for_new(app: &App) -> Result<(), Problem> {
    let Some(free) = too_little(app) else { return Ok(()) };
    let reserve = app.settings.disk_reserve_bytes;
    tracing::error!(
        free_bytes = free,
        reserve_bytes = reserve,
        "the disk is nearly full; nothing new is started"
    );
    let why = format!(
        "{free} bytes are left on the disk of the store, and {reserve} are kept for what is under way."
    );
    Err(Problem::new(Code::DiskFull, why)
        .advising("Make room; nothing was lost, and what is out goes on.")
        .retry_after(30))
}
