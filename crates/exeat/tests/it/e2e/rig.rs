//! The rig: processes that end with their test and show their logs if it fails, and waits that have a deadline.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::exeat::{Ran, command, ran};

/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `probe` gives, as soon as it gives something.
#[expect(
    clippy::disallowed_methods,
    reason = "a deadline, so that a broken promise fails instead of hanging"
)]
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A running process, with the log of what it says on stderr.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command, dir: &Path) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = command.stdin(Stdio::null()).stderr(file).spawn().unwrap();
        Self { name: name.to_owned(), child, log }
    }

    /// Starts it, and waits for the address in its `ready` line.
    fn ready(name: &str, mut command: Command, dir: &Path) -> (Self, String) {
        command.stdout(Stdio::piped());
        let mut process = Self::start(name, command, dir);
        let out = process.child.stdout.take().unwrap();
        let (told, heard) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = told.send(line);
            }
        });
        match heard.recv_timeout(PATIENCE) {
            Ok(line) if line.starts_with("ready ") => {
                let url = line.trim_start_matches("ready ").trim_end_matches('/').to_owned();
                (process, url)
            }
            other => panic!("{name} didn't get ready: {other:?}\n{}", read(&process.log)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("---- log of {} ----\n{}", self.name, read(&self.log));
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A gateway on a data folder of its own.
pub(crate) struct Gateway {
    // Ended before its folder is removed.
    _server: Process,
    pub(crate) url: String,
    pub(crate) dir: TempDir,
}

impl Gateway {
    /// Starts on an empty folder, with these settings in its environment.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("exeat-data");
        let mut serve =
            command("", &["serve", "--data", &data.display().to_string(), "--listen", "127.0.0.1:0"]);
        serve.env_remove("EXEAT_URL").env_remove("EXEAT_KEY").current_dir(dir.path());
        serve.env("EXEAT_LOG_LEVEL", "info,exeat_server=debug,exeat_egress=debug,exeat_core=debug");
        serve.envs(settings.iter().copied());
        let (server, url) = Process::ready("serve", serve, dir.path());
        Self { _server: server, url, dir }
    }

    /// A gateway that lets work out to the agent, which is registered as `auditor`, with these flags, and signed.
    pub(crate) fn to(agent_url: &str, settings: &[(&str, &str)], flags: &[&str]) -> Self {
        let gateway = Self::start(settings);
        gateway.register("auditor", agent_url, flags);
        gateway.admin(&["egress", "on", "--reason", "test"]).ok();
        gateway
    }

    /// Registers an agent on this machine and signs its posture.
    pub(crate) fn register(&self, key: &str, url: &str, flags: &[&str]) {
        let add = ["agent", "add", key, "--url", url, "--plaintext", "--allow-cidr", "127.0.0.0/8"];
        self.admin(&[&add[..], &["--ceiling", "internal"], flags].concat()).ok();
        self.admin(&["agent", "sign", key]).ok();
    }

    pub(crate) fn command(&self, key: &str, line: &[&str]) -> Command {
        let mut command = command(&self.url, line);
        command.env("EXEAT_KEY", key).current_dir(self.dir.path());
        command
    }

    pub(crate) fn key_file(&self, name: &str) -> String {
        format!("@{}", self.dir.path().join("exeat-data").join(name).display())
    }

    /// A command, by the key of the first start.
    pub(crate) fn admin(&self, line: &[&str]) -> Ran {
        ran(&mut self.command(&self.key_file("admin.key"), line))
    }

    /// A command, by the second person.
    pub(crate) fn second(&self, line: &[&str]) -> Ran {
        ran(&mut self.command(&self.key_file("approver.key"), line))
    }

    /// What a command answers a program, by the key of the first start.
    pub(crate) fn json(&self, line: &[&str]) -> Value {
        self.admin(&[line, &["--json"]].concat()).ok().json()
    }

    /// Makes a key.
    pub(crate) fn key(&self, flags: &[&str]) -> String {
        let made = self.json(&[&["key", "create"], flags].concat());
        made["key"].as_str().unwrap().to_owned()
    }

    /// Starts a worker of a role.
    pub(crate) fn worker(&self, role: &str, flags: &[&str], run: &[&str]) -> Process {
        let key = self.key(&["--name", role, "--scope", "worker", "--worker-role", role]);
        let line = [&["worker", "--role", role], flags, &["--"], run].concat();
        let mut command = self.command(&key, &line);
        command.stdout(Stdio::null());
        Process::start(&format!("worker-{role}"), command, self.dir.path())
    }

    /// Writes a file into the test's folder, and gives its path.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Delegates to the auditor and waits for the end; the summary for programs, and the exit code.
    pub(crate) fn delegate(&self, flags: &[&str]) -> (i32, Value) {
        let line =
            [&["delegate", "agent:auditor"], flags, &["--wait", "--timeout", "30s", "--json"]].concat();
        let ran = self.admin(&line);
        assert!(ran.code == 0 || ran.code == 1, "{ran:?}");
        (ran.code, ran.json())
    }

    /// Delegates to the auditor without waiting; the task's id.
    pub(crate) fn begin(&self, flags: &[&str]) -> String {
        let line = [&["delegate", "agent:auditor"], flags].concat();
        let ran = self.admin(&line).ok();
        ran.out.trim().to_owned()
    }

    pub(crate) fn task(&self, id: &str) -> Value {
        self.json(&["task", "show", id])
    }

    /// The task, once it has ended.
    pub(crate) fn ended(&self, id: &str) -> Value {
        let watched = self.admin(&["task", "watch", id, "--timeout", "30s", "--json"]);
        assert!(watched.code == 0 || watched.code == 1, "{watched:?}");
        self.task(id)
    }

    /// The task, once `holds` of it.
    pub(crate) fn task_when(&self, id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let admin = self.admin_key();
        until(&format!("{what} of task {id}"), || {
            last = http(&self.url, "GET", &format!("/api/v1/tasks/{id}"), &admin, &[], "").body;
            holds(&last).then(|| last.clone())
        })
    }

    pub(crate) fn admin_key(&self) -> String {
        read(&self.dir.path().join("exeat-data/admin.key")).trim().to_owned()
    }

    /// The one approval that waits, once one does.
    pub(crate) fn pending_approval(&self) -> Value {
        until("a pending approval", || {
            let page = self.second(&["approval", "list", "--json"]).ok().json();
            page["items"].get(0).cloned()
        })
    }

    /// The ledger's records, from an export that verifies.
    pub(crate) fn records(&self) -> Vec<Value> {
        let verified = self.json(&["audit", "verify"]);
        assert_eq!(verified["verified"], true, "{verified}");
        assert_eq!(verified["costs_balanced"], true, "{verified}");
        let exported = self.admin(&["audit", "export"]).ok().out;
        let lines = exported.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines.filter_map(|mut l| l.get_mut("record").map(Value::take)).collect()
    }

    /// Direction, sender and receiver of each edge, in the order of the ledger.
    pub(crate) fn edges(&self) -> Vec<String> {
        let edges = self.records().into_iter().filter(|r| r["kind"] == "edge");
        let word = |r: &Value, m: &str| r["data"][m].as_str().unwrap().to_owned();
        edges.map(|r| format!("{} {} -> {}", word(&r, "dir"), word(&r, "from"), word(&r, "to"))).collect()
    }
}

impl Ran {
    /// It went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It was refused with this code; the problem.
    #[track_caller]
    pub(crate) fn refused(&self, exit: i32, code: &str) -> Value {
        assert_eq!(self.code, exit, "{self:?}");
        let problem: Value = self
            .err
            .lines()
            .rev()
            .find_map(|l| serde_json::from_str(l).ok())
            .unwrap_or_else(|| panic!("no problem: {self:?}"));
        assert_eq!(problem["code"], code, "{self:?}");
        problem
    }
}

/// The reason code and status of a task.
pub(crate) fn ending(task: &Value) -> (String, String) {
    let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (word(&task["status"]), word(&task["reason"]["code"]))
}

/// The only hop of a delegated task.
#[track_caller]
pub(crate) fn hop(task: &Value) -> &Value {
    let hops = task["steps"][0]["hops"].as_array().unwrap();
    assert_eq!(hops.len(), 1, "{task}");
    &hops[0]
}

/// A foreign agent that does as it is told.
pub(crate) struct Stub {
    _process: Process,
    pub(crate) url: String,
    dir: TempDir,
}

impl Stub {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("seen.jsonl").display().to_string();
        let line = [&["stub-agent", "--listen", "127.0.0.1:0", "--log", &log], flags].concat();
        let (process, url) = Process::ready("stub-agent", command("", &line), dir.path());
        Self { _process: process, url, dir }
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// What it counted.
    pub(crate) fn seen(&self) -> Value {
        http(&self.url, "GET", "/_seen", "", &[], "").body
    }

    /// Messages as they came, in order.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let log = read(&self.dir.path().join("seen.jsonl"));
        let lines = log.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        lines.filter_map(|l| l["body"]["params"].get("message").cloned()).collect()
    }
}

