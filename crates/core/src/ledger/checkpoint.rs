//! Signed heads: how long an org's chain is, and its hash, vouched for by the ledger key.
//!
//! A checkpoint is a C2SP signed note (c2sp.org/signed-note) with Ed25519. Its text is four lines: the
//! origin `exeat/{org}`, the size in decimal, the head in base64, the time. The key's name is the origin.
//! Whoever keeps one can tell later that a chain was cut or forked, whatever its database's owner does.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePublicKey as _, EncodePublicKey as _};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use super::canonical::MAX_INTEGER;
use super::chain::{Hash, Head};
use crate::id::OrgName;
use crate::time::Timestamp;

const NOTE_BYTES: usize = 16 * 1024;
const SIGNATURES: usize = 16;
/// C2SP's algorithm byte of a plain Ed25519 signature.
const ED25519: u8 = 0x01;

/// A head, and when it was it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The tenant.
    pub org: OrgName,
    /// How many records the chain has.
    pub size: u64,
    /// The last one's hash; zeros while there is none.
    pub head: Hash,
    /// When.
    pub at: Timestamp,
}

/// Why a text isn't a checkpoint that this key signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNote {
    /// Not a signed note with the four lines of a checkpoint.
    #[error("not a signed checkpoint")]
    Malformed,
    /// None of its signatures is by this key.
    #[error("the checkpoint isn't signed by this key")]
    OtherKey,
    /// One says it is by this key, and isn't.
    #[error("the checkpoint's signature is wrong")]
    BadSignature,
}

/// A public key that isn't one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 public key in SPKI PEM")]
pub struct BadKey;

impl Checkpoint {
    /// Of this head.
    #[must_use]
    pub const fn of(org: OrgName, head: Head, at: Timestamp) -> Self {
        Self { org, size: head.size, head: head.hash, at }
    }

    /// The head that it vouches for.
    #[must_use]
    pub const fn as_head(&self) -> Head {
        Head { size: self.size, hash: self.head }
    }

    fn text(&self) -> String {
        let head = STANDARD.encode(self.head);
        format!("{}\n{}\n{head}\n{}\n", origin(&self.org), self.size, self.at)
    }

    /// Reads the text, strictly: what [`text`](Self::text) writes and nothing else.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let org = lines.next()?.strip_prefix("exeat/")?.parse().ok()?;
        let size: u64 = lines.next()?.parse().ok().filter(|n| *n <= MAX_INTEGER)?;
        let head = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        let at = lines.next()?.parse().ok()?;
        let read = Self { org, size, head, at };
        (read.text() == text).then_some(read)
    }

    /// Opens a note that `key` signed. Signatures by other keys are passed over.
    ///
    /// # Errors
    /// If it isn't a checkpoint, or isn't signed by this key.
    pub fn open(note: &str, key: &PublicKey) -> Result<Self, BadNote> {
        if note.len() > NOTE_BYTES {
            return Err(BadNote::Malformed);
        }
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(BadNote::Malformed)?;
        let text = format!("{text}\n");
        let read = Self::parse(&text).ok_or(BadNote::Malformed)?;
        let lines: Vec<&str> = signatures.strip_suffix('\n').ok_or(BadNote::Malformed)?.split('\n').collect();
        if lines.len() > SIGNATURES {
            return Err(BadNote::Malformed);
        }
        let name = origin(&read.org);
        let id = key.id(&name);
        let mut signed = Err(BadNote::OtherKey);
        for line in lines {
            let (by, bytes) = signature_line(line).ok_or(BadNote::Malformed)?;
            let Some((line_id, signature)) = bytes.split_at_checked(4) else {
                return Err(BadNote::Malformed);
            };
            if by == name && line_id == id {
                let signature = Signature::from_slice(signature).map_err(|_| BadNote::BadSignature)?;
                key.0.verify_strict(text.as_bytes(), &signature).map_err(|_| BadNote::BadSignature)?;
                signed = Ok(());
            }
        }
        signed.map(|()| read)
    }
}

