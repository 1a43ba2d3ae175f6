//! Dead letters: what may still be done about one, and the new task that takes its task further.
//!
//! Nothing that has ended reopens. A retry is a task of its own that names the one it continues: what that one was
//! given and what its completed steps gave is taken over with its labels and taint, the workflow stays pinned, what is
//! left of the budget is its budget, and the requester stays who it was, so that policy allows no more than it would have
//! then. The dead step, and whatever wasn't completed beside it, runs anew; or a result that was kept is taken in for
//! it, through the same gate as any other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bridge::{Bridge, BridgeState};
use crate::change::{ChangeSet, DeadKind, DeadLetter, Decided, Row, Snapshot, Write};
use crate::endpoint::Endpoint;
use crate::gate::exeat::Bound;
use crate::gate::verdict::Action;
use crate::id::{AgentKey, ChangeId, HopId, Ids, KeyId, OrgName, PayloadId, StepName, TaskId};
use crate::label::Label;
use crate::ledger::data::{Act, AttemptOutcome, Effects, OperatorData};
use crate::ledger::{Actor, Data, Dir, Draft, OutsideId, SaltedDigest};
use crate::payload::{Payload, Sealed};
use crate::reason::ReasonCode;
use crate::registry::AgentStatus;
use crate::task::desk::{Context, Desk, Refusal};
use crate::task::dispatch::{EdgeFacts, Judging, wrong};
use crate::task::{End, Ending, Held, Hop, HopOwner, Run, Step, StepStatus, Task, TaskStatus};
use crate::workflow::Workflow;

/// What an operator may do about a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Run the dead step anew.
    Resend,
    /// Take the kept result for its output.
    Adopt,
    /// Nothing more.
    Discard,
}

impl Choice {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resend => "resend",
            Self::Adopt => "adopt",
            Self::Discard => "discard",
        }
    }
}

/// How a task is taken further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode<'a> {
    /// The dead step runs anew.
    Resend(Duplicates),
    /// The kept result is taken in, for an operator with this clearance.
    Adopt(&'a Label),
}

/// May what has perhaps run already run again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// No.
    Refused,
    /// The operator says so.
    Accepted,
}

/// What may still be done about a letter of this task.
#[must_use]
pub fn possible(snapshot: &Snapshot, flow: &Workflow, letter: &DeadLetter) -> Vec<Choice> {
    if letter.decided.is_some() {
        return Vec::new();
    }
    let goes_on = may_go_on(snapshot, letter).then_some(Choice::Resend);
    let adopts = goes_on.is_some() && kept(snapshot, flow, letter).is_some();
    goes_on.into_iter().chain(adopts.then_some(Choice::Adopt)).chain([Choice::Discard]).collect()
}

/// A task that ended badly, and not because somebody stopped it, without what the letter is about; nothing of it erased.
fn may_go_on(snapshot: &Snapshot, letter: &DeadLetter) -> bool {
    let task = &snapshot.task.0;
    let ended = match task.status {
        TaskStatus::Ended(Ending::Completed | Ending::Canceled) => false,
        TaskStatus::Ended(_) => true,
        _ => false,
    };
    let open = task.step(&letter.step).is_some_and(|s| !is_taken_over(s));
    let outputs =
        task.steps.iter().filter(|s| is_taken_over(s)).flat_map(|s| s.input.iter().chain(&s.output));
    let whole = outputs.chain([&task.input]).all(|h| snapshot.payloads.contains_key(&h.id));
    ended && open && whole
}

const fn is_taken_over(step: &Step) -> bool {
    matches!(step.status, StepStatus::Ended(Ending::Completed))
}

/// A result that was kept of the step's own errand to an agent.
struct Kept<'a> {
    hop: &'a Hop,
    bridge: &'a Bridge,
    agent: &'a AgentKey,
    body: &'a Sealed,
}

fn kept<'a>(snapshot: &'a Snapshot, flow: &Workflow, letter: &DeadLetter) -> Option<Kept<'a>> {
    let hop = snapshot.task.0.hop(letter.hop)?;
    let bridge = snapshot.bridges.iter().map(|(b, _)| b).find(|b| b.hop == letter.hop)?;
    let single = flow.step(&letter.step).is_some_and(|d| d.for_each.is_none());
    let body = snapshot.payloads.get(&letter.body?)?;
    match (&hop.to, &hop.owner) {
        (Endpoint::Agent(agent), HopOwner::Step { .. }) if single => Some(Kept { hop, bridge, agent, body }),
        _ => None,
    }
}

/// Can running it anew do something for a second time?
fn risks_duplicates(snapshot: &Snapshot, letter: &DeadLetter) -> bool {
    use DeadKind as K;
    let unknown = match letter.kind {
        K::Unknown | K::Unconfirmed | K::Late | K::Lost | K::Timeout => true,
        K::Work | K::Send => false,
    };
    let task = &snapshot.task.0;
    let anew: BTreeSet<&StepName> =
        task.steps.iter().filter(|s| !is_taken_over(s)).map(|s| &s.name).collect();
    unknown || snapshot.bridges.iter().any(|(b, _)| anew.contains(&b.step) && may_have_run(b))
}

