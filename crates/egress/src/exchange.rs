//! One HTTP exchange: one request to one checked address, and what came of it.
//!
//! Promises: no byte of a request after its exeat's `not_after`, read from the monotonic clock right before
//! the first one; the whole exchange ends by then; headers and body are bounded; nothing is decoded,
//! redirected, retried or pooled (a message written to a kept connection that the peer was just closing would
//! leave its hop in doubt); what comes back holds no secret that went out. The result says whether the
//! peer can have seen the request: that decides if a hop may be sent again.

mod request;

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exeat_core::time::{Monotonic, Span};
use http::header::{CONTENT_ENCODING, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use self::request::{Request, is_reserved};
use crate::connect::{ConnectError, Dialer, Stream};
use crate::credential::echo::Echoes;
use crate::target::{Entry, Origin, Platform, TargetRefused};

/// At most this many response headers.
const MOST_HEADERS: usize = 100;
/// hyper's smallest read buffer is 8 KiB; this leaves room for a full head and some body.
const READ_BUFFER: usize = 64 * 1024;

/// What came of an exchange.
#[derive(Debug)]
pub(crate) enum Exchanged {
    /// The peer can't have seen any of the request.
    NotSent(NotSent),
    /// A whole answer.
    Answered(Answer),
    /// The peer answered, with something that isn't read.
    Unusable(Unusable),
    /// The request, or some of it, was written, and no whole answer came: the peer may have acted on it.
    Ambiguous(Ambiguous),
}

/// Why nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSent {
    /// Outside what the entry and the platform allow; nothing was looked up.
    #[error("{0}")]
    Target(#[from] TargetRefused),
    /// The credential is for another origin; nothing was looked up.
    #[error("the credential is not for {0}")]
    CredentialElsewhere(Origin),
    /// No connection.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The permit's time was over before the first byte.
    #[error("the permit ran out before the first byte")]
    Expired,
    /// The time for the whole exchange was over before the first byte.
    #[error("the time was over before the first byte")]
    TimedOut,
    /// The connection was lost before the first byte.
    #[error("the connection was closed before the first byte")]
    Closed,
    /// The request can't be written as HTTP.
    #[error("the request cannot be written")]
    Malformed,
}

/// A whole answer, without the secrets that were sent.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status; never 1xx or 3xx.
    pub(crate) status: StatusCode,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body, as it came.
    pub(crate) body: Bytes,
    /// What to take out of texts that were unescaped from the body.
    pub(crate) echoes: Echoes,
}

impl Answer {
    /// A header as text, if it is there and is text.
    #[must_use]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer that isn't read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// Its status, if the head could be read.
    pub(crate) status: Option<StatusCode>,
    /// `Retry-After`, as it came.
    pub(crate) retry_after: Option<String>,
    /// Why.
    pub(crate) why: Unread,
}

/// Why an answer isn't read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// It sends us elsewhere, and we don't go. Where, for the operator.
    #[error("redirected to {0:?}, which is not followed")]
    Redirect(String),
    /// Head or body over the bound.
    #[error("the answer is larger than allowed")]
    TooLarge,
    /// Compressed though `identity` was asked for.
    #[error("the answer is encoded as {0:?} though no encoding was asked for")]
    Encoded(String),
    /// Another protocol, or not HTTP.
    #[error("the answer is not HTTP/1.1")]
    NotHttp,
}

/// Why nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ambiguous {
    /// The connection ended before the answer did.
    #[error("the connection was closed before a whole answer came")]
    Closed,
    /// The time was over before the answer was whole.
    #[error("no whole answer came in time")]
    TimedOut,
}

/// Bounds of every exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For look-up, connection and TLS together.
    pub connect: Span,
    /// For the whole exchange; a permit that ends earlier ends it earlier.
    pub total: Span,
    /// Response head at most, in bytes.
    pub head_bytes: usize,
    /// Response body at most, in bytes.
    pub body_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connect: Span::of_secs(10),
            total: Span::of_secs(30),
            head_bytes: 32 * 1024,
            body_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Reads this process's monotonic clock.
