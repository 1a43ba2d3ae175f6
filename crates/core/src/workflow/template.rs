//! A value of a workflow in which strings may hold `${{ expression }}`.
//!
//! A string that is one `${{ }}` and nothing else takes the expression's value, of whatever JSON kind; one
//! within other text must give a string, a number or a boolean. Names of members are plain. Evaluation
//! is bounded as a whole, however many expressions a template holds.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::document::{Held, Node};
use super::expression::evaluate::written;
use super::expression::scope::{Bounds, EvalError, EvalFault, Meter, Scope, weight};
use super::expression::{Bad, Expression, Read, Root};
use super::fault::{FaultCode, Mark};
use super::guard::Source;
use crate::id::StepName;
use crate::payload::{Limits, Payload, kind};

const OPEN: &str = "${{";
const CLOSE: &str = "}}";
/// Expressions in one string, and the texts between them: finding where each stands takes a walk over the
/// string, so their number is bounded.
const MAX_PIECES: usize = 200;

/// A value with expressions in its strings.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    source: Value,
    form: Form,
}

#[derive(Clone, Debug, PartialEq)]
enum Form {
    Plain(Value),
    One(Expression),
    Text(Vec<Piece>),
    List(Vec<Form>),
    Members(Vec<(String, Form)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Of(Expression),
}

/// An expression of a template, and where it stands in the document.
pub(super) struct Placed {
    pub(super) expression: Expression,
    /// JSON pointer of its string, beneath the template's.
    pub(super) pointer: String,
    /// Where its reads stand, in their order.
    pub(super) marks: Vec<Mark>,
}

/// A text that isn't a template, and where.
pub(super) struct Misplaced {
    pub(super) bad: Bad,
    pub(super) at: Mark,
    pub(super) pointer: String,
}

impl Template {
    /// Of one expression that is known to be good, e.g. a default.
    pub(super) fn of(expression: Expression) -> Self {
        let source = Value::String(format!("{OPEN} {} {CLOSE}", expression.source()));
        Self { source, form: Form::One(expression) }
    }

    /// Reads a node; adds the expressions that it holds to `placed`, and what is wrong to `wrong`.
    pub(super) fn read(
        node: &Node<'_>,
        pointer: &str,
        placed: &mut Vec<Placed>,
        wrong: &mut Vec<Misplaced>,
    ) -> Self {
        let form = Reading { placed, wrong }.form(node, pointer);
        Self { source: node.value(), form }
    }

    /// The value as it was written.
    #[must_use]
    pub const fn source(&self) -> &Value {
        &self.source
    }

    /// The one expression that the template is, if it is one.
    #[must_use]
    pub const fn expression(&self) -> Option<&Expression> {
        if let Form::One(e) = &self.form { Some(e) } else { None }
    }

    /// Every expression, in the order of the text.
    #[must_use]
    pub fn expressions(&self) -> Vec<&Expression> {
        let mut all = Vec::new();
        self.form.gather(&mut all);
        all
    }

    /// Every place that it reads, whichever branches are taken.
    pub fn reads(&self) -> impl Iterator<Item = &Read> {
        self.expressions().into_iter().flat_map(Expression::reads)
    }

    /// The steps that it names, by output or status: the label of each joins into what it gives.
    #[must_use]
    pub fn steps(&self) -> BTreeSet<StepName> {
        let step = |s| if let Source::Step(step) = s { Some(step) } else { None };
        self.sources().into_iter().filter_map(step).collect()
    }

    /// What it names, the input among it: the label and the taint of each join into what it gives. An
    /// `item` is part of the list that it comes from, which has sources of its own.
    #[must_use]
    pub fn sources(&self) -> BTreeSet<Source> {
        self.reads()
            .filter_map(|r| match &r.root {
                Root::Input => Some(Source::Input),
                Root::Output(step) | Root::Status(step) => Some(Source::Step(step.clone())),
                Root::TaskId | Root::Requester | Root::Item => None,
            })
            .collect()
    }

