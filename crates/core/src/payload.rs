//! What is handed from edge to edge: parts of text, data and files, with their structure kept.
//!
//! The **payload bytes** are the JCS (RFC 8785) of `{"parts":[…]}`. Digest, approver and transport use
//! these bytes; nothing re-renders them in between.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

mod digest;

pub use digest::{Sealed, Sha256Digest};

/// One part, as an A2A 1.0 `Part` (A2A 1.0 §4.1.6): exactly one of `text`, `data`, `raw`, `url`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    /// What it holds.
    #[serde(flatten)]
    pub content: Content,
    /// Media type, as claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// File name, as claimed. Never used as a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Whatever the maker put beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// The content of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Any JSON value.
    Data(Value),
    /// Inline bytes, base64 (standard alphabet, padded).
    Raw(String),
    /// A file elsewhere. Never fetched by us.
    Url(String),
}

impl Part {
    /// A bare part of this content.
    #[must_use]
    pub const fn of(content: Content) -> Self {
        Self { content, media_type: None, filename: None, metadata: None }
    }
    /// A bare text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Content::Text(text.into()))
    }
    /// A bare data part.
    #[must_use]
    pub const fn data(data: Value) -> Self {
        Self::of(Content::Data(data))
    }
}

/// Which run of parts one artifact of a foreign agent gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The agent's own id of it.
    pub id: String,
    /// Its name, if the agent gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Index of its first part.
    pub first: usize,
    /// How many parts.
    pub count: usize,
}

/// What is handed from edge to edge.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// The parts, in order.
    pub parts: Vec<Part>,
    /// For foreign output: ranges over `parts`; parts before the first came from the status message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// Bounds on a payload (configuration `[limits]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes at most.
    pub bytes: usize,
    /// Parts at most.
    pub parts: usize,
    /// JSON nesting at most, inside a data part or metadata.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 20, parts: 256, depth: 64 }
    }
}

/// Why something isn't a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPayload {
    /// More payload bytes than allowed.
    #[error("the payload is {got} bytes; at most {max} are allowed")]
    TooLarge {
        /// What came.
        got: usize,
        /// The bound.
        max: usize,
    },
    /// More parts than allowed.
    #[error("the payload has {got} parts; at most {max} are allowed")]
    TooManyParts {
        /// What came.
        got: usize,
        /// The bound.
        max: usize,
    },
    /// Nested deeper than allowed.
    #[error("the payload is nested deeper than {max} levels")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// No IEEE double holds this number, so peers would read another one.
    #[error("the number {0} isn't exact as an IEEE double; send it as a string")]
    InexactNumber(String),
    /// A part that isn't an A2A part.
    #[error("part {index}: {why}")]
    BadPart {
        /// Which, from 0.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A payload without parts says nothing.
    #[error("the payload has no parts")]
    Empty,
}

