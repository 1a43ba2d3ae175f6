//! How an agent is shown a credential: a handle to where it lies, never the secret, and the header that carries it.

use serde::{Deserialize, Serialize};

use crate::id::Malformed;

/// How a credential is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Credential {
    /// `Authorization: Bearer …`.
    Bearer {
        /// The handle: `env:NAME` or `file:PATH`.
        from: Handle,
    },
    /// A header of its own.
    Header {
        /// The handle.
        from: Handle,
        /// The header's name.
        header: HeaderName,
    },
}

impl Credential {
    /// The handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        match self {
            Self::Bearer { from } | Self::Header { from, .. } => from,
        }
    }
}

/// Names a secret without holding it: `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Handle {
    /// An environment variable of the server.
    Env(String),
    /// A file beneath `credentials/{org}/`.
    File(String),
}

impl TryFrom<String> for Handle {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        let bad = || {
            Malformed::new(
                "credential handle",
                "env:NAME, or file:PATH beneath the org's credentials folder",
                &s,
            )
        };
        match s.split_once(':') {
            Some(("env", n)) if is_env_name(n) => Ok(Self::Env(n.to_owned())),
            Some(("file", p)) if is_inner_path(p) => Ok(Self::File(p.to_owned())),
            _ => Err(bad()),
        }
    }
}

fn is_env_name(n: &str) -> bool {
    (1..=128).contains(&n.len())
        && !n.starts_with(|c: char| c.is_ascii_digit())
        && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_inner_path(p: &str) -> bool {
    let part_ok = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    (1..=256).contains(&p.len()) && p.split('/').all(part_ok)
}

impl From<Handle> for String {
    fn from(h: Handle) -> String {
        match h {
            Handle::Env(n) => format!("env:{n}"),
            Handle::File(p) => format!("file:{p}"),
        }
    }
}

/// A header name that a credential may travel in (RFC 9110 token; none that HTTP itself needs).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderName(String);

impl HeaderName {
    /// The text, lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HeaderName {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        const TAKEN: [&str; 12] = [
            "host",
            "content-length",
            "content-type",
            "transfer-encoding",
            "connection",
            "te",
            "trailer",
            "upgrade",
            "accept",
            "accept-encoding",
            "a2a-version",
            "expect",
        ];
        let lower = s.to_ascii_lowercase();
        let token =
            (1..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if token && !TAKEN.contains(&lower.as_str()) {
            Ok(Self(lower))
        } else {
            Err(Malformed::new("credential header", "a header name that the protocol doesn't use itself", &s))
        }
    }
}

impl From<HeaderName> for String {
    fn from(h: HeaderName) -> String {
        h.0
    }
}