    /// The value.
    ///
    /// # Errors
    /// If an expression has no value, a text can't take one, or the bounds are exceeded.
    pub fn value(&self, scope: &Scope<'_>, bounds: Bounds) -> Result<Value, EvalError> {
        self.form.value(scope, &mut Meter::new(bounds))
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// As [`value`](Self::value), and if it isn't a boolean.
    pub fn holds(&self, scope: &Scope<'_>, bounds: Bounds) -> Result<bool, EvalError> {
        match self.value(scope, bounds)? {
            Value::Bool(b) => Ok(b),
            other => Err(self.fails(EvalFault::Type { wanted: "a boolean", got: kind(&other) })),
        }
    }

    /// The value of a list, e.g. of a `for_each`.
    ///
    /// # Errors
    /// As [`value`](Self::value), and if it isn't an array.
    pub fn list(&self, scope: &Scope<'_>, bounds: Bounds) -> Result<Vec<Value>, EvalError> {
        match self.value(scope, bounds)? {
            Value::Array(items) => Ok(items),
            other => Err(self.fails(EvalFault::Type { wanted: "an array", got: kind(&other) })),
        }
    }

    /// The value as the input of a step or the output of a task. A payload that is handed on whole keeps
    /// its parts as they are, without the foreign agent's names for runs of them.
    ///
    /// # Errors
    /// As [`value`](Self::value), and if it isn't a payload within `limits`.
    pub fn payload(&self, scope: &Scope<'_>, bounds: Bounds, limits: &Limits) -> Result<Payload, EvalError> {
        let whole = self.expression().and_then(Expression::whole).and_then(|root| scope.payload(root));
        let payload = match whole {
            Some(p) => {
                let handed_on = Payload { parts: p.parts.clone(), artifacts: Vec::new() };
                handed_on.check(limits).map(|()| handed_on)
            }
            None => Payload::from_json(&without_artifacts(self.value(scope, bounds)?), limits),
        };
        payload.map_err(|e| self.fails(EvalFault::NotAPayload(e)))
    }

    fn fails(&self, fault: EvalFault) -> EvalError {
        let expression = self.expression().map(|e| e.source().to_owned()).unwrap_or_default();
        EvalError { expression, fault }
    }
}

/// A payload as an expression sees it (`a ? steps.x.output : input`) is one again.
fn without_artifacts(mut v: Value) -> Value {
    if let Value::Object(m) = &mut v {
        let shown = ["parts", "text", "data", "artifacts"];
        if shown.iter().all(|k| m.contains_key(*k)) && m.len() == shown.len() {
            m.remove("artifacts");
        }
    }
    v
}

impl Form {
    fn gather<'f>(&'f self, all: &mut Vec<&'f Expression>) {
        match self {
            Self::Plain(_) => {}
            Self::One(e) => all.push(e),
            Self::Text(pieces) => {
                all.extend(pieces.iter().filter_map(|p| if let Piece::Of(e) = p { Some(e) } else { None }));
            }
            Self::List(items) => items.iter().for_each(|f| f.gather(all)),
            Self::Members(members) => members.iter().for_each(|(_, f)| f.gather(all)),
        }
    }

    fn value(&self, scope: &Scope<'_>, meter: &mut Meter) -> Result<Value, EvalError> {
        let unnamed = |fault| EvalError { expression: String::new(), fault };
        match self {
            Self::Plain(v) => {
                meter.emit(weight(v)).map_err(unnamed)?;
                Ok(v.clone())
            }
            Self::One(e) => e.value(scope, meter),
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Text(t) => {
                            meter.emit(u64::try_from(t.len()).unwrap_or(u64::MAX)).map_err(unnamed)?;
                            text.push_str(t);
                        }
                        Piece::Of(e) => {
                            let value = e.value(scope, meter)?;
                            let fails = |fault| EvalError { expression: e.source().to_owned(), fault };
                            text.push_str(&written(&value).map_err(fails)?);
                        }
                    }
                }
                Ok(Value::String(text))
            }
            Self::List(items) => items.iter().map(|f| f.value(scope, meter)).collect(),
            Self::Members(members) => {
                let mut map = Map::new();
                for (name, form) in members {
                    meter.emit(u64::try_from(name.len()).unwrap_or(u64::MAX)).map_err(unnamed)?;
                    map.insert(name.clone(), form.value(scope, meter)?);
                }
                Ok(Value::Object(map))
            }
        }
    }
}

