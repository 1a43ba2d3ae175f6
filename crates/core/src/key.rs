//! Keys derived from the installation's root, and the tokens that are made with them.
//!
//! Promises: a key serves one purpose of one org in one epoch, so what was made for one of them verifies
//! for no other; comparisons take constant time; a token's text is bounded before anything is done with
//! it; to the outside every bad token is the same. Never: shows, prints or stores a key; draws randomness
//! (seeds and key ids come in from outside).
//!
//! Source: RFC 5869 (HKDF), RFC 2104 (HMAC), both with SHA-256.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::id::{CallbackId, Ids, Malformed, OrgName};
use crate::time::Timestamp;

const SALT: &[u8] = b"exeat/v1";
const CALLBACK: &[u8] = b"exeat-a2a-callback-v1";
const TOKEN_BYTES: usize = 256;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Tokens that foreign agents bring back.
    Callback,
    /// Links to approvals.
    Approval,
    /// Forms of the console.
    Csrf,
    /// Cursors of pages.
    Cursor,
    /// Signatures on what we push.
    Webhook,
    /// Sealing of stored secrets.
    Seal,
    /// Telling at start whether this root is the one the store was made with.
    Check,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Callback, Self::Approval, Self::Csrf, Self::Cursor, Self::Webhook, Self::Seal, Self::Check];

    /// The word that goes into the derivation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Callback => "callback",
            Self::Approval => "approval",
            Self::Csrf => "csrf",
            Self::Cursor => "cursor",
            Self::Webhook => "webhook",
            Self::Seal => "seal",
            Self::Check => "check",
        }
    }
}

/// The installation's root secret. Wiped when dropped; has no `Debug`, no serialisation and no getter.
///
/// ```compile_fail,E0277
/// fn shown<T: std::fmt::Debug>() {}
/// shown::<exeat_core::key::Root>();
/// ```
pub struct Root(Zeroizing<[u8; 32]>);

impl Root {
    /// Of 32 random bytes.
    #[must_use]
    pub fn of(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// What is stored beside an installation's data, so that another root over it is noticed at start. It
    /// tells nothing about any key.
    #[must_use]
    pub fn check(&self) -> [u8; 32] {
        derive(self, Purpose::Check, None, 0).tag(&[b"exeat-root-check-v1"])
    }
}

/// A derived key. Wiped when dropped; has no `Debug`, no serialisation and no getter.
///
/// ```compile_fail,E0277
/// fn shown<T: std::fmt::Debug>() {}
/// shown::<exeat_core::key::SubKey>();
/// ```
#[derive(Clone)]
pub struct SubKey(Zeroizing<[u8; 32]>);

/// Derives the key of a purpose, an org (or none: of the whole installation) and an epoch.
#[must_use]
pub fn derive(root: &Root, purpose: Purpose, org: Option<&OrgName>, epoch: u32) -> SubKey {
    let mut info = Vec::with_capacity(128);
    let org = org.map_or("", OrgName::as_str);
    for part in [purpose.as_str().as_bytes(), org.as_bytes(), &epoch.to_be_bytes()] {
        frame(part, |bytes| info.extend_from_slice(bytes));
    }
    let (prk, _) = Hkdf::<Sha256>::extract(Some(SALT), root.0.as_slice());
    let prk = Zeroizing::new(<[u8; 32]>::from(prk));
    // HKDF-Expand to one block is HMAC(prk, info ‖ 0x01); written out, since it can't fail this way.
    SubKey(Zeroizing::new(keyed(&prk).chain_update(&info).chain_update([1]).finalize().into_bytes().into()))
}

/// HMAC under a 32-byte key; padding the key to the block by hand leaves no error to handle.
fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(b, k)| *b = *k);
    Hmac::new(&(*block).into())
}

/// A part with its length before it, four bytes, so that neighbours can't slide into each other.
fn frame(part: &[u8], mut sink: impl FnMut(&[u8])) {
    sink(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    sink(part);
}

impl SubKey {
    /// HMAC-SHA-256 over the parts, each with its length before it. The first part should say what the
    /// tag is for.
    #[must_use]
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = keyed(&self.0);
        for part in parts {
            frame(part, |bytes| mac.update(bytes));
        }
        mac.finalize().into_bytes().into()
    }

    /// Is `given` the tag of these parts? In constant time.
    #[must_use]
    pub fn is_tag(&self, parts: &[&[u8]], given: &[u8]) -> bool {
        self.tag_eq(parts, given).into()
    }

    fn tag_eq(&self, parts: &[&[u8]], given: &[u8]) -> Choice {
        self.tag(parts).as_slice().ct_eq(given)
    }
}

