//! The shape of the configuration as it is written: a struct per section, a member per setting.

use exeat_core::time::Span;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) bus_enabled: bool,
    pub(super) coordinator_enabled: bool,
    pub(super) coordinator_tenants: Vec<String>,
    pub(super) harness_enabled: bool,
    pub(super) harness_roles: Vec<String>,
    pub(super) harness_teams: Vec<String>,
    pub(super) a2a_egress_enabled: bool,
    pub(super) single_operator: bool,
    pub(super) server: Server,
    pub(super) store: Store,
    pub(super) bus: Url,
    pub(super) labels: LabelNames,
    pub(super) limits: RawLimits,
    pub(super) work: Work,
    pub(super) hop: HopTimes,
    pub(super) approval: ApprovalTimes,
    pub(super) callback: Callback,
    pub(super) egress: Egress,
    pub(super) credentials: Credentials,
    pub(super) ledger: Ledger,
    pub(super) log: Log,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) public_url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Store {
    pub(super) url: String,
    pub(super) reserve_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Url {
    pub(super) url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabelNames {
    pub(super) levels: Vec<String>,
    pub(super) default: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) payload_bytes: usize,
    pub(super) parts: usize,
    pub(super) json_depth: usize,
    pub(super) continuation_bytes: usize,
    pub(super) depth: u32,
    pub(super) hops: u32,
    pub(super) open_tasks: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Work {
    pub(super) lease: Span,
    pub(super) max_deliveries: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HopTimes {
    pub(super) deadline: Span,
    pub(super) send_timeout: Span,
    pub(super) send_attempts: u32,
    pub(super) retry_first: Span,
    pub(super) retry_max: Span,
    pub(super) unknown_grace: Span,
    pub(super) poll_first: Span,
    pub(super) poll_max: Span,
    pub(super) lost_looks: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalTimes {
    pub(super) ttl: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Callback {
    pub(super) grace: Span,
    pub(super) body_bytes: usize,
    pub(super) per_minute: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Credentials {
    pub(super) grants: Vec<String>,
}

/// What the platform lets out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Egress {
    pub(crate) allow_origins: Vec<String>,
    pub(crate) ports: Vec<u16>,
    pub(crate) allow_cidrs: Vec<String>,
    pub(crate) response_bytes: usize,
    pub(crate) connect_timeout: Span,
    pub(crate) card_ttl: Span,
    pub(crate) card_miss_ttl: Span,
    pub(crate) dns: String,
    pub(crate) proxy: String,
}

/// Checkpoints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    pub(crate) checkpoint_every: u64,
    pub(crate) checkpoint_interval: Span,
    pub(crate) checkpoint_file: String,
}

/// Logs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// Text.
    Text,
    /// JSON, one object a line.
    Json,
}