impl Payload {
    /// One text part.
    pub fn of_text(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::text(text)], artifacts: Vec::new() }
    }

    /// One data part.
    #[must_use]
    pub fn of_data(data: Value) -> Self {
        Self { parts: vec![Part::data(data)], artifacts: Vec::new() }
    }

    /// Reads what a caller, an expression or a worker gave: a string is one text part; an object whose
    /// members are all among `parts`, `text`, `data` is that; any other JSON is one data part.
    ///
    /// # Errors
    /// If it breaks a limit, or holds a number that isn't exact as an IEEE double.
    pub fn from_json(value: &Value, limits: &Limits) -> Result<Self, NotAPayload> {
        let payload = match value {
            Value::String(s) => Self::of_text(s.clone()),
            Value::Object(m)
                if !m.is_empty() && m.keys().all(|k| ["parts", "text", "data"].contains(&k.as_str())) =>
            {
                Self::from_members(m)?
            }
            other => Self::of_data(other.clone()),
        };
        payload.check(limits)?;
        Ok(payload)
    }

    fn from_members(m: &Map<String, Value>) -> Result<Self, NotAPayload> {
        let mut parts = Vec::new();
        if let Some(Value::Array(listed)) = m.get("parts") {
            for (index, p) in listed.iter().enumerate() {
                parts.push(part_from_json(p).map_err(|why| NotAPayload::BadPart { index, why })?);
            }
        } else if let Some(other) = m.get("parts") {
            return Err(NotAPayload::BadPart {
                index: 0,
                why: format!("`parts` must be an array, got {}", kind(other)),
            });
        }
        // A payload as we print it carries all three; text and data are then views of the parts.
        if parts.is_empty() {
            match m.get("text") {
                Some(Value::String(t)) => parts.push(Part::text(t.clone())),
                None | Some(Value::Null) => {}
                Some(v) => {
                    return Err(NotAPayload::BadPart {
                        index: 0,
                        why: format!("`text` must be a string, got {}", kind(v)),
                    });
                }
            }
            if let Some(d) = m.get("data").filter(|d| !d.is_null() || !m.contains_key("text")) {
                parts.push(Part::data(d.clone()));
            }
        }
        Ok(Self { parts, artifacts: Vec::new() })
    }

    /// Holds the payload to its limits.
    ///
    /// # Errors
    /// The first limit that it breaks.
    pub fn check(&self, limits: &Limits) -> Result<(), NotAPayload> {
        if self.parts.is_empty() {
            return Err(NotAPayload::Empty);
        }
        if self.parts.len() > limits.parts {
            return Err(NotAPayload::TooManyParts { got: self.parts.len(), max: limits.parts });
        }
        for part in &self.parts {
            if let Content::Data(d) = &part.content {
                check_value(d, limits.depth, limits.depth)?;
            }
            for v in part.metadata.iter().flat_map(Map::values) {
                check_value(v, limits.depth, limits.depth)?;
            }
        }
        let got = self.bytes().len();
        if got > limits.bytes {
            return Err(NotAPayload::TooLarge { got, max: limits.bytes });
        }
        Ok(())
    }

    /// The payload bytes: JCS of `{"parts":[…]}`.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        canonical(&json!({ "parts": self.parts }))
    }

    /// Reads payload bytes back from the record.
    ///
    /// # Errors
    /// If they aren't what [`bytes`](Self::bytes) writes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The kinds of its parts, as policy sees them.
    #[must_use]
    pub fn kinds(&self) -> std::collections::BTreeSet<String> {
        let kind = |part: &Part| match part.content {
            Content::Text(_) => "text",
            Content::Data(_) => "data",
            Content::Raw(_) => "raw",
            Content::Url(_) => "url",
        };
        self.parts.iter().map(|p| kind(p).to_owned()).collect()
    }

    /// Text view: the text parts, joined by a blank line.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .parts
            .iter()
            .filter_map(|p| if let Content::Text(t) = &p.content { Some(t.as_str()) } else { None })
            .collect();
        texts.join("\n\n")
    }

    /// Data view: the first data part, or null.
    #[must_use]
    pub fn data(&self) -> Value {
        self.parts
            .iter()
            .find_map(|p| if let Content::Data(d) = &p.content { Some(d.clone()) } else { None })
            .unwrap_or(Value::Null)
    }

    /// As the doors show it: `{"parts","text","data"}` and, for foreign output, `artifacts`.
    #[must_use]
    pub fn shown(&self) -> Value {
        let mut v = json!({ "parts": self.parts, "text": self.text(), "data": self.data() });
        if let (false, Some(m)) = (self.artifacts.is_empty(), v.as_object_mut()) {
            m.insert("artifacts".into(), json!(self.artifacts));
        }
        v
    }
}

/// The first integer that is too long for 64 bits and that no IEEE double stands for. The parser rounds these, so
/// whoever reads the parsed value can't tell any more; shorter ones arrive whole and are judged there.
#[must_use]
pub fn inexact_integer(json: &[u8]) -> Option<&str> {
    let is_number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'"' => {
                rest = after;
                while let Some((b, after)) = rest.split_first() {
                    rest = if *b == b'\\' { after.get(1..).unwrap_or_default() } else { after };
                    if *b == b'"' {
                        break;
                    }
                }
            }
            b'-' | b'0'..=b'9' => {
                let end = rest.iter().position(|b| !is_number(b)).unwrap_or(rest.len());
                let (number, after) = rest.split_at(end);
                rest = after;
                let digits = number.strip_prefix(b"-").unwrap_or(number);
                if digits.len() > 18 && digits.iter().all(u8::is_ascii_digit) {
                    let text = std::str::from_utf8(number).ok()?;
                    let small = text.parse::<u64>().is_ok() || text.parse::<i64>().is_ok();
                    // Either it is the double, to the last digit, or what canonical JSON writes for one.
                    let same = |held: f64| {
                        format!("{held:.0}") == text || canonical(&Value::from(held)) == text.as_bytes()
                    };
                    if !small && text.parse().is_ok_and(|held| !same(held)) {
                        return Some(text);
                    }
                }
            }
            _ => rest = after,
        }
    }
    None
}

/// JCS of a value. Our values hold only what JCS can hold; one that doesn't becomes its plain JSON.
#[must_use]
pub fn canonical(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).unwrap_or_else(|_| value.to_string().into_bytes())
}

