//! When to do what: pauses between attempts, pauses between looks, and their jitter. All pure.

use crate::bridge::{Bridge, BridgeState};
use crate::id::Ids;
use crate::registry::Bounds;
use crate::time::{Span, Timestamp};

/// How often a halted or full agent's hops are reconsidered.
pub const HELD_BACK: Span = Span::of_secs(2);
/// What an attempt's lease has beyond the send timeout: the exeat runs out this much before the lease.
pub const LEASE_MARGIN: Span = Span::of_secs(5);
/// The last look before a deadline ends a hop takes at most this long.
pub const LAST_LOOK: Span = Span::of_secs(30);
/// A look takes at most this long.
pub const LOOK: Span = Span::of_secs(30);
/// A look's lease: what is beyond [`LOOK`] is for setting out and for writing down what it saw.
pub const LOOK_LEASE: Span = Span::of_secs(45);
/// "Not found" counts only after the looks that said so span this long.
pub const LOST_SPAN: Span = Span::of_secs(30);
/// A pushed claim that a look didn't bear out is looked at again after these pauses.
pub const RECHECKS: [Span; 3] = [Span::of_secs(1), Span::of_secs(4), Span::of_secs(16)];

/// A span, shortened by up to a quarter at random, so that what failed together doesn't come back together.
#[must_use]
pub fn jittered(span: Span, ids: &mut Ids) -> Span {
    let [byte] = ids.bytes::<1>();
    span.less(Span::of_micros(span.micros() / 1_024 * u64::from(byte)))
}

/// The pause after the `n`th failure, from 1: doubling from `first` to `max`.
#[must_use]
pub fn backoff(n: u32, first: Span, max: Span) -> Span {
    let doubled = first.times(1_u64.checked_shl(n.saturating_sub(1).min(40)).unwrap_or(u64::MAX));
    doubled.min(max)
}

/// When to look at a parked hop next. An agent whose push arrived once is looked at rarely.
#[must_use]
pub fn next_look(
    bridge: &Bridge,
    bounds: &Bounds,
    now: Timestamp,
    asked: Option<Span>,
    ids: &mut Ids,
) -> Timestamp {
    let max = match bridge.state {
        BridgeState::AuthRequired | BridgeState::InputRequired => bounds.poll_max,
        _ if bridge.push.arrived => bounds.poll_max.times(12),
        _ => bounds.poll_max,
    };
    let pause = backoff(bridge.quiet_looks + 1, bounds.poll_first, max.max(bounds.poll_first));
    let pause = jittered(pause, ids).max(asked.unwrap_or_default().min(Span::of_secs(3_600)));
    let next = now + pause;
    bridge.deadline.map_or(next, |d| if now < d { next.min(d) } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_their_cap_and_never_overflow() {
        let (first, max) = (Span::of_secs(1), Span::of_secs(300));
        let pauses: Vec<u64> =
            [1, 2, 3, 9, 10, 60, u32::MAX].map(|n| backoff(n, first, max).micros() / 1_000_000).to_vec();
        assert_eq!(pauses, [1, 2, 4, 256, 300, 300, 300]);
    }

    #[test]
    fn jitter_only_shortens_and_by_a_quarter_at_most() {
        let mut ids = Ids::new(Timestamp::EPOCH, [3; 32]);
        for _ in 0..1_000 {
            let j = jittered(Span::of_secs(100), &mut ids);
            assert!(j <= Span::of_secs(100) && j >= Span::of_secs(75), "{j}");
        }
    }
}
