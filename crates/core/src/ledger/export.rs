//! The export: a ledger as lines of JSON that verify without Exeat.
//!
//! First a header, then one line per record with its bytes as they were hashed, last a checkpoint made at
//! export. Lines end in `\n` only. An export of a part (`from` > 1) states the hash before it in its
//! header; since every later hash covers it, the signed head at the end proves it. The list of keys in the
//! last line is a help to find the right one; the checkpoint's signature doesn't cover it, and a verifier
//! trusts only the key that it was given.

use std::io::{self, BufRead, Read as _};

use serde::{Deserialize, Serialize};

use super::canonical;
use super::chain::{Hash, Head};
use super::checkpoint::{Checkpoint, PublicKey, origin, signer_of};
use super::verify::{Flaw, Verification, Verifier};
use crate::id::OrgName;
use crate::time::Timestamp;

const FORMAT: &str = "exeat-ledger-v1";
const RECORD_HEAD: &[u8] = b"{\"record\":";
const RECORD_TAIL: &[u8] = b",\"hash\":\"";
const LAST_HEAD: &[u8] = b"{\"checkpoint\":";
/// A record, its hash and the words around them; the last line is bounded by the same.
const MAX_LINE: usize = canonical::MAX_BYTES + 128;

#[derive(Serialize, Deserialize)]
struct Header {
    export: String,
    org: OrgName,
    from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<String>,
}

/// A public key of the ledger, and when it signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedKey {
    /// The first checkpoint it may have signed.
    pub from: Timestamp,
    /// `name+id`.
    pub id: String,
    /// SPKI PEM.
    pub pem: String,
    /// The last checkpoint it may have signed; open while it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl ListedKey {
    /// Of a key as it signs for `org`.
    #[must_use]
    pub fn of(key: &PublicKey, org: &OrgName, from: Timestamp, until: Option<Timestamp>) -> Self {
        Self { from, id: key.shown(org), pem: key.to_pem(), until }
    }
}

#[derive(Serialize)]
struct Last<'a> {
    checkpoint: &'a str,
    keys: Vec<ListedKey>,
}

/// What a verifier reads of the last line: nothing that the signature doesn't cover.
#[derive(Deserialize)]
struct Signed {
    checkpoint: String,
}

fn line_of(value: &impl Serialize) -> Vec<u8> {
    // These hold only texts and numbers; an empty line would be refused by every verifier.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The first line of an export of the records after `start` ([`Head::EMPTY`] for all).
#[must_use]
pub fn header(org: &OrgName, start: &Head) -> Vec<u8> {
    let prev = (start.size > 0).then(|| hex::encode(start.hash));
    line_of(&Header { export: FORMAT.to_owned(), org: org.clone(), from: start.size + 1, prev })
}

/// The line of a record: its stored bytes as they are, and its hash.
#[must_use]
pub fn record_line(bytes: &[u8], hash: &Hash) -> Vec<u8> {
    let hash = hex::encode(hash);
    [RECORD_HEAD, bytes, RECORD_TAIL, hash.as_bytes(), b"\"}\n"].concat()
}

/// The last line: a checkpoint of the last record exported, signed at export, and the ledger's keys.
#[must_use]
pub fn last_line(note: &str, keys: Vec<ListedKey>) -> Vec<u8> {
    line_of(&Last { checkpoint: note, keys })
}

/// Takes a record's line apart: bytes as they stand, and the stated hash.
fn split_record(line: &[u8]) -> Option<(&[u8], Hash)> {
    let inner = line.strip_prefix(RECORD_HEAD)?.strip_suffix(b"\"}")?;
    let (front, hex64) = inner.split_at_checked(inner.len().checked_sub(64)?)?;
    if hex64.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut hash = [0; 32];
    hex::decode_to_slice(hex64, &mut hash).ok()?;
    Some((front.strip_suffix(RECORD_TAIL)?, hash))
}

fn parse_header(line: &[u8]) -> Option<(OrgName, Head)> {
    let header: Header = serde_json::from_slice(line).ok()?;
    let size = header.from.checked_sub(1).filter(|n| *n < canonical::MAX_INTEGER)?;
    let hash = match (size, header.prev) {
        (0, None) => Head::EMPTY.hash,
        (1.., Some(prev)) => {
            let mut hash = [0; 32];
            hex::decode_to_slice(prev, &mut hash).ok()?;
            hash
        }
        _ => return None,
    };
    (header.export == FORMAT).then_some((header.org, Head { size, hash }))
}

/// Reads one line of at most [`MAX_LINE`] bytes, without its `\n`. `None`: the text ended, or the line
/// is too long or doesn't end.
fn read_line<'a>(reader: &mut impl BufRead, line: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    line.clear();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    reader.take(most).read_until(b'\n', line)?;
    Ok(line.strip_suffix(b"\n"))
}

