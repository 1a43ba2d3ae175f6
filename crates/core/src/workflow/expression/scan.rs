//! Reads the tokens of an expression before any parser sees it.
//!
//! A parser descends once for each operator of `1+1+…` and each bracket of `((((`, so a long text would
//! overflow its stack. Promise: what passes is at most [`MAX_BYTES`] long, within the bounds on operators,
//! members and nesting, names only what an expression may name, and calls only what is known to be bounded.
//! It works left to right in one loop, without recursion.

use super::{Bad, MAX_BYTES, MAX_MEMBERS, MAX_NESTING, MAX_OPERATORS};
use crate::workflow::fault::{FaultCode, excerpt};

/// Names that stand on their own.
const ROOTS: [&str; 4] = ["input", "steps", "task", "item"];
/// Words of the grammar.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];
/// Functions called as `f(x)`.
const GLOBAL: [&str; 4] = ["size", "string", "int", "double"];
/// Functions called as `x.f(…)`.
const METHODS: [&str; 4] = ["size", "contains", "startsWith", "endsWith"];

/// A token and where it starts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'s> {
    pub(super) at: usize,
    pub(super) kind: Kind,
    pub(super) text: &'s str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Number,
    Text,
    Sign,
}

/// Where an expression ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With its text.
    OfText,
    /// At the first `}}` that closes nothing of its own.
    AtBraces,
}

/// What a scan gave.
pub(super) struct Scanned<'s> {
    /// The tokens, in order.
    pub(super) tokens: Vec<Token<'s>>,
    /// Length of the expression in bytes, without the closing braces.
    pub(super) len: usize,
}

/// Scans one expression.
pub(super) fn scan(source: &str, end: End) -> Result<Scanned<'_>, Bad> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut nesting: Vec<char> = Vec::new();
    let mut at = 0;
    let len = loop {
        let rest = source.get(at..).unwrap_or_default();
        let Some(first) = rest.chars().next() else {
            match end {
                End::OfText => break at,
                End::AtBraces => {
                    return Err(Bad::new(FaultCode::BadExpression, 0, "`${{` is never closed by `}}`"));
                }
            }
        };
        if end == End::AtBraces && nesting.is_empty() && rest.starts_with("}}") {
            break at;
        }
        if at >= MAX_BYTES {
            let message = format!("the expression is longer than {MAX_BYTES} bytes");
            return Err(Bad::new(FaultCode::ExpressionTooLarge, at, message));
        }
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let token = token(rest, first, at)?;
        track(&mut nesting, token)?;
        at += token.text.len();
        tokens.push(token);
    };
    if let Some(open) = nesting.last() {
        return Err(Bad::new(FaultCode::BadExpression, len, format!("`{open}` is never closed")));
    }
    if tokens.is_empty() {
        return Err(Bad::new(FaultCode::BadExpression, 0, "the expression is empty"));
    }
    bounds(&tokens)?;
    names(&tokens)?;
    Ok(Scanned { tokens, len })
}

fn token(rest: &str, first: char, at: usize) -> Result<Token<'_>, Bad> {
    let (kind, len) = match first {
        'a'..='z' | 'A'..='Z' | '_' => (Kind::Name, run(rest, |b| b.is_ascii_alphanumeric() || b == b'_')),
        '0'..='9' => (Kind::Number, number(rest)),
        '\'' | '"' => (Kind::Text, quoted(rest, first, at)?),
        _ => (Kind::Sign, sign(rest, first, at)?),
    };
    let (text, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
    let next = after.chars().next().unwrap_or(' ');
    let glued = match kind {
        Kind::Name => next == '\'' || next == '"',
        Kind::Number => next.is_ascii_alphanumeric() || next == '_',
        Kind::Text => next == '\'' || next == '"',
        Kind::Sign => false,
    };
    if glued {
        let message = format!("`{}{next}…` isn't supported: plain strings and numbers only", excerpt(text));
        return Err(Bad::new(FaultCode::BadExpression, at, message));
    }
    Ok(Token { at, kind, text })
}

fn run(text: &str, ok: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|b| ok(*b)).count()
}

/// Digits, then a fraction, then an exponent; hex as CEL has it.
fn number(text: &str) -> usize {
    let digits = |from: usize| run(text.get(from..).unwrap_or_default(), |b| b.is_ascii_digit());
    let byte = |i: usize| text.as_bytes().get(i).copied().unwrap_or_default();
    if text.starts_with("0x") {
        return 2 + run(text.get(2..).unwrap_or_default(), |b| b.is_ascii_hexdigit());
    }
    let mut len = digits(0);
    if byte(len) == b'.' && byte(len + 1).is_ascii_digit() {
        len += 1 + digits(len + 1);
    }
    if matches!(byte(len), b'e' | b'E') {
        let signed = usize::from(matches!(byte(len + 1), b'-' | b'+'));
        if byte(len + 1 + signed).is_ascii_digit() {
            len += 1 + signed + digits(len + 1 + signed);
        }
    }
    len
}

