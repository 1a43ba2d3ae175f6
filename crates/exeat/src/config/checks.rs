//! What a configuration may not say: values that nothing could work with, and settings that don't go together.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use exeat_core::label::Levels;
use exeat_core::payload::Limits;
use exeat_core::registry::{Bounds, EgressMode};
use exeat_core::time::Span;
use exeat_server::app::Switches;

use super::layers::Origins;
use super::shape::Raw;
use super::{BadConfig, Config};

/// The configuration of what was read, or what is wrong with it.
pub(super) fn checked(
    data: &Path,
    raw: Raw,
    mut origins: Origins,
    listen: Option<SocketAddr>,
) -> Result<Config, BadConfig> {
    let bad = |key: &str, why: String| origins.bad_value(key, why);
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
    possible(&raw, &origins)?;
    if listen.to_string() != raw.server.listen {
        origins.by_flag("server.listen", "--listen");
    }
    unsafe_combinations(&raw, &origins, listen)?;
    Ok(Config {
        switches: switches(&raw),
        listen,
        public_url: raw.server.public_url.trim_end_matches('/').to_owned(),
        store: data.join(file),
        open_tasks: raw.limits.open_tasks,
        disk_reserve_bytes: raw.store.reserve_bytes,
        levels,
        default_label,
        bounds: Arc::new(bounds(&raw)),
        callback_body_bytes: raw.callback.body_bytes,
        callback_per_minute: raw.callback.per_minute,
        egress: raw.egress,
        grants: raw.credentials.grants,
        ledger: raw.ledger,
        log: raw.log,
        origins,
    })
}

/// Values that nothing could work with, or that would do something else than they seem to say.
fn possible(raw: &Raw, origins: &Origins) -> Result<(), BadConfig> {
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
        ("limits.open_tasks", raw.limits.open_tasks > 0, some),
        ("work.lease", raw.work.lease >= Span::of_secs(1), "a lease lasts a second at least"),
        ("work.max_deliveries", raw.work.max_deliveries > 0, some),
        ("hop.deadline", raw.hop.deadline > Span::ZERO, some),
        ("hop.send_timeout", raw.hop.send_timeout > Span::ZERO, some),
        ("hop.send_attempts", raw.hop.send_attempts > 0, some),
        ("hop.poll_first", raw.hop.poll_first > Span::ZERO, some),
        ("hop.poll_max", raw.hop.poll_max > Span::ZERO, some),
        ("egress.proxy", raw.egress.proxy.is_empty() || url(&raw.egress.proxy), "expected http://HOST:PORT"),
        ("approval.ttl", raw.approval.ttl > Span::ZERO, some),
        ("egress.ports", !raw.egress.ports.contains(&0), "a port is 1 to 65535"),
        ("log.level", is_level, "expected off, error, warn, info, debug or trace"),
    ];
    match checks.into_iter().find(|(_, ok, _)| !ok) {
        Some((key, _, why)) => Err(origins.bad_value(key, why.to_owned())),
        None => Ok(()),
    }
}

fn unsafe_combinations(raw: &Raw, origins: &Origins, listen: SocketAddr) -> Result<(), BadConfig> {
    let bad = |key: &str, why| BadConfig::Unsafe { origin: origins.of(key), why };
    if raw.a2a_egress_enabled && !(raw.bus_enabled && raw.coordinator_enabled) {
        return Err(bad(
            "a2a_egress_enabled",
            "a2a_egress_enabled needs bus_enabled and coordinator_enabled: nothing would take results in",
        ));
    }
    if raw.single_operator && !listen.ip().is_loopback() {
        return Err(bad(
            "single_operator",
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
