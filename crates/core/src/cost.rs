//! Money: integers in millionths of a dollar, reserved before a hop leaves and settled once per turn.
//!
//! Promise P5: per turn, reserved + overrun = settled + released, on the accounts pinned at reservation.
//! The balance of an account is checked where it is locked, inside the commit, never before.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{AgentKey, HopId, TaskId, WorkflowName};
use crate::ledger::data::CostEntry;
use crate::ledger::data::CostRule;
use crate::registry::Price;
use crate::time::{Span, Timestamp};

/// Whose money.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole org's.
    Org,
    /// What goes to one foreign agent.
    Agent(AgentKey),
    /// What one workflow spends, all versions.
    Workflow(WorkflowName),
    /// What one task spends.
    Task(TaskId),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Org => f.write_str("org"),
            Self::Agent(k) => write!(f, "agent:{k}"),
            Self::Workflow(n) => write!(f, "workflow:{n}"),
            Self::Task(t) => write!(f, "task:{t}"),
        }
    }
}

/// When a budget starts anew (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// Each day.
    Day,
    /// Each month.
    Month,
    /// Never.
    None,
}

impl Period {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Day, Self::Month, Self::None];

    /// When the period that holds `now` began.
    #[must_use]
    pub fn start(self, now: Timestamp) -> Timestamp {
        let zoned = jiff::Timestamp::from_microsecond(now.micros())
            .map(|t| t.to_zoned_datetime(jiff::tz::TimeZone::UTC));
        let start = match (self, zoned) {
            (Self::None, _) | (_, Err(_)) => return Timestamp::EPOCH,
            (Self::Day, Ok(z)) => z.start_of_day(),
            (Self::Month, Ok(z)) => z.first_of_month().and_then(|z| z.start_of_day()),
        };
        start.map_or(Timestamp::EPOCH, |z| Timestamp::of_micros(z.timestamp().as_microsecond()))
    }
}

/// A limit on a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// At most this much settled and reserved together.
    pub limit_microusd: u64,
    /// Within this period.
    pub period: Period,
}

/// One balance: a scope within one period.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account {
    /// Whose.
    pub scope: Scope,
    /// When its period began.
    pub since: Timestamp,
}

/// The accounts of a scope with their limits: one per period, each of which moves whatever budget is in force, so that a
/// budget that is set or changed begins with what was spent in its period. On the first of a month day and month are one.
#[must_use]
pub fn accounts_of(scope: &Scope, budget: Option<&Budget>, now: Timestamp) -> Vec<(Account, Option<u64>)> {
    let since: BTreeSet<Timestamp> = Period::ALL.into_iter().map(|p| p.start(now)).collect();
    let limit = |since| budget.filter(|b| b.period.start(now) == since).map(|b| b.limit_microusd);
    since.into_iter().map(|since| (Account { scope: scope.clone(), since }, limit(since))).collect()
}

/// What stands on an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Balance {
    /// Promised to open turns.
    pub reserved_microusd: u64,
    /// Spent.
    pub settled_microusd: u64,
}

/// One entry, with the accounts that it moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostMove {
    /// The hop.
    pub hop: HopId,
    /// Its turn.
    pub turn: u32,
    /// What.
    pub entry: CostEntry,
    /// How much.
    pub amount_microusd: u64,
    /// Accounts with their limits as they stood at the decision; pinned at the reservation.
    pub accounts: Vec<(Account, Option<u64>)>,
    /// What it takes from, or gives to, the reserved side.
    pub reserved_delta: i64,
    /// What it gives to the settled side.
    pub settled_delta: i64,
}

/// The figures of one turn that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What the agent reported.
    pub reported_microusd: Option<u64>,
    /// From the first lease to the end.
    pub elapsed: Span,
}

