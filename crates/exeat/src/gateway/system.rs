//! The system's clock, randomness and disk: the one place where each comes in.

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use exeat_core::ports::{Clock, Entropy};
use exeat_core::time::{Monotonic, Timestamp};
use exeat_server::disk::Disk;

/// The clocks of this machine.
pub(crate) struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Starts the monotonic clock at zero.
    #[expect(clippy::disallowed_methods, reason = "the gateway's only clock")]
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the gateway's only clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::of_micros(i64::try_from(since.as_micros()).unwrap_or(0))
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// Raises the number of descriptors that this process may hold as far as it may by itself, and gives it. None: no limit.
pub(crate) fn raised_descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// The system's randomness.
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::disallowed_methods, reason = "the gateway's only source of randomness")]
    fn seed(&self) -> [u8; 32] {
        let mut seed = [0; 32];
        // Without randomness no id can be made: a process that goes on would repeat itself.
        if getrandom::fill(&mut seed).is_err() {
            std::process::abort();
        }
        seed
    }
}

/// The disk that a folder lies on.
pub(crate) struct FolderDisk(pub(crate) PathBuf);

impl Disk for FolderDisk {
    fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.0).ok()?;
        // What others than root may still take.
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
