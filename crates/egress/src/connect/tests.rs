//! The guarded connector as a whole, over real sockets: which targets are reached, and that a refused one is
//! met by no packet, neither a connection nor a question.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;
use crate::exchange::{Exchanged, NotSent, Request};
use crate::rig::{
    Identity, LATER, NameServer, Peer, Reply, addresses, bounds, closed_port, connector, entry, get, ok,
    open_connector, open_platform, table,
};
use crate::target::{Entry, Origins, Platform};

fn not_sent(e: Exchanged) -> NotSent {
    match e {
        Exchanged::NotSent(n) => n,
        other => panic!("{other:?}"),
    }
}
fn is_address_refused(e: Exchanged) -> bool {
    matches!(e, Exchanged::NotSent(NotSent::Connect(ConnectError::Address(_))))
}

/// O-SSRF-01, O-SSRF-02, O-SSRF-10, O-SSRF-11
#[tokio::test]
async fn refused_literals_are_met_by_no_connection() {
    let v4 = Peer::at("0.0.0.0:0", |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let v6 = Peer::at("[::]:0", |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    for host in [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.5",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "[0:0:0:0:0:ffff:7f00:1]",
        "[::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::a00:5]",
        "[2002:7f00:1::]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
    ] {
        for port in [v4.address.port(), v6.address.port()] {
            let url = format!("http://{host}:{port}/");
            let bare = Entry { networks: vec![], ..entry(&url) };
            let result = open_connector().exchange(&bare, get(&url), LATER).await;
            assert!(is_address_refused(result), "{url}");
        }
    }
    assert_eq!((v4.accepts(), v6.accepts()), (0, 0));
}

#[tokio::test]
async fn wrapped_and_unspecified_loopback_is_refused_even_where_loopback_is_listed() {
    let peer = Peer::at("[::]:0", |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    for host in ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]"] {
        let url = format!("http://{host}:{}/", peer.address.port());
        assert!(is_address_refused(open_connector().exchange(&entry(&url), get(&url), LATER).await), "{url}");
    }
    assert_eq!(peer.accepts(), 0);
}

#[tokio::test]
async fn loopback_is_reached_where_entry_and_platform_list_it_and_not_where_one_does() {
    let peer = Peer::saying(ok("{}"));
    let url = peer.url();
    let listed = entry(&url);
    assert!(matches!(open_connector().exchange(&listed, get(&url), LATER).await, Exchanged::Answered(_)));
    let strict = connector(Platform::default(), table(&[]), bounds(), "");
    assert!(is_address_refused(strict.exchange(&listed, get(&url), LATER).await));
    let bare = Entry { networks: vec![], ..listed };
    assert!(is_address_refused(open_connector().exchange(&bare, get(&url), LATER).await));
    assert_eq!(peer.accepts(), 1);
}

#[tokio::test]
async fn our_own_listener_is_refused_though_loopback_is_listed() {
    let peer = Peer::saying(ok("{}"));
    let mut platform = open_platform();
    platform.addresses.own = vec![peer.address];
    let c = connector(platform, table(&[]), bounds(), "");
    assert!(is_address_refused(c.exchange(&entry(&peer.url()), get(&peer.url()), LATER).await));
    assert_eq!(peer.accepts(), 0);
}

/// O-SSRF-01, O-SSRF-02, O-SSRF-10, O-SSRF-11, O-SSRF-12
#[tokio::test]
async fn a_name_with_any_refused_address_is_refused_as_a_whole() {
    let peer = Peer::saying(ok("{}"));
    for (i, bad) in [
        &["127.0.0.1", "10.0.0.5"][..],
        &["10.0.0.5", "127.0.0.1"],
        &["127.0.0.1", "fe80::1"],
        &["127.0.0.1", "fd00:ec2::254"],
        &["::ffff:10.0.0.5"],
        &["64:ff9b::a00:5"],
        &["0.0.0.0"],
        &["fc00::1"],
        &["127.0.0.1", "::ffff:127.0.0.1"],
    ]
    .into_iter()
    .enumerate()
    {
        let reply = addresses(bad);
        let dns = NameServer::new(move |_, _| reply.clone());
        let url = format!("http://n{i}.test:{}/", peer.address.port());
        let c = connector(open_platform(), dns.resolver(), bounds(), "");
        assert!(is_address_refused(c.exchange(&entry(&url), get(&url), LATER).await), "{bad:?}");
    }
    assert_eq!(peer.accepts(), 0);
}

/// O-SSRF-12
#[tokio::test]
async fn a_look_up_of_which_one_half_failed_is_refused() {
    let peer = Peer::saying(ok("{}"));
    let dns = NameServer::new(|_, kind| if kind == 1 { addresses(&["127.0.0.1"]) } else { Reply::Code(2) });
    let url = format!("http://half.test:{}/", peer.address.port());
    let c = connector(open_platform(), dns.resolver(), bounds(), "");
    let result = not_sent(c.exchange(&entry(&url), get(&url), LATER).await);
    assert!(matches!(result, NotSent::Connect(ConnectError::Resolve(ResolveError::Failed(_)))), "{result:?}");
    assert_eq!(peer.accepts(), 0);
}

#[tokio::test]
async fn names_are_asked_absolute_of_the_given_server_alone() {
    let peer = Peer::saying(ok("{}"));
    let dns = NameServer::new(
        |name, _| if name == "peer.test" { addresses(&["127.0.0.1"]) } else { Reply::Code(3) },
    );
    let c = connector(open_platform(), dns.resolver(), bounds(), "");
    let url = format!("http://peer.test:{}/rpc", peer.address.port());
    assert!(matches!(c.exchange(&entry(&url), get(&url), LATER).await, Exchanged::Answered(_)));
    assert_eq!(dns.questions(), [("peer.test".to_owned(), 1), ("peer.test".to_owned(), 28)]);
    assert!(peer.requests()[0].contains(&format!("host: peer.test:{}\r\n", peer.address.port())));
    let url = "http://other:80/";
    let result = not_sent(c.exchange(&entry(url), get(url), LATER).await);
    assert_eq!(result, NotSent::Connect(ConnectError::Resolve(ResolveError::NoAddress)));
    assert!(dns.questions().iter().all(|(n, _)| n == "peer.test" || n == "other"), "{:?}", dns.questions());
}

#[tokio::test]
async fn a_server_that_says_nothing_costs_the_connect_time_and_no_more() {
    let dns = NameServer::new(|_, _| Reply::Silence);
    let brief = crate::exchange::Bounds { connect: exeat_core::time::Span::of_millis(200), ..bounds() };
    let c = connector(open_platform(), dns.resolver(), brief, "");
    let url = "http://silent.test/";
    let result = not_sent(c.exchange(&entry(url), get(url), LATER).await);
    assert_eq!(result, NotSent::Connect(ConnectError::Resolve(ResolveError::TimedOut)));
}

#[tokio::test]
async fn localhost_is_never_asked_of_a_server() {
    let peer = Peer::saying(ok("{}"));
    let dns = NameServer::new(|_, _| addresses(&["10.0.0.1"]));
    let c = connector(open_platform(), dns.resolver(), bounds(), "");
    let url = format!("http://localhost.:{}/", peer.address.port());
    assert!(matches!(c.exchange(&entry(&url), get(&url), LATER).await, Exchanged::Answered(_)));
    // O-SSRF-08: where loopback isn't listed, the dot helps nobody.
    let bare = Entry { networks: vec![], ..entry(&url) };
    assert!(is_address_refused(c.exchange(&bare, get(&url), LATER).await));
    assert_eq!((dns.questions(), peer.accepts()), (vec![], 1));
}

/// O-SSRF-04
#[tokio::test]
async fn a_name_that_changes_its_address_is_reached_only_where_it_was_checked() {
    let peer = Peer::at("127.0.0.1:0", |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let inside = Peer::at(&format!("127.0.0.2:{}", peer.address.port()), |wire, _| {
        drop(wire.write_all(ok("{}").as_bytes()));
    });
    let asked = AtomicUsize::new(0);
    let dns = NameServer::new(move |_, kind| match kind {
        1 if asked.fetch_add(1, Ordering::SeqCst) == 0 => addresses(&["127.0.0.1"]),
        1 => addresses(&["127.0.0.2"]),
        _ => Reply::Addresses(vec![]),
    });
    let url = format!("http://rebind.test:{}/", peer.address.port());
    let only_one = Entry { networks: vec!["127.0.0.1/32".parse().unwrap()], ..entry(&url) };
    let c = connector(open_platform(), dns.resolver(), bounds(), "");
    assert!(matches!(c.exchange(&only_one, get(&url), LATER).await, Exchanged::Answered(_)));
    assert_eq!(dns.questions().iter().filter(|(_, kind)| *kind == 1).count(), 1);
    assert!(is_address_refused(c.exchange(&only_one, get(&url), LATER).await));
    assert_eq!((peer.accepts(), inside.accepts()), (1, 0));
}

/// O-SSRF-07, O-SSRF-13, O-CARD-02: off means off.
#[tokio::test]
async fn a_refused_target_is_met_by_no_packet_at_all() {
    let peer = Peer::saying(ok("{}"));
    let dns = NameServer::new(|_, _| addresses(&["127.0.0.1"]));
    let port = peer.address.port();
    let registered = entry(&format!("http://peer.test:{port}/"));
    let open = connector(open_platform(), dns.resolver(), bounds(), "");
    for url in [
        format!("http://notpeer.test:{port}/"),
        format!("http://peer.test.evil.test:{port}/"),
        format!("http://sub.peer.test:{port}/"),
        format!("https://peer.test:{port}/"),
        format!("http://127.0.0.1:{port}/"),
        "http://peer.test/".to_owned(),
    ] {
        let result = not_sent(open.exchange(&registered, get(&url), LATER).await);
        assert!(matches!(result, NotSent::Target(_)), "{url}: {result:?}");
    }
    let none = Platform { origins: Origins::Listed(vec![]), ..open_platform() };
    let dark = connector(none, dns.resolver(), bounds(), "");
    let url = format!("http://peer.test:{port}/");
    assert!(matches!(not_sent(dark.exchange(&registered, get(&url), LATER).await), NotSent::Target(_)));
    let strict = Entry { plaintext: crate::target::Plaintext::Refused, ..registered };
    assert!(matches!(not_sent(open.exchange(&strict, get(&url), LATER).await), NotSent::Target(_)));
    assert_eq!((dns.questions(), peer.accepts()), (vec![], 0));
}

#[tokio::test]
async fn nobody_listening_is_not_sent() {
    let url = format!("http://127.0.0.1:{}/", closed_port());
    let result = not_sent(open_connector().exchange(&entry(&url), get(&url), LATER).await);
    assert!(matches!(result, NotSent::Connect(ConnectError::Tcp(_))), "{result:?}");
}

#[tokio::test]
async fn the_next_checked_address_is_tried_when_one_does_not_answer() {
    let peer = Peer::at("127.0.0.3:0", |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let dns = NameServer::new(|_, _| addresses(&["127.0.0.3", "127.0.0.2"]));
    let url = format!("http://two.test:{}/", peer.address.port());
    let c = connector(open_platform(), dns.resolver(), bounds(), "");
    assert!(matches!(c.exchange(&entry(&url), get(&url), LATER).await, Exchanged::Answered(_)));
}

fn https(port: u16) -> (String, Platform) {
    (format!("https://peer.test:{port}/rpc"), Platform { ports: vec![port], ..open_platform() })
}

#[tokio::test]
async fn tls_goes_to_the_checked_address_under_the_name() {
    let identity = Identity::of("peer.test");
    let peer = Peer::tls(&identity, |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let (url, platform) = https(peer.address.port());
    let c = connector(platform, table(&[("peer.test", "127.0.0.1")]), bounds(), &identity.ca_pem);
    let request = Request::post_json(url.parse().unwrap(), Bytes::from_static(b"{}"));
    let result = c.exchange(&entry(&url), request, LATER).await;
    assert!(matches!(result, Exchanged::Answered(_)), "{result:?}");
    assert_eq!(peer.server_names(), [Some("peer.test".to_owned())]);
    assert!(peer.requests()[0].contains(&format!("host: peer.test:{}\r\n", peer.address.port())));
}

#[tokio::test]
async fn an_unknown_issuer_or_another_name_gets_no_byte_of_the_request() {
    let identity = Identity::of("peer.test");
    let peer = Peer::tls(&identity, |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let (url, platform) = https(peer.address.port());
    let names = || table(&[("peer.test", "127.0.0.1"), ("other.test", "127.0.0.1")]);
    let stranger = connector(platform.clone(), names(), bounds(), "");
    let result = not_sent(stranger.exchange(&entry(&url), get(&url), LATER).await);
    assert!(matches!(result, NotSent::Connect(ConnectError::Tls(_))), "{result:?}");
    let other = url.replace("peer.test", "other.test");
    let c = connector(platform, names(), bounds(), &identity.ca_pem);
    let result = not_sent(c.exchange(&entry(&other), get(&other), LATER).await);
    assert!(matches!(result, NotSent::Connect(ConnectError::Tls(_))), "{result:?}");
    assert_eq!(peer.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_peer_that_hangs_in_the_handshake_is_not_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, platform) = https(listener.local_addr().unwrap().port());
    let brief = crate::exchange::Bounds { connect: exeat_core::time::Span::of_millis(200), ..bounds() };
    let c = connector(platform, table(&[("peer.test", "127.0.0.1")]), brief, "");
    let result = not_sent(c.exchange(&entry(&url), get(&url), LATER).await);
    assert_eq!(result, NotSent::Connect(ConnectError::TimedOut));
}

#[tokio::test]
async fn a_tls_stream_that_is_cut_without_a_goodbye_is_not_a_whole_answer() {
    let identity = Identity::of("peer.test");
    let peer = Peer::tls(&identity, |wire, _| {
        drop(wire.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
    });
    let (url, platform) = https(peer.address.port());
    let c = connector(platform, table(&[("peer.test", "127.0.0.1")]), bounds(), &identity.ca_pem);
    let result = c.exchange(&entry(&url), get(&url), LATER).await;
    assert!(matches!(result, Exchanged::Ambiguous(_)), "{result:?}");
}

#[test]
fn roots_that_are_no_certificates_are_refused() {
    assert!(tls(b"").is_ok());
    assert!(tls(Identity::of("x.test").ca_pem.as_bytes()).is_ok());
    assert!(tls(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
}

/// O-SSRF-09: the same exchanges, in a process whose environment names a proxy for everything.
#[test]
fn proxy_variables_change_nothing() {
    let proxy = Peer::saying(ok("{}"));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    for test in [
        "connect::tests::loopback_is_reached_where_entry_and_platform_list_it_and_not_where_one_does",
        "connect::tests::tls_goes_to_the_checked_address_under_the_name",
        "connect::tests::names_are_asked_absolute_of_the_given_server_alone",
        "connect::tests::a_name_with_any_refused_address_is_refused_as_a_whole",
    ] {
        child.arg(test);
    }
    child.args(["--exact", "--test-threads=1"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        child.env(name, format!("http://{}", proxy.address));
    }
    let done = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.contains("4 passed"), "{said}");
    assert_eq!(proxy.accepts(), 0);
}

/// A proxy that tunnels to wherever it is told, or answers with this head.
fn proxying(head: &'static str) -> Peer {
    Peer::new(move |wire, request| {
        if wire.write_all(head.as_bytes()).is_err() || !head.contains(" 200 ") {
            return;
        }
        let to = request.split(' ').nth(1).unwrap().replace("peer.test", "127.0.0.1");
        let mut inner =
            std::net::TcpStream::connect_timeout(&to.parse().unwrap(), std::time::Duration::from_secs(5))
                .unwrap();
        let mut buffer = vec![0; 64 * 1024];
        let n = wire.read(&mut buffer).unwrap();
        std::io::Write::write_all(&mut inner, &buffer[..n]).unwrap();
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut inner, &mut answer).unwrap();
        drop(wire.write_all(&answer));
    })
}
fn through(proxy: &Peer, names: &[(&str, &str)]) -> crate::exchange::Connector {
    let dialer = Dialer::new(table(names), tls(b"").unwrap())
        .through(Some(proxy.address.to_string().parse().unwrap()));
    let platform = Arc::new(open_platform());
    crate::exchange::Connector::new(dialer, platform, bounds(), Arc::new(|| exeat_core::time::Monotonic(0)))
}

/// O-SSRF-09
#[tokio::test]
async fn a_proxy_that_is_set_is_used_and_hears_only_of_targets_that_were_checked() {
    let peer = Peer::saying(ok("{}"));
    let proxy = proxying("HTTP/1.1 200 OK\r\n\r\n");
    let c = through(&proxy, &[("peer.test", "127.0.0.1"), ("inner.test", "10.0.0.5")]);
    let url = format!("http://peer.test:{}/rpc", peer.address.port());
    let result = c.exchange(&entry(&url), get(&url), LATER).await;
    assert!(matches!(result, Exchanged::Answered(_)), "{result:?}");
    let port = peer.address.port();
    assert_eq!(
        proxy.requests(),
        [format!("CONNECT peer.test:{port} HTTP/1.1\r\nHost: peer.test:{port}\r\n\r\n")]
    );
    for refused in ["http://inner.test/", "http://169.254.169.254/"] {
        assert!(is_address_refused(c.exchange(&entry(refused), get(refused), LATER).await));
    }
    assert_eq!((proxy.accepts(), peer.accepts()), (1, 1));
}

#[tokio::test]
async fn a_proxy_that_refuses_leaves_the_request_unsent() {
    for head in [
        "HTTP/1.1 403 Forbidden\r\n\r\n",
        "HTTP/1.1 407 X\r\nProxy-Authenticate: Basic\r\n\r\n",
        "SSH-2.0\r\n\r\n",
        "",
    ] {
        let proxy = proxying(head);
        let c = through(&proxy, &[("peer.test", "127.0.0.1")]);
        let url = "http://peer.test/";
        let result = not_sent(c.exchange(&entry(url), get(url), LATER).await);
        assert!(matches!(result, NotSent::Connect(ConnectError::Proxy(_))), "{head:?}: {result:?}");
    }
}

#[test]
fn a_proxy_is_a_host_and_a_port_and_carries_no_credentials() {
    for ok in ["127.0.0.1:3128", "http://proxy.test:8080", "http://proxy.test:8080/", "[::1]:1"] {
        assert!(ok.parse::<Proxy>().is_ok(), "{ok}");
    }
    for bad in ["", "https://proxy.test", "http://u:p@proxy.test", "socks5://x:1", "http://proxy.test/x"] {
        assert!(bad.parse::<Proxy>().is_err(), "{bad}");
    }
}
