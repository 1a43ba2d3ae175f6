//! Connections and requests: who came, what they asked, and the answer or the hang-up.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::answer::{Answer, Kind, Reply};
use super::{Protocol, Stub, card, clock, rpc};

const BODY_CAP: usize = 8 << 20;
/// How long a connection may be silent before it counts as one that sends nothing.
const SILENCE: Duration = Duration::from_millis(250);

/// Ends a connection without an answer: hyper drops the socket when the handler fails.
#[derive(Debug)]
struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hung up, as ordered")
    }
}

impl std::error::Error for HangUp {}

/// Serves one accepted connection to its end.
pub(super) async fn connection(stub: Arc<Stub>, stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let visit = Arc::new(Visit::begin(Arc::clone(&stub), peer));
    let service = service_fn({
        let visit = Arc::clone(&visit);
        move |request| {
            let (stub, visit) = (Arc::clone(&stub), Arc::clone(&visit));
            async move { respond(answer(&stub, &visit, request).await) }
        }
    });
    let mut serving = std::pin::pin!(
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        biased;
        _ = &mut serving => { visit.note(); return }
        () = tokio::time::sleep(SILENCE) => visit.note(),
    }
    let _ = serving.await;
}

fn respond(answer: Answer) -> Result<Response<Reply>, HangUp> {
    let Kind::Http { status, headers, body } = answer.kind else { return Err(HangUp) };
    let mut response = Response::new(Reply::new(body, answer.answered));
    *response.status_mut() = status;
    for (name, value) in headers {
        // A value with line breaks can't be sent, not even by a hostile agent.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

async fn answer(stub: &Arc<Stub>, visit: &Visit, request: Request<Incoming>) -> Answer {
    if request.uri().path() == "/_seen" {
        visit.look_away();
        return match *request.method() {
            Method::GET => Answer::json(StatusCode::OK, &stub.world().seen()),
            _ => Answer::status(405),
        };
    }
    visit.arrive();
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_CAP).collect().await.map(http_body_util::Collected::to_bytes);
    log_request(stub, visit.peer, &head, body.as_ref().ok());
    match body {
        Ok(body) => route(stub, &head, &body).await,
        Err(_) => Answer::status(413).with(header::CONNECTION, "close"),
    }
}

async fn route(stub: &Arc<Stub>, head: &request::Parts, body: &Bytes) -> Answer {
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/.well-known/agent-card.json") => Answer::json(StatusCode::OK, &card_for(stub, head)),
        (&Method::GET, "/.well-known/agent.json") if stub.args.protocol != Protocol::V1 => {
            Answer::json(StatusCode::OK, &card_for(stub, head))
        }
        (&Method::POST, "/rpc" | "/") => {
            if authorized(stub, &head.headers) {
                rpc::answer(stub, version(head), body).await
            } else {
                Answer::status(401).with(header::WWW_AUTHENTICATE, "Bearer")
            }
        }
        (_, "/rpc" | "/" | "/.well-known/agent-card.json") => Answer::status(405),
        _ => Answer::status(404),
    }
}

fn card_for(stub: &Stub, head: &request::Parts) -> Value {
    let asked = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = asked.filter(|host| host.parse::<http::uri::Authority>().is_ok());
    card::card(&stub.args, &authority.map_or_else(|| stub.address.to_string(), str::to_owned))
}

fn authorized(stub: &Stub, headers: &HeaderMap) -> bool {
    let Some(token) = &stub.args.token else { return true };
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.split_once(' '));
    sent.is_some_and(|(scheme, sent)| scheme.eq_ignore_ascii_case("bearer") && sent.trim() == token)
}

/// The version that a call claims, by header or query.
fn version(head: &request::Parts) -> Option<String> {
    let header = head.headers.get("a2a-version").and_then(|value| value.to_str().ok());
    let query = head.uri.query().unwrap_or_default();
    let query = query.split('&').find_map(|pair| pair.strip_prefix("A2A-Version="));
    header.or(query).map(str::trim).filter(|version| !version.is_empty()).map(str::to_owned)
}

fn log_request(stub: &Stub, peer: SocketAddr, head: &request::Parts, body: Option<&Bytes>) {
    let mut headers = Map::new();
    for name in head.headers.keys() {
        let values = head.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect();
        headers.insert(name.as_str().to_owned(), Value::String(values.join(", ")));
    }
    let body = body.map(|bytes| {
        serde_json::from_slice(bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
    });
    stub.log.line(&json!({
        "event": "request", "at": clock::now(), "peer": peer.to_string(), "method": head.method.as_str(),
        "path": head.uri.path(), "query": head.uri.query(), "headers": headers, "body": body,
    }));
}

/// A connection as it is counted and logged: at once, but not if all it does is look at `/_seen`.
struct Visit {
    stub: Arc<Stub>,
    peer: SocketAddr,
    at: String,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Counted, not logged: it hasn't said what it wants.
    Silent,
    /// Neither counted nor logged: it looks at `/_seen`.
    Overlooked,
    /// Counted and logged.
    Noted,
}

impl Visit {
    fn begin(stub: Arc<Stub>, peer: SocketAddr) -> Self {
        stub.world().accepts += 1;
        Self { stub, peer, at: clock::now(), stage: Mutex::new(Stage::Silent) }
    }

    /// It asks for something that counts.
    fn arrive(&self) {
        match self.set(Stage::Noted) {
            Stage::Silent => self.log(),
            Stage::Overlooked => {
                self.stub.world().accepts += 1;
                self.log();
            }
            Stage::Noted => {}
        }
    }

    /// It was silent for long, or left.
    fn note(&self) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Silent {
            *stage = Stage::Noted;
            self.log();
        }
    }

    /// It looks at `/_seen`.
    fn look_away(&self) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Silent {
            *stage = Stage::Overlooked;
            self.stub.world().accepts -= 1;
        }
    }

    fn set(&self, next: Stage) -> Stage {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stage, next)
    }

    fn log(&self) {
        self.stub.log.line(&json!({ "event": "accept", "at": self.at, "peer": self.peer.to_string() }));
    }
}
