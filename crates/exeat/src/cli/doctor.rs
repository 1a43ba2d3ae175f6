//! `exeat doctor`: what stands in the way of work, looked for where an operator would look.
//!
//! It asks our own server, and with `--reach` our own public address; it reads the modes of the data folder's files where
//! that is at hand. It changes nothing and contacts nobody else.

mod checks;
mod files;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::Session;
use crate::client::{Call, CallError};
use crate::failure::{Exit, Failure, Problem};
use crate::show::table::{Style, table};

/// Look for what stands in the way of work
#[derive(Debug, Args)]
#[command(after_help = "\
Each check is ok, warn or fail; one that fails makes the exit code 1. Nothing changes.

Examples:
  exeat doctor
  exeat doctor --data ./exeat-data --reach
  exeat doctor --json")]
pub(crate) struct Doctor {
    /// The data folder, to look at the modes of its files; EXEAT_DATA or ./exeat-data if there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Contact the server's own public address, and nothing else
    #[arg(long)]
    reach: bool,
}

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    next: String,
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, detail: detail.into(), next: String::new() }
    }
    fn warn(name: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, detail: detail.into(), next: next.into() }
    }
    fn fail(name: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, detail: detail.into(), next: next.into() }
    }
    fn of_problem(name: &'static str, problem: &Problem) -> Self {
        let value = problem.value();
        let next = value.get("next").and_then(Value::as_str).unwrap_or_default();
        Self::fail(name, problem.detail(), next)
    }
}

impl Doctor {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let mut all = readiness(session).await;
        let is_there = all.iter().any(|c| c.name == "server" && c.status == Status::Ok);
        if is_there {
            all.extend(self.look(session).await);
        }
        all.extend(files::modes(self.data.as_deref(), session.is_on_this_machine()));
        let ok = all.iter().all(|c| c.status != Status::Fail);
        let told = json!({ "ok": ok, "checks": all });
        session.show.result(&told, |style| shown(style, &all))?;
        Ok(if ok { Exit::Done } else { Exit::EndedBadly })
    }

    /// What the server tells the holder of a key.
    async fn look(&self, session: &Session) -> Vec<Check> {
        let vitals = match session.client.json(&Call::get(&["vitals"])).await {
            Ok(vitals) => vitals,
            Err(CallError::Refused(p)) => return vec![Check::of_problem("key", &p)],
            Err(CallError::Unreachable(why)) => return vec![Check::fail("key", why, "ask again")],
        };
        let mut all = checks::of_vitals(&vitals, crate::clock::wall_clock());
        let agents = session.client.pages(Call::get(&["agents"]), 1_000).await;
        all.extend(match agents {
            Ok(page) => checks::of_agents(&page, &vitals),
            Err(CallError::Refused(p)) => vec![Check::of_problem("agents", &p)],
            Err(CallError::Unreachable(why)) => vec![Check::fail("agents", why, "ask again")],
        });
        if self.reach {
            all.push(reach(session, &vitals).await);
        }
        all
    }
}

/// Is the server there, and does it say that it can work?
async fn readiness(session: &Session) -> Vec<Check> {
    let told = session.client.json(&Call::root("readyz")).await;
    let listed = |name: &'static str| move |message: &str| message.strip_prefix(name).map(str::to_owned);
    match told {
        Ok(ready) => {
            let checks = ready.get("checks").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut all = vec![Check::ok("server", "it answers")];
            all.extend(checks.iter().filter_map(checks::of_readiness));
            all
        }
        Err(CallError::Unreachable(why)) => {
            vec![Check::fail("server", why, "is `exeat serve` running there? see --url")]
        }
        // It answers, and says what is wrong.
        Err(CallError::Refused(p)) if p.status() == 503 => {
            let mut all = vec![Check::ok("server", "it answers")];
            let next = p.value().get("next").and_then(Value::as_str).unwrap_or_default().to_owned();
            let of = |fault: &Value| {
                let message = fault.get("message").and_then(Value::as_str)?;
                let name = checks::READINESS.iter().copied().find(|n| listed(n)(message).is_some())?;
                let detail = message.split_once(": ").map_or(message, |(_, rest)| rest);
                Some(Check::fail(name, detail, next.clone()))
            };
            let failed: Vec<Check> = p.faults().iter().filter_map(of).collect();
            if failed.is_empty() {
                all.push(Check::of_problem("serving", &p));
            }
            all.extend(failed);
            all
        }
        Err(CallError::Refused(p)) => vec![Check::of_problem("server", &p)],
    }
}

/// Does the address answer at which agents push?
async fn reach(session: &Session, vitals: &Value) -> Check {
    let url = vitals.get("public_url").and_then(Value::as_str).unwrap_or_default();
    let hint = "correct server.public_url, or what stands in front of the server";
    let Ok(client) = session.at(url) else {
        return Check::fail("reach", format!("{url} isn't an address that anybody reaches"), hint);
    };
    match client.json(&Call::root("healthz")).await {
        Ok(answer) if answer.get("status").and_then(Value::as_str) == Some("ok") => {
            Check::ok("reach", format!("{url} answers"))
        }
        Ok(_) => Check::fail("reach", format!("{url} answers, and isn't an Exeat server"), hint),
        Err(CallError::Refused(p)) => Check::fail("reach", format!("{url}: {}", p.detail()), hint),
        Err(CallError::Unreachable(why)) => Check::fail("reach", format!("{url}: {why}"), hint),
    }
}

fn shown(style: Style, all: &[Check]) -> String {
    let rows: Vec<_> = all
        .iter()
        .map(|c| [c.name.to_owned(), c.status.word().to_owned(), c.detail.clone(), c.next.clone()])
        .collect();
    table(style, ["CHECK", "STATUS", "DETAIL", "NEXT"], &rows)
}
