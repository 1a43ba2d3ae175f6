//! `exeat agent probe`: is the agent there, and what would a hop to it use?

use std::time::Duration;

use clap::Args;
use exeat_core::id::AgentKey;
use serde_json::Value;

use super::Session;
use super::given;
use crate::client::Call;
use crate::failure::{Exit, Failure};
use crate::show::table::{Style, cell, fields, plain};

/// Look at an agent now: is it there, what would be used, does it take the credential
#[derive(Debug, Args)]
#[command(after_help = "\
Its card is fetched, and with a signed posture and a credential one call is made that changes
nothing there. The look is recorded; it needs egress on. Exit code 1: something stands in the
way of a hop.

Examples:
  exeat agent probe auditor
  exeat agent probe auditor --reason 'before the go-live' --json")]
pub(crate) struct Probe {
    /// Its key
    #[arg(value_name = "KEY")]
    key: AgentKey,
    /// Why; it is recorded
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Probe {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let body = given::members([("reason", self.reason.map(Value::String))]);
        let call = Call::post(&["agents", self.key.as_str(), "probe"], &body);
        // The server gives the agent as long as it gives a send, whatever that is set to.
        let probe = session.client.json(&call.long_poll(Duration::from_secs(90))).await?;
        session.show.result(&probe, |style| shown(style, &probe))?;
        Ok(if stands_in_the_way(&probe) { Exit::EndedBadly } else { Exit::Done })
    }
}

/// Would a hop fail that sets out now?
fn stands_in_the_way(probe: &Value) -> bool {
    let empty = probe.get("problems").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let usable = probe.get("would_use").is_some_and(|u| !u.is_null());
    let refused = probe.get("auth").and_then(Value::as_str) == Some("refused");
    probe.get("reachable") != Some(&Value::Bool(true)) || !empty || !usable || refused
}

fn shown(style: Style, probe: &Value) -> String {
    let of = |object: &str, member: &str| probe.get(object).map(|o| cell(o, member)).unwrap_or_default();
    let problems = probe.get("problems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut all = vec![
        ("reachable", cell(probe, "reachable")),
        ("name", of("card", "name")),
        ("card", of("card", "found_at")),
        ("digest", of("card", "digest")),
        ("skills", of("card", "skills")),
        ("would use", of("would_use", "url")),
        ("protocol", of("would_use", "protocol")),
        ("binding", of("would_use", "binding")),
        ("why", of("would_use", "why")),
        ("credential", cell(probe, "auth")),
        ("push", cell(probe, "push")),
        ("latency", format!("{} ms", cell(probe, "latency_ms"))),
    ];
    all.extend(problems.iter().map(|p| ("problem", plain(p))));
    fields(style, &all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_would_stop_a_hop_is_told_by_the_exit_code() {
        let good = json!({"reachable": true, "would_use": {"url": "u"}, "auth": "ok", "problems": []});
        assert!(!stands_in_the_way(&good));
        for (member, value) in [
            ("reachable", json!(false)),
            ("would_use", Value::Null),
            ("auth", json!("refused")),
            ("problems", json!(["no skill"])),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            assert!(stands_in_the_way(&bad), "{bad}");
        }
    }
}
