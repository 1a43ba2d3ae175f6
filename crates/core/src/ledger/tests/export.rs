//! Exports: what must verify does, and each tampering is named at its record.

use super::*;

#[test]
fn o_aud_03_05_every_tampering_with_every_record_is_named_at_that_record() {
    let (_, all) = Story::whole().append();
    let good = export_from(0, &all, &ledger_key());
    for k in 1..=all.len() {
        for t in tamperings(&good, k) {
            let found = check(&t.lines);
            assert!(!found.verified, "{}", t.name);
            assert_eq!(found.first_bad.map(|b| b.seq), Some(t.first_bad), "{}: {found:?}", t.name);
        }
    }
}

#[test]
fn a_good_export_verifies_and_says_what_is_in_it() {
    let (head, all) = Story::whole().append();
    let found = check(&export_from(0, &all, &ledger_key()));
    assert_eq!(
        found,
        Verification {
            verified: true,
            records: 18,
            head: hex::encode(head.hash),
            checkpoint: Some(verify::CheckpointSeen {
                size: 18,
                at: noon(),
                key: ledger_key().public().shown(&org())
            }),
            first_bad: None,
            edges: 4,
            costs_balanced: true,
        }
    );
    let json = serde_json::to_value(&found).unwrap();
    let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["verified", "records", "head", "checkpoint", "first_bad", "edges", "costs_balanced"]
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
}

#[test]
fn o_aud_05_no_byte_of_a_record_line_can_change() {
    let (_, all) = Story::whole().append();
    for k in 1..=all.len() {
        let good = export_from(k - 1, &all, &ledger_key());
        for at in 0..good[1].len() {
            let mut lines = good.clone();
            lines[1][at] ^= 1;
            let found = check(&lines);
            assert!(!found.verified, "byte {at} of {k}");
            assert_eq!(found.first_bad.map(|b| b.seq), Some(k as u64), "byte {at} of {k}: {found:?}");
        }
    }
}

#[test]
fn no_byte_of_the_header_can_change_and_none_of_the_signed_note() {
    let (_, all) = Story::whole().append();
    let good = export_from(0, &all, &ledger_key());
    let last = good.len() - 1;
    let note_end = String::from_utf8(good[last].clone()).unwrap().find("\",\"keys\"").unwrap();
    for (line, bytes) in [(0, good[0].len()), (last, note_end)] {
        for at in 0..bytes {
            let mut lines = good.clone();
            lines[line][at] ^= 1;
            assert!(!check(&lines).verified, "byte {at} of line {line}");
        }
    }
}

#[test]
fn an_export_verifies_with_its_own_key_only_whatever_it_lists() {
    let (_, all) = Story::whole().append();
    let other = LedgerKey::of_seed(&[2; 32]);
    let found = check(&export_from(0, &all, &other));
    assert_eq!(found.first_bad, Some(FirstBad { seq: 19, why: Flaw::NoCheckpoint }));
    let mut lines = export_from(0, &all, &ledger_key());
    let at = lines.len() - 1;
    lines[at] = last_line(
        &ledger_key().sign(&Checkpoint::of(org(), Head { size: 18, hash: all[17].hash }, noon())),
        vec![],
    );
    assert_eq!(check(&lines).first_bad, None, "the list isn't signed: it proves nothing");
}

#[test]
fn the_newest_checkpoint_of_a_file_is_found_among_others_and_beside_what_a_crash_cut_off() {
    let key = ledger_key();
    let note = |size: u64| key.sign(&Checkpoint::of(org(), Head { size, hash: [7; 32] }, noon()));
    let others =
        LedgerKey::of_seed(&[2; 32]).sign(&Checkpoint::of(org(), Head { size: 99, hash: [7; 32] }, noon()));
    let torn = &note(50)[..40];
    let file = format!("{torn}{}\n{}\n{others}\n{}\n{torn}", note(3), note(9), note(7));
    let found = |text: &str| newest(text, &key.public()).map(|c| c.size);
    assert_eq!(found(&file), Some(9));
    assert_eq!(found(&format!("{}\n{torn}\n{}", note(4), note(5))), Some(5));
    assert_eq!((found(""), found(torn), found(&others)), (None, None, None));
}

