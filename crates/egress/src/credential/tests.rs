use std::collections::HashMap;
use std::fs;

use super::*;
use crate::exchange::{Connector, Exchanged, NotSent, Request};
use crate::rig::{LATER, Peer, entry, ok, open_connector, origin};

fn org(name: &str) -> OrgName {
    name.parse().unwrap()
}
fn handle(text: &str) -> Handle {
    Handle::try_from(text.to_owned()).unwrap()
}
fn bearer(from: &str) -> Credential {
    Credential::Bearer { from: handle(from) }
}
fn header(name: &str, from: &str) -> Credential {
    Credential::Header { from: handle(from), header: name.to_owned().try_into().unwrap() }
}
fn grant(org_name: &str, handles: &str) -> Grant {
    Grant { org: org(org_name), handles: handles.parse().unwrap(), towards: Towards::Registered }
}
fn credentials(grants: Vec<Grant>, variables: &[(&str, &str)], folder: &std::path::Path) -> Credentials {
    let table: HashMap<String, OsString> =
        variables.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v))).collect();
    Credentials::new(grants, Arc::new(move |name| table.get(name).cloned()), folder.to_owned())
}
impl Credentials {
    /// Towards the entry's own registered origin.
    async fn at(&self, org: &OrgName, c: &Credential, origin: &Origin) -> Result<Presented, Unavailable> {
        self.present(org, c, origin, origin).await
    }
}
fn peer_test() -> Origin {
    origin("https://peer.test/")
}
async fn why(c: &Credentials, credential: &Credential) -> Why {
    c.at(&org("main"), credential, &peer_test()).await.unwrap_err().why
}

#[tokio::test]
async fn a_handle_resolves_only_where_the_platform_granted_it() {
    let one = |towards| Grant { org: org("main"), handles: "env:TOKEN".parse().unwrap(), towards };
    let nowhere = std::path::Path::new("/nonexistent");
    let variables = [("TOKEN", "tok-1"), ("OTHER", "x"), ("EXEAT_ROOT", "x"), ("exeat_root", "x")];
    let c = credentials(vec![one(Towards::Listed(vec![peer_test()]))], &variables, nowhere);
    assert!(c.at(&org("main"), &bearer("env:TOKEN"), &peer_test()).await.is_ok());
    assert_eq!(why(&c, &bearer("env:OTHER")).await, Why::NotGranted);
    let other_org = c.at(&org("two"), &bearer("env:TOKEN"), &peer_test()).await;
    assert_eq!(other_org.unwrap_err().why, Why::NotGranted);
    for elsewhere in ["https://peer.test:8443/", "http://peer.test/", "https://other.test/"] {
        let r = c.at(&org("main"), &bearer("env:TOKEN"), &origin(elsewhere)).await;
        assert_eq!(r.unwrap_err().why, Why::NotGranted, "{elsewhere}");
    }
    let every = credentials(vec![grant("main", "env:*")], &variables, nowhere);
    assert!(every.at(&org("main"), &bearer("env:OTHER"), &peer_test()).await.is_ok());
    assert_eq!(why(&every, &bearer("env:EXEAT_ROOT")).await, Why::OurOwn);
    assert_eq!(why(&every, &bearer("env:exeat_root")).await, Why::OurOwn);
    assert_eq!(why(&every, &bearer("file:token")).await, Why::NotGranted);
    let ours = credentials(vec![grant("main", "env:EXEAT_ROOT")], &variables, nowhere);
    assert_eq!(why(&ours, &bearer("env:EXEAT_ROOT")).await, Why::OurOwn);
}

