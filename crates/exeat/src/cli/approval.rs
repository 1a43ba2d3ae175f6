//! `exeat approval`: decide on what waits for a person.
//!
//! Promise: what is decided is what was shown. The decision carries the digest of the content on the
//! screen, and the content is shown whole, with what can't be seen as codes.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use clap::{Args, Subcommand};
use exeat_core::id::ApprovalId;
use serde_json::{Value, json};

use super::Session;
use super::given;
use crate::client::Call;
use crate::failure::{Exit, Failure, Problem};
use crate::show::escape::escaped;
use crate::show::table::{Style, cell, fields, money, plain, table, time};

/// Decide on what waits for a person
#[derive(Debug, Subcommand)]
pub(crate) enum Approval {
    List(List),
    Show(Named),
    Approve(Approve),
    Deny(Deny),
}

/// List approvals; those that are pending, unless told otherwise
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat approval list
  exeat approval list --watch
  exeat approval list --status approved --json")]
pub(crate) struct List {
    /// pending, approved, denied, expired, superseded, canceled or all
    #[arg(long, value_name = "STATUS", default_value = "pending")]
    status: String,
    /// Keep printing new ones, one a line, until interrupted
    #[arg(long)]
    watch: bool,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Show an approval with the whole content
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat approval show 0197f3a0-0000-7000-8000-000000000001")]
pub(crate) struct Named {
    /// The approval
    #[arg(value_name = "APPROVAL")]
    id: ApprovalId,
}

/// Let it go: shows the content, asks, and approves exactly that
#[derive(Debug, Args)]
#[command(after_help = "\
Without a terminal, say --yes, or pin what was reviewed with --digest.

Examples:
  exeat approval approve 0197f3a0-0000-7000-8000-000000000001
  exeat approval approve 0197f3a0-0000-7000-8000-000000000001 --digest sha256:9f86d0…")]
pub(crate) struct Approve {
    /// The approval
    #[arg(value_name = "APPROVAL")]
    id: ApprovalId,
    /// Approve only if this is still its digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Don't ask
    #[arg(long, short)]
    yes: bool,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Don't let it go
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  exeat approval deny 0197f3a0-0000-7000-8000-000000000001 --reason 'names a customer'"
)]
pub(crate) struct Deny {
    /// The approval
    #[arg(value_name = "APPROVAL")]
    id: ApprovalId,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Deny only if this is still its digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
}

impl Approval {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::List(args) if args.watch => args.watch(session).await,
            Self::List(args) => args.list(session).await,
            Self::Show(args) => {
                let approval = load(session, args.id).await?;
                session.show.result(&approval, |style| whole(style, &approval))?;
                Ok(Exit::Done)
            }
            Self::Approve(args) => args.run(session).await,
            Self::Deny(args) => args.run(session).await,
        }
    }
}

async fn load(session: &Session, id: ApprovalId) -> Result<Value, Failure> {
    Ok(session.client.json(&Call::get(&["approvals", &id.to_string()])).await?)
}

impl List {
    fn call(&self) -> Call {
        let status = Some(self.status.as_str()).filter(|s| *s != "all");
        Call::get(&["approvals"]).query_if("status", status)
    }

    async fn list(self, session: &Session) -> Result<Exit, Failure> {
        let page = session.client.pages(self.call(), self.limit as usize).await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rows: Vec<_> = items.iter().map(row).collect();
        let headings = ["APPROVAL", "STATUS", "DIR", "TO", "LABEL", "PRICE", "NEEDS", "EXPIRES"];
        session.show.result(&page, |style| table(style, headings, &rows))?;
        Ok(Exit::Done)
    }

    async fn watch(self, session: &Session) -> Result<Exit, Failure> {
        let mut known: Vec<String> = Vec::new();
        let mut reached = false;
        loop {
            let page = match session.client.pages(self.call(), self.limit as usize).await {
                Err(e) if reached && e.may_pass() => {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    continue;
                }
                page => page?,
            };
            reached = true;
            let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for a in items.iter().filter(|a| !known.contains(&cell(a, "approval_id"))) {
                session.show.result(a, |_| row(a).join("  "))?;
            }
            known = items.iter().map(|a| cell(a, "approval_id")).collect();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
}

fn row(a: &Value) -> [String; 8] {
    [
        cell(a, "approval_id"),
        cell(a, "status"),
        cell(a, "dir"),
        cell(a, "to"),
        cell(a, "label"),
        money(a.get("price_microusd").unwrap_or(&Value::Null)),
        cell(a, "roles"),
        time(a.get("expires_at").unwrap_or(&Value::Null)),
    ]
}

impl Approve {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !self.yes && !asks && self.digest.is_none() {
            return Err(Failure::usage("there is no terminal to ask on").next(format!(
                "look with `exeat approval show {0}`, then `exeat approval approve {0} --digest DIGEST`, or --yes",
                self.id
            )));
        }
        let approval = load(session, self.id).await?;
        let digest = pinned(&approval, self.digest.as_deref())?;
        if asks && !self.yes {
            session.show.note_styled(|style| whole(style, &approval));
            if !said_yes("Let it go? [y/N] ")? {
                let problem = Problem::new("not_approved", "nothing was decided")
                    .next(format!("exeat approval deny {} --reason TEXT", self.id));
                return Err(Failure::of(Exit::Refused, problem));
            }
        }
        let reason = self.reason.map(|r| json!(r));
        let body = given::members([("digest", Some(json!(digest))), ("reason", reason)]);
        decide(session, self.id, "approve", &body).await
    }
}

impl Deny {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let approval = load(session, self.id).await?;
        let digest = pinned(&approval, self.digest.as_deref())?;
        let body = json!({ "digest": digest, "reason": self.reason });
        decide(session, self.id, "deny", &body).await
    }
}

