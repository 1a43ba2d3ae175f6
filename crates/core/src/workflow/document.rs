//! YAML (JSON is YAML) to a tree that knows where each node stood.
//!
//! Promise: what comes out is plain JSON with marks, no deeper than [`MAX_DEPTH`], each member once,
//! each number exact as an IEEE double. Never: follows an alias or an anchor, resolves a tag, reads a
//! second document, recurses over hostile input. Scalars follow the core schema of YAML 1.2.2 §10.3.

use std::borrow::Cow;
use std::collections::BTreeSet;

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use super::fault::{Fault, FaultCode, Mark, beneath, excerpt};

/// Nesting of mappings and sequences at most.
pub(super) const MAX_DEPTH: usize = 64;

/// A node, where it starts, and how it was written.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    /// Where it starts.
    pub(super) at: Mark,
    /// The source text of a scalar, quotes and all; empty for a collection.
    pub(super) raw: &'t str,
    /// What it holds.
    pub(super) held: Held<'t>,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Held<'t> {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, exact as a double.
    Number(Number),
    /// A text.
    Text(String),
    /// A sequence.
    List(Vec<Node<'t>>),
    /// A mapping, in the order of the text, each key once.
    Members(Vec<(Key, Node<'t>)>),
}

/// A key of a mapping and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Where it starts.
    pub(super) at: Mark,
    /// The text.
    pub(super) text: String,
}

impl Node<'_> {
    /// The node as plain JSON.
    #[must_use]
    pub(super) fn value(&self) -> Value {
        match &self.held {
            Held::Null => Value::Null,
            Held::Bool(b) => Value::Bool(*b),
            Held::Number(n) => Value::Number(n.clone()),
            Held::Text(s) => Value::String(s.clone()),
            Held::List(items) => items.iter().map(Node::value).collect(),
            Held::Members(members) => {
                Value::Object(members.iter().map(|(k, v)| (k.text.clone(), v.value())).collect::<Map<_, _>>())
            }
        }
    }

    /// Where the node of a JSON pointer stands beneath this one; a member's place is that of its value.
    pub(super) fn at_pointer(&self, pointer: &str) -> Option<Mark> {
        let mut node = self;
        for word in pointer.split('/').skip(1) {
            let word = word.replace("~1", "/").replace("~0", "~");
            node = match &node.held {
                Held::Members(all) => all.iter().find(|(k, _)| k.text == word).map(|(_, n)| n)?,
                Held::List(items) => items.get(word.parse::<usize>().ok()?)?,
                Held::Null | Held::Bool(_) | Held::Number(_) | Held::Text(_) => return None,
            };
        }
        Some(node.at)
    }

    /// Its JSON kind, in words.
    #[must_use]
    pub(super) const fn kind(&self) -> &'static str {
        match self.held {
            Held::Null => "null",
            Held::Bool(_) => "a boolean",
            Held::Number(_) => "a number",
            Held::Text(_) => "a string",
            Held::List(_) => "a list",
            Held::Members(_) => "a mapping",
        }
    }

    /// Where the character at `offset` (bytes) of `part` stands, `part` being the `nth` `${{ … }}` of this
    /// scalar, without its braces. Where quoting or folding made the source another text, the `${{`.
    #[must_use]
    pub(super) fn mark_within(&self, nth: usize, part: &str, offset: usize) -> Mark {
        let Some((open, _)) = self.raw.match_indices("${{").nth(nth) else { return self.at };
        let as_written = self
            .raw
            .get(open + 3..)
            .is_some_and(|source| part.get(..offset).is_some_and(|before| source.starts_with(before)));
        let end = if as_written { open + 3 + offset } else { open };
        let before = self.raw.get(..end).unwrap_or_default();
        match before.rsplit_once('\n') {
            None => Mark { line: self.at.line, column: self.at.column.saturating_add(count(before)) },
            Some((above, line)) => Mark {
                line: self.at.line.saturating_add(count_lines(above)).saturating_add(1),
                column: count(line).saturating_add(1),
            },
        }
    }
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

/// Reads a text.
///
/// # Errors
/// Every duplicate key, alias, tag and bad number, or the first place where it isn't YAML.
pub(super) fn read(text: &str) -> Result<Node<'_>, Vec<Fault>> {
    let mut options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut building = Building { text, open: Vec::new(), root: None, documents: 0, faults: Vec::new() };
    for next in Parser::new_from_str_with_options(text, options) {
        let taken = match next {
            Ok((event, span)) => building.take(event, &span),
            Err(e) => {
                let at = mark_of(e.marker());
                let why = e.info();
                let pointer = building.pointer();
                Err(Fault::new(FaultCode::BadYaml, at, pointer, format!("not YAML: {}", excerpt(&why))))
            }
        };
        if let Err(fatal) = taken {
            building.faults.push(fatal);
            return Err(building.faults);
        }
    }
    match building.root {
        _ if !building.faults.is_empty() => Err(building.faults),
        Some(root) => Ok(root),
        None => Err(vec![Fault::new(FaultCode::BadYaml, Mark::START, "", "the text is empty")]),
    }
}

