//! The simulated world: a set of foreign agents with every habit that real ones have, drawn from a seed.
//!
//! It is the transport of the walks. It knows what it was really sent and what really came of it, so that
//! a test can hold that against what Exeat believes. A calm world does its work and tells the truth.
#![expect(clippy::expect_used, reason = "a harness: what can't be stops the run")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use exeat_core::bridge::PushClaim;
use exeat_core::gate::exeat::{AttemptId, Bound, CancelPermit, Exeat, Interface, Look, LookFor};
use exeat_core::id::{AgentKey, CallbackId, HopId, OrgName};
use exeat_core::payload::{Payload, Sha256Digest};
use exeat_core::ports::Clock as _;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::AgentEntry;
use exeat_core::time::{Monotonic, Span, Timestamp};
use exeat_core::transport::{
    CancelOutcome, ForeignState, ForeignTask, LookOutcome, SendOutcome, SendReport, Transport,
};
use exeat_core::walk::confirm::Pushed;

use crate::sim::chance::Chance;
use crate::sim::clock::VirtualClock;
use crate::sim::faulty::{Tally, Weather};

/// One request that really left.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Under which attempt.
    pub attempt: AttemptId,
    /// When its first byte left.
    pub at: Monotonic,
    /// When its exeat ran out.
    pub not_after: Monotonic,
    /// To whom.
    pub agent: AgentKey,
    /// By which version of the entry.
    pub version: u32,
    /// The message.
    pub message: String,
    /// Digest of the payload bytes.
    pub payload: Sha256Digest,
}

/// A pushed event on its way.
#[derive(Clone, Debug)]
pub struct OnTheWay {
    /// When it arrives.
    pub at: Timestamp,
    /// At which door.
    pub callback: CallbackId,
    /// What it says.
    pub pushed: Pushed,
    /// Does its sender try again when it isn't taken?
    pub again: bool,
}

#[derive(Clone, Debug)]
struct Work {
    id: String,
    context: String,
    messages: Vec<String>,
    /// What it will do: after a while, become this.
    plan: Vec<(Span, ForeignState)>,
    state: ForeignState,
    since: Timestamp,
    callback: Option<CallbackId>,
    pushes: bool,
    output: Payload,
    unseen: u64,
}

#[derive(Default)]
struct Inner {
    works: BTreeMap<String, Work>,
    made: BTreeMap<String, u64>,
    mail: Vec<OnTheWay>,
    sent: Vec<Sent>,
    interfaces: BTreeMap<AgentKey, u64>,
    events: u64,
    /// Until when a look of each hop may be answered.
    /// Doors whose attempt hasn't been answered yet.
    sending: BTreeSet<CallbackId>,
    looking: BTreeMap<HopId, Monotonic>,
    doubled: Vec<HopId>,
}

/// All states that an agent can show.
const STATES: [ForeignState; 7] = [
    ForeignState::Working,
    ForeignState::InputRequired,
    ForeignState::AuthRequired,
    ForeignState::Completed,
    ForeignState::Failed,
    ForeignState::Canceled,
    ForeignState::Rejected,
];

/// The world of one run.
#[derive(Clone)]
pub struct World {
    clock: VirtualClock,
    chance: Arc<Chance>,
    weather: Arc<Weather>,
    tally: Tally,
    inner: Arc<Mutex<Inner>>,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(clock: VirtualClock, chance: Arc<Chance>, weather: Arc<Weather>, tally: Tally) -> Self {
        Self { clock, chance, weather, tally, inner: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that left since this was asked last.
    #[must_use]
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.inner().sent)
    }

    /// Hops at which a look arrived while another was out.
    #[must_use]
    pub fn doubled_looks(&self) -> Vec<HopId> {
        self.inner().doubled.clone()
    }

    /// How many pieces of work each message became.
    #[must_use]
    pub fn made(&self) -> BTreeMap<String, u64> {
        self.inner().made.clone()
    }