/// O-AUTH-01, O-AUTH-05
#[tokio::test]
async fn what_is_missing_empty_or_unfit_is_no_credential_at_all() {
    let long = "x".repeat(LONGEST_SECRET + 1);
    let variables = [
        ("EMPTY", ""),
        ("CRLF", "abc\r\nX-Evil: 1"),
        ("LF", "abc\n"),
        ("NUL", "a\0b"),
        ("SPACE", " abc"),
        ("TWO", "a b"),
        ("WIDE", "t\u{f6}ken"),
        ("LONG", long.as_str()),
        ("TAB", "a\tb"),
    ];
    let c = credentials(vec![grant("main", "env:*")], &variables, std::path::Path::new("/nonexistent"));
    for (name, expected) in [
        ("env:MISSING", Why::NotFound),
        ("env:EMPTY", Why::Empty),
        ("env:CRLF", Why::BadCharacter),
        ("env:LF", Why::BadCharacter),
        ("env:NUL", Why::BadCharacter),
        ("env:SPACE", Why::BadCharacter),
        ("env:TWO", Why::BadCharacter),
        ("env:WIDE", Why::BadCharacter),
        ("env:TAB", Why::BadCharacter),
        ("env:LONG", Why::TooLong),
    ] {
        assert_eq!(why(&c, &bearer(name)).await, expected, "{name}");
    }
    assert!(c.at(&org("main"), &header("x-api-key", "env:TWO"), &peer_test()).await.is_ok());
}

#[tokio::test]
async fn files_lie_beneath_the_orgs_folder_without_links_and_are_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main");
    fs::create_dir_all(main.join("sub")).unwrap();
    fs::create_dir_all(folder.path().join("two")).unwrap();
    fs::write(main.join("token"), "first\n").unwrap();
    fs::write(main.join("sub/crlf"), "win\r\n").unwrap();
    fs::write(main.join("lines"), "a\nb\n").unwrap();
    fs::write(main.join("empty"), "\n").unwrap();
    fs::write(main.join("bytes"), [0xff, 0xfe]).unwrap();
    fs::write(main.join("long"), "x".repeat(LONGEST_SECRET + 1)).unwrap();
    fs::write(folder.path().join("two/token"), "theirs").unwrap();
    std::os::unix::fs::symlink(folder.path().join("two/token"), main.join("link")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("two"), main.join("linked")).unwrap();
    let c = credentials(vec![grant("main", "file:*")], &[], folder.path());
    let read = async |path: &str| {
        let p = c.at(&org("main"), &bearer(path), &peer_test()).await;
        p.map(|p| p.secret().expose_secret().to_owned()).map_err(|e| e.why)
    };
    assert_eq!(read("file:token").await, Ok("first".to_owned()));
    assert_eq!(read("file:sub/crlf").await, Ok("win".to_owned()));
    fs::write(main.join("token"), "second").unwrap();
    assert_eq!(read("file:token").await, Ok("second".to_owned()));
    for (path, expected) in [
        ("file:missing", Why::NotFound),
        ("file:sub", Why::NotFound),
        ("file:link", Why::NotFound),
        ("file:linked/token", Why::NotFound),
        ("file:lines", Why::BadCharacter),
        ("file:empty", Why::Empty),
        ("file:bytes", Why::NotText),
        ("file:long", Why::TooLong),
    ] {
        assert_eq!(read(path).await, Err(expected), "{path}");
    }
    for path in ["../two/token", "/etc/passwd", "sub/../token", "", "./token", "sub//crlf", "a\0b"] {
        assert!(file::read(&main, path).is_err(), "{path}");
    }
    let grants = vec![grant("one", "file:*")];
    fs::create_dir_all(folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), folder.path().join("one")).unwrap();
    fs::write(folder.path().join("elsewhere/token"), "x").unwrap();
    let c = credentials(grants, &[], folder.path());
    assert!(c.at(&org("one"), &bearer("file:token"), &peer_test()).await.is_err());
}

async fn send(c: &Connector, credential: Presented, peer: &Peer) -> Exchanged {
    let request = Request::post_json(peer.url().parse().unwrap(), bytes::Bytes::from_static(b"{}"));
    c.exchange(&entry(&peer.url()), request.credential(Some(credential)), LATER).await
}

/// O-AUTH-02
#[tokio::test]
async fn the_peer_gets_exactly_the_registered_header_and_none_other() {
    let variables = [("TOKEN", "tok-1"), ("KEY", "k-1")];
    let c = credentials(vec![grant("main", "env:*")], &variables, std::path::Path::new("/nonexistent"));
    for (credential, line, other) in [
        (bearer("env:TOKEN"), "\r\nauthorization: Bearer tok-1\r\n", "x-api-key"),
        (header("X-API-Key", "env:KEY"), "\r\nx-api-key: k-1\r\n", "authorization"),
    ] {
        let peer = Peer::saying(ok("{}"));
        let shown = c.at(&org("main"), &credential, &origin(&peer.url())).await.unwrap();
        assert!(matches!(send(&open_connector(), shown, &peer).await, Exchanged::Answered(_)));
        let request = peer.requests().remove(0);
        assert!(request.contains(line) && !request.contains(other), "{request}");
    }
}