#[test]
fn an_empty_chain_has_an_export_that_verifies() {
    let found = check(&export_from(0, &[], &ledger_key()));
    assert!(found.verified);
    assert_eq!((found.records, found.head), (0, "0".repeat(64)));
}

#[test]
fn a_part_of_a_chain_verifies_under_the_signed_head_and_its_start_can_not_be_forged() {
    let (_, all) = Story::whole().append();
    for start in 1..all.len() {
        let good = export_from(start, &all, &ledger_key());
        let found = check(&good);
        assert!(found.verified, "from {start}: {found:?}");
        assert_eq!(found.records, (all.len() - start) as u64);
        let mut forged = good.clone();
        forged[0] = header(&org(), &Head { size: start as u64, hash: [3; 32] });
        assert_eq!(check(&forged).first_bad.map(|b| b.seq), Some(start as u64 + 1));
        forged[0] = header(&org(), &Head { size: start as u64 + 1, hash: all[start - 1].hash });
        assert!(!check(&forged).verified);
    }
}

#[test]
fn o_aud_03_a_cut_tail_or_a_fork_shows_against_a_head_held_from_before_even_if_resigned() {
    let (_, all) = Story::whole().append();
    let key = ledger_key();
    let held = |n: usize| Checkpoint::of(org(), Head { size: n as u64, hash: all[n - 1].hash }, noon());
    let against = |lines: &[Vec<u8>], held: &Checkpoint| {
        verify_export(lines.concat().as_slice(), &key.public(), Some(held)).unwrap().first_bad
    };
    assert_eq!(against(&export_from(0, &all, &key), &held(7)), None);
    assert_eq!(against(&export_from(0, &all, &key), &held(18)), None);
    let cut = export_from(0, &all[..16], &key);
    assert!(check(&cut).verified, "by itself nothing shows");
    assert_eq!(against(&cut, &held(18)), Some(FirstBad { seq: 17, why: Flaw::CutTail }));

    let mut forked = export_from(0, &all, &key);
    forked[5] = replaced(&forked[5], ".1234", ".1235");
    rehash(&mut forked, 5);
    let Some(tail) = forked.len().checked_sub(2) else { panic!("lines") };
    let hex64 = String::from_utf8(forked[tail][forked[tail].len() - 67..][..64].to_vec()).unwrap();
    let hash: Hash = hex::decode(hex64).unwrap().try_into().unwrap();
    let note = key.sign(&Checkpoint::of(org(), Head { size: 18, hash }, noon()));
    forked[tail + 1] = last_line(&note, vec![ListedKey::of(&key.public(), &org(), noon(), Some(noon()))]);
    assert!(check(&forked).verified, "by itself nothing shows");
    assert_eq!(against(&forked, &held(7)), Some(FirstBad { seq: 7, why: Flaw::Forked }));
    assert_eq!(against(&forked, &held(4)), None, "the fork lies after it");
    assert_eq!(
        against(&export_from(9, &all, &key), &held(7)),
        Some(FirstBad { seq: 7, why: Flaw::HeldNotCovered })
    );
    let mut other = held(7);
    other.org = "other".parse().unwrap();
    assert_eq!(against(&export_from(0, &all, &key), &other), Some(FirstBad { seq: 0, why: Flaw::WrongOrg }));
}

#[test]
fn an_endless_line_is_read_no_further_than_a_record_can_reach() {
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            buf.fill(b'x');
            self.0 += buf.len() as u64;
            assert!(self.0 < 1 << 20, "read on and on");
            Ok(buf.len())
        }
    }
    let found = verify_export(std::io::BufReader::new(Endless(0)), &ledger_key().public(), None).unwrap();
    assert_eq!(found.first_bad, Some(FirstBad { seq: 0, why: Flaw::BadHeader }));
}
