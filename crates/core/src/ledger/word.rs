//! The words that a record is made of: ids, codes, digests and parties, each bounded.
//!
//! A record is for ever, so nothing may get in that has to be erased one day. Free text (an approver's
//! reason, an agent's error) lies beside, and the record holds a salted digest of it, or a code. What an
//! outsider coined (a foreign task id, a skill) is kept word for word while it is short and printable,
//! and by its digest otherwise: no outsider can make a record too big to be written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::endpoint::Endpoint;
use crate::id::{KeyId, Malformed};
use crate::payload::{Sealed, Sha256Digest};

/// A reason or a status as a code: `[a-z0-9_]{1,64}`, e.g. `attempts_exhausted`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Code(String);

impl Code {
    /// The code of one of our own constants. A character outside the grammar becomes `_`, so that a
    /// record is never lost over a spelling.
    #[must_use]
    pub fn of(constant: &'static str) -> Self {
        let plain = |b: u8| if is_code_byte(b) { char::from(b) } else { '_' };
        let text: String = constant.bytes().take(64).map(plain).collect();
        Self(if text.is_empty() { "unspecified".to_owned() } else { text })
    }
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_code_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'
}

impl TryFrom<String> for Code {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        let ok = (1..=64).contains(&s.len()) && s.bytes().all(is_code_byte);
        if ok { Ok(Self(s)) } else { Err(Malformed::new("code", "1 to 64 of [a-z0-9_]", &s)) }
    }
}

impl FromStr for Code {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        Self::try_from(s.to_owned())
    }
}

/// An identifier that somebody else coined. At most 256 bytes without control characters stand as they
/// are; anything else is `sha256:` and the hex of its SHA-256 (as is what already looks like that, so
/// that the two can't be confused).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct OutsideId(String);

impl OutsideId {
    /// Takes any text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let fits = text.len() <= 256 && !text.chars().any(char::is_control) && !text.starts_with("sha256:");
        Self(if fits { text.to_owned() } else { Sha256Digest::of(text.as_bytes()).to_string() })
    }
    /// The text as recorded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for OutsideId {
    fn from(s: &str) -> Self {
        Self::of(s)
    }
}

impl From<String> for OutsideId {
    // Reads a record back: a digest stands for itself.
    fn from(s: String) -> Self {
        if Sha256Digest::try_from(s.clone()).is_ok() { Self(s) } else { Self::of(&s) }
    }
}

/// `sha256s:` and the hex of SHA-256(salt ‖ bytes): proves content while its 32-byte salt exists, says
/// nothing about it once the salt is erased, however short the content was.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SaltedDigest(String);

impl SaltedDigest {
    /// Of these bytes under this salt. The salt is kept beside the bytes, never in a record.
    #[must_use]
    pub fn of(salt: &[u8; 32], bytes: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(salt).chain_update(bytes).finalize();
        Self(format!("sha256s:{}", hex::encode(hash)))
    }
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Sealed> for SaltedDigest {
    fn from(sealed: &Sealed) -> Self {
        Self::of(&sealed.salt, &sealed.bytes)
    }
}

impl TryFrom<String> for SaltedDigest {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        let hex64 = |h: &str| h.len() == 64 && h.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if s.strip_prefix("sha256s:").is_some_and(hex64) {
            Ok(Self(s))
        } else {
            Err(Malformed::new("salted digest", "sha256s: and 64 hex digits", &s))
        }
    }
}

impl FromStr for SaltedDigest {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        Self::try_from(s.to_owned())
    }
}

/// An end of an edge: `coordinator`, `key:ID`, or an endpoint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Party {
    /// Ourselves.
    Coordinator,
    /// The holder of an API key, who asked for a task.
    Key(KeyId),
    /// A role, team or foreign agent.
    Endpoint(Endpoint),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("coordinator"),
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Endpoint(e) => e.fmt(f),
        }
    }
}

impl FromStr for Party {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        match s.split_once(':') {
            None if s == "coordinator" => Ok(Self::Coordinator),
            Some(("key", id)) => id.parse().map(Self::Key),
            _ => s.parse().map(Self::Endpoint),
        }
    }
}

impl TryFrom<String> for Party {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<Party> for String {
    fn from(p: Party) -> Self {
        p.to_string()
    }
}

impl From<Endpoint> for Party {
    fn from(e: Endpoint) -> Self {
        Self::Endpoint(e)
    }
}

macro_rules! shows_its_text {
    ($($name:ident)*) => {$(
        impl From<$name> for String {
            fn from(w: $name) -> Self {
                w.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

shows_its_text! { Code OutsideId SaltedDigest }

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_outsider_coined_is_bounded_and_never_mistaken_for_a_digest() {
        let long = "x".repeat(100_000);
        for (text, verbatim) in [
            ("task-1", true),
            ("Ünïcode 9", true),
            ("", true),
            ("a\nb", false),
            ("sha256:me", false),
            (long.as_str(), false),
        ] {
            let id = OutsideId::of(text);
            assert_eq!(id.as_str() == text, verbatim, "{text:.20}");
            assert!(id.as_str().len() <= 256);
            assert_eq!(OutsideId::from(id.as_str().to_owned()), id, "reads back");
        }
        let digest = OutsideId::of(&long);
        assert_ne!(OutsideId::of(digest.as_str()), digest);
    }

    #[test]
    fn free_text_is_no_code_and_no_digest() {
        for bad in ["", "Because I say so", "a b", "sha256s:00", &"x".repeat(65)] {
            assert!(Code::try_from(bad.to_owned()).is_err(), "{bad}");
            assert!(SaltedDigest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
        assert_eq!(Code::of("Not Ok").as_str(), "_ot__k");
        assert_eq!(Code::of("").as_str(), "unspecified");
    }

    #[test]
    fn a_party_reads_back_from_its_text() {
        for ok in ["coordinator", "key:k1", "role:writer", "agent:auditor", "team:ops"] {
            assert_eq!(ok.parse::<Party>().map(|p| p.to_string()), Ok(ok.to_owned()));
        }
        for bad in ["", "me", "key:", "coordinator:x", "https://x"] {
            assert!(bad.parse::<Party>().is_err(), "{bad}");
        }
    }
}
