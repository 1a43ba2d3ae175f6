//! What is wrong with a policy text, where, and in words.

use std::collections::HashMap;

use cedar_policy::{ParseErrors, PolicyId};
use miette::Diagnostic;
use serde::Serialize;

use crate::position::Position;

/// A fault in a policy text. Ordered by place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct PolicyFault {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// A sentence or two: what is wrong, and what helps.
    pub message: String,
    /// The `@id` of the policy, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_id: Option<String>,
}

/// A message may quote the text; a hostile text isn't given back whole.
const MESSAGE_CHARS: usize = 600;

impl PolicyFault {
    /// A fault at a byte of the text, of no policy.
    pub(crate) fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let Position { line, column } = Position::of(text, offset);
        Self { line, column, message: cut(message.into()), policy_id: None }
    }

    /// The faults of a text that isn't Cedar.
    pub(crate) fn of_parse(text: &str, errors: &ParseErrors) -> Vec<Self> {
        let faults = errors.iter().map(|error| Self::at(text, place(error), told(error, ""))).collect();
        super::in_order(faults)
    }

    /// A fault that the validator found.
    pub(crate) fn of_check(
        text: &str,
        error: &dyn Diagnostic,
        policy: &PolicyId,
        names: &HashMap<PolicyId, String>,
    ) -> Self {
        // Cedar's name for the policy (`policy0`) means nothing to who wrote it; ours goes beside the message.
        let noise = format!("for policy `{policy}`, ");
        let fault = Self::at(text, place(error), told(error, &noise));
        Self { policy_id: names.get(policy).cloned(), ..fault }
    }
}

/// The first byte that the error points to.
fn place(error: &dyn Diagnostic) -> usize {
    error.labels().and_then(|labels| labels.map(|label| label.offset()).min()).unwrap_or(0)
}

/// The error, what was expected at its place, and what helps: each a sentence, free of `noise`.
fn told(error: &dyn Diagnostic, noise: &str) -> String {
    let labels = error.labels().into_iter().flatten();
    let parts = std::iter::once(error.to_string())
        .chain(labels.filter_map(|label| label.label().map(str::to_owned)))
        .chain(error.help().map(|help| help.to_string()));
    let clean = |part: String| if noise.is_empty() { part } else { part.replace(noise, "") };
    parts.map(|part| sentence(&clean(part))).collect::<Vec<_>>().join(" ")
}

fn sentence(text: &str) -> String {
    let mut chars = text.trim().chars();
    let first = chars.next().map(char::to_uppercase).into_iter().flatten();
    let mut out: String = first.chain(chars).collect();
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

fn cut(message: String) -> String {
    match message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message,
    }
}
