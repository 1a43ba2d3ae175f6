//! How fast the gateway is, against what the machine under it can do, measured in the same run: `make bench`.
//!
//! The gateway and the foreign agent are processes of their own; the load comes from this one, over HTTP like anybody's.
//! `--parked N` parks so many hops (0: none), `--seconds S` is how long each rate is measured, `--json` prints one object.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark that can't go on stops")]

mod http;
mod machine;
mod processes;
mod runs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use exeat_testkit::memory::Memory;
use serde_json::{Value, json};

use processes::{Agent, Gateway, Record};

/// Work in flight at once, for the rate of whole cycles.
const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];

fn main() {
    let line: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    // The baseline's gateway: this program again, with a record in memory.
    if let [role, data, listen] = &line[..]
        && role == "memory-server"
    {
        return over_memory(PathBuf::from(data), listen.parse().unwrap());
    }
    let number = |flag: &str, otherwise: u64| {
        let at = line.iter().position(|a| a == flag);
        at.map_or(otherwise, |i| line[i + 1].parse().unwrap())
    };
    let (parked, span) = (number("--parked", 100_000), Duration::from_secs(number("--seconds", 10)));
    let told = measured(usize::try_from(parked).unwrap(), span);
    if line.iter().any(|a| a == "--json") { println!("{told}") } else { shown(&told) }
}

fn over_memory(data: PathBuf, listen: SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(exeat::serve_over(&data, listen, Memory::new)).unwrap();
}

fn measured(parked: usize, span: Duration) -> Value {
    let agent = Agent::start();
    let mut told = json!({ "machine": machine::described(), "span_s": span.as_secs() });
    for (name, record) in [("sqlite", Record::Sqlite), ("memory", Record::Memory)] {
        let gateway = Gateway::start(record, &agent);
        let mut rates = Vec::new();
        for lanes in IN_FLIGHT {
            rates.push(runs::cycles(&gateway, lanes, span));
            eprintln!(
                "{name}, {lanes} in flight: {:.0} cycles/s",
                rates.last().unwrap()["per_s"].as_f64().unwrap()
            );
        }
        if record == Record::Sqlite {
            let best = rates.iter().max_by_key(|r| r["per_s"].as_f64().unwrap() as u64).unwrap().clone();
            told["limit"] = machine::limit(&best, gateway.folder(), span);
            told["call"] = runs::calls(&gateway, &agent, span);
        }
        told[name] = json!(rates);
    }
    if parked > 0 {
        told["parked"] = runs::parked(&agent, parked);
    }
    told
}

fn shown(told: &Value) {
    let number = |v: &Value| v.as_f64().unwrap_or_default();
    println!("machine   {}", told["machine"]);
    println!("\nwhole cycles a second (clear, send, push, confirm, resume), {} s each", told["span_s"]);
    println!(
        "{:>10} {:>10} {:>10} {:>12} {:>14}",
        "in flight", "sqlite", "memory", "sets/commit", "rows/cycle"
    );
    for (s, m) in told["sqlite"].as_array().unwrap().iter().zip(told["memory"].as_array().unwrap()) {
        println!(
            "{:>10} {:>10.0} {:>10.0} {:>12.1} {:>14.1}",
            s["in_flight"],
            number(&s["per_s"]),
            number(&m["per_s"]),
            number(&s["sets_per_commit"]),
            number(&s["rows_per_cycle"])
        );
    }
    let limit = &told["limit"];
    println!(
        "\nthe database alone: {:.0} rows/s of {} bytes, {} in a transaction: {:.0} cycles/s; the best above is {:.0} % of it",
        number(&limit["rows_per_s"]),
        limit["bytes_per_row"],
        limit["rows_per_commit"],
        number(&limit["cycles_per_s"]),
        number(&limit["reached_percent"])
    );
    println!("its pragmas: {}", limit["pragmas"]);
    let call = &told["call"];
    println!(
        "one call at a time: {:.2} ms p50, {:.2} ms p95; direct {:.2} ms, {:.2} ms; added {:.2} ms p50; a synced write takes {:.2} ms p50",
        number(&call["governed_ms"]["p50"]),
        number(&call["governed_ms"]["p95"]),
        number(&call["direct_ms"]["p50"]),
        number(&call["direct_ms"]["p95"]),
        number(&call["added_p50_ms"]),
        number(&told["machine"]["fsync_ms_p50"])
    );
    if let Some(p) = told.get("parked") {
        println!(
            "{} hops, {} of them parked: {:.0} bytes each on the disk, {:.0} MB resident before, {:.0} MB after (a start with them: {:.0} ms, {:.0} MB); \
             parked at {:.0}/s; idle with them: {:.2} % of a core",
            p["hops"],
            p["working"],
            number(&p["bytes_per_hop"]),
            number(&p["rss_before_mb"]),
            number(&p["rss_after_mb"]),
            number(&p["start_ms"]),
            number(&p["rss_restarted_mb"]),
            number(&p["per_s"]),
            number(&p["idle_percent"])
        );
    }
}