fn quoted(text: &str, quote: char, at: usize) -> Result<usize, Bad> {
    let mut chars = text.char_indices().skip(1);
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '\n' | '\r' => break,
            _ if c == quote => return Ok(i + c.len_utf8()),
            _ => {}
        }
    }
    Err(Bad::new(FaultCode::BadExpression, at, "the string is never closed on its line"))
}

fn sign(rest: &str, first: char, at: usize) -> Result<usize, Bad> {
    if rest.starts_with("//") {
        return Err(Bad::new(FaultCode::BadExpression, at, "comments aren't supported in expressions"));
    }
    if ["&&", "||", "==", "!=", "<=", ">="].iter().any(|s| rest.starts_with(s)) {
        return Ok(2);
    }
    if "+-*/%<>!?:.,()[]{}".contains(first) {
        return Ok(1);
    }
    let message = format!("`{}` doesn't belong in an expression", first.escape_default());
    Err(Bad::new(FaultCode::BadExpression, at, message))
}

/// Keeps count of what is open.
fn track(nesting: &mut Vec<char>, token: Token<'_>) -> Result<(), Bad> {
    if token.kind != Kind::Sign {
        return Ok(());
    }
    let closes = match token.text {
        "(" => return open(nesting, '(', token.at),
        "[" => return open(nesting, '[', token.at),
        "{" => return open(nesting, '{', token.at),
        ")" => '(',
        "]" => '[',
        "}" => '{',
        _ => return Ok(()),
    };
    if nesting.pop() == Some(closes) {
        Ok(())
    } else {
        Err(Bad::new(FaultCode::BadExpression, token.at, format!("`{}` closes nothing", token.text)))
    }
}

fn open(nesting: &mut Vec<char>, bracket: char, at: usize) -> Result<(), Bad> {
    nesting.push(bracket);
    if nesting.len() > MAX_NESTING {
        let message = format!("the expression is nested deeper than {MAX_NESTING}");
        return Err(Bad::new(FaultCode::ExpressionTooLarge, at, message));
    }
    Ok(())
}

fn bounds(tokens: &[Token<'_>]) -> Result<(), Bad> {
    let (mut operators, mut members) = (0, 0);
    for t in tokens {
        match (t.kind, t.text) {
            (Kind::Sign, "." | "[" | "," | ":") => members += 1,
            (Kind::Sign, "(" | ")" | "]" | "{" | "}") => {}
            (Kind::Sign, _) | (Kind::Name, "in") => operators += 1,
            _ => {}
        }
        if operators > MAX_OPERATORS {
            let message = format!("the expression has more than {MAX_OPERATORS} operators");
            return Err(Bad::new(FaultCode::ExpressionTooLarge, t.at, message));
        }
        if members > MAX_MEMBERS {
            let message = format!("the expression has more than {MAX_MEMBERS} members and elements");
            return Err(Bad::new(FaultCode::ExpressionTooLarge, t.at, message));
        }
    }
    Ok(())
}

fn names(tokens: &[Token<'_>]) -> Result<(), Bad> {
    let sign_at = |i: Option<usize>| {
        i.and_then(|i| tokens.get(i)).filter(|t| t.kind == Kind::Sign).map_or("", |t| t.text)
    };
    for (i, t) in tokens.iter().enumerate() {
        let before = i.checked_sub(1);
        if t.kind == Kind::Sign && t.text == "." {
            let operand = before.and_then(|b| tokens.get(b)).is_some_and(|b| match b.kind {
                Kind::Name => b.text != "in",
                Kind::Text => true,
                Kind::Number => false,
                Kind::Sign => matches!(b.text, ")" | "]" | "}"),
            });
            if !operand {
                return Err(Bad::new(FaultCode::BadExpression, t.at, "`.` needs a value before it"));
            }
        }
        if t.kind != Kind::Name {
            continue;
        }
        let member = sign_at(before) == ".";
        match sign_at(Some(i + 1)) {
            "(" if t.text != "in" => {
                let known: &[&str] = if member { &METHODS } else { &GLOBAL };
                if !known.contains(&t.text) {
                    let message =
                        format!("there is no function `{}` here; there are {}", excerpt(t.text), listed());
                    return Err(Bad::new(FaultCode::UnknownFunction, t.at, message));
                }
            }
            "{" if t.text != "in" => {
                return Err(Bad::new(FaultCode::BadExpression, t.at, "typed literals aren't supported"));
            }
            _ if !member && !ROOTS.contains(&t.text) && !WORDS.contains(&t.text) => {
                let message =
                    format!("there is no `{}` here; there are {}", excerpt(t.text), ROOTS.join(", "));
                return Err(Bad::new(FaultCode::UnknownName, t.at, message));
            }
            _ => {}
        }
    }
    Ok(())
}

fn listed() -> String {
    let global = GLOBAL.iter().map(|f| format!("{f}(x)"));
    global.chain(METHODS.iter().map(|f| format!("x.{f}()"))).collect::<Vec<_>>().join(", ")
}
