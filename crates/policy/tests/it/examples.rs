//! The published examples do what they say, on top of the starter set.

use std::collections::BTreeSet;

use exeat_core::gate::verdict::PolicyDenial::DeniedByPolicy;
use exeat_core::gate::verdict::{Governor as _, HopFacts, Opinion};
use exeat_policy::PolicySet;

use crate::world::*;

const FIRST_CONTACT: &str = include_str!("../../../../policies/examples/first-contact.cedar");
const NOTHING_ABOVE_INTERNAL: &str =
    include_str!("../../../../policies/examples/nothing-above-internal.cedar");
const OFFICE_HOURS: &str = include_str!("../../../../policies/examples/office-hours.cedar");
const BUDGET_BRAKE: &str = include_str!("../../../../policies/examples/budget-brake.cedar");
const TAINT: &str = include_str!("../../../../policies/examples/taint.cedar");

fn judged(example: &str, change: impl FnOnce(&mut HopFacts)) -> Opinion {
    let mut hop = hop();
    change(&mut hop);
    opinion(&starter_and(example), &egress(hop))
}

#[test]
fn every_example_file_is_valid_alone_and_together_and_gives_reasons() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/examples");
    let files: BTreeSet<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 5);
    let mut together = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let set = PolicySet::parse(&text).unwrap_or_else(|faults| panic!("{}: {faults:#?}", file.display()));
        // Alone each denies everything, and says so.
        let [nothing] = set.warnings() else { panic!("{}: {:?}", file.display(), set.warnings()) };
        assert!(nothing.message.contains("permits nothing"), "{}: {nothing:?}", file.display());
        assert_eq!(set.ids().len(), text.matches("@reason").count(), "{}", file.display());
        together.push_str(&text);
    }
    let judgement = starter_and(&together).judge(&egress(hop()));
    assert_eq!(judgement.opinion, Opinion::Allow);
}

#[test]
fn a_first_contact_asks() {
    assert_eq!(judged(FIRST_CONTACT, |_| {}), Opinion::Allow);
    assert_eq!(judged(FIRST_CONTACT, |hop| hop.first_contact = true), roles(&["ops"]));
}

#[test]
fn nothing_above_internal_leaves() {
    for (level, expected) in [
        ("public", Opinion::Allow),
        ("internal+eu", Opinion::Allow),
        ("confidential", Opinion::Deny(DeniedByPolicy)),
        ("restricted", Opinion::Deny(DeniedByPolicy)),
    ] {
        assert_eq!(judged(NOTHING_ABOVE_INTERNAL, |hop| hop.label = label(level)), expected, "{level}");
    }
}

#[test]
fn outside_office_hours_a_person_is_asked() {
    let table = [
        (1, 6, true),
        (5, 17, true),
        (3, 12, true),
        (1, 5, false),
        (5, 18, false),
        (6, 12, false),
        (7, 12, false),
    ];
    for (weekday, hour, open) in table {
        let expected = if open { Opinion::Allow } else { roles(&["ops"]) };
        let opinion = judged(OFFICE_HOURS, |hop| (hop.weekday, hop.hour_utc) = (weekday, hour));
        assert_eq!(opinion, expected, "day {weekday}, {hour}:00");
    }
}

#[test]
fn the_budget_brake_asks_two_roles_for_what_is_dear_and_denies_what_eats_the_budget() {
    let table = [
        (1_000_000, None, Opinion::Allow),
        (1_000_001, None, roles(&["finance", "ops"])),
        (1_000, Some(2_000), Opinion::Allow),
        (1_000, Some(1_999), Opinion::Deny(DeniedByPolicy)),
        (2_000_000, Some(2_000_000), Opinion::Deny(DeniedByPolicy)),
        (u64::MAX, None, roles(&["finance", "ops"])),
        (u64::MAX, Some(u64::MAX), Opinion::Deny(DeniedByPolicy)),
    ];
    for (price, left, expected) in table {
        let opinion =
            judged(BUDGET_BRAKE, |hop| (hop.price_microusd, hop.budget_left_microusd) = (price, left));
        assert_eq!(opinion, expected, "{price} of {left:?}");
    }
}

#[test]
fn tainted_content_asks_and_tainted_files_stay() {
    assert_eq!(judged(TAINT, |_| {}), Opinion::Allow);
    assert_eq!(judged(TAINT, |hop| hop.tainted = true), roles(&["ops"]));
    let files = |hop: &mut HopFacts| (hop.tainted, hop.parts) = (true, texts(&["text", "url"]));
    assert_eq!(judged(TAINT, files), Opinion::Deny(DeniedByPolicy));
    assert_eq!(judged(TAINT, |hop| hop.parts = texts(&["raw"])), Opinion::Allow);
}
