//! One connection, one request, one answer. The connection is driven by whoever waits for it, so that
//! dropping an exchange closes its socket and nothing is left running.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Driver = Pin<Box<Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// How long a connection, and then its TLS, may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

pub(super) struct Exchange {
    sender: SendRequest<Full<Bytes>>,
    driver: Option<Driver>,
    body: Option<Incoming>,
}

pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

impl Exchange {
    /// Connects to the server of `base`; with `tls` where it is https.
    pub(super) async fn connect(base: &Url, tls: Option<&Arc<ClientConfig>>) -> Result<Self, String> {
        let port = base.port_or_known_default().unwrap_or(80);
        let host = match base.host() {
            Some(url::Host::Domain(d)) => d.to_owned(),
            Some(url::Host::Ipv4(a)) => a.to_string(),
            Some(url::Host::Ipv6(a)) => a.to_string(),
            None => return Err("the server's URL has no host".to_owned()),
        };
        let socket = tokio::time::timeout(CONNECT, dial(&host, port))
            .await
            .map_err(|_| format!("cannot reach {base} within 5 s"))?
            .map_err(|e| format!("cannot reach {base}: {e}"))?;
        let _ = socket.set_nodelay(true);
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(socket),
            Some(tls) => {
                let name =
                    ServerName::try_from(host).map_err(|e| format!("{base} has no name for TLS: {e}"))?;
                let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, socket);
                let secured = tokio::time::timeout(CONNECT, connecting).await;
                let secured = secured.map_err(|_| format!("no TLS with {base} within 5 s"))?;
                Box::new(secured.map_err(|e| {
                    format!("cannot speak TLS to {base} ({e}); a private CA is named by --ca or EXEAT_CA")
                })?)
            }
        };
        let (sender, driver) = http1::Builder::new()
            .max_headers(100)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| format!("cannot speak HTTP to {base}: {e}"))?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), body: None })
    }

    /// Sends the request; gives the head of the answer.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Head, String> {
        let answer = self.sender.send_request(request);
        let answer: Response<Incoming> = drive(&mut self.driver, answer)
            .await
            .map_err(|e| format!("the connection broke: {}", root(&e)))?;
        let (parts, body) = answer.into_parts();
        self.body = Some(body);
        Ok(Head { status: parts.status, headers: parts.headers })
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, String> {
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            match drive(&mut self.driver, body.frame()).await {
                None => return Ok(None),
                Some(Err(e)) => return Err(format!("the answer broke off: {}", root(&e))),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command dials the server that its user names: our own API"
)]
async fn dial(host: &str, port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect((host, port)).await
}

/// hyper's words name its own parts; the cause below says what happened.
fn root(e: &hyper::Error) -> String {
    let mut cause: &dyn std::error::Error = e;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

/// Runs the connection while `wanted` is waited for. A connection that ends says so through `wanted`.
async fn drive<F: Future>(driver: &mut Option<Driver>, wanted: F) -> F::Output {
    let mut wanted = pin!(wanted);
    poll_fn(|cx: &mut Context<'_>| {
        if let Some(d) = driver
            && d.as_mut().poll(cx).is_ready()
        {
            *driver = None;
        }
        match wanted.as_mut().poll(cx) {
            // The driver may have just been given what `wanted` queued: let it run once more.
            Poll::Pending => {
                if let Some(d) = driver
                    && d.as_mut().poll(cx).is_ready()
                {
                    *driver = None;
                    return wanted.as_mut().poll(cx);
                }
                Poll::Pending
            }
            ready => ready,
        }
    })
    .await
}