struct Reading<'r> {
    placed: &'r mut Vec<Placed>,
    wrong: &'r mut Vec<Misplaced>,
}

impl Reading<'_> {
    fn form(&mut self, node: &Node<'_>, pointer: &str) -> Form {
        match &node.held {
            Held::Text(text) if text.contains(OPEN) => self.text(node, text, pointer),
            Held::List(items) => {
                let each = items.iter().enumerate();
                Form::List(each.map(|(i, n)| self.form(n, &format!("{pointer}/{i}"))).collect())
            }
            Held::Members(members) => {
                let mut forms = Vec::with_capacity(members.len());
                for (key, n) in members {
                    let pointer = super::fault::beneath(pointer, &key.text);
                    if key.text.contains(OPEN) {
                        let message = "a member's name can't hold an expression";
                        let bad =
                            Bad { code: FaultCode::BadExpression, offset: 0, message: message.to_owned() };
                        self.wrong.push(Misplaced { bad, at: key.at, pointer: pointer.clone() });
                    }
                    forms.push((key.text.clone(), self.form(n, &pointer)));
                }
                Form::Members(forms)
            }
            Held::Null | Held::Bool(_) | Held::Number(_) | Held::Text(_) => Form::Plain(node.value()),
        }
    }

    fn text(&mut self, node: &Node<'_>, text: &str, pointer: &str) -> Form {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut nth = 0;
        let mut bad_ones = 0;
        while let Some((before, after)) = rest.split_once(OPEN) {
            if pieces.len() + bad_ones >= MAX_PIECES {
                let message = format!("more than {} expressions in one string", MAX_PIECES / 2);
                let bad = Bad { code: FaultCode::ExpressionTooLarge, offset: 0, message };
                self.wrong.push(Misplaced { bad, at: node.at, pointer: pointer.to_owned() });
                return Form::Plain(Value::Null);
            }
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            match Expression::parse_embedded(after) {
                Ok((expression, len)) => {
                    let reads = expression.reads().iter();
                    let marks = reads.map(|r| node.mark_within(nth, after, r.offset)).collect();
                    let expression_source = after.get(..len).unwrap_or_default();
                    nth += 1 + expression_source.matches(OPEN).count();
                    self.placed.push(Placed {
                        expression: expression.clone(),
                        pointer: pointer.to_owned(),
                        marks,
                    });
                    pieces.push(Piece::Of(expression));
                    rest = after.get(len + CLOSE.len()..).unwrap_or_default();
                }
                Err(bad) => {
                    let at = node.mark_within(nth, after, bad.offset);
                    // Where it would have ended isn't known; the next one begins where its braces say.
                    let offset = bad.offset;
                    self.wrong.push(Misplaced { bad, at, pointer: pointer.to_owned() });
                    let tail = after.get(offset..).unwrap_or_default();
                    rest = tail.find(OPEN).and_then(|n| tail.get(n..)).unwrap_or_default();
                    let skipped = after.get(..after.len() - rest.len()).unwrap_or_default();
                    nth += 1 + skipped.matches(OPEN).count();
                    bad_ones += 1;
                }
            }
        }
        if bad_ones > 0 {
            return Form::Plain(Value::Null);
        }
        if rest.is_empty()
            && let [Piece::Of(only)] = pieces.as_slice()
        {
            return Form::One(only.clone());
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Form::Text(pieces)
    }
}

#[cfg(test)]
mod tests;
