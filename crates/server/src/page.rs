//! Pages: `?limit=` 1–200 (50) and `?cursor=` → `{"items":[…],"next_cursor":null}`.
//!
//! A cursor only says where the last page ended; who has one may see no more than who hasn't.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exeat_core::ports::Page;
use serde::Serialize;

use crate::problem::{Code, Problem};

const DEFAULT: u32 = 50;
const MOST: u32 = 200;
const CURSOR: usize = 1_024;

/// The page asked for. `limit` and `cursor` are the query's members of that name.
///
/// # Errors
/// 422 for a limit out of range, 400 `bad_cursor`.
pub fn page(limit: Option<u32>, cursor: Option<&str>) -> Result<Page, Problem> {
    let limit = limit.unwrap_or(DEFAULT);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::new(Code::Invalid, format!("The limit must be 1 to {MOST}; got {limit}.")));
    }
    let after = cursor.map(opened).transpose()?;
    Ok(Page { after, limit })
}

fn opened(cursor: &str) -> Result<String, Problem> {
    let bytes = if cursor.len() <= CURSOR { URL_SAFE_NO_PAD.decode(cursor).ok() } else { None };
    bytes
        .and_then(|b| String::from_utf8(b).ok())
        .filter(|s| !s.is_empty())
        .ok_or_else(|| Problem::new(Code::BadCursor, "The cursor isn't one that a page ended with."))
}

/// One page of an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Paged<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one begins, if there is one.
    pub next_cursor: Option<String>,
}

impl<T> Paged<T> {
    /// A page, and the store's word for where it ended.
    #[must_use]
    pub fn of(items: Vec<T>, next: Option<String>) -> Self {
        Self { items, next_cursor: next.map(|n| URL_SAFE_NO_PAD.encode(n)) }
    }
}

/// One page of what is at hand whole, in the order of its names.
#[must_use]
pub fn paged<T>(all: impl IntoIterator<Item = (String, T)>, page: &Page) -> Paged<T> {
    let most = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let later = |(name, _): &(String, T)| page.after.as_ref().is_none_or(|after| name > after);
    let mut rest = all.into_iter().filter(later).peekable();
    let (mut items, mut last) = (Vec::new(), None);
    while items.len() < most
        && let Some((name, item)) = rest.next()
    {
        items.push(item);
        last = Some(name);
    }
    Paged::of(items, last.filter(|_| rest.peek().is_some()))
}

/// The query of a listing that has no other members.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    /// At most so many.
    pub limit: Option<u32>,
    /// Where to go on.
    pub cursor: Option<String>,
}

impl Listing {
    /// The page asked for.
    ///
    /// # Errors
    /// As [`page`].
    pub fn page(&self) -> Result<Page, Problem> {
        page(self.limit, self.cursor.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        let shown = Paged::of(vec![1], Some("a~b".to_owned()));
        let asked = page(Some(7), shown.next_cursor.as_deref()).unwrap();
        assert_eq!(asked, Page { after: Some("a~b".to_owned()), limit: 7 });
        for bad in ["", "!", "a", "_w", &"A".repeat(2_000)] {
            assert_eq!(page(None, Some(bad)).unwrap_err().code, Code::BadCursor, "{bad}");
        }
        assert_eq!(page(None, None).unwrap().limit, 50);
        for bad in [0, 201] {
            assert_eq!(page(Some(bad), None).unwrap_err().code, Code::Invalid);
        }
    }
}
