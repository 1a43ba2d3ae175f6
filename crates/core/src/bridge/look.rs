//! Waiting: what is done about a bridge that is due, what a look brings, and what a pushed event is worth.
//!
//! Push is a hint, the look is the truth. A pushed claim is believed only when the agent, asked with our
//! credential at the registered origin, shows the same, or where the entry's posture says that bodies count.

use crate::bridge::schedule::{LAST_LOOK, LOOK_LEASE, LOST_SPAN, RECHECKS, next_look};
use crate::bridge::state::{Event, Shown};
use crate::bridge::{Bridge, BridgeState, InboxRow, LookLease, PushClaim};
use crate::change::DeadKind;
use crate::gate::exeat::{Address, Bound, LookFor};
use crate::gate::may_look;
use crate::id::HopId;
use crate::ledger::SaltedDigest;
use crate::payload::Payload;
use crate::reason::ReasonCode;
use crate::registry::{AgentStatus, CallbackTrust};
use crate::task::desk::{Desk, Refusal};
use crate::task::{End, Ending};
use crate::time::{Span, Timestamp};
use crate::transport::{ForeignState, ForeignTask, LookOutcome};

/// What a due row wants.
#[derive(Debug)]
pub enum Wanted {
    /// The desk has moved what there was to move.
    Moved,
    /// The agent must be asked first, once the lease of that look is durable: its number.
    Look(Address, LookFor, u32),
}

/// What a look's answer is worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// It says how things stand.
    Fresh,
    /// Its lease is another look's by now, or something was sent since it set out: it changes nothing.
    Stale,
}