pub type MonotonicClock = Arc<dyn Fn() -> Monotonic + Send + Sync>;

/// Makes exchanges.
#[derive(Clone)]
pub(crate) struct Connector {
    dialer: Dialer,
    platform: Arc<Platform>,
    bounds: Bounds,
    clock: MonotonicClock,
}

impl Connector {
    /// Of a dialer, the platform's bounds and a monotonic clock.
    pub(crate) fn new(
        dialer: Dialer,
        platform: Arc<Platform>,
        bounds: Bounds,
        clock: MonotonicClock,
    ) -> Self {
        Self { dialer, platform, bounds, clock }
    }

    /// What the platform allows.
    #[must_use]
    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Reads the monotonic clock.
    #[must_use]
    pub(crate) fn now(&self) -> Monotonic {
        (self.clock)()
    }

    /// One exchange, cleared against `entry` and the platform, over by `not_after`.
    pub(crate) async fn exchange(&self, entry: &Entry, request: Request, not_after: Monotonic) -> Exchanged {
        if let Err(refused) = self.platform.check(entry, &request.target) {
            return Exchanged::NotSent(refused.into());
        }
        let origin = request.target.origin();
        if request.credential.as_ref().is_some_and(|c| c.origin != *origin) {
            return Exchanged::NotSent(NotSent::CredentialElsewhere(origin.clone()));
        }
        let left = not_after.left((self.clock)());
        if left == Span::ZERO {
            return Exchanged::NotSent(NotSent::Expired);
        }
        let fuse = Arc::new(Fuse {
            clock: Arc::clone(&self.clock),
            not_after,
            begun: AtomicBool::new(false),
            blown: AtomicBool::new(false),
        });
        let total = Duration::from(left.min(self.bounds.total));
        match tokio::time::timeout(total, self.run(entry, request, total, &fuse)).await {
            Ok(exchanged) => exchanged,
            Err(_) if fuse.has_begun() => Exchanged::Ambiguous(Ambiguous::TimedOut),
            Err(_) if left <= self.bounds.total => Exchanged::NotSent(NotSent::Expired),
            Err(_) => Exchanged::NotSent(NotSent::TimedOut),
        }
    }

    async fn run(&self, entry: &Entry, request: Request, total: Duration, fuse: &Arc<Fuse>) -> Exchanged {
        let connect = Duration::from(self.bounds.connect).min(total);
        let dialled =
            self.dialer.dial(&request.target, &self.platform.addresses, &entry.networks, connect).await;
        let stream = match dialled {
            Ok(stream) => stream,
            Err(e) => return Exchanged::NotSent(e.into()),
        };
        let echoes = request.echoes();
        let request = match request.into_http() {
            Ok(request) => request,
            Err(e) => return Exchanged::NotSent(e),
        };
        let io = TokioIo::new(Fused { stream, fuse: Arc::clone(fuse) });
        let handshake = http1::Builder::new()
            .max_headers(MOST_HEADERS)
            .max_header_size(self.bounds.head_bytes)
            .max_buf_size(READ_BUFFER.max(self.bounds.head_bytes))
            .handshake(io)
            .await;
        let Ok((mut sender, connection)) = handshake else { return fuse.lost() };
        let answer = async {
            let response = match sender.send_request(request).await {
                Ok(response) => response,
                Err(e) => return fuse.failed(&e),
            };
            self.read(response, echoes, fuse).await
        };
        let (mut answer, mut connection) = (pin!(answer), pin!(connection));
        tokio::select! {
            biased;
            exchanged = &mut answer => exchanged,
            // Its fault, if any, reaches the answer's side; what was read before it is still there.
            _ = &mut connection => answer.await,
        }
    }

