//! One call of the API, as data: it can be repeated, with the same idempotency key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde::Serialize;
use url::{Position, Url};

/// A call. Its path is given by segments, each of which is escaped, so that no name can leave its place.
#[derive(Clone)]
pub(crate) struct Call {
    method: Method,
    prefix: &'static [&'static str],
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
    patience: Duration,
}

impl Call {
    fn new(method: Method, segments: &[&str]) -> Self {
        Self {
            method,
            prefix: &["api", "v1"],
            segments: segments.iter().map(|s| (*s).to_owned()).collect(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
            patience: Duration::from_secs(30),
        }
    }

    /// Reads; segments are those below `/api/v1`.
    pub(crate) fn get(segments: &[&str]) -> Self {
        Self::new(Method::GET, segments)
    }

    /// Reads what lies beside the API: `healthz`, `readyz`.
    pub(crate) fn root(name: &str) -> Self {
        Self { prefix: &[], ..Self::get(&[name]) }
    }

    /// Removes.
    pub(crate) fn delete(segments: &[&str]) -> Self {
        Self::new(Method::DELETE, segments)
    }

    /// Acts. Draws the idempotency key that all tries share.
    pub(crate) fn post(segments: &[&str], body: &impl Serialize) -> Self {
        Self::new(Method::POST, segments)
            .header(HeaderName::from_static("idempotency-key"), idempotency_key())
            .json(body)
    }

    /// Acts on text, as [`Call::post`].
    pub(crate) fn post_text(segments: &[&str], media: &str, text: String) -> Self {
        Self::new(Method::POST, segments)
            .header(HeaderName::from_static("idempotency-key"), idempotency_key())
            .text(media, text)
    }

    /// Writes.
    pub(crate) fn put(segments: &[&str], body: &impl Serialize) -> Self {
        Self::new(Method::PUT, segments).json(body)
    }

    /// Writes a text.
    pub(crate) fn put_text(segments: &[&str], media: &str, text: String) -> Self {
        Self::new(Method::PUT, segments).text(media, text)
    }

    fn json(self, body: &impl Serialize) -> Self {
        // Only values whose keys are strings are passed here, so this can't fail; an empty body is refused.
        let text = serde_json::to_string(body).unwrap_or_default();
        self.text("application/json", text)
    }

    fn text(mut self, media: &str, text: String) -> Self {
        self.body = Bytes::from(text);
        self.header(header::CONTENT_TYPE, media)
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds to the query.
    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Adds to the query what is given.
    pub(crate) fn query_if(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(v) => self.query(name, v),
            None => self,
        }
    }

    /// The server may take this much longer than usual before it answers.
    pub(crate) fn long_poll(mut self, wait: Duration) -> Self {
        self.patience += wait;
        self
    }

    /// How long the head of the answer is waited for.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Is a second try harmless when the first may have arrived? Reads are; a POST is by its key. A PUT
    /// with `If-Match` would find its own effect and report a conflict.
    pub(crate) fn may_repeat(&self) -> bool {
        self.method == Method::GET || self.method == Method::POST
    }

    /// The request, for one try.
    pub(crate) fn request(
        &self,
        base: &Url,
        authorization: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut url = base.clone();
        url.path_segments_mut()
            .map_err(|()| "the server's URL can't have a path".to_owned())?
            .pop_if_empty()
            .extend(self.prefix)
            .extend(&self.segments);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&url[Position::BeforePath..Position::AfterQuery])
            .header(header::HOST, host)
            .header(header::CONNECTION, "close")
            .header(header::USER_AGENT, concat!("exeat/", env!("CARGO_PKG_VERSION")));
        if let Some(a) = authorization {
            request = request.header(header::AUTHORIZATION, a);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.clone())).map_err(|e| format!("cannot form the request: {e}"))
    }
}

/// 16 random bytes, base64url.
#[expect(clippy::disallowed_methods, reason = "a client's key must differ in each call; nothing replays it")]
fn idempotency_key() -> String {
    let mut bytes = [0; 16];
    // Without randomness the key would repeat; an empty one is refused by the server instead.
    match getrandom::fill(&mut bytes) {
        Ok(()) => URL_SAFE_NO_PAD.encode(bytes),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(base: &str, call: &Call) -> Request<Full<Bytes>> {
        call.request(&Url::parse(base).unwrap(), None).unwrap()
    }

    #[test]
    fn a_name_never_leaves_its_place_in_the_path() {
        for (base, name, path) in [
            ("http://h:1", "a", "/api/v1/agents/a/sign"),
            ("http://h:1/", "a/../b?x#y", "/api/v1/agents/a%2F..%2Fb%3Fx%23y/sign"),
            ("http://h/gw/", "agent:k", "/gw/api/v1/agents/agent:k/sign"),
        ] {
            let r = request(base, &Call::get(&["agents", name, "sign"]));
            assert_eq!(r.uri().to_string(), path);
        }
        let r = request("http://[::1]:7", &Call::get(&["tasks"]).query("status", "a&b").query("limit", 5));
        assert_eq!(r.uri().to_string(), "/api/v1/tasks?status=a%26b&limit=5");
        assert_eq!(r.headers()["host"], "[::1]:7");
    }

    #[test]
    fn tries_of_one_post_share_a_key_and_two_posts_do_not() {
        let key = |c: &Call| request("http://h", c).headers()["idempotency-key"].clone();
        let (a, b) = (Call::post(&["tasks"], &json!({})), Call::post(&["tasks"], &json!({})));
        assert_eq!(key(&a), key(&a));
        assert_ne!(key(&a), key(&b));
        assert_eq!(key(&a).len(), 22);
    }
}
