//! Asks Cedar and explains the answer. Fails closed.
//!
//! Promises: an answer is a pure function of the question and the two policy sets (no clock, no I/O); a
//! policy that can't be evaluated denies, where Cedar alone would skip it; text that isn't a valid set never
//! becomes a [`PolicySet`], and its faults are told with line and column.
//! Never: reads anything that a foreign agent wrote, parses while judging, lets a question pass that doesn't
//! fit the schema.
//!
//! JSON Schema lives here too ([`json_schema`]), because it is the same kind of thing: somebody's rules,
//! compiled once, bounded, and asked without side effects.

pub mod governor;
pub mod json_schema;
pub mod set;

mod position;
mod request;
mod vocabulary;

pub use governor::{Explanation, Sets, Trouble, Versions};
pub use request::describe;
pub use set::{PLATFORM_DEFAULT, PolicyFault, PolicySet, STARTER};
pub use vocabulary::{SCHEMA, SCHEMA_VERSION};
