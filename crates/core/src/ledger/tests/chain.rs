//! The chain and what is asserted over its records.

use proptest::prelude::*;

use super::super::chain::link;
use super::*;

pub(super) fn link_of(prev: &Hash, bytes: &[u8]) -> Hash {
    link(prev, bytes)
}

fn verify(all: &[Appended]) -> Verification {
    let mut v = Verifier::new(org());
    for a in all {
        if v.record(&a.bytes, &a.hash).is_err() {
            break;
        }
    }
    v.finish()
}

/// Places drafts without the checks of `append`, as a faulty committer would.
fn place(drafts: Vec<Draft>, edge_of: impl Fn(&EdgeKey) -> Option<u64>) -> Vec<Appended> {
    let mut head = Head::EMPTY;
    drafts.into_iter().map(|d| append(&mut head, &org(), d, &edge_of).unwrap()).collect()
}

#[test]
fn a_record_is_written_exactly_like_this() {
    let (_, all) = Story::whole().append();
    let bytes: Vec<&str> = all.iter().map(|a| std::str::from_utf8(&a.bytes).unwrap()).collect();
    let with = |text: &str| -> String {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        serde_json_canonicalizer::to_string(&value).unwrap()
    };
    let record: serde_json::Value = serde_json::from_str(bytes[1]).unwrap();
    let mut expected: serde_json::Value = serde_json::from_str(
        r#"{"v":1,"seq":2,"org":"main","at":"2023-11-14T22:13:20.123457Z","kind":"edge",
        "actor":{"type":"system","name":"gate"},"step":"draft","turn":1,
        "data":{"dir":"a2a_egress","from":"role:a","to":"agent:b","origin":"https://peer.example",
        "registry_version":3,"bytes":2,"label":{"level":"internal","tags":["eu"]},"tainted":false,
        "price_microusd":100,"decision":"allow","roles":["ops"],"policies":[{"id":"p1"}],
        "policy_version":"1.7","at":"2023-11-14T22:13:20.123457Z"}}"#,
    )
    .unwrap();
    for name in ["change_id", "task", "hop"] {
        expected[name] = record[name].clone();
    }
    // sha256sum of 32 bytes 0x07 and `{}`.
    expected["data"]["payload"] =
        "sha256s:605dcbfd3c387c45b6db7e7b1fb961bdd75d762260c4879b3c3b4f15edacad42".into();
    assert_eq!(bytes[1], with(&expected.to_string()));
    let child: serde_json::Value = serde_json::from_str(bytes[2]).unwrap();
    assert_eq!((&child["edge"], &child["kind"]), (&2.into(), &"cost".into()));
    assert_eq!(child["data"], serde_json::json!({"entry": "reserve", "amount_microusd": 100}));
}

#[test]
fn every_record_reads_back_as_it_was_written() {
    let (_, all) = Story::whole().append();
    for a in all {
        let read: Record = serde_json::from_slice(&a.bytes).unwrap();
        assert_eq!(read, a.record);
    }
}

#[test]
fn no_record_holds_free_text() {
    let (_, all) = Story::whole().append();
    for a in all {
        let text = String::from_utf8(a.bytes).unwrap();
        assert!(!text.contains("free text") && !text.contains("because"), "{text}");
    }
}

#[test]
fn o_aud_08_retries_are_attempts_of_one_edge_and_edges_are_counted_once() {
    let (_, all) = Story::whole().append();
    let count = |kind: Kind| all.iter().filter(|a| a.record.data.kind() == kind).count();
    assert_eq!((count(Kind::Edge), count(Kind::Attempt)), (4, 3));
    let of: Vec<Option<u64>> =
        all.iter().filter(|a| a.record.data.kind() == Kind::Attempt).map(|a| a.record.edge).collect();
    assert_eq!(of, [Some(2), Some(2), Some(2)]);
}

#[test]
fn o_aud_04_a_text_that_slides_into_its_neighbour_changes_the_hash() {
    let note = |what: &str, why: &str| {
        let (what, why) = (what.parse().unwrap(), why.parse().unwrap());
        let mut s = Story::new(3);
        s.apart(Data::Refused(NoteData { what, why, payload: None }));
        s.append().0.hash
    };
    assert_ne!(note("a_b", "c"), note("a", "b_c"));
    assert_ne!(note("ab", "c"), note("a", "bc"));
}

#[test]
fn o_aud_01_two_writers_that_read_one_head_are_found_out() {
    let mut s = Story::new(4);
    let (a, b) = (s.key(false, 1, Dir::Forward), s.key(false, 1, Dir::Forward));
    s.edge(&a, "key:k1", "role:x").edge(&b, "key:k1", "role:x");
    let both: Vec<Appended> = s
        .drafts
        .into_iter()
        .map(|d| append(&mut Head::EMPTY.clone(), &org(), d, |_| None).unwrap())
        .collect();
    assert_eq!(verify(&both).first_bad, Some(FirstBad { seq: 2, why: Flaw::WrongSeq }));
}

