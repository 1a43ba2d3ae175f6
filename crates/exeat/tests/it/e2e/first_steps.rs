//! What the README and `--help` show, as printed, on an empty folder.

use std::process::Command;

use crate::e2e::rig::{Gateway, Stub};
use crate::exeat::{Ran, ran};

/// A line as a person types it beside the data folder: nothing names a server's key.
fn typed(gateway: &Gateway, line: &[&str]) -> Ran {
    let mut command: Command = gateway.command("", line);
    ran(command.env_remove("EXEAT_KEY"))
}

#[test]
fn the_printed_lines_work_on_an_empty_folder() {
    let (gateway, stub) = (Gateway::start(&[]), Stub::start(&[]));
    let add = ["agent", "add", "auditor", "--url", &stub.url, "--plaintext", "--allow-cidr", "127.0.0.0/8"];
    typed(&gateway, &[&add[..], &["--ceiling", "internal"]].concat()).ok();
    typed(&gateway, &["agent", "sign", "auditor"]).ok();
    typed(&gateway, &["egress", "on", "--reason", "first try"]).ok();
    let text = "Review this invoice: 3 × 12.50 = 37.50";
    let ran = typed(&gateway, &["delegate", "agent:auditor", text, "--wait"]).ok();
    assert_eq!(ran.out, format!("{text}\n"));
    let listed = typed(&gateway, &["task", "list"]).ok().out;
    assert!(listed.contains("completed"), "{listed}");
    let verified = typed(&gateway, &["audit", "verify"]).ok();
    assert!(verified.out.contains("verified"), "{verified:?}");
    assert_eq!(
        gateway.edges(),
        ["a2a_egress coordinator -> agent:auditor", "a2a_ingress agent:auditor -> coordinator"]
    );
}

#[test]
fn a_ledger_that_was_exported_is_verified_without_the_server() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    gateway.admin(&["delegate", "agent:auditor", "hello", "--wait"]).ok();
    let export = gateway.admin(&["audit", "export"]).ok().out;
    let key = gateway.file("pub.pem", &gateway.admin(&["audit", "key"]).ok().out);
    let ledger = gateway.file("ledger.jsonl", &export);
    gateway.admin(&["audit", "verify", "--file", &ledger, "--key", &key]).ok();
    let python = std::env::var_os("EXEAT_INTEROP_PYTHON").expect("run the tests by `make test`");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let other = ran(Command::new(python).args([script, &ledger, &key]));
    assert_eq!(other.code, 0, "{other:?}");
    let altered = gateway.file("altered.jsonl", &export.replacen("\"a2a_egress\"", "\"a2a_ingress\"", 1));
    let bad = gateway.admin(&["audit", "verify", "--file", &altered, "--key", &key]);
    assert_eq!(bad.code, 4, "{bad:?}");
}
