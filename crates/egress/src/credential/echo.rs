//! What a peer could give back of the secrets that it was sent, and taking that out.
//!
//! An agent that prints its request headers into an error must not get a credential into our database, ledger
//! or log. Each exchange replaces, in all that it hands on, every form of every secret that it sent: raw,
//! percent-encoded, base64 (alone or inside a longer text), hex, JSON-escaped.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

/// What stands where a secret stood.
pub(crate) const MASK: &str = "[secret]";

/// A fragment of base64 shorter than this would match by chance.
const SHORTEST_FRAGMENT: usize = 12;

/// The forms of the secrets of one exchange.
#[derive(Default)]
pub(crate) struct Echoes {
    /// Longest first, so that a form which holds another is taken whole.
    forms: Vec<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Echoes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Echoes({} forms)", self.forms.len())
    }
}

impl Echoes {
    /// Of these secrets.
    pub(crate) fn of<'a>(secrets: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let mut forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for secret in secrets {
            let s = secret.expose_secret();
            forms
                .extend(raw_and_escaped(s).into_iter().chain(in_base64(s)).map(|f| Zeroizing::new(f.into())));
        }
        forms.retain(|f| !f.is_empty());
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// Whether no secret went out.
    pub(crate) const fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// `bytes` without the secrets. Free if there are none.
    #[must_use]
    pub(crate) fn scrub(&self, bytes: Bytes) -> Bytes {
        self.replaced(&bytes).map_or(bytes, Bytes::from)
    }

    /// `text` without the secrets.
    #[must_use]
    pub(crate) fn scrub_text(&self, text: &str) -> String {
        match self.replaced(text.as_bytes()) {
            None => text.to_owned(),
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// `None` if nothing was found.
    fn replaced(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut starts = [false; 256];
        for first in self.forms.iter().filter_map(|f| f.first()) {
            if let Some(s) = starts.get_mut(usize::from(*first)) {
                *s = true;
            }
        }
        let mut out: Option<Vec<u8>> = None;
        let mut rest = bytes;
        let mut kept = 0;
        while let Some(first) = rest.first() {
            let found = starts
                .get(usize::from(*first))
                .is_some_and(|s| *s)
                .then(|| self.forms.iter().find(|f| rest.starts_with(f)))
                .flatten();
            let step = found.map_or(1, |f| f.len());
            let (taken, after) = rest.split_at_checked(step)?;
            match (found, &mut out) {
                (Some(_), Some(out)) => out.extend_from_slice(MASK.as_bytes()),
                (Some(_), None) => {
                    let mut begun = bytes.get(..kept)?.to_vec();
                    begun.extend_from_slice(MASK.as_bytes());
                    out = Some(begun);
                }
                (None, Some(out)) => out.extend_from_slice(taken),
                (None, None) => kept += 1,
            }
            rest = after;
        }
        out
    }
}

/// Two digits. Every exchange does this for each byte of its secrets, so it doesn't go through formatting.
fn push_hex(out: &mut String, byte: u8, upper: bool) {
    for digit in [byte >> 4, byte & 0xf] {
        let digit = char::from_digit(u32::from(digit), 16).unwrap_or('0');
        out.push(if upper { digit.to_ascii_uppercase() } else { digit });
    }
}

fn raw_and_escaped(s: &str) -> Vec<String> {
    let percent = |keep: fn(u8) -> bool, upper: bool| {
        s.bytes().fold(String::new(), |mut out, b| {
            if keep(b) {
                out.push(char::from(b));
            } else {
                out.push('%');
                push_hex(&mut out, b, upper);
            }
            out
        })
    };
    let unreserved: fn(u8) -> bool = |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    let component: fn(u8) -> bool = |b| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'.' | b'_' | b'~' | b'!' | b'*' | b'\'' | b'(' | b')')
    };
    let none: fn(u8) -> bool = |_| false;
    let escaped = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default().to_owned()
    };
    let json = escaped(s);
    // Who dumps its headers as JSON into a text has it escaped once more on the wire.
    let dumped = escaped(&json);
    let units = |upper: bool| {
        s.encode_utf16().fold(String::new(), |mut out, u| {
            out.push_str("\\u");
            u.to_be_bytes().into_iter().for_each(|b| push_hex(&mut out, b, upper));
            out
        })
    };
    // Encoders that guard against HTML escape these as well, in either case of hex.
    let html_safe = |upper: bool| {
        ['<', '>', '&', '\'', '+'].iter().fold(json.clone(), |out, c| {
            let code = u32::from(*c);
            out.replace(*c, &if upper { format!("\\u{code:04X}") } else { format!("\\u{code:04x}") })
        })
    };
    let hex = |upper: bool| {
        s.bytes().fold(String::new(), |mut out, b| {
            push_hex(&mut out, b, upper);
            out
        })
    };
    vec![
        hex(true),
        hex(false),
        dumped,
        s.to_owned(),
        percent(unreserved, true),
        percent(unreserved, false),
        percent(component, true),
        percent(component, false),
        percent(none, true),
        percent(none, false),
        percent(unreserved, true).replace("%20", "+"),
        json.replace('/', "\\/"),
        html_safe(true),
        html_safe(false),
        json,
        units(true),
        units(false),
    ]
}

/// Alone in each alphabet, and the middle of it at each of the three offsets inside a longer text.
fn in_base64(s: &str) -> Vec<String> {
    let mut forms: Vec<String> =
        [STANDARD.encode(s), STANDARD_NO_PAD.encode(s), URL_SAFE.encode(s), URL_SAFE_NO_PAD.encode(s)].into();
    for before in 0..3_usize {
        let shifted: Vec<u8> = std::iter::repeat_n(0, before).chain(s.bytes()).collect();
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted);
            // Characters that hold bits of what stands before or after are left out.
            let from = (before * 8).div_ceil(6);
            let to = shifted.len() * 8 / 6;
            forms.extend(text.get(from..to).filter(|f| f.len() >= SHORTEST_FRAGMENT).map(str::to_owned));
        }
    }
    forms
}

#[cfg(test)]
mod tests;
