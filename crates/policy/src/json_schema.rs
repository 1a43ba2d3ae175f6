//! JSON Schema (draft 2020-12), compiled once, bounded, and asked without side effects.
//!
//! A workflow's author writes the schema, a foreign agent the instance, and neither may cost us more than
//! they should. Promises: no reference leaves the document; patterns run in linear time (no look-around, no
//! back-references); with all its references written out a schema has a bounded number of subschemas and a
//! bounded depth, so that a check's work and stack are bounded by both sizes.
//! Never: fetches anything; quotes the instance in a message, for what was checked may be confidential and
//! messages travel farther.
//!
//! Source: JSON Schema 2020-12, core §8–10 and validation.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde::Serialize;
use serde_json::Value;

use crate::json_schema::bounds::{Extent, Weight};

mod bounds;

/// The largest schema, in bytes of compact JSON.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// How deep a checked instance may nest.
pub const MAX_INSTANCE_DEPTH: usize = 128;

/// How many mismatches are told.
const MAX_MISMATCHES: usize = 20;

const MESSAGE_CHARS: usize = 300;

/// The most memory that a compiled pattern may take, in bytes.
const PATTERN_BYTES: usize = 256 * 1024;

/// Why a schema can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("at {pointer:?}: {message}")]
pub struct SchemaFault {
    /// Where in the schema, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// A sentence: what is wrong, and what helps.
    pub message: String,
}

/// One way in which an instance doesn't meet its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Where in the instance, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What was expected there. Never quotes the instance's values.
    pub message: String,
}

/// The most steps that one check may take; about a second.
const MAX_STEPS: usize = 128 * 1024 * 1024;

/// The most bytes that the list of mismatches may take while it is made.
const MAX_COPIES: usize = 64 * 1024 * 1024;

/// A compiled schema.
pub struct SchemaCheck {
    validator: Validator,
    weight: Weight,
}

impl std::fmt::Debug for SchemaCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchemaCheck").finish_non_exhaustive()
    }
}

impl SchemaCheck {
    /// Compiles a schema. `$schema` may be absent or name draft 2020-12; a `$ref` is `#` or `#/a/pointer`
    /// into the same document and doesn't lead back to itself.
    ///
    /// # Errors
    /// The first reason why it can't be used.
    pub fn compile(schema: &Value) -> Result<Self, SchemaFault> {
        let weight = bounds::check(schema)?;
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(
                PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES),
            )
            .build(schema)
            .map(|validator| Self { validator, weight })
            .map_err(|error| {
                // What fails against the metaschema is an instance of it, so the place is the instance's.
                SchemaFault::new(error.instance_path().as_str(), &format!("{}.", error.masked_with("this")))
            })
    }

    /// Checks an instance.
    ///
    /// # Errors
    /// How it doesn't fit: at least one mismatch, at most 20, in the order in which they are found.
    pub fn check(&self, instance: &Value) -> Result<(), Vec<Mismatch>> {
        if let Some(pointer) = bounds::deeper_than(instance, MAX_INSTANCE_DEPTH) {
            return Err(vec![Mismatch::new(&pointer, &format!("nests deeper than {MAX_INSTANCE_DEPTH}"))]);
        }
        let extent = Extent::of(instance);
        if self.weight.steps(extent) > MAX_STEPS {
            return Err(vec![Mismatch::new("", "is too large to be checked against its schema")]);
        }
        // The plain answer costs no allocation; most instances fit.
        if self.validator.is_valid(instance) {
            return Ok(());
        }
        let mut mismatches = Vec::new();
        if self.weight.copies(extent) <= MAX_COPIES {
            mismatches.extend(self.validator.iter_errors(instance).take(MAX_MISMATCHES).map(Mismatch::of));
        }
        if mismatches.is_empty() {
            mismatches.push(Mismatch::new("", "doesn't meet its schema"));
        }
        Err(mismatches)
    }
}

impl Mismatch {
    fn new(pointer: &str, message: &str) -> Self {
        Self { pointer: cut(pointer), message: cut(message) }
    }

    fn of(error: ValidationError<'_>) -> Self {
        let message = match error.kind() {
            // Its text would quote the name.
            ValidationErrorKind::PropertyNames { .. } => "has a property whose name isn't allowed".to_owned(),
            _ => error.masked_with("the value").to_string(),
        };
        Self::new(error.instance_path().as_str(), &message)
    }
}

impl SchemaFault {
    fn new(pointer: &str, message: &str) -> Self {
        Self { pointer: cut(pointer), message: cut(message) }
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
