//! What an expression may see, what it may spend, and why it may have no value.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::Root;
use crate::id::StepName;
use crate::payload::{NotAPayload, Payload};

/// What one evaluation of a template may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of JSON that it may give at most (about: escapes aren't counted).
    pub output_bytes: u64,
    /// Steps at most: one for each operation, and one for each byte that it makes or compares.
    pub steps: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { output_bytes: 4 << 20, steps: 16 << 20 }
    }
}

/// An expression that has no value: which one, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}`: {fault}")]
pub struct EvalError {
    /// The expression's text; empty if the whole template is meant.
    pub expression: String,
    /// Why.
    #[source]
    pub fault: EvalFault,
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalFault {
    /// A member or an element that isn't there.
    #[error("there is no {0}")]
    Missing(String),
    /// A value of another kind than needed.
    #[error("{wanted} was needed, got {got}")]
    Type {
        /// What was needed.
        wanted: &'static str,
        /// What came.
        got: &'static str,
    },
    /// An integer left 64 bits, or a double its finite range.
    #[error("the result is out of range")]
    OutOfRange,
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A text that isn't the number it was taken for.
    #[error("the string isn't a number")]
    NotANumber,
    /// One name twice in a mapping.
    #[error("a member is there twice")]
    DuplicateMember,
    /// More work than allowed.
    #[error("the expression does more work than allowed")]
    OutOfSteps,
    /// A larger result than allowed.
    #[error("the result is larger than {0} bytes")]
    TooLarge(u64),
    /// The value isn't a payload.
    #[error("the result isn't a payload")]
    NotAPayload(#[source] NotAPayload),
}

/// What an expression may see.
#[derive(Debug)]
pub struct Scope<'a> {
    input: View<'a>,
    steps: BTreeMap<StepName, (Value, View<'a>)>,
    task_id: Value,
    requester: Value,
    item: Option<&'a Value>,
}

/// A payload, shown as JSON when first asked for.
#[derive(Debug)]
struct View<'a> {
    payload: Option<&'a Payload>,
    shown: OnceLock<Value>,
}

impl View<'_> {
    fn value(&self) -> &Value {
        self.shown.get_or_init(|| self.payload.map_or(Value::Null, Payload::shown))
    }
}

impl<'a> Scope<'a> {
    /// A scope with the task's input and no step yet.
    pub fn new(input: &'a Payload, task_id: impl Into<String>, requester: impl Into<String>) -> Self {
        Self {
            input: View { payload: Some(input), shown: OnceLock::new() },
            steps: BTreeMap::new(),
            task_id: Value::String(task_id.into()),
            requester: Value::String(requester.into()),
            item: None,
        }
    }

    /// Adds a step that ended: its status word, and its output unless it was skipped.
    #[must_use]
    pub fn step(mut self, name: StepName, status: &str, output: Option<&'a Payload>) -> Self {
        let view = View { payload: output, shown: OnceLock::new() };
        self.steps.insert(name, (Value::String(status.to_owned()), view));
        self
    }

    /// Sets the element that this run of a `for_each` step is for.
    #[must_use]
    pub const fn item(mut self, item: &'a Value) -> Self {
        self.item = Some(item);
        self
    }

    /// The payload that a root is, if it is one.
    pub(in crate::workflow) fn payload(&self, root: &Root) -> Option<&'a Payload> {
        match root {
            Root::Input => self.input.payload,
            Root::Output(step) => self.steps.get(step).and_then(|(_, view)| view.payload),
            Root::Status(_) | Root::TaskId | Root::Requester | Root::Item => None,
        }
    }

    /// The value that a root is.
    pub(super) fn root(&self, root: &Root) -> Result<&Value, EvalFault> {
        let step = |name: &StepName| {
            self.steps.get(name).ok_or_else(|| EvalFault::Missing(format!("ended step `{name}`")))
        };
        match root {
            Root::Input => Ok(self.input.value()),
            Root::Output(name) => step(name).map(|(_, view)| view.value()),
            Root::Status(name) => step(name).map(|(status, _)| status),
            Root::TaskId => Ok(&self.task_id),
            Root::Requester => Ok(&self.requester),
            Root::Item => self.item.ok_or_else(|| EvalFault::Missing("`item` outside `for_each`".to_owned())),
        }
    }
}

/// What is left of the budget.
#[derive(Debug)]
pub(in crate::workflow) struct Meter {
    steps: u64,
    output: u64,
    output_bytes: u64,
}

impl Meter {
    pub(in crate::workflow) const fn new(bounds: Bounds) -> Self {
        Self { steps: bounds.steps, output: bounds.output_bytes, output_bytes: bounds.output_bytes }
    }

    /// Pays for work.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), EvalFault> {
        self.steps = self.steps.checked_sub(steps).ok_or(EvalFault::OutOfSteps)?;
        Ok(())
    }

    /// Pays for bytes of the result.
    pub(in crate::workflow) fn emit(&mut self, bytes: u64) -> Result<(), EvalFault> {
        self.output = self.output.checked_sub(bytes).ok_or(EvalFault::TooLarge(self.output_bytes))?;
        Ok(())
    }
}

/// About how many bytes a value is as JSON.
pub(in crate::workflow) fn weight(v: &Value) -> u64 {
    match v {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(s) => len(s).saturating_add(2),
        Value::Array(items) => items.iter().fold(2, |sum, v| sum.saturating_add(weight(v)).saturating_add(1)),
        Value::Object(m) => m
            .iter()
            .fold(2, |sum, (k, v)| sum.saturating_add(len(k)).saturating_add(weight(v)).saturating_add(4)),
    }
}

/// The length of a text, in the meter's measure.
pub(super) fn len(s: &str) -> u64 {
    u64::try_from(s.len()).unwrap_or(u64::MAX)
}
