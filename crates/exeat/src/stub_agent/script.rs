//! Directives: the first line of a message as orders to the stub. The table is in the room's header.

use std::time::Duration;

use serde_json::Value;

const MAX_DELAY: Duration = Duration::from_secs(7 * 86_400);
const MAX_SIZE: usize = 64 << 20;
const MAX_COPIES: u32 = 1_000;

/// What a message orders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Script {
    pub(super) later: Option<Duration>,
    pub(super) form: Form,
    pub(super) say: Option<String>,
    pub(super) data: Vec<Value>,
    pub(super) ending: Ending,
    pub(super) drops: u32,
    pub(super) status: Option<(u16, u32)>,
    pub(super) rpc: Option<(i64, u32)>,
    pub(super) redirect: Option<String>,
    pub(super) block: Option<Duration>,
    pub(super) push: PushPlan,
    pub(super) poll: PollPlan,
    pub(super) garbage: Option<Garbage>,
    pub(super) size: Option<usize>,
    pub(super) steer: bool,
    pub(super) shows: Shows,
}

/// What a send is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Task,
    Message,
}

/// Which task a send is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shows {
    #[default]
    Its,
    Oldest,
}

/// How a turn ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    #[default]
    Complete,
    Ask(String),
    Auth,
    Reject(String),
    Fail(String),
    Cancel(String),
}

/// How pushes go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PushPlan {
    pub(super) moment: Moment,
    pub(super) copies: u32,
    pub(super) order: Order,
    pub(super) content: Content,
    pub(super) secret: Secret,
}

impl Default for PushPlan {
    fn default() -> Self {
        Self {
            moment: Moment::AfterAnswer,
            copies: 1,
            order: Order::AsItHappened,
            content: Content::Truth,
            secret: Secret::Right,
        }
    }
}

/// When the end is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Never,
    BeforeAnswer,
    AfterAnswer,
}

/// In which order `working` and the end are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AsItHappened,
    Reversed,
}

/// What pushes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Truth,
    Lie,
    OtherTask,
}

/// Which secret pushes carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secret {
    Right,
    Wrong,
}

/// How GetTask is answered; the counts are of what is still to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PollPlan {
    pub(super) lost: u32,
    pub(super) status: Option<(u16, u32)>,
    pub(super) flip: Option<Flip>,
}

/// What `poll flip` says next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flip {
    Completed,
    Working,
}

/// Answers that nobody can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Garbage {
    Null,
    Array,
    Html,
    Cut,
    Deep,
}

impl Script {
    /// Reads the directives of a line, without its `!`.
    ///
    /// # Errors
    /// With what was expected and what came, for the author of the test.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let mut script = Self::default();
        let mut rest = line;
        loop {
            rest = rest.trim_start_matches(|c: char| c == ';' || c.is_whitespace());
            if rest.is_empty() {
                return Ok(script);
            }
            // JSON may hold a `;`, so its own grammar says where it ends.
            if let Some(json) = rest.strip_prefix("data").filter(|t| t.starts_with([' ', '{', '[', '"'])) {
                let (value, tail) = leading_json(json)?;
                script.data.push(value);
                rest = tail;
                continue;
            }
            let (directive, tail) = rest.split_once(';').unwrap_or((rest, ""));
            script.apply(directive.trim())?;
            rest = tail;
        }
    }

    fn apply(&mut self, directive: &str) -> Result<(), String> {
        let (word, argument) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
        let argument = argument.trim();
        let text = || argument.to_owned();
        match word {
            "later" => self.later = Some(duration(argument)?),
            "message" => self.form = Form::Message,
            "say" => self.say = Some(text()),
            "ask" => self.ending = Ending::Ask(text()),
            "auth" => self.ending = Ending::Auth,
            "reject" => self.ending = Ending::Reject(text()),
            "fail" => self.ending = Ending::Fail(text()),
            "cancel" => self.ending = Ending::Cancel(text()),
            "drop" => self.drops = count(argument, 1)?,
            "status" => self.status = Some(status_and_count(argument)?),
            "rpc" => {
                let (code, n) = argument.split_once(' ').unwrap_or((argument, ""));
                let code = code.parse().map_err(|_| format!("rpc wants a number, not {code:?}"))?;
                self.rpc = Some((code, count(n, u32::MAX)?));
            }
            "redirect" if !argument.is_empty() => self.redirect = Some(text()),
            "block" => self.block = Some(duration(argument)?),
            "push" => self.push.apply(argument)?,
            "poll" => self.poll.apply(argument)?,
            "garbage" => self.garbage = Some(garbage(argument)?),
            "size" => self.size = Some(size(argument)?),
            "steer" => self.steer = true,
            "same" => self.shows = Shows::Oldest,
            _ => return Err(format!("no directive {directive:?}")),
        }
        Ok(())
    }
}

