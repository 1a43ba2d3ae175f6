//! `exeat delegate` and `exeat run`: hand out work, and wait for what comes of it.

use std::path::PathBuf;

use clap::Args;
use exeat_core::endpoint::Endpoint;
use exeat_core::id::WorkflowName;
use exeat_core::time::Span;
use serde_json::{Value, json};

use super::Session;
use super::dry_run;
use super::follow::{Begun, Wait, to_end};
use super::given::{self, LabelText};
use crate::client::Call;
use crate::client::sse::Event;
use crate::failure::{Exit, Failure, Problem};
use crate::show::task;

/// Hand one piece of work to a role, a team or a foreign agent
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat delegate agent:auditor 'Review this invoice: …' --wait
  git diff | exeat delegate role:reviewer - --wait --timeout 10m
  exeat delegate agent:auditor 'See attached' --file invoice.pdf --label confidential
  exeat delegate agent:auditor --data @order.json --json
  exeat delegate agent:auditor 'What would become of this?' --budget 5000 --dry-run")]
pub(crate) struct Delegate {
    /// role:NAME, team:NAME or agent:KEY
    endpoint: Endpoint,
    /// What to say; - reads stdin
    #[arg(value_name = "TEXT|-")]
    text: Option<String>,
    #[command(flatten)]
    parts: Parts,
    /// The skill of the agent that is asked for
    #[arg(long, value_name = "ID")]
    skill: Option<String>,
    #[command(flatten)]
    terms: Terms,
    /// Only say what would become of it: verdict, policies, label, price. Nothing is sent or recorded
    #[arg(long, conflicts_with_all = ["wait", "timeout"])]
    dry_run: bool,
}

/// Run a workflow
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat run invoice-check --input @invoice.json --wait
  exeat run summarise --text 'The quick brown fox …' --wait --timeout 5m
  exeat run nightly --json
  exeat run invoice-check --input @invoice.json --dry-run")]
pub(crate) struct Run {
    /// The workflow
    #[arg(value_name = "NAME")]
    workflow: WorkflowName,
    /// Its input: a string is a text, an object of text, data or parts is that, any other JSON is data
    #[arg(long, value_name = "JSON|@FILE", conflicts_with_all = ["text", "data", "files"])]
    input: Option<String>,
    /// Its input as a text; - reads stdin
    #[arg(long, value_name = "TEXT|-")]
    text: Option<String>,
    #[command(flatten)]
    parts: Parts,
    /// Not taken: a workflow's steps name their own skills. The server says so
    #[arg(long, value_name = "ID", hide = true)]
    skill: Option<String>,
    #[command(flatten)]
    terms: Terms,
    /// Only say what would become of its steps, as far as that can be said before they run. Nothing is sent
    #[arg(long, conflicts_with_all = ["wait", "timeout", "skill"])]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct Parts {
    /// JSON to send as a data part
    #[arg(long, value_name = "JSON|@FILE")]
    data: Option<String>,
    /// A file to send as it is; may be repeated
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Terms {
    /// The label of what is sent; can only raise the org's default
    #[arg(long, value_name = "LABEL")]
    label: Option<LabelText>,
    /// The task ends by then: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Span>,
    /// The most it may cost, in micro-dollars
    #[arg(long, value_name = "MICROUSD")]
    budget: Option<u64>,
    /// Wait for the end; the output is the result
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this, then exit 5; implies --wait
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
}

impl Delegate {
    fn payload(&self) -> Result<Value, Failure> {
        let text = self.text.as_deref().map(given::text).transpose()?;
        self.parts.payload(text)
    }

    fn body(&self) -> Result<Value, Failure> {
        Ok(given::members([
            ("to", Some(json!(self.endpoint))),
            ("input", Some(self.payload()?)),
            ("skill", self.skill.as_ref().map(|s| json!(s))),
            ("label", self.terms.label.as_ref().map(|l| l.0.clone())),
            ("deadline", self.terms.deadline.map(|d| json!(d.to_string()))),
            ("budget_microusd", self.terms.budget.map(|b| json!(b))),
        ]))
    }

    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let body = self.body()?;
        if self.dry_run {
            return dry_run::hop(session, &body).await;
        }
        hand_out(session, &body, &self.terms).await
    }
}

