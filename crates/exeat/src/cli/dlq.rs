//! `exeat dlq`: what gave up, and what an operator does about it.

use clap::{Args, Subcommand};
use exeat_core::id::DeadLetterId;
use serde_json::{Value, json};

use super::Session;
use super::given;
use crate::client::Call;
use crate::failure::{Exit, Failure};
use crate::show::table::{Style, cell, fields, table, time};

/// What gave up: run it anew, take a kept result in, or discard it
#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    List(List),
    Show(Show),
    Retry(Retry),
    Discard(Discard),
}

/// List dead letters that nobody decided about, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat dlq list
  exeat dlq list --all --json")]
pub(crate) struct List {
    /// Those that were retried or discarded too
    #[arg(long)]
    all: bool,
    /// Look at no more than so many of the newest
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Show a dead letter, and what can be done about it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat dlq show 0197f3a0-0000-7000-8000-000000000001")]
pub(crate) struct Show {
    /// The dead letter
    #[arg(value_name = "LETTER")]
    id: DeadLetterId,
}

/// Go on from it in a new task; prints the new task's id
#[derive(Debug, Args)]
#[command(after_help = "\
Completed steps are taken over; the dead one runs anew, or gets the result that was kept.
What may have run already runs again only with --accept-duplicate.

Examples:
  exeat dlq retry 0197f3a0-0000-7000-8000-000000000001
  exeat dlq retry 0197f3a0-0000-7000-8000-000000000001 --accept-duplicate
  exeat dlq retry 0197f3a0-0000-7000-8000-000000000001 --adopt")]
pub(crate) struct Retry {
    /// The dead letter
    #[arg(value_name = "LETTER")]
    id: DeadLetterId,
    /// Take the result that was kept, instead of sending anything
    #[arg(long, conflicts_with = "accept_duplicate")]
    adopt: bool,
    /// Send it though it may have run already
    #[arg(long)]
    accept_duplicate: bool,
}

/// Give it up for good
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  exeat dlq discard 0197f3a0-0000-7000-8000-000000000001 --reason 'done by hand'"
)]
pub(crate) struct Discard {
    /// The dead letter
    #[arg(value_name = "LETTER")]
    id: DeadLetterId,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Dlq {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::List(args) => args.run(session).await,
            Self::Show(args) => {
                let call = Call::get(&["dead-letters", &args.id.to_string()]);
                let letter = session.client.json(&call).await?;
                session.show.result(&letter, |style| whole(style, &letter))?;
                Ok(Exit::Done)
            }
            Self::Retry(args) => {
                let mode = if args.adopt { "adopt" } else { "resend" };
                let accept = args.accept_duplicate.then(|| json!(true));
                let body = given::members([("mode", Some(json!(mode))), ("accept_duplicate", accept)]);
                let task = decide(session, args.id, "retry", &body).await?;
                session.show.result(&task, |_| cell(&task, "task_id"))?;
                Ok(Exit::Done)
            }
            Self::Discard(args) => {
                let body = given::members([("reason", args.reason.map(|r| json!(r)))]);
                let letter = decide(session, args.id, "discard", &body).await?;
                session.show.result(&letter, |_| format!("discarded {}", args.id))?;
                Ok(Exit::Done)
            }
        }
    }
}

async fn decide(session: &Session, id: DeadLetterId, what: &str, body: &Value) -> Result<Value, Failure> {
    Ok(session.client.json(&Call::post(&["dead-letters", &id.to_string(), what], body)).await?)
}

impl List {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let page = session.client.pages(Call::get(&["dead-letters"]), self.limit as usize).await?;
        let items = page.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let items: Vec<Value> = items.into_iter().filter(|l| self.all || is_open(l)).collect();
        let rows: Vec<_> = items.iter().map(row).collect();
        let headings = ["LETTER", "KIND", "TASK", "STEP", "REASON", "AT", "POSSIBLE"];
        let shown = json!({ "items": items, "next_cursor": page.get("next_cursor") });
        session.show.result(&shown, |style| table(style, headings, &rows))?;
        Ok(Exit::Done)
    }
}

/// Has nobody decided about it?
fn is_open(letter: &Value) -> bool {
    letter.get("decided").is_none_or(Value::is_null)
}

fn row(l: &Value) -> [String; 7] {
    let reason = l.get("reason").map(|r| cell(r, "code")).unwrap_or_default();
    let possible = match l.get("decided") {
        Some(d) if !d.is_null() => format!("({} by {})", cell(d, "act"), cell(d, "by")),
        _ => cell(l, "actions"),
    };
    let at = time(l.get("at").unwrap_or(&Value::Null));
    [cell(l, "id"), cell(l, "kind"), cell(l, "task_id"), cell(l, "step"), reason, at, possible]
}

fn whole(style: Style, l: &Value) -> String {
    let reason = l.get("reason").map(|r| (cell(r, "message"), cell(r, "next"))).unwrap_or_default();
    let id = cell(l, "id");
    let commands: Vec<String> = l
        .get("actions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(|a| match a.as_str()? {
            "resend" => Some(format!("exeat dlq retry {id}")),
            "adopt" => Some(format!("exeat dlq retry {id} --adopt")),
            "discard" => Some(format!("exeat dlq discard {id}")),
            _ => None,
        })
        .collect();
    let decided = l.get("decided").filter(|d| !d.is_null()).map(|d| {
        let at = time(d.get("at").unwrap_or(&Value::Null));
        format!("{} by {} at {at} {}", cell(d, "act"), cell(d, "by"), cell(d, "task_id"))
    });
    fields(
        style,
        &[
            ("letter", id),
            ("kind", cell(l, "kind")),
            ("task", cell(l, "task_id")),
            ("step", cell(l, "step")),
            ("hop", cell(l, "hop_id")),
            ("reason", reason.0),
            ("next", reason.1),
            ("at", time(l.get("at").unwrap_or(&Value::Null))),
            ("decided", decided.unwrap_or_default()),
            ("possible", commands.join("\n")),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_says_which_commands_help_and_a_decided_one_who_decided() {
        let open = json!({"id": "l1", "kind": "unknown", "actions": ["resend", "adopt", "discard"], "decided": null,
            "reason": {"code": "outcome_unknown", "message": "Nobody knows.", "next": "Ask."}});
        let shown = whole(Style::Plain, &open);
        for line in ["exeat dlq retry l1", "exeat dlq retry l1 --adopt", "exeat dlq discard l1", "Ask."] {
            assert!(shown.contains(line), "{shown}");
        }
        assert!(is_open(&open) && is_open(&json!({})));
        let done =
            json!({"id": "l1", "actions": [], "decided": {"act": "discard", "by": "k1", "task_id": null}});
        assert!(!is_open(&done));
        assert_eq!(row(&done)[6], "(discard by k1)");
    }
}