    async fn read(&self, response: http::Response<Incoming>, echoes: Echoes, fuse: &Fuse) -> Exchanged {
        let (head, mut body) = response.into_parts();
        let status = head.status;
        let headers = scrubbed(head.headers, &echoes);
        let text = |name: &HeaderName| {
            let value = headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()));
            value.map(|v| v.chars().filter(|c| !c.is_control()).take(200).collect::<String>())
        };
        let unusable = |why| {
            let retry_after = text(&http::header::RETRY_AFTER);
            Exchanged::Unusable(Unusable { status: Some(status), retry_after, why })
        };
        if status.is_informational() {
            return unusable(Unread::NotHttp);
        }
        if status.is_redirection() {
            return unusable(Unread::Redirect(text(&LOCATION).unwrap_or_default()));
        }
        if headers.get_all(CONTENT_ENCODING).iter().any(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return unusable(Unread::Encoded(text(&CONTENT_ENCODING).unwrap_or_default()));
        }
        let most = self.bounds.body_bytes;
        if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
            return unusable(Unread::TooLarge);
        }
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) if whole.len() + data.len() > most => return unusable(Unread::TooLarge),
                Ok(Ok(data)) => whole.extend_from_slice(&data),
                Ok(Err(_trailers)) => {}
                Err(_) => return fuse.lost(),
            }
        }
        let body = echoes.scrub(whole.freeze());
        Exchanged::Answered(Answer { status, headers, body, echoes })
    }
}

fn scrubbed(headers: HeaderMap, echoes: &Echoes) -> HeaderMap {
    let clean = |value: HeaderValue| {
        let bytes = echoes.scrub(Bytes::copy_from_slice(value.as_bytes()));
        HeaderValue::from_maybe_shared(bytes).ok()
    };
    let mut out = HeaderMap::with_capacity(headers.keys_len());
    let mut last = None;
    for (name, value) in headers {
        last = name.or(last);
        if let (Some(name), Some(value)) = (&last, clean(value)) {
            out.append(name.clone(), value);
        }
    }
    out
}

/// Stands between HTTP and the stream: no first byte after `not_after`, and it knows if there was one.
struct Fuse {
    clock: MonotonicClock,
    not_after: Monotonic,
    begun: AtomicBool,
    blown: AtomicBool,
}

impl Fuse {
    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Lets a write through, or not.
    fn burn(&self) -> io::Result<()> {
        if !self.has_begun() && self.not_after.left((self.clock)()) == Span::ZERO {
            self.blown.store(true, Ordering::Release);
            return Err(io::Error::other("the permit ran out"));
        }
        Ok(())
    }

    /// Whether the peer can have seen bytes after a write that ended like this. A failed write in clear
    /// wrote nothing; one under TLS may have written some of a record.
    fn wrote(&self, stream: &Stream, result: &Poll<io::Result<usize>>) {
        let seen = match result {
            Poll::Pending => false,
            Poll::Ready(Ok(n)) => *n > 0,
            Poll::Ready(Err(_)) => matches!(stream, Stream::Tls(_)),
        };
        if seen {
            self.begun.store(true, Ordering::Release);
        }
    }

    fn lost(&self) -> Exchanged {
        if self.has_begun() {
            Exchanged::Ambiguous(Ambiguous::Closed)
        } else if self.blown.load(Ordering::Acquire) {
            Exchanged::NotSent(NotSent::Expired)
        } else {
            Exchanged::NotSent(NotSent::Closed)
        }
    }

    fn failed(&self, e: &hyper::Error) -> Exchanged {
        let unusable = |why| Exchanged::Unusable(Unusable { status: None, retry_after: None, why });
        if !self.has_begun() {
            self.lost()
        } else if e.is_parse_too_large() {
            unusable(Unread::TooLarge)
        } else if e.is_parse() {
            unusable(Unread::NotHttp)
        } else {
            self.lost()
        }
    }
}

struct Fused {
    stream: Stream,
    fuse: Arc<Fuse>,
}

impl AsyncRead for Fused {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Fused {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.fuse.burn()?;
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.fuse.wrote(&this.stream, &result);
        result
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