fn may_have_run(b: &Bridge) -> bool {
    let ran = |o| matches!(o, AttemptOutcome::Ambiguous | AttemptOutcome::Answered);
    let recorded = u32::try_from(b.attempts.len()).unwrap_or(u32::MAX);
    b.foreign.is_some() || b.begun > recorded || b.attempts.iter().any(|a| ran(a.outcome))
}

/// Takes the task of a dead letter further, as a new one.
///
/// # Errors
/// If the letter is decided, that can't be done about it, or a duplicate isn't accepted that may come of it.
pub fn retry(
    ctx: Context<'_>,
    mut ids: Ids,
    flow: Arc<Workflow>,
    old: &Snapshot,
    (letter, version): (&DeadLetter, u64),
    mode: Mode<'_>,
    by: &KeyId,
) -> Result<(TaskId, ChangeSet), Refusal> {
    let (choice, act) = match mode {
        Mode::Resend(_) => (Choice::Resend, Act::Retry),
        Mode::Adopt(_) => (Choice::Adopt, Act::Adopt),
    };
    may(choice, old, &flow, letter)?;
    if mode == Mode::Resend(Duplicates::Refused) && risks_duplicates(old, letter) {
        return Err(Refusal::DuplicateRisk);
    }
    let adopting = match mode {
        Mode::Resend(_) => None,
        Mode::Adopt(clearance) => Some(adopting(&ctx, old, &flow, letter, clearance)?),
    };
    let (task, payloads) = taken_over(&ctx, &mut ids, old)?;
    let id = task.id;
    let mut desk = Desk::begin(ctx, ids, flow, task, payloads);
    desk.adopting = adopting;
    let target = OutsideId::of(&letter.id.to_string());
    desk.record_apart(None, Actor::key(by), Data::Operator(OperatorData { act, target, reason: None }));
    let decided = Decided { act, by: by.clone(), at: desk.now(), task: Some(id) };
    let row = DeadLetter { decided: Some(decided), ..letter.clone() };
    desk.set.writes.push(Write { expected: version, row: Row::DeadLetter(row) });
    desk.advance()?;
    Ok((id, desk.close()))
}

/// Gives a dead letter up.
///
/// # Errors
/// If it is decided.
pub fn discard(
    ctx: &Context<'_>,
    mut ids: Ids,
    org: &OrgName,
    (letter, version): (&DeadLetter, u64),
    by: &KeyId,
    why: Option<&str>,
) -> Result<(DeadLetter, ChangeSet), Refusal> {
    if letter.decided.is_some() {
        return Err(Refusal::LetterDecided);
    }
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), org.clone(), ctx.now);
    let reason = why.map(|text| {
        let salt = ids.bytes::<32>();
        let digest = SaltedDigest::of(&salt, text.as_bytes());
        let row = Row::Note(digest.as_str().to_owned(), salt, text.to_owned());
        set.writes.push(Write { expected: 0, row });
        digest
    });
    let target = OutsideId::of(&letter.id.to_string());
    let data = Data::Operator(OperatorData { act: Act::Discard, target, reason });
    let mut draft = Draft::apart(ctx.now, set.id, Actor::key(by), data);
    (draft.task, draft.hop) = (Some(letter.task), Some(letter.hop));
    set.drafts.push(draft);
    let decided = Decided { act: Act::Discard, by: by.clone(), at: ctx.now, task: None };
    let letter = DeadLetter { decided: Some(decided), ..letter.clone() };
    set.writes.push(Write { expected: version, row: Row::DeadLetter(letter.clone()) });
    Ok((letter, set))
}

fn may(choice: Choice, old: &Snapshot, flow: &Workflow, letter: &DeadLetter) -> Result<(), Refusal> {
    if letter.decided.is_some() {
        return Err(Refusal::LetterDecided);
    }
    let possible = possible(old, flow, letter);
    if possible.contains(&choice) {
        return Ok(());
    }
    let words: Vec<&str> = possible.iter().map(|c| c.as_str()).collect();
    Err(Refusal::Invalid(format!("{} can't be done about it, only {}", choice.as_str(), words.join(" and "))))
}

/// The new task, and the payloads that it takes over, sealed anew: what is erased of one isn't erased of the other.
fn taken_over(
    ctx: &Context<'_>,
    ids: &mut Ids,
    old: &Snapshot,
) -> Result<(Task, BTreeMap<PayloadId, Sealed>), Refusal> {
    let id = TaskId::draw(ids);
    let mut payloads = BTreeMap::new();
    let mut over = |held: &Held| {
        let sealed = old.payloads.get(&held.id).ok_or_else(|| wrong("a payload that is erased"))?;
        let (id, sealed) = (PayloadId::draw(ids), Sealed::new(sealed.bytes.clone(), ids));
        let held = Held { id, digest: SaltedDigest::from(&sealed), ..held.clone() };
        payloads.insert(id, sealed);
        Ok::<_, Refusal>(held)
    };
    let was = &old.task.0;
    let input = over(&was.input)?;
    let mut steps = Vec::with_capacity(was.steps.len());
    for step in &was.steps {
        steps.push(if is_taken_over(step) {
            let input = step.input.as_ref().map(&mut over).transpose()?;
            let output = step.output.as_ref().map(&mut over).transpose()?;
            Step { input, output, runs: Vec::new(), ..step.clone() }
        } else {
            Step::pending(&step.name)
        });
    }
    let task = Task {
        id,
        status: TaskStatus::Running,
        reason: None,
        input,
        output: None,
        budget_microusd: was.budget_left(),
        cost_microusd: 0,
        reserved_microusd: 0,
        created_at: ctx.now,
        deadline: was.deadline.map(|d| ctx.now + d.since(was.created_at)),
        ended_at: None,
        continues: Some(was.id),
        steps,
        hops: Vec::new(),
        due_at: None,
        ..was.clone()
    };
    Ok((task, payloads))
}

