//! The wire as its users see it: recorded payloads of published SDKs in, golden bodies out.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod answers;
mod cards;
mod hostile;
mod pushes;
mod recorded;
mod requests;
