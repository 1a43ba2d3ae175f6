//! Chance that isn't: a small generator (splitmix64), seeded.

use std::sync::{Mutex, PoisonError};

use exeat_core::ports::Entropy;
use exeat_core::time::Span;

/// A seeded source of choices. Shared; the order of the calls is the scheduler's, so a run replays.
pub struct Chance(Mutex<u64>);

impl Chance {
    /// Of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Mutex::new(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// Any number.
    pub fn number(&self) -> u64 {
        let mut s = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*s ^ (*s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which isn't 0.
    pub fn below(&self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// True this often out of a thousand times.
    pub fn permille(&self, p: u64) -> bool {
        self.below(1_000) < p
    }

    /// One of these.
    pub fn pick<T: Clone>(&self, of: &[T]) -> T {
        let at = usize::try_from(self.below(u64::try_from(of.len()).unwrap_or(1))).unwrap_or(0);
        of[at].clone()
    }

    /// A span up to `most`, short ones more often.
    pub fn span(&self, most: Span) -> Span {
        let most = self.below(most.micros().max(1)) + 1;
        Span::of_micros(self.below(most))
    }
}

impl Entropy for Chance {
    fn seed(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for chunk in out.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.number().to_be_bytes());
        }
        out
    }
}
