//! Faults that designs like this one are known for, to be put back one at a time: each must turn the simulator red, or its
//! green proves nothing.
//!
//! Only the feature `faults` can put one back; no product build has it, and without it every question here is a
//! constant `false`. The simulator knows nothing of this room: `tests/faults` puts a fault back and runs plain seeds.

/// A fault that was fixed by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Pushed events are told apart by their door's token: the second one of a hop is dropped as a duplicate.
    OneEventPerToken = 1,
    /// An event that overtakes the answer to the send is turned away.
    EarlyEventTurnedAway,
    /// After a crash between sending and recording the message is sent again, as if it had not left.
    BlindResend,
    /// The row and its envelope are written by two commits.
    DualWrite,
    /// A result that comes after the deadline is delivered.
    LateResultDelivered,
    /// The rows of a task are written whatever version they have: two branches that end at once don't see each other.
    JoinSkew,
    /// What was cleared may be sent when its lease is long over.
    ZombieExeat,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OneEventPerToken,
        Self::EarlyEventTurnedAway,
        Self::BlindResend,
        Self::DualWrite,
        Self::LateResultDelivered,
        Self::JoinSkew,
        Self::ZombieExeat,
    ];

    /// Is it back?
    #[cfg(not(feature = "faults"))]
    pub(crate) const fn is_back(self) -> bool {
        false
    }

    /// Is it back?
    #[cfg(feature = "faults")]
    pub(crate) fn is_back(self) -> bool {
        back::IS.load(std::sync::atomic::Ordering::Relaxed) == self as u8
    }
}

#[cfg(feature = "faults")]
mod back {
    pub(super) static IS: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
}

/// Puts one fault back for this process, instead of any other; or none.
#[cfg(feature = "faults")]
pub fn put_back(fault: Option<Fault>) {
    back::IS.store(fault.map_or(0, |f| f as u8), std::sync::atomic::Ordering::Relaxed);
}
