//! `exeat demo`: the whole of it on this machine, in a minute.
//!
//! A server, two workers and a foreign agent run as processes of their own; everything else is done by the
//! same commands that a person would type, which are shown. Nothing is faked: what is printed is what the
//! server answered.

use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use self::stage::Stage;
use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;

mod stage;

const WORKFLOW: &str = include_str!("demo/workflow.yaml");
const POLICY: &str = include_str!("demo/policy.cedar");
/// How long any single wait of the demo may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// See the whole of it on this machine in a minute
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat demo
  exeat demo --yes --exit --json")]
pub(crate) struct DemoArgs {
    /// Approve without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Stop when it is through, instead of keeping the server up to look around
    #[arg(long)]
    pub(crate) exit: bool,
}

/// Runs the demo.
pub(crate) async fn run(args: DemoArgs, show: &Show) -> Result<Exit, Failure> {
    let mut stage = Stage::set(show).await?;
    match play(&args, &mut stage).await {
        Ok(ended) => {
            let well = at(&ended, "/status") == "completed" && at(&ended, "/ledger/verified") == true;
            show.result(&ended, |_| String::new())?;
            if !args.exit {
                stage.invite();
                crate::cli::told_to_stop().await;
            }
            stage.clear().await;
            Ok(if well { Exit::Done } else { Exit::EndedBadly })
        }
        Err(e) => {
            stage.clear().await;
            Err(e)
        }
    }
}

async fn play(args: &DemoArgs, stage: &mut Stage) -> Result<Value, Failure> {
    stage.say("A writer of ours drafts an invoice; a foreign agent, which we don't run, reviews it; a publisher of ours takes it further.");
    stage.say("Nothing leaves without an exeat. First, what an operator does once:");
    prepare(stage).await?;
    stage.say("Now the work:");
    let started = stage
        .exeat("admin", &["run", "invoice-check", "--text", "invoice 4711: 3 × widget at 12.50, total 37.50"])
        .await?;
    let task = at(&started, "/task_id").as_str().unwrap_or_default().to_owned();
    follow(args, stage, &task).await?;
    conclude(stage, &task).await
}

async fn prepare(stage: &mut Stage) -> Result<(), Failure> {
    let agent = stage.agent_url.clone();
    let policy = stage.file("policy.cedar", POLICY)?;
    let workflow = stage.file("invoice-check.yaml", WORKFLOW)?;
    stage
        .exeat(
            "admin",
            &[
                "agent",
                "add",
                "auditor",
                "--url",
                &agent,
                "--plaintext",
                "--allow-cidr",
                "127.0.0.0/8",
                "--ceiling",
                "internal",
                "--price",
                "20000",
            ],
        )
        .await?;
    stage.exeat("admin", &["agent", "sign", "auditor"]).await?;
    stage.exeat("admin", &["policy", "push", &policy]).await?;
    stage.exeat("admin", &["egress", "on", "--reason", "demo"]).await?;
    stage.exeat("admin", &["workflow", "push", &workflow]).await?;
    let key = stage
        .exeat(
            "admin",
            &[
                "key",
                "create",
                "--name",
                "workers",
                "--scope",
                "worker",
                "--worker-role",
                "writer",
                "--worker-role",
                "publisher",
            ],
        )
        .await?;
    let key = at(&key, "/key").as_str().unwrap_or_default().to_owned();
    stage.worker(&key, "writer", &["sed", "s/^/DRAFT /"])?;
    stage.worker(&key, "publisher", &["tr", "a-z", "A-Z"])?;
    Ok(())
}

/// Shows the timeline as it happens, and brings every approval to a person.
async fn follow(args: &DemoArgs, stage: &mut Stage, task: &str) -> Result<(), Failure> {
    let mut watching = stage.watch(task)?;
    loop {
        let line = tokio::time::timeout(PATIENCE, watching.lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else { break };
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        stage.timeline(&event);
        if at(&event, "/event") == "approval" && at(&event, "/status") == "pending" {
            let id = at(&event, "/approval_id").as_str().unwrap_or_default().to_owned();
            approve(args, stage, &id).await?;
        }
    }
    let _ = watching.child.wait().await;
    Ok(())
}

async fn approve(args: &DemoArgs, stage: &mut Stage, id: &str) -> Result<(), Failure> {
    let approval = stage.quietly("second", &["approval", "show", id]).await?;
    let digest = at(&approval, "/digest").as_str().unwrap_or_default().to_owned();
    stage.paper(&approval);
    if !args.yes && !stage.asks("Let exactly these bytes go to this agent?").await? {
        stage.exeat("second", &["approval", "deny", id, "--reason", "not today"]).await?;
        return Ok(());
    }
    stage.exeat("second", &["approval", "approve", id, "--digest", &digest, "--yes"]).await?;
    Ok(())
}

async fn conclude(stage: &mut Stage, task: &str) -> Result<Value, Failure> {
    let shown = stage.quietly("admin", &["task", "show", task]).await?;
    let verified = stage.exeat("admin", &["audit", "verify"]).await?;
    stage.ending(&shown, &verified);
    let edges = at(&verified, "/edges").clone();
    Ok(json!({
        "task_id": task,
        "status": at(&shown, "/status"),
        "ledger": { "records": at(&verified, "/records"), "verified": at(&verified, "/verified") },
        "edges": edges,
    }))
}

/// A child whose lines are read.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn of(mut child: Child) -> Result<Self, Failure> {
        let out = child.stdout.take().ok_or_else(|| failed("a process without output"))?;
        Ok(Self { child, lines: BufReader::new(out).lines() })
    }

    /// The address behind `ready `, which each of our processes prints when it can be reached.
    async fn ready(&mut self) -> Result<String, Failure> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        match line {
            Ok(Ok(Some(line))) if line.starts_with("ready ") => {
                Ok(line.trim_start_matches("ready ").to_owned())
            }
            _ => Err(failed("a process of the demo didn't start; run `exeat serve` by hand to see why")),
        }
    }
}

/// A member of an answer, by JSON pointer; null where there is none.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn failed(what: &str) -> Failure {
    Failure::of(Exit::Refused, Problem::new("demo_failed", what))
}

fn piped() -> Stdio {
    Stdio::piped()
}
