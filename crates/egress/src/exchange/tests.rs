use std::io::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use super::*;
use crate::rig::{self, LATER, Peer, bounds, entry, get, ok, open_connector, open_platform, table};

async fn exchange(peer: &Peer) -> Exchanged {
    exchange_within(peer, bounds()).await
}
async fn exchange_within(peer: &Peer, bounds: Bounds) -> Exchanged {
    let connector = rig::connector(open_platform(), table(&[]), bounds, "");
    let request = Request::post_json(peer.url().parse().unwrap(), Bytes::from_static(b"{}"));
    connector.exchange(&entry(&peer.url()), request, LATER).await
}
fn brief() -> Bounds {
    Bounds { total: Span::of_millis(300), ..bounds() }
}
fn unread(e: Exchanged) -> Unread {
    match e {
        Exchanged::Unusable(u) => u.why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn exactly_these_bytes_leave_and_a_whole_answer_comes_back() {
    let peer = Peer::saying(ok(r#"{"a":1}"#));
    let target = peer.url().parse().unwrap();
    let request = Request::post_json(target, Bytes::from_static(b"{\"x\":2}")).version("1.0").unwrap();
    let Exchanged::Answered(answer) = open_connector().exchange(&entry(&peer.url()), request, LATER).await
    else {
        panic!("no answer")
    };
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"{\"a\":1}"[..]));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let expected = format!(
        "POST /rpc HTTP/1.1\r\nhost: {}\r\naccept: application/json, application/a2a+json\r\n\
         content-type: application/json\r\na2a-version: 1.0\r\naccept-encoding: identity\r\n\
         user-agent: exeat/{}\r\nconnection: close\r\ncontent-length: 7\r\n\r\n{{\"x\":2}}",
        peer.address,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(peer.requests(), [expected]);
    assert_eq!(peer.accepts(), 1);
}

#[tokio::test]
async fn other_framings_are_read_whole() {
    for (said, body) in [
        ("HTTP/1.0 200 OK\r\n\r\nold", "old"),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", "to the end"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-T: 1\r\n\r\n",
            "abcde",
        ),
        ("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz", "z"),
        ("HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 1\r\n\r\ni", "i"),
    ] {
        match exchange(&Peer::saying(said)).await {
            Exchanged::Answered(a) => assert_eq!(&a.body[..], body.as_bytes(), "{said}"),
            other => panic!("{said}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_error_status_is_a_whole_answer_too() {
    let peer = Peer::saying("HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno");
    let Exchanged::Answered(a) = exchange(&peer).await else { panic!("no answer") };
    assert_eq!((a.status.as_u16(), a.header("retry-after")), (503, Some("7")));
}

/// O-SEND-04
#[tokio::test]
async fn a_peer_that_read_the_request_and_gave_no_whole_answer_leaves_it_ambiguous() {
    for said in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "HTTP/1.1 503 No\r\nContent-Length: 10\r\n\r\n",
    ] {
        let result = exchange(&Peer::saying(said)).await;
        assert!(matches!(result, Exchanged::Ambiguous(Ambiguous::Closed)), "{said:?}: {result:?}");
    }
}

#[tokio::test]
async fn a_peer_that_never_answers_is_left_at_the_deadline() {
    let (hold, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let peer = Peer::new(move |_, _| assert!(held.lock().unwrap().recv().is_err()));
    let result = exchange_within(&peer, brief()).await;
    assert!(matches!(result, Exchanged::Ambiguous(Ambiguous::TimedOut)), "{result:?}");
    drop(hold);
}

#[tokio::test]
async fn a_slow_drip_of_head_or_body_is_bounded_by_the_deadline() {
    for begin in ["HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let (hold, held) = mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let peer = Peer::new(move |wire, _| {
            let held = held.lock().unwrap();
            let mut going = wire.write_all(begin.as_bytes()).is_ok();
            while going && held.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout)
            {
                going = wire.write_all(b"a").is_ok();
            }
        });
        let result = exchange_within(&peer, brief()).await;
        // The third drips what isn't HTTP after the interim answer.
        let bounded = matches!(
            result,
            Exchanged::Ambiguous(Ambiguous::TimedOut)
                | Exchanged::Unusable(Unusable { why: Unread::NotHttp, .. })
        );
        assert!(bounded, "{begin:?}: {result:?}");
        drop(hold);
    }
}

#[tokio::test]
async fn an_endless_or_announced_too_large_body_is_dropped_at_the_bound() {
    let endless = Peer::new(|wire, _| {
        drop(wire.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
        while wire.write_all(&chunk).is_ok() {}
    });
    assert_eq!(unread(exchange(&endless).await), Unread::TooLarge);
    let announced = Peer::saying("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(unread(exchange(&announced).await), Unread::TooLarge);
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_bound_and_no_larger() {
    let most = bounds().body_bytes;
    let Exchanged::Answered(a) = exchange(&Peer::saying(ok(&"x".repeat(most)))).await else { panic!() };
    assert_eq!(a.body.len(), most);
    assert_eq!(unread(exchange(&Peer::saying(ok(&"x".repeat(most + 1)))).await), Unread::TooLarge);
}

#[tokio::test]
async fn a_head_over_the_bound_is_too_large() {
    for head in [format!("X: {}\r\n", "h".repeat(100_000)), "X: y\r\n".repeat(5_000)] {
        let peer = Peer::saying(format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 0\r\n\r\n"));
        assert_eq!(unread(exchange(&peer).await), Unread::TooLarge);
    }
}

#[tokio::test]
async fn what_is_not_http_is_told_from_what_is_cut() {
    for said in [
        "SSH-2.0-x\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        assert_eq!(unread(exchange(&Peer::saying(said)).await), Unread::NotHttp, "{said:?}");
    }
}

/// O-SSRF-05, O-AUTH-03
#[tokio::test]
async fn no_redirect_is_followed_wherever_it_leads() {
    let other = Peer::saying(ok("{}"));
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        for to in [
            format!("http://{}/", other.address),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            format!("//{}/", other.address),
        ] {
            let peer =
                Peer::saying(format!("HTTP/1.1 {status} R\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
            assert_eq!(unread(exchange(&peer).await), Unread::Redirect(to));
            assert_eq!((peer.accepts(), peer.requests().len()), (1, 1));
        }
    }
    assert_eq!(other.accepts(), 0);
}

#[tokio::test]
async fn an_encoded_body_is_not_read() {
    for coding in ["gzip", "br", "zstd", "deflate", "identity, gzip"] {
        let peer = Peer::saying(format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 1\r\n\r\nx"
        ));
        assert_eq!(unread(exchange(&peer).await), Unread::Encoded(coding.to_owned()));
    }
}

#[tokio::test]
async fn a_permit_that_ran_out_opens_no_connection() {
    let peer = Peer::saying(ok("{}"));
    let result = open_connector().exchange(&entry(&peer.url()), get(&peer.url()), Monotonic(0)).await;
    assert!(matches!(result, Exchanged::NotSent(NotSent::Expired)), "{result:?}");
    assert_eq!(peer.accepts(), 0);
}

#[tokio::test]
async fn a_process_that_slept_past_its_permit_while_connecting_writes_no_byte() {
    let peer = Peer::saying(ok("{}"));
    // The first reading is in time, the one before the first byte isn't.
    let readings = AtomicU64::new(0);
    let clock = move || Monotonic(readings.fetch_add(10_000_000, Ordering::SeqCst));
    let dialer = Dialer::new(table(&[]), crate::connect::tls(b"").unwrap());
    let connector = Connector::new(dialer, Arc::new(open_platform()), bounds(), Arc::new(clock));
    let result = connector.exchange(&entry(&peer.url()), get(&peer.url()), Monotonic(5_000_000)).await;
    assert!(matches!(result, Exchanged::NotSent(NotSent::Expired)), "{result:?}");
    assert_eq!(peer.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_permit_shorter_than_the_total_caps_the_exchange() {
    let (hold, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let peer = Peer::new(move |_, _| assert!(held.lock().unwrap().recv().is_err()));
    let result = open_connector().exchange(&entry(&peer.url()), get(&peer.url()), Monotonic(300_000)).await;
    assert!(matches!(result, Exchanged::Ambiguous(Ambiguous::TimedOut)), "{result:?}");
    drop(hold);
}

#[tokio::test]
async fn an_answer_before_the_request_was_whole_counts() {
    let peer = Peer::new(|_, _| {});
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/rpc", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut some = [0; 64];
        std::io::Read::read_exact(&mut stream, &mut some).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
        stream
    });
    let body = Bytes::from(vec![b' '; 16 * 1024 * 1024]);
    let request = Request::post_json(url.parse().unwrap(), body);
    let result = open_connector().exchange(&entry(&url), request, LATER).await;
    let Exchanged::Answered(a) = result else { panic!("{result:?}") };
    assert_eq!(a.status.as_u16(), 413);
    drop((server.join().unwrap(), peer));
}

/// O-AUTH-05
#[test]
fn no_value_breaks_a_line() {
    for value in ["a\r\nX-Evil: 1", "a\n", "a\rb", "a\0b", "\u{7f}"] {
        assert!(get("https://peer.test/").version(value).is_err(), "{value:?}");
    }
    assert!(get("https://peer.test/").version("1.0").is_ok());
}
