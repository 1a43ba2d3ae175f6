//! Message parts: kept as they came, turned into the other version only when that asks for them.

use serde_json::{Value, json};

use super::dialect::{Dialect, put};

/// Parts in the version in which they came.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    dialect: Dialect,
    list: Vec<Value>,
}

impl Parts {
    /// The parts of a message, if it has any.
    pub(super) fn of_message(message: &Value, dialect: Dialect) -> Self {
        let list = message.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
        Self { dialect, list }
    }

    /// One text.
    pub(super) fn text(text: &str, dialect: Dialect) -> Self {
        let mut parts = Self { dialect, list: Vec::new() };
        parts.push(json!({ "text": text }));
        parts
    }

    /// Adds a part, given as 1.0 writes it.
    pub(super) fn push(&mut self, part: Value) {
        self.list.push(match self.dialect {
            Dialect::V1 => part,
            Dialect::V03 => to_v03(&part),
        });
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// As a version writes them.
    pub(super) fn as_in(&self, dialect: Dialect) -> Vec<Value> {
        match (self.dialect, dialect) {
            (Dialect::V1, Dialect::V03) => self.list.iter().map(to_v03).collect(),
            (Dialect::V03, Dialect::V1) => self.list.iter().map(to_v1).collect(),
            _ => self.list.clone(),
        }
    }

    /// Takes the line of directives out of the first text part, without its `!`.
    pub(super) fn take_directives(&mut self) -> Option<String> {
        let position = self.list.iter().position(|part| part.get("text").is_some_and(Value::is_string))?;
        let alone = self.list.len() == 1;
        let part = self.list.get_mut(position)?;
        let text = part.get("text").and_then(Value::as_str)?;
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        let line = line.strip_prefix('!')?.trim_end_matches('\r').to_owned();
        let rest = rest.to_owned();
        if rest.is_empty() && !alone {
            self.list.remove(position);
        } else {
            put(part, "text", Value::String(rest));
        }
        Some(line)
    }
}

fn to_v03(part: &Value) -> Value {
    let member = |name: &str| part.get(name).filter(|v| !v.is_null());
    let mut out = if let Some(text) = member("text") {
        json!({ "kind": "text", "text": text })
    } else if let Some((place, content)) =
        member("raw").map(|raw| ("bytes", raw)).or_else(|| member("url").map(|url| ("uri", url)))
    {
        let mut file = json!({ place: content });
        if let Some(name) = member("filename") {
            put(&mut file, "name", name.clone());
        }
        if let Some(media) = member("mediaType") {
            put(&mut file, "mimeType", media.clone());
        }
        json!({ "kind": "file", "file": file })
    } else {
        match part.get("data") {
            Some(Value::Object(data)) => json!({ "kind": "data", "data": data }),
            // 0.3 knows objects only; this is the reference SDK's way round it.
            other => {
                return json!({
                    "kind": "data", "data": { "value": other }, "metadata": { "data_part_compat": true },
                });
            }
        }
    };
    if let Some(metadata) = member("metadata") {
        put(&mut out, "metadata", metadata.clone());
    }
    out
}

fn to_v1(part: &Value) -> Value {
    let file = part.get("file");
    let in_file = |name: &str| file.and_then(|f| f.get(name)).filter(|v| !v.is_null());
    let mut out = if let Some(text) = part.get("text") {
        json!({ "text": text })
    } else if let Some(bytes) = in_file("bytes") {
        json!({ "raw": bytes })
    } else if let Some(uri) = in_file("uri") {
        json!({ "url": uri })
    } else {
        let wrapped = part.pointer("/metadata/data_part_compat") == Some(&Value::Bool(true));
        let at = if wrapped { "/data/value" } else { "/data" };
        return json!({ "data": part.pointer(at) });
    };
    for (theirs, ours) in [("name", "filename"), ("mimeType", "mediaType")] {
        if let Some(value) = in_file(theirs) {
            put(&mut out, ours, value.clone());
        }
    }
    if let Some(metadata) = part.get("metadata").filter(|v| !v.is_null()) {
        put(&mut out, "metadata", metadata.clone());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(list: Value) -> Parts {
        Parts::of_message(&json!({ "parts": list }), Dialect::V1)
    }

    #[test]
    fn the_directive_line_is_taken_from_the_first_text_part_and_an_emptied_part_goes() {
        for (before, line, after) in [
            (json!([{"text":"!say x\nbody\nmore"}]), Some("say x"), json!([{"text":"body\nmore"}])),
            (json!([{"text":"!say x\r\nbody"}]), Some("say x"), json!([{"text":"body"}])),
            (json!([{"text":"!auth"}]), Some("auth"), json!([{"text":""}])),
            (json!([{"text":"!auth"},{"data":1}]), Some("auth"), json!([{"data":1}])),
            (
                json!([{"data":{"text":"!x"}},{"text":"!auth\n"}]),
                Some("auth"),
                json!([{"data":{"text":"!x"}}]),
            ),
            (json!([{"text":"plain\n!auth"}]), None, json!([{"text":"plain\n!auth"}])),
            (json!([{"text":"plain"},{"text":"!auth"}]), None, json!([{"text":"plain"},{"text":"!auth"}])),
            (json!([{"data":1}]), None, json!([{"data":1}])),
        ] {
            let mut taken = parts(before);
            assert_eq!(taken.take_directives().as_deref(), line);
            assert_eq!(json!(taken.as_in(Dialect::V1)), after);
        }
    }

    #[test]
    fn parts_survive_the_way_to_the_older_version_and_back() {
        let v1 = json!([
            {"text":"t","metadata":{"k":1}}, {"raw":"aGk=","filename":"f","mediaType":"a/b"},
            {"url":"http://x.test/f","mediaType":"a/b"}, {"data":{"n":1}}, {"data":[1,2]}, {"data":null},
        ]);
        let old = parts(v1.clone()).as_in(Dialect::V03);
        assert_eq!(old[1], json!({"kind":"file","file":{"bytes":"aGk=","name":"f","mimeType":"a/b"}}));
        assert_eq!(old[4]["data"], json!({"value":[1,2]}));
        let back = Parts { dialect: Dialect::V03, list: old }.as_in(Dialect::V1);
        assert_eq!(json!(back), v1);
    }
}