fn mark_of(m: &granit_parser::Marker) -> Mark {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Mark { line: small(m.line()).max(1), column: small(m.col()).saturating_add(1) }
}

/// A collection that isn't closed yet.
enum Open<'t> {
    List { at: Mark, items: Vec<Node<'t>> },
    Members { at: Mark, members: Vec<(Key, Node<'t>)>, seen: BTreeSet<String>, key: Option<Key> },
}

struct Building<'t> {
    text: &'t str,
    open: Vec<Open<'t>>,
    root: Option<Node<'t>>,
    documents: usize,
    faults: Vec<Fault>,
}

impl<'t> Building<'t> {
    /// Takes one event. A fatal fault ends the reading; the others are gathered.
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        let at = mark_of(&span.start);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let message = "more than one document in the text";
                    return Err(Fault::new(FaultCode::BadYaml, at, "", message));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.plain(anchor != 0, tag.is_some(), at);
                let raw = match (span.start.byte_offset(), span.end.byte_offset()) {
                    (Some(from), Some(to)) => self.text.get(from..to).unwrap_or_default(),
                    _ => "",
                };
                let held = self.scalar(text, style, at);
                self.place(Node { at, raw, held })
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.plain(true, false, at);
                self.place(Node { at, raw: "", held: Held::Null })
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.plain(anchor != 0, tag.is_some(), at);
                self.descend(Open::List { at, items: Vec::new() }, at)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.plain(anchor != 0, tag.is_some(), at);
                let members = Open::Members { at, members: Vec::new(), seen: BTreeSet::new(), key: None };
                self.descend(members, at)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { at, items }) => self.place(Node { at, raw: "", held: Held::List(items) }),
                Some(Open::Members { at, members, .. }) => {
                    self.place(Node { at, raw: "", held: Held::Members(members) })
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Notes what makes a text mean more than it shows.
    fn plain(&mut self, anchored: bool, tagged: bool, at: Mark) {
        let what = match (anchored, tagged) {
            (true, _) => "anchors and aliases aren't supported: write the value where it belongs",
            (false, true) => "tags aren't supported: quote what must be a string",
            (false, false) => return,
        };
        let pointer = self.pointer();
        self.faults.push(Fault::new(FaultCode::AliasOrTag, at, pointer, what));
    }

    fn descend(&mut self, collection: Open<'t>, at: Mark) -> Result<(), Fault> {
        if let Some(Open::Members { key: None, .. }) = self.open.last() {
            let message = "a member's name must be a string";
            return Err(Fault::new(FaultCode::BadYaml, at, self.pointer(), message));
        }
        if self.open.len() >= MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(Fault::new(FaultCode::BadYaml, at, self.pointer(), message));
        }
        self.open.push(collection);
        Ok(())
    }

    /// Puts a whole node where it belongs: into its list, beside its key, or as the next key.
    fn place(&mut self, node: Node<'t>) -> Result<(), Fault> {
        let at = node.at;
        let twice = match self.open.last_mut() {
            None => {
                self.root = Some(node);
                None
            }
            Some(Open::List { items, .. }) => {
                items.push(node);
                None
            }
            Some(Open::Members { members, seen, key, .. }) => match key.take() {
                Some(k) if seen.insert(k.text.clone()) => {
                    members.push((k, node));
                    None
                }
                Some(k) => Some(k),
                None => {
                    *key = name_of(node);
                    if key.is_none() {
                        let message = "a member's name must be a string";
                        return Err(Fault::new(FaultCode::BadYaml, at, self.pointer(), message));
                    }
                    None
                }
            },
        };
        if let Some(k) = twice {
            let message = format!("the member `{}` is there twice", excerpt(&k.text));
            let pointer = beneath(&self.pointer(), &k.text);
            self.faults.push(Fault::new(FaultCode::DuplicateKey, k.at, pointer, message));
        }
        Ok(())
    }

    /// JSON pointer of the node that comes next.
    fn pointer(&self) -> String {
        self.open.iter().fold(String::new(), |at, open| match open {
            Open::List { items, .. } => format!("{at}/{}", items.len()),
            Open::Members { key: Some(k), .. } => beneath(&at, &k.text),
            Open::Members { key: None, .. } => at,
        })
    }

    fn scalar(&mut self, text: Cow<'_, str>, style: ScalarStyle, at: Mark) -> Held<'t> {
        if style != ScalarStyle::Plain {
            return Held::Text(text.into_owned());
        }
        match &*text {
            "" | "~" | "null" | "Null" | "NULL" => Held::Null,
            "true" | "True" | "TRUE" => Held::Bool(true),
            "false" | "False" | "FALSE" => Held::Bool(false),
            _ if looks_numeric(&text) => number(&text).map_or_else(
                || {
                    let message = format!(
                        "{} isn't exact as an IEEE double; quote it to send it as a string",
                        excerpt(&text)
                    );
                    let pointer = self.pointer();
                    self.faults.push(Fault::new(FaultCode::BadNumber, at, pointer, message));
                    Held::Null
                },
                Held::Number,
            ),
            _ => Held::Text(text.into_owned()),
        }
    }
}

/// A key as written: YAML would let a number or `null` be one, JSON wouldn't.
fn name_of(node: Node<'_>) -> Option<Key> {
    match node.held {
        Held::Text(text) => Some(Key { at: node.at, text }),
        Held::Null | Held::Bool(_) | Held::Number(_) if !node.raw.is_empty() => {
            Some(Key { at: node.at, text: node.raw.to_owned() })
        }
        _ => None,
    }
}

/// Does the core schema read this plain scalar as an integer or a float?
fn looks_numeric(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit());
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return !octal.is_empty() && octal.bytes().all(|b| (b'0'..=b'7').contains(&b));
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e.strip_prefix(['-', '+']).unwrap_or(e))),
        None => (unsigned, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    !(whole.is_empty() && fraction.is_empty())
        && digits(whole)
        && digits(fraction)
        && exponent.is_none_or(|e| !e.is_empty() && digits(e))
}

