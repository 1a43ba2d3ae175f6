//! Byte offsets to lines and columns, as an editor counts them.

/// A place in a text. Ordered as one reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// From 1.
    pub(crate) line: u32,
    /// From 1, in characters.
    pub(crate) column: u32,
}

impl Position {
    /// The place of a byte. An offset past the end, or inside a character, is drawn back to where a
    /// character begins.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..text.floor_char_boundary(offset)).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        Self { line: one_based(line), column: one_based(column) }
    }
}

fn one_based(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let text = "ab\nèé\n\nx";
        let table = [(0, 1, 1), (2, 1, 3), (3, 2, 1), (5, 2, 2), (4, 2, 1), (8, 3, 1), (9, 4, 1), (99, 4, 2)];
        for (offset, line, column) in table {
            assert_eq!(Position::of(text, offset), Position { line, column }, "{offset}");
        }
        assert_eq!(Position::of("", 0), Position { line: 1, column: 1 });
    }

    proptest! {
        #[test]
        fn a_later_byte_is_never_an_earlier_place(text in any::<String>(), a in 0..200usize, b in 0..200usize) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(Position::of(&text, low) <= Position::of(&text, high));
        }
    }
}
