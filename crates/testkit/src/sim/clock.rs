//! Time that stands still until the scheduler moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use exeat_core::ports::Clock;
use exeat_core::time::{Monotonic, Span, Timestamp};

/// When the simulated world begins: a Thursday morning.
const BEGIN: i64 = 1_800_000_000_000_000;

/// Wall and monotonic clock, and everything that sleeps.
#[derive(Clone, Default)]
pub struct VirtualClock(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    elapsed: u64,
    slept: u64,
    timers: BTreeMap<(u64, u64), Waker>,
}

impl VirtualClock {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sleeps.
    pub fn sleep(&self, span: Span) -> Sleep {
        let until = self.with(|c| c.elapsed + span.micros());
        Sleep { clock: self.clone(), until, yielded: false }
    }

    /// Since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Span {
        Span::of_micros(self.with(|c| c.elapsed))
    }

    /// Moves on to the next moment at which something sleeps until; false if nothing sleeps.
    #[must_use]
    pub fn advance(&self) -> bool {
        let woken = self.with(|c| {
            let Some((&(at, _), _)) = c.timers.first_key_value() else { return Vec::new() };
            c.elapsed = c.elapsed.max(at);
            let later = c.timers.split_off(&(at + 1, 0));
            std::mem::replace(&mut c.timers, later).into_values().collect()
        });
        let any = !woken.is_empty();
        woken.into_iter().for_each(Waker::wake);
        any
    }

    /// The monotonic reading that is the same moment as a wall-clock time.
    #[must_use]
    pub fn monotonic_of(&self, at: Timestamp) -> Monotonic {
        Monotonic(u64::try_from(at.micros() - BEGIN).unwrap_or(0))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::of_micros(BEGIN) + self.elapsed()
    }
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.elapsed().micros())
    }
}

/// See [`VirtualClock::sleep`]. Always gives others a turn, however short it is.
pub struct Sleep {
    clock: VirtualClock,
    until: u64,
    yielded: bool,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (now, until) = (self.clock.with(|c| c.elapsed), self.until);
        if now >= until {
            if self.yielded {
                return Poll::Ready(());
            }
            self.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = true;
        self.clock.with(|c| {
            c.slept += 1;
            c.timers.insert((until, c.slept), cx.waker().clone());
        });
        Poll::Pending
    }
}
