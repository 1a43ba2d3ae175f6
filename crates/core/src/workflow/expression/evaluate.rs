//! What an expression is worth, over JSON and within a budget.
//!
//! CEL's meaning, on the values that JSON has: an integer within 64 bits stays one, another number is a
//! double; `&&` and `||` absorb an error on the side that doesn't decide; equality never fails. One thing
//! more than CEL: where a double meets an integer in arithmetic, both are doubles, since JSON doesn't tell
//! `3` from `3.0`. Promise: every value made and every text compared is paid for from the `Bounds`; an error
//! names the expression and kinds of values, never a value.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::number::{Num, TWO_TO_63, arithmetic, compare, number};
use super::scope::{EvalFault, Meter, Scope, len, weight};
use super::syntax::{Binary, Function, Tree};
use super::{Read, Segment};
use crate::payload::kind;

/// The value of a tree.
pub(super) fn evaluate(tree: &Tree, scope: &Scope<'_>, meter: &mut Meter) -> Result<Value, EvalFault> {
    let value = Evaluation { scope, meter: &mut *meter }.value(tree)?;
    let weight = weight(&value);
    meter.spend(weight)?;
    meter.emit(weight)?;
    Ok(value.into_owned())
}

struct Evaluation<'m, 'e, 'a> {
    scope: &'e Scope<'a>,
    meter: &'m mut Meter,
}

