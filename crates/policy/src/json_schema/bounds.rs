//! Bounds on a schema, checked before it is compiled.
//!
//! References make a small schema large: thirty definitions that each name the next twice are a billion
//! subschemas. So the schema is walked as a validator would apply it, with every reference written out, and
//! the walk is cut off at a number and a depth. A reference that leads back to itself has no end and is
//! refused. What is left is a finite tree, and a check visits each of its nodes at most once per value.

use serde_json::{Map, Value};

use crate::json_schema::{MAX_SCHEMA_BYTES, SchemaFault};

/// How many `unevaluated…` may lie within each other. A validator checks what lies within once more to learn
/// what it evaluated, so that each doubles the work.
const MAX_UNEVALUATED: usize = 2;

/// How many subschemas, references written out.
const MAX_SUBSCHEMAS: usize = 4_096;

/// How deep they nest, references written out.
const MAX_DEPTH: usize = 64;

/// How deep the schema's own JSON nests.
const MAX_JSON_DEPTH: usize = 128;

/// How many patterns, each of which is compiled.
const MAX_PATTERNS: usize = 128;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords whose value is a schema.
const ONE: [&str; 11] = [
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is a map of schemas.
const MAP: [&str; 4] = ["dependentSchemas", "dependencies", "patternProperties", "properties"];
/// Keywords that name or reach schemas otherwise than by a pointer into this document.
const REFUSED: [&str; 6] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary"];

/// Refuses a schema that is too large, too deep, endless, or reaches out of its document.
pub(super) fn check(schema: &Value) -> Result<Weight, SchemaFault> {
    if let Some(pointer) = deeper_than(schema, MAX_JSON_DEPTH) {
        return Err(SchemaFault::new(&pointer, &format!("The schema nests deeper than {MAX_JSON_DEPTH}.")));
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        let message = format!("A schema has at most {MAX_SCHEMA_BYTES} bytes; this has {bytes}.");
        return Err(SchemaFault::new("", &message));
    }
    let mut walk =
        Walk { root: schema, open: vec![""], unevaluated: 0, subschemas: 0, weight: Weight::default() };
    walk.schema(schema, "", 0)?;
    let weight = walk.weight;
    // What no reference reaches is held to the same.
    walk.open.clear();
    walk.definitions(schema)?;
    Ok(weight)
}

/// What a schema may cost for each value, references written out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weight {
    /// Keywords and listed values: each at most one step for each value.
    steps: usize,
    /// Patterns: each at most one step for each byte.
    patterns: usize,
}

impl Weight {
    /// The most steps that checking an instance may take.
    pub(super) fn steps(self, extent: Extent) -> usize {
        let values = self.steps.saturating_mul(extent.values);
        values.saturating_add(self.patterns.saturating_mul(extent.bytes))
    }

    /// The most bytes that telling all mismatches of an instance may take: each may copy what it is about.
    pub(super) fn copies(self, extent: Extent) -> usize {
        self.steps.saturating_mul(extent.bytes)
    }
}

/// How large a value is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// Values in it, itself included.
    values: usize,
    /// About how much memory a copy takes.
    bytes: usize,
}

impl Extent {
    /// Measures, by a loop.
    pub(super) fn of(value: &Value) -> Self {
        let mut extent = Self::default();
        let mut rest = vec![value];
        while let Some(value) = rest.pop() {
            extent.values += 1;
            extent.bytes += size_of::<Value>();
            match value {
                Value::String(text) => extent.bytes += text.len(),
                Value::Array(items) => rest.extend(items),
                Value::Object(members) => {
                    extent.bytes += members.keys().map(String::len).sum::<usize>();
                    rest.extend(members.values());
                }
                _ => {}
            }
        }
        extent
    }
}

/// The pointer of a value that lies deeper than `most` levels, if there is one. Walks by a loop.
pub(super) fn deeper_than(value: &Value, most: usize) -> Option<String> {
    let mut rest = vec![(value, 0usize, String::new())];
    while let Some((value, depth, pointer)) = rest.pop() {
        if depth > most {
            return Some(pointer);
        }
        // Only the outermost names are told: where it becomes too deep, the whole path is long and of no use.
        let step = |name: &str| if depth < 8 { child(&pointer, name) } else { pointer.clone() };
        match value {
            Value::Array(items) => {
                let nests = items.iter().enumerate().filter(|(_, item)| is_nest(item));
                rest.extend(nests.map(|(n, item)| (item, depth + 1, step(&n.to_string()))));
            }
            Value::Object(members) => {
                let nests = members.iter().filter(|(_, member)| is_nest(member));
                rest.extend(nests.map(|(name, member)| (member, depth + 1, step(name))));
            }
            _ => {}
        }
    }
    None
}

fn is_nest(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

struct Walk<'a> {
    root: &'a Value,
    /// The references being followed, outermost first.
    open: Vec<&'a str>,
    /// `unevaluated…` keywords around here.
    unevaluated: usize,
    subschemas: usize,
    weight: Weight,
}

