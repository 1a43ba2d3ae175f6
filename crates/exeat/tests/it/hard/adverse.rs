//! The machine is against us: no room on the disk, a folder that can't be written, a clock that goes back, a process that
//! sleeps through its lease. Each is refused by name or told, nothing is lost, and it goes on when the cause is gone.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::rig::{Gateway, Stub, records, until};

/// Runs a script of the shell, and then our command, in a mount namespace of its own.
fn apart(command: &Command, script: &str, with: &[&Path]) -> Command {
    let mut apart = Command::new("unshare");
    if !rustix::process::getuid().is_root() {
        apart.arg("--map-root-user");
    }
    // The script's own arguments come first; what is left is the command.
    let shifted = format!("set -e; {script}; shift {}; exec \"$@\"", with.len());
    apart.args(["--mount", "sh", "-c", &shifted, "sh"]).args(with);
    apart.arg(command.get_program()).args(command.get_args()).env_clear();
    apart.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    apart
}

/// Takes all the room that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for block in [1 << 16, 1 << 10, 1] {
        while file.write_all(&vec![0; block]).is_ok() {}
    }
}

#[test]
fn a_disk_that_runs_full_refuses_by_name_loses_nothing_and_goes_on_with_room() {
    let stub = Stub::start(&[]);
    let mut gateway = Gateway::with_agent(&[("EXEAT_STORE_RESERVE_BYTES", "0")], "auditor", &stub.url, &[]);
    assert!(gateway.stop().success());
    let (data, small) = (gateway.data(), tempfile::tempdir().unwrap());
    let full =
        "mount -t tmpfs -o size=8m,mode=700 none \"$1\"; cp -a \"$2/.\" \"$1/\"; mount --bind \"$1\" \"$2\"";
    let pid = gateway.start_by(|serve| apart(serve, full, &[small.path(), &data]));
    let ballast = PathBuf::from(format!("/proc/{pid}/root{}", data.join("ballast").display()));
    let parked = gateway.begin(&json!({"to": "agent:auditor", "input": "!later 1s; push none\nbefore"}));
    fill(&ballast);
    let refused = until("a refusal", Duration::from_secs(60), || {
        let answer = gateway.post("/tasks", &json!({"to": "agent:auditor", "input": "during"}));
        (answer.status != 201).then_some(answer)
    });
    assert_eq!((refused.status, refused.json()["code"].clone()), (503, json!("disk_full")));
    assert!(gateway.cli(&["audit", "verify"]).code == 0, "what is there can be read");
    std::fs::remove_file(&ballast).unwrap();
    let done = gateway.ended(&parked);
    assert_eq!(done["status"], "completed", "{done:#}");
    let after = gateway.begin(&json!({"to": "agent:auditor", "input": "after"}));
    assert_eq!(gateway.ended(&after)["output"]["text"], "after");
    for task in gateway.all("/tasks") {
        assert_eq!(gateway.ended(task["task_id"].as_str().unwrap())["status"], "completed");
    }
    assert_eq!(gateway.cli(&["audit", "verify"]).code, 0);
    let sent = stub.seen()["message_ids"].as_object().unwrap().values().all(|n| *n == 1);
    assert!(sent, "nothing is sent twice: {}", stub.seen());
}

#[test]
fn a_folder_that_is_read_only_is_refused_by_name_and_serves_again_when_it_is_not() {
    let mut gateway = Gateway::started(&[]);
    let key = gateway.worker_key(&["writer"]);
    assert!(gateway.stop().success());
    let data = gateway.data();
    let ro = "mount --bind \"$1\" \"$1\"; mount -o remount,bind,ro \"$1\"";
    let got = crate::exeat::ran(&mut apart(&gateway.serve(&["--listen", "127.0.0.1:0"]), ro, &[&data]));
    assert_eq!(got.code, 3, "{} {}", got.out, got.err);
    assert!(got.err.contains("data_unusable:") || got.err.contains("store_unavailable:"), "{}", got.err);
    assert!(!got.err.contains("panicked"), "{}", got.err);
    gateway.start();
    let _worker = gateway.worker(&key, "writer", &["--text"], &["tr", "a-z", "A-Z"]);
    let task = gateway.begin(&json!({"to": "role:writer", "input": "on"}));
    assert_eq!(gateway.ended(&task)["output"]["text"], "ON");
}

