//! `exeat audit`: read, export and verify the ledger.

mod offline;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use exeat_core::id::TaskId;
use serde_json::{Value, json};

use super::Session;
use crate::client::{Call, CallError};
use crate::failure::{Exit, Failure, Problem};
use crate::show::Show;
use crate::show::table::{Style, cell, fields, plain, table, time};

/// Read, export and verify the ledger
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    List(List),
    Verify(Verify),
    Export(Export),
    /// Print the public key that signs the ledger's heads
    #[command(after_help = "Example:\n  exeat audit key > ledger.pem")]
    Key,
}

/// List the last records, or those from a number on; in the order of the ledger
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat audit list --limit 20
  exeat audit list --task 0197f3a0-0000-7000-8000-000000000001
  exeat audit list --kind edge --json")]
pub(crate) struct List {
    /// Only those of this task
    #[arg(long, value_name = "TASK")]
    task: Option<TaskId>,
    /// Only this kind: edge, verdict, approval, attempt, outcome, cost, late, refused, change, operator
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// From this sequence number on, not the last ones
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// Verify the whole ledger, on the server or from an export alone
#[derive(Debug, Args)]
#[command(after_help = "\
With --file no server is asked, and --key is the ledger's public key. Exits 4 if the ledger
doesn't verify.

Examples:
  exeat audit verify
  exeat audit verify --file ledger.jsonl --key ledger.pem
  exeat audit verify --file ledger.jsonl --key ledger.pem --held checkpoints.txt")]
pub(crate) struct Verify {
    /// An export
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// With --file: the public key (PEM) of the ledger; else the API key
    #[arg(id = "ledger_key", long = "key", value_name = "PEM")]
    key: Option<String>,
    /// With --file: checkpoints kept from before; a ledger that was cut or rewritten since shows against them
    #[arg(long, value_name = "FILE", requires = "file")]
    held: Option<PathBuf>,
    /// The API key, or @FILE. Read as the global --key.
    #[arg(id = "server_key", long = "api-key", value_name = "KEY|@FILE", help_heading = "Global options")]
    _api_key: Option<String>,
}

/// Write all records, with a signed head at the end, to stdout
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat audit export > ledger.jsonl && exeat audit key > ledger.pem")]
pub(crate) struct Export {
    /// From this sequence number on
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
}

impl Audit {
    pub(crate) async fn run(
        self,
        show: &Show,
        session: impl FnOnce() -> Result<Session, Failure>,
    ) -> Result<Exit, Failure> {
        match self {
            Self::List(args) => args.run(&session()?).await,
            Self::Verify(args) => args.run(show, session).await,
            Self::Export(args) => args.run(&session()?).await,
            Self::Key => {
                let session = session()?;
                let answer = session.client.send(&Call::get(&["ledger", "key"])).await?;
                let pem = String::from_utf8_lossy(&answer.body).into_owned();
                session.show.result(&json!({ "pem": pem }), |_| pem.clone())?;
                Ok(Exit::Done)
            }
        }
    }
}

impl List {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let call = Call::get(&["ledger"])
            .query_if("from", self.from)
            .query_if("kind", self.kind.as_ref())
            .query_if("task", self.task)
            .query_if("order", self.from.is_none().then_some("newest"));
        let mut page = session.client.pages(call, self.limit as usize).await?;
        if self.from.is_none()
            && let Some(items) = page.get_mut("items").and_then(Value::as_array_mut)
        {
            items.reverse();
        }
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rows: Vec<_> = items.iter().map(row).collect();
        let headings = ["SEQ", "AT", "KIND", "ACTOR", "TASK", "STEP", "EDGE", "WHAT"];
        session.show.result(&page, |style| table(style, headings, &rows))?;
        if page.get("next_cursor").is_some_and(Value::is_string) {
            let which = if self.from.is_none() { "earlier" } else { "later" };
            session
                .show
                .progress(&format!("{which} records aren't shown: raise --limit, or begin with --from SEQ"));
        }
        Ok(Exit::Done)
    }
}