    /// Pushed events that arrive by now.
    #[must_use]
    pub fn take_mail(&self) -> Vec<OnTheWay> {
        let now = self.clock.now();
        let mut inner = self.inner();
        self.live(&mut inner);
        let (due, later) = std::mem::take(&mut inner.mail).into_iter().partition(|m| m.at <= now);
        inner.mail = later;
        due
    }

    /// Puts a pushed event back, to arrive later.
    pub fn post(&self, mail: OnTheWay) {
        self.inner().mail.push(mail);
    }

    fn odds(&self, permille: u64) -> bool {
        !self.weather.is_calm() && self.chance.permille(permille)
    }

    async fn dawdle(&self, usual: Span, odd: Span, odds: u64) {
        let most = if self.odds(odds) { odd } else { usual };
        let span = self.chance.span(most);
        self.clock.sleep(span).await;
    }

    /// Lets every piece of work get on with its plan.
    fn live(&self, inner: &mut Inner) {
        let now = self.clock.now();
        let ids: Vec<String> = inner.works.keys().cloned().collect();
        for id in ids {
            while let Some(w) = inner.works.get_mut(&id) {
                if w.state == ForeignState::InputRequired && !w.plan.is_empty() && !self.chance.permille(2) {
                    break; // It waits for an answer; once in a while it goes on by itself.
                }
                let Some((after, next)) = w.plan.first().cloned() else { break };
                if w.since + after > now {
                    break;
                }
                w.plan.remove(0);
                w.state = next;
                w.since = w.since + after;
                let (w, at) = (w.clone(), w.since);
                self.tell(inner, &w, at.max(now));
            }
        }
    }

    fn tell(&self, inner: &mut Inner, w: &Work, at: Timestamp) {
        let Some(callback) = w.callback.clone().filter(|_| w.pushes) else { return };
        if self.odds(150) {
            return self.tally.one("pushes lost");
        }
        let mut claims = vec![claim_of(w.state)];
        if self.odds(60) {
            self.tally.one("pushes lying");
            claims =
                vec![self.chance.pick(&[PushClaim::Completed, PushClaim::Failed, PushClaim::InputRequired])];
        }
        if self.odds(150) {
            claims.push(PushClaim::Progress);
        }
        if self.odds(50) {
            claims.push(PushClaim::Unknown);
        }
        for claim in claims {
            let other = self.odds(40);
            if other {
                self.tally.one("pushes naming another task");
            }
            inner.events += 1;
            let named = match inner.works.keys().next() {
                Some(first) if other && *first != w.id => first.clone(),
                _ if other => "another".to_owned(),
                _ => w.id.clone(),
            };
            let pushed = Pushed {
                claim,
                foreign_task: (!self.odds(100)).then_some(named),
                foreign_context: Some(w.context.clone()),
                body: (claim != PushClaim::Progress).then(|| w.output.clone()),
                digest: Sha256Digest::of(format!("{} {}", w.id, inner.events).as_bytes()),
            };
            if inner.sending.contains(&callback) {
                self.tally.one("pushes before the answer");
            }
            let door = match inner.works.values().filter_map(|o| o.callback.as_ref()).next_back() {
                Some(other) if self.odds(30) && *other != callback => {
                    self.tally.one("pushes at another hop's door");
                    other.clone()
                }
                _ => callback.clone(),
            };
            let copies = if self.odds(200) { self.chance.below(3) + 2 } else { 1 };
            for _ in 0..copies {
                let late =
                    self.chance.span(if self.odds(200) { Span::of_secs(90) } else { Span::of_secs(1) });
                let mail = OnTheWay {
                    at: at + late,
                    callback: door.clone(),
                    pushed: pushed.clone(),
                    again: self.chance.permille(700),
                };
                inner.mail.push(mail);
            }
        }
    }

