//! What is given on the command line, read into what the API takes: texts, JSON, files, labels.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use exeat_core::id::Malformed;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Bytes of the largest file that is read; the server's own limit is lower and names itself.
const FILE_BYTES: u64 = 32 << 20;

/// A label or ceiling, `internal+eu`, in the API's form. Its level is the org's business.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabelText(pub(crate) Value);

impl std::str::FromStr for LabelText {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let mut words = s.split('+');
        let ok = |w: &str| {
            (1..=64).contains(&w.len())
                && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if !s.split('+').all(ok) {
            return Err(Malformed::new("label", "a level, then +TAG for each tag, like internal+eu", s));
        }
        let level = words.next().unwrap_or_default();
        Ok(Self(json!({ "level": level, "tags": words.collect::<Vec<_>>() })))
    }
}

/// Reads a text file that the command line names.
pub(crate) fn file_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(file_bytes(path)?)
        .map_err(|_| Failure::usage(format!("{} isn't UTF-8 text", path.display())))
}

fn file_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", path.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .map_err(cannot)?
        .take(FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(Failure::usage(format!("{} is larger than {FILE_BYTES} bytes", path.display())));
    }
    Ok(bytes)
}

/// A text argument; `-` is all of stdin.
pub(crate) fn text(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::usage(format!("cannot read stdin: {e}")))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(Failure::usage(format!("stdin is larger than {FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin isn't UTF-8 text").next("send it with --file"))
}

/// `JSON` or `@FILE` with JSON.
pub(crate) fn json_or_file(flag: &str, given: &str) -> Result<Value, Failure> {
    let (from, text) = match given.strip_prefix('@') {
        Some(path) => (path, file_text(Path::new(path))?),
        None => (flag, given.to_owned()),
    };
    serde_json::from_str(&text).map_err(|e| {
        Failure::usage(format!("{from} isn't JSON: {e}"))
            .next(format!("{flag} takes JSON, or @FILE with JSON"))
    })
}

/// What to send. One text alone is itself; anything more is a list of parts.
pub(crate) fn payload(
    text: Option<String>,
    data: Option<Value>,
    files: &[PathBuf],
) -> Result<Value, Failure> {
    if let (Some(""), None, []) = (text.as_deref(), &data, files) {
        return Err(Failure::usage("the text is empty").next("give a text, - for stdin, --data or --file"));
    }
    if let (Some(t), None, []) = (&text, &data, files) {
        return Ok(json!(t));
    }
    let mut parts: Vec<Value> = text.map(|t| json!({ "text": t })).into_iter().collect();
    parts.extend(data.map(|d| json!({ "data": d })));
    for file in files {
        let raw = STANDARD.encode(file_bytes(file)?);
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let media = media_type(&name);
        parts.push(json!({ "raw": raw, "filename": name, "mediaType": media }));
    }
    if parts.is_empty() {
        return Err(Failure::usage("nothing to send").next("give a text, - for stdin, --data or --file"));
    }
    Ok(json!({ "parts": parts }))
}

/// The media type of a file, by the end of its name.
fn media_type(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase()).unwrap_or_default();
    match end.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "xml" => "application/xml",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        _ => "application/octet-stream",
    }
}

/// A member of a body for each that is given.
pub(crate) fn members<const N: usize>(given: [(&str, Option<Value>); N]) -> Value {
    given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_level_and_its_tags() {
        let read = |s: &str| s.parse::<LabelText>().map(|l| l.0);
        assert_eq!(read("internal"), Ok(json!({"level": "internal", "tags": []})));
        assert_eq!(read("internal+eu+hr"), Ok(json!({"level": "internal", "tags": ["eu", "hr"]})));
        for bad in ["", "+eu", "internal+", "Internal", "in ternal", "internal++eu"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_text_is_itself_and_anything_more_is_parts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.PDF");
        std::fs::write(&file, b"%PDF").unwrap();
        let text = || Some("hi".to_owned());
        assert_eq!(payload(text(), None, &[]), Ok(json!("hi")));
        assert!(payload(Some(String::new()), None, &[]).is_err(), "nothing is sent for nothing");
        assert_eq!(
            payload(text(), Some(json!([1])), &[file]),
            Ok(json!({"parts": [{"text": "hi"}, {"data": [1]},
                {"raw": "JVBERg==", "filename": "a.PDF", "mediaType": "application/pdf"}]}))
        );
        assert_eq!(payload(None, Some(json!(null)), &[]), Ok(json!({"parts": [{"data": null}]})));
        assert!(payload(None, None, &[]).is_err());
    }

    #[test]
    fn json_is_read_from_the_argument_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in.json");
        std::fs::write(&file, "{\"a\":1}\n").unwrap();
        let at = format!("@{}", file.display());
        assert_eq!(json_or_file("--data", &at), Ok(json!({"a": 1})));
        assert_eq!(json_or_file("--data", "[1]"), Ok(json!([1])));
        for bad in ["", "{", "hi", "@/does/not/exist"] {
            assert!(json_or_file("--data", bad).is_err(), "{bad}");
        }
    }
}
