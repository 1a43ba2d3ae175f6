//! A client as small as it can be: one connection per request, bytes as they are given, so that what no decent
//! client would send can be sent.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(':'));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {}", self.head, self.text()))
    }

    /// The JSON of an answer that must be good.
    pub(super) fn good(&self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.head, self.text());
        self.json()
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    to: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn new(to: SocketAddr, method: &str, path: &str) -> Self {
        Self { to, method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(super) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(super) fn json(self, value: &Value) -> Self {
        self.body("application/json", value.to_string())
    }

    pub(super) fn body(mut self, media: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        if media.is_empty() { self } else { self.header("content-type", media) }
    }

    /// Sends it, for an answer that may not come.
    #[expect(clippy::disallowed_methods, reason = "a test dials the server that it started")]
    pub(super) fn send(&self) -> io::Result<Answer> {
        let mut socket = TcpStream::connect(self.to)?;
        socket.set_read_timeout(Some(Duration::from_secs(90)))?;
        let mut head =
            format!("{} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.method, self.path, self.to);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() || self.method != "GET" {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        socket.write_all(format!("{head}\r\n").as_bytes())?;
        // Who refuses a large body may hang up before all of it went; the answer counts.
        let sent = socket.write_all(&self.body);
        let mut all = Vec::new();
        let read = socket.read_to_end(&mut all);
        match answer(&all) {
            Some(answer) => Ok(answer),
            None => Err(sent.and(read).err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Sends it to a server that answers.
    pub(super) fn must(&self) -> Answer {
        self.send().unwrap_or_else(|e| panic!("{} {}: {e}", self.method, self.path))
    }
}

fn answer(all: &[u8]) -> Option<Answer> {
    let end = all.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, head, body: all[end + 4..].to_vec() };
    if answer.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        answer.body = unchunked(&answer.body)?;
    } else if !answer.header("content-length").is_empty() {
        // Half an answer is none.
        let length: usize = answer.header("content-length").parse().ok()?;
        (answer.body.len() == length).then_some(())?;
    }
    Some(answer)
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?.trim(), 16).ok()?;
        let chunk = rest.get(end + 2..end + 2 + size)?;
        if size == 0 {
            return Some(all);
        }
        all.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..)?;
    }
}

impl Request {
    /// What comes within a moment of an answer that may never end.
    #[expect(clippy::disallowed_methods, reason = "a test dials the server that it started")]
    pub(super) fn must_soon(&self) -> String {
        let mut socket = TcpStream::connect(self.to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let headers: String = self.headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        write!(socket, "{} {} HTTP/1.0\r\nhost: {}\r\n{headers}\r\n", self.method, self.path, self.to)
            .unwrap();
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }
}
