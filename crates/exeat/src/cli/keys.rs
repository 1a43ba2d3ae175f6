//! `exeat key` and `exeat org`: who may do what, and for which tenant.

use clap::{Args, Subcommand};
use exeat_core::id::{KeyId, OrgName};
use serde_json::{Value, json};

use super::Session;
use super::given::{self, LabelText};
use crate::client::Call;
use crate::failure::{Exit, Failure};
use crate::show::table::{cell, table, time};

/// API keys
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    Create(Create),
    /// List keys; their secrets are never shown again
    #[command(after_help = "Example:\n  exeat key list")]
    List,
    /// Revoke a key, within five seconds everywhere
    #[command(after_help = "Example:\n  exeat key revoke k7f3a")]
    Revoke {
        /// Its id
        #[arg(value_name = "KEY_ID")]
        id: KeyId,
    },
    /// Make callback tokens with the next key; hops in flight keep theirs
    #[command(after_help = "\
The old key verifies until the last token has expired that was made with it.

Example:
  exeat key rotate-callback")]
    RotateCallback,
}

/// Create a key; it is shown this once
#[derive(Debug, Args)]
#[command(after_help = "\
No scope includes another.

Examples:
  exeat key create --name ci --scope requester --scope viewer
  exeat key create --name ops --scope approver --approver-role ops
  exeat key create --name writers --scope worker --worker-role writer > writer.key")]
pub(crate) struct Create {
    /// What it is called in the ledger
    #[arg(long, value_name = "NAME")]
    name: String,
    /// admin, operator, approver, requester, worker, viewer or platform; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    #[arg(value_parser = ["admin", "operator", "approver", "requester", "worker", "viewer", "platform"])]
    scopes: Vec<String>,
    /// A role in which it may approve; may be repeated
    #[arg(long = "approver-role", value_name = "ROLE")]
    approver_roles: Vec<String>,
    /// A role or team whose work it may lease; may be repeated
    #[arg(long = "worker-role", value_name = "ROLE")]
    worker_roles: Vec<String>,
    /// The most its holder may see
    #[arg(long, value_name = "LABEL")]
    clearance: Option<LabelText>,
}

impl Create {
    fn body(&self) -> Value {
        let list = |l: &[String]| (!l.is_empty()).then(|| json!(l));
        given::members([
            ("name", Some(json!(self.name))),
            ("scopes", Some(json!(self.scopes))),
            ("approver_roles", list(&self.approver_roles)),
            ("worker_roles", list(&self.worker_roles)),
            ("clearance", self.clearance.as_ref().map(|l| l.0.clone())),
        ])
    }
}

impl Key {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::Create(args) => {
                let key = session.client.json(&Call::post(&["keys"], &args.body())).await?;
                session.show.progress(&format!("key {}; it is shown this once:", cell(&key, "key_id")));
                session.show.result(&key, |_| cell(&key, "key"))?;
            }
            Self::List => {
                let page = session.client.pages(Call::get(&["keys"]), 10_000).await?;
                let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let rows: Vec<_> = items
                    .iter()
                    .map(|k| {
                        let moment = |m: &str| time(k.get(m).unwrap_or(&Value::Null));
                        [
                            cell(k, "key_id"),
                            cell(k, "name"),
                            cell(k, "scopes"),
                            cell(k, "approver_roles"),
                            cell(k, "worker_roles"),
                            cell(k, "clearance"),
                            moment("revoked_at"),
                        ]
                    })
                    .collect();
                let headings = ["KEY", "NAME", "SCOPES", "APPROVES AS", "WORKS AS", "CLEARANCE", "REVOKED"];
                session.show.result(&page, |style| table(style, headings, &rows))?;
            }
            Self::RotateCallback => {
                let rotated =
                    session.client.json(&Call::post(&["callback-keys", "rotate"], &json!({}))).await?;
                session.show.result(&rotated, |_| {
                    let until = time(rotated.get("retires_at").unwrap_or(&Value::Null));
                    let old = if until.is_empty() {
                        String::new()
                    } else {
                        format!("; the old one verifies until {until}")
                    };
                    format!("callback key {}{old}", cell(&rotated, "key_id"))
                })?;
            }
            Self::Revoke { id } => {
                session.client.send(&Call::delete(&["keys", id.as_str()])).await?;
                session
                    .show
                    .result(&json!({ "key_id": id, "revoked": true }), |_| format!("revoked {id}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Tenants
#[derive(Debug, Subcommand)]
pub(crate) enum Org {
    /// Create an org; its admin key is shown this once
    #[command(after_help = "Example:\n  exeat org create acme > acme.key")]
    Create {
        /// Its name
        #[arg(value_name = "NAME")]
        name: OrgName,
    },
}

impl Org {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let Self::Create { name } = self;
        let org = session.client.json(&Call::post(&["orgs"], &json!({ "name": name }))).await?;
        session.show.progress(&format!("org {name}; its admin key is shown this once:"));
        session.show.result(&org, |_| cell(&org, "admin_key"))?;
        Ok(Exit::Done)
    }
}
