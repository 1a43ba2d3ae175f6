//! A small HTTP client for **our own API** and nothing else: no redirects, no proxies, no cookies.
//! What leaves for a foreign agent goes through the guarded connector of the gateway, never through here.
//!
//! Promises: every answer is bounded in size and time; a POST carries an `Idempotency-Key` and is repeated
//! with the same key after a broken connection, so that one call has one effect; a problem of the server
//! comes back as it was sent.

mod call;
mod exchange;
pub(crate) mod sse;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode};
use rustls::ClientConfig;
use serde_json::Value;
use url::Url;

pub(crate) use call::Call;
use exchange::Exchange;

use crate::failure::{Exit, Failure, Problem};

/// Bytes of the largest answer that is read whole.
const ANSWER_BYTES: usize = 64 << 20;
/// How often a call is tried before the server counts as unreachable.
const TRIES: u32 = 3;

/// Where our API is, and who asks.
#[derive(Clone)]
pub(crate) struct Client {
    base: Url,
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<HeaderValue>,
}

/// Why a call gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallError {
    /// The server said no.
    Refused(Box<Problem>),
    /// No whole answer came: nobody listens, the connection broke, or it took too long.
    Unreachable(String),
}

impl CallError {
    /// May the same call work later, without anybody changing anything?
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(p) => matches!(p.status(), 429 | 500 | 502..=504),
        }
    }
}

impl From<CallError> for Failure {
    fn from(e: CallError) -> Self {
        match e {
            CallError::Refused(problem) => Self::Said(Exit::Refused, problem),
            CallError::Unreachable(why) => Self::of(
                Exit::Refused,
                Problem::new("unreachable", why).next("is `exeat serve` running there? see --url"),
            ),
        }
    }
}

/// A whole answer, of a status below 300.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON; nothing at all reads as null.
    pub(crate) fn json(&self) -> Result<Value, CallError> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .map_err(|e| CallError::Refused(Box::new(Problem::not_exeats(&format!("it isn't JSON ({e})")))))
    }
}

impl Client {
    /// A client for the server at `url`, e.g. `http://127.0.0.1:7700`, with this API key; `ca` is a file of the
    /// certificates that alone are trusted to vouch for it.
    ///
    /// # Errors
    /// If the URL isn't http or https with a host, the key isn't one line of visible characters, or the CA can't be read.
    pub(crate) fn new(url: &str, key: Option<&str>, ca: Option<&Path>) -> Result<Self, Failure> {
        let bad = |why: &str| Failure::usage(format!("--url {url:?} {why}"));
        let mut base = Url::parse(url).map_err(|e| bad(&format!("isn't a URL: {e}")))?;
        let tls = match base.scheme() {
            "http" => None,
            "https" => Some(tls::config(ca)?),
            _ => return Err(bad("isn't an http or https URL, like http://127.0.0.1:7700")),
        };
        if !base.has_host() || !base.username().is_empty() || base.password().is_some() {
            return Err(bad("must have a host and no user").next("pass the key with --key"));
        }
        base.set_query(None);
        base.set_fragment(None);
        let authorization = key
            .map(|k| {
                let mut value = HeaderValue::from_str(&format!("Bearer {k}"))
                    .map_err(|_| Failure::usage("the API key isn't one line of visible characters"))?;
                value.set_sensitive(true);
                Ok::<_, Failure>(value)
            })
            .transpose()?;
        Ok(Self { base, tls, authorization })
    }

    /// Does the address itself say that the server is on this machine?
    pub(crate) fn is_loopback(url: &str) -> bool {
        Url::parse(url).is_ok_and(|u| match u.host() {
            Some(url::Host::Ipv4(a)) => a.is_loopback(),
            Some(url::Host::Ipv6(a)) => a.is_loopback(),
            Some(url::Host::Domain(d)) => d == "localhost",
            None => false,
        })
    }

