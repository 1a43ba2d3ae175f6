//! The ledger of a real run, taken out and changed in every way: each is found, where it is, by two verifiers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::rig::{Gateway, Stub, until};

/// A run with a bit of everything: a task that is done, one that fails, one that is denied.
fn run() -> (Gateway, Stub) {
    let stub = Stub::start(&[]);
    let gateway = Gateway::with_agent(&[], "there", &stub.url, &["--price", "700"]);
    for text in ["hello", "!fail not today"] {
        let id = gateway.begin(&json!({"to": "agent:there", "input": text}));
        gateway.ended(&id);
    }
    gateway.does(&["egress", "off", "--reason", "enough"]);
    let id = gateway.begin(&json!({"to": "agent:there", "input": "nothing leaves"}));
    assert_eq!(gateway.ended(&id)["reason"]["code"], "egress_off");
    (gateway, stub)
}

/// A forgery: what was done, and the export then. `at` is the index of the line it was done to.
struct Forgery {
    what: String,
    seq: u64,
    text: String,
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|l| format!("{l}\n")).collect()
}

/// The record of a line with another moment in it, everything else as it was.
fn moved(line: &str) -> String {
    let at = line.find("\"at\":\"").unwrap() + "\"at\":\"2026-01-01T00:00:00.00000".len();
    let digit = if &line[at..=at] == "5" { "6" } else { "5" };
    format!("{}{digit}{}", &line[..at], &line[at + 1..])
}

/// The line as its forger would have hashed it.
fn rehashed(line: &str, before: &str) -> String {
    let prev = hex::decode(hash_of(before).unwrap_or_else(|| "00".repeat(32))).unwrap();
    let record = line.strip_prefix("{\"record\":").unwrap().rsplit_once(",\"hash\":").unwrap().0;
    let inner = Sha256::digest(record.as_bytes());
    let hash = Sha256::digest([b"exeat-ledger-v1", &prev[..], &inner[..]].concat());
    format!("{{\"record\":{record},\"hash\":\"{}\"}}", hex::encode(hash))
}

fn hash_of(line: &str) -> Option<String> {
    let parsed: Value = serde_json::from_str(line).unwrap();
    parsed["hash"].as_str().map(str::to_owned)
}

fn forgeries(export: &str) -> Vec<Forgery> {
    let lines: Vec<String> = export.lines().map(str::to_owned).collect();
    let last = lines.len() - 1;
    let mut all = Vec::new();
    for i in 1..last {
        let mut add = |what: &str, change: &dyn Fn(&mut Vec<String>)| {
            let mut forged = lines.clone();
            change(&mut forged);
            all.push(Forgery { what: format!("{what} {i}"), seq: i as u64, text: joined(&forged) });
        };
        add("change", &|l| l[i] = moved(&l[i]));
        add("change and rehash", &|l| l[i] = rehashed(&moved(&l[i]), &l[i - 1]));
        add("delete", &|l| drop(l.remove(i)));
        add("insert a copy of", &|l| l.insert(i, l[i].clone()));
        if i + 1 < last {
            add("swap with the next", &|l| l.swap(i, i + 1));
        }
        add("cut after", &|l| l.truncate(i + 1));
        add("cut out the end after", &|l| drop(l.drain(i + 1..last)));
    }
    // The last one cuts nothing out.
    all.retain(|f| f.text != export);
    all
}

/// What Python says of each file: its exit code and its line.
fn second_verifier(pem: &Path, files: &[String]) -> Vec<(i64, String)> {
    let python =
        std::env::var("EXEAT_INTEROP_PYTHON").unwrap_or_else(|_| panic!("run the tests by `make test`"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verify.py");
    let driver = "
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location('verify', sys.argv[1])
v = importlib.util.module_from_spec(spec); spec.loader.exec_module(v)
key = v.load_pem_public_key(open(sys.argv[2], 'rb').read())
print(json.dumps([v.verify(open(f, 'rb').read(), key)[::-1] for f in json.load(sys.stdin)]))
";
    let mut command = Command::new(python);
    command.args(["-c", driver]).arg(script).arg(pem).env("PYTHONDONTWRITEBYTECODE", "1");
    let list = pem.with_extension("files");
    std::fs::write(&list, json!(files).to_string()).unwrap();
    let output = command.stdin(std::fs::File::open(list).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn whatever_is_done_to_an_export_both_verifiers_find_it_where_it_is() {
    let (gateway, _stub) = run();
    let (export, file, pem) = gateway.export();
    let kinds: BTreeSet<String> =
        super::rig::records(&export).iter().map(|r| r["kind"].as_str().unwrap().to_owned()).collect();
    for kind in ["edge", "attempt", "outcome", "cost", "change"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let pem_text = pem.display().to_string();
    let verify = |file: &str| {
        let got = gateway.cli(&["audit", "verify", "--file", file, "--key", &pem_text, "--json"]);
        let said: Value = serde_json::from_str(&got.out).unwrap_or_else(|e| panic!("{e}: {got:?}"));
        (got.code, said, got.err)
    };
    let forged = forgeries(&export);
    let mut files = vec![file.display().to_string()];
    files.extend(forged.iter().enumerate().map(|(n, f)| gateway.file(&format!("forged-{n}"), &f.text)));
    let theirs = second_verifier(&pem, &files);
    let (code, good, _) = verify(&files[0]);
    assert_eq!((code, &good["verified"], theirs[0].0), (0, &json!(true), 0), "{good}");
    assert_eq!(theirs[0].1, format!("verified {}", good["records"]));
    for (n, forgery) in forged.iter().enumerate() {
        let (code, said, err) = verify(&files[n + 1]);
        let about = format!("{}: {said} {err}; {:?}", forgery.what, theirs[n + 1]);
        assert_eq!((code, &said["verified"], theirs[n + 1].0), (4, &json!(false), 4), "{about}");
        let seq = said["first_bad"]["seq"].as_u64().unwrap();
        assert_eq!(theirs[n + 1].1, format!("first bad {seq}"), "{about}");
        assert!((forgery.seq..=forgery.seq + 1).contains(&seq), "{about}");
        assert!(err.contains(&seq.to_string()), "the person is told where: {about}");
    }
    eprintln!("{} forgeries of {} records", forged.len(), good["records"]);
}

#[test]
fn the_ledger_verifies_online_and_heads_are_kept_outside_the_database() {
    let (gateway, _stub) = run();
    let said = gateway.does(&["audit", "verify"]);
    assert_eq!((&said["verified"], &said["first_bad"]), (&json!(true), &Value::Null));
    assert!(said["records"].as_u64().unwrap() > 10 && said["edges"].as_u64().unwrap() >= 4, "{said}");
    let file = gateway.data().join("checkpoints.txt");
    let written = until("a checkpoint of what there is", Duration::from_secs(20), || {
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains(&format!("\n{}\n", gateway.does(&["audit", "verify"])["records"])).then_some(text)
    });
    assert!(written.contains("exeat/main\n"), "{written}");
    gateway.is_well();
}
