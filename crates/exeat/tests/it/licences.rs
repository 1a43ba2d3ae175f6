//! What the type system can't say about who may do what, held by looking at the sources.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Files below `crates/*/src` that hold one of these texts, relative to `crates`.
fn holding(texts: &[&str]) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for room in std::fs::read_dir(&crates).unwrap().map(Result::unwrap) {
        sources(&room.path().join("src"), &mut files);
    }
    let held = files.into_iter().filter(|f| {
        let text = std::fs::read_to_string(f).unwrap();
        texts.iter().any(|t| text.contains(t))
    });
    held.map(|f| f.strip_prefix(&crates).unwrap().display().to_string()).collect()
}

fn all_within(found: &[String], rooms: &[&str]) {
    assert!(!found.is_empty(), "nothing was found: the text looked for has changed");
    for file in found {
        assert!(rooms.iter().any(|r| file.starts_with(r)), "{file} isn't licensed for that");
    }
}

#[test]
fn only_a_store_hands_out_leases_and_claims() {
    let defined = ["core/src/gate/exeat.rs", "core/src/walk/batch.rs"];
    all_within(
        &holding(&["::receipted(", ".receipt()"]),
        &[defined.as_slice(), &["store/", "testkit/"]].concat(),
    );
}

#[test]
fn permits_are_minted_in_the_walks_and_nowhere_else() {
    // An operator's probe is a contact of its own kind, under a claim.
    all_within(
        &holding(&["exeat::{Address, Claim, LookFor, cancel, look}", "gate::exeat::pass"]),
        &["core/src/walk"],
    );
}

#[test]
fn only_egress_and_our_own_client_open_connections() {
    // The command's client speaks to our own API; the stub agent plays somebody else.
    let rooms = ["egress/src/connect", "exeat/src/client", "exeat/src/stub_agent", "egress/src/rig.rs"];
    all_within(&holding(&["TcpStream::connect("]), &rooms);
}

#[test]
fn every_line_of_sql_is_the_stores() {
    all_within(&holding(&["INSERT INTO ", "SELECT ", "sqlx::query"]), &["store/"]);
}
