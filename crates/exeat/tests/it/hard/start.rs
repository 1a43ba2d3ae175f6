//! What starts and what doesn't: by name, in one line, with what to do; and how it stops.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::rig::{Gateway, Stub, until};
use crate::exeat::{Ran, ran};

/// Refused with this code: exit 3, nothing on stdout, one line that says what to do.
fn is_refused(got: &Ran, code: &str) {
    assert_eq!((got.code, got.out.as_str()), (3, ""), "{got:?}");
    let lines: Vec<&str> = got.err.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!(lines.len(), 1, "{got:?}");
    assert!(lines[0].starts_with(&format!("error: {code}: ")), "{got:?}");
    assert!(lines[0].contains("; "), "what to do: {got:?}");
    assert!(!got.err.contains("panicked"), "{got:?}");
}

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_second_server_on_a_folder_is_refused_and_the_first_goes_on() {
    let gateway = Gateway::started(&[]);
    let before = names(&gateway.data());
    is_refused(&ran(&mut gateway.serve(&["--listen", "127.0.0.1:0"])), "store_locked");
    assert_eq!(names(&gateway.data()), before);
    gateway.is_well();
    // Another folder, but the same address.
    let other = Gateway::new(&[]);
    is_refused(&ran(&mut other.serve(&["--listen", &gateway.at.to_string()])), "listener_unusable");
}

