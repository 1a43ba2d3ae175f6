//! The command line: what may be said, and which function does it.
//!
//! Two flags of the contract share their name with a global one (`agent add --url`, `audit verify --key`).
//! In those commands the global ones are spelled `--server` and `--api-key`, or stand before the command:
//! `exeat --url S agent add K --url U`.

mod agent;
mod approval;
mod audit;
mod cost;
mod dlq;
mod doctor;
mod dry_run;
mod follow;
mod given;
mod govern;
mod hand_out;
mod keys;
mod policy;
mod probe;
mod session;
mod task;
mod workflow;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::failure::{Exit, Failure, Problem};
use crate::show::{Format, Show, Volume};
use session::Access;
pub(crate) use session::Session;

/// Commands by what a person is doing; a test holds it to the list of commands.
const HELP: &str = "\
{about}

{usage-heading} {usage}

Hand out work:
  delegate    Hand one piece of work to a role, a team or a foreign agent
  run         Run a workflow
  task        Look at tasks; cancel them, answer their questions
  workflow    Check and push workflows
  worker      Turn any command into a worker of a role

Govern:
  agent       Register foreign agents, sign off their posture
  egress      Let hops out, or nothing
  approval    Decide on what waits for a person
  policy      Check, push and explain the org's policy
  role        What a role may see, and whom it may ask
  budget      Limit what an org, agent or workflow may cost
  cost        What was spent, and on what
  audit       Read, export and verify the ledger

Operate:
  serve       Start the gateway
  dlq         What gave up: run it anew, take a kept result in, or discard it
  doctor      Look for what stands in the way of work
  key         API keys
  org         Tenants
  demo        See the whole of it on this machine in a minute
  stub-agent  A foreign agent to try things with
  completions Completions for your shell

Options of every command:
{options}{after-help}";

const AFTER: &str = "\
Exit codes:
  0 done · 1 the task ended badly · 2 usage · 3 refused or unreachable server
  4 verification failed · 5 waiting ended before the task did

First steps, on an empty directory:
  exeat serve --data ./exeat-data &
  exeat agent add auditor --url https://agent.example --ceiling internal
  exeat agent sign auditor
  exeat egress on --reason 'first try'
  exeat delegate agent:auditor 'Review this invoice: …' --wait";

/// The governed gateway and coordinator for agent-to-agent work: nothing leaves without an exeat.
#[derive(Debug, Parser)]
#[command(name = "exeat", version, help_template = HELP, after_help = AFTER)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The server
    #[arg(
        id = "server_url",
        long = "url",
        global = true,
        env = "EXEAT_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    #[arg(default_value = "http://127.0.0.1:7700")]
    url: String,
    /// The API key, or @FILE. Without it: the file EXEAT_KEY_FILE, else for a server on this machine
    /// admin.key in EXEAT_DATA or ./exeat-data
    #[arg(id = "server_key", long = "key", global = true, env = "EXEAT_KEY", hide_env_values = true)]
    #[arg(value_name = "KEY|@FILE")]
    key: Option<String>,
    /// Certificates (PEM) that alone vouch for an https server, e.g. of a private CA
    #[arg(long, global = true, env = "EXEAT_CA", hide_env_values = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// One JSON object on one line; an error is a problem object on stderr
    #[arg(long, global = true)]
    json: bool,
    /// No progress, only results and errors
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Delegate(hand_out::Delegate),
    Run(hand_out::Run),
    #[command(subcommand)]
    Task(task::Task),
    #[command(subcommand)]
    Workflow(workflow::Workflow),
    Worker(crate::worker::WorkerArgs),
    #[command(subcommand)]
    Agent(agent::Agent),
    #[command(subcommand)]
    Egress(govern::Egress),
    #[command(subcommand)]
    Approval(approval::Approval),
    #[command(subcommand)]
    Policy(policy::Policy),
    #[command(subcommand)]
    Role(govern::Role),
    #[command(subcommand)]
    Budget(govern::Budget),
    #[command(subcommand)]
    Cost(cost::Cost),
    #[command(subcommand)]
    Audit(audit::Audit),
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    Serve(crate::serve::ServeArgs),
    Doctor(doctor::Doctor),
    #[command(subcommand)]
    Key(keys::Key),
    #[command(subcommand)]
    Org(keys::Org),
    Demo(crate::demo::DemoArgs),
    /// A foreign agent to try things with
    #[command(after_help = "\
It does what the first line of a message says after `!`, e.g. `!later 2s; push dup 3`.

Example:
  exeat stub-agent --listen 127.0.0.1:9000 --protocol both --log seen.jsonl")]
    StubAgent(crate::stub_agent::StubAgentArgs),
    Completions(Completions),
}

