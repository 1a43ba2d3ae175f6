//! The runs: whole cycles with so many in flight, single calls, parked hops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::Client;
use crate::processes::{Agent, Gateway, Record};

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

pub(crate) fn quantile(of: &[f64], q: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (q * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

const WAIT: &str = "prefer: wait=60\r\n";

/// Hands out one errand and waits for its end.
fn errand(client: &mut Client, key: &str, input: &str) {
    let body = json!({ "to": "agent:agent", "input": input }).to_string();
    let task = client.json("POST", "/api/v1/tasks", &format!("{key}{WAIT}"), &body);
    assert_eq!(task["status"], "completed", "{task}");
}

/// So many lanes, each one errand after the other: accepted, pushed when done, confirmed, resumed.
pub(crate) fn cycles(gateway: &Gateway, lanes: usize, span: Duration) -> Value {
    let count = AtomicU64::new(0);
    let key = gateway.key();
    let before = Counters::of(gateway);
    let began = clock();
    std::thread::scope(|s| {
        for _ in 0..lanes {
            s.spawn(|| {
                let mut client = gateway.client();
                while began.elapsed() < span {
                    errand(&mut client, &key, "!later 1ms\nhello");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (took, after) = (began.elapsed().as_secs_f64(), Counters::of(gateway));
    let cycles = count.load(Ordering::Relaxed) as f64;
    let (sets, commits) = (after.sets - before.sets, (after.commits - before.commits).max(1.0));
    json!({
        "in_flight": lanes, "cycles": cycles, "per_s": cycles / took,
        "sets_per_cycle": sets / cycles, "sets_per_commit": sets / commits, "cycles_per_commit": cycles / commits,
        "rows_per_cycle": (after.rows - before.rows) / cycles, "bytes_per_cycle": (after.bytes - before.bytes) / cycles,
    })
}

struct Counters {
    sets: f64,
    commits: f64,
    rows: f64,
    bytes: f64,
}

impl Counters {
    fn of(gateway: &Gateway) -> Self {
        Self {
            sets: gateway.metric("exeat_commit_batch_sets_sum"),
            commits: gateway.metric("exeat_commit_batch_sets_count"),
            rows: gateway.metric("exeat_commit_rows_total"),
            bytes: gateway.bytes() as f64,
        }
    }
}

/// One call after the other, with the gateway between and without it, in turns.
pub(crate) fn calls(gateway: &Gateway, agent: &Agent, span: Duration) -> Value {
    let (mut through, mut direct) = (gateway.client(), Client::to(agent.at()));
    let key = gateway.key();
    let (mut governed, mut bare) = (Vec::new(), Vec::new());
    let began = clock();
    while began.elapsed() < span {
        let one = clock();
        errand(&mut through, &key, "!message\nhello");
        governed.push(one.elapsed().as_secs_f64() * 1_000.0);
        let message = json!({ "messageId": format!("m{}", bare.len()), "role": "ROLE_USER", "parts": [{ "text": "!message\nhello" }] });
        let call =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
        let one = clock();
        let answer = direct.json("POST", "/", "a2a-version: 1.0\r\n", &call.to_string());
        bare.push(one.elapsed().as_secs_f64() * 1_000.0);
        assert!(answer["result"]["message"].is_object(), "{answer}");
    }
    let both = |of: &[f64]| json!({ "p50": quantile(of, 0.5), "p95": quantile(of, 0.95) });
    json!({
        "calls": governed.len(), "governed_ms": both(&governed), "direct_ms": both(&bare),
        "added_p50_ms": quantile(&governed, 0.5) - quantile(&bare, 0.5),
    })
}

/// Parks so many hops, and sees what they cost while nothing happens.
pub(crate) fn parked(agent: &Agent, hops: usize) -> Value {
    let mut gateway = Gateway::start(Record::Sqlite, agent);
    let (bytes, rss, began) = (gateway.bytes(), gateway.rss_mb(), clock());
    let key = gateway.key();
    let lanes = 64;
    std::thread::scope(|s| {
        for lane in 0..lanes {
            let (gateway, key) = (&gateway, &key);
            s.spawn(move || {
                let mut client = gateway.client();
                let body =
                    json!({ "to": "agent:agent", "input": "!later 20h; push none\nhello" }).to_string();
                for _ in (lane..hops).step_by(lanes) {
                    client.call("POST", "/api/v1/tasks", key, &body);
                }
            });
        }
    });
    let count = |state: &str| gateway.vitals()["hops"][state]["count"].as_u64().unwrap_or_default();
    while ["ready", "sending"].into_iter().any(|state| count(state) > 0) {
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let working = count("working");
    let took = began.elapsed().as_secs_f64();
    let after = gateway.rss_mb();
    let start = clock();
    gateway.restart();
    let start_ms = start.elapsed().as_secs_f64() * 1_000.0;
    let grown = gateway.bytes() - bytes;
    let (ticks, idle) = (gateway.ticks(), Duration::from_secs(10));
    std::thread::park_timeout(idle);
    json!({
        "hops": hops, "working": working, "per_s": hops as f64 / took, "bytes_per_hop": grown as f64 / hops as f64,
        "rss_before_mb": rss, "rss_after_mb": after, "start_ms": start_ms, "rss_restarted_mb": gateway.rss_mb(),
        "idle_percent": (gateway.ticks() - ticks) as f64 * 10.0 / idle.as_millis() as f64 * 100.0,
    })
}
