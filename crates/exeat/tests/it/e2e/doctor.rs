//! What an operator is told about a gateway, well and unwell.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::e2e::rig::{Gateway, Stub, http};
use crate::exeat::Ran;

fn check(told: &Value, name: &str) -> (String, String) {
    let found = told["checks"].as_array().unwrap().iter().find(|c| c["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no check {name} in {told:#}"));
    let word = |m: &str| found[m].as_str().unwrap().to_owned();
    (word("status"), word("next"))
}

fn doctor(gateway: &Gateway, flags: &[&str]) -> (i32, Value) {
    let ran: Ran = gateway.admin(&[&["doctor", "--json"], flags].concat());
    (ran.code, ran.json())
}

#[test]
fn a_gateway_that_is_well_is_told_so_and_reached_at_its_own_address() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    gateway.delegate(&["hello"]);
    let before = stub.seen()["accepts"].clone();
    let (code, told) = doctor(&gateway, &["--reach"]);
    assert_eq!((code, &told["ok"]), (0, &Value::Bool(true)), "{told:#}");
    for name in ["server", "key", "store", "disk", "sweep", "keys", "clock", "egress", "workers", "agents"] {
        assert_eq!(check(&told, name).0, "ok", "{name} in {told:#}");
    }
    for name in ["delay", "sends", "dead_letters", "callbacks", "files", "reach"] {
        assert_eq!(check(&told, name).0, "ok", "{name} in {told:#}");
    }
    assert_eq!(stub.seen()["accepts"], before, "nobody but our own server was contacted");
    let shown = gateway.admin(&["doctor"]).ok().out;
    assert!(shown.contains("CHECK") && shown.contains("checkpoints"), "{shown}");
}

#[test]
fn what_stands_in_the_way_is_named_with_what_to_do() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::start(&[]);
    gateway.register("auditor", &stub.url, &[]);
    gateway.admin(&["agent", "set", "auditor", "--region", "eu"]).ok();
    let admin = gateway.dir.path().join("exeat-data/admin.key");
    let admin_key = gateway.admin_key();
    std::fs::set_permissions(&admin, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, told) = doctor(&gateway, &[]);
    assert_eq!((code, &told["ok"]), (1, &Value::Bool(false)), "{told:#}");
    assert_eq!(check(&told, "egress"), ("warn".into(), "exeat egress on --reason …".into()));
    assert_eq!(check(&told, "agents"), ("warn".into(), "exeat agent sign auditor".into()));
    let (status, next) = check(&told, "files");
    assert!(status == "fail" && next.contains("chmod go= exeat-data/admin.key"), "{next}");
    // Metrics are there for who has a key.
    assert_eq!(http(&gateway.url, "GET", "/metrics", "", &[], "").status, 401);
    let metrics = http(&gateway.url, "GET", "/metrics", &admin_key, &[], "");
    assert!(metrics.body.as_str().unwrap().contains("exeat_commit_batch_sets_bucket"), "{metrics:?}");
}

#[test]
fn a_server_that_isnt_there_and_a_key_that_isnt_one_fail() {
    let gateway = Gateway::start(&[]);
    let bad = crate::exeat::exeat(&gateway.url, &["doctor", "--json"]);
    assert_eq!((bad.code, check(&bad.json(), "key").0.as_str()), (1, "fail"), "{bad:?}");
    let gone = crate::exeat::exeat("http://127.0.0.1:1", &["doctor", "--json"]);
    assert_eq!((gone.code, check(&gone.json(), "server").0.as_str()), (1, "fail"), "{gone:?}");
}

#[test]
fn with_less_room_than_is_kept_nothing_new_is_started() {
    let stub = Stub::start(&[]);
    // More than any disk has: all that is left is kept.
    let gateway = Gateway::to(&stub.url, &[("EXEAT_STORE_RESERVE_BYTES", "9000000000000000000")], &[]);
    gateway.admin(&["delegate", "agent:auditor", "hello", "--json"]).refused(3, "disk_full");
    gateway.admin(&["egress", "halt", "--reason", "while there is no room"]).ok();
    let (code, told) = doctor(&gateway, &[]);
    assert_eq!((code, check(&told, "disk").0.as_str()), (1, "fail"), "{told:#}");
}
