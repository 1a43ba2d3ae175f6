//! The syntax tree that is evaluated, and how the tokens of an expression become one.
//!
//! The grammar is CEL's (<https://github.com/google/cel-spec>, "Syntax"), less what the scan has refused. It
//! descends by precedence and only for brackets, choices and operators that the scan has counted, so
//! that its stack is bounded: a general CEL parser needs megabytes for sixteen brackets. Reads are resolved to
//! roots while the tree is built, so that evaluation and every check see the same places.

use serde_json::{Number, Value};

use super::scan::{Kind, Token};
use super::{Bad, Read, Root, Segment};
use crate::id::StepName;
use crate::workflow::fault::{FaultCode, excerpt};

/// Members of a payload as an expression sees it.
const VIEWS: [&str; 4] = ["text", "data", "parts", "artifacts"];

#[derive(Debug)]
pub(super) enum Tree {
    Literal(Value),
    Read(Read),
    Member(Box<Tree>, String),
    Index(Box<Tree>, Box<Tree>),
    Not(Box<Tree>),
    Negate(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
    Choose(Box<(Tree, Tree, Tree)>),
    Binary(Binary, Box<Tree>, Box<Tree>),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
    Call(Function, Vec<Tree>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Text,
    Int,
    Double,
    Contains,
    StartsWith,
    EndsWith,
}

impl Tree {
    /// Collects every read, in the order of the text.
    pub(super) fn gather(&self, into: &mut Vec<Read>) {
        match self {
            Self::Literal(_) => {}
            Self::Read(r) => into.push(r.clone()),
            Self::Member(t, _) | Self::Not(t) | Self::Negate(t) => t.gather(into),
            Self::Index(a, b) | Self::And(a, b) | Self::Or(a, b) | Self::Binary(_, a, b) => {
                a.gather(into);
                b.gather(into);
            }
            Self::Choose(three) => [&three.0, &three.1, &three.2].iter().for_each(|t| t.gather(into)),
            Self::List(items) | Self::Call(_, items) => items.iter().for_each(|t| t.gather(into)),
            Self::Map(entries) => entries.iter().for_each(|(k, v)| {
                k.gather(into);
                v.gather(into);
            }),
        }
    }
}

/// Parses the tokens of a source of `len` bytes.
pub(super) fn parse(tokens: &[Token<'_>], len: usize) -> Result<Tree, Bad> {
    let mut parser = Parser { tokens, next: 0, len };
    let tree = parser.expression()?;
    match parser.peek() {
        None => Ok(tree),
        Some(t) => Err(Bad::new(
            FaultCode::BadExpression,
            t.at,
            format!("`{}` doesn't belong here", excerpt(t.text)),
        )),
    }
}

/// What stands before a `.` or a `[`: a name with static members so far, or any other value.
enum Operand {
    Chain { name: String, at: usize, path: Vec<(Segment, usize)> },
    Tree(Tree),
}

struct Parser<'t> {
    tokens: &'t [Token<'t>],
    next: usize,
    len: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).copied()
    }

    /// Where the next token stands, or the end.
    fn here(&self) -> usize {
        self.peek().map_or(self.len, |t| t.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let there = self.peek().is_some_and(|t| t.kind == Kind::Sign && t.text == sign);
        self.next += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &str) -> Result<(), Bad> {
        let at = self.here();
        if self.take(sign) { Ok(()) } else { Err(bad(at, format!("`{sign}` is needed here"))) }
    }

    fn expression(&mut self) -> Result<Tree, Bad> {
        let condition = self.or()?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.or()?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(Tree::Choose(Box::new((condition, yes, no))))
    }

    fn or(&mut self) -> Result<Tree, Bad> {
        let mut tree = self.and()?;
        while self.take("||") {
            tree = Tree::Or(Box::new(tree), Box::new(self.and()?));
        }
        Ok(tree)
    }

    fn and(&mut self) -> Result<Tree, Bad> {
        let mut tree = self.binary(0)?;
        while self.take("&&") {
            tree = Tree::And(Box::new(tree), Box::new(self.binary(0)?));
        }
        Ok(tree)
    }

    /// Comparisons (level 0), sums (1) and products (2), each from the left.
    fn binary(&mut self, level: u8) -> Result<Tree, Bad> {
        let mut tree = if level < 2 { self.binary(level + 1)? } else { self.unary()? };
        while let Some(op) = self.peek().and_then(operator).filter(|(_, at)| *at == level).map(|(op, _)| op) {
            self.next += 1;
            let right = if level < 2 { self.binary(level + 1)? } else { self.unary()? };
            tree = Tree::Binary(op, Box::new(tree), Box::new(right));
        }
        Ok(tree)
    }

    /// A run of one of `!` and `-`; CEL doesn't mix them.
    fn unary(&mut self) -> Result<Tree, Bad> {
        let mut nots = 0;
        while self.take("!") {
            nots += 1;
        }
        let mut minuses = 0;
        while nots == 0 && self.take("-") {
            minuses += 1;
        }
        // The sign belongs to the number, so that the least integer can be written.
        let signed = minuses > 0 && self.peek().is_some_and(|t| t.kind == Kind::Number);
        let mut tree = self.member(signed)?;
        for _ in 0..nots {
            tree = Tree::Not(Box::new(tree));
        }
        for _ in usize::from(signed)..minuses {
            tree = Tree::Negate(Box::new(tree));
        }
        Ok(tree)
    }

    fn member(&mut self, negative: bool) -> Result<Tree, Bad> {
        let mut operand = self.primary(negative)?;
        loop {
            if self.take(".") {
                let at = self.here();
                let name = self.peek().filter(|t| t.kind == Kind::Name && !is_keyword(t.text));
                let name = name.ok_or_else(|| bad(at, "a member's name is needed here"))?.text;
                self.next += 1;
                if self.take("(") {
                    let mut args = vec![tree_of(operand)?];
                    args.extend(self.elements(")")?);
                    operand = Operand::Tree(call(name, args, at)?);
                } else {
                    operand = match operand {
                        Operand::Chain { name: root, at: start, mut path } => {
                            path.push((Segment::Member(name.to_owned()), at));
                            Operand::Chain { name: root, at: start, path }
                        }
                        Operand::Tree(t) => Operand::Tree(Tree::Member(Box::new(t), name.to_owned())),
                    };
                }
            } else if self.take("[") {
                let at = self.here();
                let index = self.expression()?;
                self.expect("]")?;
                operand = indexed(operand, index, at)?;
            } else {
                return tree_of(operand);
            }
        }
    }

    fn primary(&mut self, negative: bool) -> Result<Operand, Bad> {
        let Some(token) = self.peek() else { return Err(bad(self.len, "a value is needed here")) };
        self.next += 1;
        let tree = match (token.kind, token.text) {
            (Kind::Number, digits) => Tree::Literal(number(digits, negative, token.at)?),
            (Kind::Text, quoted) => Tree::Literal(Value::String(unquoted(quoted, token.at)?)),
            (Kind::Name, "true") => Tree::Literal(Value::Bool(true)),
            (Kind::Name, "false") => Tree::Literal(Value::Bool(false)),
            (Kind::Name, "null") => Tree::Literal(Value::Null),
            (Kind::Name, name) if name != "in" => {
                if self.take("(") {
                    call(name, self.elements(")")?, token.at)?
                } else {
                    return Ok(Operand::Chain { name: name.to_owned(), at: token.at, path: Vec::new() });
                }
            }
            (Kind::Sign, "(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                inner
            }
            (Kind::Sign, "[") => Tree::List(self.elements("]")?),
            (Kind::Sign, "{") => Tree::Map(self.entries()?),
            (_, other) => return Err(bad(token.at, format!("a value is needed here, not `{other}`"))),
        };
        Ok(Operand::Tree(tree))
    }

    /// Expressions between commas, up to the closing sign; a list may end in a comma.
    fn elements(&mut self, close: &str) -> Result<Vec<Tree>, Bad> {
        let mut elements = Vec::new();
        while !self.take(close) {
            elements.push(self.expression()?);
            let last = !self.take(",");
            if last || close == ")" && self.peek().is_some_and(|t| t.text == close) {
                if !last {
                    return Err(bad(self.here(), "a value is needed here, not `)`"));
                }
                self.expect(close)?;
                break;
            }
        }
        Ok(elements)
    }

    fn entries(&mut self) -> Result<Vec<(Tree, Tree)>, Bad> {
        let mut entries = Vec::new();
        while !self.take("}") {
            let at = self.here();
            let key = self.expression()?;
            if matches!(&key, Tree::Literal(v) if !v.is_string()) {
                return Err(bad(at, "a member's name must be a string"));
            }
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(entries)
    }
}

fn indexed(operand: Operand, index: Tree, at: usize) -> Result<Operand, Bad> {
    let segment = match &index {
        Tree::Literal(Value::String(name)) => Some(Segment::Member(name.clone())),
        Tree::Literal(Value::Number(n)) => n.as_i64().map(Segment::At),
        _ => None,
    };
    Ok(match (operand, segment) {
        (Operand::Chain { name, at: start, mut path }, Some(segment)) => {
            path.push((segment, at));
            Operand::Chain { name, at: start, path }
        }
        (operand, _) => Operand::Tree(Tree::Index(Box::new(tree_of(operand)?), Box::new(index))),
    })
}

/// A chain of static members from a name: resolved to what it reads, or refused.
fn tree_of(operand: Operand) -> Result<Tree, Bad> {
    let (name, at, path) = match operand {
        Operand::Tree(tree) => return Ok(tree),
        Operand::Chain { name, at, path } => (name, at, path),
    };
    let mut path = path.into_iter();
    let unknown = |offset, message: &str| Err(Bad::new(FaultCode::UnknownName, offset, message));
    let read = |root: Root, path: Vec<Segment>, offset| Ok(Tree::Read(Read { root, path, offset }));
    match name.as_str() {
        "input" => viewed(Root::Input, path.collect(), at),
        "item" => read(Root::Item, path.map(|(s, _)| s).collect(), at),
        "task" => match (path.next(), path.next()) {
            (Some((Segment::Member(m), _)), None) if m == "id" => read(Root::TaskId, Vec::new(), at),
            (Some((Segment::Member(m), _)), None) if m == "requester" => {
                read(Root::Requester, Vec::new(), at)
            }
            _ => unknown(at, "a task has .id and .requester"),
        },
        "steps" => {
            let Some((Segment::Member(step), offset)) = path.next() else {
                return unknown(at, "say which step: steps.NAME.output");
            };
            let Ok(step) = step.parse::<StepName>() else {
                return unknown(offset, &format!("`{}` can't be a step's name", excerpt(&step)));
            };
            match path.next() {
                Some((Segment::Member(m), _)) if m == "output" => {
                    viewed(Root::Output(step), path.collect(), offset)
                }
                Some((Segment::Member(m), _)) if m == "status" && path.len() == 0 => {
                    read(Root::Status(step), Vec::new(), offset)
                }
                _ => unknown(offset, "a step has .output and .status, and a status has no members"),
            }
        }
        other => unknown(at, &format!("there is no `{}` here", excerpt(other))),
    }
}

/// A read of a payload, whose members are known.
fn viewed(root: Root, path: Vec<(Segment, usize)>, offset: usize) -> Result<Tree, Bad> {
    match path.first() {
        Some((Segment::Member(m), _)) if VIEWS.contains(&m.as_str()) => {}
        None => {}
        Some((_, at)) => {
            let message = "a payload has .text, .data and .parts; JSON lies in .data";
            return Err(Bad::new(FaultCode::UnknownName, *at, message));
        }
    }
    Ok(Tree::Read(Read { root, path: path.into_iter().map(|(s, _)| s).collect(), offset }))
}

fn call(name: &str, args: Vec<Tree>, at: usize) -> Result<Tree, Bad> {
    let (function, wanted) = match name {
        "size" => (Function::Size, 1),
        "string" => (Function::Text, 1),
        "int" => (Function::Int, 1),
        "double" => (Function::Double, 1),
        "contains" => (Function::Contains, 2),
        "startsWith" => (Function::StartsWith, 2),
        "endsWith" => (Function::EndsWith, 2),
        other => {
            let message = format!("there is no function `{}`", excerpt(other));
            return Err(Bad::new(FaultCode::UnknownFunction, at, message));
        }
    };
    if args.len() == wanted {
        Ok(Tree::Call(function, args))
    } else {
        Err(bad(at, format!("`{name}` works on {wanted}, not {}", args.len())))
    }
}

/// The operator that a token is, and its level.
fn operator(token: Token<'_>) -> Option<(Binary, u8)> {
    Some(match (token.kind, token.text) {
        (Kind::Name, "in") => (Binary::In, 0),
        (Kind::Sign, "==") => (Binary::Equal, 0),
        (Kind::Sign, "!=") => (Binary::Unequal, 0),
        (Kind::Sign, "<") => (Binary::Less, 0),
        (Kind::Sign, "<=") => (Binary::AtMost, 0),
        (Kind::Sign, ">") => (Binary::Greater, 0),
        (Kind::Sign, ">=") => (Binary::AtLeast, 0),
        (Kind::Sign, "+") => (Binary::Add, 1),
        (Kind::Sign, "-") => (Binary::Subtract, 1),
        (Kind::Sign, "*") => (Binary::Multiply, 2),
        (Kind::Sign, "/") => (Binary::Divide, 2),
        (Kind::Sign, "%") => (Binary::Remainder, 2),
        _ => return None,
    })
}

fn is_keyword(name: &str) -> bool {
    matches!(name, "true" | "false" | "null" | "in")
}

fn number(digits: &str, negative: bool, at: usize) -> Result<Value, Bad> {
    let sign = if negative { "-" } else { "" };
    let number = if let Some(hex) = digits.strip_prefix("0x") {
        i64::from_str_radix(&format!("{sign}{hex}"), 16).ok().map(Number::from)
    } else if digits.contains(['.', 'e', 'E']) {
        format!("{sign}{digits}").parse().ok().and_then(Number::from_f64)
    } else {
        format!("{sign}{digits}").parse::<i64>().ok().map(Number::from)
    };
    number.map(Value::Number).ok_or_else(|| bad(at, format!("`{}` is out of range", excerpt(digits))))
}

/// The text of a string literal, its escapes resolved (CEL, "String and Bytes Values").
fn unquoted(quoted: &str, at: usize) -> Result<String, Bad> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let escape = rest.next().unwrap_or_default();
        let (digits, radix) = match escape {
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => (2, 8),
            _ => (0, 0),
        };
        let plain = match escape {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'v' => Some('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => Some(escape),
            _ => {
                let code = rest.as_str().get(..digits).filter(|_| digits > 0);
                let lead = if radix == 8 { escape.to_digit(8).unwrap_or_default() * 64 } else { 0 };
                let code = code.filter(|c| c.chars().all(|c| c.is_digit(radix)));
                let code = code.and_then(|c| u32::from_str_radix(c, radix).ok());
                rest = rest.as_str().get(digits..).unwrap_or_default().chars();
                code.and_then(|c| char::from_u32(lead + c))
            }
        };
        text.push(plain.ok_or_else(|| bad(at, format!("`\\{}` isn't an escape", escape.escape_default())))?);
    }
    Ok(text)
}

fn bad(at: usize, message: impl Into<String>) -> Bad {
    Bad::new(FaultCode::BadExpression, at, message)
}
