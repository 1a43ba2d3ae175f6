//! `exeat workflow`: check definitions, push them, look at them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use exeat_core::id::WorkflowName;
use serde::Deserialize;
use serde_json::Value;

use super::Session;
use super::given::file_text;
use crate::client::{Call, CallError};
use crate::failure::{Exit, Failure};
use crate::show::table::{cell, plain, table, time};
use crate::show::task::pretty;

/// Check and push workflows
#[derive(Debug, Subcommand)]
pub(crate) enum Workflow {
    /// Store a definition: a new version, if it differs from the latest
    Push(File),
    /// Check a definition; nothing changes
    Check(File),
    List(List),
    Show(Show),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Faults are printed as FILE:LINE:COLUMN: CODE: MESSAGE.

Examples:
  exeat workflow check invoice-check.yaml
  exeat workflow push invoice-check.yaml")]
pub(crate) struct File {
    /// YAML or JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// List workflows
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat workflow list")]
pub(crate) struct List {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Show a workflow
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat workflow show invoice-check --version 2")]
pub(crate) struct Show {
    /// Its name
    #[arg(value_name = "NAME")]
    name: WorkflowName,
    /// Which version; the latest if omitted
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

impl Workflow {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::Push(args) => args.put(session, Effect::Push).await,
            Self::Check(args) => args.put(session, Effect::Check).await,
            Self::List(args) => {
                let page = session.client.pages(Call::get(&["workflows"]), args.limit as usize).await?;
                let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let rows: Vec<_> = items
                    .iter()
                    .map(|w| {
                        let at = time(w.get("at").unwrap_or(&Value::Null));
                        [cell(w, "name"), cell(w, "version"), cell(w, "digest"), at]
                    })
                    .collect();
                let headings = ["WORKFLOW", "VERSION", "DIGEST", "PUSHED"];
                session.show.result(&page, |style| table(style, headings, &rows))?;
                Ok(Exit::Done)
            }
            Self::Show(args) => {
                let call = Call::get(&["workflows", args.name.as_str()]).query_if("version", args.version);
                let w = session.client.json(&call).await?;
                if session.show.is_json() {
                    session.show.json(&w)?;
                } else {
                    let source = w.get("source").or_else(|| w.get("definition")).unwrap_or(&w);
                    session
                        .show
                        .foreign_text(&source.as_str().map_or_else(|| pretty(source), str::to_owned))?;
                }
                Ok(Exit::Done)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Push,
    Check,
}

impl File {
    async fn put(self, session: &Session, effect: Effect) -> Result<Exit, Failure> {
        let text = file_text(&self.file)?;
        let name = name_of(&self.file, &text)?;
        let json = self.file.extension().is_some_and(|e| e == "json");
        let media = if json { "application/json" } else { "application/yaml" };
        let mut call = Call::put_text(&["workflows", name.as_str()], media, text);
        if effect == Effect::Check {
            call = call.query("dry_run", 1);
        }
        let answer = session.client.json(&call).await.map_err(|e| tell_faults(session, &self.file, e))?;
        session.show.result(&answer, |_| {
            let version = answer.get("version").map(plain).unwrap_or_default();
            match effect {
                Effect::Check => format!("{name} is sound"),
                Effect::Push => format!("{name}@{version}"),
            }
        })?;
        Ok(Exit::Done)
    }
}

/// Prints the single faults as an editor reads them; the error itself follows.
pub(super) fn tell_faults(session: &Session, file: &Path, e: CallError) -> Failure {
    if let CallError::Refused(problem) = &e
        && !session.show.is_json()
    {
        for fault in problem.faults() {
            session.show.note(&fault_line(file, fault));
        }
    }
    e.into()
}

/// `FILE:LINE:COLUMN: CODE: MESSAGE`, as far as they are known.
pub(super) fn fault_line(file: &Path, fault: &Value) -> String {
    let place = |m: &str| fault.get(m).and_then(Value::as_u64).map(|n| format!("{n}:")).unwrap_or_default();
    let said = match (fault, cell(fault, "code")) {
        (Value::String(s), _) => s.clone(),
        (_, code) if code.is_empty() => cell(fault, "message"),
        (_, code) => format!("{code}: {}", cell(fault, "message")),
    };
    let pointer = match cell(fault, "pointer") {
        p if p.is_empty() => String::new(),
        p => format!(" ({p})"),
    };
    format!("{}:{}{} {said}{pointer}", file.display(), place("line"), place("column")).replace('\n', " ")
}

/// What a text is sent as that names itself wrongly, in a file that does too. It is never stored.
const NAMELESS: &str = "nameless";

/// The name under which a definition is stored. Where the text has none that can be one, the file's own name, or any:
/// the server then says what is wrong with it, and where, with all else that is wrong.
fn name_of(file: &Path, text: &str) -> Result<WorkflowName, Failure> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let named = serde_saphyr::from_str::<Named>(text).ok().and_then(|n| n.name.parse().ok());
    let stem = || file.file_stem().and_then(|s| s.to_string_lossy().parse().ok());
    match named.or_else(stem) {
        Some(name) => Ok(name),
        None => NAMELESS.parse().map_err(|e| Failure::usage(format!("{}: {e}", file.display()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_is_the_definitions_own_or_else_the_files() {
        let name = |file: &str, text: &str| name_of(Path::new(file), text).map(|n| n.to_string()).ok();
        assert_eq!(name("x.yaml", "name: invoice-check\nsteps: {}\n"), Some("invoice-check".into()));
        assert_eq!(name("x.json", r#"{"steps":{},"name":"a"}"#), Some("a".into()));
        assert_eq!(name("dir/draft.yaml", "name: [broken\n"), Some("draft".into()));
        assert_eq!(name("x.yaml", "name: Not A Name\n"), Some("x".into()));
        assert_eq!(name("X_Y.yaml", "name: X_Y\n"), Some(NAMELESS.into()));
    }

    #[test]
    fn a_fault_reads_as_editors_expect() {
        let line = |f: Value| fault_line(Path::new("w.yaml"), &f);
        assert_eq!(
            line(json!({"line": 3, "column": 9, "code": "unknown_step", "message": "there is no step `x`"})),
            "w.yaml:3:9: unknown_step: there is no step `x`"
        );
        assert_eq!(line(json!({"pointer": "/steps/a", "message": "no"})), "w.yaml: no (/steps/a)");
        assert_eq!(line(json!("bare")), "w.yaml: bare");
    }
}
