//! Cards, fetched once for many hops.
//!
//! Kept by (org, agent, registry version, credential version), so that no tenant, no older entry and no other
//! credential meets another's card. One fetch at a time per key; a card lives for a time, a refusal for a
//! shorter one, and a failure to reach the agent not at all. Never used past its time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use exeat_core::id::{AgentKey, OrgName};
use exeat_core::reason::ReasonCode;
use exeat_core::time::{Monotonic, Span};
use exeat_wire::Dialect;
use exeat_wire::card::Card;

/// More keys than this and those whose time is over are dropped; if that frees none, all are.
const MOST_KEYS: usize = 4096;

/// Whose card.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) org: OrgName,
    pub(super) agent: AgentKey,
    pub(super) version: u32,
    pub(super) credential: Option<[u8; 32]>,
}

/// Why there is no card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoCard {
    /// The agent answered, and there is no card for us.
    Refused { code: ReasonCode, detail: String },
    /// The agent couldn't be reached or is busy: another attempt may find it.
    Later { code: ReasonCode, detail: String },
    /// Nothing was or may be contacted.
    Never { code: ReasonCode, detail: String },
}

/// How long what is known lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) card: Span,
    pub(super) refusal: Span,
}

/// What is known under one key, and until when.
type Slot = Option<(Result<Arc<Card>, NoCard>, Monotonic)>;

/// Where a card came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// From here, so it may be older than the agent's own.
    Kept,
    /// From the agent, just now.
    Fetched,
}

/// What the caller takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Whatever lives.
    Any,
    /// Only one that is fetched now.
    Fresh,
}

type Shared = Arc<tokio::sync::Mutex<Slot>>;

/// All that is known.
pub(super) struct Cards {
    lifetimes: Lifetimes,
    slots: Mutex<HashMap<Key, (Shared, Monotonic)>>,
    /// The dialect that an interface turned out to speak, where it isn't the one that the card claims.
    dialects: Mutex<HashMap<(Key, String), Dialect>>,
}

impl Cards {
    pub(super) fn new(lifetimes: Lifetimes) -> Self {
        Self { lifetimes, slots: Mutex::default(), dialects: Mutex::default() }
    }

    fn slot(&self, key: &Key, now: Monotonic) -> Shared {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST_KEYS && !slots.contains_key(key) {
            slots.retain(|_, (_, until)| *until > now);
            if slots.len() >= MOST_KEYS {
                slots.clear();
            }
        }
        let until = now + self.lifetimes.card;
        let (slot, last) = slots.entry(key.clone()).or_insert_with(|| (Shared::default(), until));
        *last = until;
        Arc::clone(slot)
    }

    /// The card under `key`, by `fetch` if none lives; waits `within` for a fetch that is under way.
    pub(super) async fn card(
        &self,
        key: &Key,
        want: Want,
        now: Monotonic,
        within: Duration,
        fetch: impl Future<Output = Result<Card, NoCard>>,
    ) -> (Result<Arc<Card>, NoCard>, Came) {
        let slot = self.slot(key, now);
        let Ok(mut slot) = tokio::time::timeout(within, slot.lock()).await else {
            let detail = "another fetch of the card takes too long".to_owned();
            return (Err(NoCard::Later { code: ReasonCode::CardInvalid, detail }), Came::Kept);
        };
        if let (Want::Any, Some((known, until))) = (want, &*slot)
            && *until > now
        {
            return (known.clone(), Came::Kept);
        }
        let found = fetch.await.map(Arc::new);
        let lifetime = match &found {
            Ok(_) => self.lifetimes.card,
            Err(NoCard::Refused { .. }) => self.lifetimes.refusal,
            Err(NoCard::Later { .. } | NoCard::Never { .. }) => Span::ZERO,
        };
        *slot = (lifetime > Span::ZERO).then(|| (found.clone(), now + lifetime));
        (found, Came::Fetched)
    }

    /// The dialect that `url` turned out to speak, if that is known.
    pub(super) fn dialect(&self, key: &Key, url: &str) -> Option<Dialect> {
        let dialects = self.dialects.lock().unwrap_or_else(PoisonError::into_inner);
        dialects.get(&(key.clone(), url.to_owned())).copied()
    }

    /// Keeps that `url` speaks `dialect`, whatever its card claims.
    pub(super) fn speaks(&self, key: &Key, url: &str, dialect: Dialect) {
        let mut dialects = self.dialects.lock().unwrap_or_else(PoisonError::into_inner);
        if dialects.len() >= MOST_KEYS {
            dialects.clear();
        }
        dialects.insert((key.clone(), url.to_owned()), dialect);
    }
}