    fn interface(&self, inner: &mut Inner, agent: &AgentKey) -> Interface {
        if self.odds(30) {
            *inner.interfaces.entry(agent.clone()).or_default() += 1;
        }
        let n = inner.interfaces.get(agent).copied().unwrap_or_default();
        Interface {
            url: format!("https://{agent}.example/a2a/{n}"),
            binding: "JSONRPC".into(),
            version: "1.0".into(),
            tenant: None,
        }
    }

    /// What a new piece of work will do.
    fn plan(&self) -> Vec<(Span, ForeignState)> {
        use ForeignState as F;
        if self.weather.is_calm() {
            return vec![(Span::of_secs(1), F::Completed)];
        }
        let soon = |most| self.chance.span(Span::of_secs(most));
        if self.chance.permille(40) {
            let over = [F::Completed, F::Failed, F::Canceled, F::Rejected, F::InputRequired, F::AuthRequired];
            return vec![(Span::ZERO, self.chance.pick(&over)), (soon(30), F::Completed)];
        }
        let mut plan = Vec::new();
        for _ in 0..self.chance.below(4) {
            plan.push((
                soon(20),
                self.chance.pick(&[F::Working, F::Working, F::InputRequired, F::AuthRequired]),
            ));
        }
        if self.chance.permille(30) {
            return plan; // Never ends.
        }
        let end = self.chance.pick(&[
            F::Completed,
            F::Completed,
            F::Completed,
            F::Completed,
            F::Completed,
            F::Failed,
            F::Canceled,
            F::Rejected,
        ]);
        plan.push((soon(if self.chance.permille(100) { 400 } else { 30 }), end));
        plan
    }

    /// Does the work that a message asks for, or finds that it was done.
    fn receive(&self, inner: &mut Inner, exeat: &Exeat) -> Result<String, Box<SendOutcome>> {
        let p = exeat.parcel();
        let message = p.message_id.to_string();
        let now = self.clock.now();
        if let Some(f) = &p.foreign {
            let plan = self.plan();
            let gone = || Box::new(SendOutcome::Refused { code: ReasonCode::SendRefused, after: None });
            let w = inner.works.get_mut(&f.task).ok_or_else(gone)?;
            if w.messages.contains(&message) {
                return Ok(w.id.clone());
            }
            if w.state.is_end() {
                return Err(gone());
            }
            w.messages.push(message.clone());
            w.callback = Some(p.attempt.callback.clone());
            w.state = ForeignState::Working;
            w.since = now;
            w.plan = plan;
            let id = w.id.clone();
            *inner.made.entry(message).or_default() += 1;
            return Ok(id);
        }
        let dedups = p.agent.terms.dedup == exeat_core::registry::Dedup::MessageId;
        if dedups && let Some(w) = inner.works.values().find(|w| w.messages.contains(&message)) {
            return Ok(w.id.clone());
        }
        let mut others = inner.works.values().filter(|w| w.id.starts_with(p.agent.key.as_str()));
        if self.odds(20)
            && let Some(other) = others.next_back()
        {
            self.tally.one("task ids given twice");
            return Ok(other.id.clone());
        }
        *inner.made.entry(message.clone()).or_default() += 1;
        let id = format!("{}-{}", p.agent.key, inner.works.len());
        let context = p.context_id.map_or_else(|| format!("ctx-{id}"), |c| c.to_string());
        let plan = self.plan();
        let work = Work {
            id: id.clone(),
            context,
            messages: vec![message],
            plan,
            state: ForeignState::Working,
            since: now,
            callback: p.push.as_ref().map(|_| p.attempt.callback.clone()),
            pushes: self.chance.permille(700),
            output: Payload::of_data(serde_json::json!({ "ok": self.chance.permille(800), "by": id })),
            unseen: if self.odds(60) { self.chance.below(6) } else { 0 },
        };
        inner.works.insert(id.clone(), work);
        Ok(id)
    }

