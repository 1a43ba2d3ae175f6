//! The configuration: defaults, then the file, then the environment, then flags; parsed once, or refused.
//!
//! Promise: nothing runs on a configuration that wasn't read whole. An unknown key, a value of the wrong
//! kind and an unsafe combination are refused by name, with what to do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_core::label::{Label, Levels};
use exeat_core::payload::Limits;
use exeat_core::registry::{Bounds, EgressMode};
use exeat_core::time::Span;
use exeat_server::app::Switches;
use serde::Deserialize;
use toml::{Table, Value};

/// Every setting with its default; also what a first start writes down.
pub(crate) const DEFAULTS: &str = include_str!("config/defaults.toml");

/// Why a configuration isn't one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadConfig {
    /// The file can't be read.
    #[error("{}: {why}", path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    /// It isn't TOML.
    #[error("{source_name}: {why}")]
    Syntax { source_name: String, why: String },
    /// A key that doesn't exist.
    #[error("unknown key `{0}`")]
    UnknownKey(String),
    /// A value that the setting doesn't take.
    #[error("`{key}`: {why}")]
    BadValue { key: String, why: String },
    /// Settings that don't go together.
    #[error("{0}")]
    Unsafe(&'static str),
}

/// The configuration, read and checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) switches: Switches,
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: String,
    pub(crate) store: PathBuf,
    pub(crate) levels: Levels,
    pub(crate) default_label: Label,
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) callback_body_bytes: usize,
    pub(crate) callback_per_minute: u32,
    pub(crate) egress: Egress,
    pub(crate) grants: Vec<String>,
    pub(crate) ledger: Ledger,
    pub(crate) log: Log,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    bus_enabled: bool,
    coordinator_enabled: bool,
    coordinator_tenants: Vec<String>,
    harness_enabled: bool,
    harness_roles: Vec<String>,
    harness_teams: Vec<String>,
    a2a_egress_enabled: bool,
    single_operator: bool,
    server: Server,
    store: Url,
    bus: Url,
    labels: LabelNames,
    limits: RawLimits,
    work: Work,
    hop: HopTimes,
    approval: ApprovalTimes,
    callback: Callback,
    egress: Egress,
    credentials: Credentials,
    ledger: Ledger,
    log: Log,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    listen: String,
    public_url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Url {
    url: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelNames {
    levels: Vec<String>,
    default: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    payload_bytes: usize,
    parts: usize,
    json_depth: usize,
    continuation_bytes: usize,
    depth: u32,
    hops: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    lease: Span,
    max_deliveries: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HopTimes {
    deadline: Span,
    send_timeout: Span,
    send_attempts: u32,
    retry_first: Span,
    retry_max: Span,
    unknown_grace: Span,
    poll_first: Span,
    poll_max: Span,
    lost_looks: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalTimes {
    ttl: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Callback {
    grace: Span,
    body_bytes: usize,
    per_minute: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    grants: Vec<String>,
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

impl Config {
    /// Reads the configuration of a data folder.
    pub(crate) fn read(
        data: &Path,
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, BadConfig> {
        let own = data.join("exeat.toml");
        let path = file.unwrap_or(&own);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && file.is_none() => String::new(),
            Err(why) => return Err(BadConfig::Unreadable { path: path.to_owned(), why }),
        };
        Self::of(data, &path.display().to_string(), &text, environment, listen)
    }

    /// The pure part: text and environment in, configuration out.
    fn of(
        data: &Path,
        name: &str,
        text: &str,
        environment: &BTreeMap<String, String>,
        listen: Option<SocketAddr>,
    ) -> Result<Self, BadConfig> {
        let mut table = table("defaults", DEFAULTS)?;
        overlay(&mut table, table_of(name, text)?, "")?;
        from_environment(&mut table, environment)?;
        let raw: Raw = Value::Table(table).try_into().map_err(|e: toml::de::Error| BadConfig::Syntax {
            source_name: name.to_owned(),
            why: e.message().to_owned(),
        })?;
        checked(data, raw, listen)
    }

    /// Is the listener reached from this machine alone?
    pub(crate) fn is_loopback(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

fn table(name: &str, text: &str) -> Result<Table, BadConfig> {
    table_of(name, text)
}

fn table_of(name: &str, text: &str) -> Result<Table, BadConfig> {
    text.parse::<Table>().map_err(|e| {
        let before = e.span().map_or("", |s| text.get(..s.start).unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        BadConfig::Syntax { source_name: format!("{name}:{line}"), why: e.message().to_owned() }
    })
}

fn overlay(under: &mut Table, over: Table, path: &str) -> Result<(), BadConfig> {
    for (key, value) in over {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (under.get_mut(&key), value) {
            (None, _) => return Err(BadConfig::UnknownKey(full)),
            (Some(Value::Table(u)), Value::Table(o)) => overlay(u, o, &full)?,
            (Some(u), v) if std::mem::discriminant(u) == std::mem::discriminant(&v) => *u = v,
            (Some(u), v) => {
                let why = format!("expected {}, got {}", u.type_str(), v.type_str());
                return Err(BadConfig::BadValue { key: full, why });
            }
        }
    }
    Ok(())
}

fn from_environment(table: &mut Table, environment: &BTreeMap<String, String>) -> Result<(), BadConfig> {
    if let Some(unknown) = environment.keys().find(|name| is_misspelt(table, name)) {
        return Err(BadConfig::UnknownKey(unknown.clone()));
    }
    for (key, value) in table.iter_mut() {
        match value {
            Value::Table(section) => {
                for (inner, value) in section.iter_mut() {
                    set(
                        value,
                        &format!("EXEAT_{}_{}", key.to_uppercase(), inner.to_uppercase()),
                        environment,
                    )?;
                }
            }
            value => set(value, &format!("EXEAT_{}", key.to_uppercase()), environment)?,
        }
    }
    Ok(())
}

/// Is it in the name of a section, and of none of its settings? A safety that is misspelt isn't silently off.
fn is_misspelt(table: &Table, name: &str) -> bool {
    let in_section = |(key, value): (&String, &Value)| {
        let inner = name.strip_prefix(&format!("EXEAT_{}_", key.to_uppercase()));
        let settings = value.as_table();
        settings.zip(inner).is_some_and(|(t, inner)| !t.keys().any(|k| k.to_uppercase() == inner))
    };
    let is_plain = |key: &String| *name == format!("EXEAT_{}", key.to_uppercase());
    !table.keys().any(is_plain) && table.iter().any(in_section)
}

fn set(value: &mut Value, name: &str, environment: &BTreeMap<String, String>) -> Result<(), BadConfig> {
    let Some(text) = environment.get(name) else { return Ok(()) };
    let bad = |why: &str| BadConfig::BadValue { key: name.to_owned(), why: why.to_owned() };
    *value = match value {
        Value::Boolean(_) => Value::Boolean(text.parse().map_err(|_| bad("expected true or false"))?),
        Value::Integer(_) => Value::Integer(text.parse().map_err(|_| bad("expected a whole number"))?),
        Value::Array(of) => {
            let numbers = of.first().is_some_and(Value::is_integer);
            let items = text.split(',').map(str::trim).filter(|t| !t.is_empty());
            let parsed: Result<Vec<Value>, BadConfig> = items
                .map(|t| match numbers {
                    true => {
                        t.parse().map(Value::Integer).map_err(|_| bad("expected whole numbers, with commas"))
                    }
                    false => Ok(Value::String(t.to_owned())),
                })
                .collect();
            Value::Array(parsed?)
        }
        _ => Value::String(text.clone()),
    };
    Ok(())
}

fn checked(data: &Path, raw: Raw, listen: Option<SocketAddr>) -> Result<Config, BadConfig> {
    let bad = |key: &str, why: String| BadConfig::BadValue { key: key.to_owned(), why };
    let listen = match listen {
        Some(l) => l,
        None => raw.server.listen.parse().map_err(|_| {
            bad(
                "server.listen",
                format!("expected an address and a port, like 127.0.0.1:7700; got {:?}", raw.server.listen),
            )
        })?,
    };
    let file = raw
        .store
        .url
        .strip_prefix("sqlite:")
        .filter(|f| !f.is_empty())
        .ok_or_else(|| bad("store.url", "expected sqlite:FILE; other stores come later".to_owned()))?;
    if raw.bus.url != "local" {
        return Err(bad("bus.url", "expected \"local\"; other buses come later".to_owned()));
    }
    let levels =
        Levels::try_from(raw.labels.levels.clone()).map_err(|e| bad("labels.levels", e.to_string()))?;
    let default_label =
        levels.parse(&raw.labels.default).map_err(|e| bad("labels.default", e.to_string()))?;
    possible(&raw)?;
    unsafe_combinations(&raw, listen)?;
    Ok(Config {
        switches: switches(&raw),
        listen,
        public_url: raw.server.public_url.trim_end_matches('/').to_owned(),
        store: data.join(file),
        levels,
        default_label,
        bounds: Arc::new(bounds(&raw)),
        callback_body_bytes: raw.callback.body_bytes,
        callback_per_minute: raw.callback.per_minute,
        egress: raw.egress,
        grants: raw.credentials.grants,
        ledger: raw.ledger,
        log: raw.log,
    })
}

/// Values that nothing could work with, or that would do something else than they seem to say.
fn possible(raw: &Raw) -> Result<(), BadConfig> {
    let some = "it can't be none at all";
    let url = |u: &str| {
        u.split_once("://").is_some_and(|(s, rest)| matches!(s, "http" | "https") && !rest.is_empty())
    };
    let level = raw.log.level.as_str();
    let is_level =
        matches!(level, "off" | "error" | "warn" | "info" | "debug" | "trace") || level.contains('=');
    let checks = [
        (
            "server.public_url",
            raw.server.public_url.is_empty() || url(&raw.server.public_url),
            "expected http(s)://HOST",
        ),
        ("limits.payload_bytes", raw.limits.payload_bytes > 0, some),
        ("limits.parts", raw.limits.parts > 0, some),
        ("limits.json_depth", raw.limits.json_depth > 0, some),
        ("limits.depth", raw.limits.depth > 0, some),
        ("limits.hops", raw.limits.hops > 0, some),
        ("work.lease", raw.work.lease >= Span::of_secs(1), "a lease lasts a second at least"),
        ("work.max_deliveries", raw.work.max_deliveries > 0, some),
        ("hop.deadline", raw.hop.deadline > Span::ZERO, some),
        ("hop.send_timeout", raw.hop.send_timeout > Span::ZERO, some),
        ("hop.send_attempts", raw.hop.send_attempts > 0, some),
        ("approval.ttl", raw.approval.ttl > Span::ZERO, some),
        ("egress.ports", !raw.egress.ports.contains(&0), "a port is 1 to 65535"),
        ("log.level", is_level, "expected off, error, warn, info, debug or trace"),
    ];
    match checks.into_iter().find(|(_, ok, _)| !ok) {
        Some((key, _, why)) => Err(BadConfig::BadValue { key: key.to_owned(), why: why.to_owned() }),
        None => Ok(()),
    }
}

fn unsafe_combinations(raw: &Raw, listen: SocketAddr) -> Result<(), BadConfig> {
    if raw.a2a_egress_enabled && !(raw.bus_enabled && raw.coordinator_enabled) {
        return Err(BadConfig::Unsafe(
            "a2a_egress_enabled needs bus_enabled and coordinator_enabled: nothing would take results in",
        ));
    }
    if raw.single_operator && !listen.ip().is_loopback() {
        return Err(BadConfig::Unsafe(
            "single_operator is for a loopback listener only; set it to false and let a second person sign",
        ));
    }
    Ok(())
}

fn switches(raw: &Raw) -> Switches {
    Switches {
        bus: raw.bus_enabled,
        // The embedded store's org is `main`.
        coordinator: raw.coordinator_enabled
            && raw.coordinator_tenants.iter().any(|t| t == "*" || t == "main"),
        harness: raw.harness_enabled,
        harness_roles: raw.harness_roles.clone(),
        harness_teams: raw.harness_teams.clone(),
        egress_cap: if raw.a2a_egress_enabled { EgressMode::On } else { EgressMode::Off },
        single_operator: raw.single_operator,
    }
}

const fn bounds(raw: &Raw) -> Bounds {
    Bounds {
        payload: Limits {
            bytes: raw.limits.payload_bytes,
            parts: raw.limits.parts,
            depth: raw.limits.json_depth,
        },
        continuation_bytes: raw.limits.continuation_bytes,
        depth: raw.limits.depth,
        hops: raw.limits.hops,
        lease: raw.work.lease,
        max_deliveries: raw.work.max_deliveries,
        hop_deadline: raw.hop.deadline,
        send_timeout: raw.hop.send_timeout,
        send_attempts: raw.hop.send_attempts,
        retry_first: raw.hop.retry_first,
        retry_max: raw.hop.retry_max,
        unknown_grace: raw.hop.unknown_grace,
        poll_first: raw.hop.poll_first,
        poll_max: raw.hop.poll_max,
        lost_looks: raw.hop.lost_looks,
        approval_ttl: raw.approval.ttl,
        callback_grace: raw.callback.grace,
    }
}

/// What a first start writes down: every default as a comment, and what it switches on.
pub(crate) fn first_file(listen: SocketAddr) -> String {
    let mut text =
        String::from("# Written by the first start. What isn't set here has the default shown below.\n\n");
    text.push_str(
        "bus_enabled = true\ncoordinator_enabled = true\nharness_enabled = true\na2a_egress_enabled = true\n",
    );
    if listen.ip().is_loopback() {
        text.push_str("single_operator = true   # one person counts as two; refused on other listeners\n");
        text.push_str(
            "\n[egress]\nallow_cidrs = [\"127.0.0.0/8\", \"::1/128\"]   # for agents on this machine\n",
        );
        text.push_str("\n[credentials]\ngrants = [\"env:*\", \"file:*\"]\n");
    }
    text.push_str("\n# ---- every setting with its default ----\n");
    for line in DEFAULTS.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, BadConfig> {
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::of(Path::new("/data"), "exeat.toml", text, &env, None)
    }

    #[test]
    fn the_defaults_and_what_a_first_start_writes_read_back() {
        let dark = read("", &[]).unwrap();
        assert_eq!(dark.switches.egress_cap, EgressMode::Off);
        assert!(!dark.switches.coordinator);
        let first = read(&first_file(dark.listen), &[]).unwrap();
        assert_eq!(first.switches.egress_cap, EgressMode::On);
        assert!(first.switches.single_operator && first.switches.harness);
        let outside = first_file("0.0.0.0:7700".parse().unwrap());
        assert!(!read(&outside, &[]).unwrap().switches.single_operator);
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let c = read(
            "[hop]\npoll_first = \"1h\"",
            &[("EXEAT_HOP_POLL_FIRST", "2s"), ("EXEAT_EGRESS_PORTS", "443, 8443")],
        );
        let c = c.unwrap();
        assert_eq!(c.bounds.poll_first, Span::of_secs(2));
        assert_eq!(c.egress.ports, [443, 8443]);
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        type Environment = &'static [(&'static str, &'static str)];
        let cases: [(&str, Environment, &str); 15] = [
            ("a2a_egress_enabled = true", &[], "a2a_egress_enabled needs bus_enabled"),
            ("single_operator = true\n[server]\nlisten = \"0.0.0.0:1\"", &[], "loopback"),
            ("nope = 1", &[], "unknown key `nope`"),
            ("[hop]\nnope = 1", &[], "unknown key `hop.nope`"),
            ("[hop]\ndeadline = 5", &[], "`hop.deadline`: expected string"),
            ("[hop]\ndeadline = \"5 weeks\"", &[], "duration"),
            ("[hop\n", &[], "exeat.toml:1"),
            ("", &[("EXEAT_BUS_ENABLED", "maybe")], "EXEAT_BUS_ENABLED"),
            ("", &[("EXEAT_HOP_DEADLNE", "5s")], "EXEAT_HOP_DEADLNE"),
            ("[log]\nlevel = \"zzz\"\n", &[], "log.level"),
            ("[work]\nlease = \"0s\"\n", &[], "work.lease"),
            ("[server]\npublic_url = \"zzz\"\n", &[], "server.public_url"),
            ("[store]\nurl = \"postgres://x\"", &[], "store.url"),
            ("[labels]\ndefault = \"secret\"", &[], "labels.default"),
            ("[server]\nlisten = \"here\"", &[], "server.listen"),
        ];
        for (text, env, wants) in cases {
            let got = read(text, env).unwrap_err().to_string();
            assert!(got.contains(wants), "{text}: {got}");
        }
    }
}
