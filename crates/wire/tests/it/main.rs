//! The wire as its users see it: recorded payloads of published SDKs in, golden bodies out.

mod answers;
mod cards;
mod hostile;
mod pushes;
mod requests;