async fn decide(session: &Session, id: ApprovalId, what: &str, body: &Value) -> Result<Exit, Failure> {
    let id = id.to_string();
    let decided = session.client.json(&Call::post(&["approvals", &id, what], body)).await?;
    session.show.result(&decided, |style| match missing(&decided) {
        Some(roles) => format!(
            "{} {id}: your yes counted; somebody who may approve as {roles} must say yes too",
            style.word(&cell(&decided, "status"))
        ),
        None => format!("{} {id}", style.word(&cell(&decided, "status"))),
    })?;
    Ok(Exit::Done)
}

/// The roles of which nobody has said yes yet, where that keeps it open.
fn missing(approval: &Value) -> Option<String> {
    let roles = approval.get("missing_roles").map(plain).filter(|r| !r.is_empty())?;
    (cell(approval, "status") == "pending").then_some(roles)
}

/// The digest that the decision will carry: that of what was loaded, and of what was pinned.
fn pinned(approval: &Value, pin: Option<&str>) -> Result<String, Failure> {
    let digest = cell(approval, "digest");
    match pin {
        Some(pin) if pin != digest => {
            let detail = format!("the approval's digest is {digest}, not {pin}");
            let problem =
                Problem::new("digest_mismatch", detail).next("look at it again: it isn't what you saw");
            Err(Failure::of(Exit::Refused, problem))
        }
        _ => Ok(digest),
    }
}

fn said_yes(question: &str) -> Result<bool, Failure> {
    eprint!("{question}");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| Failure::usage(format!("cannot read the answer: {e}")))?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// An approval with its whole content. The text is set off by a bar on each line, so that no content can
/// draw a field; below it stand the exact bytes that the digest covers.
fn whole(style: Style, a: &Value) -> String {
    let because = a.get("because").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let because = because
        .iter()
        .map(|b| match cell(b, "reason") {
            r if r.is_empty() => cell(b, "id"),
            r => format!("{r} ({})", cell(b, "id")),
        })
        .collect::<Vec<_>>()
        .join("\n");
    let decisions = a.get("decisions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let decisions = decisions
        .iter()
        .map(|d| format!("{} by {} {}", cell(d, "decision"), cell(d, "by"), cell(d, "reason")))
        .collect::<Vec<_>>()
        .join("\n");
    let tainted =
        if a.get("tainted") == Some(&Value::Bool(true)) { " (tainted by foreign content)" } else { "" };
    let moment = |m: &str| time(a.get(m).unwrap_or(&Value::Null));
    let mut out = fields(
        style,
        &[
            ("approval", cell(a, "approval_id")),
            ("status", cell(a, "status")),
            ("direction", cell(a, "dir")),
            ("to", cell(a, "to")),
            ("origin", cell(a, "origin")),
            ("skill", cell(a, "skill")),
            ("registered", cell(a, "registry_version")),
            ("requester", cell(a, "requester")),
            ("task", cell(a, "task_id")),
            ("step", cell(a, "step")),
            ("label", format!("{}{tainted}", cell(a, "label"))),
            ("price", money(a.get("price_microusd").unwrap_or(&Value::Null))),
            ("because", because),
            ("needs", cell(a, "roles")),
            ("still needs", missing(a).filter(|m| *m != cell(a, "roles")).unwrap_or_default()),
            ("decisions", decisions),
            ("created", moment("created_at")),
            ("expires", moment("expires_at")),
            ("digest", cell(a, "digest")),
        ],
    );
    if let Some(text) = a.get("payload").and_then(|p| p.get("text")).and_then(Value::as_str)
        && !text.is_empty()
    {
        out.push_str(&format!("\n{}\n", style.heading("text")));
        for line in escaped(text).split('\n') {
            out.push_str(&format!("{} {line}\n", style.aside("│")));
        }
    }
    out.push_str(&format!("\n{}\n", style.heading("content, byte for byte")));
    let content = a.get("content").map(plain).unwrap_or_default();
    for line in escaped(&content).split('\n') {
        out.push_str(&format!("{} {line}\n", style.aside("│")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(content: &str, text: &str) -> Value {
        json!({"approval_id": "a1", "status": "pending", "to": "agent:a", "digest": "sha256:00",
            "label": {"level": "internal", "tags": []}, "tainted": true, "price_microusd": 4200,
            "because": [{"id": "p1", "reason": "First contact"}], "roles": ["ops"],
            "content": content, "payload": {"text": text}})
    }

    #[test]
    fn the_content_is_shown_whole_with_what_cannot_be_seen_as_codes() {
        let long = "x".repeat(100_000);
        let shown = whole(Style::Plain, &approval(&long, "pay\u{202E}\nstatus  approved"));
        assert!(shown.contains(&format!("│ {long}\n")));
        assert!(shown.contains("│ pay\\u{202E}\n│ status  approved\n"));
        assert!(shown.contains("internal (tainted by foreign content)"));
        assert!(shown.contains("First contact (p1)"));
        assert_eq!(shown.lines().filter(|l| l.starts_with("status")).count(), 1);
    }

    #[test]
    fn a_pin_that_is_not_the_digest_decides_nothing() {
        let a = approval("", "");
        assert_eq!(pinned(&a, None), Ok("sha256:00".to_owned()));
        assert_eq!(pinned(&a, Some("sha256:00")), Ok("sha256:00".to_owned()));
        assert_eq!(pinned(&a, Some("sha256:01")).map_err(|f| f.exit()), Err(Exit::Refused));
    }
}
