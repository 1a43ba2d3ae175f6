//! `exeat policy`: check, push and explain the org's policy, in Cedar.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use exeat_core::id::HopId;
use serde_json::{Value, json};

use super::Session;
use super::given::file_text;
use super::workflow::{fault_line, tell_faults};
use crate::client::Call;
use crate::failure::{Exit, Failure, Problem};
use crate::show::table::{Style, cell, fields, plain, table, time};

/// Check, push and explain the org's policy
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Check a policy; nothing changes
    Check(File),
    /// Show the policy in force
    #[command(after_help = "Example:\n  exeat policy show > policy.cedar")]
    Show,
    Explain(Explain),
    /// Make a policy the org's; without a second person only in single-operator mode
    Push(File),
}

/// Why a hop was let out, held or denied, and what the policies in force would say now
#[derive(Debug, Args)]
#[command(after_help = "\
`exeat task show` names the hops of a task. What isn't sent yet is asked about by
`exeat delegate … --dry-run`. Nothing changes.

Examples:
  exeat policy explain 0197f3a0-0000-7000-8000-000000000001
  exeat policy explain 0197f3a0-0000-7000-8000-000000000001 --json")]
pub(crate) struct Explain {
    /// The hop
    #[arg(value_name = "HOP_ID")]
    hop: HopId,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Faults are printed as FILE:LINE:COLUMN: MESSAGE.

Examples:
  exeat policy check policy.cedar
  exeat policy push policy.cedar")]
pub(crate) struct File {
    /// Cedar; each policy with an @id
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

const CEDAR: &str = "text/plain; charset=utf-8";

impl Policy {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::Check(args) => {
                let call = Call::post_text(&["policy", "check"], CEDAR, file_text(&args.file)?);
                let answer =
                    session.client.json(&call).await.map_err(|e| tell_faults(session, &args.file, e))?;
                let shown = args.file.display();
                if answer.get("ok") == Some(&Value::Bool(true)) {
                    session.show.result(&answer, |_| format!("{shown} is sound"))?;
                    let warnings =
                        answer.get("warnings").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                    warnings.iter().for_each(|w| session.show.note(&fault_line(&args.file, w)));
                    return Ok(Exit::Done);
                }
                if session.show.is_json() {
                    session.show.json(&answer)?;
                }
                let faults = answer.get("errors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                if !session.show.is_json() {
                    faults.iter().for_each(|f| session.show.note(&fault_line(&args.file, f)));
                }
                let problem = Problem::new("bad_policy", format!("{shown} has {} fault(s)", faults.len()));
                Err(Failure::of(Exit::Refused, problem))
            }
            Self::Show => {
                let policy = session.client.json(&Call::get(&["policy"])).await?;
                session.show.result(&policy, |_| cell(&policy, "policy").trim_end().to_owned())?;
                Ok(Exit::Done)
            }
            Self::Explain(args) => {
                let call = Call::post(&["policy", "explain"], &json!({ "hop_id": args.hop }));
                let told = session.client.json(&call).await?;
                session.show.result(&told, |style| explained(style, &told))?;
                Ok(Exit::Done)
            }
            Self::Push(args) => {
                let call = Call::put_text(&["policy"], CEDAR, file_text(&args.file)?);
                let answer =
                    session.client.json(&call).await.map_err(|e| tell_faults(session, &args.file, e))?;
                session.show.result(&answer, |_| format!("policy {}", cell(&answer, "version")))?;
                let warnings =
                    answer.get("warnings").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                warnings.iter().for_each(|w| session.show.note(&fault_line(&args.file, w)));
                Ok(Exit::Done)
            }
        }
    }
}

/// A policy and what it says of itself.
fn grounds(verdict: &Value) -> String {
    let policies = verdict.get("policies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ground = |p: &Value| match cell(p, "reason") {
        reason if reason.is_empty() => cell(p, "id"),
        reason => format!("{}: {reason}", cell(p, "id")),
    };
    policies.iter().map(ground).collect::<Vec<_>>().join("\n")
}

fn explained(style: Style, told: &Value) -> String {
    let reason = |v: &Value| v.get("reason").map(|r| cell(r, "message")).unwrap_or_default();
    let context = told.get("context").unwrap_or(&Value::Null);
    let facts = context.get("context").and_then(Value::as_object);
    let who = |side: &str| {
        let entity = context.get(side).unwrap_or(&Value::Null);
        format!("{} {}", cell(entity, "type"), cell(entity, "id")).trim().to_owned()
    };
    let mut all = vec![
        ("hop", cell(told, "hop_id")),
        ("task", cell(told, "task_id")),
        ("decision", cell(told, "decision")),
        ("reason", reason(told)),
        ("approvers", cell(told, "roles")),
        ("policies", grounds(told)),
        ("version", cell(told, "policy_version")),
        ("judged at", time(told.get("at").unwrap_or(&Value::Null))),
        ("from", who("principal")),
        ("action", cell(context, "action")),
        ("to", who("resource")),
    ];
    all.extend(facts.into_iter().flatten().map(|(name, value)| (name.as_str(), plain(value))));
    let now = told.get("now").filter(|n| !n.is_null());
    if let Some(now) = now {
        all.extend([
            ("now", cell(now, "decision")),
            ("now because", reason(now)),
            ("now policies", grounds(now)),
            ("now version", cell(now, "policy_version")),
        ]);
    }
    let judgements = told.get("judgements").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let rows: Vec<_> = judgements
        .iter()
        .map(|j| {
            let at = time(j.get("at").unwrap_or(&Value::Null));
            let policies = j.get("policies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let ids = policies.iter().map(|p| cell(p, "id")).collect::<Vec<_>>().join(", ");
            [cell(j, "seq"), at, cell(j, "dir"), cell(j, "turn"), cell(j, "decision"), ids]
        })
        .collect();
    let headings = ["RECORD", "AT", "EDGE", "TURN", "DECISION", "POLICIES"];
    format!("{}\n{}", fields(style, &all), table(style, headings, &rows))
}
