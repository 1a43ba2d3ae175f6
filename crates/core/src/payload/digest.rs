//! Digests of payload bytes: the plain one that an approver names, and the salted one that the ledger holds.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::Ids;

/// Plain SHA-256 of bytes, printed `sha256:…`: what an approver's digest covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// Hashes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
    /// The digest itself.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl std::fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = crate::id::Malformed;
    fn try_from(s: String) -> Result<Self, Self::Error> {
        let bad = || crate::id::Malformed::new("digest", "sha256: and 64 hex digits", &s);
        let text = s.strip_prefix("sha256:").ok_or_else(bad)?;
        let mut out = [0; 32];
        hex::decode_to_slice(text, &mut out).map_err(|_| bad())?;
        Ok(Self(out))
    }
}

impl From<Sha256Digest> for String {
    fn from(d: Sha256Digest) -> String {
        d.to_string()
    }
}

/// A payload at rest: its bytes and the salt that its ledger digest is made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed {
    /// The payload bytes.
    pub bytes: Vec<u8>,
    /// 32 random bytes, kept with the payload and erased with it.
    pub salt: [u8; 32],
}

impl Sealed {
    /// Seals payload bytes with a fresh salt.
    #[must_use]
    pub fn new(bytes: Vec<u8>, ids: &mut Ids) -> Self {
        Self { bytes, salt: ids.bytes() }
    }

    /// What the ledger holds: `sha256s:` + hex of SHA-256(salt ‖ payload bytes).
    #[must_use]
    pub fn digest(&self) -> String {
        let hash = Sha256::new().chain_update(self.salt).chain_update(&self.bytes).finalize();
        format!("sha256s:{}", hex::encode(hash))
    }
}
