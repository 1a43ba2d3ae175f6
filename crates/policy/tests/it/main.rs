//! The promises of the governor and of the schema checks, against the real engines.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod errors_deny;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod verdicts;
#[cfg(test)]
mod world;