/// The newest checkpoint by `key` in a file of notes, as a server writes them one below the other. What isn't one, such
/// as a note that a crash cut off, is passed over.
#[must_use]
pub fn newest(notes: &str, key: &PublicKey) -> Option<Checkpoint> {
    let starts = notes.match_indices("exeat/").map(|(at, _)| at);
    let starts = starts.filter(|at| *at == 0 || notes.as_bytes().get(at - 1) == Some(&b'\n'));
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([notes.len()]);
    let each = starts.iter().zip(ends).filter_map(|(from, to)| notes.get(*from..to));
    let opened = each.filter_map(|note| Checkpoint::open(&format!("{}\n", note.trim_end()), key).ok());
    opened.max_by_key(|c| c.size)
}

/// `— name base64(key id ‖ signature)`, with the em dash U+2014.
fn signature_line(line: &str) -> Option<(&str, Vec<u8>)> {
    let (name, signature) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
    let named = !name.is_empty() && !name.contains(|c: char| c == '+' || c.is_whitespace());
    let bytes = STANDARD.decode(signature).ok().filter(|b| b.len() > 4)?;
    named.then_some((name, bytes))
}

/// The name and the key id of a signature line.
pub(super) fn signer_of(line: &str) -> Option<(String, [u8; 4])> {
    let (name, bytes) = signature_line(line)?;
    Some((name.to_owned(), *bytes.first_chunk()?))
}

/// The origin of an org's checkpoints, and the name of the key that signs them.
#[must_use]
pub fn origin(org: &OrgName) -> String {
    format!("exeat/{org}")
}

/// The ledger's private key. Its seed comes in from outside; it is wiped when dropped and never shown.
pub struct LedgerKey(SigningKey);

impl LedgerKey {
    /// Of a seed.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a checkpoint: the whole note.
    #[must_use]
    pub fn sign(&self, checkpoint: &Checkpoint) -> String {
        let text = checkpoint.text();
        let name = origin(&checkpoint.org);
        let mut bytes = self.public().id(&name).to_vec();
        bytes.extend(self.0.sign(text.as_bytes()).to_bytes());
        format!("{text}\n\u{2014} {name} {}\n", STANDARD.encode(bytes))
    }
}