/// The same command, with a clock that is this much off.
fn by_the_clock(serve: &Command, off: &str) -> Command {
    let mut command = Command::new("faketime");
    // It stays as the parent; the server is to end with it.
    command.args(["--exclude-monotonic", "-f", off, "setpriv", "--pdeathsig", "KILL"]);
    command.arg(serve.get_program()).args(serve.get_args());
    command.env_clear().envs(serve.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command
}

#[test]
fn a_clock_that_was_set_back_is_refused_by_name_and_a_small_step_is_waited_for() {
    let stub = Stub::start(&[]);
    let mut gateway = Gateway::with_agent(&[], "auditor", &stub.url, &[]);
    let parked = gateway.begin(&json!({"to": "agent:auditor", "input": "!later 2s; push none\nbefore"}));
    until("a hop that is parked", Duration::from_secs(30), || {
        (gateway.task(&parked)["steps"][0]["hops"][0]["state"] == "working").then_some(())
    });
    assert!(gateway.stop().success());
    let got = crate::exeat::ran(&mut by_the_clock(&gateway.serve(&["--listen", "127.0.0.1:0"]), "-1h"));
    assert_eq!(got.code, 3, "{} {}", got.out, got.err);
    assert!(got.err.contains("clock_behind:"), "{}", got.err);
    // Four minutes: what is due comes all the same, and no time in the ledger goes back.
    gateway.start_by(|serve| by_the_clock(serve, "-4m"));
    let after = gateway.begin(&json!({"to": "agent:auditor", "input": "!later 1s; push none\nafter"}));
    assert_eq!(gateway.ended(&after)["status"], "completed");
    assert_eq!(gateway.ended(&parked)["status"], "completed");
    let times: Vec<String> =
        records(&gateway.export().0).iter().map(|r| r["at"].as_str().unwrap().to_owned()).collect();
    assert!(times.is_sorted(), "{times:#?}");
    assert_eq!(gateway.cli(&["audit", "verify"]).code, 0);
    gateway.is_well();
}

/// Reads the head of a request, and gives its first line.
fn head(socket: &TcpStream) -> String {
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let _ = lines.find(String::is_empty);
    first
}

#[test]
fn a_server_that_slept_through_its_lease_sends_nothing_when_it_wakes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let once = [("EXEAT_HOP_SEND_ATTEMPTS", "1"), ("EXEAT_HOP_SEND_TIMEOUT", "2s")];
    let gateway = Gateway::with_agent(&once, "sleeper", &url, &[]);
    let task = gateway.begin(&json!({"to": "agent:sleeper", "input": "too late"}));
    // Under the attempt's lease it asks for the card. It gets it when that lease is over.
    let (mut asked, _) = listener.accept().unwrap();
    let first = head(&asked);
    assert!(first.starts_with("GET "), "{first}");
    let lease = gateway.task(&task)["steps"][0]["hops"][0]["due_at"].as_str().unwrap().to_owned();
    gateway.signal(Signal::STOP);
    until("the end of the lease", Duration::from_secs(30), || (now() > lease).then_some(()));
    let card = json!({
        "name": "sleeper", "description": "d", "version": "1", "capabilities": {}, "skills": [],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    });
    let card = card.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    write!(asked, "{head}content-length: {}\r\n\r\n{card}", card.len()).unwrap();
    gateway.signal(Signal::CONT);
    let ended = gateway.ended(&task);
    assert_eq!(ended["status"], "failed", "{ended:#}");
    // Whatever else it asked, it sent nothing.
    listener.set_nonblocking(true).unwrap();
    while let Ok((mut socket, _)) = listener.accept() {
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut first = [0; 4];
        let n = socket.read(&mut first).unwrap_or(0);
        assert_ne!(&first[..n], b"POST", "a message left after its lease was over");
    }
}

/// The wall clock as times are written.
fn now() -> String {
    let out = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%6NZ"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_command_of_three_lease_lengths_keeps_its_lease() {
    let gateway = Gateway::started(&[("EXEAT_WORK_LEASE", "1s")]);
    let key = gateway.worker_key(&["slow"]);
    let _worker = gateway.worker(&key, "slow", &["--text"], &["sh", "-c", "cat; sleep 3.2"]);
    let task = gateway.ended(&gateway.begin(&json!({"to": "role:slow", "input": "slowly"})));
    assert_eq!(task["output"]["text"], "slowly", "{task:#}");
    assert_eq!(task["steps"][0]["deliveries"], 1, "{task:#}");
}