fn row(item: &Value) -> [String; 8] {
    // An item is a record, or a record with its hash beside it.
    let r = item.get("record").unwrap_or(item);
    let actor =
        r.get("actor").map(|a| format!("{}:{}", cell(a, "type"), cell(a, "name"))).unwrap_or_default();
    [
        cell(r, "seq"),
        time(r.get("at").unwrap_or(&Value::Null)),
        cell(r, "kind"),
        actor,
        cell(r, "task"),
        cell(r, "step"),
        cell(r, "edge"),
        what(r.get("data").unwrap_or(&Value::Null)),
    ]
}

/// The telling members of a record's data.
fn what(data: &Value) -> String {
    let telling = [
        "dir",
        "from",
        "to",
        "decision",
        "what",
        "name",
        "act",
        "entry",
        "amount_microusd",
        "status",
        "outcome",
        "reason",
    ];
    let said = telling.iter().filter_map(|m| data.get(*m)).filter(|v| !v.is_null() && !v.is_object());
    said.map(plain).collect::<Vec<_>>().join(" ")
}

impl Verify {
    async fn run(
        self,
        show: &Show,
        session: impl FnOnce() -> Result<Session, Failure>,
    ) -> Result<Exit, Failure> {
        let mut signer = None;
        let verification = match (&self.file, &self.key) {
            (Some(file), Some(key)) => {
                let pem = key.trim_start_matches('@').as_ref();
                let (verification, other) = offline::verify(file, pem, self.held.as_deref())?;
                signer = other;
                verification
            }
            (Some(_), None) => {
                return Err(Failure::usage("--file needs the ledger's public key")
                    .next("add --key PEM, which `exeat audit key` prints"));
            }
            (None, key) => {
                let session = session()?;
                let session = match key {
                    Some(key) => session.with_key(key)?,
                    None => session,
                };
                let call = Call::get(&["ledger", "verify"]).long_poll(Duration::from_secs(600));
                session.client.json(&call).await?
            }
        };
        show.result(&verification, |style| verified(style, &verification))?;
        if verification.get("verified") == Some(&Value::Bool(true)) {
            return Ok(Exit::Done);
        }
        let bad = verification.get("first_bad").unwrap_or(&Value::Null);
        if let Some(signer) = signer {
            let problem = Problem::new(
                "not_verified",
                format!("the export is signed by another key than this PEM: {signer}"),
            )
            .next("use the PEM that `exeat audit key` printed of that ledger");
            return Err(Failure::of(Exit::Unverified, problem));
        }
        let detail = match bad.get("seq").filter(|seq| **seq != json!(0)) {
            Some(seq) => format!("record {}: {}", plain(seq), cell(bad, "why")),
            None => match cell(bad, "why") {
                why if why.is_empty() => "the ledger doesn't verify".to_owned(),
                why => format!("it can't be begun: {why}"),
            },
        };
        let problem =
            Problem::new("not_verified", detail).next("keep the export, and compare with earlier heads");
        Err(Failure::of(Exit::Unverified, problem))
    }
}

fn verified(style: Style, v: &Value) -> String {
    let checkpoint = v.get("checkpoint").unwrap_or(&Value::Null);
    let bad = v.get("first_bad").filter(|b| !b.is_null());
    if let Some(bad) = bad.filter(|b| b.get("seq") == Some(&json!(0))) {
        // Nothing was read, so there is nothing to count.
        return fields(style, &[("verified", cell(v, "verified")), ("header", cell(bad, "why"))]);
    }
    fields(
        style,
        &[
            ("verified", cell(v, "verified")),
            ("records", cell(v, "records")),
            ("edges", cell(v, "edges")),
            ("costs balanced", cell(v, "costs_balanced")),
            ("head", cell(v, "head")),
            ("signed", time(checkpoint.get("at").unwrap_or(&Value::Null))),
            ("signed by", cell(checkpoint, "key")),
            ("first bad", bad.map(|b| format!("{} {}", cell(b, "seq"), cell(b, "why"))).unwrap_or_default()),
        ],
    )
}

impl Export {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let call =
            Call::get(&["ledger", "export"]).query_if("from", self.from).long_poll(Duration::from_secs(60));
        let mut stream = session.client.open(&call).await?;
        let mut last = b'\n';
        while let Some(piece) = stream.piece(Duration::from_secs(120)).await? {
            last = piece.last().copied().unwrap_or(last);
            session.show.bytes(&piece)?;
        }
        if last != b'\n' {
            return Err(CallError::Unreachable("the export broke off in a line".to_owned()).into());
        }
        Ok(Exit::Done)
    }
}
