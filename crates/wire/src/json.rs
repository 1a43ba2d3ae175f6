//! Reads JSON that a stranger wrote, into a value that canonical JSON can hold.
//!
//! Decisions, each for one reason, namely that two readers of the same bytes must not see two things:
//! - **Duplicate names** in an object are refused (RFC 7493 §2.3): parsers differ on which one wins.
//! - **Text** is strict UTF-8; a lone surrogate escape is refused, since no UTF-8 can hold it.
//! - **Numbers**: one that canonical JSON (RFC 8785) would write back as another number becomes a string of
//!   its digits; `42.0` becomes `42`. So the payload bytes of foreign content are well defined and read back
//!   equal. An integer literal beyond 64 bits that no double holds is refused: its digits are lost on arrival.
//! - **Depth** and the **count of values** are bounded; a leading byte order mark is skipped (RFC 8259 §8.1).

use std::cell::Cell;
use std::fmt;

use exeat_core::payload::{canonical, inexact_integer};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Deepest nesting that any [`Limits`] allow: a margin below the reader's own recursion limit.
const DEEPEST: usize = 120;

/// Bounds on what a reader builds from a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting of the whole body at most, envelope included (which takes up to nine levels); never above 120.
    pub depth: usize,
    /// JSON values at most (members and elements count one each): 8 MiB of `[[],[],…]` would otherwise
    /// become hundreds of megabytes.
    pub values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 80, values: 200_000 }
    }
}

/// Why bytes aren't JSON that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadJson {
    /// Not JSON, or not UTF-8.
    #[error("the body isn't JSON (line {line}, column {column})")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 0.
        column: usize,
    },
    /// Nested deeper than allowed.
    #[error("the body is nested deeper than {max} levels")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// More values than allowed.
    #[error("the body holds more than {max} values")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// An integer that a reader would round.
    #[error("the body holds an integer that no number of 64 bits holds")]
    InexactInteger,
    /// An object holds a name twice, so that readers would disagree about it.
    #[error("an object in the body holds the same name twice (line {line}, column {column})")]
    DuplicateName {
        /// Line, from 1.
        line: usize,
        /// Column, from 0.
        column: usize,
    },
}

/// Reads one JSON value and nothing after it.
pub(crate) fn read(bytes: &[u8], limits: &Limits) -> Result<Value, BadJson> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if inexact_integer(bytes).is_some() {
        return Err(BadJson::InexactInteger);
    }
    let depth = limits.depth.min(DEEPEST);
    let state = Reading { left: Cell::new(limits.values), fault: Cell::new(None) };
    let mut de = serde_json::Deserializer::from_slice(bytes);
    let read = Seed { depth, state: &state }.deserialize(&mut de).and_then(|value| de.end().map(|()| value));
    read.map_err(|e| {
        let (line, column) = (e.line(), e.column());
        match state.fault.get() {
            Some(Fault::Deep) => BadJson::TooDeep { max: depth },
            Some(Fault::Many) => BadJson::TooMany { max: limits.values },
            Some(Fault::Twice) => BadJson::DuplicateName { line, column },
            None => BadJson::Syntax { line, column },
        }
    })
}

#[derive(Clone, Copy)]
enum Fault {
    Deep,
    Many,
    Twice,
}

struct Reading {
    left: Cell<usize>,
    fault: Cell<Option<Fault>>,
}

impl Reading {
    fn stop<E: serde::de::Error>(&self, fault: Fault) -> E {
        self.fault.set(Some(fault));
        E::custom("refused")
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    depth: usize,
    state: &'a Reading,
}

impl Seed<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| self.state.stop(Fault::Deep))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        let left = self.state.left.get().checked_sub(1);
        self.state.left.set(left.ok_or_else(|| self.state.stop::<D::Error>(Fault::Many))?);
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(integer(n.to_string(), n.into()))
    }
    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(integer(n.to_string(), n.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, f: f64) -> Result<Value, E> {
        double(f).ok_or_else(|| E::custom("not finite"))
    }
    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::String(s.to_owned()))
    }
    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::String(s))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut out = Vec::new();
        while let Some(v) = seq.next_element_seed(inner)? {
            out.push(v);
        }
        Ok(Value::Array(out))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut out = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(inner)?;
            if out.insert(name, value).is_some() {
                return Err(self.state.stop(Fault::Twice));
            }
        }
        Ok(Value::Object(out))
    }
}

/// An integer that a double holds exactly and canonical JSON writes back digit by digit; any other one as its
/// digits.
fn integer(digits: String, number: Value) -> Value {
    // Fifteen digits are always exact, and are what nearly all numbers have.
    if digits.len() <= 15 {
        return number;
    }
    let kept = number
        .as_f64()
        .is_some_and(|f| digits.parse() == Ok(f as i128) && canonical(&Value::from(f)) == digits.as_bytes());
    if kept { number } else { Value::String(digits) }
}

/// A double; an integral one becomes the integer that canonical JSON writes for it.
fn double(f: f64) -> Option<Value> {
    let number = serde_json::Number::from_f64(f)?;
    if f.fract() != 0.0 {
        return Some(Value::Number(number));
    }
    let written = String::from_utf8(canonical(&Value::Number(number.clone()))).ok()?;
    let whole = written
        .parse::<u64>()
        .map(Value::from)
        .or_else(|_| written.parse::<i64>().map(Value::from))
        .unwrap_or(Value::Number(number));
    Some(if whole.is_f64() { whole } else { integer(written, whole) })
}

