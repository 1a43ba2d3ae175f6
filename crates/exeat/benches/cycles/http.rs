//! A client that keeps its connection and costs little.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

pub(crate) struct Client {
    at: SocketAddr,
    socket: BufReader<TcpStream>,
}

impl Client {
    #[expect(clippy::disallowed_methods, reason = "a benchmark dials what it started")]
    pub(crate) fn to(at: SocketAddr) -> Self {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { at, socket: BufReader::new(socket) }
    }

    /// One exchange, which must end well.
    pub(crate) fn call(&mut self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        );
        self.socket.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            self.socket.read_line(&mut line).unwrap();
            let lower = line.trim_end().to_ascii_lowercase();
            if lower.is_empty() {
                break;
            }
            if let Some(rest) = lower.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(n) = lower.strip_prefix("content-length: ") {
                length = n.parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {body}");
        body
    }

    pub(crate) fn json(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Value {
        serde_json::from_str(&self.call(method, path, headers, body)).unwrap()
    }
}
