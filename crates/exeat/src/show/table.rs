//! Tables and field lists: framed on a terminal, plain columns in a pipe. Every cell is escaped here.

use comfy_table::presets::{NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use serde_json::Value;

use super::escape::{escaped, escaped_line};

/// How a stream is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Into a pipe or file.
    Plain,
    /// To a terminal without colours.
    Framed,
    /// To a terminal.
    Coloured,
}

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const CYAN: &str = "\u{1b}[36m";
const END: &str = "\u{1b}[0m";

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("{code}{text}{END}"),
            Self::Plain | Self::Framed => text.to_owned(),
        }
    }

    /// For the word that announces an error.
    pub(crate) fn alarm(self, text: &str) -> String {
        self.paint(&format!("{BOLD}{RED}"), text)
    }

    /// For a heading.
    pub(crate) fn heading(self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    /// For what matters less.
    pub(crate) fn aside(self, text: &str) -> String {
        self.paint(DIM, text)
    }

    /// A status word in its colour.
    pub(crate) fn word(self, word: &str) -> String {
        match tone(word) {
            Some(code) => self.paint(code, word),
            None => word.to_owned(),
        }
    }
}

/// The colour of a status word.
fn tone(word: &str) -> Option<&'static str> {
    Some(match word {
        "completed" | "active" | "approved" | "on" | "allow" | "ok" | "verified" => GREEN,
        "failed" | "denied" | "rejected" | "timed_out" | "revoked" | "deny" | "expired" | "halt" => RED,
        "awaiting_approval" | "awaiting_input" | "pending_review" | "parked" | "pending" | "drain"
        | "require_approval" => YELLOW,
        "running" | "dispatched" | "sending" | "working" | "ready" => CYAN,
        "canceled" | "skipped" | "draft" | "disabled" | "off" | "superseded" => DIM,
        _ => return None,
    })
}

/// Columns that fit the terminal, the first of which, the name, is never broken; a line of headings, then one
/// per row. In a pipe an empty cell is a hyphen, so that each line has as many words.
pub(crate) fn table<const N: usize>(style: Style, headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table.set_header(headings);
    match style {
        Style::Plain => {
            table.load_style(NOTHING);
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        Style::Framed | Style::Coloured => {
            table.load_style(UTF8_FULL_CONDENSED.with_rounded_corners());
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(terminal_width());
        }
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| match (style, escaped_line(cell)) {
            (Style::Plain, cell) if cell.is_empty() => "-".to_owned(),
            (_, cell) => cell,
        }));
    }
    if let Some(name) = table.column_mut(0) {
        name.set_constraint(ColumnConstraint::ContentWidth);
    }
    let drawn = table.to_string();
    let lines = drawn.lines().map(str::trim_end);
    match style {
        // The preset pads each cell by a space; a script's columns start at the margin.
        Style::Plain => lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect::<Vec<_>>().join("\n"),
        Style::Framed => lines.collect::<Vec<_>>().join("\n"),
        Style::Coloured => {
            lines.enumerate().map(|(n, l)| coloured(style, &headings, n, l)).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Colours a drawn line: frames dim, headings bold, and status words. Done on the drawn line, since codes
/// inside a cell would be counted as width.
fn coloured(style: Style, headings: &[&str], number: usize, line: &str) -> String {
    if !line.contains('│') {
        return style.aside(line);
    }
    // What stands before the first bar is no column.
    let columns = std::iter::once(&"").chain(headings).chain(std::iter::repeat(&""));
    line.split_inclusive(['│', '┆'])
        .zip(columns)
        .map(|(piece, heading)| {
            let cell = piece.trim_end_matches(['│', '┆']);
            let bar = piece.get(cell.len()..).filter(|b| !b.is_empty()).map(|b| style.aside(b));
            let word = cell.trim();
            let cell = match (number, *heading) {
                _ if word.is_empty() => cell.to_owned(),
                (1, _) => style.heading(cell),
                (_, "STATUS" | "STATE" | "HALTED" | "REASON") => cell.replacen(word, &style.word(word), 1),
                _ => cell.to_owned(),
            };
            format!("{cell}{}", bar.unwrap_or_default())
        })
        .collect()
}

/// Names and values, one a line. Values of several lines are indented, so that none can pass for a field.
pub(crate) fn fields(style: Style, fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let indent = format!("\n{:width$}  ", "");
    let mut out = String::new();
    for (name, value) in fields.iter().filter(|(_, v)| !v.is_empty()) {
        let value = escaped(value).replace('\n', &indent);
        out.push_str(&style.aside(&format!("{name:width$}")));
        out.push_str("  ");
        out.push_str(&style.word(&value));
        out.push('\n');
    }
    out
}

/// A member as a person reads it: text bare, a label as `internal+eu`, nothing as nothing, else JSON.
pub(crate) fn cell(object: &Value, member: &str) -> String {
    plain(object.get(member).unwrap_or(&Value::Null))
}

/// As [`cell`], of a value.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        Value::Bool(b) => if *b { "yes" } else { "no" }.to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(o) => match (o.get("level").and_then(Value::as_str), o.get("tags")) {
            (Some(level), Some(Value::Array(tags))) => std::iter::once(level)
                .chain(tags.iter().filter_map(Value::as_str))
                .collect::<Vec<_>>()
                .join("+"),
            _ => value.to_string(),
        },
        Value::Number(_) => value.to_string(),
    }
}

