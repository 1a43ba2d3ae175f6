//! The stage: the demo's folder and processes, and how it speaks to whoever looks on.

use std::path::PathBuf;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::{Watching, at, failed, piped};
use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;

/// Everything that the demo has set up.
pub(super) struct Stage {
    show: Show,
    program: PathBuf,
    folder: PathBuf,
    url: String,
    pub(super) agent_url: String,
    // Killed when dropped.
    children: Vec<Child>,
}

impl Stage {
    /// Makes a folder and starts the foreign agent and the server.
    pub(super) async fn set(show: &Show) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|e| failed(&e.to_string()))?;
        let folder = std::env::temp_dir().join(format!("exeat-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| failed(&format!("{}: {e}", folder.display())))?;
        let mut stage = Self {
            show: show.clone(),
            program,
            folder,
            url: String::new(),
            agent_url: String::new(),
            children: Vec::new(),
        };
        stage.agent_url = stage.start(&["stub-agent", "--listen", "127.0.0.1:0"]).await?;
        let data = stage.folder.join("data").display().to_string();
        stage.url = stage.start(&["serve", "--data", &data, "--listen", "127.0.0.1:0"]).await?;
        Ok(stage)
    }

    async fn start(&mut self, args: &[&str]) -> Result<String, Failure> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("demo.log"));
        let log = log.map_err(|e| failed(&e.to_string()))?;
        let child =
            Command::new(&self.program).args(args).stdout(piped()).stderr(log).kill_on_drop(true).spawn();
        let mut watching = Watching::of(child.map_err(|e| failed(&e.to_string()))?)?;
        let url = watching.ready().await?;
        self.children.push(watching.child);
        Ok(url)
    }

    /// Starts a worker; its end is the demo's.
    pub(super) fn worker(&mut self, key: &str, role: &str, command: &[&str]) -> Result<(), Failure> {
        let mut args = vec!["worker", "--role", role, "--text", "--"];
        args.extend(command);
        self.say_command(&args);
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("demo.log"));
        let child = Command::new(&self.program)
            .args(&args)
            .env("EXEAT_URL", &self.url)
            .env("EXEAT_KEY", key)
            .stdout(std::process::Stdio::null())
            .stderr(log.map_err(|e| failed(&e.to_string()))?)
            .kill_on_drop(true)
            .spawn();
        self.children.push(child.map_err(|e| failed(&e.to_string()))?);
        Ok(())
    }

    fn command(&self, who: &str, args: &[&str]) -> Command {
        let key = if who == "second" { "approver.key" } else { "admin.key" };
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .arg("--json")
            .env("EXEAT_URL", &self.url)
            .env("EXEAT_KEY", format!("@{}", self.folder.join("data").join(key).display()))
            .kill_on_drop(true);
        command
    }

    /// Runs one of our commands, shows it, and gives its answer.
    pub(super) async fn exeat(&self, who: &str, args: &[&str]) -> Result<Value, Failure> {
        self.say_command(args);
        self.quietly(who, args).await
    }

    /// Runs one of our commands and gives its answer.
    pub(super) async fn quietly(&self, who: &str, args: &[&str]) -> Result<Value, Failure> {
        let output = self.command(who, args).output().await.map_err(|e| failed(&e.to_string()))?;
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() {
            return Ok(answer);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // With --json the last line of stderr is the problem.
        let problem: Value =
            said.trim().lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
        let detail = problem.get("detail").and_then(Value::as_str).unwrap_or_else(|| said.trim());
        let failed = Problem::new("demo_failed", format!("exeat {}: {detail}", args.join(" ")));
        Err(Failure::of(
            Exit::Refused,
            match problem.get("next").and_then(Value::as_str) {
                Some(next) => failed.next(next),
                None => failed,
            },
        ))
    }

    /// Watches a task, event by event.
    pub(super) fn watch(&self, task: &str) -> Result<Watching, Failure> {
        let child = self.command("admin", &["task", "watch", task]).stdout(piped()).spawn();
        Watching::of(child.map_err(|e| failed(&e.to_string()))?)
    }

    /// Writes a file of the demo, and gives its path.
    pub(super) fn file(&self, name: &str, content: &str) -> Result<String, Failure> {
        let path = self.folder.join(name);
        std::fs::write(&path, content).map_err(|e| failed(&e.to_string()))?;
        Ok(path.display().to_string())
    }

    /// A sentence for whoever looks on.
    pub(super) fn say(&self, text: &str) {
        self.show.progress(&format!("\n{text}"));
    }

    fn say_command(&self, args: &[&str]) {
        let folder = format!("{}/", self.folder.display());
        let plain =
            |a: &&str| !a.is_empty() && !a.contains(|c: char| c.is_whitespace() || "'\"$&|;<>()".contains(c));
        let quoted: Vec<String> = args
            .iter()
            .map(|a| a.strip_prefix(folder.as_str()).unwrap_or(a))
            .map(|a| if plain(&a) { a.to_owned() } else { format!("'{}'", a.replace('\'', "'\\''")) })
            .collect();
        self.show.progress(&format!("  $ exeat {}", quoted.join(" ")));
    }

    /// One event, on one line.
    pub(super) fn timeline(&self, event: &Value) {
        let clock = at(event, "/at").as_str().and_then(|t| t.get(11..23)).unwrap_or("");
        let word = |k: &str| at(event, &format!("/{k}")).as_str().unwrap_or("").to_owned();
        let said = match at(event, "/event").as_str().unwrap_or("") {
            "step" => format!("step {:<9} {:<20} {}", word("step"), word("status"), word("to")),
            "hop" => format!(
                "hop  {:<9} {:<20} turn {} attempt {}",
                word("step"),
                word("state"),
                at(event, "/turn"),
                at(event, "/attempt")
            ),
            "approval" => format!("approval       {:<20} needs {}", word("status"), at(event, "/roles")),
            "cost" => format!("cost           {:<20} {} µ$", word("entry"), at(event, "/amount_microusd")),
            "task" => format!("task           {}", word("status")),
            other => other.to_owned(),
        };
        self.show.progress(&format!("  {clock}  {said}"));
    }

    /// What an approver sees: whereto, and the exact bytes.
    pub(super) fn paper(&self, approval: &Value) {
        let text = |k: &str| at(approval, &format!("/{k}")).as_str().unwrap_or("").to_owned();
        self.show.progress("\n  ┌ A person must decide. These are the bytes:");
        self.show.progress(&format!("  │ to      {} at {}", text("to"), text("origin")));
        self.show.progress(&format!(
            "  │ label   {}   price {} µ$",
            at(approval, "/label"),
            at(approval, "/price_microusd")
        ));
        self.show.progress(&format!("  │ content {}", text("content")));
        self.show.progress(&format!("  └ digest  {}\n", text("digest")));
    }

    /// Asks on the terminal.
    pub(super) async fn asks(&self, question: &str) -> Result<bool, Failure> {
        use std::io::IsTerminal as _;
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(
                "the demo asks for an approval; answer it with --yes where nobody is at the terminal",
            ));
        }
        self.show.progress(&format!("{question} [y/N]"));
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map(|_| line)
        });
        let line = line.await.ok().and_then(Result::ok).unwrap_or_default();
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    }

    /// What came of it.
    pub(super) fn ending(&self, task: &Value, verified: &Value) {
        self.show
            .progress(&format!("\n  output   {}", at(task, "/output/text").as_str().unwrap_or("(none)")));
        self.show.progress(&format!("  cost     {} µ$ settled", at(task, "/cost_microusd")));
        let word = if at(verified, "/verified") == true { "verified" } else { "NOT VERIFIED" };
        self.show.progress(&format!(
            "  ledger   {word}: {} records, {} edges",
            at(verified, "/records"),
            at(verified, "/edges")
        ));
    }

    /// What to try next.
    pub(super) fn invite(&self) {
        let data = self.folder.join("data");
        self.say("The server stays up. Try, in another terminal:");
        self.show.progress(&format!("  export EXEAT_URL={} EXEAT_DATA={}", self.url, data.display()));
        for line in [
            "exeat task list",
            "exeat audit list",
            "exeat audit export > ledger.jsonl && exeat audit key > pub.pem && exeat audit verify --file ledger.jsonl --key pub.pem",
            "exeat delegate agent:auditor 'hello'",
            "exeat approval list && exeat task list",
            "exeat egress halt --reason 'what if'",
        ] {
            self.show.progress(&format!("  {line}"));
        }
        self.show.progress("Ctrl-C ends it and removes its folder.");
    }

    /// Ends all processes and removes the folder.
    pub(super) async fn clear(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill().await;
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
