//! The stub's own time and chance. It is another party's program, so it shares neither with Exeat.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, RFC 3339 UTC with microseconds.
pub(super) fn now() -> String {
    #[expect(clippy::disallowed_methods, reason = "the foreign side has a clock of its own")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map(|at| format!("{at:.6}")).unwrap_or_default()
}

/// A new id, as random as the system gives.
pub(super) fn fresh_id() -> String {
    let mut bytes = [0; 16];
    #[expect(clippy::disallowed_methods, reason = "the foreign side draws its own ids")]
    let drawn = getrandom::fill(&mut bytes);
    // Without randomness ids collide, as those of a careless agent do.
    let _ = drawn;
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
