//! The coordinator: which steps are ready, what they are given, and when the task is over.
//!
//! A pure function of the task as it stands. Only steps that the workflow names are ever set out, and only
//! to where it says: nothing that came from outside picks a destination.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::change::ChangeSet;
use crate::gate::verdict::KeyFacts;
use crate::id::{HopId, Ids, OrgName, PayloadId, StepName, TaskId};
use crate::label::{Label, Levels};
use crate::payload::{Payload, Sealed};
use crate::reason::{Reason, ReasonCode};
use crate::task::desk::{Context, Desk, Refusal, held_of};
use crate::task::{Delegation, End, Ending, Run, Step, StepStatus, Task, TaskStatus};
use crate::time::{Span, Timestamp};
use crate::workflow::{Bounds, ForEach, Scope, Source, StepDef, Template, Workflow, WorkflowRef};

/// The inputs of all elements of a `for_each` step together are at most so many times the largest payload.
const INPUTS_OF_ONE_STEP: usize = 16;

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
    let mut desk = Desk::begin(ctx, ids, new.flow, task, BTreeMap::from([(payload_id, sealed)]));
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
        steps: flow.steps.iter().map(|d| Step::pending(&d.name)).collect(),
        hops: Vec::new(),
        due_at: None,
    })
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

/// What a step is to work on.
struct Opened {
    input: Given,
    /// What its runs are given, if not the input itself.
    each: Option<Vec<Payload>>,
    /// What each of them carries.
    carries: (Label, bool),
}

impl Desk<'_> {
    /// Opens every step whose needs are met and sets out every run that is due, until nothing moves; then the
    /// task may be over.
    pub(crate) fn advance(&mut self) -> Result<(), Refusal> {
        // Nothing sets out after the deadline; what is out is looked at once more.
        let is_over = self.is_overdue();
        while !is_over && !self.task.status.is_ended() {
            if let Some(name) = self.ready_step() {
                self.open_step(&name)?;
            } else if let Some((name, run)) = self.due_run() {
                self.set_out_run(&name, run)?;
            } else {
                break;
            }
        }
        if !self.task.status.is_ended() && self.task.steps.iter().all(|s| s.status.is_over()) {
            self.finish()?;
        }
        if is_over && !self.task.status.is_ended() && !self.takes_a_last_look() {
            self.end_task(Ending::TimedOut, Some(Reason::from(ReasonCode::Deadline)), None)?;
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
            .find(|s| !s.status.is_over() && s.runs.is_empty())
            .map(|s| s.name.clone())
    }

    fn open_step(&mut self, name: &StepName) -> Result<(), Refusal> {
        let def = self.flow.step(name).cloned().ok_or(Refusal::NotFound("step"))?;
        match self.opened(&def) {
            Err(why) => {
                let end = End::badly(Ending::Failed, ReasonCode::ExpressionFailed, &why);
                self.end_step(name, &end)?;
                self.end_task(end.ending, end.reason, None)
            }
            Ok(None) => {
                let now = self.now();
                let step = self.step_mut(name)?;
                step.status = StepStatus::Skipped;
                step.ended_at = Some(now);
                Ok(())
            }
            Ok(Some(opened)) => self.give_runs(&def, opened),
        }
    }

    fn give_runs(&mut self, def: &StepDef, opened: Opened) -> Result<(), Refusal> {
        let levels = &self.ctx.registry.levels;
        let raise = |label: &Label| raised(levels, label, def.label.as_deref());
        let Opened { input, each, carries: (label, tainted) } = opened;
        let input = self.hold(&input.payload, raise(&input.label)?, input.tainted);
        let runs: Vec<Run> = match each {
            None => vec![Run::of(input.clone())],
            Some(elements) => {
                let label = raise(&label)?;
                elements.iter().map(|p| Run::of(self.hold(p, label.clone(), tainted))).collect()
            }
        };
        let now = self.now();
        let step = self.step_mut(&def.name)?;
        step.input = Some(input);
        step.runs = runs;
        step.started_at = Some(now);
        // Of an empty list nothing is to be done.
        self.step_may_be_over(&def.name, None)
    }

    /// What the step is to work on; `None` if its `when` says no.
    fn opened(&self, def: &StepDef) -> Result<Option<Opened>, String> {
        let scoped = self.scoped().map_err(|e| e.to_string())?;
        let scope = scoped.scope(self);
        let mut guard = (self.ctx.registry.default_label.clone(), false);
        if let Some(unsafe_read) = self.flow.unsafe_read(&def.name, &self.tainted_sources()) {
            return Err(unsafe_read.to_string());
        }
        if let Some(when) = &def.when {
            if !when.holds(&scope, self.eval_bounds()).map_err(|e| chain(&e))? {
                return Ok(None);
            }
            guard = self.carried(when);
        }
        let carries = joined(&guard, self.carried(&def.input));
        let Some(for_each) = &def.for_each else {
            let payload = self.payload_of(&def.input, &scope)?;
            let input = Given { payload, label: carries.0.clone(), tainted: carries.1 };
            return Ok(Some(Opened { input, each: None, carries }));
        };
        let list = for_each.list.list(&scope, self.eval_bounds()).map_err(|e| chain(&e))?;
        let (label, tainted) = joined(&guard, self.carried(&for_each.list));
        let each = self.elements(def, for_each, &list, scope)?;
        let payload = Payload::of_data(Value::Array(list));
        payload.check(&self.ctx.registry.bounds.payload).map_err(|e| chain(&e))?;
        let carries = joined(&(label.clone(), tainted), carries);
        Ok(Some(Opened { input: Given { payload, label, tainted }, each: Some(each), carries }))
    }

    /// What each element's run is given.
    fn elements<'s>(
        &self,
        def: &StepDef,
        for_each: &ForEach,
        list: &'s [Value],
        mut scope: Scope<'s>,
    ) -> Result<Vec<Payload>, String> {
        if list.len() > usize::from(for_each.max) {
            let (n, max) = (list.len(), for_each.max);
            return Err(format!("the list of for_each has {n} elements, and it takes {max} at most"));
        }
        let mut left = self.ctx.registry.bounds.payload.bytes.saturating_mul(INPUTS_OF_ONE_STEP);
        let mut given = Vec::with_capacity(list.len());
        for item in list {
            scope = scope.item(item);
            let payload = self.payload_of(&def.input, &scope)?;
            left = left
                .checked_sub(payload.bytes().len())
                .ok_or("the inputs of all elements of for_each are too large together")?;
            given.push(payload);
        }
        Ok(given)
    }

    fn payload_of(&self, template: &Template, scope: &Scope<'_>) -> Result<Payload, String> {
        let limits = &self.ctx.registry.bounds.payload;
        template.payload(scope, self.eval_bounds(), limits).map_err(|e| chain(&e))
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
        let payload = self.payload_of(template, &scoped.scope(self))?;
        let whens = self.flow.steps.iter().filter_map(|d| d.when.as_ref()).map(|w| self.carried(w));
        let (label, tainted) = whens.fold(self.carried(template), |all, when| joined(&all, when));
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
        if self.is_overdue() {
            return self.advance();
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

fn joined((a, s): &(Label, bool), (b, t): (Label, bool)) -> (Label, bool) {
    (a.join(&b), *s || t)
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