impl<'e> Evaluation<'_, 'e, '_> {
    fn value(&mut self, tree: &'e Tree) -> Result<Cow<'e, Value>, EvalFault> {
        self.meter.spend(1)?;
        match tree {
            Tree::Literal(v) => Ok(Cow::Borrowed(v)),
            Tree::Read(read) => self.read(read).map(Cow::Borrowed),
            Tree::Member(of, name) => {
                let of = self.value(of)?;
                self.member(of, name)
            }
            Tree::Index(of, index) => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                match &*index {
                    Value::String(name) => self.member(of, name),
                    Value::Number(_) => self.element(of, integer(&index)?),
                    other => Err(EvalFault::Type { wanted: "a string or an integer", got: kind(other) }),
                }
            }
            Tree::Not(t) => self.truth(t).map(|b| owned(Value::Bool(!b))),
            Tree::Negate(t) => {
                let negated = match number(&*self.value(t)?)? {
                    Num::Int(i) => i.checked_neg().map(Num::Int).ok_or(EvalFault::OutOfRange)?,
                    Num::Double(d) => Num::Double(-d),
                };
                negated.value().map(owned)
            }
            Tree::And(a, b) => self.absorb(a, b, false),
            Tree::Or(a, b) => self.absorb(a, b, true),
            Tree::Choose(three) => {
                let chosen = if self.truth(&three.0)? { &three.1 } else { &three.2 };
                self.value(chosen)
            }
            Tree::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.binary(*op, &a, &b).map(owned)
            }
            Tree::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    let item = self.value(item)?;
                    list.push(self.copy(item)?);
                }
                Ok(owned(Value::Array(list)))
            }
            Tree::Map(entries) => self.map(entries),
            Tree::Call(function, args) => self.call(*function, args),
        }
    }

    /// Takes a value over into a new one, and pays for it.
    fn copy(&mut self, v: Cow<'_, Value>) -> Result<Value, EvalFault> {
        self.meter.spend(weight(&v))?;
        Ok(v.into_owned())
    }

    fn read(&self, read: &Read) -> Result<&'e Value, EvalFault> {
        let mut at = self.scope.root(&read.root)?;
        for segment in &read.path {
            at = match (segment, at) {
                (Segment::Member(name), Value::Object(m)) => {
                    m.get(name).ok_or_else(|| EvalFault::Missing(format!("member `{name}`")))?
                }
                (Segment::At(i), Value::Array(items)) => usize::try_from(*i)
                    .ok()
                    .and_then(|i| items.get(i))
                    .ok_or_else(|| EvalFault::Missing(format!("element {i}")))?,
                (Segment::Member(_), other) => {
                    return Err(EvalFault::Type { wanted: "an object", got: kind(other) });
                }
                (Segment::At(_), other) => {
                    return Err(EvalFault::Type { wanted: "an array", got: kind(other) });
                }
            };
        }
        Ok(at)
    }

    fn member(&mut self, of: Cow<'e, Value>, name: &str) -> Result<Cow<'e, Value>, EvalFault> {
        let missing = || EvalFault::Missing("such member".to_owned());
        match of {
            Cow::Borrowed(Value::Object(m)) => m.get(name).map(Cow::Borrowed).ok_or_else(missing),
            Cow::Owned(Value::Object(mut m)) => m.remove(name).map(Cow::Owned).ok_or_else(missing),
            other => Err(EvalFault::Type { wanted: "an object", got: kind(&other) }),
        }
    }

    fn element(&mut self, of: Cow<'e, Value>, index: i64) -> Result<Cow<'e, Value>, EvalFault> {
        let missing = || EvalFault::Missing("such element".to_owned());
        let index = usize::try_from(index).map_err(|_| missing())?;
        match of {
            Cow::Borrowed(Value::Array(items)) => items.get(index).map(Cow::Borrowed).ok_or_else(missing),
            Cow::Owned(Value::Array(mut items)) if index < items.len() => Ok(owned(items.swap_remove(index))),
            Cow::Owned(Value::Array(_)) => Err(missing()),
            other => Err(EvalFault::Type { wanted: "an array", got: kind(&other) }),
        }
    }

    fn truth(&mut self, tree: &'e Tree) -> Result<bool, EvalFault> {
        match &*self.value(tree)? {
            Value::Bool(b) => Ok(*b),
            other => Err(EvalFault::Type { wanted: "a boolean", got: kind(other) }),
        }
    }

    /// `&&` and `||`: either side that decides, decides, even if the other has no value.
    fn absorb(&mut self, a: &'e Tree, b: &'e Tree, decides: bool) -> Result<Cow<'e, Value>, EvalFault> {
        let left = self.truth(a);
        if left == Ok(decides) {
            return Ok(owned(Value::Bool(decides)));
        }
        if left == Err(EvalFault::OutOfSteps) {
            return Err(EvalFault::OutOfSteps);
        }
        let right = self.truth(b)?;
        if right == decides { Ok(owned(Value::Bool(decides))) } else { left.map(|b| owned(Value::Bool(b))) }
    }

    fn map(&mut self, entries: &'e [(Tree, Tree)]) -> Result<Cow<'e, Value>, EvalFault> {
        let mut map = Map::new();
        for (key, value) in entries {
            let key = text(&*self.value(key)?)?.to_owned();
            self.meter.spend(len(&key))?;
            let value = self.value(value)?;
            let value = self.copy(value)?;
            if map.insert(key, value).is_some() {
                return Err(EvalFault::DuplicateMember);
            }
        }
        Ok(owned(Value::Object(map)))
    }

    fn binary(&mut self, op: Binary, a: &Value, b: &Value) -> Result<Value, EvalFault> {
        match op {
            Binary::Equal => self.same(a, b).map(Value::Bool),
            Binary::Unequal => self.same(a, b).map(|same| Value::Bool(!same)),
            Binary::Less => self.order(a, b).map(|o| Value::Bool(o == Ordering::Less)),
            Binary::AtMost => self.order(a, b).map(|o| Value::Bool(o != Ordering::Greater)),
            Binary::Greater => self.order(a, b).map(|o| Value::Bool(o == Ordering::Greater)),
            Binary::AtLeast => self.order(a, b).map(|o| Value::Bool(o != Ordering::Less)),
            Binary::In => self.within(a, b).map(Value::Bool),
            Binary::Add => self.add(a, b),
            Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => {
                arithmetic(op, number(a)?, number(b)?)?.value()
            }
        }
    }

    fn add(&mut self, a: &Value, b: &Value) -> Result<Value, EvalFault> {
        match (a, b) {
            (Value::String(a), Value::String(b)) => {
                self.meter.spend(len(a).saturating_add(len(b)))?;
                Ok(Value::String([a.as_str(), b.as_str()].concat()))
            }
            (Value::Array(x), Value::Array(y)) => {
                self.meter.spend(weight(a).saturating_add(weight(b)))?;
                Ok(x.iter().chain(y).cloned().collect())
            }
            (Value::Number(_), Value::Number(_)) => arithmetic(Binary::Add, number(a)?, number(b)?)?.value(),
            (Value::String(_) | Value::Array(_) | Value::Number(_), other) => {
                Err(EvalFault::Type { wanted: kind(a), got: kind(other) })
            }
            (other, _) => Err(EvalFault::Type { wanted: "a number, a string or an array", got: kind(other) }),
        }
    }

    fn same(&mut self, a: &Value, b: &Value) -> Result<bool, EvalFault> {
        self.meter.spend(1)?;
        match (a, b) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
            (Value::Number(_), Value::Number(_)) => Ok(compare(number(a)?, number(b)?) == Ordering::Equal),
            (Value::String(a), Value::String(b)) => {
                self.meter.spend(len(a).min(len(b)))?;
                Ok(a == b)
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (a, b) in a.iter().zip(b) {
                    if !self.same(a, b)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                for (k, a) in a {
                    self.meter.spend(len(k))?;
                    let Some(b) = b.get(k) else { return Ok(false) };
                    if !self.same(a, b)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn order(&mut self, a: &Value, b: &Value) -> Result<Ordering, EvalFault> {
        match (a, b) {
            (Value::Number(_), Value::Number(_)) => Ok(compare(number(a)?, number(b)?)),
            (Value::String(a), Value::String(b)) => {
                self.meter.spend(len(a).min(len(b)))?;
                Ok(a.cmp(b))
            }
            (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            (Value::Number(_) | Value::String(_) | Value::Bool(_), other) => {
                Err(EvalFault::Type { wanted: kind(a), got: kind(other) })
            }
            (other, _) => {
                Err(EvalFault::Type { wanted: "a number, a string or a boolean", got: kind(other) })
            }
        }
    }

    fn within(&mut self, a: &Value, b: &Value) -> Result<bool, EvalFault> {
        match b {
            Value::Array(items) => {
                for item in items {
                    if self.same(a, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::Object(m) => Ok(a.as_str().is_some_and(|name| m.contains_key(name))),
            other => Err(EvalFault::Type { wanted: "an array or an object", got: kind(other) }),
        }
    }

    fn call(&mut self, function: Function, args: &'e [Tree]) -> Result<Cow<'e, Value>, EvalFault> {
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.value(arg)?);
        }
        let mut values = values.into_iter();
        let first = values.next().unwrap_or(Cow::Owned(Value::Null));
        let second = values.next();
        let result = match function {
            Function::Size => self.size(&first)?,
            Function::Text => {
                let text = written(&first)?;
                self.meter.spend(len(&text))?;
                Value::String(text.into_owned())
            }
            Function::Int => Num::Int(self.int(&first)?).value()?,
            Function::Double => Num::Double(self.double(&first)?).value()?,
            Function::Contains | Function::StartsWith | Function::EndsWith => {
                let second = second.unwrap_or(Cow::Owned(Value::Null));
                let (text, part) = (text(&first)?, text(&second)?);
                self.meter.spend(len(text).saturating_add(len(part)))?;
                Value::Bool(match function {
                    Function::StartsWith => text.starts_with(part),
                    Function::EndsWith => text.ends_with(part),
                    _ => text.contains(part),
                })
            }
        };
        Ok(owned(result))
    }

    fn size(&mut self, v: &Value) -> Result<Value, EvalFault> {
        let size = match v {
            Value::String(s) => {
                self.meter.spend(len(s))?;
                s.chars().count()
            }
            Value::Array(items) => items.len(),
            Value::Object(m) => m.len(),
            other => {
                return Err(EvalFault::Type { wanted: "a string, an array or an object", got: kind(other) });
            }
        };
        Ok(Value::from(size))
    }

    #[expect(clippy::cast_possible_truncation, reason = "in range, and cut towards zero as CEL has it")]
    fn int(&mut self, v: &Value) -> Result<i64, EvalFault> {
        match v {
            Value::Number(_) => match number(v)? {
                Num::Int(i) => Ok(i),
                Num::Double(d) if d > -TWO_TO_63 && d < TWO_TO_63 => Ok(d as i64),
                Num::Double(_) => Err(EvalFault::OutOfRange),
            },
            Value::String(s) => {
                self.meter.spend(len(s))?;
                s.parse().map_err(|_| EvalFault::NotANumber)
            }
            other => Err(EvalFault::Type { wanted: "a number or a string", got: kind(other) }),
        }
    }

    fn double(&mut self, v: &Value) -> Result<f64, EvalFault> {
        match v {
            Value::Number(_) => Ok(number(v)?.double()),
            Value::String(s) => {
                self.meter.spend(len(s))?;
                s.parse().ok().filter(|d: &f64| d.is_finite()).ok_or(EvalFault::NotANumber)
            }
            other => Err(EvalFault::Type { wanted: "a number or a string", got: kind(other) }),
        }
    }
}

const fn owned<'e>(v: Value) -> Cow<'e, Value> {
    Cow::Owned(v)
}

fn text(v: &Value) -> Result<&str, EvalFault> {
    v.as_str().ok_or(EvalFault::Type { wanted: "a string", got: kind(v) })
}

fn integer(v: &Value) -> Result<i64, EvalFault> {
    match number(v)? {
        Num::Int(i) => Ok(i),
        Num::Double(_) => Err(EvalFault::Type { wanted: "an integer", got: "a double" }),
    }
}

/// How a string, number or boolean is written into a text; numbers as in the payload bytes (RFC 8785).
pub(in crate::workflow) fn written(v: &Value) -> Result<Cow<'_, str>, EvalFault> {
    match v {
        Value::String(s) => Ok(Cow::Borrowed(s)),
        Value::Bool(b) => Ok(Cow::Borrowed(if *b { "true" } else { "false" })),
        Value::Number(n) if n.is_f64() => {
            Ok(Cow::Owned(serde_json_canonicalizer::to_string(v).unwrap_or_else(|_| n.to_string())))
        }
        Value::Number(n) => Ok(Cow::Owned(n.to_string())),
        other => Err(EvalFault::Type { wanted: "a string, a number or a boolean", got: kind(other) }),
    }
}