impl<'a> Walk<'a> {
    /// Walks a schema and all it applies. `depth` counts schemas within schemas.
    fn schema(&mut self, schema: &'a Value, pointer: &str, depth: usize) -> Result<(), SchemaFault> {
        self.subschemas += 1;
        if self.subschemas > MAX_SUBSCHEMAS {
            let message = format!(
                "With its references written out, a schema has at most {MAX_SUBSCHEMAS} subschemas; this has more."
            );
            return Err(SchemaFault::new(pointer, &message));
        }
        if depth > MAX_DEPTH {
            let message =
                format!("With its references written out, a schema nests at most {MAX_DEPTH} deep.");
            return Err(SchemaFault::new(pointer, &message));
        }
        let Some(members) = schema.as_object() else { return Ok(()) };
        self.plain(members, pointer, depth)?;
        self.weight.steps +=
            members.len() + members.values().filter_map(Value::as_array).map(Vec::len).sum::<usize>();
        let around = self.unevaluated;
        self.unevaluated += usize::from(members.keys().any(|name| name.starts_with("unevaluated")));
        if self.unevaluated > MAX_UNEVALUATED {
            let message = format!("At most {MAX_UNEVALUATED} levels of unevaluated… lie within each other.");
            return Err(SchemaFault::new(pointer, &message));
        }
        let walked = members.iter().try_for_each(|(name, value)| self.keyword(name, value, pointer, depth));
        self.unevaluated = around;
        walked
    }

    /// Walks the schemas of one keyword.
    fn keyword(
        &mut self,
        name: &str,
        value: &'a Value,
        pointer: &str,
        depth: usize,
    ) -> Result<(), SchemaFault> {
        let here = child(pointer, name);
        match value {
            Value::String(target) if name == "$ref" => self.reference(target, &here, depth),
            value if ONE.contains(&name) => self.schema(value, &here, depth + 1),
            Value::Array(items) if LIST.contains(&name) => items
                .iter()
                .enumerate()
                .try_for_each(|(n, item)| self.schema(item, &child(&here, &n.to_string()), depth + 1)),
            Value::Object(schemas) if MAP.contains(&name) => schemas
                .iter()
                .try_for_each(|(key, schema)| self.schema(schema, &child(&here, key), depth + 1)),
            _ => Ok(()),
        }
    }

    /// Keywords that aren't supported, or not everywhere.
    fn plain(
        &mut self,
        members: &Map<String, Value>,
        pointer: &str,
        depth: usize,
    ) -> Result<(), SchemaFault> {
        if let Some(name) = REFUSED.iter().find(|name| members.contains_key(**name)) {
            let message =
                format!("{name} isn't supported; refer to a definition by \"$ref\": \"#/$defs/NAME\".");
            return Err(SchemaFault::new(&child(pointer, name), &message));
        }
        if depth > 0 && members.contains_key("$id") {
            let message = "$id is supported at the top only; references are pointers into this document.";
            return Err(SchemaFault::new(&child(pointer, "$id"), message));
        }
        match members.get("$schema") {
            None => {}
            Some(Value::String(draft)) if draft.trim_end_matches('#') == DRAFT => {}
            Some(_) => {
                let message = format!("$schema, if it is there, must be {DRAFT}.");
                return Err(SchemaFault::new(&child(pointer, "$schema"), &message));
            }
        }
        let named = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        self.weight.patterns += named + usize::from(members.contains_key("pattern"));
        if self.weight.patterns > MAX_PATTERNS {
            let message = format!("A schema has at most {MAX_PATTERNS} patterns.");
            return Err(SchemaFault::new(pointer, &message));
        }
        Ok(())
    }

    fn reference(&mut self, target: &'a str, here: &str, depth: usize) -> Result<(), SchemaFault> {
        let Some(pointer) = target.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'))
        else {
            let message = "A $ref stays in this document (\"#/$defs/NAME\"); nothing is fetched.";
            return Err(SchemaFault::new(here, message));
        };
        if pointer.contains('%') {
            return Err(SchemaFault::new(here, "A $ref is written without percent-encoding."));
        }
        let Some(schema) = self.root.pointer(pointer) else {
            return Err(SchemaFault::new(here, "The $ref points to nothing in this document."));
        };
        if self.open.contains(&pointer) {
            let message = "The $ref leads back to itself; a recursive schema has no bound and is refused.";
            return Err(SchemaFault::new(here, message));
        }
        self.open.push(pointer);
        let walked = self.schema(schema, pointer, depth + 1);
        self.open.pop();
        walked
    }

    fn definitions(&mut self, schema: &'a Value) -> Result<(), SchemaFault> {
        for keyword in ["$defs", "definitions"] {
            let Some(definitions) = schema.get(keyword).and_then(Value::as_object) else { continue };
            for (name, definition) in definitions {
                self.schema(definition, &child(&child("", keyword), name), 1)?;
            }
        }
        Ok(())
    }
}