    /// Makes one call and reads its answer whole. Broken connections are tried again, with the same
    /// idempotency key, where that can't do a thing twice.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, CallError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let failed = match self.once(call).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let again = match &failed {
                Failed::NotSent(_) => tries < TRIES,
                Failed::Broken(_) => tries < TRIES && call.may_repeat(),
                // Our own first try, whose answer was lost, is still being worked on.
                Failed::Refused(p) => p.code() == "idempotency_in_flight" && tries < 10 * TRIES,
            };
            if !again {
                return Err(failed.into());
            }
            tokio::time::sleep(pause(tries)).await;
        }
    }

    /// As [`Client::send`], with the answer read as JSON.
    pub(crate) async fn json(&self, call: &Call) -> Result<Value, CallError> {
        self.send(call).await?.json()
    }

    /// Opens an answer that is read piece by piece. Tried once.
    pub(crate) async fn open(&self, call: &Call) -> Result<Streamed, CallError> {
        Ok(self.open_once(call).await?)
    }

    async fn open_once(&self, call: &Call) -> Result<Streamed, Failed> {
        let request = call.request(&self.base, self.authorization.as_ref()).map_err(Failed::NotSent)?;
        let mut exchange = Exchange::connect(&self.base, self.tls.as_ref()).await.map_err(Failed::NotSent)?;
        let head = tokio::time::timeout(call.patience(), exchange.ask(request))
            .await
            .map_err(|_| Failed::Broken(format!("no answer within {:?}", call.patience())))?
            .map_err(Failed::Broken)?;
        let streamed = Streamed { headers: head.headers, exchange };
        if head.status.is_success() {
            return Ok(streamed);
        }
        let body = streamed.whole(1 << 20, Duration::from_secs(10)).await.unwrap_or_default();
        if head.status == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            return Err(Failed::Refused(Box::new(Problem::no_key())));
        }
        Err(Failed::Refused(refusal(head.status, &body)))
    }

    async fn once(&self, call: &Call) -> Result<Answer, Failed> {
        let streamed = self.open_once(call).await?;
        let headers = streamed.headers.clone();
        let body = streamed.whole(ANSWER_BYTES, Duration::from_secs(60)).await.map_err(Failed::Broken)?;
        Ok(Answer { headers, body })
    }

    /// Every item of a list, page by page, up to `limit`; as the page it would be.
    pub(crate) async fn pages(&self, call: Call, limit: usize) -> Result<Value, CallError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let want = limit.saturating_sub(items.len()).clamp(1, 200);
            let mut page = call.clone().query("limit", want);
            if let Some(c) = &cursor {
                page = page.query("cursor", c);
            }
            let answer = self.json(&page).await?;
            let Some(found) = answer.get("items").and_then(Value::as_array).cloned() else {
                return Err(CallError::Refused(Box::new(Problem::not_exeats("it is no list of items"))));
            };
            cursor = answer.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
            // A page without items that promises more would be asked for without end.
            let last = cursor.is_none() || found.is_empty();
            items.extend(found);
            if last || items.len() >= limit {
                return Ok(serde_json::json!({ "items": items, "next_cursor": cursor }));
            }
        }
    }
}

/// How long to wait before the next try: 0.2 s, then longer, at most 5 s.
pub(crate) fn pause(tries: u32) -> Duration {
    Duration::from_millis(200 * u64::from(tries).pow(2)).min(Duration::from_secs(5))
}

fn refusal(status: StatusCode, body: &[u8]) -> Box<Problem> {
    if status.is_redirection() {
        let why = format!("the server answered {status}; redirects aren't followed");
        return Box::new(
            Problem::new("unexpected_answer", why).next("give the server's own address to --url"),
        );
    }
    Box::new(Problem::of_answer(status.as_u16(), body))
}

/// How one try failed, which decides if there is another.
enum Failed {
    /// Not a byte of the request left.
    NotSent(String),
    /// The request may have arrived.
    Broken(String),
    Refused(Box<Problem>),
}

impl From<Failed> for CallError {
    fn from(f: Failed) -> Self {
        match f {
            Failed::NotSent(why) | Failed::Broken(why) => Self::Unreachable(why),
            Failed::Refused(p) => Self::Refused(p),
        }
    }
}

/// An answer whose body is still coming.
pub(crate) struct Streamed {
    headers: HeaderMap,
    exchange: Exchange,
}

impl Streamed {
    /// The next piece; `None` at the end. Fails if none comes within `idle`.
    pub(crate) async fn piece(&mut self, idle: Duration) -> Result<Option<Bytes>, CallError> {
        match tokio::time::timeout(idle, self.exchange.piece()).await {
            Ok(Ok(piece)) => Ok(piece),
            Ok(Err(why)) => Err(CallError::Unreachable(why)),
            Err(_) => Err(CallError::Unreachable(format!("nothing came for {idle:?}"))),
        }
    }

    async fn whole(mut self, max: usize, idle: Duration) -> Result<Bytes, String> {
        let mut body = BytesMut::new();
        loop {
            match tokio::time::timeout(idle, self.exchange.piece()).await {
                Err(_) => return Err(format!("nothing came for {idle:?}")),
                Ok(Err(why)) => return Err(why),
                Ok(Ok(None)) => return Ok(body.freeze()),
                Ok(Ok(Some(piece))) if body.len() + piece.len() <= max => body.extend_from_slice(&piece),
                Ok(Ok(Some(_))) => return Err(format!("the answer is larger than {max} bytes")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_url_with_a_host_and_no_user_is_a_server() {
        for ok in
            ["http://127.0.0.1:7700", "http://[::1]:7700", "http://exeat.internal/gateway/", "https://x"]
        {
            assert!(Client::new(ok, None, None).is_ok(), "{ok}");
        }
        for bad in ["", "127.0.0.1:7700", "https://u@x", "ftp://x", "http://u:p@x", "http://", "file:///x"] {
            assert_eq!(Client::new(bad, None, None).err().map(|f| f.exit()), Some(Exit::Usage), "{bad}");
        }
        assert!(Client::new("http://x", Some("two\nlines"), None).is_err());
    }

    #[test]
    fn only_loopback_addresses_count_as_this_machine() {
        for yes in ["http://127.0.0.1:1", "http://[::1]", "http://localhost:7700"] {
            assert!(Client::is_loopback(yes), "{yes}");
        }
        for no in ["http://127.0.0.1.example", "http://10.0.0.1", "http://localhost.example", "x"] {
            assert!(!Client::is_loopback(no), "{no}");
        }
    }
}
