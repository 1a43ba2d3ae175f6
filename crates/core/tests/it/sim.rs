//! The simulator's seeds: see `exeat_testkit::sim`. A failing seed replays alone:
//! `EXEAT_SIM_SEED=n cargo test -p exeat-core --test it sim`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use exeat_core::bridge::BridgeState as S;
use exeat_core::bridge::state::{Event as E, Shown};
use exeat_core::task::{Ending, TaskStatus};
use exeat_core::time::Timestamp;
use exeat_testkit::sim::faulty::Cells;
use exeat_testkit::sim::run::{Kind, Report, run};

/// Seeds of a run that names no other number: enough to notice, quick enough for a debug build.
const SEEDS: u64 = 300;
/// From this many seeds on, what hardly ever happened fails the run: its silence proves nothing.
const MANY: u64 = 20_000;
/// How often each cell and each fault must have been hit by then.
const ENOUGH: u64 = 100;

/// Faults that must have happened.
const FAULTS: [&str; 42] = [
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
    "pushes at another hop's door",
    "pushes before the answer",
    "pushes doubled",
    "pushes lost",
    "pushes lying",
    "pushes naming another task",
    "pushes turned away",
    "refused for good",
    "refused, later",
    "replies",
    "task ids given twice",
    "tasks forgotten",
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
    let seen = Seen::of(seeds);
    println!("{}", seen.told());
    assert!(seen.failed.is_empty(), "EXEAT_SIM_SEED=… replays: {:#?}", seen.failed);
    if seeds >= MANY {
        assert!(seen.total("tasks") >= 3 * seeds, "too little is going on");
        assert!(seen.total("commits") >= 60 * seeds, "too little is going on");
        assert_eq!(seen.rare(), Vec::<String>::new(), "what hardly ever happens proves nothing");
    }
}

/// What came of many seeds.
#[derive(Default)]
struct Seen {
    seeds: u64,
    longest: (u64, u64),
    totals: BTreeMap<String, u64>,
    cells: Cells,
    failed: Vec<(u64, String)>,
}

impl Seen {
    fn of(seeds: u64) -> Self {
        let next = AtomicU64::new(0);
        let seen = Mutex::new(Self { seeds, ..Self::default() });
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds || seen.lock().unwrap().failed.len() >= 10 {
                            break;
                        }
                        let report = run(seed, Kind::Wild, false);
                        seen.lock().unwrap().add(seed, report);
                    }
                });
            }
        });
        seen.into_inner().unwrap()
    }

    fn add(&mut self, seed: u64, report: Report) {
        self.longest = self.longest.max((report.tally.get("steps").copied().unwrap_or_default(), seed));
        for (what, n) in report.tally {
            *self.totals.entry(what.to_owned()).or_default() += n;
        }
        for status in report.ended {
            *self.totals.entry(format!("tasks {}", status.as_str())).or_default() += 1;
        }
        for (cell, n) in report.cells {
            *self.cells.entry(cell).or_default() += n;
        }
        if let Some(first) = report.broken.first() {
            self.failed.push((seed, first.chars().take(700).collect()));
        }
    }

    fn total(&self, of: &str) -> u64 {
        self.totals.get(of).copied().unwrap_or_default()
    }

    /// Cells and faults that were hit too seldom, or that can't be.
    fn rare(&self) -> Vec<String> {
        let never = self.reached().filter(|(_, reach, n)| *reach == Reach::Never && *n > 0);
        let never = never.map(|(cell, _, n)| format!("{cell}: {n}, and it can't be"));
        let cells =
            self.reached().filter(|(_, reach, _)| *reach == Reach::Often).map(|(cell, _, n)| (cell, n));
        let faults = FAULTS.iter().map(|f| ((*f).to_owned(), self.total(f)));
        let rare = cells.chain(faults).filter(|(_, n)| *n < ENOUGH);
        never.chain(rare.map(|(what, n)| format!("{what}: {n}"))).collect()
    }

    fn told(&self) -> String {
        let mut out = format!(
            "{} seeds; the longest is {} with {} steps\nwhat happened, and how often:\n",
            self.seeds, self.longest.1, self.longest.0
        );
        for (what, n) in &self.totals {
            let _ = writeln!(out, "  {n:>9}  {what}");
        }
        out.push_str("bridges, state × event:\n");
        for (cell, _, n) in self.reached().filter(|(_, reach, n)| *reach != Reach::Never || *n > 0) {
            let _ = writeln!(out, "  {n:>9}  {cell}");
        }
        out
    }

    /// The cells that the table allows, and how often they came about. What has ended is one state here, as it is in
    /// the table.
    fn reached(&self) -> impl Iterator<Item = (String, Reach, u64)> {
        let counted = |state: S, event: E| {
            let same = |s: &&S| if state.is_terminal() { s.is_terminal() } else { **s == state };
            let cells = STATES.iter().filter(same).map(|s| (s.as_str(), event.as_str()));
            cells.filter_map(|c| self.cells.get(&c)).sum()
        };
        let rows = STATES.into_iter().filter(|s| !s.is_terminal() || *s == S::Completed);
        let all = rows.flat_map(|s| EVENTS.into_iter().map(move |e| (s, e)));
        all.filter(|(s, e)| s.on(*e).is_ok()).map(move |(s, e)| {
            let state = if s.is_terminal() { "ended" } else { s.as_str() };
            (format!("{state} × {}", e.as_str()), reach(s, e), counted(s, e))
        })
    }
}

/// One of each state.
const STATES: [S; 14] = [
    S::AwaitingApproval,
    S::Ready,
    S::Sending { n: 2, until: Timestamp::NEVER },
    S::SendUnknown { since: Timestamp::EPOCH },
    S::Working,
    S::InputRequired,
    S::AuthRequired,
    S::Completed,
    S::Failed,
    S::Rejected,
    S::CanceledByPeer,
    S::CanceledByUs,
    S::TimedOut,
    S::Denied,
];

/// One of each event.
const EVENTS: [E; 19] = [
    E::Approved,
    E::Refused,
    E::NeedsApproval,
    E::Leased { n: 2, until: Timestamp::NEVER },
    E::Retry { n: 2 },
    E::Lost { n: 2, at: Timestamp::EPOCH },
    E::Resend,
    E::Shown(Shown::Working),
    E::Shown(Shown::InputRequired),
    E::Shown(Shown::AuthRequired),
    E::Shown(Shown::Completed),
    E::Shown(Shown::Failed),
    E::Shown(Shown::Rejected),
    E::Shown(Shown::Canceled),
    E::NextTurn,
    E::AnswerLost,
    E::Cancel,
    E::Deadline,
    E::GiveUp,
];

/// Can a cell that the table allows come about?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It must, often.
    Often,
    /// It may.
    Seldom,
    /// It must not.
    Never,
}

fn reach(state: S, event: E) -> Reach {
    match (state, event) {
        (s, E::Shown(_) | E::Retry { .. } | E::Lost { .. }) if s.is_terminal() => Reach::Often,
        // Our own decisions aren't made about what has ended.
        (s, _) if s.is_terminal() => Reach::Never,
        (S::Sending { .. }, _) => Reach::Often,
        // An older attempt's words move nothing; they are committed only if that attempt had no record yet.
        (_, E::Retry { .. } | E::Lost { .. }) => Reach::Seldom,
        _ => Reach::Often,
    }
}