#[tokio::test]
async fn a_credential_is_shown_to_its_own_origin_only() {
    let c =
        credentials(vec![grant("main", "env:*")], &[("T", "tok-1")], std::path::Path::new("/nonexistent"));
    let peer = Peer::saying(ok("{}"));
    let shown = c.at(&org("main"), &bearer("env:T"), &peer_test()).await.unwrap();
    let result = send(&open_connector(), shown, &peer).await;
    assert!(matches!(result, Exchanged::NotSent(NotSent::CredentialElsewhere(_))), "{result:?}");
    assert_eq!(peer.accepts(), 0);
}

/// O-AUTH-06
#[tokio::test]
async fn a_peer_that_echoes_its_headers_gives_no_secret_back() {
    let secret = "s3cr3t/+\"tok";
    let peer = Peer::new(|wire, request| {
        let line = request.lines().find(|l| l.starts_with("x-api-key")).unwrap_or_default();
        let value = line.split_once(": ").unwrap_or_default().1;
        let body = serde_json::json!({ "error": { "message": format!("bad key {value}") } }).to_string();
        let head = format!("HTTP/1.1 500 No\r\nX-Echo: {value}\r\nContent-Length: {}\r\n\r\n", body.len());
        drop(wire.write_all((head + &body).as_bytes()));
    });
    let c = credentials(vec![grant("main", "env:*")], &[("T", secret)], std::path::Path::new("/nonexistent"));
    let shown = c.at(&org("main"), &header("x-api-key", "env:T"), &origin(&peer.url())).await.unwrap();
    let Exchanged::Answered(a) = send(&open_connector(), shown, &peer).await else { panic!() };
    assert_eq!(&a.body[..], br#"{"error":{"message":"bad key [secret]"}}"#);
    assert_eq!(a.header("x-echo"), Some("[secret]"));
    assert_eq!(a.echoes.scrub_text(secret), "[secret]");
}

#[tokio::test]
async fn no_secret_shows_in_debug_or_in_errors() {
    let variables = [("T", "hush-hush"), ("BAD", "hush-hush\n")];
    let c = credentials(vec![grant("main", "env:*")], &variables, std::path::Path::new("/nonexistent"));
    let shown = c.at(&org("main"), &bearer("env:T"), &peer_test()).await.unwrap();
    let request = Request::get("https://peer.test/".parse().unwrap()).credential(Some(shown.clone()));
    let error = c.at(&org("main"), &bearer("env:BAD"), &peer_test()).await.unwrap_err();
    for text in [format!("{shown:?}"), format!("{request:?}"), format!("{error:?}"), error.to_string()] {
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(error.to_string().contains("env:BAD"));
}

#[tokio::test]
async fn an_origin_of_the_allow_list_gets_a_secret_only_where_the_grant_names_it() {
    let nowhere = std::path::Path::new("/nonexistent");
    let other = origin("https://other.test/");
    let registered = credentials(vec![grant("main", "env:*")], &[("T", "tok-1")], nowhere);
    let refused = registered.present(&org("main"), &bearer("env:T"), &peer_test(), &other).await;
    assert_eq!(refused.unwrap_err().why, Why::NotGranted);
    let towards = Towards::Listed(vec![other.clone()]);
    let listed = Grant { towards, ..grant("main", "env:*") };
    let named = credentials(vec![listed], &[("T", "tok-1")], nowhere);
    assert!(named.present(&org("main"), &bearer("env:T"), &peer_test(), &other).await.is_ok());
}

#[test]
fn grants_are_read_from_their_text() {
    assert_eq!("env:*".parse(), Ok(Handles::EveryEnv));
    assert_eq!("file:*".parse(), Ok(Handles::EveryFile));
    assert_eq!("env:A".parse(), Ok(Handles::One(handle("env:A"))));
    for bad in ["*", "env:", "vault:x", "file:../x", "env:A-B"] {
        assert!(bad.parse::<Handles>().is_err(), "{bad}");
    }
}
