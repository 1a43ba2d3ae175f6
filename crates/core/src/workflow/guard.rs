//! A foreign agent never routes: what a condition may read of what a foreign agent wrote.
//!
//! A `when` or the list of a `for_each` that reads tainted output decides which named steps run. It may
//! read only places that the step's `output_schema` confines to a closed choice: a boolean, a number,
//! one of an `enum`. Free text can't decide anything. Checked twice: when a workflow is pushed, with the
//! taint that its text shows (foreign steps, and steps that were handed what those wrote); and before a
//! condition is evaluated, with the taint that the task really has ([`Workflow::unsafe_read`]).

use std::collections::BTreeSet;

use serde_json::Value;

use super::definition::{ForEach, Workflow};
use super::expression::{Read, Root, Segment};
use crate::endpoint::Endpoint;
use crate::id::StepName;

/// Something tainted that a condition may read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The task's input.
    Input,
    /// A step's output.
    Step(StepName),
}

/// A condition that reads tainted content where no schema confines it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the condition of `{step}` reads {what} where no schema confines it to a boolean, a number or an enum"
)]
pub struct UnsafeRead {
    /// The step whose condition it is.
    pub step: StepName,
    /// What it reads, in words.
    pub what: String,
}

impl Workflow {
    /// The first read by a step's `when` or `for_each` that may not be, given what is tainted.
    #[must_use]
    pub fn unsafe_read(&self, step: &StepName, tainted: &BTreeSet<Source>) -> Option<UnsafeRead> {
        let def = self.step(step)?;
        let conditions = def.when.iter().chain(def.for_each.iter().map(|e| &e.list));
        conditions.flat_map(super::Template::reads).find_map(|read| {
            let (what, schema, each) = match &read.root {
                Root::Input if tainted.contains(&Source::Input) => {
                    ("the task's input".to_owned(), self.input_schema.as_ref(), None)
                }
                Root::Output(of) if tainted.contains(&Source::Step(of.clone())) => {
                    let of_step = self.step(of);
                    let schema = of_step.and_then(|s| s.output_schema.as_ref());
                    (format!("the output of `{of}`"), schema, of_step.and_then(|s| s.for_each.as_ref()))
                }
                _ => return None,
            };
            (!is_confined(read, schema, each)).then(|| UnsafeRead { step: step.clone(), what })
        })
    }
}

/// Is a foreign agent among the places that a step may go to?
pub(super) fn any_agent<'e>(mut endpoints: impl Iterator<Item = &'e Endpoint>) -> bool {
    endpoints.any(|e| matches!(e, Endpoint::Agent(_)))
}

/// Does this read end at a boolean, a number or one of a closed list, by this schema of the data? What a
/// `for_each` step gave is a list, and the schema is of each element's output.
pub(super) fn is_confined(read: &Read, schema: Option<&Value>, each: Option<&ForEach>) -> bool {
    let within = match (each, read.path.as_slice()) {
        (None, path) => path,
        (Some(_), [Segment::Member(view), Segment::At(_), path @ ..]) if view == "data" => path,
        (Some(_), _) => return false,
    };
    let (Some(root), Some((Segment::Member(view), path))) = (schema, within.split_first()) else {
        return false;
    };
    let mut at = match resolve(root, root) {
        Some(s) if view == "data" => s,
        _ => return false,
    };
    for segment in path {
        let next = match segment {
            Segment::Member(name) => at.get("properties").and_then(|p| p.get(name)),
            // `prefixItems` gives the first elements schemas of their own; `items` is then for the rest.
            Segment::At(_) if at.get("prefixItems").is_none() => at.get("items"),
            Segment::At(_) => None,
        };
        at = match next.and_then(|s| resolve(root, s)) {
            Some(s) => s,
            None => return false,
        };
    }
    is_closed_choice(at)
}

/// Follows references within the schema.
fn resolve<'s>(root: &'s Value, mut at: &'s Value) -> Option<&'s Value> {
    for _ in 0..16 {
        let Some(Value::String(to)) = at.get("$ref") else { return Some(at) };
        if is_closed_choice(at) {
            return Some(at);
        }
        at = root.pointer(to.strip_prefix('#')?)?;
    }
    None
}

/// Every keyword of a schema object must hold, so one that closes the choice is enough.
fn is_closed_choice(schema: &Value) -> bool {
    let closed = |t: &Value| matches!(t.as_str(), Some("boolean" | "number" | "integer" | "null"));
    let by_type = match schema.get("type") {
        Some(Value::Array(types)) => !types.is_empty() && types.iter().all(closed),
        Some(t) => closed(t),
        None => false,
    };
    by_type || schema.get("const").is_some() || schema.get("enum").is_some_and(Value::is_array)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::label::Levels;
    use crate::workflow::Expression;

    #[test]
    fn only_closed_choices_of_the_schema_are_confined() {
        let schema = json!({
            "type": "object",
            "$defs": { "flag": { "type": "boolean" }, "loop": { "$ref": "#/$defs/loop" } },
            "properties": {
                "ok": { "type": "boolean" }, "n": { "type": ["integer", "null"] },
                "word": { "enum": ["a", "b"] }, "one": { "const": "x" },
                "text": { "type": "string" }, "any": {}, "either": { "type": ["string", "boolean"] },
                "list": { "type": "array", "items": { "type": "number" } },
                "pair": { "prefixItems": [{}], "items": { "type": "number" } },
                "deep": { "properties": { "flag": { "$ref": "#/$defs/flag" } } },
                "loop": { "$ref": "#/$defs/loop" }, "gone": { "$ref": "#/$defs/none" }
            }
        });
        let confined = |path: &str| {
            let read = Expression::parse(&format!("steps.x.output{path}")).unwrap().reads()[0].clone();
            is_confined(&read, Some(&schema), None)
        };
        for ok in [".data.ok", ".data.n", ".data['word']", ".data.one", ".data.list[3]", ".data.deep.flag"] {
            assert!(confined(ok), "{ok}");
        }
        for free in [
            "",
            ".text",
            ".data",
            ".parts",
            ".data.text",
            ".data.any",
            ".data.either",
            ".data.list",
            ".data.pair[0]",
            ".data.deep",
            ".data.loop",
            ".data.gone",
            ".data.other",
            ".parts[0].text",
            ".data.list[input.data.i]",
            ".data[input.text]",
            ".text.ok",
        ] {
            assert!(!confined(free), "{free}");
        }
        let read = Expression::parse("steps.x.output.data.ok").unwrap().reads()[0].clone();
        assert!(!is_confined(&read, None, None));
        assert!(!is_confined(&read, Some(&json!(true)), None));
    }
    #[test]
    fn of_a_list_only_closed_choices_of_an_element_are_confined() {
        let schema = json!({ "properties": { "ok": { "type": "boolean" }, "text": { "type": "string" } } });
        let text = "name: x\nsteps: {x: {to: role:x, for_each: \"${{ input.data }}\"}}";
        let flow = Workflow::parse(text, &Levels::default()).unwrap();
        let confined = |path: &str| {
            let read = Expression::parse(&format!("steps.x.output{path}")).unwrap().reads()[0].clone();
            is_confined(&read, Some(&schema), flow.steps[0].for_each.as_ref())
        };
        assert!(confined(".data[0].data.ok"));
        for free in [
            "",
            ".data",
            ".data.ok",
            ".data[0]",
            ".data[0].data.text",
            ".data[0].text",
            ".text",
            ".parts[0].data.ok",
        ] {
            assert!(!confined(free), "{free}");
        }
    }
}
