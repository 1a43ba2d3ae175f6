//! The canonical bytes of a record: JCS (RFC 8785), narrowed to what a record may hold.
//!
//! Narrowed: the top is an object; member names are printable ASCII without quote or backslash, so that
//! sorting by bytes and by UTF-16 units agree; numbers are integers within ±(2⁵³ − 1); at most 64 KiB,
//! nested at most 16 deep. [`check`] reads bytes once, allocates nothing, and accepts exactly what JCS
//! would write of the same value: two texts of one record can't both be canonical.

use serde::Serialize;

/// Bytes of one record at most.
pub const MAX_BYTES: usize = 64 * 1024;
/// The greatest integer that every JSON reader keeps exactly.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
const MAX_DEPTH: usize = 16;

/// Why bytes aren't the canonical form of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// More than [`MAX_BYTES`].
    #[error("a record is at most 65536 bytes; this one has {0}")]
    TooLong(usize),
    /// Not JSON, or not the way JCS writes it.
    #[error("not canonical JSON at byte {0}")]
    Form(usize),
    /// A fraction, an exponent, or beyond 2⁵³ − 1.
    #[error("a number that is no integer within 2^53 at byte {0}")]
    Number(usize),
    /// It can't be serialised at all.
    #[error("the record can't be serialised")]
    Unserialisable,
}

/// Writes a record canonically.
///
/// # Errors
/// If it is too long, or holds what a record may not hold.
pub fn to_bytes(record: &impl Serialize) -> Result<Vec<u8>, NotCanonical> {
    let bytes = serde_json_canonicalizer::to_vec(record).map_err(|_| NotCanonical::Unserialisable)?;
    check(&bytes)?;
    Ok(bytes)
}

