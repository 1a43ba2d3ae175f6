//! Identities: one newtype each, so that nothing takes two strings or two UUIDs in a row.
//!
//! Ids of ours are UUIDv7 (RFC 9562), lower case. They are drawn from [`Ids`], which is a pure
//! function of a time and a seed that the shell brought in: the core never asks for either.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::time::Timestamp;

/// A text that isn't what it should be: what was expected, and what came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {expected}; got {got:?}")]
pub struct Malformed {
    /// The kind of thing, e.g. `agent key`.
    pub what: &'static str,
    /// Its grammar, in words.
    pub expected: &'static str,
    /// What came, cut to 80 characters.
    pub got: String,
}

impl Malformed {
    /// Builds one; `got` is cut so that an error never carries a whole hostile input.
    #[must_use]
    pub fn new(what: &'static str, expected: &'static str, got: &str) -> Self {
        Self { what, expected, got: got.chars().take(80).collect() }
    }
}

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Draws a new one.
            pub fn draw(ids: &mut Ids) -> Self {
                Self(ids.uuid())
            }
            /// Of a UUID read back from the record.
            #[must_use]
            pub const fn of(uuid: Uuid) -> Self {
                Self(uuid)
            }
            /// The UUID itself, for storage.
            #[must_use]
            pub const fn uuid(&self) -> Uuid {
                self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(s: &str) -> Result<Self, Malformed> {
                // One thing has one name: what is written otherwise names nothing.
                let is_plain = s.len() == 36 && !s.bytes().any(|b| b.is_ascii_uppercase());
                match Uuid::try_parse(s) {
                    Ok(u) if is_plain => Ok(Self(u)),
                    _ => Err(Malformed::new($what, "a UUID, lower case, with hyphens", s)),
                }
            }
        }
    )*};
}

uuid_id! {
    /// One run of a workflow, or one delegation.
    TaskId = "task id";
    /// The whole errand to one endpoint: for a foreign hop, the id of its bridge.
    HopId = "hop id";
    /// A parked decision of a person.
    ApprovalId = "approval id";
    /// A worker's time-limited claim on one envelope; the idempotency key of its turn.
    LeaseId = "lease id";
    /// A message on the bus.
    EnvelopeId = "envelope id";
    /// A question that a foreign agent asked.
    QuestionId = "question id";
    /// One change set; found again in the ledger when a commit's answer was lost.
    ChangeId = "change id";
    /// A stored payload.
    PayloadId = "payload id";
    /// An item that gave up.
    DeadLetterId = "dead letter id";
    /// The id of our message on the wire, stable over all attempts of a turn.
    MessageId = "message id";
    /// The id of our conversation on the wire.
    ContextId = "context id";
    /// An inbox row.
    InboxId = "inbox id";
}

macro_rules! name_id {
    ($($(#[$doc:meta])* $name:ident = $what:literal, $expected:literal, $ok:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = Malformed;
            fn try_from(s: String) -> Result<Self, Malformed> {
                let ok: fn(&str) -> bool = $ok;
                if ok(&s) { Ok(Self(s)) } else { Err(Malformed::new($what, $expected, &s)) }
            }
        }
        impl FromStr for $name {
            type Err = Malformed;
            fn from_str(s: &str) -> Result<Self, Malformed> {
                Self::try_from(s.to_owned())
            }
        }
        impl From<$name> for String {
            fn from(n: $name) -> String {
                n.0
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

/// `[a-z0-9][a-z0-9-]{0,63}`: orgs, agents, roles, teams, workflows.
fn is_name(s: &str) -> bool {
    (1..=64).contains(&s.len())
        && !s.starts_with('-')
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// `[a-z][a-z0-9_]{0,63}`: a hyphen would be a minus in CEL.
fn is_step_name(s: &str) -> bool {
    (1..=64).contains(&s.len())
        && s.starts_with(|c: char| c.is_ascii_lowercase())
        && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

name_id! {
    /// A tenant.
    OrgName = "org", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// Key of a foreign agent in the registry. Never a URL.
    AgentKey = "agent key", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// A role that workers play.
    RoleName = "role", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// A set of roles.
    TeamName = "team", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// A workflow's name.
    WorkflowName = "workflow", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// A node of a workflow.
    StepName = "step name", "1 to 64 of [a-z0-9_], starting with a letter", is_step_name;
    /// The public half of an API key: `exk_<id>_…`.
    KeyId = "key id", "1 to 64 of [a-z0-9-], not starting with a hyphen", is_name;
    /// Names one attempt at our callback door: 16 random bytes, base64url.
    CallbackId = "callback id", "22 characters of base64url", |s| {
        s.len() == 22 && URL_SAFE_NO_PAD.decode(s).is_ok_and(|b| b.len() == 16)
    };
}

impl CallbackId {
    /// Draws a new one: 128 random bits.
    pub fn draw(ids: &mut Ids) -> Self {
        Self(URL_SAFE_NO_PAD.encode(ids.bytes::<16>()))
    }
}

impl KeyId {
    /// Draws a new one: 64 random bits, as hex.
    pub fn draw(ids: &mut Ids) -> Self {
        Self(hex::encode(ids.bytes::<8>()))
    }
}

/// Where new ids come from: a stream that is a pure function of a time and a seed.
///
/// The shell fills `seed` from its `Entropy` port for each decision, so that the
/// same inputs give the same ids and a simulation replays.
#[derive(Clone)]
pub struct Ids {
    now: Timestamp,
    seed: [u8; 32],
    drawn: u64,
}

impl Ids {
    /// A stream for one decision.
    #[must_use]
    pub const fn new(now: Timestamp, seed: [u8; 32]) -> Self {
        Self { now, seed, drawn: 0 }
    }

    /// The next `N` (at most 32) bytes of the stream, unguessable to who doesn't know the seed.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        const { assert!(N <= 32) };
        let block = Sha256::new().chain_update(self.seed).chain_update(self.drawn.to_be_bytes()).finalize();
        self.drawn += 1;
        let mut out = [0; N];
        out.iter_mut().zip(block.iter()).for_each(|(o, b)| *o = *b);
        out
    }

    fn uuid(&mut self) -> Uuid {
        let millis = u64::try_from(self.now.micros() / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.bytes::<10>()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_held_to_their_grammar() {
        for ok in ["a", "0", "agent-7", &"x".repeat(64)] {
            assert!(ok.parse::<AgentKey>().is_ok(), "{ok}");
        }
        for bad in ["", "-a", "A", "a_b", "a/b", "https://x", "é", &"x".repeat(65)] {
            assert!(bad.parse::<AgentKey>().is_err(), "{bad}");
        }
        assert!("draft_2".parse::<StepName>().is_ok());
        for bad in ["", "2a", "a-b", "A", "_a"] {
            assert!(bad.parse::<StepName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_a_pure_function_of_time_and_seed_and_never_repeat() {
        let draw = || {
            let mut ids = Ids::new(Timestamp::of_micros(1_700_000_000_000_000), [7; 32]);
            (0..100).map(|_| TaskId::draw(&mut ids)).collect::<Vec<_>>()
        };
        let (a, b) = (draw(), draw());
        assert_eq!(a, b);
        let mut unique = a.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 100);
        assert_eq!(a.first().map(|i| i.uuid().get_version_num()), Some(7));
    }

    #[test]
    fn a_malformed_error_never_carries_a_whole_hostile_input() {
        let e = "x".repeat(100_000).parse::<AgentKey>().unwrap_err();
        assert_eq!(e.got.len(), 80);
    }
}
