//! Makes text that others wrote safe to look at: what a terminal would obey, or a reader wouldn't see,
//! is shown as a code, `\u{202E}`. Nothing is left out and nothing is cut.
//!
//! Source: Unicode Standard Annex #9 (bidirectional controls), Unicode Technical Report #36.

/// The text with controls, bidirectional and invisible characters as codes. Line feeds and tabs stay.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&format!("\\u{{{:04X}}}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// As [`escaped`], on one line.
pub(crate) fn escaped_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n").replace('\t', " ")
}

fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // C0 and C1 controls: escape sequences, carriage returns that overwrite a line.
        c if c.is_control() => true,
        // Bidirectional marks, embeddings, overrides, isolates.
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => true,
        // No width: soft hyphen, joiners, spaces, fillers, separators, invisible operators.
        '\u{00AD}' | '\u{034F}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' => true,
        '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200D}' | '\u{2028}' | '\u{2029}' => true,
        '\u{2060}'..='\u{2065}' | '\u{206A}'..='\u{206F}' | '\u{3164}' | '\u{FFA0}' => true,
        // Variation selectors, byte order mark, interlinear annotation.
        '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFB}' => true,
        // Musical and shorthand format controls, tags, and the selectors that can carry hidden text.
        '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}' => true,
        // Private use shows whatever a font likes.
        '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..='\u{10FFFF}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_a_reader_cannot_see_is_shown_as_a_code() {
        for (text, shown) in [
            ("pay 820\u{200B}00", "pay 820\\u{200B}00"),
            ("\u{202E}dna", "\\u{202E}dna"),
            ("\u{1b}[2J\u{7}", "\\u{001B}[2J\\u{0007}"),
            ("ok\rno", "ok\\u{000D}no"),
            ("\u{9b}31m", "\\u{009B}31m"),
            ("a\u{E0041}b", "a\\u{E0041}b"),
            ("x\u{FE0F}\u{2028}", "x\\u{FE0F}\\u{2028}"),
            ("line\n\ttwo — ü 日本 🙂", "line\n\ttwo — ü 日本 🙂"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(escaped_line("a\nb"), "a\\nb");
    }

    #[test]
    fn nothing_is_cut() {
        let long = "x".repeat(1 << 20);
        assert_eq!(escaped(&long), long);
    }
}