/// An A2A agent on a real SDK, from `interop/peers`.
pub(crate) struct Peer {
    _process: Process,
    pub(crate) url: String,
    _dir: TempDir,
}

impl Peer {
    pub(crate) fn start(script: &str, flags: &[&str]) -> Self {
        Self::start_in("EXEAT_INTEROP_PYTHON", script, flags)
    }

    /// In the environment that a variable names.
    pub(crate) fn start_in(environment: &str, script: &str, flags: &[&str]) -> Self {
        let python = std::env::var_os(environment).expect("run the tests by `make test`");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(python);
        command.arg(root.join("interop/peers").join(script)).args(flags);
        let (process, url) = Process::ready(script, command, dir.path());
        Self { _process: process, url, _dir: dir }
    }
}

/// A name server that knows one name, and remembers what it was asked.
pub(crate) struct Names {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    /// Answers every question for an IPv4 address with 127.0.0.1.
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let (name, answer) = answered(&buffer[..n]);
                log.lock().unwrap().push(name);
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The name in a query, and the answer (RFC 1035 §4).
fn answered(query: &[u8]) -> (String, Vec<u8>) {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).into_owned());
        at = end;
    }
    let is_a = query[at + 1..at + 3] == [0, 1];
    let question = &query[12..at + 5];
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    (labels.join("."), answer)
}

/// An answer of our API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).next()
    }
}

/// One HTTP exchange as a script would have it.
#[expect(clippy::disallowed_methods, reason = "the test is the client")]
pub(crate) fn http(
    url: &str,
    method: &str,
    path: &str,
    key: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let authority = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(authority).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    if !key.is_empty() {
        request += &format!("Authorization: Bearer {key}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    socket.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { joined(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body: serde_json::from_str(&body).unwrap_or(json!(body)) }
}

/// The body of a chunked answer (RFC 9112 §7.1).
fn joined(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.push_str(&tail[..size]);
        rest = &tail[size + 2..];
    }
    body
}
