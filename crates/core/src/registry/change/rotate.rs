//! The next callback key: what is made with the old one verifies until the last of it has expired.

use super::{Acting, Change, NotChanged, changed};
use crate::change::{Row, Write};
use crate::key::{CALLBACK_KEYS, CallbackKey, KeyState, Kid};
use crate::ledger::Code;
use crate::ledger::data::{Condition, Governs};
use crate::time::Timestamp;

/// A rotation, done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The key that makes tokens from now on.
    pub kid: Kid,
    /// When the one before it no longer verifies. None: there was none.
    pub retires_at: Option<Timestamp>,
}

/// Makes the next epoch's key the active one. `listed` are the keys so far and `row` the version of their setting;
/// `until` is when the last token expires that was made with any of them.
///
/// # Errors
/// None so far.
pub fn rotate_callback(
    mut acting: Acting<'_>,
    listed: &[CallbackKey],
    row: u64,
    until: Timestamp,
) -> Result<Change<Rotated>, NotChanged> {
    let mut set = acting.begin();
    let word = |w: &'static str| Some(Condition::Word(Code::of(w)));
    let mut keys = Vec::with_capacity(listed.len() + 1);
    let mut retires_at = None;
    for key in listed {
        let mut key = key.clone();
        let before = key.state;
        match (before, key.retires_at) {
            (KeyState::Active, _) => {
                (key.state, key.retires_at, retires_at) = (KeyState::Verify, Some(until), Some(until));
            }
            (KeyState::Verify, Some(at)) if at <= acting.now => key.state = KeyState::Retired,
            (KeyState::Verify | KeyState::Retired, _) => {}
        }
        if key.state != before {
            let mut data = changed(Governs::Key, &key.kid.to_string());
            data.version = Some(u64::from(key.epoch));
            (data.before, data.after) = (word(before.as_str()), word(key.state.as_str()));
            acting.record(&mut set, data);
        }
        keys.push(key);
    }
    let epoch = listed.iter().map(|k| k.epoch).max().unwrap_or(0) + 1;
    let kid = Kid::draw(&mut acting.ids);
    let mut data = changed(Governs::Key, &kid.to_string());
    (data.version, data.after) = (Some(u64::from(epoch)), word(KeyState::Active.as_str()));
    acting.record(&mut set, data);
    keys.push(CallbackKey { kid, epoch, state: KeyState::Active, retires_at: None });
    let row = Write { expected: row, row: Row::Setting(CALLBACK_KEYS.to_owned(), serde_json::json!(keys)) };
    set.writes.push(row);
    Ok(Change::Made(Rotated { kid, retires_at }, Box::new(set)))
}
