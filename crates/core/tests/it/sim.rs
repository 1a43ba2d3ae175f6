//! The simulator's seeds: see `exeat_testkit::sim`. A failing seed replays alone:
//! `EXEAT_SIM_SEED=n cargo test -p exeat-core --test it sim`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use exeat_core::task::{Ending, TaskStatus};
use exeat_testkit::sim::run::{Kind, run};

const SEEDS: u64 = 2_000;

/// What must have happened over a run of all seeds, or its silence proves nothing.
const FAULTS: [&str; 38] = [
    "ambiguous, made",
    "ambiguous, nothing made",
    "ambiguous, too slow",
    "answer lost, durable",
    "answer lost, not durable",
    "answers",
    "approvals",
    "bare message",
    "calls made twice",
    "cancels",
    "changes of the registry",
    "conflicts",
    "context refused",
    "crash after claim",
    "crash after commit",
    "crash before claim",
    "crash before commit",
    "crash before load",
    "destinations refused",
    "exeats run out",
    "foreign tasks of another hop",
    "impossible",
    "leases extended",
    "leases lost",
    "looks not found",
    "looks that flip",
    "looks without an answer",
    "other interface",
    "over budget",
    "pushes doubled",
    "pushes lost",
    "pushes lying",
    "pushes turned away",
    "refused for good",
    "refused, later",
    "replies",
    "task ids given twice",
    "tasks timed_out",
];

#[test]
fn sim_work_from_role_to_agent_to_role_is_four_edges_and_ends_well() {
    let report = run(1, Kind::Plain, true);
    assert!(report.broken.is_empty(), "{}\n{}", report.trail.join("\n"), report.broken.join("\n"));
    assert_eq!(report.ended, [TaskStatus::Ended(Ending::Completed)], "{}", report.trail.join("\n"));
    assert_eq!(report.edges, 4, "{}", report.trail.join("\n"));
}

#[test]
fn sim_every_promise_holds_whatever_fails_and_whenever() {
    if let Ok(seed) = std::env::var("EXEAT_SIM_SEED") {
        let report = run(seed.parse().expect("EXEAT_SIM_SEED is a number"), Kind::Wild, true);
        println!("{}\n{:#?}", report.trail.join("\n"), report.tally);
        assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
        return;
    }
    let seeds = std::env::var("EXEAT_SIM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SEEDS);
    let (next, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    let total: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || failed.lock().unwrap().len() >= 10 {
                        break;
                    }
                    let report = run(seed, Kind::Wild, false);
                    let steps = report.tally.get("steps").copied().unwrap_or_default();
                    longest.fetch_max(steps << 20 | seed, Ordering::Relaxed);
                    let mut total = total.lock().unwrap();
                    for (what, n) in report.tally {
                        *total.entry(what.to_owned()).or_default() += n;
                    }
                    for status in report.ended {
                        *total.entry(format!("tasks {}", status.as_str())).or_default() += 1;
                    }
                    if let Some(first) = report.broken.first() {
                        failed.lock().unwrap().push((seed, first.chars().take(700).collect()));
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    let longest = longest.into_inner();
    println!("longest: seed {} with {} steps", longest & 0xf_ffff, longest >> 20);
    println!("{seeds} seeds: {total:#?}");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "EXEAT_SIM_SEED=… replays: {failed:#?}");
    let never: Vec<_> =
        FAULTS.iter().filter(|f| total.get(**f).copied().unwrap_or(0) < seeds / 1_000).collect();
    assert!(never.is_empty(), "a fault that hardly ever happens proves nothing: {never:?}");
}
