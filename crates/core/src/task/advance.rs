//! The coordinator: which steps are ready, what they are given, and when the task is over.
//!
//! A pure function of the task as it stands. Only steps that the workflow names are ever set out, and only
//! to where it says: nothing that came from outside picks a destination.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::change::ChangeSet;
use crate::gate::verdict::KeyFacts;
use crate::id::{HopId, Ids, OrgName, PayloadId, StepName, TaskId};
use crate::label::{Label, Levels};
use crate::payload::{Payload, Sealed};
use crate::reason::{Reason, ReasonCode};
use crate::task::desk::{Context, Desk, Refusal, held_of};
use crate::task::dispatch::NewHop;
use crate::task::{Delegation, End, Ending, HopOwner, Step, StepStatus, Task, TaskStatus};
use crate::time::{Span, Timestamp};
use crate::workflow::{Bounds, Scope, Source, StepDef, Template, Workflow, WorkflowRef};

/// A task to be started.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// The tenant.
    pub org: OrgName,
    /// The workflow's pinned version, or none for a delegation.
    pub workflow: Option<WorkflowRef>,
    /// What runs: the workflow, or the delegation as one ([`Workflow::delegation`]).
    pub flow: Arc<Workflow>,
    /// Who starts it.
    pub requester: KeyFacts,
    /// What it is given.
    pub input: Payload,
    /// What the input carries; at least the org's default.
    pub label: Label,
    /// Has foreign content flowed into the input?
    pub tainted: bool,
    /// How long it may take.
    pub deadline: Option<Span>,
    /// What it may spend.
    pub budget_microusd: Option<u64>,
    /// The task that it takes further.
    pub continues: Option<TaskId>,
}

/// Starts a task: its rows, and everything that sets out at once.
///
/// # Errors
/// If the input isn't a payload within the limits, or doesn't match the workflow's schema.
pub fn start(ctx: Context<'_>, mut ids: Ids, new: NewTask) -> Result<(TaskId, ChangeSet), Refusal> {
    new.input.check(&ctx.registry.bounds.payload)?;
    if let Some(schema) = &new.flow.input_schema {
        ctx.schemas.check(schema, &new.input.data()).map_err(|e| Refusal::Invalid(format!("input: {e}")))?;
    }
    let id = TaskId::draw(&mut ids);
    let payload_id = PayloadId::draw(&mut ids);
    let sealed = Sealed::new(new.input.bytes(), &mut ids);
    let task = fresh(&ctx, id, payload_id, &sealed, &new)?;
    let mut desk = Desk::begin(ctx, ids, new.flow, task, (payload_id, sealed));
    desk.advance()?;
    Ok((id, desk.close()))
}

fn fresh(
    ctx: &Context<'_>,
    id: TaskId,
    payload: PayloadId,
    sealed: &Sealed,
    new: &NewTask,
) -> Result<Task, Refusal> {
    let flow = &new.flow;
    let label = raised(&ctx.registry.levels, &new.label, flow.label.as_deref())?;
    let limits = [new.deadline, flow.deadline];
    let delegation = match (&new.workflow, flow.steps.first()) {
        (None, Some(only)) => Some(Delegation { to: only.to.clone(), skill: only.skill.clone() }),
        _ => None,
    };
    Ok(Task {
        id,
        org: new.org.clone(),
        workflow: new.workflow.clone(),
        delegation,
        status: TaskStatus::Running,
        reason: None,
        requester: new.requester.clone(),
        input: held_of(payload, sealed, &new.input, label, new.tainted),
        output: None,
        budget_microusd: [new.budget_microusd, flow.budget_microusd].into_iter().flatten().min(),
        max_hops: flow.max_hops.unwrap_or(ctx.registry.bounds.hops).min(ctx.registry.bounds.hops),
        cost_microusd: 0,
        reserved_microusd: 0,
        created_at: ctx.now,
        deadline: limits.into_iter().flatten().min().map(|d| ctx.now + d),
        ended_at: None,
        continues: new.continues,
        steps: flow.steps.iter().map(|d| pending(&d.name)).collect(),
        hops: Vec::new(),
        due_at: None,
    })
}

const fn no_step(name: StepName) -> Step {
    Step {
        name,
        status: StepStatus::Pending,
        reason: None,
        hop: None,
        tries: 0,
        on_fallback: None,
        input: None,
        output: None,
        started_at: None,
        ended_at: None,
        not_before: None,
    }
}

fn pending(name: &StepName) -> Step {
    no_step(name.clone())
}

