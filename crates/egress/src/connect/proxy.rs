//! An egress proxy that is set by configuration: a `CONNECT` tunnel (RFC 9110 §9.3.6) for every target.
//!
//! Its address is the platform's word, never a tenant's. It is a second wall, not a way around the first one:
//! the target's addresses are checked before the proxy hears of it.

use std::str::FromStr;

use exeat_core::id::Malformed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::target::{Host, Origin, Scheme};

/// The proxy's answer is longer than this only by mistake.
const LONGEST_ANSWER: usize = 8 * 1024;

/// Where the proxy is: `http://HOST:PORT` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub(super) host: Host,
    pub(super) port: u16,
}

impl FromStr for Proxy {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::new("egress proxy", "http://HOST:PORT without credentials", text);
        let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let origin: Origin = url.parse().map_err(|_| bad())?;
        if origin.scheme() == Scheme::Http {
            Ok(Self { host: origin.host().clone(), port: origin.port() })
        } else {
            Err(bad())
        }
    }
}

/// Opens the tunnel: not a byte past the proxy's head is read.
pub(super) async fn open(proxy: &mut TcpStream, to: &Origin) -> Result<(), String> {
    let authority = format!("{}:{}", to.host(), to.port());
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    proxy.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_ANSWER {
            return Err("its answer is too long".to_owned());
        }
        head.push(proxy.read_u8().await.map_err(|_| "it closed the connection".to_owned())?);
    }
    let line: String = head.iter().take(32).map(|b| char::from(*b)).take_while(|c| !c.is_control()).collect();
    match line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()) {
        Some(200..=299) if line.starts_with("HTTP/1.") => Ok(()),
        Some(status) => Err(format!("it refused with HTTP {status}")),
        None => Err("its answer is not HTTP".to_owned()),
    }
}
