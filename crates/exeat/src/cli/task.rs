//! `exeat task`: look at tasks, watch them, cancel them, answer their questions.

use clap::{Args, Subcommand};
use exeat_core::id::TaskId;
use exeat_core::time::{Span, Timestamp};
use serde_json::{Value, json};

use super::Session;
use super::follow::{Wait, to_end};
use super::given;
use super::hand_out::{still_waiting, verdict};
use crate::client::Call;
use crate::client::sse::Event;
use crate::clock::wall_clock;
use crate::failure::{Exit, Failure, Problem};
use crate::show::task;

/// Look at tasks; cancel them, answer their questions
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    List(List),
    Show(Show),
    Watch(Watch),
    Cancel(Cancel),
    Answer(Answer),
    Resolve(Resolve),
}

/// List tasks, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat task list
  exeat task list --status awaiting_approval
  exeat task list --stuck --json")]
pub(crate) struct List {
    /// running, awaiting_approval, awaiting_input, completed, failed, denied, rejected, timed_out, canceled
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only open tasks that wait for a person, or whose next look is overdue
    #[arg(long, conflicts_with = "status")]
    stuck: bool,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only tasks with a hop to this foreign agent
    #[arg(long, value_name = "KEY")]
    agent: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Show a task with its steps and hops
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat task show 0197f3a0-0000-7000-8000-000000000001")]
pub(crate) struct Show {
    /// The task
    #[arg(value_name = "TASK")]
    id: TaskId,
}

/// Print what happens to a task until it ends
#[derive(Debug, Args)]
#[command(after_help = "\
With --json, one event a line, with its kind as `event`. Exits as the task ends: 0 or 1.

Example:
  exeat task watch 0197f3a0-0000-7000-8000-000000000001 --timeout 1h")]
pub(crate) struct Watch {
    /// The task
    #[arg(value_name = "TASK")]
    id: TaskId,
    /// Watch no longer than this, then exit 5
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

/// Cancel a task and what it has out
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  exeat task cancel 0197f3a0-0000-7000-8000-000000000001 --reason 'wrong file'"
)]
pub(crate) struct Cancel {
    /// The task
    #[arg(value_name = "TASK")]
    id: TaskId,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Answer the question of a foreign agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat task answer 0197f3a0-0000-7000-8000-000000000001 'The second one'
  exeat task answer 0197f3a0-0000-7000-8000-000000000001 --data '{\"choice\":2}'")]
pub(crate) struct Answer {
    /// The task
    #[arg(value_name = "TASK")]
    id: TaskId,
    /// The answer; - reads stdin
    #[arg(value_name = "TEXT|-")]
    text: Option<String>,
    /// The answer as JSON
    #[arg(long, value_name = "JSON|@FILE")]
    data: Option<String>,
    /// Which question, if the task has several
    #[arg(long, value_name = "ID")]
    question: Option<String>,
}

/// Say what became of a send that nobody answered
#[derive(Debug, Args)]
#[command(after_help = "\
yes: it ran, and the hop fails with its outcome unknown; an answer counts as arrived.
no: it never ran and won't, and it is sent again as long as attempts are left.

Example:
  exeat task resolve 0197f3a0-0000-7000-8000-000000000001 --ran no --reason 'not in their log'")]
pub(crate) struct Resolve {
    /// The task
    #[arg(value_name = "TASK")]
    id: TaskId,
    /// Did the agent act on it?
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"])]
    ran: String,
    /// How you know; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Which hop, if several are unknown
    #[arg(long, value_name = "ID")]
    hop: Option<String>,
}

impl Task {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::List(args) => args.run(session).await,
            Self::Show(args) => {
                let t = session.client.json(&Call::get(&["tasks", &args.id.to_string()])).await?;
                session.show.result(&t, |style| task::task(style, &t))?;
                Ok(Exit::Done)
            }
            Self::Watch(args) => args.run(session).await,
            Self::Cancel(args) => {
                let id = args.id.to_string();
                let body = given::members([("reason", args.reason.map(|r| json!(r)))]);
                let answer = session.client.json(&Call::post(&["tasks", &id, "cancel"], &body)).await?;
                session.show.result(&answer, |_| format!("canceling {id}"))?;
                Ok(Exit::Done)
            }
            Self::Answer(args) => args.run(session).await,
            Self::Resolve(args) => args.run(session).await,
        }
    }
}

