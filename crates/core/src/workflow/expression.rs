//! An expression of a workflow: CEL without macros and `matches`, bounded before it is parsed.
//!
//! It may name `input`, `steps.X.output`, `steps.X.status`, `task.id`, `task.requester` and, under
//! `for_each`, `item`; it may call `size`, `string`, `int`, `double`, `contains`, `startsWith`, `endsWith`.
//! The `scan` holds it to its bounds, the parser then
//! descends only as deep as was counted, and `evaluate` works over JSON with a budget. That the three mean what CEL
//! means is tested against the `cel` crate; its own parser and interpreter know no bounds.

pub(super) mod evaluate;
mod number;
mod scan;
pub mod scope;
mod syntax;

use std::sync::Arc;

use serde_json::Value;

use super::fault::FaultCode;
use crate::id::StepName;
use scan::End;

/// Bytes of an expression at most.
pub const MAX_BYTES: usize = 1024;
/// Operators at most (arithmetic, comparison, logic, `!`, `?`, `in`).
pub const MAX_OPERATORS: usize = 64;
/// Members, indices and elements at most (`.`, `[`, `,`, `:`).
pub const MAX_MEMBERS: usize = 128;
/// Brackets within brackets at most.
pub const MAX_NESTING: usize = 16;

/// Why a text isn't an expression, and at which byte of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Bad {
    /// The kind.
    pub code: FaultCode,
    /// Byte offset within the expression.
    pub offset: usize,
    /// For people.
    pub message: String,
}

impl Bad {
    fn new(code: FaultCode, offset: usize, message: impl Into<String>) -> Self {
        Self { code, offset, message: message.into() }
    }
}

/// What an expression may start from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The task's input, as a payload is shown.
    Input,
    /// A step's output, as a payload is shown; null if the step was skipped.
    Output(StepName),
    /// A step's status word.
    Status(StepName),
    /// The task's id.
    TaskId,
    /// Who started the task.
    Requester,
    /// The element that this run of a `for_each` step is for.
    Item,
}

/// One static step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// A member, by name.
    Member(String),
    /// An element, by index.
    At(i64),
}

/// A place that an expression reads: the root, and the path as far as it is written out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// Where it starts.
    pub root: Root,
    /// The way from there. What follows a computed index isn't part of it.
    pub path: Vec<Segment>,
    /// Byte offset of the read within the expression.
    pub offset: usize,
}