#[test]
fn without_its_keys_or_with_others_a_store_in_use_is_not_opened_and_nothing_is_made() {
    let mut gateway = Gateway::started(&[]);
    assert!(gateway.stop().success());
    let keys = gateway.data().join("keys");
    let serve = || ran(&mut gateway.serve(&["--listen", "127.0.0.1:0"]));
    for name in ["root-1", "ledger-1"] {
        let (file, aside) = (keys.join(name), gateway.data().join("aside"));
        let admin = gateway.admin();
        std::fs::rename(&file, &aside).unwrap();
        is_refused(&serve(), "key_missing");
        assert!(!file.exists() && gateway.admin() == admin);
        std::fs::write(&file, b"short").unwrap();
        is_refused(&serve(), "key_unusable");
        std::fs::rename(&aside, &file).unwrap();
    }
    let whole = gateway.data().join("keys-aside");
    std::fs::rename(&keys, &whole).unwrap();
    is_refused(&serve(), "key_missing");
    assert!(!keys.join("root-1").exists(), "never made anew");
    if keys.exists() {
        std::fs::remove_dir_all(&keys).unwrap();
    }
    let mut stranger = Gateway::started(&[]);
    assert!(stranger.stop().success());
    std::fs::create_dir(&keys).unwrap();
    for name in ["root-1", "ledger-1"] {
        std::fs::copy(stranger.data().join("keys").join(name), keys.join(name)).unwrap();
    }
    is_refused(&serve(), "other_root_key");
    std::fs::copy(whole.join("root-1"), keys.join("root-1")).unwrap();
    is_refused(&serve(), "other_ledger_key");
    std::fs::remove_dir_all(&keys).unwrap();
    std::fs::rename(&whole, &keys).unwrap();
    gateway.start();
    gateway.is_well();
    assert_eq!(gateway.does(&["audit", "verify"])["verified"], true);
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused_and_one_of_its_group_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut gateway = Gateway::new(&[]);
    std::fs::create_dir_all(gateway.data()).unwrap();
    let set = |mode| std::fs::set_permissions(gateway.data(), std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o757);
    is_refused(&ran(&mut gateway.serve(&["--listen", "127.0.0.1:0"])), "data_exposed");
    assert!(names(&gateway.data()).is_empty());
    set(0o755);
    gateway.start();
    for name in ["exeat.db", "exeat.db-wal", "exeat.db-shm", "exeat.lock", "admin.key", "approver.key"] {
        let mode = std::fs::metadata(gateway.data().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_listener_on_every_address_needs_the_url_that_agents_are_told() {
    for at in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let gateway = Gateway::new(&[]);
        let got = ran(&mut gateway.serve(&["--listen", at]));
        is_refused(&got, "bad_config");
        assert!(got.err.contains("public_url") && got.err.contains("EXEAT_SERVER_PUBLIC_URL"), "{got:?}");
        assert!(!gateway.data().join("exeat.db").exists());
    }
}

/// The file, the environment, flags; the code, and what is named.
type WrongConfig = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
    &'static str,
    &'static str,
);

#[test]
fn a_configuration_that_is_wrong_or_unsafe_starts_nothing() {
    let cases: [WrongConfig; 14] = [
        ("nope = 1\n", &[], &[], "bad_config", "nope"),
        ("[hop]\ndeadlines = \"1h\"\n", &[], &[], "bad_config", "hop.deadlines"),
        ("[hop]\ndeadline = 5\n", &[], &[], "bad_config", "hop.deadline"),
        ("[hop]\ndeadline = \"soon\"\n", &[], &[], "bad_config", "duration"),
        ("[hop\n", &[], &[], "bad_config", ":1"),
        ("[store]\nurl = \"postgres://h/d\"\n", &[], &[], "bad_config", "store.url"),
        ("[bus]\nurl = \"redis://h\"\n", &[], &[], "bad_config", "bus.url"),
        ("[labels]\ndefault = \"secret\"\n", &[], &[], "bad_config", "labels.default"),
        ("[egress]\nallow_cidrs = [\"here\"]\n", &[], &[], "bad_config", "egress.allow_cidrs"),
        ("[credentials]\ngrants = [\"env\"]\n", &[], &[], "bad_config", "credentials.grants"),
        ("a2a_egress_enabled = true\n", &[], &[], "unsafe_config", "coordinator_enabled"),
        ("single_operator = true\n", &[], &["--listen", "0.0.0.0:0"], "unsafe_config", "single_operator"),
        (
            "",
            &[("EXEAT_SINGLE_OPERATOR", "true")],
            &["--listen", "0.0.0.0:0"],
            "unsafe_config",
            "single_operator",
        ),
        ("", &[("EXEAT_BUS_ENABLED", "maybe")], &[], "bad_config", "EXEAT_BUS_ENABLED"),
    ];
    let gateway = Gateway::new(&[]);
    for (text, env, flags, code, named) in cases {
        let file = gateway.file("exeat.toml", text);
        let flags = if flags.is_empty() { &["--listen", "127.0.0.1:0"] } else { flags };
        let mut command = gateway.serve(&[&["--config", &file], flags].concat());
        let got = ran(command.envs(env.iter().copied()));
        is_refused(&got, code);
        assert!(got.err.contains(named), "{text}: {}", got.err);
        assert!(
            !gateway.data().join("keys").exists() && !gateway.data().join("admin.key").exists(),
            "{text}"
        );
    }
    let got = ran(&mut gateway.serve(&["--config", "/no/such/file"]));
    is_refused(&got, "bad_config");
}

#[test]
fn a_first_start_for_others_to_reach_lets_no_one_sign_alone() {
    let mut gateway = Gateway::new(&[("EXEAT_SERVER_PUBLIC_URL", "https://exeat.example")]);
    gateway.at.set_ip([0, 0, 0, 0].into());
    gateway.start();
    let said = gateway.said();
    gateway.at.set_ip([127, 0, 0, 1].into());
    let written = std::fs::read_to_string(gateway.data().join("exeat.toml")).unwrap();
    assert!(!written.lines().any(|l| l.starts_with("single_operator")), "{written}");
    assert!(!said.contains("single_operator is on"), "{said}");
    assert!(!written.lines().any(|l| l.starts_with("allow_cidrs") || l.starts_with("grants")), "{written}");
    let stub = "http://127.0.0.1:9";
    gateway.does(&["agent", "add", "a", "--url", stub, "--plaintext", "--ceiling", "internal"]);
    let got = gateway.cli(&["agent", "sign", "a"]);
    assert_eq!(got.code, 3, "{got:?}");
    assert!(got.err.contains("four_eyes_required"), "{got:?}");
    let export = gateway.export().0;
    assert!(!export.contains("single_operator"));
    gateway.is_well();
}

#[test]
fn a_first_start_on_this_machine_says_that_one_person_signs_alone() {
    let gateway = Gateway::started(&[]);
    let written = std::fs::read_to_string(gateway.data().join("exeat.toml")).unwrap();
    assert!(written.lines().any(|l| l.starts_with("single_operator = true")), "{written}");
    assert!(gateway.said().contains("single_operator is on"));
    assert!(gateway.export().0.contains("single_operator"));
    for secret in ["admin.key", "approver.key", "keys/root-1", "keys/ledger-1"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(gateway.data().join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{secret}");
    }
}

#[test]
fn told_to_stop_it_stops_and_a_parked_task_goes_on_when_it_is_back() {
    let stub = Stub::start(&[]);
    let mut gateway = Gateway::with_agent(&[], "there", &stub.url, &[]);
    let parked = gateway.begin(&json!({"to": "agent:there", "input": "!later 3s; push none\nhello"}));
    until("a parked hop", Duration::from_secs(20), || {
        let task = gateway.task(&parked);
        (task["steps"][0]["hops"][0]["state"] == "working").then_some(())
    });
    // Somebody waits for the task, and a worker for work: neither may hold the stop up.
    let wait = gateway
        .request("GET", &format!("/api/v1/tasks/{parked}"))
        .key(&gateway.admin())
        .header("prefer", "wait=60");
    let waiting = std::thread::spawn(move || wait.send().map(|a| a.status));
    let worker = gateway.worker_key(&["idle"]);
    let lease = json!({"role": "idle", "worker": "w", "wait_s": 30});
    let lease = gateway.request("POST", "/api/v1/leases").key(&worker).json(&lease);
    let leasing = std::thread::spawn(move || lease.send().map(|a| a.status));
    let watch = gateway.request("GET", &format!("/api/v1/tasks/{parked}/events")).key(&gateway.admin());
    let watching = std::thread::spawn(move || watch.send().map(|a| a.status).ok());
    // Nor those who never come to an end with what they ask.
    let half = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 9\r\n\r\n{{",
        gateway.admin()
    );
    let _stalled = [b"GET /healthz HT".to_vec(), half.into_bytes()].map(|bytes| gateway.stalled(&bytes));
    let started = super::rig::clock();
    assert!(gateway.stop().success(), "{}", gateway.said());
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    for answer in [waiting, leasing] {
        // Answered, or cut off before it was heard; never left hanging.
        assert!(matches!(answer.join().unwrap(), Ok(200 | 503) | Err(_)));
    }
    drop(watching.join());
    gateway.start();
    let task = gateway.ended(&parked);
    assert_eq!((&task["status"], &task["output"]["text"]), (&json!("completed"), &json!("hello")));
    assert_eq!(stub.seen()["message_ids"].as_object().unwrap().len(), 1);
    gateway.is_well();
}

#[test]
fn an_older_copy_of_the_record_is_not_served_and_shows_against_a_checkpoint_held() {
    let mut gateway = Gateway::started(&[]);
    gateway.worker_key(&["one"]);
    assert!(gateway.stop().success());
    let (record, copy) = (gateway.data().join("exeat.db"), gateway.data().join("copy.db"));
    std::fs::copy(&record, &copy).unwrap();
    gateway.start();
    gateway.worker_key(&["two"]);
    assert!(gateway.stop().success());
    let held = gateway.data().join("checkpoints.txt");
    let aside = gateway.data().join("held.txt");
    std::fs::rename(gateway.data().join("exeat.db"), gateway.data().join("newer.db")).unwrap();
    std::fs::rename(&copy, &record).unwrap();
    let refused = ran(&mut gateway.serve(&["--listen", "127.0.0.1:0"]));
    is_refused(&refused, "record_older");

    // Whoever takes the older one on purpose moves the file away; the copy of it that somebody holds still tells.
    std::fs::rename(&held, &aside).unwrap();
    gateway.start();
    let (_, export, pem) = gateway.export();
    let paths = [&export, &pem, &aside].map(|p| p.display().to_string());
    let [export, pem, held] = &paths;
    let alone = gateway.cli(&["audit", "verify", "--file", export, "--key", pem]);
    assert_eq!(alone.code, 0, "by itself nothing shows: {alone:?}");
    let against = gateway.cli(&["audit", "verify", "--file", export, "--key", pem, "--held", held, "--json"]);
    assert_eq!(against.code, 4, "{against:?}");
    assert!(against.out.contains("\"cut_tail\""), "{against:?}");
    let python = std::env::var("EXEAT_INTEROP_PYTHON").expect("run the tests by `make test`");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verify.py");
    let mut second = std::process::Command::new(python);
    let second =
        second.arg(script).args([export, pem, held]).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert_eq!(second.status.code(), Some(4), "{second:?}");
}

#[test]
fn a_folder_whose_record_is_gone_is_not_started_afresh_and_its_keys_stay() {
    let mut gateway = Gateway::started(&[]);
    gateway.worker_key(&["one"]);
    assert!(gateway.stop().success());
    let admin = gateway.admin();
    for name in ["exeat.db", "exeat.db-wal", "exeat.db-shm"] {
        let _ = std::fs::remove_file(gateway.data().join(name));
    }
    is_refused(&ran(&mut gateway.serve(&["--listen", "127.0.0.1:0"])), "record_older");
    assert_eq!(gateway.admin(), admin);
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let stub = Stub::start(&[]);
    let mut gateway = Gateway::new(&[]);
    gateway.start_unheard();
    gateway.agent("there", &stub.url, &[]);
    gateway.does(&["egress", "on", "--reason", "a test"]);
    for _ in 0..3 {
        let id = gateway.begin(&json!({"to": "agent:there", "input": "hello"}));
        assert_eq!(gateway.ended(&id)["status"], "completed");
    }
}
