//! `exeat egress`, `role`, `budget`: what may leave, who may see and ask what, and what it may cost.

use clap::{Args, Subcommand};
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{AgentKey, Malformed, RoleName, TeamName, WorkflowName};
use serde_json::{Value, json};

use super::Session;
use super::given::{self, LabelText};
use crate::client::Call;
use crate::failure::{Exit, Failure};
use crate::show::table::{Style, cell, fields, money, plain, table};

/// Let hops out, or nothing
#[derive(Debug, Subcommand)]
pub(crate) enum Egress {
    /// Let hops out
    #[command(after_help = "Example:\n  exeat egress on --reason 'go live'")]
    On(Mode),
    /// Let nothing out: no connection, not even a look-up of a name
    Off(Off),
    /// Let only hops go on that have begun
    #[command(after_help = "Example:\n  exeat egress drain --reason 'maintenance at six'")]
    Drain(Mode),
    /// The kill switch: hops wait, none is denied
    #[command(after_help = "Example:\n  exeat egress halt --reason 'incident 12'")]
    Halt(Mode),
    /// Show the mode
    #[command(after_help = "Example:\n  exeat egress show")]
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct Mode {
    /// Why; it is recorded
    #[arg(long, value_name = "TEXT", default_value = "by command")]
    reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  exeat egress off --reason 'maintenance'\n  exeat egress off --strand")]
pub(crate) struct Off {
    /// Why; it is recorded
    #[arg(long, value_name = "TEXT", default_value = "by command")]
    reason: String,
    /// Even if hops are out, whose answers then can't be fetched
    #[arg(long)]
    strand: bool,
}

impl Egress {
    fn body(&self) -> Option<Value> {
        Some(match self {
            Self::On(m) => json!({ "mode": "on", "reason": m.reason }),
            Self::Drain(m) => json!({ "mode": "drain", "reason": m.reason }),
            Self::Halt(m) => json!({ "mode": "halt", "reason": m.reason }),
            Self::Off(m) if m.strand => json!({ "mode": "off", "reason": m.reason, "strand": true }),
            Self::Off(m) => json!({ "mode": "off", "reason": m.reason }),
            Self::Show => return None,
        })
    }

    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let call = match self.body() {
            Some(body) => Call::put(&["egress"], &body),
            None => Call::get(&["egress"]),
        };
        let answer = session.client.json(&call).await?;
        session.show.result(&answer, |style| members(style, &answer))?;
        Ok(Exit::Done)
    }
}

/// What a role may see, and whom it may ask
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    Set(RoleSet),
    /// List roles
    #[command(after_help = "Example:\n  exeat role list")]
    List,
    /// Show a role
    #[command(after_help = "Example:\n  exeat role show writer")]
    Show {
        /// The role
        #[arg(value_name = "NAME")]
        name: RoleName,
    },
}

/// Write a role; what isn't given is as for a role that was never written
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat role set writer --may agent:auditor --may role:reviewer
  exeat role set lawyer --clearance confidential+eu --team legal")]
pub(crate) struct RoleSet {
    /// The role
    #[arg(value_name = "NAME")]
    name: RoleName,
    /// What its workers may see
    #[arg(long, value_name = "LABEL")]
    clearance: Option<LabelText>,
    /// Whom its workers may delegate to; nobody if never given
    #[arg(long = "may", value_name = "ENDPOINT")]
    may: Vec<Endpoint>,
    /// A team that it belongs to
    #[arg(long = "team", value_name = "TEAM")]
    teams: Vec<TeamName>,
}

impl RoleSet {
    fn body(&self) -> Value {
        given::members([
            ("clearance", self.clearance.as_ref().map(|l| l.0.clone())),
            ("may", Some(json!(self.may))),
            ("teams", Some(json!(self.teams))),
        ])
    }
}