/// What a turn settles at, by the entry's rule.
#[must_use]
pub fn settled_amount(price: &Price, usage: &Usage) -> u64 {
    let cap = price.cap_microusd.unwrap_or(u64::MAX);
    match (price.rule, usage.reported_microusd) {
        (CostRule::ReportedClamped, Some(reported)) => {
            reported.min(price.cap_microusd.unwrap_or(price.estimate_microusd))
        }
        (CostRule::Estimate | CostRule::ReportedClamped, _) => price.estimate_microusd,
        (CostRule::Elapsed, _) => {
            let hours = usage.elapsed.micros().div_ceil(3_600_000_000).max(1);
            price.estimate_microusd.saturating_mul(hours).min(cap)
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// An amount in millionths of a dollar, as people read it.
pub(crate) struct Usd(pub(crate) u64);

impl std::fmt::Display for Usd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micro = format!("{:06}", self.0 % 1_000_000);
        let cents = micro.trim_end_matches('0');
        write!(f, "${}.{cents:0<2}", self.0 / 1_000_000)
    }
}

/// The reservation of a turn.
#[must_use]
pub fn reserve(hop: HopId, turn: u32, amount: u64, accounts: Vec<(Account, Option<u64>)>) -> CostMove {
    CostMove {
        hop,
        turn,
        entry: CostEntry::Reserve,
        amount_microusd: amount,
        accounts,
        reserved_delta: signed(amount),
        settled_delta: 0,
    }
}

/// The entries that close a turn: settled at `settled`, the rest released or overrun. None if nothing was reserved
/// and nothing is spent.
#[must_use]
pub fn close(hop: HopId, turn: u32, reserved: u64, settled: u64, accounts: &[Account]) -> Vec<CostMove> {
    let unlimited: Vec<_> = accounts.iter().map(|a| (a.clone(), None)).collect();
    let entry = |entry, amount, reserved_delta, settled_delta| CostMove {
        hop,
        turn,
        entry,
        amount_microusd: amount,
        accounts: unlimited.clone(),
        reserved_delta,
        settled_delta,
    };
    let taken = reserved.min(settled);
    let mut moves = Vec::new();
    if settled > 0 {
        moves.push(entry(CostEntry::Settle, settled, -signed(taken), signed(settled)));
    }
    if settled > reserved {
        moves.push(entry(CostEntry::Overrun, settled - reserved, 0, 0));
    }
    if reserved > settled {
        moves.push(entry(CostEntry::Release, reserved - settled, -signed(reserved - settled), 0));
    }
    moves
}

/// Applies a move to a balance. `None`: a reservation that the limit doesn't cover.
#[must_use]
pub fn apply(balance: Balance, m: &CostMove, limit: Option<u64>) -> Option<Balance> {
    let reserved = balance.reserved_microusd.saturating_add_signed(m.reserved_delta);
    let settled = balance.settled_microusd.saturating_add_signed(m.settled_delta);
    let over = m.entry == CostEntry::Reserve && limit.is_some_and(|l| reserved.saturating_add(settled) > l);
    (!over).then_some(Balance { reserved_microusd: reserved, settled_microusd: settled })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::Ids;

    fn hop() -> HopId {
        HopId::draw(&mut Ids::new(Timestamp::EPOCH, [1; 32]))
    }

    proptest! {
        #[test]
        fn a_closed_turn_adds_up_and_leaves_nothing_reserved(reserved in 0..1_000_000u64, settled in 0..1_000_000u64, other in 0..1_000_000u64) {
            let account = Account { scope: Scope::Org, since: Timestamp::EPOCH };
            let before = Balance { reserved_microusd: other, settled_microusd: other };
            let held = apply(before, &reserve(hop(), 1, reserved, vec![(account.clone(), None)]), None).unwrap();
            let moves = close(hop(), 1, reserved, settled, &[account]);
            let sum = |e| moves.iter().filter(|m| m.entry == e).map(|m| m.amount_microusd).sum::<u64>();
            prop_assert_eq!(reserved + sum(CostEntry::Overrun), sum(CostEntry::Settle) + sum(CostEntry::Release));
            let after = moves.iter().fold(held, |b, m| apply(b, m, None).unwrap());
            prop_assert_eq!(after, Balance { reserved_microusd: other, settled_microusd: other + settled });
        }
    }

    #[test]
    fn a_reservation_never_passes_its_limit_and_a_settlement_always_does() {
        let m = reserve(hop(), 1, 5, vec![]);
        let b = Balance { reserved_microusd: 3, settled_microusd: 2 };
        assert!(apply(b, &m, Some(9)).is_none());
        assert!(apply(b, &m, Some(10)).is_some());
        let spent = close(hop(), 1, 3, 100, &[]).into_iter().try_fold(b, |b, m| apply(b, &m, Some(1)));
        assert_eq!(spent, Some(Balance { reserved_microusd: 0, settled_microusd: 102 }));
    }

    #[test]
    fn the_rule_picks_the_figure_and_a_report_is_never_believed_beyond_the_cap() {
        let price = |rule, cap| Price { estimate_microusd: 10, cap_microusd: cap, rule };
        let usage = |r, s| Usage { reported_microusd: r, elapsed: Span::of_secs(s) };
        assert_eq!(settled_amount(&price(CostRule::Estimate, Some(99)), &usage(Some(50), 9)), 10);
        assert_eq!(settled_amount(&price(CostRule::ReportedClamped, Some(99)), &usage(Some(50), 9)), 50);
        assert_eq!(
            settled_amount(&price(CostRule::ReportedClamped, Some(40)), &usage(Some(u64::MAX), 9)),
            40
        );
        assert_eq!(settled_amount(&price(CostRule::ReportedClamped, None), &usage(Some(50), 9)), 10);
        assert_eq!(settled_amount(&price(CostRule::ReportedClamped, None), &usage(None, 9)), 10);
        assert_eq!(settled_amount(&price(CostRule::Elapsed, Some(25)), &usage(None, 7_201)), 25);
        assert_eq!(settled_amount(&price(CostRule::Elapsed, None), &usage(None, 7_201)), 30);
    }

    #[test]
    fn whatever_budget_is_in_force_every_period_has_its_account_and_one_the_limit() {
        let budget = |period| Budget { limit_microusd: 7, period };
        let of = |budget: Option<&Budget>, at: &str| -> Vec<(String, Option<u64>)> {
            let all = accounts_of(&Scope::Org, budget, at.parse().unwrap());
            all.into_iter().map(|(a, limit)| (a.since.to_string()[..10].to_owned(), limit)).collect()
        };
        let shown =
            |all: [(&str, Option<u64>); 3]| all.map(|(since, limit)| (since.to_owned(), limit)).to_vec();
        let at = "2026-03-17T13:45:00.000001Z";
        let [never, month, day] = ["1970-01-01", "2026-03-01", "2026-03-17"];
        assert_eq!(of(None, at), shown([(never, None), (month, None), (day, None)]));
        assert_eq!(
            of(Some(&budget(Period::None)), at),
            shown([(never, Some(7)), (month, None), (day, None)])
        );
        assert_eq!(
            of(Some(&budget(Period::Month)), at),
            shown([(never, None), (month, Some(7)), (day, None)])
        );
        assert_eq!(of(Some(&budget(Period::Day)), at), shown([(never, None), (month, None), (day, Some(7))]));
        // Never twice the same account, which would be moved twice.
        for period in [Period::Day, Period::Month] {
            let first = of(Some(&budget(period)), "2026-03-01T00:00:00Z");
            assert_eq!(first, [(never.to_owned(), None), (month.to_owned(), Some(7))]);
        }
    }

    #[test]
    fn periods_begin_at_utc_midnight_and_on_the_first() {
        let t: Timestamp = "2026-03-17T13:45:00.000001Z".parse().unwrap();
        assert_eq!(Period::Day.start(t).to_string(), "2026-03-17T00:00:00.000000Z");
        assert_eq!(Period::Month.start(t).to_string(), "2026-03-01T00:00:00.000000Z");
        assert_eq!(Period::None.start(t), Timestamp::EPOCH);
    }
}