#[test]
fn an_edge_has_one_record_and_one_ending() {
    let mut s = Story::new(5);
    let key = s.key(true, 1, Dir::A2aEgress);
    s.edge(&key, "role:a", "agent:b").edge(&key, "role:a", "agent:b");
    let bad = verify(&place(s.drafts.clone(), |_| None)).first_bad;
    assert_eq!(bad, Some(FirstBad { seq: 2, why: Flaw::EdgeTwice }));
    let refused = append_all(&mut Head::EMPTY.clone(), &org(), s.drafts.clone(), |_| None);
    assert!(matches!(refused, Err(AppendError::EdgeTwice(k)) if k == key));

    s.drafts.pop();
    s.outcome(&key).outcome(&key);
    let (_, all) = s.append();
    assert_eq!(verify(&all).first_bad, Some(FirstBad { seq: 3, why: Flaw::OutcomeTwice }));
}

#[test]
fn a_child_must_point_to_its_own_edge() {
    let mut s = Story::new(6);
    let (key, other) = (s.key(true, 1, Dir::A2aEgress), s.key(true, 1, Dir::A2aEgress));
    s.edge(&key, "role:a", "agent:b").edge(&other, "role:a", "agent:b").outcome(&other);
    for (seq, why) in [(1, Flaw::OtherEdge), (9, Flaw::NoSuchEdge), (3, Flaw::NoSuchEdge)] {
        let bad = verify(&place(s.drafts.clone(), |_| Some(seq))).first_bad;
        assert_eq!(bad, Some(FirstBad { seq: 3, why }), "edge {seq}");
    }
    let mut head = Head::EMPTY;
    let outcome = s.drafts[2].clone();
    assert!(matches!(
        append(&mut head, &org(), outcome.clone(), |_| None),
        Err(AppendError::NoSuchEdge(k)) if k == other
    ));
    let orphan = Draft { about: None, ..outcome.clone() };
    assert!(matches!(append(&mut head, &org(), orphan, |_| None), Err(AppendError::NoParent(Kind::Outcome))));
    let astray = Draft { turn: Some(2), ..outcome };
    assert!(matches!(append(&mut head, &org(), astray, |_| Some(1)), Err(AppendError::OtherEdge(_))));
    let bare = Draft { task: None, ..s.drafts[0].clone() };
    assert!(matches!(append(&mut head, &org(), bare, |_| None), Err(AppendError::NotAnEdge)));
    assert_eq!(head, Head::EMPTY, "what fails moves nothing");
}

#[test]
fn money_adds_up_per_turn_or_the_change_that_broke_it_is_named() {
    use CostEntry::{Overrun, Release, Reserve, Settle};
    // One inner list per change set; the edge is record 1, so the first entry is record 2.
    type Change = &'static [(CostEntry, u64)];
    let table: &[(&[Change], Option<u64>)] = &[
        (&[&[(Reserve, 100)]], None),
        (&[&[(Reserve, 100)], &[(Settle, 100)]], None),
        (&[&[(Reserve, 100)], &[(Settle, 60), (Release, 40)]], None),
        (&[&[(Reserve, 100)], &[(Settle, 130), (Overrun, 30)]], None),
        (&[&[(Reserve, 100)], &[(Release, 100)], &[(Reserve, 90)], &[(Settle, 90)]], None),
        (&[&[(Reserve, 0)], &[(Settle, 0)]], None),
        (&[&[(Reserve, 100)], &[(Settle, 60)]], Some(3)),
        (&[&[(Reserve, 100)], &[(Settle, 60)], &[(Release, 40)]], Some(3)),
        (&[&[(Reserve, 100)], &[(Settle, 130)]], Some(3)),
        (&[&[(Reserve, 100)], &[(Release, 130)]], Some(3)),
        (&[&[(Settle, 1)]], Some(2)),
        (&[&[(Reserve, 100)], &[(Settle, 100)], &[(Settle, 1)]], Some(4)),
        (&[&[(Reserve, 100)], &[(Settle, 60), (Release, 40)], &[(Reserve, 1)]], Some(5)),
    ];
    for (changes, bad) in table {
        let mut s = Story::new(7);
        let key = s.key(true, 1, Dir::A2aEgress);
        s.edge(&key, "role:a", "agent:b").next_change();
        for change in *changes {
            for (entry, amount) in *change {
                s.cost(&key, *entry, *amount);
            }
            s.next_change();
        }
        let found = verify(&s.append().1);
        assert_eq!(
            found.first_bad,
            bad.map(|seq| FirstBad { seq, why: Flaw::CostsUnbalanced }),
            "{changes:?}"
        );
        assert_eq!(found.costs_balanced, bad.is_none());
    }
}

#[test]
fn turns_do_not_pay_for_each_other() {
    let mut s = Story::new(8);
    let one = s.key(true, 1, Dir::A2aEgress);
    let two = EdgeKey { turn: 2, ..one.clone() };
    s.edge(&one, "role:a", "agent:b").edge(&two, "role:a", "agent:b");
    s.cost(&one, CostEntry::Reserve, 10).cost(&two, CostEntry::Reserve, 10).next_change();
    s.cost(&one, CostEntry::Settle, 15).cost(&two, CostEntry::Settle, 5);
    assert!(!verify(&s.append().1).costs_balanced);
}