/// Names a key without saying anything about it: 8 random bytes, as 11 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kid([u8; 8]);

impl Kid {
    /// Draws a new one.
    pub fn draw(ids: &mut Ids) -> Self {
        Self(ids.bytes())
    }
}

impl FromStr for Kid {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let bytes = if s.len() == 11 { URL_SAFE_NO_PAD.decode(s).ok() } else { None };
        bytes
            .and_then(|b| b.try_into().ok())
            .map(Self)
            .ok_or_else(|| Malformed::new("kid", "11 characters of base64url", s))
    }
}

impl TryFrom<String> for Kid {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<Kid> for String {
    fn from(kid: Kid) -> Self {
        kid.to_string()
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a key may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Makes and verifies; one per org and purpose.
    Active,
    /// Verifies what it made, until the last of it has expired.
    Verify,
    /// Neither.
    Retired,
}

impl KeyState {
    /// As the ledger has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Verify => "verify",
            Self::Retired => "retired",
        }
    }
}

/// The setting that lists an org's callback keys.
pub const CALLBACK_KEYS: &str = "callback_keys";

/// A callback key, as the record lists it: what it is derived from, and nothing of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackKey {
    /// Names it in tokens.
    pub kid: Kid,
    /// What it is derived by.
    pub epoch: u32,
    /// What it may still do.
    pub state: KeyState,
    /// When the last token that was made with it has expired. None: it still makes some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retires_at: Option<Timestamp>,
}

impl CallbackKey {
    /// May anything that was made with it still be good?
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.state != KeyState::Retired && self.retires_at.is_none_or(|at| now <= at)
    }
}

struct Held {
    org: OrgName,
    purpose: Purpose,
    state: KeyState,
    key: SubKey,
}

/// The keys in use, in memory, by key id.
#[derive(Default)]
pub struct Ring {
    keys: HashMap<Kid, Held>,
}

impl Ring {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The callback keys of one org that may still verify something.
    #[must_use]
    pub fn of_callbacks(root: &Root, org: &OrgName, listed: &[CallbackKey], now: Timestamp) -> Self {
        let mut ring = Self::new();
        for key in listed.iter().filter(|k| k.is_live(now)) {
            let derived = derive(root, Purpose::Callback, Some(org), key.epoch);
            ring.insert(key.kid, org.clone(), Purpose::Callback, key.state, derived);
        }
        ring
    }

    /// Adds a key. A new active one moves its org's former one of the same purpose to `verify`.
    pub fn insert(&mut self, kid: Kid, org: OrgName, purpose: Purpose, state: KeyState, key: SubKey) {
        if state == KeyState::Active {
            let former = |h: &&mut Held| h.org == org && h.purpose == purpose && h.state == KeyState::Active;
            self.keys.values_mut().filter(former).for_each(|h| h.state = KeyState::Verify);
        }
        self.keys.insert(kid, Held { org, purpose, state, key });
    }

    /// Retires a key: from now on nothing made with it verifies, and its bytes are wiped.
    pub fn retire(&mut self, kid: Kid) {
        self.keys.remove(&kid);
    }

    /// Does it hold this key, in whatever state? A token of an unknown one is a reason to load the ring
    /// anew (seldom: anybody can make one up).
    #[must_use]
    pub fn knows(&self, kid: Kid) -> bool {
        self.keys.contains_key(&kid)
    }

    /// The org's active key of a purpose.
    #[must_use]
    pub fn active(&self, org: &OrgName, purpose: Purpose) -> Option<(Kid, &SubKey)> {
        self.keys
            .iter()
            .find(|(_, h)| h.org == *org && h.purpose == purpose && h.state == KeyState::Active)
            .map(|(kid, h)| (*kid, &h.key))
    }

    /// All keys of the org that still verify what was made for a purpose.
    fn live(&self, org: &OrgName, purpose: Purpose) -> impl Iterator<Item = (Kid, &SubKey)> {
        let is_live = move |h: &Held| h.org == *org && h.purpose == purpose && h.state != KeyState::Retired;
        self.keys.iter().filter(move |(_, h)| is_live(h)).map(|(kid, h)| (*kid, &h.key))
    }

    /// The key that verifies what `kid` made for a purpose, and its org.
    #[must_use]
    pub fn verifying(&self, kid: Kid, purpose: Purpose) -> Option<(&OrgName, &SubKey)> {
        self.keys
            .get(&kid)
            .filter(|h| h.purpose == purpose && h.state != KeyState::Retired)
            .map(|h| (&h.org, &h.key))
    }
}