/// Are these bytes, as they stand, the canonical form of a record?
///
/// # Errors
/// Where they first aren't.
pub fn check(bytes: &[u8]) -> Result<(), NotCanonical> {
    if bytes.len() > MAX_BYTES {
        return Err(NotCanonical::TooLong(bytes.len()));
    }
    // Escapes can only make ASCII below, so valid UTF-8 before is valid UTF-8 after.
    if let Err(e) = std::str::from_utf8(bytes) {
        return Err(NotCanonical::Form(e.valid_up_to()));
    }
    let mut scan = Scan { bytes, at: 0 };
    match scan.peek() {
        Some(b'{') => scan.value(MAX_DEPTH)?,
        _ => return Err(scan.form()),
    }
    if scan.at == bytes.len() { Ok(()) } else { Err(scan.form()) }
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    const fn form(&self) -> NotCanonical {
        NotCanonical::Form(self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Result<(), NotCanonical> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.form())
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), NotCanonical> {
        word.iter().try_for_each(|b| self.eat(*b))
    }

    fn value(&mut self, depth: usize) -> Result<(), NotCanonical> {
        let depth = depth.checked_sub(1).ok_or_else(|| self.form())?;
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.integer(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), NotCanonical> {
        self.eat(b'{')?;
        let mut last: Option<&[u8]> = None;
        if self.peek() != Some(b'}') {
            loop {
                let start = self.at;
                let name = self.name()?;
                if last.is_some_and(|l| l >= name) {
                    return Err(NotCanonical::Form(start));
                }
                last = Some(name);
                self.eat(b':')?;
                self.value(depth)?;
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
            }
        }
        self.eat(b'}')
    }

    fn array(&mut self, depth: usize) -> Result<(), NotCanonical> {
        self.eat(b'[')?;
        if self.peek() != Some(b']') {
            loop {
                self.value(depth)?;
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
            }
        }
        self.eat(b']')
    }

    fn name(&mut self) -> Result<&'a [u8], NotCanonical> {
        self.eat(b'"')?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let plain = |b: &u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
        let name: &[u8] = rest.get(..rest.iter().take_while(|b| plain(b)).count()).unwrap_or_default();
        self.at += name.len();
        self.eat(b'"')?;
        Ok(name)
    }

    fn string(&mut self) -> Result<(), NotCanonical> {
        self.eat(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(b' '..) => self.at += 1,
                _ => return Err(self.form()),
            }
        }
    }

    /// RFC 8785 §3.2.2.2: the short escapes where there is one, else `\u00` and lower-case hex; and only
    /// what must be escaped.
    fn escape(&mut self) -> Result<(), NotCanonical> {
        let rest = self.bytes.get(self.at + 1..).unwrap_or_default();
        self.at += match rest {
            [b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r', ..] => 2,
            [b'u', b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f', ..] => 6,
            [b'u', b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f', ..] => 6,
            _ => return Err(self.form()),
        };
        Ok(())
    }

    fn integer(&mut self) -> Result<(), NotCanonical> {
        let start = self.at;
        let bad = Err(NotCanonical::Number(start));
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let size = match rest.get(..digits) {
            Some([]) | None => return Err(NotCanonical::Form(start)),
            Some([b'0']) if negative => return bad,
            Some([b'0', _, ..]) => return bad,
            Some(d) if d.len() > 16 => return bad,
            Some(d) => d.iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0')),
        };
        self.at += digits;
        if size > MAX_INTEGER || matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return bad;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn exactly_one_text_of_a_value_is_canonical() {
        for ok in [
            r#"{}"#,
            r#"{"a":0,"b":[],"c":{"d":null}}"#,
            r#"{"a":-1,"b":9007199254740991,"c":[true,false,"é\u0000\b\t\n\u000b\f\r\u001f\"\\/"]}"#,
            "{\"a\":\"\u{7f}\u{2028}😀\"}",
        ] {
            assert_eq!(check(ok.as_bytes()), Ok(()), "{ok}");
        }
        for bad in [
            "",
            "[]",
            "1",
            "null",
            "{",
            "{}x",
            "{} ",
            " {}",
            r#"{"a": 1}"#,
            r#"{"b":1,"a":1}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":01}"#,
            r#"{"a":-0}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":9007199254740992}"#,
            r#"{"a":-9007199254740992}"#,
            r#"{"a":99999999999999999999}"#,
            r#"{"a":"\/"}"#,
            r#"{"a":"\u0041"}"#,
            r#"{"a":"\u001F"}"#,
            r#"{"a":"\u0008"}"#,
            r#"{"a":"\u000a"}"#,
            "{\"a\":\"\n\"}",
            r#"{"\u0061":1}"#,
            r#"{"é":1}"#,
            r#"{"a":tru}"#,
            r#"{"a":NaN}"#,
            r#"{"a":"x}"#,
            r#"{"a":}"#,
            r#"{"a":-}"#,
            r#"{"a":"\ud83d"}"#,
        ] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check(b"{\"a\":\"\xff\"}").is_err());
        assert!(check(format!("{{\"a\":{}1{}}}", "[".repeat(999), "]".repeat(999)).as_bytes()).is_err());
    }

    #[test]
    fn a_number_that_is_no_exact_integer_is_refused_not_rounded() {
        for bad in
            [json!({"a": 0.5}), json!({"a": 1u64 << 53}), json!({"a": u64::MAX}), json!({"a": i64::MIN})]
        {
            assert!(matches!(to_bytes(&bad), Err(NotCanonical::Number(_))), "{bad}");
        }
        assert!(to_bytes(&json!({"a": (1u64 << 53) + 1})).is_err(), "would round to 2^53");
    }

    #[test]
    fn a_record_has_at_most_64_kib() {
        let of = |n: usize| to_bytes(&json!({"a": "x".repeat(n)}));
        assert_eq!(of(MAX_BYTES - 8).map(|b| b.len()), Ok(MAX_BYTES));
        assert_eq!(of(MAX_BYTES - 7), Err(NotCanonical::TooLong(MAX_BYTES + 1)));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ !#-\\[\\]-~]{0,4}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_scan_and_jcs_agree(v in any_value()) {
            let v = json!({ "v": v });
            let bytes = serde_json_canonicalizer::to_vec(&v).unwrap();
            prop_assert_eq!(check(&bytes), Ok(()));
        }

        #[test]
        fn what_the_scan_accepts_is_its_own_jcs(v in any_value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = serde_json_canonicalizer::to_vec(&json!({ "v": v })).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if check(&bytes).is_ok() {
                let parsed: Value = serde_json::from_slice(&bytes).unwrap();
                prop_assert_eq!(serde_json_canonicalizer::to_vec(&parsed).unwrap(), bytes);
            }
        }
    }
}
