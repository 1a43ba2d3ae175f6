//! How much one org may have open at once.
//!
//! The record is the count; it is asked at most once a second, and what is started in between is added here. So no more
//! are ever let in than may be, and for a second after many have ended somebody may be told to wait in vain.

use std::sync::{Mutex, PoisonError};

use exeat_core::id::OrgName;
use exeat_core::time::{Monotonic, Span};

use crate::app::App;
use crate::problem::{Code, Problem};

/// The record is asked at most this often.
const FRESH: Span = Span::of_secs(1);

/// Open tasks, as last counted and started since. One org: the store's.
#[derive(Debug, Default)]
pub struct Quota(Mutex<Option<Counted>>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Monotonic,
    open: u64,
}

impl Quota {
    /// Takes one of those that are left, if what is known is fresh. None: count anew.
    fn take(&self, most: u64, now: Monotonic) -> Option<bool> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = counted.as_mut().filter(|c| now < c.at + FRESH)?;
        let fits = known.open < most;
        known.open += u64::from(fits);
        Some(fits)
    }

    fn learn(&self, open: u64, at: Monotonic) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Counted { at, open });
    }
}

/// Lets one more task be started, if the org may have one more.
///
/// # Errors
/// 429 `rate_limited`; 503 if the record can't be asked.
pub async fn one_more_task(app: &App, org: &OrgName) -> Result<(), Problem> {
    let (most, now) = (app.settings.open_tasks, app.ports.clock.monotonic());
    let mut fits = app.quota.take(most, now);
    if fits.is_none() {
        app.quota.learn(app.archive.open_tasks(org).await?, now);
        fits = app.quota.take(most, now);
    }
    if fits == Some(true) {
        return Ok(());
    }
    let why = format!(
        "{most} tasks of the org aren't over, and that is as many as it may have ([limits] open_tasks)."
    );
    Err(Problem::new(Code::RateLimited, why)
        .advising("Wait until some are over, cancel some, or raise [limits] open_tasks.")
        .retry_after(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_left_each_is_taken_once_until_it_is_counted_anew() {
        let quota = Quota::default();
        let at = |ms: u64| Monotonic(ms * 1_000);
        assert_eq!(quota.take(5, at(0)), None);
        quota.learn(3, at(0));
        let taken: Vec<_> = (0..4).map(|_| quota.take(5, at(10))).collect();
        assert_eq!(taken, [Some(true), Some(true), Some(false), Some(false)]);
        assert_eq!(quota.take(5, at(1_000)), None);
    }
}
