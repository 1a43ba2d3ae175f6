//! Bounds that hold before a policy text is parsed, and the stack that they leave to be needed.
//!
//! Cedar's parser, checker and evaluator walk expressions by recursion, and a text of 256 KiB can nest or
//! chain deeper than any stack. So the text is scanned first, by a loop, and what is too deep is refused.
//! Cedar's evaluator moreover gives up with an error when little stack is left, so that its answer would
//! depend on who calls it: what a set may need is computed here, and judging makes sure that it is there.
//!
//! Characters that make a text read otherwise than it is (bidirectional controls) are refused as well: a
//! second person must be able to trust what they see.

use crate::set::PolicyFault;

/// The largest policy text, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// The most policies of a set.
pub(crate) const MAX_POLICIES: usize = 500;

/// How deep brackets may nest.
const MAX_NESTING: usize = 32;

/// How many bytes a quoted text may have. A `like` takes the product of both its lengths.
const MAX_LITERAL: usize = 4096;

/// How many commas and colons one policy may have: Cedar's time grows with the square of a list's length.
const MAX_ITEMS: usize = 2_000;

/// How many operators, dots, conditions and `if`s one policy may have. Each is at most two levels of an
/// expression.
const MAX_OPERATORS: usize = 200;

/// The stack for parsing and checking, in bytes; only what is used of it becomes memory.
pub(super) const PARSING_STACK: usize = 64 * 1024 * 1024;

/// The stack that judging a set may need, in bytes, where no policy of it has more operators than these.
/// Generous: an unoptimised build takes up to 64 KiB an operator, an optimised one a fraction of it.
pub(super) const fn judging_stack(operators: usize) -> usize {
    256 * 1024 + operators * 80 * 1024
}

/// Refuses a text that is too large, too deep, or not what it looks like. Gives the most operators that one
/// of its policies has.
pub(crate) fn operators_within_bounds(text: &str) -> Result<usize, Vec<PolicyFault>> {
    if text.len() > MAX_BYTES {
        let message = format!("A policy set has at most {MAX_BYTES} bytes; this has {}.", text.len());
        return Err(vec![PolicyFault::at(text, 0, message)]);
    }
    let disguised = text.char_indices().find(|(_, c)| is_disguise(*c));
    if let Some((offset, c)) = disguised {
        let message = format!("The character U+{:04X} hides or reorders text and is refused.", u32::from(c));
        return Err(vec![PolicyFault::at(text, offset, message)]);
    }
    most_operators(text).map_err(|(offset, message)| vec![PolicyFault::at(text, offset, message)])
}

/// Controls other than white space, bidirectional and zero-width characters.
fn is_disguise(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
        || matches!(c, '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// A lexer of just enough Cedar: strings, comments, brackets, operators, words.
fn most_operators(text: &str) -> Result<usize, (usize, String)> {
    let mut nesting = 0usize;
    let mut operators = 0usize;
    let mut items = 0usize;
    let mut ends = 0usize;
    let mut most = 0usize;
    let mut chars = text.char_indices().peekable();
    while let Some((offset, c)) = chars.next() {
        let after = chars.peek().map(|(_, next)| *next);
        match c {
            '"' => {
                while let Some((at, inside)) = chars.next() {
                    match inside {
                        '\\' => drop(chars.next()),
                        '"' => break,
                        _ if at - offset > MAX_LITERAL => {
                            return Err((offset, format!("A text has at most {MAX_LITERAL} bytes.")));
                        }
                        _ => {}
                    }
                }
            }
            '/' if after == Some('/') => while chars.next_if(|(_, inside)| *inside != '\n').is_some() {},
            '(' | '{' => nesting += 1,
            // Both a set and a step into a member: `context["a"]["b"]`.
            '[' => {
                nesting += 1;
                operators += 1;
            }
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            ';' => {
                (operators, items) = (0, 0);
                ends += 1;
            }
            ',' | ':' => items += 1,
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
                if matches!(
                    text.get(start..end),
                    Some("if" | "has" | "in" | "like" | "is" | "when" | "unless")
                ) {
                    operators += 1;
                }
            }
            _ => {}
        }
        if nesting > MAX_NESTING {
            return Err((offset, format!("Brackets nest deeper than {MAX_NESTING}.")));
        }
        // Far more than a set may have: the parser would recover from each, ever more slowly. What is only a
        // little over is parsed, so that its other faults are told too.
        if ends > 2 * MAX_POLICIES {
            return Err((offset, format!("A set has at most {MAX_POLICIES} policies; this has far more.")));
        }
        if items > MAX_ITEMS {
            let message = format!("A policy lists at most {MAX_ITEMS} items; split it up.");
            return Err((offset, message));
        }
        most = most.max(operators);
        if operators > MAX_OPERATORS {
            return Err((offset, format!("A policy has at most {MAX_OPERATORS} operators; split it up.")));
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_operators_in_strings_and_comments_count_for_nothing() {
        let brackets = "([{".repeat(100);
        let dots = "!.".repeat(500);
        for text in [
            format!("// {brackets}{dots}\npermit"),
            format!("\"{brackets}{dots} \\\" {brackets}\" permit"),
            "permit (principal, action, resource);\n".repeat(400),
            "forbid (a) when { a.b.c == 1 && d };".repeat(400),
        ] {
            assert!(most_operators(&text).is_ok_and(|most| most < 10), "{text:.40}");
        }
    }

    #[test]
    fn what_nests_or_chains_too_deep_is_refused_where_it_begins_to() {
        let nested = "(".repeat(33);
        assert_eq!(most_operators(&nested).map_err(|(at, _)| at), Err(32));
        for link in [
            "a && ",
            "a.b",
            "!",
            "-",
            "if a then b else ",
            "a has b ",
            "1 + ",
            "a < ",
            "when { a }",
            "unless { a }",
        ] {
            assert!(most_operators(&link.repeat(300)).is_err(), "{link}");
        }
    }

    #[test]
    fn a_text_that_reads_otherwise_than_it_is_is_refused_with_its_place() {
        for c in ['\u{202E}', '\u{2066}', '\u{200B}', '\u{FEFF}', '\u{0}', '\u{1B}'] {
            let faults = operators_within_bounds(&format!("permit\n  {c}")).unwrap_err();
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            assert_eq!((fault.line, fault.column), (2, 3));
        }
        assert!(operators_within_bounds("permit // größer, 大きい\r\n\t").is_ok());
    }

    #[test]
    fn a_text_of_more_than_the_bound_is_refused_before_anything_looks_at_it() {
        assert!(operators_within_bounds(&" ".repeat(MAX_BYTES)).is_ok());
        assert!(operators_within_bounds(&" ".repeat(MAX_BYTES + 1)).is_err());
    }
}