impl Run {
    fn body(&self) -> Result<Value, Failure> {
        let input = match &self.input {
            Some(i) => given::json_or_file("--input", i)?,
            None => match self.text.as_deref().map(given::text).transpose()? {
                None if self.parts.data.is_none() && self.parts.files.is_empty() => json!({}),
                text => self.parts.payload(text)?,
            },
        };
        Ok(given::members([
            ("workflow", Some(json!(self.workflow))),
            ("input", Some(input)),
            ("skill", self.skill.as_ref().map(|s| json!(s))),
            ("label", self.terms.label.as_ref().map(|l| l.0.clone())),
            ("deadline", self.terms.deadline.map(|d| json!(d.to_string()))),
            ("budget_microusd", self.terms.budget.map(|b| json!(b))),
        ]))
    }

    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let body = self.body()?;
        if self.dry_run {
            return dry_run::workflow(session, self.workflow.as_str(), &body).await;
        }
        hand_out(session, &body, &self.terms).await
    }
}

impl Parts {
    fn payload(&self, text: Option<String>) -> Result<Value, Failure> {
        let data = self.data.as_deref().map(|d| given::json_or_file("--data", d)).transpose()?;
        given::payload(text, data, &self.files)
    }
}

async fn hand_out(session: &Session, body: &Value, terms: &Terms) -> Result<Exit, Failure> {
    let call = Call::post(&["tasks"], body);
    let created = session.client.json(&call).await?;
    let id = task::id(&created).to_owned();
    if id.is_empty() {
        return Err(Failure::of(Exit::Refused, Problem::not_exeats("it names no task")));
    }
    if !terms.wait && terms.timeout.is_none() {
        let show = &session.show;
        if show.is_json() {
            show.json(&task::summary(&created))?
        } else {
            show.text(&id)?
        }
        return verdict(&created);
    }
    session.show.progress(&format!("task {id}"));
    let mut tell = |event: &Event| {
        let data = serde_json::from_str(&event.data).unwrap_or(Value::Null);
        session.show.progress(&task::event_line(&event.event, &data));
        Ok(())
    };
    let begun = Some(Begun { task: created, call });
    match to_end(session, &id, begun, terms.timeout.map(Into::into), &mut tell).await? {
        Wait::Ended(ended) => give(session, &ended),
        Wait::TimedOut(seen) => {
            let seen = seen.unwrap_or_default();
            let show = &session.show;
            if show.is_json() {
                show.json(&task::summary(&seen))?
            } else {
                show.text(&id)?
            }
            let waited = terms.timeout.map(|t| t.to_string()).unwrap_or_default();
            Err(still_waiting(&id, &waited, task::status(&seen)))
        }
    }
}

/// The end of a wait that came before the end of the task.
pub(super) fn still_waiting(id: &str, waited: &str, status: &str) -> Failure {
    let problem = Problem::new("still_waiting", format!("after {waited} the task is {status}"))
        .next(format!("exeat task watch {id}"))
        .about_task(id);
    Failure::of(Exit::StillWaiting, problem)
}

/// The result of a task that ended.
fn give(session: &Session, ended: &Value) -> Result<Exit, Failure> {
    let show = &session.show;
    if show.is_json() {
        show.json(&task::summary(ended))?;
    } else {
        match task::output_text(ended) {
            text if text.is_empty() => {}
            text => show.foreign_text(&text)?,
        }
    }
    verdict(ended)
}

/// The exit code; a bad ending says why.
pub(super) fn verdict(t: &Value) -> Result<Exit, Failure> {
    match task::ending(task::status(t)) {
        Some(Exit::EndedBadly) => Err(Failure::of(Exit::EndedBadly, task::why(t))),
        _ => Ok(Exit::Done),
    }
}
