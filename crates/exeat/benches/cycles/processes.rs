//! The gateway and the agent, each a process of its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::http::Client;

/// A process that ends with its owner, and the URL that it said first.
struct Process {
    child: Child,
    at: SocketAddr,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().rsplit(' ').next().unwrap();
        Self { at: url.trim_start_matches("http://").parse().unwrap(), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exeat(line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exeat"));
    command.args(line).stdin(Stdio::null());
    command
}

/// The foreign agent.
pub(crate) struct Agent(Process);

impl Agent {
    pub(crate) fn start() -> Self {
        Self(Process::start(&mut exeat(&["stub-agent"])))
    }
    pub(crate) const fn at(&self) -> SocketAddr {
        self.0.at
    }
}

/// What the gateway keeps its record in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Sqlite,
    Memory,
}

/// The gateway, with the agent registered and signed, and nobody looking at what was pushed.
pub(crate) struct Gateway {
    process: Process,
    folder: tempfile::TempDir,
    record: Record,
}

impl Gateway {
    pub(crate) fn start(record: Record, agent: &Agent) -> Self {
        // Beside the build, where there is a disk: the folder for temporary files may be memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let gateway = Self { process: served(record, folder.path()), folder, record };
        let url = format!("http://{}", agent.at());
        let add = ["agent", "add", "agent", "--url", &url, "--plaintext", "--allow-cidr", "127.0.0.0/8"];
        gateway.does(&[&add[..], &["--ceiling", "internal", "--max-in-flight", "1000"]].concat());
        gateway.does(&["agent", "sign", "agent"]);
        gateway.does(&["egress", "on", "--reason", "a benchmark"]);
        gateway
    }

    /// Stopped and started again.
    pub(crate) fn restart(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process.child),
            rustix::process::Signal::TERM,
        );
        self.process.child.wait().unwrap();
        self.process = served(self.record, self.folder.path());
    }

    fn does(&self, line: &[&str]) {
        let url = format!("http://{}", self.process.at);
        let key = format!("@{}", self.folder.path().join("admin.key").display());
        let ran = exeat(line).env("EXEAT_URL", url).env("EXEAT_KEY", key).output().unwrap();
        assert!(ran.status.success(), "{line:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.process.at)
    }

    /// The header of its admin.
    pub(crate) fn key(&self) -> String {
        let key = std::fs::read_to_string(self.folder.path().join("admin.key")).unwrap();
        format!("authorization: Bearer {}\r\n", key.trim())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A line of its metrics.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.client().call("GET", "/metrics", &self.key(), "");
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|v| v.split(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// Resident memory, in MB.
    pub(crate) fn rss_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.child.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1_024.0
    }

    /// Processor time so far, in ticks of 10 ms.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.child.id())).unwrap();
        let after: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        after[11].parse::<u64>().unwrap() + after[12].parse::<u64>().unwrap()
    }

    /// Bytes of its folder.
    pub(crate) fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        files.map(|f| f.unwrap().metadata().unwrap()).filter(|m| m.is_file()).map(|m| m.len()).sum()
    }

    /// Its vitals.
    pub(crate) fn vitals(&self) -> Value {
        self.client().json("GET", "/api/v1/vitals", &self.key(), "")
    }
}

fn served(record: Record, folder: &Path) -> Process {
    let data = folder.to_str().unwrap();
    let mut command = match record {
        Record::Sqlite => exeat(&["serve", "--data", data, "--listen", "127.0.0.1:0"]),
        Record::Memory => {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["memory-server", data, "127.0.0.1:0"]);
            again
        }
    };
    let quiet = [
        ("EXEAT_HOP_POLL_FIRST", "1h"),
        ("EXEAT_HOP_POLL_MAX", "1h"),
        ("EXEAT_CALLBACK_PER_MINUTE", "1000000000"),
        ("EXEAT_LIMITS_OPEN_TASKS", "10000000"),
        ("EXEAT_LOG_LEVEL", "error"),
    ];
    Process::start(command.envs(quiet))
}
