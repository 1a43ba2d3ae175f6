//! Runs one command: in a process group of its own, with bounded output, and no longer than it may.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::Stop;
use crate::failure::{Failure, Problem};

/// Bytes of stdout that are taken.
pub(super) const STDOUT_BYTES: usize = 4 << 20;
/// Bytes of the end of stderr that become the reason of a failure.
const STDERR_BYTES: usize = 2 << 10;
/// Between asking a command to end and ending it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long something that the command left behind may hold on to its output.
const LINGER: Duration = Duration::from_secs(2);

/// A command and its arguments.
pub(super) struct Program {
    program: OsString,
    arguments: Vec<OsString>,
}

/// What a command left behind.
#[derive(Debug)]
pub(super) struct Exited {
    /// Its exit code; none if a signal ended it.
    pub(super) code: Option<i32>,
    /// Its output, at most [`STDOUT_BYTES`].
    pub(super) stdout: Vec<u8>,
    /// The end of what it complained.
    pub(super) stderr: String,
    /// It wrote more than is taken, and was ended.
    pub(super) too_much: bool,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    Exited(Exited),
    /// By us.
    Stopped(Stop),
    /// Before it began.
    CannotStart(io::Error),
}

impl Program {
    /// A command line whose program exists: a worker that can't run anything must not take work.
    pub(super) fn find(command: Vec<OsString>) -> Result<Self, Failure> {
        let mut words = command.into_iter();
        let program = words.next().unwrap_or_default();
        let found = if program.as_encoded_bytes().contains(&b'/') {
            is_program(Path::new(&program))
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|dir| is_program(&dir.join(&program)))
        };
        if !found {
            let detail = format!("there is no program {:?} to run", program.to_string_lossy());
            let problem =
                Problem::new("command_not_found", detail).next("name one that is in PATH, or its path");
            return Err(Failure::of(crate::failure::Exit::Usage, problem));
        }
        Ok(Self { program, arguments: words.collect() })
    }

    /// Runs it once. When `stop` comes back first, it is asked to end, and ended after five seconds.
    pub(super) async fn run(
        &self,
        environment: &[(&str, &str)],
        stdin: Vec<u8>,
        stop: impl Future<Output = Stop>,
    ) -> Ended {
        let spawned = Command::new(&self.program)
            .args(&self.arguments)
            .envs(environment.iter().copied())
            .env_remove("EXEAT_KEY")
            .env_remove("EXEAT_KEY_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(e) => return Ended::CannotStart(e),
        };
        let group = Group::of(&child);
        let mut work = pin!(gather(child, group, stdin));
        let why = tokio::select! {
            exited = &mut work => return exited.map_or_else(Ended::CannotStart, Ended::Exited),
            why = stop => why,
        };
        group.signal(Signal::TERM);
        let ended = tokio::time::timeout(PATIENCE, &mut work).await;
        // Also after a polite end: what it started may have stayed.
        group.signal(Signal::KILL);
        if ended.is_err() {
            let _ = tokio::time::timeout(PATIENCE, work).await;
        }
        Ended::Stopped(why)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.to_string_lossy())
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The command with everything that it started.
#[derive(Clone, Copy)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn signal(self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may be gone already, which is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Feeds the command and takes what it writes, until it ended and its output is closed.
async fn gather(mut child: Child, group: Group, stdin: Vec<u8>) -> io::Result<Exited> {
    let (to, from, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let mut too_much = false;
    let status: ExitStatus = {
        let feed = async move {
            if let Some(mut to) = to {
                // A command that doesn't read to the end is free to.
                let _ = to.write_all(&stdin).await;
            }
        };
        let take = async {
            if !take_at_most(from, &mut stdout).await {
                too_much = true;
                group.signal(Signal::KILL);
            }
        };
        let mut pipes = pin!(async { tokio::join!(feed, take, take_end(complaints, &mut stderr)) });
        tokio::select! {
            _ = &mut pipes => child.wait().await?,
            status = child.wait() => {
                if tokio::time::timeout(LINGER, &mut pipes).await.is_err() {
                    group.signal(Signal::KILL);
                    let _ = tokio::time::timeout(LINGER, pipes).await;
                }
                status?
            }
        }
    };
    Ok(Exited { code: status.code(), stdout, stderr: readable_end(&stderr), too_much })
}

/// Reads to the end, or until there is more than is taken. Was that all?
async fn take_at_most(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> bool {
    let Some(from) = from else { return true };
    let mut limited = from.take(STDOUT_BYTES as u64 + 1);
    // A pipe that breaks ends the output; the exit code says the rest.
    let _ = limited.read_to_end(into).await;
    into.len() <= STDOUT_BYTES
}

/// Reads to the end and keeps the last bytes.
async fn take_end(from: Option<impl AsyncRead + Unpin>, end: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut piece = vec![0; 8 << 10];
    while let Ok(n) = from.read(&mut piece).await {
        if n == 0 {
            return;
        }
        end.extend_from_slice(piece.get(..n).unwrap_or_default());
        let over = end.len().saturating_sub(STDERR_BYTES);
        end.drain(..over);
    }
}

/// The end of what was complained, at most [`STDERR_BYTES`] of whole characters. What isn't UTF-8 grows as
/// it is replaced, and is cut once more.
fn readable_end(end: &[u8]) -> String {
    let broken = end.iter().take_while(|b| **b & 0xC0 == 0x80).count().min(3);
    let text = String::from_utf8_lossy(end.get(broken..).unwrap_or_default());
    let over = text.len().saturating_sub(STDERR_BYTES);
    let start = (over..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    text.get(start..).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str, stdin: &str) -> Exited {
        let program = Program::find(["sh", "-c", script].map(OsString::from).to_vec()).ok().unwrap();
        let environment = [("A", "1"), ("B", "2"), ("C", "3")];
        match program.run(&environment, stdin.as_bytes().to_vec(), std::future::pending()).await {
            Ended::Exited(exited) => exited,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_command_gets_its_stdin_and_environment_and_gives_its_output_and_code() {
        let got = sh("cat; printf %s \"$A$B$C\"; echo oops >&2; exit 7", "in").await;
        assert_eq!((got.code, got.stdout.as_slice(), got.stderr.as_str()), (Some(7), &b"in123"[..], "oops"));
    }

    #[tokio::test]
    async fn a_command_that_reads_nothing_is_no_fault() {
        let got = sh("echo ok", &"x".repeat(1 << 20)).await;
        assert_eq!((got.code, got.stdout.as_slice()), (Some(0), &b"ok\n"[..]));
    }

    #[tokio::test]
    async fn output_without_end_is_cut_off_and_its_writer_ended() {
        let got = sh("yes", "").await;
        assert!(got.too_much && got.stdout.len() == STDOUT_BYTES + 1);
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_holds_nothing_up() {
        let got = sh("sleep 600 & echo ok", "").await;
        assert_eq!(got.stdout, b"ok\n");
    }

    #[tokio::test]
    async fn only_the_end_of_the_complaints_is_kept_in_whole_characters() {
        let got =
            sh("i=0; while [ $i -lt 2000 ]; do printf 'ü' >&2; i=$((i+1)); done; printf end >&2; exit 1", "");
        let got = got.await;
        assert!(got.stderr.len() <= STDERR_BYTES);
        assert!(got.stderr.starts_with('ü') && got.stderr.ends_with("üend"));
    }

    #[test]
    fn complaints_that_are_not_text_stay_within_their_bound() {
        assert!(readable_end(&[0xFF; STDERR_BYTES]).len() <= STDERR_BYTES);
        assert_eq!(readable_end(b"\xBCx\n"), "x");
        assert_eq!(readable_end(b""), "");
    }

    #[tokio::test]
    async fn a_command_that_ignores_being_asked_is_ended_with_all_it_started() {
        let script = "trap '' TERM; sleep 600 & echo $!; wait; sleep 600";
        let program = Program::find(["sh", "-c", script].map(OsString::from).to_vec()).ok().unwrap();
        let ended = program.run(&[("A", "")], Vec::new(), std::future::ready(Stop::LeaseLost)).await;
        assert!(matches!(ended, Ended::Stopped(Stop::LeaseLost)), "{ended:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_found_out_before_any_work_is_taken() {
        for gone in ["no-such-program-here", "/no/such/program", "/etc/passwd", "/etc", ""] {
            assert!(Program::find(vec![gone.into()]).is_err(), "{gone}");
        }
    }
}