impl List {
    fn call(&self, status: Option<&str>) -> Call {
        Call::get(&["tasks"])
            .query_if("status", status)
            .query_if("workflow", self.workflow.as_ref())
            .query_if("agent", self.agent.as_ref())
    }

    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let limit = self.limit as usize;
        let page = if self.stuck {
            let mut items = Vec::new();
            for status in ["awaiting_approval", "awaiting_input", "running"] {
                let page = session.client.pages(self.call(Some(status)), limit).await?;
                let now = wall_clock();
                let found = page.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
                items.extend(found.into_iter().filter(|t| is_stuck(t, now)));
            }
            items.truncate(limit);
            json!({ "items": items, "next_cursor": null })
        } else {
            session.client.pages(self.call(self.status.as_deref()), limit).await?
        };
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        session.show.result(&page, |style| task::tasks(style, items))?;
        Ok(Exit::Done)
    }
}

/// Does somebody have to move, or has the time passed at which it should have moved by itself?
fn is_stuck(t: &Value, now: Timestamp) -> bool {
    let waits = t.get("waiting").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    waits.iter().any(|w| {
        let person = ["approval", "input", "auth", "halt"];
        let overdue = |member: &str| {
            let at = w.get(member).and_then(Value::as_str).and_then(|t| t.parse::<Timestamp>().ok());
            at.is_some_and(|at| at < now)
        };
        let text = |member: &str| w.get(member).and_then(Value::as_str).unwrap_or_default();
        // Work that no worker came for within a minute: somebody has to start one.
        let since = text("since").parse::<Timestamp>().ok();
        let nobody_comes = text("for") == "worker"
            && text("hint").contains("exeat worker --role")
            && since.is_some_and(|at| at + Span::of_secs(60) < now);
        person.contains(&text("for")) || nobody_comes || overdue("next_at")
    })
}

impl Watch {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let id = self.id.to_string();
        let show = &session.show;
        let mut tell = |event: &Event| {
            let data = serde_json::from_str(&event.data).unwrap_or(Value::Null);
            if show.is_json() {
                show.json(&as_line(&event.event, data))
            } else {
                show.text(&task::event_line(&event.event, &data))
            }
        };
        match to_end(session, &id, None, self.timeout.map(Into::into), &mut tell).await? {
            Wait::Ended(ended) => verdict(&ended),
            Wait::TimedOut(seen) => {
                if show.is_json() {
                    show.json(&json!({ "task_id": id }))?;
                } else {
                    show.text(&id)?;
                }
                let waited = self.timeout.map(|t| t.to_string()).unwrap_or_default();
                Err(still_waiting(&id, &waited, seen.as_ref().map_or("open", task::status)))
            }
        }
    }
}

/// An event with its kind among its members.
fn as_line(kind: &str, data: Value) -> Value {
    match data {
        Value::Object(mut members) => {
            members.insert("event".into(), json!(kind));
            Value::Object(members)
        }
        other => json!({ "event": kind, "data": other }),
    }
}

impl Answer {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let id = self.id.to_string();
        let text = self.text.as_deref().map(given::text).transpose()?;
        let data = self.data.as_deref().map(|d| given::json_or_file("--data", d)).transpose()?;
        let input = given::payload(text, data, &[])?;
        let question = match self.question {
            Some(q) => q,
            None => {
                let t = session.client.json(&Call::get(&["tasks", &id])).await?;
                the_question(&t)?
            }
        };
        let body = json!({ "question_id": question, "input": input });
        let answer = session.client.json(&Call::post(&["tasks", &id, "answer"], &body)).await?;
        session.show.result(&answer, |_| format!("answered {question}"))?;
        Ok(Exit::Done)
    }
}

