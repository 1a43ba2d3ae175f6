//! What a workflow is: steps, their needs and their expressions; checked before it is stored.
//!
//! A workflow is a YAML (or JSON) text. [`Workflow::parse`] reads it whole or answers every fault with its
//! line and column; what it lets through names only endpoints, never addresses, has no cycle, and
//! holds expressions whose work is bounded before they are parsed. Nothing here runs a step: the task
//! does, and asks this module for its input ([`Template::payload`]) and its conditions ([`Template::holds`]).

pub mod check;
pub mod definition;
mod document;
pub mod expression;
pub mod fault;
pub mod guard;
mod reading;
pub mod template;

pub use definition::{Ask, ForEach, Retry, StepDef, Workflow, WorkflowRef};
pub use expression::scope::{Bounds, EvalError, EvalFault, Scope};
pub use expression::{Expression, Read, Root};
pub use fault::{Fault, FaultCode, Mark};
pub use guard::{Source, UnsafeRead};
pub use template::Template;
