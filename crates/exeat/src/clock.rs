//! This machine's time, for what the command shows and estimates. The gateway's decisions have their own
//! clock, which comes in with each of them.

use exeat_core::time::Timestamp;

/// Now, as this machine says.
#[expect(
    clippy::disallowed_methods,
    reason = "the command's only clock; no decision of the gateway reads it"
)]
pub(crate) fn wall_clock() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::of_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
