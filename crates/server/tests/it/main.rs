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
