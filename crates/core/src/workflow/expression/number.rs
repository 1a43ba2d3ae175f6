//! Numbers: exact 64-bit integers and finite doubles, told apart by how JSON wrote them.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::scope::EvalFault;
use super::syntax::Binary;
use crate::payload::kind;

/// The first double above every 64-bit integer.
pub(super) const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A number of JSON, as CEL sees it.
#[derive(Clone, Copy)]
pub(super) enum Num {
    Int(i64),
    Double(f64),
}

impl Num {
    #[expect(clippy::cast_precision_loss, reason = "a double was asked for")]
    pub(super) const fn double(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Double(d) => d,
        }
    }

    pub(super) fn value(self) -> Result<Value, EvalFault> {
        match self {
            Self::Int(i) => Ok(Value::from(i)),
            Self::Double(d) => Number::from_f64(d).map(Value::Number).ok_or(EvalFault::OutOfRange),
        }
    }
}

/// The number that a value is.
pub(super) fn number(v: &Value) -> Result<Num, EvalFault> {
    let wrong = EvalFault::Type { wanted: "a number", got: kind(v) };
    let Value::Number(n) = v else { return Err(wrong) };
    n.as_i64().map(Num::Int).or_else(|| n.as_f64().map(Num::Double)).ok_or(wrong)
}

/// `+ - * / %`: integers checked, doubles finite by [`Num::value`].
pub(super) fn arithmetic(op: Binary, a: Num, b: Num) -> Result<Num, EvalFault> {
    if let (Num::Int(a), Num::Int(b)) = (a, b) {
        if b == 0 && matches!(op, Binary::Divide | Binary::Remainder) {
            return Err(EvalFault::DivisionByZero);
        }
        let result = match op {
            Binary::Add => a.checked_add(b),
            Binary::Subtract => a.checked_sub(b),
            Binary::Multiply => a.checked_mul(b),
            Binary::Divide => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        return result.map(Num::Int).ok_or(EvalFault::OutOfRange);
    }
    let (x, y) = (a.double(), b.double());
    match op {
        Binary::Divide if y == 0.0 => Err(EvalFault::DivisionByZero),
        Binary::Divide => Ok(Num::Double(x / y)),
        Binary::Add => Ok(Num::Double(x + y)),
        Binary::Subtract => Ok(Num::Double(x - y)),
        Binary::Multiply => Ok(Num::Double(x * y)),
        _ => Err(EvalFault::Type { wanted: "an integer", got: "a double" }),
    }
}

/// By value, exactly: a double is never rounded to be compared with an integer.
#[expect(clippy::cast_possible_truncation, reason = "the double's whole part is in range here")]
pub(super) fn compare(a: Num, b: Num) -> Ordering {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => a.cmp(&b),
        (Num::Double(a), Num::Double(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Num::Double(_), Num::Int(_)) => compare(b, a).reverse(),
        (Num::Int(_), Num::Double(d)) if d >= TWO_TO_63 => Ordering::Less,
        (Num::Int(_), Num::Double(d)) if d < -TWO_TO_63 => Ordering::Greater,
        (Num::Int(i), Num::Double(d)) => {
            i.cmp(&(d.trunc() as i64)).then_with(|| 0.0.partial_cmp(&d.fract()).unwrap_or(Ordering::Equal))
        }
    }
}