/// The ledger's public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads SPKI PEM. Keys of small order, under which anything verifies, are refused.
    ///
    /// # Errors
    /// If it isn't an Ed25519 key.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let key = VerifyingKey::from_public_key_pem(pem.trim_ascii()).map_err(|_| BadKey)?;
        if key.is_weak() { Err(BadKey) } else { Ok(Self(key)) }
    }

    /// SPKI PEM, with `\n` at line ends.
    #[must_use]
    pub fn to_pem(&self) -> String {
        // Encoding 32 bytes has no way to fail; an empty text would be refused by every reader.
        self.0.to_public_key_pem(LineEnding::LF).unwrap_or_default()
    }

    /// The 32 bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// C2SP key id: the first four bytes of SHA-256(name ‖ 0x0A ‖ 0x01 ‖ key).
    #[must_use]
    pub fn id(&self, name: &str) -> [u8; 4] {
        let hash = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ED25519])
            .chain_update(self.bytes())
            .finalize();
        let mut id = [0; 4];
        id.iter_mut().zip(hash.iter()).for_each(|(i, h)| *i = *h);
        id
    }

    /// `name+id`, as people see the key that signed an org's checkpoint.
    #[must_use]
    pub fn shown(&self, org: &OrgName) -> String {
        let name = origin(org);
        format!("{name}+{}", hex::encode(self.id(&name)))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", hex::encode(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            org: "main".parse().unwrap(),
            size: 5,
            head: [9; 32],
            at: Timestamp::of_micros(1_700_000_000_000_001),
        }
    }

    #[test]
    fn a_note_opens_with_its_key_and_no_other() {
        let (key, other) = (LedgerKey::of_seed(&[1; 32]), LedgerKey::of_seed(&[2; 32]));
        let note = key.sign(&checkpoint());
        assert_eq!(Checkpoint::open(&note, &key.public()), Ok(checkpoint()));
        assert_eq!(Checkpoint::open(&note, &other.public()), Err(BadNote::OtherKey));
    }

    #[test]
    fn no_byte_of_a_note_can_change() {
        let key = LedgerKey::of_seed(&[1; 32]);
        let note = key.sign(&checkpoint()).into_bytes();
        for at in 0..note.len() {
            for flip in [1, 2, 16, 32, 128] {
                let mut bad = note.clone();
                bad[at] ^= flip;
                if let Ok(bad) = String::from_utf8(bad) {
                    assert!(Checkpoint::open(&bad, &key.public()).is_err(), "byte {at}");
                }
            }
        }
        for cut in 0..note.len() {
            let bad = String::from_utf8_lossy(&note[..cut]).into_owned();
            assert!(Checkpoint::open(&bad, &key.public()).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_note_may_carry_signatures_by_others_but_needs_ours() {
        let (old, new) = (LedgerKey::of_seed(&[1; 32]), LedgerKey::of_seed(&[2; 32]));
        let mut both = old.sign(&checkpoint());
        both.push_str(new.sign(&checkpoint()).split_once("\n\n").unwrap().1);
        for key in [&old, &new] {
            assert_eq!(Checkpoint::open(&both, &key.public()), Ok(checkpoint()));
        }
        both.push_str("noise\n");
        assert_eq!(Checkpoint::open(&both, &old.public()), Err(BadNote::Malformed));
    }

    #[test]
    fn a_text_that_says_the_same_in_another_way_is_no_checkpoint_even_if_signed() {
        let key = LedgerKey::of_seed(&[1; 32]);
        let name = origin(&checkpoint().org);
        let sign = |text: &str| {
            let mut bytes = key.public().id(&name).to_vec();
            bytes.extend(key.0.sign(text.as_bytes()).to_bytes());
            format!("{text}\n\u{2014} {name} {}\n", STANDARD.encode(bytes))
        };
        let good = checkpoint().text();
        assert_eq!(Checkpoint::open(&sign(&good), &key.public()), Ok(checkpoint()));
        for (what, with) in [
            ("\n5\n", "\n+5\n"),
            ("\n5\n", "\n05\n"),
            ("\n5\n", "\n9007199254740992\n"),
            ("\n5\n", "\n\n5\n"),
            ("000001Z\n", "000001+00:00\n"),
            ("000001Z\n", "000001Z\nmore\n"),
            ("000001Z\n", "000001Z \n"),
            ("exeat/main", "exeat/main "),
            ("exeat/main", "other/main"),
        ] {
            let bad = good.replace(what, with);
            assert_ne!(bad, good);
            assert_eq!(Checkpoint::open(&sign(&bad), &key.public()), Err(BadNote::Malformed), "{bad}");
        }
    }

    /// The key, its id and the note were computed with python's `cryptography` and `hashlib`.
    #[test]
    fn the_note_is_what_the_signed_note_specification_says() {
        let key = LedgerKey::of_seed(&[1; 32]);
        assert_eq!(
            key.public().to_pem(),
            "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=\n-----END PUBLIC KEY-----\n"
        );
        assert_eq!(
            key.sign(&checkpoint()),
            "exeat/main\n5\nCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=\n2023-11-14T22:13:20.000001Z\n\n\u{2014} exeat/main Xf4X87kbyE5OQf0D6BeOdpo2iQL+q13v94CWv83OnLhwICIa+kjBV1ZV7m8fWZZn3lUfK5kfHJKPG98HFtVTLNKgvQo=\n"
        );
    }

    #[test]
    fn a_key_reads_back_from_pem_and_a_weak_one_is_refused() {
        let key = LedgerKey::of_seed(&[1; 32]).public();
        assert_eq!(PublicKey::from_pem(&key.to_pem()), Ok(key));
        let weak = VerifyingKey::from_bytes(&{
            let mut one = [0; 32];
            one[0] = 1;
            one
        });
        assert_eq!(PublicKey::from_pem(&PublicKey(weak.unwrap()).to_pem()), Err(BadKey));
        assert_eq!(PublicKey::from_pem("-----BEGIN PUBLIC KEY-----\n"), Err(BadKey));
    }
}
