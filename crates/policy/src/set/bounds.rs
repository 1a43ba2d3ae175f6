//! Bounds that hold before a policy text is parsed.
//!
//! Cedar's parser, checker and evaluator walk expressions by recursion, and a text of 256 KiB can nest or
//! chain deeper than a stack. So the text is scanned first, by a loop, and what is too deep is refused.
//! Characters that make a text read otherwise than it is (bidirectional controls) are refused as well: a
//! second person must be able to trust what they see.

use crate::set::PolicyFault;

/// The largest policy text, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// The most policies of a set.
pub(crate) const MAX_POLICIES: usize = 500;

/// How deep brackets may nest.
const MAX_NESTING: usize = 32;

/// How many operators, dots and `if`s one policy may have. Each is at most one level of an expression.
const MAX_OPERATORS: usize = 256;

/// Refuses a text that is too large, too deep, or not what it looks like.
pub(crate) fn out_of_bounds(text: &str) -> Result<(), Vec<PolicyFault>> {
    if text.len() > MAX_BYTES {
        let message = format!("A policy set has at most {MAX_BYTES} bytes; this has {}.", text.len());
        return Err(vec![PolicyFault::at(text, 0, message)]);
    }
    let disguised = text.char_indices().find(|(_, c)| is_disguise(*c));
    if let Some((offset, c)) = disguised {
        let message = format!("The character U+{:04X} hides or reorders text and is refused.", u32::from(c));
        return Err(vec![PolicyFault::at(text, offset, message)]);
    }
    match too_deep(text) {
        Some((offset, message)) => Err(vec![PolicyFault::at(text, offset, message)]),
        None => Ok(()),
    }
}

/// Controls other than white space, bidirectional and zero-width characters.
fn is_disguise(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || matches!(c, '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// A lexer of just enough Cedar: strings, comments, brackets, operators, words.
fn too_deep(text: &str) -> Option<(usize, String)> {
    let mut nesting = 0usize;
    let mut operators = 0usize;
    let mut chars = text.char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        let after = chars.peek().map(|(_, next)| *next);
        match c {
            '"' => {
                while let Some((_, inside)) = chars.next() {
                    match inside {
                        '\\' => drop(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '/' if after == Some('/') => while chars.next_if(|(_, inside)| *inside != '\n').is_some() {},
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            ';' => operators = 0,
            '!' | '-' | '+' | '*' | '.' | '<' | '>' | '=' | '&' | '|' => {
                operators += 1;
                // The second half of `==`, `&&`, `<=` and their like isn't an operator of its own.
                let _second =
                    chars.next_if(|(_, next)| *next == '=' || (*next == c && matches!(c, '&' | '|')));
            }
            _ if c.is_ascii_alphabetic() || c == '_' => {
                let start = offset;
                let mut end = offset + 1;
                while let Some((at, _)) = chars.next_if(|(_, w)| w.is_ascii_alphanumeric() || *w == '_') {
                    end = at + 1;
                }
                if matches!(text.get(start..end), Some("if" | "has" | "in" | "like" | "is")) {
                    operators += 1;
                }
            }
            _ => {}
        }
        if nesting > MAX_NESTING {
            return Some((offset, format!("Brackets nest deeper than {MAX_NESTING}.")));
        }
        if operators > MAX_OPERATORS {
            return Some((offset, format!("A policy has at most {MAX_OPERATORS} operators; split it up.")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_operators_in_strings_and_comments_count_for_nothing() {
        let brackets = "([{".repeat(100);
        let dots = "!.".repeat(1000);
        for text in [
            format!("// {brackets}{dots}\npermit"),
            format!("\"{brackets}{dots} \\\" {brackets}\" permit"),
            "permit (principal, action, resource);\n".repeat(400),
            "forbid (a) when { a.b.c == 1 && d };".repeat(400),
        ] {
            assert_eq!(too_deep(&text), None, "{text:.40}");
        }
    }

    #[test]
    fn what_nests_or_chains_too_deep_is_refused_where_it_begins_to() {
        let nested = "(".repeat(33);
        assert_eq!(too_deep(&nested).map(|(at, _)| at), Some(32));
        for link in ["a && ", "a.b", "!", "-", "if a then b else ", "a has b ", "1 + ", "a < "] {
            assert!(too_deep(&link.repeat(300)).is_some(), "{link}");
        }
    }

    #[test]
    fn a_text_that_reads_otherwise_than_it_is_is_refused_with_its_place() {
        for c in ['\u{202E}', '\u{2066}', '\u{200B}', '\u{FEFF}', '\u{0}', '\u{1B}'] {
            let faults = out_of_bounds(&format!("permit\n  {c}")).unwrap_err();
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            assert_eq!((fault.line, fault.column), (2, 3));
        }
        assert!(out_of_bounds("permit // größer, 大きい\r\n\t").is_ok());
    }

    #[test]
    fn a_text_of_more_than_the_bound_is_refused_before_anything_looks_at_it() {
        assert!(out_of_bounds(&" ".repeat(MAX_BYTES)).is_ok());
        assert!(out_of_bounds(&" ".repeat(MAX_BYTES + 1)).is_err());
    }
}