    async fn look_at(&self, look: &Look) -> LookOutcome {
        self.dawdle(Span::of_millis(100), Span::of_secs(20), 60).await;
        if self.clock.monotonic() > look.not_after() || self.odds(80) {
            self.tally.one("looks without an answer");
            let after = self.odds(300).then(|| self.chance.span(Span::of_secs(30)));
            return LookOutcome::Nothing { code: ReasonCode::InvalidResponse, after };
        }
        let answer = {
            let mut inner = self.inner();
            self.live(&mut inner);
            match look.ask() {
                LookFor::Task(id) => match inner.works.get_mut(id) {
                    None => LookOutcome::NotFound,
                    Some(w) if w.unseen > 0 => {
                        w.unseen -= 1;
                        self.tally.one("looks not found");
                        LookOutcome::NotFound
                    }
                    Some(w) if self.odds(if w.state == ForeignState::InputRequired { 60 } else { 12 }) => {
                        w.unseen = u64::MAX;
                        self.tally.one("tasks forgotten");
                        LookOutcome::NotFound
                    }
                    Some(w) => {
                        let mut shown = self.shown(w);
                        if self.odds(40) {
                            self.tally.one("looks that flip");
                            shown.state = self.chance.pick(&STATES);
                        }
                        LookOutcome::Task(shown)
                    }
                },
                LookFor::Context(c) => {
                    let ours = inner.works.values().filter(|w| w.context == c.to_string());
                    LookOutcome::Tasks(ours.map(|w| self.shown(w)).collect())
                }
            }
        };
        self.dawdle(Span::of_millis(100), Span::of_secs(20), 60).await;
        answer
    }

    fn shown(&self, w: &Work) -> ForeignTask {
        let output = match w.state {
            ForeignState::Completed => w.output.clone(),
            _ => Payload::of_text(format!("{:?}?", w.state)),
        };
        ForeignTask {
            id: w.id.clone(),
            context: Some(w.context.clone()),
            state: w.state,
            output,
            message_ids: if self.chance.permille(700) { w.messages.clone() } else { Vec::new() },
            reported_microusd: self.chance.permille(300).then(|| self.chance.below(40)),
        }
    }
}

const fn claim_of(state: ForeignState) -> PushClaim {
    match state {
        ForeignState::Working => PushClaim::Progress,
        ForeignState::InputRequired => PushClaim::InputRequired,
        ForeignState::AuthRequired => PushClaim::AuthRequired,
        ForeignState::Completed => PushClaim::Completed,
        ForeignState::Failed => PushClaim::Failed,
        ForeignState::Canceled => PushClaim::Canceled,
        ForeignState::Rejected => PushClaim::Rejected,
    }
}