/// Verifies an export against the key that its reader trusts, and against a checkpoint held from before,
/// if there is one: a chain that was cut or rewritten since, even with the ledger key, shows against it.
///
/// # Errors
/// Only if `reader` fails; whatever is wrong with the export is in the answer.
pub fn verify_export(
    mut reader: impl BufRead,
    key: &PublicKey,
    held: Option<&Checkpoint>,
) -> io::Result<Verification> {
    let mut line = Vec::new();
    let Some((org, start)) = read_line(&mut reader, &mut line)?.and_then(parse_header) else {
        return Ok(not_begun(Flaw::BadHeader));
    };
    let mut verifier = Verifier::after(org.clone(), start);
    if let Some(held) = held {
        if held.org == org {
            verifier.hold(held.as_head());
        } else {
            return Ok(not_begun(Flaw::WrongOrg));
        }
    }
    loop {
        let Some(line) = read_line(&mut reader, &mut line)? else {
            verifier.next_is_bad(if line.is_empty() { Flaw::NoCheckpoint } else { Flaw::NotALine });
            return Ok(verifier.finish());
        };
        if line.starts_with(LAST_HEAD) {
            let opened = open_last(line, &org, key);
            let ended = reader.fill_buf()?.is_empty();
            let (Some(checkpoint), true) = (opened, ended) else {
                verifier.next_is_bad(Flaw::NoCheckpoint);
                return Ok(verifier.finish());
            };
            return Ok(verifier.finish_at(&checkpoint, key));
        }
        let taken = match split_record(line) {
            Some((bytes, hash)) => verifier.record(bytes, &hash).is_ok(),
            None => {
                verifier.next_is_bad(Flaw::NotALine);
                false
            }
        };
        if !taken {
            return Ok(verifier.finish());
        }
    }
}

fn open_last(line: &[u8], org: &OrgName, key: &PublicKey) -> Option<Checkpoint> {
    canonical::check(line).ok()?;
    let last: Signed = serde_json::from_slice(line).ok()?;
    let checkpoint = Checkpoint::open(&last.checkpoint, key).ok()?;
    (origin(&checkpoint.org) == origin(org)).then_some(checkpoint)
}

/// Who signed the last line of an export, as `name+id`, if that wasn't `key` under any name. It is told to people and
/// proves nothing: the line isn't verified.
#[must_use]
pub fn other_signer(last_line: &[u8], key: &PublicKey) -> Option<String> {
    let last: Signed = serde_json::from_slice(last_line).ok()?;
    let signers = last.checkpoint.lines().filter_map(signer_of);
    let ours = |(name, id): &(String, [u8; 4])| key.id(name) == *id;
    let (others, by_us): (Vec<_>, Vec<_>) = signers.partition(|s| !ours(s));
    let (name, id) = others.into_iter().next().filter(|_| by_us.is_empty())?;
    Some(format!("{name}+{}", hex::encode(id)))
}

fn not_begun(why: Flaw) -> Verification {
    Verification {
        verified: false,
        records: 0,
        head: hex::encode(Head::EMPTY.hash),
        checkpoint: None,
        first_bad: Some(super::verify::FirstBad { seq: 0, why }),
        edges: 0,
        costs_balanced: true,
    }
}
