//! `exeat policy`: check and push the org's policy, in Cedar.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::Session;
use super::given::file_text;
use super::workflow::{fault_line, tell_faults};
use crate::client::Call;
use crate::failure::{Exit, Failure, Problem};
use crate::show::table::cell;

/// Check and push the org's policy
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Check a policy; nothing changes
    Check(File),
    /// Show the policy in force
    #[command(after_help = "Example:\n  exeat policy show > policy.cedar")]
    Show,
    /// Make a policy the org's; without a second person only in single-operator mode
    Push(File),
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
