//! Time as the domain sees it: instants, spans, and the monotonic reading that bounds an exeat.
//!
//! Nothing here reads a clock; instants come in through the `Clock` port or with a
//! snapshot of the store.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::Malformed;

/// Microseconds since 1970-01-01T00:00:00Z. Microseconds, because Postgres `timestamptz` keeps no
/// finer and a ledger hash must survive a round trip through the database.
///
/// As text and in JSON: RFC 3339, UTC, six decimals, `Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

impl Timestamp {
    /// The epoch.
    pub const EPOCH: Self = Self(0);
    /// Further than any due time.
    pub const NEVER: Self = Self(253_402_300_799_000_000);

    /// Of microseconds since the epoch.
    #[must_use]
    pub const fn of_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }
    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }
    /// How long after `earlier`; nothing if it isn't after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Span> for Timestamp {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)).min(Self::NEVER.0))
    }
}

impl Sub<Span> for Timestamp {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        s.parse::<jiff::Timestamp>()
            .map(|t| Self(t.as_microsecond()))
            .map_err(|_| Malformed::new("time", "RFC 3339 with a zone, like 2026-01-31T12:00:00.000000Z", s))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<Timestamp> for String {
    fn from(t: Timestamp) -> String {
        t.to_string()
    }
}

/// A length of time, in microseconds. As text, what people write: `90s`, `15m`, `2h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Of microseconds.
    #[must_use]
    pub const fn of_micros(micros: u64) -> Self {
        Self(micros)
    }
    /// Of milliseconds.
    #[must_use]
    pub const fn of_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }
    /// Of seconds.
    #[must_use]
    pub const fn of_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }
    /// In microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }
    /// In milliseconds, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }
    /// `n` times as long.
    #[must_use]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
    /// The span less `other`, or nothing.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_micros(span.0)
    }
}

const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

impl FromStr for Span {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let bad =
            || Malformed::new("duration", "a whole number and one of ms, s, m, h, d, like 90s or 2h", s);
        let digits = s.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = s.split_at_checked(digits).ok_or_else(bad)?;
        let n: u64 = number.parse().map_err(|_| bad())?;
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        n.checked_mul(*size).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = UNITS
            .iter()
            .rev()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size))
            .unwrap_or(&("s", 1_000_000));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Span {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<Span> for String {
    fn from(s: Span) -> String {
        s.to_string()
    }
}

/// A reading of this process's monotonic clock, in microseconds since an origin of its own. Compared
/// only with readings of the same process: it bounds what a process that slept may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// How much time is left from `now` until this reading.
    #[must_use]
    pub const fn left(self, now: Self) -> Span {
        Span(self.0.saturating_sub(now.0))
    }
}

impl Add<Span> for Monotonic {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// A store's time: the wall clock, never below what was committed or told before. A clock that was set back is waited for
/// at half the speed, so that time neither goes back nor stands still: what waits for a moment must see it come.
#[derive(Clone, Copy, Debug)]
pub struct StoreTime {
    last: Timestamp,
    read: Monotonic,
}

impl StoreTime {
    /// Goes on from the last time that was committed.
    #[must_use]
    pub const fn after(last: Timestamp, read: Monotonic) -> Self {
        Self { last, read }
    }

    /// What it is now, by both clocks.
    pub fn now(&mut self, wall: Timestamp, read: Monotonic) -> Timestamp {
        let passed = read.left(self.read).micros() / 2;
        self.last = wall.max(self.last + Span::of_micros(passed));
        self.read = read;
        self.last
    }

    /// It is this late at least.
    pub fn raise(&mut self, to: Timestamp) {
        self.last = self.last.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_time_waits_for_a_clock_that_was_set_back_and_never_stands_still() {
        let at = |s: i64| Timestamp::of_micros(s * 1_000_000);
        let read = |s: u64| Monotonic(s * 1_000_000);
        let mut time = StoreTime::after(at(1_000), read(0));
        assert_eq!(time.now(at(900), read(10)), at(1_005), "half the speed while it is ahead");
        assert_eq!(time.now(at(910), read(10)), at(1_005));
        time.raise(at(1_006));
        assert_eq!(time.now(at(1_200), read(210)), at(1_200), "together again");
        assert_eq!(time.now(at(1_300), read(310)), at(1_300));
        assert_eq!(time.now(at(1_299), read(312)), at(1_301), "set back by three seconds");
    }
    #[test]
    fn times_are_rfc_3339_utc_with_six_decimals() {
        let t = Timestamp::of_micros(1_767_225_600_000_001);
        assert_eq!(t.to_string(), "2026-01-01T00:00:00.000001Z");
        assert_eq!(t.to_string().parse(), Ok(t));
        assert_eq!("2026-01-01T01:00:00.000001+01:00".parse(), Ok(t));
        assert!("2026-01-01".parse::<Timestamp>().is_err());
    }

    #[test]
    fn spans_read_and_print_as_people_write_them() {
        for (text, micros) in
            [("90s", 90_000_000), ("15m", 900_000_000), ("2h", 7_200_000_000), ("1500ms", 1_500_000)]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.micros(), micros);
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for bad in ["", "s", "1", "1.5h", "-1s", "1w", "99999999999999999999d", "1 s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