/// Looks into an object as tolerant readers must: `null` and `""` count as absent, and a camelCase name may
/// have come in snake_case (`ProtoJSON` allows both on input). The camelCase one wins if both are there.
pub(crate) trait Look {
    /// The member, unless it is null.
    fn member(&self, name: &str) -> Option<&Value>;
    /// The member, if it is a string that isn't empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.member(name)?.as_str().filter(|s| !s.is_empty())
    }
    /// The member, if it is an object.
    fn object(&self, name: &str) -> Option<&Map<String, Value>> {
        self.member(name)?.as_object()
    }
    /// The elements of the member, if it is an array; else none.
    fn list(&self, name: &str) -> &[Value] {
        self.member(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    /// The member, if it is a boolean.
    fn flag(&self, name: &str) -> Option<bool> {
        self.member(name)?.as_bool()
    }
}

impl Look for Map<String, Value> {
    fn member(&self, name: &str) -> Option<&Value> {
        self.get(name)
            .filter(|v| !v.is_null())
            .or_else(|| name.bytes().any(|b| b.is_ascii_uppercase()).then(|| self.get(&snake(name)))?)
            .filter(|v| !v.is_null())
    }
}

fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A stranger's text as a line for an error or a reason: no control or direction characters, at most `max`
/// characters.
pub(crate) fn line(text: &str, max: usize) -> String {
    let clean = |c: char| {
        let hidden = matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}');
        if c.is_control() || hidden { ' ' } else { c }
    };
    let mut out: String = text.chars().take(max).map(clean).collect();
    if text.chars().nth(max).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        read(text.as_bytes(), &Limits::default()).unwrap()
    }

    #[test]
    fn a_number_that_canonical_json_would_change_becomes_its_digits() {
        for (given, kept) in [
            ("42", json!(42)),
            ("42.0", json!(42)),
            ("-0.0", json!(0)),
            ("-7", json!(-7)),
            ("0.1", json!(0.1)),
            ("1e300", json!(1e300)),
            ("9007199254740992", json!(9_007_199_254_740_992_u64)),
            ("9007199254740993", json!("9007199254740993")),
            ("-9007199254740993", json!("-9007199254740993")),
            ("1234567890123456789", json!("1234567890123456789")),
            ("100000000000000000", json!(100_000_000_000_000_000_u64)),
            ("1e17", json!(100_000_000_000_000_000_u64)),
            ("9223372036854775808", json!("9223372036854775808")),
            ("9223372036854775808.0", json!("9223372036854776000")),
            ("18446744073709551615", json!("18446744073709551615")),
        ] {
            assert_eq!(value(given), kept, "{given}");
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let why = |bytes: &[u8]| read(bytes, &Limits::default()).unwrap_err();
        assert!(matches!(why(br#"{"a":1,"a":2}"#), BadJson::DuplicateName { .. }));
        assert!(matches!(why(br#"{"a":1,"\u0061":2}"#), BadJson::DuplicateName { .. }));
        assert!(matches!(why(b"\"\xff\""), BadJson::Syntax { .. }));
        assert!(matches!(why(br#""\ud83d""#), BadJson::Syntax { .. }));
        assert!(matches!(why(b"{} {}"), BadJson::Syntax { .. }));
        assert!(matches!(why(b"NaN"), BadJson::Syntax { .. }));
        assert_eq!(why(br#"{"n":12345678901234567890123}"#), BadJson::InexactInteger);
        assert_eq!(value("123456789012345680000"), json!(123_456_789_012_345_680_000.0));
        assert!(matches!(why(b""), BadJson::Syntax { .. }));
        assert_eq!(value("\u{FEFF}{}"), json!({}));
    }

    #[test]
    fn depth_and_count_are_bounded_whatever_is_asked() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let limits = Limits { depth: 5, values: 10 };
        assert!(read(nested(5).as_bytes(), &limits).is_ok());
        assert_eq!(read(nested(6).as_bytes(), &limits), Err(BadJson::TooDeep { max: 5 }));
        let wide = Limits { depth: usize::MAX, values: usize::MAX };
        assert_eq!(read(nested(100_000).as_bytes(), &wide), Err(BadJson::TooDeep { max: DEEPEST }));
        assert_eq!(read(b"[1,2,3,4,5,6,7,8,9,10]", &limits), Err(BadJson::TooMany { max: 10 }));
    }

    #[test]
    fn null_and_empty_are_absent_and_snake_case_is_understood() {
        let v = value(r#"{"taskId":null,"task_id":"t","contextId":"","tasks":[1],"x":true}"#);
        let m = v.as_object().unwrap();
        assert_eq!(m.text("taskId"), Some("t"));
        assert_eq!(m.text("contextId"), None);
        assert_eq!(m.list("tasks").len(), 1);
        assert_eq!(m.list("none").len(), 0);
        assert_eq!(m.flag("x"), Some(true));
    }

    proptest! {
        #[test]
        fn what_was_read_survives_canonical_json_unchanged(f in any::<f64>(), n in any::<i64>(), u in any::<u64>(), s in any::<String>()) {
            let given = json!({"f": f, "n": n, "u": u, "s": s}).to_string();
            let once = value(&given);
            let bytes = canonical(&once);
            let again = read(&bytes, &Limits::default()).unwrap();
            prop_assert_eq!(&again, &once);
            prop_assert_eq!(canonical(&again), bytes);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes, &Limits::default());
        }
    }
}
