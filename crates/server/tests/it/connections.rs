//! Connections that come in slowly, stay idle, or are under way when the server stops. Where a test waits for
//! patience to end, time is paused: it jumps as soon as nothing else can happen.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::rig::Rig;

async fn served(rig: &Rig) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let app = rig.app.clone();
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    let server = tokio::spawn(exeat_server::serve(listener, app, async {
        let _ = stopped.await;
    }));
    (at, stop, server)
}

async fn said(at: SocketAddr, text: &str) -> TcpStream {
    #[expect(clippy::disallowed_methods, reason = "a client on loopback")]
    let mut peer = TcpStream::connect(at).await.unwrap();
    peer.write_all(text.as_bytes()).await.unwrap();
    peer
}

async fn all(peer: &mut TcpStream) -> String {
    let mut got = Vec::new();
    let _ = peer.read_to_end(&mut got).await;
    String::from_utf8(got).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_ends_its_head_is_cut_off_whether_it_says_something_or_nothing() {
    let rig = Rig::new().await;
    let (at, _stop, _server) = served(&rig).await;
    for start in ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: "] {
        let mut peer = said(at, start).await;
        let answer = all(&mut peer).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    let mut good = said(at, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(all(&mut good).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_whole_is_answered_for() {
    let rig = Rig::new().await;
    let (at, _stop, _server) = served(&rig).await;
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\nConnection: close\r\n\r\n{{\"to\":",
        rig.admin
    );
    let mut peer = said(at, &head).await;
    let answer = all(&mut peer).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("\"bad_json\"") && answer.contains("within 30 seconds"), "{answer}");
}

#[tokio::test]
async fn a_stop_ends_idle_connections_and_answers_the_request_under_way() {
    let rig = Rig::new().await;
    let (at, stop, server) = served(&rig).await;
    let mut idle = said(at, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let body = "{\"to\":\"role:writer\",\"input\":\"hi\"}";
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        rig.admin,
        body.len()
    );
    let mut under_way = said(at, &head).await;
    let mut go_on = [0; 25];
    under_way.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stop.send(()).unwrap();
    assert_eq!(all(&mut idle).await.matches("HTTP/1.1").count(), 0);
    under_way.write_all(body.as_bytes()).await.unwrap();
    let answer = all(&mut under_way).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"shutting_down\""), "{answer}");
    server.await.unwrap();
}

#[tokio::test]
async fn the_connection_beyond_the_most_waits_until_another_has_ended() {
    let rig = Rig::new().await;
    let (at, _stop, _server) = served(&rig).await;
    let ask = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..rig.app.settings.connections {
        let mut peer = said(at, ask).await;
        peer.read_exact(&mut [0; 12]).await.unwrap();
        held.push(peer);
    }
    let mut waits = said(at, ask).await;
    let mut one = [0; 1];
    tokio::select! {
        biased;
        got = waits.read(&mut one) => panic!("{got:?}"),
        () = async { for _ in 0..100 { tokio::task::yield_now().await; } } => {}
    }
    held.pop();
    crate::rig::in_time(waits.read_exact(&mut one)).await.unwrap();
}