/// The number, if a double holds it exactly (an integer) or at all (a float).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the round trip is the question"
)]
fn number(text: &str) -> Option<Number> {
    let integer = if let Some(hex) = text.strip_prefix("0x") {
        i64::from_str_radix(hex, 16).ok()
    } else if let Some(octal) = text.strip_prefix("0o") {
        i64::from_str_radix(octal, 8).ok()
    } else {
        text.parse::<i64>().ok()
    };
    match integer {
        Some(i) => (i != i64::MAX && i as f64 as i64 == i).then(|| Number::from(i)),
        None if text.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b'+') => None,
        None => text.parse::<f64>().ok().and_then(Number::from_f64),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        read(text).unwrap().value()
    }

    fn faults(text: &str) -> Vec<(FaultCode, u32, u32, String)> {
        let faults = read(text).unwrap_err();
        faults.into_iter().map(|f| (f.code, f.line, f.column, f.pointer)).collect()
    }

    #[test]
    fn scalars_follow_the_core_schema_of_yaml_1_2() {
        let text =
            "[~, null, true, False, yes, on, 1, -2, 0x1F, 0o17, 1.5, 2h, 1e3, '1', \"\\u00e9\", 1_000, .5]";
        let expected = json!([
            null, null, true, false, "yes", "on", 1, -2, 31, 15, 1.5, "2h", 1000.0, "1", "é", "1_000", 0.5
        ]);
        assert_eq!(value(text), expected);
        assert_eq!(value("a:\nb: |\n  x\n  y\n"), json!({"a": null, "b": "x\ny\n"}));
    }

    #[test]
    fn json_is_read_as_it_stands() {
        let text = r#"{"a":{"b":[1,2.5,"x\/y\n",true,null]},"c":"\ud83d\ude80","d":{}}"#;
        assert_eq!(value(text), serde_json::from_str::<Value>(text).unwrap());
        let pretty = serde_json::to_string_pretty(&value(text)).unwrap();
        assert_eq!(value(&pretty), value(text));
        assert_eq!(value(&pretty.replace("  ", "\t")), value(text));
    }

    #[test]
    fn what_means_more_than_it_shows_is_refused_where_it_stands() {
        assert_eq!(
            faults("a: &x 1\nb: *x\nc: !!str 1\n"),
            [
                (FaultCode::AliasOrTag, 1, 7, "/a".into()),
                (FaultCode::AliasOrTag, 2, 4, "/b".into()),
                (FaultCode::AliasOrTag, 3, 10, "/c".into()),
            ]
        );
        assert_eq!(faults("a: 1\nb: 2\na: 3\n"), [(FaultCode::DuplicateKey, 3, 1, "/a".into())]);
        assert_eq!(faults("a: [1, 9007199254740993]"), [(FaultCode::BadNumber, 1, 8, "/a/1".into())]);
        assert_eq!(faults("a: .nan"), [(FaultCode::BadNumber, 1, 4, "/a".into())]);
        assert_eq!(faults("a: 1\n---\nb: 2\n")[0].0, FaultCode::BadYaml);
        assert_eq!(faults("? [a]\n: 1\n")[0].0, FaultCode::BadYaml);
        assert_eq!(faults("%YAML 1.2\n---\na: 1\n")[0].0, FaultCode::BadYaml);
        assert_eq!(faults("")[0].0, FaultCode::BadYaml);
        assert_eq!(faults("a: [1,\n")[0].0, FaultCode::BadYaml);
    }

    #[test]
    fn deep_nesting_is_refused_and_overflows_nothing() {
        for text in ["[".repeat(100_000), "{a: ".repeat(20_000), "- ".repeat(50_000), "? ".repeat(50_000)] {
            assert_eq!(faults(&text).last().unwrap().0, FaultCode::BadYaml);
        }
    }

    proptest! {
        #[test]
        fn any_json_reads_back(v in any_json()) {
            prop_assert_eq!(value(&v.to_string()), v);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,200}", seam in "[\\[\\]{}:,&*!|>'\"#%@`?\\- \n\t~.0-9a-c]{0,120}") {
            let _ = read(&text);
            let _ = read(&seam);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~é\u{1F680}]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z~/: ]{1,6}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }
}