impl Role {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::Set(args) => {
                let role =
                    session.client.json(&Call::put(&["roles", args.name.as_str()], &args.body())).await?;
                session.show.result(&role, |style| members(style, &role))?;
            }
            Self::List => {
                let page = session.client.pages(Call::get(&["roles"]), 1_000).await?;
                let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let rows: Vec<_> = items
                    .iter()
                    .map(|r| [cell(r, "name"), cell(r, "clearance"), cell(r, "may"), cell(r, "teams")])
                    .collect();
                session
                    .show
                    .result(&page, |style| table(style, ["ROLE", "CLEARANCE", "MAY", "TEAMS"], &rows))?;
            }
            Self::Show { name } => {
                let role = session.client.json(&Call::get(&["roles", name.as_str()])).await?;
                session.show.result(&role, |style| members(style, &role))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Limit what an org, agent or workflow may cost
#[derive(Debug, Subcommand)]
pub(crate) enum Budget {
    Set(BudgetSet),
}

/// Set a budget: reservations beyond it are denied
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  exeat budget set org 50000000 --period month
  exeat budget set agent:auditor 1000000 --period day
  exeat budget set workflow:invoice-check 2000000")]
pub(crate) struct BudgetSet {
    /// org, agent:KEY or workflow:NAME
    scope: BudgetScope,
    /// In micro-dollars
    #[arg(value_name = "MICROUSD")]
    limit: u64,
    /// After which it starts anew
    #[arg(long, value_name = "PERIOD", default_value = "none", value_parser = ["day", "month", "none"])]
    period: String,
}

/// What a budget limits.
#[derive(Clone, Debug, PartialEq)]
enum BudgetScope {
    Org,
    Agent(AgentKey),
    Workflow(WorkflowName),
}

impl std::str::FromStr for BudgetScope {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        match s.split_once(':') {
            None if s == "org" => Ok(Self::Org),
            Some(("agent", key)) => key.parse().map(Self::Agent),
            Some(("workflow", name)) => name.parse().map(Self::Workflow),
            _ => Err(Malformed::new("budget scope", "org, agent:KEY or workflow:NAME", s)),
        }
    }
}

impl std::fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Org => f.write_str("org"),
            Self::Agent(k) => write!(f, "agent:{k}"),
            Self::Workflow(n) => write!(f, "workflow:{n}"),
        }
    }
}

impl Budget {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let Self::Set(args) = self;
        let body = json!({ "limit_microusd": args.limit, "period": args.period });
        let set = session.client.json(&Call::put(&["budgets", &args.scope.to_string()], &body)).await?;
        session.show.result(&set, |_| {
            let per = if args.period == "none" { String::new() } else { format!(" a {}", args.period) };
            format!("{}: {}{per}", args.scope, money(&json!(args.limit)))
        })?;
        Ok(Exit::Done)
    }
}

/// All members of an object.
pub(super) fn members(style: Style, object: &Value) -> String {
    let members = object.as_object().into_iter().flatten();
    fields(style, &members.map(|(name, value)| (name.as_str(), plain(value))).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_of_the_org_an_agent_or_a_workflow() {
        for ok in ["org", "agent:a", "workflow:invoice-check"] {
            assert_eq!(ok.parse::<BudgetScope>().map(|s| s.to_string()), Ok(ok.to_owned()));
        }
        for bad in ["", "agent", "agent:", "role:x", "org:x", "workflow:A"] {
            assert!(bad.parse::<BudgetScope>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_off_can_strand_hops() {
        let off = |strand| Egress::Off(Off { reason: "r".into(), strand }).body();
        assert_eq!(off(false), Some(json!({"mode": "off", "reason": "r"})));
        assert_eq!(off(true), Some(json!({"mode": "off", "reason": "r", "strand": true})));
        let on = Egress::On(Mode { reason: "r".into() }).body();
        assert_eq!(on, Some(json!({"mode": "on", "reason": "r"})));
        assert_eq!(Egress::Show.body(), None);
    }
}
