//! A server over https: vouched for by a private CA that the user names, and by nobody else.

use std::process::Command;

use serde_json::json;

use crate::exeat::{command, ran};
use crate::server::{Reply, Seen, Server, Vouched};

const ID: &str = "0197f3a0-0000-7000-8000-000000000001";

#[test]
fn a_server_over_https_is_trusted_if_the_named_ca_vouches_for_it() {
    let (vouched, other) = (Vouched::new(), Vouched::new());
    let server = Server::secured(&vouched, |r: &Seen| match r.line.as_str() {
        "POST /api/v1/tasks" => Reply::Json(201, json!({"task_id": ID, "status": "running"})),
        l if l.ends_with("/leases") => {
            Reply::Json(403, json!({"code": "role_missing", "detail": "not yours"}))
        }
        _ => Reply::Json(200, json!({"items": [], "next_cursor": null})),
    });
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ca, strange) = (file("ca.pem", &vouched.ca), file("other.pem", &other.ca));
    let line = ["delegate", "agent:a", "hi"];
    let with = |flags: &[&str]| command(&server.url, &[&line[..], flags].concat());

    let got = ran(&mut with(&["--ca", &ca]));
    assert_eq!((got.code, got.out.as_str()), (0, format!("{ID}\n").as_str()), "{}", got.err);
    assert_eq!(server.seen("POST")[0].header("authorization"), "Bearer exk_test_secret");
    let got = ran(with(&[]).env("EXEAT_CA", &ca));
    assert_eq!(got.code, 0, "{}", got.err);
    let got = ran(&mut command(&server.url, &["worker", "--role", "r", "--ca", &ca, "--", "cat"]));
    assert_eq!(got.code, 3);
    assert!(got.err.contains("error: role_missing: not yours"), "{}", got.err);

    let asked = server.seen("").len();
    let refused = |c: &mut Command, code: i32, says: &str| {
        let got = ran(c);
        assert_eq!((got.code, got.out.as_str()), (code, ""), "{}", got.err);
        assert!(got.err.contains(says) && got.err.contains("--ca"), "{}", got.err);
    };
    refused(&mut with(&["--ca", &strange]), 3, "unreachable");
    refused(&mut with(&[]), 3, "unreachable");
    refused(&mut with(&["--ca", "/none"]), 2, "isn't a CA");
    refused(&mut with(&["--ca", &file("empty.pem", "nothing")]), 2, "no certificate");
    assert_eq!(server.seen("").len(), asked, "not a byte of it to whom nobody vouches for");
}
