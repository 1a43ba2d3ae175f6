//! A gateway in a folder of its own, that can be started, stopped and killed; a foreign agent; workers.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{Answer, Request};
use crate::exeat::{Ran, ran};

/// Bounds that let a test end soon.
pub(super) const QUICK: &[(&str, &str)] = &[
    ("EXEAT_HOP_POLL_FIRST", "200ms"),
    ("EXEAT_HOP_POLL_MAX", "1s"),
    ("EXEAT_HOP_RETRY_FIRST", "100ms"),
    ("EXEAT_HOP_RETRY_MAX", "500ms"),
    ("EXEAT_HOP_SEND_TIMEOUT", "3s"),
    ("EXEAT_HOP_UNKNOWN_GRACE", "3s"),
    ("EXEAT_LEDGER_CHECKPOINT_INTERVAL", "1s"),
];

#[expect(clippy::disallowed_methods, reason = "deadlines, so that a broken promise fails instead of hanging")]
pub(super) fn clock() -> Instant {
    Instant::now()
}

/// Waits for something to hold.
pub(super) fn until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = clock();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience, "never within {patience:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(25));
    }
}

/// A port that nothing has, out of the range from which the system gives ports to clients: it must still be
/// free when a killed server comes back.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(37);
    loop {
        let n = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(101));
        let port = u16::try_from(20_000 + n % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A process that is ended with its test.
pub(super) struct Process(pub(super) Child);

impl Process {
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap(), signal).unwrap();
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our command, in an environment that has nothing of ours.
pub(super) fn bare(line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exeat"));
    command.args(line).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null());
    command
}

/// Spawns what prints `ready URL` or a URL on its first line, and gives that line's last word; None if it ended.
fn spawned(command: &mut Command, log: &Path) -> (Process, Option<String>) {
    let (mut child, lines) = spawned_unready(command, log);
    let mut line = String::new();
    BufReader::new(lines).read_line(&mut line).unwrap();
    let url = line.trim_end().rsplit(' ').next().filter(|u| u.starts_with("http://")).map(str::to_owned);
    if url.is_none() {
        let _ = child.0.wait();
    }
    (child, url)
}