/// A callback token, `ec1.{kid}.{exp}.{mac}`: whoever has it may report on one attempt of one hop, until
/// it expires. Wiped when dropped; prints as dots.
pub struct CallbackToken(Zeroizing<String>);

impl CallbackToken {
    /// The text, to be sent to the agent and nowhere else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for CallbackToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackToken(…)")
    }
}

/// The org has no active key to make a token with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the org has no active callback key")]
pub struct NoActiveKey;

/// A token that isn't good here and now. Deliberately says no more: missing, malformed, expired, forged,
/// another org's and another callback's look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the callback token isn't valid")]
pub struct BadToken;

/// Makes the token of a callback id, valid through the second of `exp`.
///
/// # Errors
/// If the org has no active callback key.
pub fn mint_callback(
    ring: &Ring,
    org: &OrgName,
    callback: &CallbackId,
    exp: Timestamp,
) -> Result<CallbackToken, NoActiveKey> {
    let key = ring.active(org, Purpose::Callback).ok_or(NoActiveKey)?;
    Ok(callback_by(key, org, callback, exp))
}

/// The tokens of a callback id by every key that still verifies: what an agent may have been given.
#[must_use]
pub fn callbacks_out(
    ring: &Ring,
    org: &OrgName,
    callback: &CallbackId,
    exp: Timestamp,
) -> Vec<CallbackToken> {
    ring.live(org, Purpose::Callback).map(|key| callback_by(key, org, callback, exp)).collect()
}

fn callback_by(
    (kid, key): (Kid, &SubKey),
    org: &OrgName,
    callback: &CallbackId,
    exp: Timestamp,
) -> CallbackToken {
    let (kid, exp) = (kid.to_string(), exp.seconds().max(0).to_string());
    let mac = key.tag(&callback_parts(&kid, org.as_str(), callback, &exp));
    let mac = URL_SAFE_NO_PAD.encode(mac);
    CallbackToken(Zeroizing::new(format!("ec1.{kid}.{exp}.{mac}")))
}

fn callback_parts<'a>(kid: &'a str, org: &'a str, callback: &'a CallbackId, exp: &'a str) -> [&'a [u8]; 5] {
    [CALLBACK, kid.as_bytes(), org.as_bytes(), callback.as_str().as_bytes(), exp.as_bytes()]
}

struct Parsed<'a> {
    kid: Kid,
    kid_text: &'a str,
    exp: i64,
    exp_text: &'a str,
    mac: Vec<u8>,
}

fn parse(token: &str) -> Option<Parsed<'_>> {
    if token.len() > TOKEN_BYTES || !token.is_ascii() {
        return None;
    }
    let mut parts = token.strip_prefix("ec1.")?.split('.');
    let (kid_text, exp_text, mac, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let plain = exp_text.len() <= 12
        && exp_text.bytes().all(|b| b.is_ascii_digit())
        && (exp_text == "0" || !exp_text.starts_with('0'));
    let exp = if plain { exp_text.parse().ok()? } else { return None };
    let mac = URL_SAFE_NO_PAD.decode(mac).ok().filter(|m| m.len() == 32)?;
    Some(Parsed { kid: kid_text.parse().ok()?, kid_text, exp, exp_text, mac })
}

/// The key id that a token names, if it has the form of one. Proves nothing.
#[must_use]
pub fn kid_of(token: &str) -> Option<Kid> {
    parse(token).map(|p| p.kid)
}

/// Verifies a token that came with a callback to `callback`, and says whose it is. Reads nothing but the
/// ring.
///
/// # Errors
/// If it isn't good, always the same.
pub fn verify_callback(
    ring: &Ring,
    token: &str,
    callback: &CallbackId,
    now: Timestamp,
) -> Result<OrgName, BadToken> {
    let p = parse(token).ok_or(BadToken)?;
    // An unknown key costs the same as a wrong MAC, so the time doesn't tell which key ids exist.
    let decoy = SubKey(Zeroizing::new([0; 32]));
    let found = ring.verifying(p.kid, Purpose::Callback);
    let (org, key) = found.map_or(("", &decoy), |(org, key)| (org.as_str(), key));
    let genuine = key.tag_eq(&callback_parts(p.kid_text, org, callback, p.exp_text), &p.mac);
    match found {
        Some((org, _)) if bool::from(genuine) && now.seconds() <= p.exp => Ok(org.clone()),
        _ => Err(BadToken),
    }
}

#[cfg(test)]
mod tests;
