//! A real HTTP server on loopback that answers as a test says, remembers what came, and can hang up: the one
//! thing that a framework makes hard.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.as_str()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// What the server does with a request.
pub(crate) enum Reply {
    Json(u16, Value),
    Text(&'static str, String),
    /// Answers nothing and closes.
    HangUp,
}

pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Reply {
    Reply::Json(
        status,
        json!({"code": code, "title": code, "status": status, "detail": detail, "next": "do better"}),
    )
}

/// Events as an event stream that then closes.
pub(crate) fn events(from: usize, events: &[(&str, Value)]) -> Reply {
    let lines = events
        .iter()
        .enumerate()
        .map(|(n, (event, data))| format!("id: {}\nevent: {event}\ndata: {data}\n\n", n + from));
    Reply::Text("text/event-stream", format!(": hello\n\n{}", lines.collect::<String>()))
}

/// A certificate for `localhost`, and the CA that vouches for it, as PEM.
pub(crate) struct Vouched {
    pub(crate) ca: String,
    config: Arc<rustls::ServerConfig>,
}

impl Vouched {
    pub(crate) fn new() -> Self {
        let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(ca, rcgen::KeyPair::generate().unwrap()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let named = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = named.signed_by(&key, &ca).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        Self { ca: ca.pem(), config: Arc::new(config) }
    }
}

type Handler = dyn Fn(&Seen) -> Reply + Send + Sync;

pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<(Mutex<Vec<Seen>>, Condvar)>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(None, handler)
    }

    /// Over TLS, as `localhost`.
    pub(crate) fn secured(
        vouched: &Vouched,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(vouched.config.clone()), handler)
    }

    fn listen(
        tls: Option<Arc<rustls::ServerConfig>>,
        handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let url = match tls {
            Some(_) => format!("https://localhost:{}", at.port()),
            None => format!("http://{at}"),
        };
        let seen = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let handler: Arc<Handler> = Arc::new(handler);
        let log = seen.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (handler, log) = (handler.clone(), log.clone());
                let tls = tls.clone();
                std::thread::spawn(move || match tls {
                    None => serve(socket, handler.as_ref(), &log),
                    Some(config) => {
                        let session = rustls::ServerConnection::new(config).unwrap();
                        serve(rustls::StreamOwned::new(session, socket), handler.as_ref(), &log);
                    }
                });
            }
        });
        Self { url, seen }
    }

    /// Requests whose line contains `what`.
    pub(crate) fn seen(&self, what: &str) -> Vec<Seen> {
        self.seen.0.lock().unwrap().iter().filter(|s| s.line.contains(what)).cloned().collect()
    }

    /// Waits until as many requests as that have come.
    pub(crate) fn until(&self, what: &str, count: usize) -> Vec<Seen> {
        let (seen, came) = &*self.seen;
        let few = |s: &mut Vec<Seen>| s.iter().filter(|s| s.line.contains(what)).count() < count;
        let late = {
            let held = seen.lock().unwrap();
            came.wait_timeout_while(held, Duration::from_secs(60), few).unwrap().1.timed_out()
        };
        assert!(!late, "{count} of {what:?} never came; came: {:#?}", self.seen(""));
        self.seen(what)
    }
}

fn serve(stream: impl Read + Write, handler: &Handler, log: &(Mutex<Vec<Seen>>, Condvar)) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut headers = Vec::new();
    // Whoever doesn't trust our certificate says nothing.
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap_or(0) <= 2 {
            break;
        }
        if let Some((name, value)) = header.trim_end().split_once(": ") {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let mut seen = Seen { line: line.trim_end().replace(" HTTP/1.1", ""), headers, body: String::new() };
    let mut body = vec![0; seen.header("content-length").parse().unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    seen.body = String::from_utf8(body).unwrap();
    let reply = handler(&seen);
    log.0.lock().unwrap().push(seen);
    log.1.notify_all();
    let (status, media, text) = match reply {
        Reply::Json(status, value) => (status, "application/json", value.to_string()),
        Reply::Text(media, text) => (200, media, text),
        Reply::HangUp => return,
    };
    let length = if media == "text/event-stream" {
        String::new()
    } else {
        format!("content-length: {}\r\n", text.len())
    };
    let _ = write!(
        reader.get_mut(),
        "HTTP/1.1 {status} X\r\ncontent-type: {media}\r\n{length}connection: close\r\n\r\n{text}"
    );
    let _ = reader.get_mut().flush();
}