fn spawned_unready(command: &mut Command, log: &Path) -> (Process, std::process::ChildStdout) {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut child = Process(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
    let lines = child.0.stdout.take().unwrap();
    (child, lines)
}

/// A gateway's folder, and the server on it if one runs.
pub(super) struct Gateway {
    dir: TempDir,
    pub(super) at: SocketAddr,
    env: Vec<(String, String)>,
    server: Option<Process>,
}

impl Gateway {
    /// A folder that isn't there yet.
    pub(super) fn new(env: &[(&str, &str)]) -> Self {
        let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let env = QUICK.iter().chain(env).map(own).collect();
        let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
        Self { dir: tempfile::tempdir().unwrap(), at, env, server: None }
    }

    /// Started, and ready.
    pub(super) fn started(env: &[(&str, &str)]) -> Self {
        let mut gateway = Self::new(env);
        gateway.start();
        gateway
    }

    /// Started, with egress on and one signed agent.
    pub(super) fn with_agent(env: &[(&str, &str)], key: &str, url: &str, flags: &[&str]) -> Self {
        let gateway = Self::started(env);
        gateway.agent(key, url, flags);
        gateway.does(&["egress", "on", "--reason", "a test"]);
        gateway
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("stderr.log")
    }

    pub(super) fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// All that servers on this folder said on stderr.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The command that serves this folder.
    pub(super) fn serve(&self, flags: &[&str]) -> Command {
        let data = self.data().display().to_string();
        let mut command = bare(&[&["serve", "--data", &data][..], flags].concat());
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    fn serve_here(&self) -> Command {
        self.serve(&["--listen", &self.at.to_string()])
    }

    pub(super) fn start(&mut self) {
        let (server, url) = spawned(&mut self.serve_here(), &self.log());
        assert_eq!(url, Some(format!("http://{}", self.at)), "{}", self.said());
        self.server = Some(server);
    }

    /// Starts it with a log that takes nothing, as a full disk or a reader that has gone.
    pub(super) fn start_unheard(&mut self) {
        let (server, url) = spawned(&mut self.serve_here(), Path::new("/dev/full"));
        assert_eq!(url, Some(format!("http://{}", self.at)));
        self.server = Some(server);
    }

    /// Starts it by another command, made of the one that serves; gives its process id.
    pub(super) fn start_by(&mut self, by: impl FnOnce(&Command) -> Command) -> u32 {
        let (server, url) = spawned(&mut by(&self.serve_here()), &self.log());
        assert_eq!(url, Some(format!("http://{}", self.at)), "{}", self.said());
        self.server.insert(server).0.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.server.as_ref().unwrap().signal(signal);
    }

    /// Starts it without waiting for anything.
    pub(super) fn start_unready(&mut self) {
        self.server = Some(spawned_unready(&mut self.serve_here(), &self.log()).0);
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        drop(self.server.take());
    }

    /// Asks it to stop, and waits until it has.
    pub(super) fn stop(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        server.signal(Signal::TERM);
        server.0.wait().unwrap()
    }

    /// The text of a key file.
    pub(super) fn key(&self, file: &str) -> String {
        std::fs::read_to_string(self.data().join(file)).unwrap().trim().to_owned()
    }

    pub(super) fn admin(&self) -> String {
        self.key("admin.key")
    }

    /// Our command against this server, as its admin.
    pub(super) fn command(&self, line: &[&str]) -> Command {
        let mut command = bare(line);
        let key = self.data().join("admin.key");
        command
            .env("EXEAT_URL", format!("http://{}", self.at))
            .env("EXEAT_KEY", format!("@{}", key.display()));
        command
    }

    pub(super) fn cli(&self, line: &[&str]) -> Ran {
        ran(&mut self.command(line))
    }

    /// A command that must be done; its JSON.
    pub(super) fn does(&self, line: &[&str]) -> Value {
        let got = self.cli(&[line, &["--json"]].concat());
        assert_eq!(got.code, 0, "{line:?}: {} {}\n{}", got.out, got.err, self.said());
        serde_json::from_str(&got.out).unwrap_or(Value::Null)
    }

    /// A request to it, without a key.
    pub(super) fn request(&self, method: &str, path: &str) -> Request {
        Request::new(self.at, method, path)
    }

    /// A connection on which a request has begun and doesn't go on.
    #[expect(clippy::disallowed_methods, reason = "a test dials the server that it started")]
    pub(super) fn stalled(&self, bytes: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.at).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    }

    /// An answer of the API to its admin.
    pub(super) fn get(&self, path: &str) -> Value {
        self.request("GET", &format!("/api/v1{path}")).key(&self.admin()).must().good()
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", &format!("/api/v1{path}")).key(&self.admin()).json(body).must()
    }

    /// All items of a list.
    pub(super) fn all(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let and = if path.contains('?') { '&' } else { '?' };
            let next = cursor.as_str().map(|c| format!("&cursor={c}")).unwrap_or_default();
            let page = self.get(&format!("{path}{and}limit=200{next}"));
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                return items;
            }
        }
    }

    /// Registers and signs an agent on this machine.
    pub(super) fn agent(&self, key: &str, url: &str, flags: &[&str]) {
        let line = ["agent", "add", key, "--url", url, "--plaintext", "--allow-cidr", "127.0.0.0/8"];
        let line = [&line[..], &["--ceiling", "internal"], flags].concat();
        self.does(&line);
        self.does(&["agent", "sign", key]);
    }

    /// A key for workers of these roles.
    pub(super) fn worker_key(&self, roles: &[&str]) -> String {
        let body = json!({"name": "workers", "scopes": ["worker"], "worker_roles": roles});
        self.post("/keys", &body).good()["key"].as_str().unwrap().to_owned()
    }

    /// A worker process.
    pub(super) fn worker(&self, key: &str, role: &str, flags: &[&str], run: &[&str]) -> Process {
        let line = [&["worker", "--role", role][..], flags, &["--"], run].concat();
        let mut command = bare(&line);
        command.env("EXEAT_URL", format!("http://{}", self.at)).env("EXEAT_KEY", key);
        let log = File::options().create(true).append(true).open(self.dir.path().join("worker.log")).unwrap();
        Process(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// A task as it stands.
    pub(super) fn task(&self, id: &str) -> Value {
        self.get(&format!("/tasks/{id}"))
    }

    /// Starts a task.
    pub(super) fn begin(&self, body: &Value) -> String {
        self.post("/tasks", body).good()["task_id"].as_str().unwrap().to_owned()
    }

    /// A task when it has ended.
    pub(super) fn ended(&self, id: &str) -> Value {
        until(&format!("the end of {id}"), Duration::from_secs(60), || {
            let task = self.task(id);
            (!task["ended_at"].is_null()).then_some(task)
        })
    }

    /// The export of the ledger, and its public key, as files.
    pub(super) fn export(&self) -> (String, PathBuf, PathBuf) {
        let (export, key) = (self.cli(&["audit", "export"]), self.cli(&["audit", "key"]));
        assert_eq!((export.code, key.code), (0, 0), "{} {}", export.err, key.err);
        let files = (self.dir.path().join("ledger.jsonl"), self.dir.path().join("pub.pem"));
        std::fs::write(&files.0, &export.out).unwrap();
        std::fs::write(&files.1, &key.out).unwrap();
        (export.out, files.0, files.1)
    }

    /// The server lives, and has said nothing that nobody should have to read.
    pub(super) fn is_well(&self) {
        assert_eq!(self.request("GET", "/readyz").must().status, 200);
        self.never_said(&["panicked", "\"ERROR\"", "RUST_BACKTRACE"]);
    }

    pub(super) fn never_said(&self, words: &[&str]) {
        let said = self.said();
        let line = said.lines().find(|l| words.iter().any(|w| l.contains(w)));
        assert_eq!(line, None);
    }
}

/// The records of an export.
pub(super) fn records(export: &str) -> Vec<Value> {
    let lines = export.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines.filter_map(|mut l| l.get_mut("record").map(Value::take)).collect()
}

/// A foreign agent that does what it is told.
pub(super) struct Stub {
    _process: Process,
    _dir: TempDir,
    pub(super) url: String,
    at: SocketAddr,
}

impl Stub {
    pub(super) fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let line = [&["stub-agent", "--listen", "127.0.0.1:0"][..], flags].concat();
        let (process, url) = spawned(&mut bare(&line), &dir.path().join("stub.log"));
        let url = url.unwrap();
        let at = url.trim_start_matches("http://").parse().unwrap();
        Self { _process: process, _dir: dir, url, at }
    }

    /// What it has seen.
    pub(super) fn seen(&self) -> Value {
        Request::new(self.at, "GET", "/_seen").must().good()
    }
}
