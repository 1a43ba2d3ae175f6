//! What one request says: an allow list of headers, a body of ours, a credential for one origin.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::Full;
use secrecy::SecretString;

use super::NotSent;
use crate::credential::Presented;
use crate::credential::echo::Echoes;
use crate::target::Target;

/// Headers that the exchange sets itself, that belong to the connection, or that frame or route the message.
/// Neither a caller nor a credential may set one.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    const OURS: [HeaderName; 13] = [
        ACCEPT,
        ACCEPT_ENCODING,
        CONNECTION,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        EXPECT,
        HOST,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        USER_AGENT,
    ];
    OURS.contains(name)
        || *name == PROXY_AUTHORIZATION
        || ["keep-alive", "proxy-connection", "a2a-version", "a2a-extensions", "forwarded", "via"]
            .contains(&name.as_str())
        || name.as_str().starts_with("x-forwarded-")
}

/// What one request says. Built up from nothing, so that nothing of a caller's own request can be in it.
#[derive(Debug)]
pub(crate) struct Request {
    method: Method,
    pub(super) target: Target,
    headers: HeaderMap,
    body: Bytes,
    pub(super) credential: Option<Presented>,
    secrets: Vec<SecretString>,
}

/// A header that can't be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header {0} is not one that may be set, or its value holds a character that no header may carry")]
pub(crate) struct BadHeader(String);

impl Request {
    /// A GET.
    #[must_use]
    pub(crate) fn get(target: Target) -> Self {
        Self::new(Method::GET, target, Bytes::new())
    }
    /// A POST of JSON.
    #[must_use]
    pub(crate) fn post_json(target: Target, body: Bytes) -> Self {
        let mut request = Self::new(Method::POST, target, body);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }
    fn new(method: Method, target: Target, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/a2a+json"));
        Self { method, target, headers, body, credential: None, secrets: Vec::new() }
    }
    /// Says which version of the protocol the request speaks (`A2A-Version`, A2A 1.0 §3.6).
    ///
    /// # Errors
    /// [`BadHeader`].
    pub(crate) fn version(mut self, version: &str) -> Result<Self, BadHeader> {
        let value = HeaderValue::from_str(version).map_err(|_| BadHeader("a2a-version".to_owned()))?;
        self.headers.insert(HeaderName::from_static("a2a-version"), value);
        Ok(self)
    }
    /// Shows this credential.
    #[must_use]
    pub(crate) fn credential(mut self, credential: Option<Presented>) -> Self {
        self.credential = credential;
        self
    }
    /// Names a secret that the body carries, so that its echo is taken out of the answer as well.
    #[must_use]
    pub(crate) fn carries(mut self, secret: SecretString) -> Self {
        self.secrets.push(secret);
        self
    }

    pub(super) fn echoes(&self) -> Echoes {
        Echoes::of(self.credential.iter().map(Presented::secret).chain(&self.secrets))
    }

    pub(super) fn into_http(self) -> Result<http::Request<Full<Bytes>>, NotSent> {
        let origin = self.target.origin();
        let host = HeaderValue::from_str(&origin.authority()).map_err(|_| NotSent::Malformed)?;
        let mut request = http::Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.target.path_and_query().clone().into();
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        headers.extend(self.headers);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("exeat/", env!("CARGO_PKG_VERSION"))));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(c) = self.credential {
            headers.insert(c.name, c.value);
        }
        Ok(request)
    }
}
