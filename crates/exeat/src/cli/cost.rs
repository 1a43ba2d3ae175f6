//! `exeat cost`: what was spent, and on what.

use clap::{Args, Subcommand};
use exeat_core::id::Malformed;
use exeat_core::time::Timestamp;
use serde_json::Value;

use super::Session;
use crate::client::Call;
use crate::failure::{Exit, Failure};
use crate::show::table::{cell, money, table};

/// What was spent, and on what
#[derive(Debug, Subcommand)]
pub(crate) enum Cost {
    Show(CostShow),
}

/// Sum what was spent and what is reserved
#[derive(Debug, Args)]
#[command(after_help = "\
A time is RFC 3339 or a day (its beginning, UTC); what lies at --from counts, what lies at
--to doesn't.

Examples:
  exeat cost show
  exeat cost show --by day --from 2026-01-01 --to 2026-02-01
  exeat cost show --by task --json")]
pub(crate) struct CostShow {
    /// agent, workflow, task or day
    #[arg(long, value_name = "WHAT", default_value = "agent")]
    #[arg(value_parser = ["agent", "workflow", "task", "day"])]
    by: String,
    /// Not what was before
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Not what was at that time or later
    #[arg(long, value_name = "TIME")]
    to: Option<Moment>,
}

/// A time, or the beginning of a day.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(Timestamp);

impl std::str::FromStr for Moment {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let day = s.len() == 10 && s.is_ascii();
        let text = if day { format!("{s}T00:00:00Z") } else { s.to_owned() };
        let bad = || Malformed::new("time", "2026-01-31 or RFC 3339 like 2026-01-31T12:00:00Z", s);
        text.parse().map(Self).map_err(|_| bad())
    }
}

impl Cost {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let Self::Show(args) = self;
        let call = Call::get(&["costs"])
            .query("by", &args.by)
            .query_if("from", args.from.map(|m| m.0))
            .query_if("to", args.to.map(|m| m.0));
        let costs = session.client.json(&call).await?;
        let items = costs.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let amount = |line: &Value, member: &str| money(line.get(member).unwrap_or(&Value::Null));
        let mut rows: Vec<_> = items
            .iter()
            .map(|l| {
                let (settled, reserved) = (amount(l, "settled_microusd"), amount(l, "reserved_microusd"));
                [cell(l, "key"), cell(l, "hops"), settled, reserved]
            })
            .collect();
        rows.push(["total".to_owned(), String::new(), amount(&costs, "total_microusd"), String::new()]);
        let by = args.by.to_uppercase();
        session.show.result(&costs, |style| table(style, [&by, "HOPS", "SPENT", "RESERVED"], &rows))?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_its_beginning() {
        let read = |s: &str| s.parse::<Moment>().ok();
        assert_eq!(read("2026-01-31"), read("2026-01-31T00:00:00Z"));
        assert_eq!(read("2026-01-31T01:00:00+01:00"), read("2026-01-31"));
        for bad in ["", "yesterday", "2026-01-31T12:00:00", "2026-13-01", "2026-1-1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