impl Resolve {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let id = self.id.to_string();
        let hop = match self.hop {
            Some(hop) => hop,
            None => {
                let t = session.client.json(&Call::get(&["tasks", &id])).await?;
                the_unknown_hop(&t)?
            }
        };
        let body = json!({ "hop_id": hop, "ran": self.ran, "reason": self.reason });
        let answer = session.client.json(&Call::post(&["tasks", &id, "resolve"], &body)).await?;
        session.show.result(&answer, |_| format!("resolved {hop}"))?;
        Ok(Exit::Done)
    }
}

/// The one hop of a task whose sending is unknown.
fn the_unknown_hop(t: &Value) -> Result<String, Failure> {
    let list = |v: &Value, m: &str| v.get(m).and_then(Value::as_array).cloned().unwrap_or_default();
    let hops = list(t, "steps").into_iter().flat_map(|s| list(&s, "hops"));
    let text = |h: &Value, m: &str| h.get(m).and_then(Value::as_str).unwrap_or_default().to_owned();
    let ids: Vec<String> =
        hops.filter(|h| text(h, "state") == "send_unknown").map(|h| text(&h, "hop_id")).collect();
    match ids.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let problem = Problem::new("hop_not_unknown", "no hop of the task is in send_unknown")
                .next(format!("exeat task show {}", task::id(t)));
            Err(Failure::of(Exit::Refused, problem.about_task(task::id(t))))
        }
        many => Err(Failure::usage(format!("{} hops are unknown: {}", many.len(), many.join(", ")))
            .next("say which with --hop ID")),
    }
}

/// The one question that a task asks.
fn the_question(t: &Value) -> Result<String, Failure> {
    let open = task::questions(t);
    let mut ids: Vec<_> = open.iter().filter_map(|q| q.get("question_id").and_then(Value::as_str)).collect();
    let waiting = t.get("waiting").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let asked = waiting.iter().filter(|w| w.get("for").and_then(Value::as_str) == Some("input"));
    ids.extend(asked.filter_map(|w| w.get("ref").and_then(Value::as_str)));
    ids.sort_unstable();
    ids.dedup();
    match ids.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => {
            let detail = format!("the task asks nothing; it is {}", task::status(t));
            let problem =
                Problem::new("no_question", detail).next(format!("exeat task show {}", task::id(t)));
            Err(Failure::of(Exit::Refused, problem.about_task(task::id(t))))
        }
        many => Err(Failure::usage(format!("the task asks {} questions: {}", many.len(), many.join(", ")))
            .next("say which with --question ID")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_stuck_when_a_person_must_move_or_its_time_has_passed() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let t = |w: Value| json!({ "waiting": [w] });
        for (waiting, stuck) in [
            (json!({"for": "approval"}), true),
            (json!({"for": "auth"}), true),
            (json!({"for": "agent", "next_at": "2025-12-31T23:59:59.000000Z"}), true),
            (json!({"for": "agent", "next_at": "2026-01-01T00:00:01.000000Z"}), false),
            (json!({"for": "worker", "next_at": null}), false),
        ] {
            assert_eq!(is_stuck(&t(waiting.clone()), now), stuck, "{waiting}");
        }
        assert!(!is_stuck(&json!({}), now));
    }

    #[test]
    fn the_only_open_question_needs_no_name() {
        let hop = |q: &str| json!({"state": "input_required", "question": {"question_id": q}});
        let t = |hops: Value| json!({"task_id": "t", "status": "awaiting_input", "steps": [{"hops": hops}]});
        assert_eq!(the_question(&t(json!([hop("q1")]))), Ok("q1".to_owned()));
        let none = the_question(&t(json!([]))).unwrap_err();
        assert_eq!(none.exit(), Exit::Refused);
        let several = the_question(&t(json!([hop("q1"), hop("q2")]))).unwrap_err();
        assert_eq!(several.exit(), Exit::Usage);
    }
}