#[test]
fn a_verdict_of_a_policy_set_of_any_size_fits_into_a_record() {
    let long = "p".repeat(10_000);
    let verdict = Verdict {
        decision: Decision::Deny,
        roles: (0..500).map(|n| format!("r{n:>300}")).collect(),
        policies: (0..500).map(|n| Because { id: format!("{long}{n}"), reason: None }).collect(),
        policy_version: "1.7".into(),
        at: noon(),
    };
    let mut s = Story::new(9);
    let key = s.key(true, 1, Dir::A2aEgress);
    s.edge(&key, "role:a", "agent:b").child(&key, Data::Verdict(Judged::from(&verdict)));
    let (_, all) = s.append();
    let Data::Verdict(judged) = &all[1].record.data else { panic!("a verdict") };
    assert_eq!((judged.policies.len(), judged.roles.len(), judged.unnamed), (64, 64, Some(872)));
}

#[test]
fn a_draft_that_does_not_fit_is_refused_and_moves_nothing() {
    let mut s = Story::new(10);
    let key = s.key(true, 1, Dir::A2aEgress);
    s.edge(&key, "role:a", "agent:b");
    let roles = vec![OutsideId::of("r"); 40_000];
    let approval_id = ApprovalId::draw(&mut s.ids);
    let (digest, status) = (Sha256Digest::of(b""), ApprovalStatus::Pending);
    s.child(
        &key,
        Data::Approval(ApprovalData { approval_id, status, digest, roles, by: None, reason: None }),
    );
    let mut head = Head::EMPTY;
    let refused = append_all(&mut head, &org(), s.drafts, |_| None);
    assert!(matches!(refused, Err(AppendError::NotCanonical(_))));
    assert_eq!(head, Head::EMPTY);
}

#[test]
fn every_head_held_from_before_is_compared_where_the_chain_passes_it() {
    let (_, all) = Story::whole().append();
    let head = |n: usize| Head { size: n as u64, hash: all[n - 1].hash };
    let against = |held: &[Head], upto: usize| {
        let mut v = Verifier::new(org());
        held.iter().for_each(|h| v.hold(*h));
        let _ = all[..upto].iter().try_for_each(|a| v.record(&a.bytes, &a.hash));
        v.finish().first_bad
    };
    let other = |n: u64| Head { size: n, hash: [8; 32] };
    assert_eq!(against(&[head(3), head(9), head(18), Head::EMPTY], 18), None);
    assert_eq!(against(&[head(3), other(9), other(12)], 18), Some(FirstBad { seq: 9, why: Flaw::Forked }));
    assert_eq!(against(&[head(3), head(9)], 8), Some(FirstBad { seq: 9, why: Flaw::CutTail }));
    assert_eq!(against(&[head(9), other(9)], 18), Some(FirstBad { seq: 9, why: Flaw::Forked }));
    assert_eq!(against(&[other(0)], 18), Some(FirstBad { seq: 0, why: Flaw::Forked }));
}

#[test]
fn a_long_chain_verifies_from_the_middle_of_a_stream() {
    let mut s = Story::new(11);
    for _ in 0..5_000 {
        let key = s.key(true, 1, Dir::A2aEgress);
        s.edge(&key, "role:a", "agent:b").cost(&key, CostEntry::Reserve, 5);
        s.outcome(&key).cost(&key, CostEntry::Settle, 5).next_change();
    }
    let (head, all) = s.append();
    let found = verify(&all);
    assert_eq!((found.verified, found.records, found.edges), (true, 20_000, 5_000));
    assert_eq!(found.head, hex::encode(head.hash));
    let middle = Head { size: 10_001, hash: all[10_000].hash };
    let mut v = Verifier::after(org(), middle);
    all[10_001..].iter().for_each(|a| v.record(&a.bytes, &a.hash).unwrap());
    assert!(v.finish().verified);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_chain_verifies_and_no_reordering_or_loss_of_it_does(
        sizes in proptest::collection::vec(1u32..4, 1..8),
        seed in any::<u8>(),
        at in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let mut s = Story::new(seed);
        for attempts in sizes {
            let key = s.key(attempts % 2 == 0, attempts, Dir::A2aEgress);
            s.edge(&key, "role:a", "agent:b").cost(&key, CostEntry::Reserve, 9).next_change();
            for n in 1..=attempts {
                s.attempt(&key, n, AttemptOutcome::Ambiguous);
            }
            s.outcome(&key).cost(&key, CostEntry::Release, 9).next_change();
        }
        let (head, all) = s.append();
        let good = export_from(0, &all, &ledger_key());
        prop_assert!(check(&good).verified);
        prop_assert_eq!(head.size, all.len() as u64);

        let (at, to) = (1 + at.index(all.len()), 1 + to.index(all.len()));
        let mut moved = good.clone();
        let line = moved.remove(at);
        prop_assert_eq!(check(&moved).first_bad.map(|b| b.seq), Some(at as u64));
        moved.insert(to, line);
        let first = (at != to).then(|| at.min(to) as u64);
        prop_assert_eq!(check(&moved).first_bad.map(|b| b.seq), first);
    }
}
