//! The verifier in the documentation is independent of ours and must agree with it.
//!
//! These tests need python3 with `cryptography`, and fail without: a format that only we can check is no
//! proof to anybody.

use std::process::{Command, Output};

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");

/// Runs python over the exports, written as files, and gives what it printed.
fn python(test: &str, start: &[&str], exports: &[Vec<u8>]) -> (String, Option<i32>) {
    let dir = std::env::temp_dir().join(format!("exeat-verify-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let pem = dir.join("pub.pem");
    std::fs::write(&pem, ledger_key().public().to_pem()).unwrap();
    // `make test` names an interpreter that has `cryptography`.
    let python = std::env::var_os("EXEAT_INTEROP_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.arg("-B").args(start);
    for (n, export) in exports.iter().enumerate() {
        let file = dir.join(format!("{n}.jsonl"));
        std::fs::write(&file, export).unwrap();
        command.arg(file);
    }
    let Output { status, stdout, stderr } =
        command.arg(pem).output().expect("python3 is needed to test docs/verify.py");
    let complaint = String::from_utf8_lossy(&stderr);
    assert!(
        complaint.is_empty(),
        "docs/verify.py needs python3 with `cryptography`; run the tests by `make test`: {complaint}"
    );
    std::fs::remove_dir_all(dir).unwrap();
    (String::from_utf8(stdout).unwrap(), status.code())
}

#[test]
fn the_documented_command_says_verified_or_the_first_bad_record() {
    let (_, all) = Story::whole().append();
    let good = export_from(0, &all, &ledger_key());
    let run = |lines: &[Vec<u8>]| python("command", &[SCRIPT], &[lines.concat()]);
    assert_eq!(run(&good), ("verified 18\n".into(), Some(0)));
    assert_eq!(run(&good[..5]), ("first bad 5\n".into(), Some(4)));
}

#[test]
fn the_documented_verifier_agrees_with_ours_on_every_kind_of_tampering_with_every_record() {
    let (_, all) = Story::whole().append();
    let key = ledger_key();
    let good = export_from(0, &all, &key);
    let mut exports =
        vec![good.concat(), export_from(9, &all, &key).concat(), export_from(0, &[], &key).concat()];
    let mut expected = vec!["verified 18".to_owned(), "verified 9".to_owned(), "verified 0".to_owned()];
    exports.push(export_from(0, &all, &LedgerKey::of_seed(&[2; 32])).concat());
    expected.push("first bad 19".to_owned());
    for t in (1..=all.len()).flat_map(|k| tamperings(&good, k)) {
        exports.push(t.lines.concat());
        expected.push(format!("first bad {}", t.first_bad));
    }
    for faulty in [second_edge(), second_outcome(), child_astray()] {
        let lines = export_from(0, &faulty, &key);
        let found = check(&lines).first_bad.unwrap();
        exports.push(lines.concat());
        expected.push(format!("first bad {}", found.seq));
    }
    let driver = format!(
        "import runpy, sys\n\
         v = runpy.run_path({SCRIPT:?})\n\
         key = v['load_pem_public_key'](open(sys.argv[-1], 'rb').read())\n\
         for f in sys.argv[1:-1]: print(v['verify'](open(f, 'rb').read(), key)[0])\n"
    );
    let (said, _) = python("every", &["-c", &driver], &exports);
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said, expected);
}

fn placed(s: Story, edge: u64) -> Vec<Appended> {
    let mut head = Head::EMPTY;
    s.drafts.into_iter().map(|d| append(&mut head, &org(), d, |_| Some(edge)).unwrap()).collect()
}

fn second_edge() -> Vec<Appended> {
    let mut s = Story::new(20);
    let key = s.key(true, 1, Dir::A2aEgress);
    s.edge(&key, "role:a", "agent:b").edge(&key, "role:a", "agent:b");
    placed(s, 1)
}

fn second_outcome() -> Vec<Appended> {
    let mut s = Story::new(21);
    let key = s.key(true, 1, Dir::A2aEgress);
    s.edge(&key, "role:a", "agent:b").outcome(&key).outcome(&key);
    placed(s, 1)
}

fn child_astray() -> Vec<Appended> {
    let mut s = Story::new(22);
    let (key, other) = (s.key(true, 1, Dir::A2aEgress), s.key(true, 1, Dir::A2aEgress));
    s.edge(&key, "role:a", "agent:b").edge(&other, "role:a", "agent:b").outcome(&other);
    placed(s, 1)
}
