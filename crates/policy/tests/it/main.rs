//! The promises of the governor and of the schema checks, against the real engines.

mod approvals;
mod errors_deny;
mod examples;
mod faults;
mod hostile;
mod schema;
mod verdicts;
mod world;
