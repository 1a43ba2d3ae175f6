//! The doors as callers meet them: the real router over the record in memory.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod callback;
#[cfg(test)]
mod events;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tasks;
