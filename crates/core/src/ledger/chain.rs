//! The chain: how a record gets its place, and what its hash covers.
//!
//! `hash = SHA-256("exeat-ledger-v1" ‖ prev ‖ SHA-256(JCS(record)))`, 32 zero bytes before the first.
//! The record goes in by its digest, so a chain can be shown without its contents. Number and hash are
//! assigned here and nowhere else, under the lock on the org's head, inside the commit.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::canonical::{self, MAX_INTEGER, NotCanonical};
use super::data::Kind;
use super::record::{Draft, EdgeKey, Record, V1};
use crate::id::OrgName;

const DOMAIN: &[u8] = b"exeat-ledger-v1";

/// The hash of a record in its place.
pub type Hash = [u8; 32];

/// How long a chain is, and the hash of its last record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// How many records; the last one's number.
    pub size: u64,
    /// The last one's hash; zeros while there is none.
    pub hash: [u8; 32],
}

impl Head {
    /// Of a chain without records.
    pub const EMPTY: Self = Self { size: 0, hash: [0; 32] };
}

impl Default for Head {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.size, hex::encode(self.hash))
    }
}

/// The hash of a record with these bytes, after `prev`.
#[must_use]
pub fn link(prev: &Hash, bytes: &[u8]) -> Hash {
    Sha256::new()
        .chain_update(DOMAIN)
        .chain_update(prev)
        .chain_update(Sha256::digest(bytes))
        .finalize()
        .into()
}

/// Why a draft can't become a record. The head hasn't moved.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The edge that a child is about has no record.
    #[error("no edge record for {0:?}")]
    NoSuchEdge(EdgeKey),
    /// The edge has its record already.
    #[error("a second edge record for {0:?}")]
    EdgeTwice(EdgeKey),
    /// An edge draft without task, step or turn, or with a parent.
    #[error("an edge draft needs a task, a step and a turn, and no parent")]
    NotAnEdge,
    /// A child that doesn't say of which edge.
    #[error("a record of kind {} must say which edge it is about", .0.as_str())]
    NoParent(Kind),
    /// A child whose task, step, hop or turn isn't its edge's.
    #[error("a draft speaks of another task, step, hop or turn than its edge {0:?}")]
    OtherEdge(EdgeKey),
    /// The record can't be written canonically.
    #[error("a draft has no canonical form")]
    NotCanonical(#[from] NotCanonical),
    /// 2⁵³ − 1 records.
    #[error("the chain is full")]
    Full,
}

/// A record in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record.
    pub record: Record,
    /// Its canonical bytes: what is stored, hashed and exported.
    pub bytes: Vec<u8>,
    /// Its hash.
    pub hash: Hash,
}

/// Gives `draft` the next place after `head`, and moves `head`. `edge_seq` says the number of an edge's
/// record, if it has one. The caller holds the head's lock and refuses a second record of one edge.
///
/// # Errors
/// If the draft isn't well formed; `head` hasn't moved then.
pub fn append(
    head: &mut Head,
    org: &OrgName,
    draft: Draft,
    mut edge_seq: impl FnMut(&EdgeKey) -> Option<u64>,
) -> Result<Appended, AppendError> {
    let kind = draft.kind();
    if kind == Kind::Edge && (draft.about.is_some() || draft.edge_key().is_none()) {
        return Err(AppendError::NotAnEdge);
    }
    let edge = match draft.about {
        None if kind.is_child() => return Err(AppendError::NoParent(kind)),
        None => None,
        Some(key) => {
            let same = draft.task == Some(key.task)
                && draft.step.as_ref() == Some(&key.step)
                && draft.hop == key.hop
                && draft.turn == Some(key.turn);
            if !same {
                return Err(AppendError::OtherEdge(key));
            }
            let Some(seq) = edge_seq(&key) else { return Err(AppendError::NoSuchEdge(key)) };
            Some(seq)
        }
    };
    let seq = head.size.checked_add(1).filter(|n| *n <= MAX_INTEGER).ok_or(AppendError::Full)?;
    let record = Record {
        v: V1,
        seq,
        org: org.clone(),
        at: draft.at,
        change_id: draft.change_id,
        actor: draft.actor,
        task: draft.task,
        step: draft.step,
        hop: draft.hop,
        turn: draft.turn,
        edge,
        data: draft.data,
    };
    let bytes = canonical::to_bytes(&record)?;
    let hash = link(&head.hash, &bytes);
    *head = Head { size: seq, hash };
    Ok(Appended { record, bytes, hash })
}

/// Appends the drafts of one change set, in order; a child may be about an edge of the same set. All or
/// none: on an error `head` is where it was.
///
/// # Errors
/// As [`append`], and if the set holds an edge that has a record already.
pub fn append_all(
    head: &mut Head,
    org: &OrgName,
    drafts: impl IntoIterator<Item = Draft>,
    mut edge_seq: impl FnMut(&EdgeKey) -> Option<u64>,
) -> Result<Vec<Appended>, AppendError> {
    let mut moved = *head;
    let mut fresh: HashMap<EdgeKey, u64> = HashMap::new();
    let mut all = Vec::new();
    for draft in drafts {
        let own = draft.edge_key();
        if let Some(key) = own.as_ref().filter(|k| fresh.contains_key(k) || edge_seq(k).is_some()) {
            return Err(AppendError::EdgeTwice(key.clone()));
        }
        let one = append(&mut moved, org, draft, |k| fresh.get(k).copied().or_else(|| edge_seq(k)))?;
        fresh.extend(own.map(|k| (k, one.record.seq)));
        all.push(one);
    }
    *head = moved;
    Ok(all)
}
