//! The state of a foreign task, read liberally.

use serde_json::Value;

use crate::json::line;

/// The state of a foreign task (A2A 1.0 §4.1.3). Open: what isn't known is kept, and is never an ending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Taken.
    Submitted,
    /// Being worked on.
    Working,
    /// Waits for an answer of ours.
    InputRequired,
    /// Waits for a credential, out of band.
    AuthRequired,
    /// Done.
    Completed,
    /// Ended in failure.
    Failed,
    /// Ended by a cancel, theirs or ours.
    Canceled,
    /// The agent won't do it.
    Rejected,
    /// Anything else, as it came, cut to 64 characters; empty if none was given.
    Other(String),
}

impl State {
    /// Reads a state in any dialect: whatever its case, with or without `TASK_STATE_`, `-` or `_`, one or two
    /// L in canceled, or as the proto's number.
    pub(crate) fn read(value: Option<&Value>) -> Self {
        match value {
            Some(Value::String(s)) => Self::parse(s),
            Some(Value::Number(n)) => n.as_u64().map_or_else(|| Self::Other(n.to_string()), Self::of_number),
            Some(_) | None => Self::Other(String::new()),
        }
    }

    /// Reads the name of a state.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let plain: String = name
            .chars()
            .take(64)
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        match plain.strip_prefix("taskstate").unwrap_or(&plain) {
            "submitted" => Self::Submitted,
            "working" => Self::Working,
            "inputrequired" => Self::InputRequired,
            "authrequired" => Self::AuthRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "canceled" | "cancelled" => Self::Canceled,
            "rejected" => Self::Rejected,
            _ => Self::Other(line(name, 64)),
        }
    }

    fn of_number(n: u64) -> Self {
        match n {
            1 => Self::Submitted,
            2 => Self::Working,
            3 => Self::Completed,
            4 => Self::Failed,
            5 => Self::Canceled,
            6 => Self::InputRequired,
            7 => Self::Rejected,
            8 => Self::AuthRequired,
            _ => Self::Other(n.to_string()),
        }
    }

    /// Whether the task has ended.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether the task waits for something from our side.
    #[must_use]
    pub const fn is_interrupted(&self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Its name as 0.3 writes it, which is how the record shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::Other(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_in_the_field_is_read() {
        let table: [(Value, State); 20] = [
            (json!("TASK_STATE_SUBMITTED"), State::Submitted),
            (json!("submitted"), State::Submitted),
            (json!("TASK_STATE_WORKING"), State::Working),
            (json!("Working"), State::Working),
            (json!("input-required"), State::InputRequired),
            (json!("input_required"), State::InputRequired),
            (json!("TASK_STATE_INPUT_REQUIRED"), State::InputRequired),
            (json!("auth-required"), State::AuthRequired),
            (json!("COMPLETED"), State::Completed),
            (json!("failed"), State::Failed),
            (json!("TASK_STATE_REJECTED"), State::Rejected),
            (json!(1), State::Submitted),
            (json!(2), State::Working),
            (json!(3), State::Completed),
            (json!(4), State::Failed),
            (json!(5), State::Canceled),
            (json!(6), State::InputRequired),
            (json!(7), State::Rejected),
            (json!(8), State::AuthRequired),
            (json!(9), State::Other("9".into())),
        ];
        for (given, state) in table {
            assert_eq!(State::read(Some(&given)), state, "{given}");
        }
    }

    #[test]
    fn o_send_08_all_four_spellings_of_canceled_are_one_ending() {
        for s in ["cancelled", "canceled", "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED"] {
            assert_eq!(State::parse(s), State::Canceled);
            assert!(State::parse(s).is_terminal());
        }
    }

    #[test]
    fn a_state_that_nobody_knows_is_never_an_ending() {
        for v in [
            json!("unknown"),
            json!("TASK_STATE_UNSPECIFIED"),
            json!("done"),
            json!(0),
            json!(-3),
            json!({}),
            json!(3.5),
        ] {
            let state = State::read(Some(&v));
            assert!(
                matches!(state, State::Other(_)) && !state.is_terminal() && !state.is_interrupted(),
                "{v}"
            );
        }
        assert_eq!(State::read(None), State::Other(String::new()));
    }

    #[test]
    fn names_read_back() {
        for n in 1..=8 {
            let state = State::of_number(n);
            assert_eq!(State::parse(state.name()), state);
        }
    }
}