/// Completions for your shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  exeat completions bash > ~/.local/share/bash-completion/completions/exeat"
)]
struct Completions {
    /// bash, elvish, fish, powershell or zsh
    shell: clap_complete::Shell,
}

/// Runs the command line; gives the exit code. The only place where an error is printed.
pub(crate) fn main(args: Vec<OsString>) -> Exit {
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return misspoken(&e, &args),
    };
    let format = if cli.global.json { Format::Json } else { Format::Text };
    let volume = if cli.global.quiet { Volume::Quiet } else { Volume::Normal };
    let show = Show::new(format, volume);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli, &show)),
        Err(e) => Err(Failure::usage(format!("cannot start the runtime: {e}"))),
    };
    match ended {
        Ok(exit) => exit,
        Err(failure) => {
            if let Failure::Said(_, problem) = &failure {
                show.problem(problem);
            }
            failure.exit()
        }
    }
}

async fn dispatch(cli: Cli, show: &Show) -> Result<Exit, Failure> {
    let Global { url, key, ca, .. } = cli.global;
    let session =
        || Session::new(show.clone(), Access { url, key, ca: ca.filter(|p| !p.as_os_str().is_empty()) });
    match cli.command {
        Command::Doctor(args) => args.run(&session()?).await,
        Command::Serve(args) => crate::serve::run(args, show).await,
        Command::Demo(args) => crate::demo::run(args, show).await,
        Command::StubAgent(args) => {
            let stopped = crate::stub_agent::run(args, told_to_stop()).await;
            let failed = |e: anyhow::Error| Problem::new("stub_agent_failed", format!("{e:#}"));
            stopped.map(|()| Exit::Done).map_err(|e| Failure::of(Exit::Refused, failed(e)))
        }
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "exeat", &mut script);
            show.bytes(&script)?;
            Ok(Exit::Done)
        }
        Command::Delegate(args) => args.run(&session()?).await,
        Command::Run(args) => args.run(&session()?).await,
        Command::Task(args) => args.run(&session()?).await,
        Command::Workflow(args) => args.run(&session()?).await,
        Command::Worker(args) => crate::worker::run(args, &session()?).await,
        Command::Agent(args) => args.run(&session()?).await,
        Command::Egress(args) => args.run(&session()?).await,
        Command::Approval(args) => args.run(&session()?).await,
        Command::Policy(args) => args.run(&session()?).await,
        Command::Role(args) => args.run(&session()?).await,
        Command::Budget(args) => args.run(&session()?).await,
        Command::Cost(args) => args.run(&session()?).await,
        Command::Dlq(args) => args.run(&session()?).await,
        // It may need no server, and then no key either.
        Command::Audit(args) => args.run(show, session).await,
        Command::Key(args) => args.run(&session()?).await,
        Command::Org(args) => args.run(&session()?).await,
    }
}

/// Comes back on SIGINT or SIGTERM; where they can't be heard, never, and they end the process themselves.
pub(crate) fn told_to_stop() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    // Listened for from the call on, not from the first poll: who was told `ready` may tell us to stop at once.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        match signals {
            (Ok(mut int), Ok(mut term)) => {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
            }
            _ => std::future::pending().await,
        }
    }
}

/// Help and version go to stdout; a mistake is one line that says how to do better.
fn misspoken(e: &clap::Error, args: &[OsString]) -> Exit {
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = e.print();
            Exit::Done
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(std::io::stderr(), "{}", e.render());
            Exit::Usage
        }
        _ => {
            let for_us = args.iter().take_while(|a| *a != "--");
            let format = if for_us.into_iter().any(|a| a == "--json") { Format::Json } else { Format::Text };
            Show::new(format, Volume::Normal).problem(&mistake(e));
            Exit::Usage
        }
    }
}

/// clap's error, of several lines, as one.
fn mistake(e: &clap::Error) -> Problem {
    let rendered = e.render().to_string();
    let mut paragraphs = rendered.split("\n\n");
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let detail = one_line(paragraphs.next().unwrap_or_default());
    let detail = detail.strip_prefix("error: ").unwrap_or(&detail);
    let tips = paragraphs.filter(|p| p.trim_start().starts_with("tip:")).map(one_line);
    let usage = match e.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => Some(one_line(&usage.to_string())),
        _ => None,
    };
    let next = tips.chain(usage).collect::<Vec<_>>().join("; ");
    Problem::new("usage", detail).next(if next.is_empty() { "exeat --help".to_owned() } else { next })
}

#[cfg(test)]
mod tests;