impl Desk<'_> {
    /// A bridge is due.
    pub(crate) fn bridge_due(&mut self, id: HopId) -> Result<Wanted, Refusal> {
        let now = self.now();
        let bridge = self.bridge(id)?.clone();
        if bridge.state.is_terminal() || bridge.due_at.is_none_or(|d| d > now) {
            return Ok(Wanted::Moved);
        }
        let overdue = bridge.deadline.is_some_and(|d| d <= now);
        match bridge.state {
            BridgeState::Sending { n, until } if until <= now => self.lease_over(id, n)?,
            BridgeState::Sending { until, .. } => self.bridge_mut(id)?.due_at = Some(until),
            _ if overdue && self.last_look_is_over(&bridge) => self.time_out(id)?,
            BridgeState::AwaitingApproval => self.approval_due(&bridge)?,
            BridgeState::Ready => self.ready_due(id)?,
            BridgeState::SendUnknown { since } => return self.unknown_due_now(id, &bridge, since),
            _ => return self.look_at(id, &bridge),
        }
        Ok(Wanted::Moved)
    }

    fn last_look_is_over(&self, bridge: &Bridge) -> bool {
        let deadline = bridge.deadline.unwrap_or(self.now());
        !bridge.state.is_parked() || self.address(bridge).is_none() || deadline + LAST_LOOK <= self.now()
    }

    /// Has the task's deadline passed?
    pub(crate) fn is_overdue(&self) -> bool {
        self.task.deadline.is_some_and(|d| d <= self.now())
    }

    /// Does an overdue task wait for the last look at something that is out?
    pub(crate) fn takes_a_last_look(&self) -> bool {
        let waits = |b: &Bridge| b.deadline.is_some_and(|d| d <= self.now()) && !self.last_look_is_over(b);
        self.is_overdue() && self.bridges.values().any(|t| waits(&t.row))
    }

    fn approval_due(&mut self, bridge: &Bridge) -> Result<(), Refusal> {
        match bridge.approval {
            Some(a) => self.expire(a),
            None => self.deny_turn(bridge.hop, ReasonCode::ApprovalExpired, ""),
        }
    }

    /// Where a look goes, if it may: the pinned entry, the interface that the attempt used.
    pub(crate) fn address(&self, bridge: &Bridge) -> Option<Address> {
        let agent = self.ctx.registry.agent_at(&bridge.agent, bridge.registry_version)?;
        let at = self.whereabouts(bridge)?;
        let until = bridge.deadline.map(|d| d + self.ctx.registry.bounds.callback_grace);
        let door = bridge.callback.clone().zip(until);
        may_look(self.ctx.registry, agent).then(|| Address {
            hop: bridge.hop,
            agent: agent.clone(),
            at,
            door,
        })
    }

    /// The interface of the last attempt that told of one, else what the turn is bound to. An origin alone means that
    /// the card is asked again: only of an entry that still is as it was signed, and not while an attempt is out that
    /// will tell.
    fn whereabouts(&self, bridge: &Bridge) -> Option<Bound> {
        if let Some(interface) = &bridge.interface {
            return Some(Bound::Interface(interface.clone()));
        }
        let is_signed = || {
            let now = self.ctx.registry.agent(&bridge.agent);
            now.is_some_and(|a| a.version == bridge.registry_version && a.status == AgentStatus::Active)
        };
        let will_tell = || {
            use BridgeState as S;
            matches!(bridge.state, S::Sending { .. } | S::Ready | S::AwaitingApproval)
        };
        match &bridge.bound {
            Bound::Interface(_) => Some(bridge.bound.clone()),
            Bound::Origin(_) => (!will_tell() && is_signed()).then(|| bridge.bound.clone()),
        }
    }

    /// Asks for the foreign task; where none is known, for the tasks of our conversation.
    pub(crate) fn look_at(&mut self, id: HopId, bridge: &Bridge) -> Result<Wanted, Refusal> {
        if let Some(out) = bridge.look_out(self.now()) {
            self.bridge_mut(id)?.due_at = Some(out.until);
            return Ok(Wanted::Moved);
        }
        let ask = match &bridge.foreign {
            Some(f) => LookFor::Task(f.task.clone()),
            None => LookFor::Context(bridge.context_id),
        };
        match self.address(bridge) {
            Some(address) => self.lease_look(id, address, ask),
            // Halted, off or revoked: nothing may be asked now.
            None => {
                let due = self.now() + self.ctx.registry.bounds.poll_max.min(Span::of_secs(30));
                let due = bridge.deadline.map_or(due, |d| if d > self.now() { due.min(d) } else { due });
                self.bridge_mut(id)?.due_at = Some(self.within_grace(bridge, due));
                Ok(Wanted::Moved)
            }
        }
    }

    /// Takes the lease of a look. A switch that was thrown meanwhile makes its commit decide anew.
    fn lease_look(&mut self, id: HopId, address: Address, ask: LookFor) -> Result<Wanted, Refusal> {
        let until = self.now() + LOOK_LEASE;
        self.judged();
        let bridge = self.bridge_mut(id)?;
        bridge.looks += 1;
        let n = bridge.looks;
        bridge.look = Some(LookLease { n, until, turn: bridge.turn, begun: bridge.begun });
        if bridge.state.is_parked() || matches!(bridge.state, BridgeState::SendUnknown { .. }) {
            bridge.due_at = Some(until);
        }
        Ok(Wanted::Look(address, ask, n))
    }

    /// A look is back: another may set out, and what waited for that is due.
    fn back(&mut self, id: HopId, n: u32) -> Result<Sight, Refusal> {
        let now = self.now();
        let bridge = self.bridge_mut(id)?;
        let Some(lease) = bridge.look.filter(|l| l.n == n) else { return Ok(Sight::Stale) };
        bridge.look = None;
        if bridge.due_at == Some(lease.until) {
            bridge.due_at = Some(now);
        }
        let fresh = (lease.turn, lease.begun) == (bridge.turn, bridge.begun);
        let waits = |d: Timestamp| d <= now || d == lease.until;
        for t in self.inbox.values_mut().filter(|t| t.row.hop == id && t.row.due_at.is_some_and(waits)) {
            t.row.due_at = Some(now);
        }
        Ok(if fresh { Sight::Fresh } else { Sight::Stale })
    }

    /// The deadline has passed.
    pub(crate) fn time_out(&mut self, id: HopId) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let claimed = self.bridge(id)?.claimed;
        self.bury(DeadKind::Timeout, &hop, ReasonCode::Deadline, "", claimed);
        let end = End::badly(Ending::TimedOut, ReasonCode::Deadline, "");
        self.stop_bridge(id, Event::Deadline, &end)?;
        self.end_hop(id, end)
    }

    /// A look is over.
    pub(crate) fn looked(&mut self, id: HopId, n: u32, outcome: &LookOutcome) -> Result<(), Refusal> {
        match self.back(id, n)? {
            Sight::Fresh => self.saw(id, outcome),
            Sight::Stale => Ok(()),
        }
    }

    fn saw(&mut self, id: HopId, outcome: &LookOutcome) -> Result<(), Refusal> {
        let now = self.now();
        if self.bridge(id)?.state.is_terminal() {
            let LookOutcome::Task(task) = outcome else { return Ok(()) };
            return self.takes(id, Event::Shown(Shown::from(task.state)));
        }
        let bridge = self.bridge_mut(id)?;
        bridge.quiet_looks += 1;
        let state = bridge.state;
        match outcome {
            LookOutcome::Task(task) => self.looked_task(id, task, state)?,
            LookOutcome::NotFound => self.not_found(id)?,
            LookOutcome::Nothing { after, .. } => self.look_later(id, *after)?,
            LookOutcome::Tasks(tasks) => self.listed(id, tasks)?,
            LookOutcome::Unsupported => self.cannot_be_asked(id)?,
        }
        let bridge = self.bridge(id)?;
        if !bridge.state.is_terminal() && bridge.deadline.is_some_and(|d| d <= now) {
            self.time_out(id)?;
        }
        Ok(())
    }

    fn looked_task(&mut self, id: HopId, task: &ForeignTask, state: BridgeState) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let ours = bridge.foreign.as_ref().is_some_and(|f| f.task == task.id);
        if !ours && !self.is_provably_ours(bridge, task) {
            return self.look_later(id, None);
        }
        let arrived = task.message_ids.iter().any(|m| *m == bridge.message_id.to_string());
        let moved = task.state != ForeignState::InputRequired || arrived;
        match state {
            // Our answer is out and the agent shows the old question still.
            BridgeState::Sending { .. } | BridgeState::SendUnknown { .. }
                if bridge.question.is_some() && !moved =>
            {
                self.look_later(id, None)
            }
            // Its answer may be on its way still; only the holder of the fence, or proof, moves it.
            BridgeState::Ready | BridgeState::AwaitingApproval => self.look_later(id, None),
            _ => self.shows_its_own(id, task),
        }
    }

    /// Is this foreign task the one that our message made? Shown by our context id or message id in it, or by a push
    /// that named it at the door which only who got the message knows.
    fn is_provably_ours(&self, bridge: &Bridge, task: &ForeignTask) -> bool {
        let context = task.context.as_deref() == Some(bridge.context_id.to_string().as_str());
        let message = bridge.message_ids.iter().any(|m| task.message_ids.contains(&m.to_string()));
        let at_our_door = |r: &InboxRow| r.hop == bridge.hop && r.foreign_task.as_ref() == Some(&task.id);
        bridge.foreign.is_none() && (context || message || self.inbox.values().any(|t| at_our_door(&t.row)))
    }

    fn not_found(&mut self, id: HopId) -> Result<(), Refusal> {
        let now = self.now();
        let needed = self.ctx.registry.bounds.lost_looks;
        let bridge = self.bridge_mut(id)?;
        bridge.lost += 1;
        let since = *bridge.lost_since.get_or_insert(now);
        if bridge.foreign.is_none() || bridge.lost < needed || now.since(since) < LOST_SPAN {
            return self.look_later(id, None);
        }
        let claimed = bridge.claimed;
        let hop = self.hop(id)?.clone();
        self.bury(DeadKind::Lost, &hop, ReasonCode::ForeignTaskLost, "", claimed);
        self.give_up(id, ReasonCode::ForeignTaskLost, "")
    }

    pub(crate) fn look_later(&mut self, id: HopId, asked: Option<Span>) -> Result<(), Refusal> {
        let now = self.now();
        let bridge = self.bridge(id)?.clone();
        let due = next_look(&bridge, &self.ctx.registry.bounds, now, asked, &mut self.ids);
        let due = self.within_grace(&bridge, due);
        if !matches!(
            bridge.state,
            BridgeState::Sending { .. } | BridgeState::Ready | BridgeState::AwaitingApproval
        ) {
            self.bridge_mut(id)?.due_at = Some(due);
        }
        Ok(())
    }

    /// Pushed events of a hop are due: all that are unread, at once.
    pub(crate) fn push_due(&mut self, id: HopId) -> Result<Wanted, Refusal> {
        let rows: Vec<InboxRow> = self.unread(id);
        let bridge = self.bridge(id)?.clone();
        if let Some(b) = self.bridges.get_mut(&id).filter(|b| !b.row.state.is_terminal()) {
            b.row.push.arrived = true;
        }
        if bridge.state.is_terminal() {
            self.late_pushes(id, &rows, "after_the_end")?;
            return Ok(Wanted::Moved);
        }
        let asking: Vec<&InboxRow> = rows.iter().filter(|r| r.claim.asks_for_a_look()).collect();
        let Some(newest) = asking.iter().max_by_key(|r| (r.at, r.id)) else {
            self.mark_read(id);
            return Ok(Wanted::Moved);
        };
        if self.body_counts(&bridge)
            && let Some(row) = asking.iter().find(|r| r.body.is_some() && r.n == bridge.begun)
        {
            let task = self.claimed_task(&bridge, row)?;
            self.mark_read(id);
            if let Some(task) = task {
                self.believe(id, row.claim, &task)?;
                return Ok(Wanted::Moved);
            }
        }
        if let Some(body) = newest.body {
            self.bridge_mut(id)?.claimed.get_or_insert(body);
        }
        if let Some(out) = bridge.look_out(self.now()) {
            for t in self.inbox.values_mut().filter(|t| t.row.hop == id && t.row.due_at.is_some()) {
                t.row.due_at = Some(out.until);
            }
            return Ok(Wanted::Moved);
        }
        let known = bridge.foreign.as_ref().map(|f| f.task.clone());
        let address = self.address(&bridge);
        match (address, known.or_else(|| newest.foreign_task.clone())) {
            (Some(address), Some(task)) => self.lease_look(id, address, LookFor::Task(task)),
            // Before the send's answer nobody knows where to ask: wait for it.
            _ => {
                self.recheck(id);
                Ok(Wanted::Moved)
            }
        }
    }

    fn body_counts(&self, bridge: &Bridge) -> bool {
        self.ctx
            .registry
            .agent_at(&bridge.agent, bridge.registry_version)
            .is_some_and(|a| a.posture.callback_trust == CallbackTrust::Body && !a.posture.token_in_query)
    }

    fn claimed_task(&self, bridge: &Bridge, row: &InboxRow) -> Result<Option<ForeignTask>, Refusal> {
        let Some(state) = row.claim.state() else { return Ok(None) };
        let Some(sealed) = row.body.and_then(|b| self.sealed_by_id(b)) else { return Ok(None) };
        let output =
            Payload::from_bytes(&sealed.bytes).map_err(|e| Refusal::Wrong(format!("a pushed body: {e}")))?;
        let id = bridge.foreign.as_ref().map(|f| f.task.clone()).or_else(|| row.foreign_task.clone());
        Ok(Some(ForeignTask {
            id: id.unwrap_or_default(),
            context: row.foreign_context.clone(),
            state,
            output,
            message_ids: Vec::new(),
            reported_microusd: None,
        }))
    }

    fn believe(&mut self, id: HopId, claim: PushClaim, task: &ForeignTask) -> Result<(), Refusal> {
        let bridge = self.bridge(id)?;
        let at_the_agent = bridge.state.is_parked()
            || matches!(bridge.state, BridgeState::Sending { .. } | BridgeState::SendUnknown { .. });
        let old = claim == PushClaim::InputRequired && bridge.question.is_some() && !bridge.state.is_parked();
        // While our answer is out, a body can't show whether it asks anew; a look will.
        if !at_the_agent || old {
            return Ok(());
        }
        if claim == PushClaim::Message {
            return if bridge.foreign.is_none() {
                self.completed_hop(id, &task.output, None)
            } else {
                Ok(())
            };
        }
        if task.id.is_empty() { self.agent_shows(id, task) } else { self.shows_its_own(id, task) }
    }

    /// A look that a pushed event asked for is over.
    pub(crate) fn push_looked(&mut self, id: HopId, n: u32, outcome: &LookOutcome) -> Result<(), Refusal> {
        if self.back(id, n)? == Sight::Stale {
            return Ok(());
        }
        let rows = self.unread(id);
        if let Some(b) = self.bridges.get_mut(&id).filter(|b| !b.row.state.is_terminal()) {
            b.row.push.arrived = true;
        }
        self.saw(id, outcome)?;
        let state = self.bridge(id)?.state;
        if state.is_terminal() {
            // A claim of another end than the one that was seen is kept as what it is.
            let ends: Vec<InboxRow> = rows.into_iter().filter(|r| r.claim.is_an_end()).collect();
            return self.late_pushes(id, &ends, "not_borne_out");
        }
        let mut asking = rows.iter().filter(|r| r.claim.asks_for_a_look());
        let borne_out = asking.all(|r| match r.claim {
            PushClaim::InputRequired => state == BridgeState::InputRequired,
            PushClaim::AuthRequired => state == BridgeState::AuthRequired,
            PushClaim::Unknown => true,
            _ => false,
        });
        if borne_out {
            self.mark_read(id);
        } else {
            self.recheck(id);
        }
        Ok(())
    }

    fn unread(&self, id: HopId) -> Vec<InboxRow> {
        self.inbox.values().map(|t| &t.row).filter(|r| r.hop == id && r.due_at.is_some()).cloned().collect()
    }

    fn mark_read(&mut self, id: HopId) {
        for t in self.inbox.values_mut().filter(|t| t.row.hop == id) {
            t.row.due_at = None;
        }
    }

    /// A claim that wasn't borne out is looked at again a few times: agents push before they store.
    fn recheck(&mut self, id: HopId) {
        let now = self.now();
        for t in self.inbox.values_mut().filter(|t| t.row.hop == id && t.row.due_at.is_some()) {
            let pause = RECHECKS.get(t.row.checks as usize);
            t.row.checks += 1;
            t.row.due_at = pause.filter(|_| t.row.claim.asks_for_a_look()).map(|p| now + *p);
        }
    }

    /// What didn't decide the end is recorded and changes nothing. A result for which the end left no other is kept, for
    /// people to take in.
    fn late_pushes(&mut self, id: HopId, rows: &[InboxRow], why: &'static str) -> Result<(), Refusal> {
        let ended = self.bridge(id)?.state;
        for row in rows.iter().filter(|r| r.claim.asks_for_a_look()) {
            let shown = row.claim.state().map(Shown::from);
            // What says the same as the end that is recorded is no news: the agent pushes, too, what a look showed.
            let is_news = shown.is_none_or(|s| BridgeState::Working.on(Event::Shown(s)) != Ok(ended));
            if let Some(shown) = shown {
                self.takes(id, Event::Shown(shown))?;
            }
            if !is_news {
                continue;
            }
            let digest = row.body.and_then(|b| self.sealed_by_id(b)).map(SaltedDigest::from);
            self.record_note(id, "push", why, digest);
            let is_lacking = matches!(ended, BridgeState::Failed | BridgeState::TimedOut);
            if is_lacking && shown == Some(Shown::Completed) {
                self.keep_late(id, row)?;
            }
        }
        self.mark_read(id);
        Ok(())
    }

    /// One result a hop is kept: the first that came.
    fn keep_late(&mut self, id: HopId, row: &InboxRow) -> Result<(), Refusal> {
        let bridge = self.bridge_mut(id)?;
        if bridge.claimed.is_some() || row.body.is_none() {
            return Ok(());
        }
        bridge.claimed = row.body;
        let code = bridge.reason.as_ref().map_or(ReasonCode::ForeignFailed, |r| r.code);
        let hop = self.hop(id)?.clone();
        self.bury(DeadKind::Late, &hop, code, "a result came all the same", row.body);
        Ok(())
    }
}
