//! The derived keys in use, shared by the door that takes tokens and the one that hands them out.
//!
//! The record says which there are; a rotation, or a token under a key that isn't known here, reads it anew, the
//! latter at most once a second: anybody can make one up. What is read holds no secret; the keys are derived here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use exeat_core::id::OrgName;
use exeat_core::key::{CALLBACK_KEYS, CallbackKey, Ring, Root};
use exeat_core::ports::{Archive, Unreadable};
use exeat_core::time::{Monotonic, Span, Timestamp};

/// A stranger's token makes the record be read at most this often.
const SELDOM: Span = Span::of_secs(1);

/// The ring as it stands.
pub struct Keyring {
    ring: RwLock<Arc<Ring>>,
    /// When it was last read for a stranger's sake, by the monotonic clock; 0: never.
    asked_at: AtomicU64,
}

impl Keyring {
    /// Of the keys that are known at the start.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self { ring: RwLock::new(Arc::new(ring)), asked_at: AtomicU64::new(0) }
    }

    /// The keys now.
    #[must_use]
    pub fn now(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads them anew.
    ///
    /// # Errors
    /// If the record can't be read, or isn't a list of keys.
    pub async fn reload(
        &self,
        archive: &dyn Archive,
        root: &Root,
        org: &OrgName,
        now: Timestamp,
    ) -> Result<(), Unreadable> {
        let (listed, _) = listed(archive, org).await?;
        let ring = Ring::of_callbacks(root, org, &listed, now);
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }

    /// May the record be asked for a key that isn't known? True at most once a second, for one of those who ask.
    #[must_use]
    pub fn may_ask(&self, now: Monotonic) -> bool {
        let last = self.asked_at.load(Ordering::Relaxed);
        let soon = last != 0 && now < Monotonic(last) + SELDOM;
        let swap =
            |last| self.asked_at.compare_exchange(last, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed);
        !soon && swap(last).is_ok()
    }
}

/// The keys that the record lists, and the version of the list.
///
/// # Errors
/// If the record can't be read, or isn't a list of keys.
pub async fn listed(archive: &dyn Archive, org: &OrgName) -> Result<(Vec<CallbackKey>, u64), Unreadable> {
    let Some((value, version)) = archive.setting(org, CALLBACK_KEYS).await? else {
        return Ok((Vec::new(), 0));
    };
    let keys = serde_json::from_value(value).map_err(|e| Unreadable::Corrupt {
        table: "setting",
        key: CALLBACK_KEYS.to_owned(),
        why: e.to_string(),
    })?;
    Ok((keys, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_the_record_be_read_once_a_second_however_many_come() {
        let keyring = Keyring::new(Ring::new());
        let at = |ms: u64| Monotonic(ms * 1_000);
        assert!(keyring.may_ask(at(0)));
        assert_eq!((0..1_000).filter(|ms| keyring.may_ask(at(*ms))).count(), 0);
        assert!(keyring.may_ask(at(1_001)));
        assert!(!keyring.may_ask(at(1_500)));
    }
}