/// Reads one A2A 1.0 part strictly: exactly one content, no unknown member.
///
/// # Errors
/// A phrase that says what is wrong with it.
pub fn part_from_json(value: &Value) -> Result<Part, String> {
    let m = value.as_object().ok_or_else(|| format!("a part must be an object, got {}", kind(value)))?;
    let held = ["text", "data", "raw", "url"].iter().filter(|k| m.contains_key(**k)).count();
    if held != 1 {
        return Err(format!("a part must have exactly one of text, data, raw, url; this one has {held}"));
    }
    let known = ["text", "data", "raw", "url", "mediaType", "filename", "metadata"];
    if let Some(k) = m.keys().find(|k| !known.contains(&k.as_str())) {
        return Err(format!("unknown member `{k}`"));
    }
    let string = |k: &str| match m.get(k) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(v) => Err(format!("`{k}` must be a string, got {}", kind(v))),
    };
    let content = if let Some(d) = m.get("data") {
        Content::Data(d.clone())
    } else if let Some(t) = string("text")? {
        Content::Text(t)
    } else if let Some(u) = string("url")? {
        Content::Url(u)
    } else {
        let raw = string("raw")?.ok_or("`raw` must be a string, got null")?;
        STANDARD.decode(&raw).map_err(|_| "`raw` must be base64 with padding".to_owned())?;
        Content::Raw(raw)
    };
    let metadata = match m.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(o)) => Some(o.clone()),
        Some(v) => return Err(format!("`metadata` must be an object, got {}", kind(v))),
    };
    Ok(Part { content, media_type: string("mediaType")?, filename: string("filename")?, metadata })
}

fn check_value(v: &Value, left: usize, max: usize) -> Result<(), NotAPayload> {
    let deeper = || left.checked_sub(1).ok_or(NotAPayload::TooDeep { max });
    match v {
        Value::Array(a) => {
            let left = deeper()?;
            a.iter().try_for_each(|v| check_value(v, left, max))
        }
        Value::Object(o) => {
            let left = deeper()?;
            o.values().try_for_each(|v| check_value(v, left, max))
        }
        Value::Number(n) if !is_exact(n) => Err(NotAPayload::InexactNumber(n.to_string())),
        _ => Ok(()),
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the round trip is the question"
)]
fn is_exact(n: &serde_json::Number) -> bool {
    match (n.as_u64(), n.as_i64()) {
        (Some(u), _) => (u as f64) < 18_446_744_073_709_551_615.0 && u as f64 as u64 == u,
        (None, Some(i)) => i as f64 as i64 == i,
        (None, None) => n.as_f64().is_some_and(f64::is_finite),
    }
}

/// The JSON kind of a value, in words, for errors.
#[must_use]
pub const fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(v: Value) -> Result<Payload, NotAPayload> {
        Payload::from_json(&v, &Limits::default())
    }

    #[test]
    fn a_string_is_text_the_three_members_are_a_payload_and_anything_else_is_data() {
        assert_eq!(read(json!("hi")).unwrap().text(), "hi");
        assert_eq!(read(json!({"text":"a","data":{"n":1}})).unwrap().parts.len(), 2);
        assert_eq!(read(json!({"parts":[{"text":"a"}],"text":"a","data":null})).unwrap().parts.len(), 1);
        assert_eq!(read(json!({"invoice":7})).unwrap().data(), json!({"invoice":7}));
        assert_eq!(read(json!({"data":null})).unwrap().parts, [Part::data(Value::Null)]);
        assert_eq!(read(json!([1, 2])).unwrap().data(), json!([1, 2]));
        assert_eq!(read(json!({})).unwrap().data(), json!({}));
    }

    #[test]
    fn what_we_print_reads_back_equal() {
        let p = read(json!({"parts":[{"text":"é\u{1F680}"},{"data":{"b":1.5,"a":[null]}},{"raw":"aGk=","filename":"f","mediaType":"x/y"},{"url":"https://x/y"}]})).unwrap();
        assert_eq!(read(p.shown()).unwrap(), p);
        assert_eq!(Payload::from_bytes(&p.bytes()).unwrap(), p);
    }

    #[test]
    fn a_number_that_no_double_holds_is_refused() {
        assert!(matches!(read(json!({"n": 9_007_199_254_740_993_u64})), Err(NotAPayload::InexactNumber(_))));
        assert!(read(json!({"n": 9_007_199_254_740_992_u64})).is_ok());
        assert!(matches!(read(json!({"n": u64::MAX})), Err(NotAPayload::InexactNumber(_))));
        assert!(read(json!({"n": -1.25e300})).is_ok());
    }

    #[test]
    fn bad_parts_and_broken_limits_say_which() {
        assert!(matches!(read(json!({"parts":[]})), Err(NotAPayload::Empty)));
        assert!(matches!(
            read(json!({"parts":[{"text":"a","data":1}]})),
            Err(NotAPayload::BadPart { index: 0, .. })
        ));
        assert!(matches!(
            read(json!({"parts":[{"text":"a"},{"raw":"%"}]})),
            Err(NotAPayload::BadPart { index: 1, .. })
        ));
        assert!(matches!(read(json!({"parts":[{"text":"a","x":1}]})), Err(NotAPayload::BadPart { .. })));
        assert!(matches!(read(json!("x".repeat(1 << 21))), Err(NotAPayload::TooLarge { .. })));
        let deep = (0..70).fold(json!(1), |v, _| json!([v]));
        assert!(matches!(read(json!({ "d": deep })), Err(NotAPayload::TooDeep { .. })));
        let many = json!({ "parts": vec![json!({"text":""}); 257] });
        assert!(matches!(read(many), Err(NotAPayload::TooManyParts { .. })));
    }
}
