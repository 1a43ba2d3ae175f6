//! What comes in, read strictly: JSON and text bodies, queries, names in the path.
//!
//! Promises: a body is bounded before it is read; a member that isn't known is refused and pointed to; every
//! refusal is a problem. Never: guesses a content type, ignores a member.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use exeat_core::payload::{Sha256Digest, inexact_integer};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;

use crate::app::App;
use crate::problem::{Code, Fault, Problem, sentence};

/// A JSON body, as `T` (which should be `deny_unknown_fields`). No body at all counts as `{}`.
#[derive(Debug)]
pub struct Body<T> {
    /// What was said.
    pub value: T,
    /// Digest of the query and the bytes: what makes two requests the same.
    pub digest: Sha256Digest,
}

/// A body of text, with its media type.
#[derive(Debug)]
pub struct Text {
    /// The essence of its content type, e.g. `application/yaml`.
    pub media_type: String,
    /// The text.
    pub text: String,
    /// Digest of the query and the bytes.
    pub digest: Sha256Digest,
}

/// A query, as `T` (which should be `deny_unknown_fields`).
#[derive(Debug)]
pub struct Asked<T>(pub T);

/// The one parameter of the path, as `T`. What isn't a `T` isn't there: 404.
#[derive(Debug)]
pub struct Named<T>(pub T);

/// How long a body may take to come whole.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The largest body taken: a payload of the largest size with every character escaped, and what is around it.
fn most(app: &App) -> usize {
    app.settings.bounds.payload.bytes.saturating_mul(4).saturating_add(1_048_576)
}

async fn read(request: Request, most: usize) -> Result<(HeaderMap, Bytes, Sha256Digest), Problem> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, most).collect()).await.map_err(|_| {
        let detail = format!("The body did not come whole within {} seconds.", PATIENCE.as_secs());
        Problem::new(Code::BadJson, detail)
    })?;
    let read = read.map_err(|e| {
        if e.is::<LengthLimitError>() {
            Problem::new(Code::PayloadTooLarge, format!("The body is larger than {most} bytes."))
        } else {
            Problem::new(Code::BadJson, "The body ended before it was complete.")
        }
    })?;
    let bytes = read.to_bytes();
    let query = parts.uri.query().unwrap_or_default();
    let digest = Sha256Digest::of(&[query.as_bytes(), b"\n", &bytes].concat());
    Ok((parts.headers, bytes, digest))
}

fn essence(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (headers, bytes, digest) = read(request, most(app)).await?;
        if bytes.is_empty() {
            let missing = || Problem::new(Code::BadJson, "A JSON body is needed, and there is none.");
            return Ok(Self { value: serde_json::from_str("{}").map_err(|_| missing())?, digest });
        }
        if essence(&headers) != "application/json" {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "The body must be sent as application/json.",
            ));
        }
        Ok(Self { value: from_json(&bytes)?, digest })
    }
}

impl FromRequest<Arc<App>> for Text {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (headers, bytes, digest) = read(request, most(app)).await?;
        let text = String::from_utf8(bytes.into())
            .map_err(|_| Problem::new(Code::BadJson, "The body isn't text in UTF-8."))?;
        Ok(Self { media_type: essence(&headers), text, digest })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(e) => {
                let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
                // The member's name stands before what is wrong with it.
                let wrong = why.split_once(": ").map_or(why.as_str(), |(_, wrong)| wrong);
                let code = if is_unknown(wrong) { Code::UnknownMember } else { Code::Invalid };
                Err(Problem::new(code, sentence(&format!("the query can't be taken: {}", cut(&why)))))
            }
        }
    }
}

impl<T: FromStr + Send> FromRequestParts<Arc<App>> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let named = match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(text)) => text.parse().ok(),
            Err(_) => None,
        };
        let nothing = || format!("There is nothing at {}.", cut(parts.uri.path()));
        named.map(Self).ok_or_else(|| Problem::new(Code::NotFound, nothing()))
    }
}

/// Reads JSON as `T`.
///
/// # Errors
/// `bad_json` with line and column; `unknown_member` or `invalid` with the JSON pointer as well.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value = parsed(bytes)?;
    no_name_twice(bytes)?;
    match inexact_integer(bytes) {
        Some(n) => Err(Problem::new(
            Code::Invalid,
            format!("The number {} isn't exact as an IEEE double; send it as a string.", cut(n)),
        )),
        None => Ok(value),
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let pointer = pointer(e.path());
        problem(e.inner(), Some(pointer))
    })?;
    reader.end().map_err(|e| problem(&e, None))?;
    // A list would be read as members in the order of their declaration, which is nobody's contract.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        let message = "A JSON object is expected.".to_owned();
        let fault = Fault {
            pointer: Some(String::new()),
            line: Some(1),
            column: Some(1),
            code: None,
            message: message.clone(),
        };
        return Err(Problem::new(Code::Invalid, message).listing(vec![fault]));
    }
    Ok(value)
}

/// Refuses a member that is named twice, at any depth: parsers differ on which one counts (RFC 8259 §4), and what a person
/// approves must be what an agent reads.
fn no_name_twice(bytes: &[u8]) -> Result<(), Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read: Result<Distinct, _> = serde_path_to_error::deserialize(&mut reader);
    read.map(drop).map_err(|e| {
        let pointer = pointer(e.path());
        problem(e.inner(), Some(pointer))
    })
}

