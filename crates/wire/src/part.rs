//! Parts, to and from each dialect.
//!
//! Written: 1.0 parts verbatim; 0.3 parts with `kind`, where a text or data part has no place for a media type
//! or a file name (they stay behind), and data that isn't an object is wrapped as the published SDKs do:
//! `{"data":{"value":X},"metadata":{"data_part_compat":true}}`.
//!
//! Read: any of 0.1 (`type`), 0.2, 0.3 (`kind`) and 1.0, told apart by members. What fits none is kept whole as
//! a data part, so that nothing that an agent said is lost unseen. URLs are text here; nothing fetches them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use exeat_core::payload::{Content, Part};
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::json::Look as _;

/// The member of metadata that marks wrapped data.
const COMPAT: &str = "data_part_compat";

/// Parts as a dialect writes them.
pub(crate) fn write(dialect: Dialect, parts: &[Part]) -> Value {
    match dialect {
        Dialect::V1_0 => json!(parts),
        Dialect::V0_3 => parts.iter().map(old).collect(),
    }
}

fn old(part: &Part) -> Value {
    let mut metadata = part.metadata.clone();
    let file = |place: &str, content: &str| {
        let mut file = Map::new();
        file.insert(place.to_owned(), content.into());
        if let Some(name) = &part.filename {
            file.insert("name".to_owned(), name.as_str().into());
        }
        if let Some(media_type) = &part.media_type {
            file.insert("mimeType".to_owned(), media_type.as_str().into());
        }
        json!({ "kind": "file", "file": file })
    };
    let mut out = match &part.content {
        Content::Text(text) => json!({ "kind": "text", "text": text }),
        Content::Raw(bytes) => file("bytes", bytes),
        Content::Url(url) => file("uri", url),
        // A marker of the caller's own would make the peer unwrap what was never wrapped.
        Content::Data(data)
            if data.is_object() && !metadata.as_ref().is_some_and(|m| m.contains_key(COMPAT)) =>
        {
            json!({ "kind": "data", "data": data })
        }
        Content::Data(data) => {
            metadata.get_or_insert_default().insert(COMPAT.to_owned(), true.into());
            json!({ "kind": "data", "data": { "value": data } })
        }
    };
    if let (Some(metadata), Some(out)) = (metadata, out.as_object_mut()) {
        out.insert("metadata".to_owned(), Value::Object(metadata));
    }
    out
}

/// The parts of a message or artifact, in order.
pub(crate) fn read_all(holder: &Map<String, Value>) -> Vec<Part> {
    holder.list("parts").iter().map(read).collect()
}

/// Reads one part of any dialect.
pub(crate) fn read(value: &Value) -> Part {
    value.as_object().and_then(known).unwrap_or_else(|| Part::data(value.clone()))
}

fn known(m: &Map<String, Value>) -> Option<Part> {
    let kind = m.text("kind").or_else(|| m.text("type")).map(str::to_ascii_lowercase);
    let mut metadata = m.object("metadata").cloned();
    let (content, about) = match (kind.as_deref(), m.object("file")) {
        (None | Some("file"), Some(file)) => (file_content(file)?, file),
        (None | Some("text" | "data" | "file"), _) => (content(m)?, m),
        _ => return None,
    };
    let content = match content {
        Content::Data(data) if kind.is_some() => Content::Data(unwrapped(data, &mut metadata)),
        other => other,
    };
    let string =
        |names: [&str; 2]| names.iter().find_map(|n| about.text(n).or_else(|| m.text(n))).map(str::to_owned);
    Some(Part {
        content,
        media_type: string(["mediaType", "mimeType"]),
        filename: string(["filename", "name"]),
        metadata: metadata.filter(|m| !m.is_empty()),
    })
}

/// The one content of a 1.0 part. Members that a peer printed at their default are nobody's content; two that
/// both say something are no part that we know.
fn content(m: &Map<String, Value>) -> Option<Content> {
    let names = ["text", "raw", "url", "data"];
    let present: Vec<&str> = names.into_iter().filter(|n| m.member(n).is_some()).collect();
    let telling: Vec<&str> =
        present.iter().copied().filter(|n| m.member(n).and_then(Value::as_str) != Some("")).collect();
    let name = match (telling.as_slice(), present.as_slice()) {
        ([one], _) | ([], [one, ..]) => *one,
        ([], []) if m.contains_key("data") => "data",
        _ => return None,
    };
    let string = || m.member(name).and_then(Value::as_str);
    match name {
        "text" => string().map(|s| Content::Text(s.to_owned())),
        "url" => string().map(|s| Content::Url(s.to_owned())),
        "raw" => string().and_then(inline),
        _ => Some(Content::Data(m.get("data").cloned().unwrap_or(Value::Null))),
    }
}

fn file_content(file: &Map<String, Value>) -> Option<Content> {
    // The longer names are those of the 0.3 proto, which some writers took for the JSON ones.
    let bytes = file.text("bytes").or_else(|| file.text("fileWithBytes"));
    let uri = file.text("uri").or_else(|| file.text("fileWithUri"));
    match (bytes, uri) {
        (Some(bytes), _) => inline(bytes),
        (None, Some(uri)) => Some(Content::Url(uri.to_owned())),
        (None, None) => file.member("bytes").is_some().then(|| Content::Raw(String::new())),
    }
}

/// Base64 of either alphabet, padded or not, as the standard one with padding.
fn inline(text: &str) -> Option<Content> {
    const LOOSE: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const LOOSE_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LOOSE);
    const LOOSE_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LOOSE);
    let bytes = LOOSE_STANDARD.decode(text).or_else(|_| LOOSE_URL.decode(text)).ok()?;
    Some(Content::Raw(STANDARD.encode(bytes)))
}