/// Integer micro-dollars as dollars: `$0.0042`; nothing for null.
pub(crate) fn money(value: &Value) -> String {
    let Some(micro) = value.as_i64() else { return String::new() };
    let (sign, micro) = if micro < 0 { ("-", micro.unsigned_abs()) } else { ("", micro.unsigned_abs()) };
    let text = format!("{:06}", micro % 1_000_000);
    let cents = text.trim_end_matches('0');
    format!("{sign}${}.{cents:0<2}", micro / 1_000_000)
}

/// A time without its microseconds, which only order records.
pub(crate) fn time(value: &Value) -> String {
    let Some(text) = value.as_str() else { return String::new() };
    match text.split_once('.') {
        Some((seconds, _)) => format!("{}Z", seconds.replace('T', " ")),
        None => text.to_owned(),
    }
}

fn terminal_width() -> u16 {
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let asked = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|w| w.ws_col).filter(|w| *w > 0);
    said.or_else(asked).unwrap_or(100).clamp(40, 400)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_piped_table_has_no_frame_no_colour_and_no_wrapped_cell() {
        let rows = [["a".into(), String::new()], ["x".repeat(300), "evil\u{1b}[2J\nrow".into()]];
        let drawn = table(Style::Plain, ["KEY", "STATUS"], &rows);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["KEY", "STATUS"]);
        assert!(lines[0].starts_with("KEY"));
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["a", "-"]);
        assert!(lines[2].ends_with("evil\\u{001B}[2J\\nrow"));
        assert!(!drawn.contains('\u{1b}'));
    }

    #[test]
    fn colours_change_no_character_of_a_table() {
        let rows = [["auditor".into(), "active".into()], ["old".into(), "revoked".into()]];
        let strip = |s: &str| {
            [BOLD, DIM, RED, GREEN, YELLOW, CYAN, END].iter().fold(s.to_owned(), |s, c| s.replace(c, ""))
        };
        let coloured = table(Style::Coloured, ["KEY", "STATUS"], &rows);
        assert_eq!(strip(&coloured), table(Style::Framed, ["KEY", "STATUS"], &rows));
        assert!(coloured.contains(&format!("{GREEN}active{END}")));
        assert!(coloured.contains(&format!("{RED}revoked{END}")));
        let named = table(Style::Coloured, ["KEY", "STATUS"], &[["active".into(), "draft".into()]]);
        assert!(!named.contains(GREEN), "a name isn't a status");
    }

    #[test]
    fn a_name_is_never_broken_however_narrow_the_terminal() {
        let id = "0197f3a0-0000-7000-8000-000000000001";
        let row: [String; 4] = [id.into(), "word ".repeat(30), "word ".repeat(30), "word ".repeat(30)];
        let drawn = table(Style::Framed, ["TASK", "A", "B", "C"], &[row]);
        assert!(drawn.contains(id), "{drawn}");
    }

    #[test]
    fn a_value_of_several_lines_cannot_pass_for_a_field() {
        let text =
            fields(Style::Plain, &[("status", "denied".into()), ("note", "a\nstatus  approved".into())]);
        assert_eq!(text, "status  denied\nnote    a\n        status  approved\n");
    }

    #[test]
    fn money_and_labels_read_as_people_write_them() {
        for (micro, text) in [(0, "$0.00"), (4_200, "$0.0042"), (1_500_000, "$1.50"), (-10_000, "-$0.01")] {
            assert_eq!(money(&json!(micro)), text);
        }
        assert_eq!(money(&Value::Null), "");
        assert_eq!(plain(&json!({"level":"internal","tags":["eu","hr"]})), "internal+eu+hr");
        assert_eq!(time(&json!("2026-01-02T03:04:05.000001Z")), "2026-01-02 03:04:05Z");
    }
}