/// A result that an operator has taken in for a step, instead of sending.
pub(crate) struct Adopting {
    pub(crate) step: StepName,
    pub(crate) agent: AgentKey,
    body: Payload,
    /// What it carries: of all that was sent, and what the entry said then of what its agent gives.
    label: Label,
}

fn adopting(
    ctx: &Context<'_>,
    old: &Snapshot,
    flow: &Workflow,
    letter: &DeadLetter,
    clearance: &Label,
) -> Result<Adopting, Refusal> {
    let Kept { hop, bridge, agent, body } =
        kept(old, flow, letter).ok_or_else(|| wrong("nothing is kept"))?;
    let then = ctx.registry.agent_at(agent, bridge.registry_version);
    let (Some(then), Some(now)) = (then, ctx.registry.agent(agent)) else {
        return Err(Refusal::Invalid(format!("the agent {agent} isn't registered any more")));
    };
    let own = then.posture.output_label.join(&now.posture.output_label);
    let label = hop.seen.join(&bridge.payload.label).join(&own);
    // Whoever takes it in answers for it, and can't for what they may not see.
    if !label.flows_to(clearance) {
        return Err(Refusal::ClearanceTooLow);
    }
    let body = Payload::from_bytes(&body.bytes).map_err(|e| Refusal::Wrong(format!("a kept body: {e}")))?;
    Ok(Adopting { step: letter.step.clone(), agent: agent.clone(), body, label })
}

impl Step {
    /// A step that hasn't begun.
    pub(crate) fn pending(name: &StepName) -> Self {
        Self {
            name: name.clone(),
            status: StepStatus::Pending,
            reason: None,
            input: None,
            output: None,
            started_at: None,
            ended_at: None,
            runs: Vec::new(),
        }
    }
}

impl Desk<'_> {
    /// Holds a run to the agent whose result is taken in for it: as on a fallback, nothing else is tried after it.
    pub(crate) fn run_adopts(&self, name: &StepName, run: &mut Run) {
        if let Some(a) = self.adopting.as_ref().filter(|a| a.step == *name) {
            run.on_fallback = Some(Endpoint::Agent(a.agent.clone()));
        }
    }

    /// The result that is taken in for this hop, if one is.
    pub(crate) fn adopted(&mut self, hop: &Hop) -> Option<Adopting> {
        let own = matches!(hop.owner, HopOwner::Step { .. });
        self.adopting.take_if(|a| own && a.step == hop.step)
    }

    /// A kept result comes in, as the turn of an agent that nobody asked: bounded, labelled, judged.
    pub(crate) fn adopt(
        &mut self,
        id: HopId,
        adopting: &Adopting,
        broken: Option<ReasonCode>,
    ) -> Result<(), Refusal> {
        let hop = self.hop(id)?.clone();
        let agent = self.ctx.registry.agent(&adopting.agent).cloned();
        let agent = agent.ok_or_else(|| wrong("an adoption from an agent that is gone"))?;
        let body = self.bounded(&adopting.body)?;
        let held = self.hold(&body, hop.seen.join(&adopting.label), true);
        let revoked = (agent.status == AgentStatus::Revoked).then_some(ReasonCode::AgentRevoked);
        let facts = self.facts(&hop, &held, Some(&agent.key), 0)?;
        let (from, receiver) = (crate::task::dispatch::agent_entity(&agent), self.principal(&hop));
        let broken = broken.or(revoked);
        let weighed = self.weigh(from, Action::A2aIngress, receiver, facts, broken, BTreeSet::new());
        let edge = EdgeFacts { dir: Dir::A2aIngress, brought: &held, price: 0, agent: None, from: None };
        self.record_judgement(&hop, Judging::First, &edge, &weighed.verdict);
        let now = self.now();
        let bridge = self.new_bridge(&hop, &agent, weighed.verdict.clone());
        self.add_bridge(Bridge {
            state: BridgeState::Completed,
            message_ids: Vec::new(),
            bound: Bound::Origin(agent.origin.clone()),
            ending: Some(Ending::Completed),
            ended_at: Some(now),
            ..bridge
        });
        self.record_outcome(&hop, Dir::A2aIngress, &End::well(held.clone()), None, Effects::Known);
        self.take_in(id, held, &weighed)
    }
}