/// A label, raised by what a definition says.
pub(crate) fn raised(levels: &Levels, label: &Label, by: Option<&str>) -> Result<Label, Refusal> {
    match by {
        None => Ok(label.clone()),
        Some(text) => {
            levels.parse(text).map(|l| label.join(&l)).map_err(|e| Refusal::BadLabel(e.to_string()))
        }
    }
}

/// What an expression gave, and what it carries.
struct Given {
    payload: Payload,
    label: Label,
    tainted: bool,
}

impl Desk<'_> {
    /// Sets out every step that is ready, until nothing moves; then the task may be over.
    pub(crate) fn advance(&mut self) -> Result<(), Refusal> {
        while !self.task.status.is_ended() {
            let Some(name) = self.ready_step() else { break };
            self.set_out_step(&name)?;
        }
        if !self.task.status.is_ended() && self.task.steps.iter().all(|s| s.status.is_over()) {
            self.finish()?;
        }
        self.refresh();
        Ok(())
    }

    fn ready_step(&self) -> Option<StepName> {
        let met = |def: &StepDef| {
            def.needs.iter().all(|n| self.task.step(n).is_some_and(|s| s.status.meets_needs()))
        };
        self.flow
            .steps
            .iter()
            .filter(|def| met(def))
            .filter_map(|def| self.task.step(&def.name))
            .find(|s| s.status == StepStatus::Pending && s.not_before.is_none_or(|t| t <= self.now()))
            .map(|s| s.name.clone())
    }

    fn set_out_step(&mut self, name: &StepName) -> Result<(), Refusal> {
        let def = self.flow.step(name).cloned().ok_or(Refusal::NotFound("step"))?;
        match self.step_input(&def) {
            Err(why) => {
                let end = End::badly(Ending::Failed, ReasonCode::ExpressionFailed, &why);
                let now = self.now();
                let step = self.step_mut(name)?;
                step.status = StepStatus::Ended(end.ending);
                step.reason.clone_from(&end.reason);
                step.ended_at = Some(now);
                self.end_task(end.ending, end.reason, None)
            }
            Ok(None) => {
                let now = self.now();
                let step = self.step_mut(name)?;
                step.status = StepStatus::Skipped;
                step.ended_at = Some(now);
                Ok(())
            }
            Ok(Some(given)) => self.run_step(&def, given),
        }
    }

    fn run_step(&mut self, def: &StepDef, given: Given) -> Result<(), Refusal> {
        let label = raised(&self.ctx.registry.levels, &given.label, def.label.as_deref())?;
        let input = self.hold(&given.payload, label, given.tainted);
        let now = self.now();
        let step = self.step_mut(&def.name)?;
        step.status = StepStatus::Dispatched;
        step.tries += 1;
        step.input = Some(input.clone());
        step.started_at = step.started_at.or(Some(now));
        step.not_before = None;
        let to = step.on_fallback.clone().unwrap_or_else(|| def.to.clone());
        let new = NewHop {
            step: def.name.clone(),
            owner: HopOwner::Step,
            to,
            depth: 1,
            skill: def.skill.clone(),
            deadline: def.deadline,
            input,
        };
        // The step must know its hop before it can be over, and it may be over at once.
        let before = self.task.hops.len();
        let set_out = self.set_out(new);
        if let Some(hop) = self.task.hops.get(before).map(|h| h.id) {
            self.step_mut(&def.name)?.hop = Some(hop);
        }
        set_out.map(|_: HopId| ())
    }

    /// What the step is given; `None` if its `when` says no.
    fn step_input(&self, def: &StepDef) -> Result<Option<Given>, String> {
        let scoped = self.scoped().map_err(|e| e.to_string())?;
        let scope = scoped.scope(self);
        let mut guard = None;
        if let Some(unsafe_read) = self.flow.unsafe_read(&def.name, &self.tainted_sources()) {
            return Err(unsafe_read.to_string());
        }
        if let Some(when) = &def.when {
            if !when.holds(&scope, self.eval_bounds()).map_err(|e| chain(&e))? {
                return Ok(None);
            }
            guard = Some(self.carried(when));
        }
        let payload = def
            .input
            .payload(&scope, self.eval_bounds(), &self.ctx.registry.bounds.payload)
            .map_err(|e| chain(&e))?;
        let (mut label, mut tainted) = self.carried(&def.input);
        if let Some((l, t)) = guard {
            label = label.join(&l);
            tainted |= t;
        }
        Ok(Some(Given { payload, label, tainted }))
    }

    /// What an expression's value carries: the join of all that it names, and of every `when` on the way to it.
    fn carried(&self, template: &Template) -> (Label, bool) {
        let sources = template.sources();
        let input = sources.contains(&Source::Input).then_some(&self.task.input);
        let steps =
            sources.iter().filter_map(|s| if let Source::Step(n) = s { self.task.step(n) } else { None });
        let outputs = steps.flat_map(|s| s.output.iter().chain(s.input.iter()));
        let start = (self.ctx.registry.default_label.clone(), false);
        outputs.chain(input).fold(start, |(l, t), held| (l.join(&held.label), t || held.tainted))
    }

    /// Where foreign content really is: a condition on it may read only what a schema bounds.
    fn tainted_sources(&self) -> BTreeSet<Source> {
        let input = self.task.input.tainted.then_some(Source::Input);
        let tainted = |s: &&Step| s.output.as_ref().is_some_and(|o| o.tainted);
        input
            .into_iter()
            .chain(self.task.steps.iter().filter(tainted).map(|s| Source::Step(s.name.clone())))
            .collect()
    }

    fn finish(&mut self) -> Result<(), Refusal> {
        let given = match &self.flow.output {
            // A delegation gives what its one hop gave, as it stands.
            Some(template) if self.task.delegation.is_none() => self.output_of(&template.clone()),
            _ => self.last_output().map_err(|e| e.to_string()),
        };
        match given {
            Ok(given) => {
                let output = given.map(|g| self.hold(&g.payload, g.label, g.tainted));
                self.end_task(Ending::Completed, None, output)
            }
            Err(why) => {
                self.end_task(Ending::Failed, Some(Reason::new(ReasonCode::ExpressionFailed, &why)), None)
            }
        }
    }

    fn output_of(&self, template: &Template) -> Result<Option<Given>, String> {
        let scoped = self.scoped().map_err(|e| e.to_string())?;
        let limits = &self.ctx.registry.bounds.payload;
        let payload =
            template.payload(&scoped.scope(self), self.eval_bounds(), limits).map_err(|e| chain(&e))?;
        let whens = self.flow.steps.iter().filter_map(|d| d.when.as_ref()).map(|w| self.carried(w));
        let (label, tainted) = whens.fold(self.carried(template), |(l, t), (wl, wt)| (l.join(&wl), t || wt));
        Ok(Some(Given { payload, label, tainted }))
    }

    /// Without an `output`, what the last step in the workflow's order gave.
    fn last_output(&self) -> Result<Option<Given>, Refusal> {
        let last = self.task.steps.iter().rev().find_map(|s| s.output.as_ref());
        last.map(|held| {
            Ok(Given { payload: self.payload(held)?, label: held.label.clone(), tainted: held.tainted })
        })
        .transpose()
    }

    fn eval_bounds(&self) -> Bounds {
        let bytes = u64::try_from(self.ctx.registry.bounds.payload.bytes).unwrap_or(u64::MAX);
        Bounds { output_bytes: bytes.saturating_mul(2), ..Bounds::default() }
    }

    /// The payloads that expressions may read.
    fn scoped(&self) -> Result<Scoped, Refusal> {
        let outputs = self.task.steps.iter().filter(|s| s.status.is_over());
        Ok(Scoped {
            input: self.payload(&self.task.input)?,
            steps: outputs
                .map(|s| {
                    let output = s.output.as_ref().map(|h| self.payload(h)).transpose()?;
                    Ok((s.name.clone(), s.status.as_str(), output))
                })
                .collect::<Result<_, Refusal>>()?,
        })
    }

    /// Something may have come due: the deadline, a retry, or nothing at all.
    pub(crate) fn tick(&mut self) -> Result<(), Refusal> {
        if self.task.status.is_ended() {
            return Ok(());
        }
        if self.task.deadline.is_some_and(|d| d <= self.now()) {
            return self.end_task(Ending::TimedOut, Some(Reason::from(ReasonCode::Deadline)), None);
        }
        let late: Vec<HopId> = self
            .task
            .hops
            .iter()
            .filter(|h| !h.is_ended() && h.until.is_some_and(|u: Timestamp| u <= self.now()))
            .map(|h| h.id)
            .collect();
        for id in late {
            self.end_hop(id, End::badly(Ending::TimedOut, ReasonCode::Deadline, ""))?;
        }
        self.advance()
    }
}

struct Scoped {
    input: Payload,
    steps: Vec<(StepName, &'static str, Option<Payload>)>,
}

impl Scoped {
    fn scope<'a>(&'a self, desk: &Desk<'_>) -> Scope<'a> {
        let scope = Scope::new(&self.input, desk.task.id.to_string(), desk.task.requester.name.clone());
        self.steps
            .iter()
            .fold(scope, |s, (name, status, output)| s.step(name.clone(), status, output.as_ref()))
    }
}

/// An error with its causes, on one line.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let more = c.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = c.source();
    }
    text
}
