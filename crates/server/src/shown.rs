//! The objects that the doors show, as JSON, with exactly the members that clients rely on.
//!
//! Promises: every member is there, null where there is nothing; bytes and foreign words of content are
//! shown only to who is cleared for its label, at every door. Withheld content keeps the shape of a payload:
//! `{"parts":[],"text":"","data":null,"withheld":"clearance_too_low","label":{…}}`; content that was erased
//! says `"withheld":"erased"`. A reason keeps its code and its own sentence, and loses the words that came
//! with it. Never: decides anything, reads anything by itself.

use std::collections::BTreeMap;

use exeat_core::id::PayloadId;
use exeat_core::label::Label;
use exeat_core::payload::{Payload, Sealed};
use exeat_core::reason::Reason;
use exeat_core::task::Held;
use serde_json::{Value, json};

pub mod approval;
pub mod event;
pub mod hop;
pub mod task;
pub mod waiting;

/// What one caller may see.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a>(&'a Label);

impl<'a> Sight<'a> {
    /// Of a caller with this clearance.
    #[must_use]
    pub const fn of(clearance: &'a Label) -> Self {
        Self(clearance)
    }

    /// May content with this label be seen?
    #[must_use]
    pub fn sees(self, label: &Label) -> bool {
        label.flows_to(self.0)
    }

    /// A held payload.
    #[must_use]
    pub fn payload(self, held: &Held, payloads: &BTreeMap<PayloadId, Sealed>) -> Value {
        if !self.sees(&held.label) {
            return withheld("clearance_too_low", &held.label);
        }
        let read = payloads.get(&held.id).map(|sealed| Payload::from_bytes(&sealed.bytes));
        match read {
            Some(Ok(mut payload)) => {
                payload.artifacts.clone_from(&held.artifacts);
                payload.shown()
            }
            Some(Err(_)) => withheld("unreadable", &held.label),
            None => withheld("erased", &held.label),
        }
    }

    /// A held payload, or null.
    #[must_use]
    pub fn maybe(self, held: Option<&Held>, payloads: &BTreeMap<PayloadId, Sealed>) -> Value {
        held.map_or(Value::Null, |h| self.payload(h, payloads))
    }

    /// A reason of something that carries this label.
    #[must_use]
    pub fn reason(self, reason: Option<&Reason>, label: &Label) -> Value {
        match reason {
            Some(r) if !self.sees(label) => json!(Reason::from(r.code)),
            other => json!(other),
        }
    }
}

/// Content that isn't shown, in the shape of a payload.
#[must_use]
pub fn withheld(why: &str, label: &Label) -> Value {
    json!({ "parts": [], "text": "", "data": null, "withheld": why, "label": label.shown() })
}
