//! Keys, the ring and callback tokens, against their specifications and against forgers.

use proptest::prelude::*;

use super::*;

fn org(name: &str) -> OrgName {
    name.parse().unwrap()
}

fn root(byte: u8) -> Root {
    Root::of(Zeroizing::new([byte; 32]))
}

fn kid(byte: u8) -> Kid {
    Kid([byte; 8])
}

fn callback(byte: u8) -> CallbackId {
    URL_SAFE_NO_PAD.encode([byte; 16]).parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::of_micros(seconds * 1_000_000)
}

const EXP: i64 = 1_700_000_000;

/// Two orgs with an active callback key each, and an approval key of the first.
fn ring() -> Ring {
    let (root, main, other) = (root(1), org("main"), org("other"));
    let mut ring = Ring::new();
    for (n, org, purpose) in
        [(2, &main, Purpose::Callback), (3, &other, Purpose::Callback), (4, &main, Purpose::Approval)]
    {
        let key = derive(&root, purpose, Some(org), 1);
        ring.insert(kid(n), org.clone(), purpose, KeyState::Active, key);
    }
    ring
}

fn mint(ring: &Ring, of: &str) -> String {
    mint_callback(ring, &org(of), &callback(3), at(EXP)).unwrap().expose().to_owned()
}

/// Computed with python's `cryptography`, `hmac` and `struct`.
#[test]
fn derivation_and_token_are_what_their_specifications_say() {
    assert_eq!(
        mint(&ring(), "main"),
        "ec1.AgICAgICAgI.1700000000.K4nuEQTfLYVZ1tkjfY6-1GBEK8nK3PxjzBSqYVvqaas"
    );
    assert_eq!(
        hex::encode(root(1).check()),
        "418138f0a953eb73313a593e2c5e8bc0c60904b90932ac4039f98c0348502a3c"
    );
}

#[test]
fn the_expansion_is_that_of_rfc_5869() {
    let mut info = Vec::new();
    for part in [b"seal".as_slice(), b"main", &7u32.to_be_bytes()] {
        frame(part, |b| info.extend_from_slice(b));
    }
    let mut okm = [0; 32];
    Hkdf::<Sha256>::new(Some(SALT), &[9; 32]).expand(&info, &mut okm).unwrap();
    assert_eq!(*derive(&root(9), Purpose::Seal, Some(&org("main")), 7).0, okm);
}

#[test]
fn every_purpose_org_epoch_and_root_has_a_key_of_its_own() {
    let mut keys = std::collections::BTreeSet::new();
    let (main, other) = (org("main"), org("mai"));
    let mut count = 0;
    for (r, purpose) in [1, 2].into_iter().flat_map(|r| Purpose::ALL.map(|p| (r, p))) {
        for (org, epoch) in
            [None, Some(&main), Some(&other)].into_iter().flat_map(|o| [(o, 0), (o, 1), (o, 256)])
        {
            keys.insert(*derive(&root(r), purpose, org, epoch).0);
            count += 1;
        }
    }
    assert_eq!(keys.len(), count);
}

#[test]
fn a_token_says_whose_it_is_until_it_expires() {
    let ring = ring();
    for name in ["main", "other"] {
        let token = mint(&ring, name);
        assert_eq!(verify_callback(&ring, &token, &callback(3), at(0)), Ok(org(name)));
        assert_eq!(verify_callback(&ring, &token, &callback(3), at(EXP)), Ok(org(name)));
        assert_eq!(verify_callback(&ring, &token, &callback(3), at(EXP + 1)), Err(BadToken));
    }
    let none = mint_callback(&ring, &org("third"), &callback(3), at(EXP));
    assert_eq!(none.map(|_| ()), Err(NoActiveKey));
}

#[test]
fn a_token_of_one_callback_is_no_token_of_another() {
    let ring = ring();
    let token = mint(&ring, "main");
    assert_eq!(verify_callback(&ring, &token, &callback(4), at(0)), Err(BadToken));
}

#[test]
fn a_token_under_another_key_of_any_org_or_purpose_is_refused() {
    let ring = ring();
    let token = mint(&ring, "main");
    for n in [3, 4, 5] {
        let swapped = token.replace(&kid(2).to_string(), &kid(n).to_string());
        assert_eq!(verify_callback(&ring, &swapped, &callback(3), at(0)), Err(BadToken), "kid {n}");
    }
    // The same words under the approval key: right in every part but the purpose of the key.
    let (_, approval) = ring.active(&org("main"), Purpose::Approval).unwrap();
    let (k, exp) = (kid(4).to_string(), EXP.to_string());
    let mac = approval.tag(&callback_parts(&k, "main", &callback(3), &exp));
    let forged = format!("ec1.{k}.{exp}.{}", URL_SAFE_NO_PAD.encode(mac));
    assert_eq!(verify_callback(&ring, &forged, &callback(3), at(0)), Err(BadToken));
    // And a callback key is none for approvals.
    assert!(ring.verifying(kid(2), Purpose::Approval).is_none());
    // Whoever knows how an unknown key is treated gains nothing.
    let decoy = SubKey(Zeroizing::new([0; 32]));
    let k = kid(77).to_string();
    let mac = decoy.tag(&callback_parts(&k, "", &callback(3), &exp));
    let forged = format!("ec1.{k}.{exp}.{}", URL_SAFE_NO_PAD.encode(mac));
    assert_eq!(verify_callback(&ring, &forged, &callback(3), at(0)), Err(BadToken));
}