/// JSON of which no object names a member twice.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(serde::de::Error::custom(format_args!(
                    "the member {:?} is named twice",
                    cut(&name)
                )));
            }
            names.insert(name);
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

fn problem(e: &serde_json::Error, pointer: Option<String>) -> Problem {
    let full = e.to_string();
    let why = full.split(" at line ").next().unwrap_or_default();
    let (code, pointer) = match e.classify() {
        serde_json::error::Category::Data if is_unknown(why) => (Code::UnknownMember, pointer),
        serde_json::error::Category::Data => (Code::Invalid, pointer),
        _ => (Code::BadJson, None),
    };
    let message = sentence(&cut(why));
    let place = |n: usize| u32::try_from(n).ok().filter(|n| *n > 0);
    let (line, column) = (place(e.line()), place(e.column()));
    let fault = Fault { pointer, line, column, code: None, message: message.clone() };
    Problem::new(code, message).listing(vec![fault])
}

/// Serde's own words for a member that a struct doesn't have.
fn is_unknown(why: &str) -> bool {
    why.starts_with("unknown field")
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    path.iter()
        .filter_map(|s| match s {
            Segment::Seq { index } => Some(format!("/{index}")),
            Segment::Map { key } => Some(format!("/{}", cut(key).replace('~', "~0").replace('/', "~1"))),
            // Which variant of an enum was tried isn't part of the text.
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only how it fails to be read is of interest")]
    struct Outer {
        inner: Inner,
        #[serde(default)]
        many: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only how it fails to be read is of interest")]
    struct Inner {
        n: u32,
    }

    #[test]
    fn each_way_to_be_wrong_has_its_code_and_its_place() {
        for (text, code, pointer) in [
            (r#"{"inner":{"n":1}"#, Code::BadJson, None),
            ("{\"inner\":\n{n:1}}", Code::BadJson, None),
            (r#"{"inner":{"n":1}} x"#, Code::BadJson, None),
            (r#"{"inner":{"n":1,"m":2}}"#, Code::UnknownMember, Some("/inner/m")),
            (r#"{"inner":{"n":1},"a/b":2}"#, Code::UnknownMember, Some("/a~1b")),
            (r#"{"inner":{"n":1},"many":[{"n":1},{"x":1}]}"#, Code::UnknownMember, Some("/many/1/x")),
            (r#"{"inner":{"n":-1}}"#, Code::Invalid, Some("/inner/n")),
            (r#"{"inner":{}}"#, Code::Invalid, Some("/inner")),
            (r#"{"inner":{"n":1,"n":1}}"#, Code::Invalid, Some("/inner")),
            ("[]", Code::Invalid, Some("")),
            (r#" [{"n":1},[]]"#, Code::Invalid, Some("")),
        ] {
            let problem = from_json::<Outer>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.code, code, "{text}");
            let fault = &problem.errors[0];
            assert!(fault.line.is_some() && fault.column.is_some(), "{text}");
            match pointer {
                Some(p) => assert_eq!(fault.pointer.as_deref(), Some(p), "{text}: {fault:?}"),
                None => assert_eq!(fault.pointer, None, "{text}"),
            }
        }
        assert_eq!(from_json::<Outer>(br#" {"inner":{"n":1}} "#).unwrap().inner.n, 1);
    }

    #[test]
    fn an_integer_that_would_be_rounded_is_refused() {
        let read = |text: &str| from_json::<serde_json::Value>(text.as_bytes()).map_err(|p| p.code);
        assert_eq!(read(r#"{"a":12345678901234567890123}"#), Err(Code::Invalid));
        assert_eq!(read(r#"{"a":["\\",-98765432109876543211]}"#), Err(Code::Invalid));
        for fine in ["18446744073709551616", "1e30", "0.1", r#"["\"12345678901234567890123"]"#, "-5"] {
            assert!(read(&format!("{{\"a\":{fine}}}")).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_member_that_is_named_twice_is_refused_at_any_depth() {
        let read = |text: &str| from_json::<serde_json::Value>(text.as_bytes()).map(drop);
        for (text, pointer) in [
            (r#"{"input":1,"input":2}"#, ""),
            (r#"{"input":{"a":1,"\u0061":2}}"#, "/input"),
            (r#"{"input":[0,{"b":[{"c":1,"d":2,"c":3}]}]}"#, "/input/1/b/0"),
        ] {
            let problem = read(text).unwrap_err();
            assert_eq!(problem.code, Code::Invalid, "{text}");
            let fault = &problem.errors[0];
            assert!(fault.pointer.as_deref().is_some_and(|p| p.starts_with(pointer)), "{text}: {fault:?}");
            assert!(fault.message.contains("named twice"), "{fault:?}");
        }
        read(r#"{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}"#).unwrap();
    }

    #[test]
    fn nesting_without_end_is_refused() {
        let deep = "[".repeat(100_000);
        assert_eq!(from_json::<serde_json::Value>(deep.as_bytes()).unwrap_err().code, Code::BadJson);
    }
}