/// An expression that was scanned and parsed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Expression {
    source: Arc<str>,
    tree: Arc<syntax::Tree>,
    reads: Arc<[Read]>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// The first place where it is over a bound, isn't CEL, or names what it may not.
    pub fn parse(source: &str) -> Result<Self, Bad> {
        let scanned = scan::scan(source, End::OfText)?;
        Self::build(source, &scanned)
    }

    /// Reads the expression at the start of `text`, up to the `}}` that closes it. Answers the expression
    /// and the length of its source without the braces.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or if nothing closes it.
    pub(super) fn parse_embedded(text: &str) -> Result<(Self, usize), Bad> {
        let scanned = scan::scan(text, End::AtBraces)?;
        let source = text.get(..scanned.len).unwrap_or_default();
        Ok((Self::build(source, &scanned)?, scanned.len))
    }

    fn build(source: &str, scanned: &scan::Scanned<'_>) -> Result<Self, Bad> {
        let tree = syntax::parse(&scanned.tokens, scanned.len)?;
        let mut reads = Vec::new();
        tree.gather(&mut reads);
        Ok(Self { source: source.trim().into(), tree: Arc::new(tree), reads: reads.into() })
    }

    /// Its text, trimmed.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Every place that it reads, whichever branch it takes.
    #[must_use]
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// The step whose whole output, or the input, that this expression is, and nothing else.
    pub(super) fn whole(&self) -> Option<&Root> {
        match &*self.tree {
            syntax::Tree::Read(Read { root, path, .. }) if path.is_empty() => Some(root),
            _ => None,
        }
    }

    /// The value, within the meter's budget.
    pub(super) fn value(
        &self,
        scope: &scope::Scope<'_>,
        meter: &mut scope::Meter,
    ) -> Result<Value, scope::EvalError> {
        evaluate::evaluate(&self.tree, scope, meter)
            .map_err(|fault| scope::EvalError { expression: self.source.to_string(), fault })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::scope::{Bounds, Meter, Scope};
    use super::*;
    use crate::payload::Payload;

    fn bad(source: &str) -> (FaultCode, usize) {
        let bad = Expression::parse(source).unwrap_err();
        (bad.code, bad.offset)
    }

    #[test]
    fn what_may_be_named_and_called_parses() {
        for ok in [
            "input",
            "input.data.a.b[0]['c d']",
            "steps.a.output.text + ' ' + steps['b'].output.text",
            "steps.a.status == 'completed' && !(steps.a.output.data.n > 3)",
            "task.id + task.requester",
            "item.x in ['a', 'b']",
            "size(input.text) > 3 ? string(1) : 'x'",
            "input.text.contains('x') || input.text.startsWith(\"y\") || input.text.endsWith('z')",
            "{'a': [1, 2.5, -3], 'b': {'c': null}}",
            "int('3') + int(double('1.5'))",
            "input.data[input.data.k]",
            "'}}'",
            "'é' + \"\\u00e9\\n\"",
        ] {
            assert!(Expression::parse(ok).is_ok(), "{ok}: {:?}", Expression::parse(ok));
        }
    }

    #[test]
    fn what_may_not_is_refused_where_it_stands() {
        use FaultCode as C;
        for (source, expected) in [
            ("", (C::BadExpression, 0)),
            ("  ", (C::BadExpression, 0)),
            ("1 +", (C::BadExpression, 3)),
            ("1 + env.HOME", (C::UnknownName, 4)),
            ("input.data.all(x, x > 1)", (C::UnknownFunction, 11)),
            ("has(input.data)", (C::UnknownFunction, 0)),
            ("input.data.map(x, x)", (C::UnknownFunction, 11)),
            ("input.text.matches('a+')", (C::UnknownFunction, 11)),
            ("contains('a')", (C::UnknownFunction, 0)),
            ("timestamp('x')", (C::UnknownFunction, 0)),
            ("input.nope", (C::UnknownName, 6)),
            ("1 + steps", (C::UnknownName, 4)),
            ("1 + steps.a", (C::UnknownName, 10)),
            ("steps.a.result", (C::UnknownName, 6)),
            ("steps[input.text].output", (C::UnknownName, 0)),
            ("steps.a.output.cost", (C::UnknownName, 15)),
            ("steps.a.status.x", (C::UnknownName, 6)),
            ("task.name", (C::UnknownName, 0)),
            ("task", (C::UnknownName, 0)),
            ("b'x'", (C::BadExpression, 0)),
            ("r'x'", (C::BadExpression, 0)),
            ("1u", (C::BadExpression, 0)),
            ("'''x'''", (C::BadExpression, 0)),
            ("Foo{a: 1}", (C::BadExpression, 0)),
            (".input", (C::BadExpression, 0)),
            ("1 // c", (C::BadExpression, 2)),
            ("'a", (C::BadExpression, 0)),
            ("(1", (C::BadExpression, 2)),
            ("1)", (C::BadExpression, 1)),
            ("1 = 2", (C::BadExpression, 2)),
            ("{1: 2}", (C::BadExpression, 1)),
            ("input.data?.a", (C::BadExpression, 11)),
            ("1 2", (C::BadExpression, 2)),
            ("size(1, 2)", (C::BadExpression, 0)),
            ("size(1,)", (C::BadExpression, 7)),
            ("9223372036854775808", (C::BadExpression, 0)),
            ("1e999", (C::BadExpression, 0)),
            ("1 + '\\q'", (C::BadExpression, 4)),
            ("'\\ud800'", (C::BadExpression, 0)),
            ("!-1", (C::BadExpression, 1)),
            ("true ? 1", (C::BadExpression, 8)),
            ("input.in", (C::BadExpression, 6)),
        ] {
            assert_eq!(bad(source), expected, "{source}: {:?}", Expression::parse(source));
        }
    }

    #[test]
    fn long_and_deep_expressions_are_refused_before_they_are_parsed() {
        for unit in [
            "1+", "(", "[", "!", "-", "input.", "a.b.c.", "true?1:", "{'a':", "1,", "'a'+", "((", "!(", "x[",
            "1 in ",
        ] {
            for times in [70, 300, 100_000] {
                let text = unit.repeat(times);
                for text in [format!("{text}1"), text] {
                    assert!(Expression::parse(&text).is_err(), "{}", &text[..40.min(text.len())]);
                }
            }
        }
        assert_eq!(bad(&"1+".repeat(100)).0, FaultCode::ExpressionTooLarge);
        assert_eq!(bad(&"(".repeat(17)).0, FaultCode::ExpressionTooLarge);
        assert_eq!(bad(&" ".repeat(1025)).0, FaultCode::ExpressionTooLarge);
    }

    #[test]
    fn what_is_within_the_bounds_fits_a_small_stack() {
        let chains = [
            format!("(input.data){}", ".a".repeat(MAX_MEMBERS - 1)),
            format!("{}1", "1+".repeat(MAX_OPERATORS)),
            format!("{}true", "!".repeat(MAX_OPERATORS)),
            format!("{}1", "- ".repeat(MAX_OPERATORS)),
            format!("{}1", "true?1:".repeat(MAX_OPERATORS)),
            format!("input.data{}", ".a".repeat(MAX_MEMBERS - 1)),
            format!("input.data{}", "[0]".repeat(MAX_MEMBERS - 1)),
            format!("{}1{}", "(".repeat(MAX_NESTING), ")".repeat(MAX_NESTING)),
            format!("{}1{}", "[".repeat(MAX_NESTING), "]".repeat(MAX_NESTING)),
            format!("{}1{}", "{'a':".repeat(MAX_NESTING), "}".repeat(MAX_NESTING)),
            format!("{}1{}", "!(1==".repeat(MAX_NESTING), ")".repeat(MAX_NESTING)),
            format!("{}1{}", "[!!true?(".repeat(8), "):1]".repeat(8)),
        ];
        let run = move || {
            for text in &chains {
                let parsed = Expression::parse(text);
                let payload = Payload::of_data(Value::Null);
                let scope = Scope::new(&payload, "t", "r");
                let mut meter = Meter::new(Bounds::default());
                // Each is within the bounds; some read what isn't there.
                let _ = parsed.unwrap().value(&scope, &mut meter);
            }
        };
        // Half of what a worker thread of the runtime has, in an unoptimised build.
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
        assert!(thread.join().is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            any in "\\PC{0,80}",
            seams in "([0-9.+*/%<>=!?:,()\\[\\]{}&|'\"\\\\ -]|input|steps|\\.a|\\.output|\\.data|in|size|true|null|é){0,40}",
        ) {
            let _ = Expression::parse(&any);
            let _ = Expression::parse(&seams);
            let _ = Expression::parse_embedded(&seams);
        }
    }
}