#[test]
fn after_a_rotation_old_tokens_verify_and_after_retirement_they_do_not() {
    let mut ring = ring();
    let old = mint(&ring, "main");
    let key = derive(&root(1), Purpose::Callback, Some(&org("main")), 2);
    ring.insert(kid(9), org("main"), Purpose::Callback, KeyState::Active, key);
    let new = mint(&ring, "main");
    assert_eq!((kid_of(&old), kid_of(&new)), (Some(kid(2)), Some(kid(9))));
    for token in [&old, &new] {
        assert_eq!(verify_callback(&ring, token, &callback(3), at(0)), Ok(org("main")));
    }
    let out = |ring: &Ring| -> Vec<String> {
        callbacks_out(ring, &org("main"), &callback(3), at(EXP))
            .iter()
            .map(|t| t.expose().to_owned())
            .collect()
    };
    let (mut told, mut both) = (out(&ring), [old.clone(), new.clone()]);
    told.sort();
    both.sort();
    assert_eq!(told, both, "an agent may have been given either");
    ring.retire(kid(2));
    assert_eq!(out(&ring), [new.as_str()]);
    assert!(!ring.knows(kid(2)));
    assert_eq!(verify_callback(&ring, &old, &callback(3), at(0)), Err(BadToken));
    assert_eq!(verify_callback(&ring, &new, &callback(3), at(0)), Ok(org("main")));

    let key = derive(&root(1), Purpose::Callback, Some(&org("main")), 1);
    ring.insert(kid(2), org("main"), Purpose::Callback, KeyState::Retired, key);
    assert!(ring.knows(kid(2)));
    assert_eq!(verify_callback(&ring, &old, &callback(3), at(0)), Err(BadToken));
}

#[test]
fn no_character_of_a_token_can_change_be_lost_or_be_added() {
    let ring = ring();
    let good = mint(&ring, "main");
    let refuse = |bad: &str| {
        assert_eq!(verify_callback(&ring, bad, &callback(3), at(0)), Err(BadToken), "{bad}");
    };
    for at in 0..good.len() {
        for with in ["A", "b", "0", "9", ".", "_", "=", " ", "\u{e9}", ""] {
            let bad = format!("{}{with}{}", &good[..at], &good[at + 1..]);
            if bad != good {
                refuse(&bad);
            }
        }
        refuse(&good[..at]);
        refuse(&format!("{} {}", &good[..at], &good[at..]));
    }
    for bad in [
        String::new(),
        "ec1...".into(),
        good.to_uppercase(),
        format!("{good}."),
        format!("{good}\n"),
        good.replace("ec1.", "ec2."),
        good.replace(".17", ".017"),
        good.replace(".17", ".+17"),
        good.replace(".17", ".-17"),
        good.replace(".17", ".99999999999999999999917"),
        format!("ec1.{}", "A".repeat(10_000_000)),
    ] {
        refuse(&bad);
    }
}

#[test]
fn nothing_prints_a_token() {
    let token = mint_callback(&ring(), &org("main"), &callback(3), at(EXP)).unwrap();
    assert_eq!(format!("{token:?}"), "CallbackToken(…)");
}

#[test]
fn parts_of_a_tag_can_not_slide_into_each_other() {
    let key = derive(&root(1), Purpose::Csrf, None, 0);
    let tag = key.tag(&[b"ab", b"c"]);
    assert!(key.is_tag(&[b"ab", b"c"], &tag));
    for other in [[b"a".as_slice(), b"bc"], [b"abc", b""], [b"", b"abc"]] {
        assert!(!key.is_tag(&other, &tag));
    }
    assert!(!key.is_tag(&[b"ab", b"c"], &tag[..31]));
    assert!(!key.is_tag(&[b"ab", b"c"], b""));
}

#[test]
fn a_kid_reads_back_from_its_text() {
    let k = Kid([250; 8]);
    assert_eq!(k.to_string().parse::<Kid>(), Ok(k));
    for bad in ["", "short", "AAAAAAAAAA=", "AAAAAAAAAA+", "AAAAAAAAAAB", "AAAAAAAAAAAA"] {
        assert!(bad.parse::<Kid>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_text_at_all_upsets_the_verifier(text in "(ec1\\.)?.{0,300}") {
        prop_assert_eq!(verify_callback(&ring(), &text, &callback(3), at(0)), Err(BadToken));
    }
}