fn unwrapped(data: Value, metadata: &mut Option<Map<String, Value>>) -> Value {
    let marked = metadata.as_ref().and_then(|m| m.get(COMPAT)) == Some(&Value::Bool(true));
    match data {
        Value::Object(mut m) if marked && m.contains_key("value") => {
            if let Some(metadata) = metadata {
                metadata.remove(COMPAT);
            }
            m.remove("value").unwrap_or(Value::Null)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(content: Content, media_type: &str, filename: &str) -> Part {
        Part { content, media_type: Some(media_type.into()), filename: Some(filename.into()), metadata: None }
    }

    #[test]
    fn every_shape_of_a_part_in_the_field_is_read() {
        for (given, part) in [
            (json!({"text":"hi"}), Part::text("hi")),
            (json!({"text":"hi","mediaType":"","filename":"","metadata":null}), Part::text("hi")),
            (json!({"text":"hi","url":"","raw":"","data":null}), Part::text("hi")),
            (json!({"text":""}), Part::text("")),
            (json!({"kind":"text","text":"hi"}), Part::text("hi")),
            (json!({"type":"text","text":"hi","metadata":{}}), Part::text("hi")),
            (json!({"data":null}), Part::data(Value::Null)),
            (json!({"data":[1,"a"]}), Part::data(json!([1, "a"]))),
            (json!({"data":""}), Part::data(json!(""))),
            (json!({"kind":"data","data":{"a":1}}), Part::data(json!({"a":1}))),
            (
                json!({"kind":"data","data":{"value":7},"metadata":{"data_part_compat":true}}),
                Part::data(json!(7)),
            ),
            (
                json!({"raw":"aGk=","mediaType":"a/b","filename":"f"}),
                with(Content::Raw("aGk=".into()), "a/b", "f"),
            ),
            (json!({"raw":"-_8"}), Part::of(Content::Raw("+/8=".into()))),
            (
                json!({"kind":"file","file":{"name":"f","mimeType":"a/b","bytes":"aGk="}}),
                with(Content::Raw("aGk=".into()), "a/b", "f"),
            ),
            (
                json!({"type":"file","file":{"name":"f","mimeType":"a/b","uri":"https://x/y"}}),
                with(Content::Url("https://x/y".into()), "a/b", "f"),
            ),
            (
                json!({"file":{"name":"f","mime_type":"a/b","fileWithUri":"https://x/y"}}),
                with(Content::Url("https://x/y".into()), "a/b", "f"),
            ),
            (
                json!({"url":"https://x/y","media_type":"a/b","filename":"f","x-new":1}),
                with(Content::Url("https://x/y".into()), "a/b", "f"),
            ),
        ] {
            assert_eq!(read(&given), part, "{given}");
        }
    }

    #[test]
    fn a_part_of_no_known_shape_is_kept_whole_as_data() {
        for given in [
            json!({"kind":"video","text":"x"}),
            json!({"text":"a","data":{"b":1}}),
            json!({"raw":"%%"}),
            json!({"text":7}),
            json!({"kind":"file","file":{}}),
            json!({}),
            json!("plain"),
            json!([1]),
            Value::Null,
        ] {
            assert_eq!(read(&given), Part::data(given.clone()), "{given}");
        }
    }

    #[test]
    fn a_caller_s_own_compat_marker_can_not_make_the_peer_drop_data() {
        let marked = Part {
            metadata: json!({"data_part_compat":true}).as_object().cloned(),
            ..Part::data(json!({"value":1,"more":2}))
        };
        let written = write(Dialect::V0_3, std::slice::from_ref(&marked));
        assert_eq!(read(&written[0]).content, marked.content);
    }

    pub(crate) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z]{1,5}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    fn any_part() -> impl Strategy<Value = Part> {
        let content = prop_oneof![
            ".{0,20}".prop_map(Content::Text),
            any_json().prop_map(Content::Data),
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(|b| Content::Raw(STANDARD.encode(b))),
            "https://[a-z]{1,9}/".prop_map(Content::Url),
        ];
        (content, proptest::option::of("[a-z]{1,5}/[a-z]{1,5}"), proptest::option::of("[a-z.]{1,9}"))
            .prop_map(|(content, media_type, filename)| Part {
                content,
                media_type,
                filename,
                metadata: None,
            })
    }

    proptest! {
        #[test]
        fn parts_come_back_from_1_0_as_they_went(parts in proptest::collection::vec(any_part(), 0..5)) {
            let written = write(Dialect::V1_0, &parts);
            let back: Vec<Part> = written.as_array().unwrap().iter().map(read).collect();
            prop_assert_eq!(back, parts);
        }

        #[test]
        fn parts_come_back_from_0_3_but_for_what_it_has_no_place_for(parts in proptest::collection::vec(any_part(), 0..5)) {
            let written = write(Dialect::V0_3, &parts);
            let back: Vec<Part> = written.as_array().unwrap().iter().map(read).collect();
            let expected: Vec<Part> = parts.into_iter().map(|p| match p.content {
                Content::Text(_) | Content::Data(_) => Part { media_type: None, filename: None, ..p },
                _ => p,
            }).collect();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn whatever_came_as_a_part_is_kept(v in any_json()) {
            let part = read(&v);
            if !v.is_object() {
                prop_assert_eq!(part, Part::data(v));
            }
        }
    }
}
