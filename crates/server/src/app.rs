//! What every door and loop of one server shares.

use std::sync::Arc;

use exeat_core::id::OrgName;
use exeat_core::key::Root;
use exeat_core::ledger::LedgerKey;
use exeat_core::ports::Archive;
use exeat_core::registry::{Bounds, EgressMode};
use exeat_core::time::Span;
use exeat_core::transport::Prober;
use exeat_core::walk::Ports;

use crate::disk::Disk;
use crate::idempotency::InFlight;
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::runtime::Runtime;

/// What is switched on, from configuration.
#[derive(Clone, Debug)]
pub struct Switches {
    /// The relay publishes.
    pub bus: bool,
    /// Tasks are accepted and decided.
    pub coordinator: bool,
    /// Work is leased.
    pub harness: bool,
    /// Roles that may lease; `*`: all.
    pub harness_roles: Vec<String>,
    /// Teams whose roles may lease; `*`: all.
    pub harness_teams: Vec<String>,
    /// The upper bound that configuration sets on egress.
    pub egress_cap: EgressMode,
    /// Does one person count as two, for registry, policy and egress mode? Never for approvals.
    pub single_operator: bool,
}

/// Settings of doors and loops.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The org of this store.
    pub org: OrgName,
    /// Base of the callback URL: `https://exeat.example`, without a slash at the end.
    pub public_url: String,
    /// Switches.
    pub switches: Switches,
    /// Bounds and defaults, as the store has them.
    pub bounds: Arc<Bounds>,
    /// Largest body of a callback, in bytes.
    pub callback_body_bytes: usize,
    /// Callbacks per minute, per callback id and per source.
    pub callback_per_minute: u32,
    /// Connections of the listener at once.
    pub connections: u32,
    /// A checkpoint at least every so many records.
    pub checkpoint_every: u64,
    /// A checkpoint at least this often, if anything was recorded.
    pub checkpoint_interval: Span,
    /// Tasks that may be open at once.
    pub open_tasks: u64,
    /// Room on the disk that is kept for what is under way, in bytes.
    pub disk_reserve_bytes: u64,
    /// The files of the key material, which the next start needs.
    pub key_files: Vec<std::path::PathBuf>,
    /// Where checkpoints are written outside the store.
    pub checkpoint_file: std::path::PathBuf,
}

/// One server.
pub struct App {
    /// What walks need.
    pub ports: Ports,
    /// What doors ask.
    pub archive: Arc<dyn Archive>,
    /// Looks at agents for operators.
    pub prober: Arc<dyn Prober>,
    /// Runs acts and loops.
    pub runtime: Arc<Runtime>,
    /// Settings.
    pub settings: Settings,
    /// Derived keys by kid.
    pub keyring: Arc<Keyring>,
    /// The root of the derived keys.
    pub root: Root,
    /// Signs heads.
    pub ledger_key: LedgerKey,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Room on the disk of the store.
    pub disk: Arc<dyn Disk>,
    /// What the org has open.
    pub quota: Quota,
    /// Requests with an `Idempotency-Key` that are running now.
    pub in_flight: InFlight,
}
