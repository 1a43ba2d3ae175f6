//! What is wrong with a workflow text, and where.
//!
//! A fault points at the offending node by line and column (both from 1, in characters) and by JSON
//! pointer (RFC 6901), so that an editor, a terminal and a program can each show it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a fault: what a program may act on. The message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// The text is longer than [`MAX_TEXT_BYTES`](crate::workflow::check::MAX_TEXT_BYTES).
    TooLarge,
    /// Not YAML, or more than one document, or nested too deep.
    BadYaml,
    /// An anchor, alias or tag: they make a text mean more than it shows.
    AliasOrTag,
    /// The same member twice in one mapping.
    DuplicateKey,
    /// A scalar that JSON can't hold: `.nan`, or a number that isn't exact as an IEEE double.
    BadNumber,
    /// A member that the format doesn't have.
    UnknownMember,
    /// A member that must be there isn't.
    MissingMember,
    /// A value of the wrong JSON kind.
    WrongType,
    /// A value of the right kind that isn't allowed: a bad name, an endpoint, a duration, a range.
    BadValue,
    /// Not `role:NAME`, `team:NAME` or `agent:KEY`.
    BadEndpoint,
    /// An endpoint that isn't there, e.g. an agent that the registry doesn't have.
    UnknownDestination,
    /// An address where a name belongs. Addresses live in the registry, under posture.
    UrlInWorkflow,
    /// Not one of the org's levels, or a bad tag.
    BadLabel,
    /// Not a JSON Schema that can be used: not an object or boolean, or a reference to elsewhere.
    BadSchema,
    /// More than [`MAX_STEPS`](crate::workflow::check::MAX_STEPS) steps.
    TooManySteps,
    /// A step that the workflow doesn't have.
    UnknownStep,
    /// Steps that need each other, so that none of them could ever start.
    Cycle,
    /// A reference to a step outside the (transitive) `needs`.
    NotNeeded,
    /// An expression that doesn't parse.
    BadExpression,
    /// An expression over its bounds of length, operators, nesting.
    ExpressionTooLarge,
    /// A name that no expression knows.
    UnknownName,
    /// A function that no expression knows; macros and `matches` among them.
    UnknownFunction,
    /// A condition on foreign output that no schema confines to a closed choice.
    ForeignCondition,
    /// Several needs and no `input`: which of them is meant?
    AmbiguousInput,
}

impl FaultCode {
    /// As programs see it, e.g. `url_in_workflow`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::BadYaml => "bad_yaml",
            Self::AliasOrTag => "alias_or_tag",
            Self::DuplicateKey => "duplicate_key",
            Self::BadNumber => "bad_number",
            Self::UnknownMember => "unknown_member",
            Self::MissingMember => "missing_member",
            Self::WrongType => "wrong_type",
            Self::BadValue => "bad_value",
            Self::BadEndpoint => "bad_endpoint",
            Self::UnknownDestination => "unknown_destination",
            Self::UrlInWorkflow => "url_in_workflow",
            Self::BadLabel => "bad_label",
            Self::BadSchema => "bad_schema",
            Self::TooManySteps => "too_many_steps",
            Self::UnknownStep => "unknown_step",
            Self::Cycle => "cycle",
            Self::NotNeeded => "not_needed",
            Self::BadExpression => "bad_expression",
            Self::ExpressionTooLarge => "expression_too_large",
            Self::UnknownName => "unknown_name",
            Self::UnknownFunction => "unknown_function",
            Self::ForeignCondition => "foreign_condition",
            Self::AmbiguousInput => "ambiguous_input",
        }
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in a text: line and column, both from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

impl Mark {
    /// The first character.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// One thing that is wrong, and where. Orders by place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fault {
    /// Line of the offending node, from 1.
    pub line: u32,
    /// Column of the offending node, from 1, in characters.
    pub column: u32,
    /// The kind.
    pub code: FaultCode,
    /// JSON pointer of the offending node.
    pub pointer: String,
    /// What is wrong, for people; holds at most an excerpt of the text.
    pub message: String,
}

impl Fault {
    /// Builds one.
    pub fn new(code: FaultCode, at: Mark, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: at.line, column: at.column, code, pointer: pointer.into(), message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.line, self.column, self.code, self.message)
    }
}

/// A text, cut so that a message never carries a whole hostile input.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// The pointer of a member beneath `pointer` (RFC 6901 escapes).
#[must_use]
pub fn beneath(pointer: &str, member: &str) -> String {
    let member: String = member.chars().take(80).collect();
    format!("{pointer}/{}", member.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_json_has_the_code_that_is_printed() {
        use FaultCode as C;
        for code in [
            C::TooLarge,
            C::BadYaml,
            C::AliasOrTag,
            C::DuplicateKey,
            C::BadNumber,
            C::UnknownMember,
            C::MissingMember,
            C::WrongType,
            C::BadValue,
            C::BadEndpoint,
            C::UnknownDestination,
            C::UrlInWorkflow,
            C::BadLabel,
            C::BadSchema,
            C::TooManySteps,
            C::UnknownStep,
            C::Cycle,
            C::NotNeeded,
            C::BadExpression,
            C::ExpressionTooLarge,
            C::UnknownName,
            C::UnknownFunction,
            C::ForeignCondition,
            C::AmbiguousInput,
        ] {
            let fault = Fault::new(code, Mark { line: 3, column: 7 }, beneath("/a", "b/~"), "why");
            let shown = serde_json::to_value(&fault).unwrap();
            assert_eq!(
                shown,
                serde_json::json!({
                    "line": 3, "column": 7, "code": code.as_str(), "pointer": "/a/b~1~0", "message": "why"
                })
            );
            assert_eq!(serde_json::from_value::<Fault>(shown).unwrap(), fault);
        }
    }
}
