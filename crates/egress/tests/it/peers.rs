//! Peers for this room's tests, used by both its unit tests and its integration tests: peers of exact bytes, a TLS peer with a CA of its own, and a DNS server, all real
//! sockets on loopback, run by plain threads.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

type Script = Arc<dyn Fn(&mut dyn Wire, &str) + Send + Sync>;

/// A peer that keeps each request it reads and then does what its script says.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    accepts: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    names: Arc<Mutex<Vec<Option<String>>>>,
}

impl Peer {
    /// In clear.
    pub(crate) fn new(script: impl Fn(&mut dyn Wire, &str) + Send + Sync + 'static) -> Self {
        Self::start("127.0.0.1:0", None, Arc::new(script))
    }
    pub(crate) fn at(address: &str, script: impl Fn(&mut dyn Wire, &str) + Send + Sync + 'static) -> Self {
        Self::start(address, None, Arc::new(script))
    }
    /// Answers each request with these bytes, and closes.
    pub(crate) fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |wire, _| drop(wire.write_all(&answer)))
    }
    /// Under TLS with this identity.
    pub(crate) fn tls(
        identity: &Identity,
        script: impl Fn(&mut dyn Wire, &str) + Send + Sync + 'static,
    ) -> Self {
        Self::start("127.0.0.1:0", Some(identity.server()), Arc::new(script))
    }

    fn start(address: &str, tls: Option<Arc<rustls::ServerConfig>>, script: Script) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let peer = Self {
            address: listener.local_addr().unwrap(),
            accepts: Arc::default(),
            requests: Arc::default(),
            names: Arc::default(),
        };
        let own = peer.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                own.accepts.fetch_add(1, Ordering::SeqCst);
                let (own, script, tls) = (own.clone(), Arc::clone(&script), tls.clone());
                thread::spawn(move || match tls {
                    None => own.serve(&mut stream, &script),
                    Some(config) => {
                        let connection = rustls::ServerConnection::new(config).unwrap();
                        let mut stream = rustls::StreamOwned::new(connection, stream);
                        if stream.conn.complete_io(&mut stream.sock).is_ok() {
                            own.names.lock().unwrap().push(stream.conn.server_name().map(str::to_owned));
                            own.serve(&mut stream, &script);
                            stream.conn.send_close_notify();
                            drop(stream.conn.complete_io(&mut stream.sock));
                        }
                    }
                });
            }
        });
        peer
    }

    fn serve(&self, stream: &mut dyn Wire, script: &Script) {
        if let Some(request) = read_request(stream) {
            self.requests.lock().unwrap().push(request.clone());
            script(stream, &request);
        }
    }

    pub(crate) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
    pub(crate) fn server_names(&self) -> Vec<Option<String>> {
        self.names.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut dyn Wire) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0; 1];
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.extend_from_slice(&byte);
    }
    let head = String::from_utf8(bytes).ok()?;
    let length = head
        .lines()
        .find_map(|l| {
            l.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse().unwrap())
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).ok()?)
}

/// `HTTP/1.1 200 OK` with this body.
pub(crate) fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A CA and a certificate of it.
pub(crate) struct Identity {
    pub(crate) ca_pem: String,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn of(name: &str) -> Self {
        let mut ca = rcgen::CertificateParams::new(vec![]).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(ca, rcgen::KeyPair::generate().unwrap()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf =
            rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        Self {
            ca_pem: ca.pem(),
            certificate: leaf.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }

    fn server(&self) -> Arc<rustls::ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        Arc::new(config)
    }
}

/// What a DNS server says to one question.
#[derive(Clone)]
pub(crate) enum Reply {
    Addresses(Vec<IpAddr>),
    Code(u8),
    Silence,
}

/// Addresses as a reply; those of the other family are left out by the server.
pub(crate) fn addresses(texts: &[&str]) -> Reply {
    Reply::Addresses(texts.iter().map(|t| t.parse().unwrap()).collect())
}

/// A DNS server on loopback that counts questions. TTL is 0 throughout.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    questions: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    pub(crate) fn new(say: impl Fn(&str, u16) -> Reply + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let questions: Arc<Mutex<Vec<(String, u16)>>> = Arc::default();
        let seen = Arc::clone(&questions);
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let query = &buffer[..n];
                let (name, kind, end) = question(query);
                seen.lock().unwrap().push((name.clone(), kind));
                if let Some(answer) = answer(query, end, kind, &say(&name, kind)) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        Self { address, questions }
    }

    pub(crate) fn questions(&self) -> Vec<(String, u16)> {
        let mut seen = self.questions.lock().unwrap().clone();
        seen.sort();
        seen
    }
}

fn question(query: &[u8]) -> (String, u16, usize) {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8(query[at + 1..=at + length].to_vec()).unwrap().to_ascii_lowercase());
        at += length + 1;
    }
    (labels.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]), at + 5)
}

fn answer(query: &[u8], end: usize, kind: u16, reply: &Reply) -> Option<Vec<u8>> {
    let (code, rows) = match reply {
        Reply::Silence => return None,
        Reply::Code(code) => (*code, vec![]),
        Reply::Addresses(all) => {
            let family = |ip: &&IpAddr| (kind == 1 && ip.is_ipv4()) || (kind == 28 && ip.is_ipv6());
            (0, all.iter().filter(family).collect())
        }
    };
    let mut out = query[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(rows.len()).unwrap(), 0, 0, 0, 0]);
    out.extend(&query[12..end]);
    for ip in rows {
        out.extend([0xc0, 12, 0, u8::try_from(kind).unwrap(), 0, 1, 0, 0, 0, 0, 0]);
        let data = match ip {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        out.push(u8::try_from(data.len()).unwrap());
        out.extend(data);
    }
    Some(out)
}
