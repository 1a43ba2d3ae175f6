//! Known faults are put back one at a time, and plain seeds of the simulator run until one of them is red: what it
//! doesn't notice, its green doesn't exclude. The simulator itself knows nothing of them.

use exeat_core::faults::{Fault, put_back};
use exeat_testkit::sim::run::{Kind, run};

/// Seeds within which a fault must show.
const SEEDS: u64 = 3_000;

/// One test: a fault is put back for the whole process.
#[test]
fn each_known_fault_turns_the_simulator_red() {
    let mut unseen = Vec::new();
    for fault in Fault::ALL {
        put_back(Some(fault));
        let found =
            (0..SEEDS).find_map(|seed| Some((seed, run(seed, Kind::Wild, false).broken.into_iter().next()?)));
        match found {
            Some((seed, what)) => {
                println!("{fault:?} is seen at seed {seed}: {}", what.chars().take(200).collect::<String>());
            }
            None => unseen.push(fault),
        }
    }
    put_back(None);
    assert!(unseen.is_empty(), "the simulator doesn't notice {unseen:?}");
    assert!(run(0, Kind::Wild, false).broken.is_empty(), "with none put back it is green");
}
