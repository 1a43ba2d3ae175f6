//! What is read out of the server's own answers. Pure.

use exeat_core::time::{Span, Timestamp};
use serde_json::Value;

use super::Check;
use crate::client::Client;
use crate::show::table::cell;

/// What `/readyz` looks at.
pub(super) const READINESS: [&str; 5] = ["serving", "store", "disk", "sweep", "keys"];
/// Beyond that a deadline or a token that one side thinks good the other may not.
const SKEWED: Span = Span::of_secs(5);
const FAR_OFF: Span = Span::of_secs(60);
/// Work that waits for so long isn't about to be taken.
const UNTAKEN: Span = Span::of_secs(60);
/// A row that is due for so long shows that the sweep is behind.
const LATE_MS: u64 = 5_000;
const MUCH_TOO_LATE_MS: u64 = 60_000;
/// Records that a checkpoint outside the store may be behind.
const BEHIND: u64 = 10_000;

fn text<'a>(v: &'a Value, member: &str) -> &'a str {
    v.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn number(v: &Value, pointer: &str) -> u64 {
    v.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn moment(v: &Value, member: &str) -> Option<Timestamp> {
    text(v, member).parse().ok()
}

/// One of the checks of `/readyz`.
pub(super) fn of_readiness(told: &Value) -> Option<Check> {
    let name = READINESS.iter().copied().find(|n| *n == text(told, "name"))?;
    Some(match (text(told, "status"), text(told, "detail")) {
        ("ok", "") => Check::ok(name, "ready"),
        ("ok", detail) => Check::ok(name, detail),
        ("warn", detail) => Check::warn(name, detail, "see docs/guide.md, \"Watching over it\""),
        (_, detail) => Check::fail(name, detail, "see docs/guide.md, \"Watching over it\""),
    })
}

/// What the numbers say, as of `here`, this machine's time.
pub(super) fn of_vitals(vitals: &Value, here: Timestamp) -> Vec<Check> {
    let key = vitals.get("key").unwrap_or(&Value::Null);
    let scopes = format!("{} ({}): {}", cell(key, "key_id"), cell(key, "name"), cell(key, "scopes"));
    let mut all = vec![Check::ok("key", scopes)];
    all.extend(moment(vitals, "at").map(|there| clock(there, here)));
    all.push(egress(text(vitals, "egress")));
    all.push(workers(vitals));
    all.push(sweep(vitals));
    all.push(unknown(vitals));
    all.push(dead_letters(vitals));
    all.push(checkpoints(vitals));
    all
}

fn clock(there: Timestamp, here: Timestamp) -> Check {
    let skew = if here > there { here.since(there) } else { there.since(here) };
    let detail = format!("the server's clock and this one are {} ms apart", skew.millis());
    let next = "let both machines keep time by NTP";
    match skew {
        s if s > FAR_OFF => Check::fail("clock", detail, next),
        s if s > SKEWED => Check::warn("clock", detail, next),
        _ => Check::ok("clock", detail),
    }
}

fn egress(mode: &str) -> Check {
    let on = "exeat egress on --reason …";
    match mode {
        "on" => Check::ok("egress", "on"),
        "drain" => Check::warn("egress", "it drains: only what began before goes on", on),
        "halt" => Check::warn("egress", "the kill switch is thrown: hops wait", on),
        _ => Check::warn("egress", "it is off: nothing leaves", on),
    }
}

fn workers(vitals: &Value) -> Check {
    let waiting = vitals.get("waiting").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let now = moment(vitals, "at");
    let untaken = |w: &&Value| match (now, moment(w, "oldest_at")) {
        (Some(now), Some(since)) => now.since(since) > UNTAKEN,
        _ => false,
    };
    let lonely: Vec<String> =
        waiting.iter().filter(untaken).map(|w| format!("{} ({})", text(w, "to"), cell(w, "count"))).collect();
    if lonely.is_empty() {
        return Check::ok("workers", "no work waits for a worker that doesn't come");
    }
    let why = format!("work waits for over a minute, and no worker takes it: {}", lonely.join(", "));
    Check::warn("workers", why, "exeat worker --role NAME -- CMD")
}

fn sweep(vitals: &Value) -> Check {
    let (lag, silent) = (number(vitals, "/sweep/lag_ms"), number(vitals, "/sweep/silent_ms"));
    let detail = format!("what is due longest waits for {lag} ms; it went round {silent} ms ago");
    let next = "see the server's log; the disk or the machine may be too slow for the load";
    match lag.max(silent) {
        ms if ms > MUCH_TOO_LATE_MS => Check::fail("delay", detail, next),
        ms if ms > LATE_MS => Check::warn("delay", detail, next),
        _ => Check::ok("delay", detail),
    }
}

fn unknown(vitals: &Value) -> Check {
    match number(vitals, "/hops/send_unknown/count") {
        0 => Check::ok("sends", "of no message it is unknown whether it arrived"),
        n => {
            let why = format!("of {n} messages nobody knows whether they arrived");
            Check::warn("sends", why, "ask the agents' owners; `exeat task list --stuck` names the tasks")
        }
    }
}

fn dead_letters(vitals: &Value) -> Check {
    match number(vitals, "/dead_letters/count") {
        0 => Check::ok("dead_letters", "none"),
        n => Check::warn("dead_letters", format!("{n} items gave up"), "see `exeat dlq list`"),
    }
}

fn checkpoints(vitals: &Value) -> Check {
    let next = "make the file of [ledger] checkpoint_file writable; see the server's log";
    if let Some(why) = vitals.pointer("/ledger/checkpoint_file_unreadable").and_then(Value::as_str) {
        return Check::fail("checkpoints", format!("the file can't be read: {why}"), next);
    }
    let records = number(vitals, "/ledger/records");
    let (inside, outside) =
        (number(vitals, "/ledger/checkpoint/records"), number(vitals, "/ledger/checkpoint_file/records"));
    if outside > records {
        let why = format!("the file vouches for {outside} records, and the ledger has {records}");
        return Check::fail("checkpoints", why, "stop the server: the record is older than its checkpoints");
    }
    if outside < inside {
        let why = format!("the file lacks what the record has: {outside} of {inside} records");
        return Check::fail("checkpoints", why, next);
    }
    match records - outside {
        behind if behind > BEHIND => {
            Check::warn("checkpoints", format!("the file is {behind} records behind"), next)
        }
        behind => Check::ok("checkpoints", format!("the file is {behind} of {records} records behind")),
    }
}

/// What the registry says, one check for each agent that somebody should look at.
pub(super) fn of_agents(page: &Value, vitals: &Value) -> Vec<Check> {
    let agents = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut all: Vec<Check> = agents.iter().filter_map(agent).collect();
    if all.is_empty() {
        all.push(Check::ok("agents", format!("{} registered", agents.len())));
    }
    all.push(callbacks(agents, text(vitals, "public_url")));
    all
}

fn agent(agent: &Value) -> Option<Check> {
    let key = text(agent, "key");
    if agent.get("halted") == Some(&Value::Bool(true)) {
        return Some(Check::warn("agents", format!("{key} is halted"), format!("exeat agent resume {key}")));
    }
    match text(agent, "status") {
        "pending_review" => {
            let why = format!("{key}'s posture isn't signed: nothing is sent to it");
            Some(Check::warn("agents", why, format!("exeat agent sign {key}")))
        }
        "active" if agent.pointer("/health/has_answered") == Some(&Value::Bool(false)) => {
            let why = format!("{key} has never answered");
            Some(Check::warn("agents", why, format!("exeat agent probe {key}")))
        }
        _ => None,
    }
}

fn callbacks(agents: &[Value], public_url: &str) -> Check {
    let elsewhere = |a: &&Value| {
        let pushes = text(a, "push") != "off" && text(a, "status") == "active";
        pushes && !Client::is_loopback(text(a, "origin"))
    };
    let away: Vec<&str> = agents.iter().filter(elsewhere).map(|a| text(a, "key")).collect();
    let next = "set server.public_url to an https address that agents reach";
    match (Client::is_loopback(public_url), away.as_slice()) {
        (_, []) => Check::ok("callbacks", format!("agents push to {public_url}")),
        (true, away) => {
            let why = format!("{public_url} is this machine's own, and {} can't push there", away.join(", "));
            Check::warn("callbacks", why, next)
        }
        (false, _) if public_url.starts_with("http://") => {
            Check::warn("callbacks", format!("agents push to {public_url} in plain http"), next)
        }
        (false, _) => Check::ok("callbacks", format!("agents push to {public_url}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Status;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::of_micros(1_767_225_600_000_000 + seconds * 1_000_000)
    }

    fn well() -> Value {
        json!({
            "at": at(0), "key": { "key_id": "k", "name": "n", "scopes": ["viewer"] }, "egress": "on",
            "hops": {}, "waiting": [{ "to": "role:writer", "count": 2, "oldest_at": at(-5) }],
            "dead_letters": { "count": 0 }, "sweep": { "lag_ms": 0, "silent_ms": 900 },
            "ledger": { "records": 12, "checkpoint": { "records": 9 }, "checkpoint_file": { "records": 9 },
                "checkpoint_file_unreadable": null },
            "public_url": "http://127.0.0.1:7700",
        })
    }

    #[track_caller]
    fn stands(pointer: &str, value: Value, name: &str, status: Status) {
        let mut vitals = well();
        *vitals.pointer_mut(pointer).unwrap() = value;
        let all = of_vitals(&vitals, at(0));
        let others = all.iter().filter(|c| c.name != name);
        assert!(others.clone().all(|c| c.status == Status::Ok), "{all:?}");
        let check = all.iter().find(|c| c.name == name).unwrap();
        assert_eq!(check.status, status, "{check:?}");
        assert_eq!(check.next.is_empty(), status == Status::Ok, "{check:?}");
    }

    #[test]
    fn each_thing_that_is_wrong_shows_in_its_own_check_and_says_what_to_do() {
        assert!(of_vitals(&well(), at(2)).iter().all(|c| c.status == Status::Ok));
        for mode in ["off", "drain", "halt"] {
            stands("/egress", json!(mode), "egress", Status::Warn);
        }
        stands("/waiting/0/oldest_at", json!(at(-61)), "workers", Status::Warn);
        stands("/sweep/lag_ms", json!(6_000), "delay", Status::Warn);
        stands("/sweep/silent_ms", json!(61_000), "delay", Status::Fail);
        stands("/hops", json!({ "send_unknown": { "count": 1 } }), "sends", Status::Warn);
        stands("/dead_letters/count", json!(3), "dead_letters", Status::Warn);
        stands("/ledger/checkpoint_file", Value::Null, "checkpoints", Status::Fail);
        stands("/ledger/checkpoint_file/records", json!(13), "checkpoints", Status::Fail);
        stands("/ledger/checkpoint_file_unreadable", json!("no"), "checkpoints", Status::Fail);
        stands("/ledger/records", json!(20_000), "checkpoints", Status::Warn);
    }

    #[test]
    fn clocks_that_are_apart_are_told_whichever_is_ahead() {
        let status = |there: i64, here: i64| clock(at(there), at(here)).status;
        assert_eq!([status(0, 4), status(4, 0)], [Status::Ok, Status::Ok]);
        assert_eq!([status(0, 9), status(9, 0)], [Status::Warn, Status::Warn]);
        assert_eq!([status(0, 90), status(90, 0)], [Status::Fail, Status::Fail]);
    }

    #[test]
    fn agents_that_get_nothing_and_pushes_that_cant_come_are_named() {
        let agent = |key: &str, status: &str, halted: bool, answered: bool, origin: &str| {
            json!({ "key": key, "status": status, "halted": halted, "push": "auto", "origin": origin,
                "health": { "has_answered": answered } })
        };
        let here = "http://127.0.0.1:9000";
        let all = json!({ "items": [
            agent("fine", "active", false, true, here), agent("new", "pending_review", false, false, here),
            agent("held", "active", true, true, here), agent("mute", "active", false, false, here),
            agent("gone", "revoked", false, false, here),
        ]});
        let found = of_agents(&all, &well());
        let told: Vec<_> = found.iter().filter(|c| c.name == "agents").map(|c| c.next.as_str()).collect();
        assert_eq!(told, ["exeat agent sign new", "exeat agent resume held", "exeat agent probe mute"]);
        assert_eq!(found.last().unwrap().status, Status::Ok);
        let away = json!({ "items": [agent("far", "active", false, true, "https://far.example")] });
        let check = of_agents(&away, &well()).pop().unwrap();
        assert_eq!((check.name, check.status), ("callbacks", Status::Warn));
    }
}