impl PushPlan {
    fn apply(&mut self, argument: &str) -> Result<(), String> {
        let (word, n) = argument.split_once(' ').unwrap_or((argument, ""));
        match word {
            "none" => self.moment = Moment::Never,
            "early" => self.moment = Moment::BeforeAnswer,
            "dup" => self.copies = count(n, 2)?.min(MAX_COPIES),
            "reverse" => self.order = Order::Reversed,
            "lie" => self.content = Content::Lie,
            "other" => self.content = Content::OtherTask,
            "badtoken" => self.secret = Secret::Wrong,
            _ => return Err(format!("push none|early|dup N|reverse|lie|other|badtoken, not {argument:?}")),
        }
        Ok(())
    }
}

impl PollPlan {
    fn apply(&mut self, argument: &str) -> Result<(), String> {
        let (word, n) = argument.split_once(' ').unwrap_or((argument, ""));
        match word {
            "lost" => self.lost = count(n, u32::MAX)?,
            "flip" => self.flip = Some(Flip::Completed),
            _ => self.status = Some(status_and_count(argument)?),
        }
        Ok(())
    }
}

fn garbage(argument: &str) -> Result<Garbage, String> {
    Ok(match argument {
        "null" => Garbage::Null,
        "array" => Garbage::Array,
        "html" => Garbage::Html,
        "cut" => Garbage::Cut,
        "deep" => Garbage::Deep,
        _ => return Err(format!("garbage null|array|html|cut|deep, not {argument:?}")),
    })
}

fn leading_json(text: &str) -> Result<(Value, &str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = match values.next() {
        Some(Ok(value)) => value,
        Some(Err(error)) => return Err(format!("data wants JSON: {error}")),
        None => return Err("data wants JSON".to_owned()),
    };
    let tail = text.get(values.byte_offset()..).unwrap_or_default().trim_start();
    if tail.is_empty() || tail.starts_with(';') {
        Ok((value, tail))
    } else {
        Err(format!("after the JSON of data comes `;`, not {tail:?}"))
    }
}

fn status_and_count(argument: &str) -> Result<(u16, u32), String> {
    let (code, n) = argument.split_once(' ').unwrap_or((argument, ""));
    match code.parse() {
        // An informational status isn't an answer: a client would wait for ever.
        Ok(status @ 200..=599) => Ok((status, count(n, 1)?)),
        _ => Err(format!("an HTTP status is 200 to 599, not {code:?}")),
    }
}

fn count(text: &str, absent: u32) -> Result<u32, String> {
    match text.trim() {
        "" => Ok(absent),
        n => n.parse().map_err(|_| format!("a count is a whole number, not {n:?}")),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    bytes.filter(|n| *n <= MAX_SIZE).ok_or_else(|| format!("a size is at most 64m, not {text:?}"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end).unwrap_or((text, ""));
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let span = digits.parse::<u64>().ok().filter(|_| millis > 0).and_then(|n| n.checked_mul(millis));
    let span = span.map(Duration::from_millis).filter(|d| *d <= MAX_DELAY);
    span.ok_or_else(|| format!("a duration is like 500ms, 2s, 1m, up to 7d, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_is_read_and_the_last_of_a_kind_wins() {
        let line = r#"later 500ms; later 2s;message ; say hi there; data {"a":"x;y"}; data [1]; ask which?; auth;
            drop 2; status 503 3; rpc -32001; redirect http://x.test/; block 1m; push early; push dup 5;
            push reverse; push other; push badtoken; poll lost 2; poll 503 4; poll flip; garbage cut; size 2k; steer; same"#;
        let read = Script::parse(line).unwrap();
        let want = Script {
            later: Some(Duration::from_secs(2)),
            form: Form::Message,
            say: Some("hi there".into()),
            data: vec![serde_json::json!({"a":"x;y"}), serde_json::json!([1])],
            ending: Ending::Auth,
            drops: 2,
            status: Some((503, 3)),
            rpc: Some((-32001, u32::MAX)),
            redirect: Some("http://x.test/".into()),
            block: Some(Duration::from_secs(60)),
            push: PushPlan {
                moment: Moment::BeforeAnswer,
                copies: 5,
                order: Order::Reversed,
                content: Content::OtherTask,
                secret: Secret::Wrong,
            },
            poll: PollPlan { lost: 2, status: Some((503, 4)), flip: Some(Flip::Completed) },
            garbage: Some(Garbage::Cut),
            size: Some(2048),
            steer: true,
            shows: Shows::Oldest,
        };
        assert_eq!(read, want);
    }

    #[test]
    fn what_is_not_in_the_table_is_refused() {
        for line in [
            "nonsense",
            "later",
            "later 2",
            "later -1s",
            "later 99999999999999999999s",
            "later 8d",
            "data {",
            "data 1 2",
            "status",
            "status 99",
            "status 100",
            "status 600",
            "status 503 x",
            "rpc x",
            "push",
            "push often",
            "poll",
            "poll never",
            "garbage",
            "garbage x",
            "size",
            "size 65m",
            "redirect",
            "size 99999999999999999999m",
        ] {
            assert!(Script::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn an_empty_line_orders_nothing() {
        for line in ["", " ", ";;", " ; "] {
            assert_eq!(Script::parse(line), Ok(Script::default()));
        }
    }
}
