//! What callers give with a task: labels, and what runs.

use exeat_core::label::{Label, Levels};
use serde_json::Value;

use crate::problem::{Code, Fault, Problem};

/// Reads a label: `{"level","tags"}`, or its text `internal+eu`.
///
/// # Errors
/// 422 `bad_label`.
pub fn label(pointer: &str, value: &Value, levels: &Levels) -> Result<Label, Problem> {
    let bad = |why: String| bad_label(pointer, why);
    match value {
        Value::String(text) => levels.parse(text).map_err(|e| bad(e.to_string())),
        Value::Object(m) => {
            if let Some(other) = m.keys().find(|k| !["level", "tags"].contains(&k.as_str())) {
                let other: String = other.chars().take(64).collect();
                let fault = Fault {
                    pointer: Some(format!("{pointer}/{other}")),
                    message: "A label has the members level and tags.".to_owned(),
                    ..Fault::default()
                };
                let detail = format!("A label has no member {other:?}.");
                return Err(Problem::new(Code::UnknownMember, detail).listing(vec![fault]));
            }
            let level = m.get("level").and_then(Value::as_str);
            let level = level.ok_or_else(|| bad("a label needs a level".to_owned()))?;
            let tags = match m.get("tags") {
                None => Vec::new(),
                Some(Value::Array(tags)) => tags
                    .iter()
                    .map(|t| t.as_str().map(str::to_owned))
                    .collect::<Option<_>>()
                    .ok_or_else(|| bad("a label's tags are strings".to_owned()))?,
                Some(_) => return Err(bad("a label's tags are a list".to_owned())),
            };
            levels.label(level, tags).map_err(|e| bad(e.to_string()))
        }
        _ => Err(bad("a label is an object with level and tags, or its text".to_owned())),
    }
}

/// A label that may only raise what is there.
///
/// # Errors
/// 422 `bad_label`.
pub fn raising(
    pointer: &str,
    value: Option<&Value>,
    from: &Label,
    levels: &Levels,
) -> Result<Label, Problem> {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Ok(from.clone()) };
    let asked = label(pointer, value, levels)?;
    if from.flows_to(&asked) {
        Ok(asked)
    } else {
        Err(bad_label(pointer, format!("a label only raises: {asked} is not at least {from}")))
    }
}

fn bad_label(pointer: &str, why: String) -> Problem {
    let message = crate::problem::sentence(&why);
    let fault = Fault { pointer: Some(pointer.to_owned()), message: message.clone(), ..Fault::default() };
    Problem::new(Code::BadLabel, message).listing(vec![fault])
}
