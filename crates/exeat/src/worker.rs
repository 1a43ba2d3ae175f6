//! `exeat worker`: turns any command into a worker of a role.
//!
//! Promises: one run of the command per lease; the lease is kept while it runs and the command is ended when
//! the lease is lost; the result is offered until the server has taken or refused it; told to stop, it
//! leases no more and lets what runs come to its end.
//!
//! Never: hands our API key to the command.

mod child;
mod lease;
mod said;

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use exeat_core::id::RoleName;
use exeat_core::time::Span;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::Session;
use crate::client::{Call, CallError, pause};
use crate::failure::{Exit, Failure, Problem};
use child::{Ended, Program};
use lease::Lease;
use said::Said;

/// How long a poll for work may take, in seconds.
const POLL_S: u64 = 20;

/// Turn any command into a worker of a role
#[derive(Debug, Args)]
#[command(after_help = "\
For each piece of work CMD is run once. It gets the work on stdin as one line of JSON (`input`,
`kind`, `may`, `continuation`, `replies` and more), and EXEAT_TASK_ID, EXEAT_STEP, EXEAT_DELIVERY
and (in a `for_each`) EXEAT_ELEMENT in its environment. It prints one JSON object with one of:

  {\"output\": …, \"cost_microusd\"?: N}
  {\"suspend\": {\"continuation\": …, \"delegations\": [{\"id\": …, \"to\": …, \"input\": …}]}}
  {\"fail\": {\"reason\": \"…\", \"retry\"?: true}}      without `retry` it is for good

Another exit code than 0 is a failure, with the end of stderr as its reason; it is tried again
unless the code is 65. With --text stdin is the input's text, and stdout the output's.

Examples:
  exeat worker --role shouter --text -- tr a-z A-Z
  exeat worker --role writer --concurrency 4 --timeout 10m -- python3 writer.py")]
pub(crate) struct WorkerArgs {
    /// The role whose work it takes
    #[arg(long, value_name = "ROLE")]
    role: RoleName,
    /// How many run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// End CMD after this long; the work is tried again
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// Plain text in, plain text out
    #[arg(long)]
    text: bool,
    /// What this worker is called; HOST-PID if omitted
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Told to stop, let what runs go on for this long
    #[arg(long, value_name = "DURATION", default_value = "25s")]
    grace: Span,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What stdin and stdout of the command hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speech {
    Json,
    Text,
}

/// Why a command is ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Somebody else may have the work now.
    LeaseLost,
    /// The task was canceled.
    Canceled,
    /// It took longer than it may.
    TimedOut,
    /// This worker was told to stop, and the grace is over.
    Stopping,
}

struct Worker<'a> {
    session: &'a Session,
    role: RoleName,
    name: String,
    program: Program,
    speech: Speech,
    limit: Option<Span>,
    /// Lease no more.
    stop: CancellationToken,
    /// End what runs.
    end: CancellationToken,
}

/// Works until it is told to stop, or the server says that it never may.
pub(crate) async fn run(args: WorkerArgs, session: &Session) -> Result<Exit, Failure> {
    let worker = Worker {
        session,
        role: args.role,
        name: args.name.unwrap_or_else(default_name),
        program: Program::find(args.command)?,
        speech: if args.text { Speech::Text } else { Speech::Json },
        limit: args.timeout,
        stop: CancellationToken::new(),
        end: CancellationToken::new(),
    };
    worker.tell(&format!("worker {} of role:{}, {} at a time", worker.name, worker.role, args.concurrency));
    let slots = futures::future::join_all((0..args.concurrency).map(|_| worker.slot()));
    let ended = tokio::select! {
        ended = slots => ended,
        failed = worker.heed_signals(args.grace.into()) => return Err(failed),
    };
    ended.into_iter().collect::<Result<Vec<()>, Failure>>().map(|_| Exit::Done)
}

impl Worker<'_> {
    fn tell(&self, line: &str) {
        self.session.show.progress(line);
    }

    /// The first signal stops leasing, the end of the grace or a second signal ends what runs. Comes back
    /// only if signals can't be heard.
    async fn heed_signals(&self, grace: Duration) -> Failure {
        let deaf = |e: std::io::Error| Failure::usage(format!("cannot listen for signals: {e}"));
        let mut term = match signal(SignalKind::terminate()) {
            Ok(s) => s,
            Err(e) => return deaf(e),
        };
        let mut int = match signal(SignalKind::interrupt()) {
            Ok(s) => s,
            Err(e) => return deaf(e),
        };
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        self.tell("told to stop: leasing no more, letting what runs come to its end");
        self.stop.cancel();
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {}, () = tokio::time::sleep(grace) => {} }
        self.end.cancel();
        std::future::pending().await
    }

    /// Leases, runs, settles, until told to stop.
    async fn slot(&self) -> Result<(), Failure> {
        while let Some(lease) = self.lease().await? {
            self.tell(&format!("task {} step {}, delivery {}", lease.task_id, lease.step, lease.delivery));
            if let Some(said) = self.work(&lease).await {
                self.settle(&lease, said).await?;
            }
        }
        Ok(())
    }

    /// The next lease; `None` when told to stop.
    async fn lease(&self) -> Result<Option<Lease>, Failure> {
        let mut misses = 0;
        loop {
            let body = json!({ "role": self.role, "worker": self.name, "wait_s": POLL_S, "max": 1 });
            let call = Call::post(&["leases"], &body).long_poll(Duration::from_secs(POLL_S));
            let polled = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(None),
                polled = self.session.client.send(&call) => polled,
            };
            match polled.and_then(|answer| Lease::of_answer(&answer)) {
                Ok(Some(lease)) => return Ok(Some(lease)),
                Ok(None) => misses = 0,
                Err(e) if e.may_pass() => {
                    misses += 1;
                    if misses == 1 {
                        self.tell("the server is away; asking it again until it is back");
                    }
                    tokio::select! { () = self.stop.cancelled() => {}, () = tokio::time::sleep(pause(misses)) => {} }
                }
                Err(e) => {
                    // What one slot may not, none may.
                    self.stop.cancel();
                    return Err(e.into());
                }
            }
        }
    }

    /// Runs the command on a lease; `None` when there is nobody left to tell.
    async fn work(&self, lease: &Lease) -> Option<Said> {
        let stdin = match self.speech {
            Speech::Json => lease.line.clone(),
            Speech::Text => lease.text.clone(),
        };
        let environment = [
            ("EXEAT_TASK_ID", lease.task_id.as_str()),
            ("EXEAT_STEP", lease.step.as_str()),
            ("EXEAT_ELEMENT", lease.element.as_str()),
            ("EXEAT_DELIVERY", lease.delivery.as_str()),
        ];
        match self.program.run(&environment, stdin.into_bytes(), self.interrupted(lease)).await {
            Ended::Exited(exited) => Some(Said::of(self.speech, exited)),
            Ended::CannotStart(e) => {
                let reason = format!("cannot start {}: {e}", self.program);
                self.tell(&reason);
                Some(Said::Fail { reason, retry: true })
            }
            Ended::Stopped(Stop::TimedOut) => {
                let limit = self.limit.map(|l| l.to_string()).unwrap_or_default();
                Some(Said::Fail { reason: format!("the command took longer than {limit}"), retry: true })
            }
            Ended::Stopped(Stop::Stopping) => {
                Some(Said::Fail { reason: "the worker was stopped".to_owned(), retry: true })
            }
            Ended::Stopped(why @ (Stop::LeaseLost | Stop::Canceled)) => {
                let why = if why == Stop::Canceled { "canceled" } else { "lost" };
                self.tell(&format!(
                    "task {} step {}: {why}; the command was ended",
                    lease.task_id, lease.step
                ));
                None
            }
        }
    }

    /// Comes back when the command must end. Keeps the lease meanwhile.
    async fn interrupted(&self, lease: &Lease) -> Stop {
        let limit = async {
            match self.limit {
                Some(l) => tokio::time::sleep(l.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            why = self.keep(lease) => why,
            () = limit => Stop::TimedOut,
            () = self.end.cancelled() => Stop::Stopping,
        }
    }

    /// Extends the lease at half its length, again and again; comes back when it is lost. A server that is
    /// away can't have given the work to anybody: the command goes on.
    async fn keep(&self, lease: &Lease) -> Stop {
        let by_s = u64::try_from(lease.length.as_millis().div_ceil(1_000)).unwrap_or(60).max(1);
        let mut rest = lease.length / 2;
        let mut misses = 0;
        loop {
            tokio::time::sleep(rest).await;
            let call = Call::post(&["leases", &lease.id, "extend"], &json!({ "by_s": by_s }));
            match self.session.client.json(&call).await {
                Ok(answer) if answer.get("canceled") == Some(&json!(true)) => return Stop::Canceled,
                Ok(_) => {
                    misses = 0;
                    rest = Duration::from_secs(by_s) / 2;
                }
                Err(e) if e.may_pass() => {
                    misses += 1;
                    rest = pause(misses);
                }
                Err(_) => return Stop::LeaseLost,
            }
        }
    }

    /// Offers the result until the server takes or refuses it. What it refuses becomes a failure, so that
    /// the work doesn't wait for the lease to run out.
    async fn settle(&self, lease: &Lease, mut said: Said) -> Result<(), Failure> {
        let about = format!("task {} step {}", lease.task_id, lease.step);
        let mut call = said.call(&lease.id);
        let mut misses = 0;
        loop {
            let problem = match self.session.client.json(&call).await {
                Ok(_) => {
                    self.tell(&format!("{about}: {said}"));
                    return Ok(());
                }
                Err(e) if e.may_pass() => {
                    misses += 1;
                    if misses == 1 {
                        self.tell(&format!(
                            "{about}: the server is away; offering the result until it is back"
                        ));
                    }
                    tokio::time::sleep(pause(misses)).await;
                    if self.end.is_cancelled() && misses > 3 {
                        return Ok(());
                    }
                    continue;
                }
                Err(CallError::Refused(problem)) => problem,
                Err(e) => return Err(e.into()),
            };
            let lease_is_gone = matches!(problem.status(), 404 | 409 | 410);
            if lease_is_gone || matches!(said, Said::Fail { .. }) {
                self.complain(&about, &problem);
                return Ok(());
            }
            if matches!(problem.code(), "unauthenticated" | "scope_missing" | "role_missing") {
                self.stop.cancel();
                return Err(Failure::Said(Exit::Refused, problem));
            }
            said = said.refused(&problem);
            call = said.call(&lease.id);
        }
    }

    fn complain(&self, about: &str, problem: &Problem) {
        self.tell(&format!("{about}: {problem}"));
    }
}

/// `HOST-PID`.
fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
