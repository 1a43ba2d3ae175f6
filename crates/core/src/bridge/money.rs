//! The money of a turn: reserved before it leaves, closed once when it is over.
//!
//! Promise P5: what was reserved is settled, released or overrun, on the accounts pinned at the reservation.

use crate::cost::{self, Usage};
use crate::id::HopId;
use crate::ledger::data::{CostData, CostEntry, Effects};
use crate::ledger::{Actor, Data, Dir};
use crate::registry::AgentEntry;
use crate::task::desk::{Desk, Refusal};
use crate::time::Span;

impl Desk<'_> {
    pub(crate) fn reserve(&mut self, id: HopId, agent: &AgentEntry) -> Result<(), Refusal> {
        let price = agent.terms.price.estimate_microusd;
        if self.bridge(id)?.cost.reserved_microusd != price {
            // The entry's price has changed since: the old reservation goes back to where it came from.
            self.unreserve(id)?;
        }
        let accounts = self.accounts(&agent.key);
        let bridge = self.bridge_mut(id)?;
        let turn = bridge.turn;
        if bridge.cost.reserved_microusd == price && price > 0 {
            return Ok(());
        }
        let is_counted = !bridge.cost.accounts.is_empty();
        bridge.cost.accounts = accounts.iter().map(|(a, _)| a.clone()).collect();
        if price == 0 && is_counted {
            return Ok(());
        }
        if price == 0 {
            // Nothing is promised, so no record of it; but whoever sums up costs counts the hop, and no limit
            // holds it.
            let free = accounts.into_iter().map(|(a, _)| (a, None)).collect();
            self.set.costs.push(cost::reserve(id, turn, 0, free));
            return Ok(());
        }
        bridge.cost.reserved_microusd = price;
        let m = cost::reserve(id, turn, price, accounts);
        self.record_move(id, &m, None)?;
        self.task.reserved_microusd = self.task.reserved_microusd.saturating_add(price);
        self.tell_cost(id, CostEntry::Reserve, price);
        self.set.costs.push(m);
        Ok(())
    }

    pub(crate) fn unreserve(&mut self, id: HopId) -> Result<(), Refusal> {
        if self.bridge(id)?.cost.reserved_microusd > 0 {
            self.close_turn(id, None, Effects::None)
        } else {
            Ok(())
        }
    }

    /// Closes the present turn's money: settled by the entry's rule if anything may have run, else released.
    pub(crate) fn close_turn(
        &mut self,
        id: HopId,
        reported: Option<u64>,
        effects: Effects,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let (bridge, registry) = (self.bridge(id)?.clone(), self.ctx.registry);
        let elapsed = bridge.turn_began.map_or(Span::ZERO, |t| now.since(t));
        let usage = Usage { reported_microusd: reported, elapsed };
        let price = registry
            .agent_at(&bridge.agent, bridge.registry_version)
            .map(|a| a.terms.price.clone())
            .unwrap_or_default();
        // A turn that never began, or was closed before, has nothing to settle.
        let runs = effects != Effects::None && bridge.turn_began.is_some();
        let settled = if runs { cost::settled_amount(&price, &usage) } else { 0 };
        let reserved = bridge.cost.reserved_microusd;
        for m in cost::close(id, bridge.turn, reserved, settled, &bridge.cost.accounts) {
            self.record_move(id, &m, Some(&usage))?;
            if m.entry == CostEntry::Settle {
                self.task.cost_microusd = self.task.cost_microusd.saturating_add(m.amount_microusd);
            }
            self.tell_cost(id, m.entry, m.amount_microusd);
            self.set.costs.push(m);
        }
        self.task.reserved_microusd = self.task.reserved_microusd.saturating_sub(reserved);
        let bridge = self.bridge_mut(id)?;
        if runs {
            bridge.turn_began = None;
        }
        let cost = &mut bridge.cost;
        cost.reserved_microusd = 0;
        cost.settled_microusd = cost.settled_microusd.saturating_add(settled);
        if runs {
            cost.elapsed = Span::of_micros(cost.elapsed.micros() + elapsed.micros());
            if let Some(r) = reported {
                cost.reported_microusd = Some(cost.reported_microusd.unwrap_or(0).saturating_add(r));
            }
        }
        Ok(())
    }

    fn record_move(&mut self, id: HopId, m: &cost::CostMove, usage: Option<&Usage>) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let data = CostData {
            entry: m.entry,
            amount_microusd: m.amount_microusd,
            rule: Some(bridge.cost.rule),
            estimate_microusd: Some(bridge.cost.estimate_microusd),
            reported_microusd: usage.and_then(|u| u.reported_microusd),
            elapsed_ms: usage.map(|u| u.elapsed.millis()),
        };
        let mut hop = self.hop(id)?.clone();
        hop.turn = m.turn;
        let edge = self.edge_key(&hop, Dir::A2aEgress);
        self.record_about(edge, Actor::system("coordinator"), Data::Cost(data));
        Ok(())
    }
}
