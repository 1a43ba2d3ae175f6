//! The doors as callers meet them: the real router over the record in memory.

#[cfg(test)]
mod admin_agents;
#[cfg(test)]
mod admin_doors;
#[cfg(test)]
mod admin_governs;
#[cfg(test)]
mod admin_ledger;
#[cfg(test)]
mod admin_rig;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod callback;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod events;
#[cfg(test)]
mod explains;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod probe;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod rotations;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod watching;