#[async_trait]
impl Transport for World {
    async fn send(&self, exeat: Exeat) -> SendReport {
        let bare = |outcome: SendOutcome| SendReport::bare(outcome, "simulated");
        self.dawdle(Span::of_millis(50), Span::of_secs(20), 60).await;
        if self.clock.monotonic() > exeat.not_after() {
            self.tally.one("exeats run out");
            return bare(SendOutcome::NotSent(ReasonCode::Deadline));
        }
        if self.odds(80) {
            self.tally.one("not sent");
            return bare(SendOutcome::NotSent(ReasonCode::AddressRefused));
        }
        if self.odds(15) {
            self.tally.one("impossible");
            return bare(SendOutcome::Impossible(ReasonCode::CardInvalid));
        }
        let p = exeat.parcel();
        let interface = self.interface(&mut self.inner(), &p.agent.key);
        if matches!(&p.bound, Bound::Interface(i) if *i != interface) {
            self.tally.one("other interface");
            return SendReport {
                interface: Some(interface.clone()),
                ..bare(SendOutcome::OtherInterface(interface))
            };
        }
        self.tally.one("sends");
        self.inner().sent.push(Sent {
            attempt: p.attempt.clone(),
            at: self.clock.monotonic(),
            not_after: exeat.not_after(),
            agent: p.agent.key.clone(),
            version: p.agent.version,
            message: p.message_id.to_string(),
            payload: Sha256Digest::of(&p.payload),
        });
        let report = |outcome| SendReport {
            wire: Some(Sha256Digest::of(&p.payload)),
            interface: Some(interface.clone()),
            push_asked: p.push.is_some(),
            ..bare(outcome)
        };
        if self.odds(50) {
            self.tally.one("refused, later");
            let after = Some(self.chance.span(Span::of_secs(10)));
            return report(SendOutcome::Refused { code: ReasonCode::SendRefused, after });
        }
        if self.odds(20) {
            self.tally.one("refused for good");
            return report(SendOutcome::Refused { code: ReasonCode::SendRefused, after: None });
        }
        if p.context_id.is_some() && self.odds(40) {
            self.tally.one("context refused");
            return report(SendOutcome::ContextRefused);
        }
        if self.odds(60) {
            self.tally.one("ambiguous, nothing made");
            return report(SendOutcome::Ambiguous);
        }
        let made = {
            let mut inner = self.inner();
            self.live(&mut inner);
            inner.sending.insert(p.attempt.callback.clone());
            let made = self.receive(&mut inner, &exeat);
            self.live(&mut inner);
            made
        };
        let id = match made {
            Ok(id) => id,
            Err(outcome) => return report(*outcome),
        };
        if self.odds(110) {
            self.tally.one("ambiguous, made");
            self.dawdle(Span::of_millis(200), Span::of_secs(12), 400).await;
            return report(SendOutcome::Ambiguous);
        }
        if p.foreign.is_none() && self.odds(60) {
            self.tally.one("bare message");
            return report(SendOutcome::Message(Payload::of_data(serde_json::json!({ "ok": true }))));
        }
        // The answer tells how things stood when it left; it may be late.
        let task = {
            let mut inner = self.inner();
            self.live(&mut inner);
            self.shown(inner.works.get(&id).expect("just made"))
        };
        self.dawdle(Span::of_millis(200), Span::of_secs(16), 80).await;
        {
            let mut inner = self.inner();
            self.live(&mut inner);
            inner.sending.remove(&p.attempt.callback);
        }
        if self.clock.monotonic() > exeat.not_after() {
            self.tally.one("ambiguous, too slow");
            return report(SendOutcome::Ambiguous);
        }
        report(SendOutcome::Task(task))
    }

    async fn look(&self, look: Look) -> LookOutcome {
        self.tally.one("looks");
        let hop = look.address().hop;
        {
            let now = self.clock.monotonic();
            let mut inner = self.inner();
            if inner.looking.insert(hop, look.not_after()).is_some_and(|until| now < until) {
                inner.doubled.push(hop);
            }
        }
        let answer = self.look_at(&look).await;
        self.inner().looking.remove(&hop);
        answer
    }

    async fn cancel(&self, permit: CancelPermit) -> CancelOutcome {
        self.tally.one("cancels");
        self.dawdle(Span::of_millis(100), Span::of_secs(5), 60).await;
        if self.odds(200) {
            return CancelOutcome::Nothing { after: None };
        }
        let mut inner = self.inner();
        self.live(&mut inner);
        match inner.works.get_mut(permit.task()) {
            None => CancelOutcome::Over,
            Some(w) if w.state.is_end() => CancelOutcome::Over,
            Some(w) => {
                if self.chance.permille(700) {
                    w.state = ForeignState::Canceled;
                    w.plan.clear();
                }
                CancelOutcome::Task(self.shown(w))
            }
        }
    }

    async fn scrubbed(&self, _: &OrgName, _: &AgentEntry, _: &[String], bytes: Vec<u8>) -> Option<Vec<u8>> {
        Some(bytes)
    }
}
