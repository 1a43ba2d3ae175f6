//! Runs of a step: set out, tried again, sent to the fallback, and put together once all are over.
//!
//! A step has one run, or one for each element of its `for_each` list. All runs of a step are under way side
//! by side, and each has its own tries and its own fallback. One that ends badly for good ends the step.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bridge::schedule::backoff;
use crate::endpoint::Endpoint;
use crate::id::{HopId, StepName};
use crate::payload::Payload;
use crate::reason::ReasonCode;
use crate::task::desk::{Desk, Refusal};
use crate::task::dispatch::NewHop;
use crate::task::{End, Ending, Held, HopOwner, HopState, Step, StepStatus};
use crate::time::Timestamp;
use crate::workflow::StepDef;

/// A step's work on its input, or on one element of its list: tried again and on its fallback by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What every try is given.
    pub input: Held,
    /// How often it was tried.
    pub tries: u32,
    /// Is it on its fallback?
    pub on_fallback: Option<Endpoint>,
    /// Where it stands.
    pub state: RunState,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum RunState {
    /// To be set out.
    Waiting {
        /// A retry, not before then.
        not_before: Option<Timestamp>,
    },
    /// Its hop is under way.
    Out {
        /// The hop.
        hop: HopId,
    },
    /// It will not be tried again.
    Over {
        /// The last hop.
        hop: HopId,
    },
}

impl Run {
    /// The hop that runs it now, or did last.
    #[must_use]
    pub const fn hop(&self) -> Option<HopId> {
        match self.state {
            RunState::Waiting { .. } => None,
            RunState::Out { hop } | RunState::Over { hop } => Some(hop),
        }
    }
    /// When it is tried again, if it waits for that.
    #[must_use]
    pub const fn retries_at(&self) -> Option<Timestamp> {
        match self.state {
            RunState::Waiting { not_before } => not_before,
            RunState::Out { .. } | RunState::Over { .. } => None,
        }
    }
    /// A run that is to be set out.
    pub(crate) const fn of(input: Held) -> Self {
        Self { input, tries: 0, on_fallback: None, state: RunState::Waiting { not_before: None } }
    }
}

impl Desk<'_> {
    /// The next run that may be set out.
    pub(crate) fn due_run(&self) -> Option<(StepName, usize)> {
        let is_due = |run: &Run| match run.state {
            RunState::Waiting { not_before } => not_before.is_none_or(|t| t <= self.now()),
            RunState::Out { .. } | RunState::Over { .. } => false,
        };
        let live = self.task.steps.iter().filter(|s| !s.status.is_over());
        let mut due = live.filter_map(|s| Some((s.name.clone(), s.runs.iter().position(is_due)?)));
        due.next()
    }

    /// Sets a run out, to the step's endpoint or to its fallback.
    pub(crate) fn set_out_run(&mut self, name: &StepName, nth: usize) -> Result<(), Refusal> {
        let def = self.def(name)?;
        let mut run = self.run_mut(name, nth)?.clone();
        run.tries += 1;
        self.run_adopts(name, &mut run);
        *self.run_mut(name, nth)? = run.clone();
        let new = NewHop {
            step: def.name.clone(),
            owner: HopOwner::Step { run: nth },
            to: run.on_fallback.unwrap_or_else(|| def.to.clone()),
            depth: 1,
            skill: def.skill.clone(),
            deadline: def.deadline,
            input: run.input,
        };
        self.set_out(new).map(|_: HopId| ())
    }

    /// A step's new hop is under way, and may be over in the same decision.
    pub(crate) fn run_is_out(&mut self, name: &StepName, nth: usize, hop: HopId) -> Result<(), Refusal> {
        self.run_mut(name, nth)?.state = RunState::Out { hop };
        Ok(())
    }

    /// A run's hop is over: it is tried again, takes the fallback, or is over too.
    pub(crate) fn run_over(&mut self, name: &StepName, nth: usize, end: End) -> Result<(), Refusal> {
        let end = self.held_to_schema(name, end)?;
        if end.ending != Ending::Completed && self.may_try_again(name, nth, &end)? {
            return Ok(());
        }
        let run = self.run_mut(name, nth)?;
        if let Some(hop) = run.hop() {
            run.state = RunState::Over { hop };
        }
        if end.ending != Ending::Completed {
            self.end_step(name, &end)?;
            return self.end_task(end.ending, end.reason, None);
        }
        self.step_may_be_over(name, end.output)
    }

    /// Ends a step well once all its runs are over. `last`: what the one that was over last gave.
    pub(crate) fn step_may_be_over(&mut self, name: &StepName, last: Option<Held>) -> Result<(), Refusal> {
        let step = self.task.step(name).ok_or(Refusal::NotFound("step"))?;
        if step.runs.iter().any(|r| !matches!(r.state, RunState::Over { .. })) {
            return Ok(());
        }
        let output = match self.def(name)?.for_each {
            None => Ok(last),
            Some(_) => self.gathered(&step.clone())?.map(Some),
        };
        match output {
            Ok(output) => {
                let end = End { ending: Ending::Completed, reason: None, output };
                self.end_step(name, &end)
            }
            Err(end) => {
                self.end_step(name, &end)?;
                self.end_task(end.ending, end.reason, None)
            }
        }
    }

    /// What the elements gave, in their order, as one data part: each as expressions see an output. It
    /// carries what the list and all the outputs do.
    fn gathered(&mut self, step: &Step) -> Result<Result<Held, End>, Refusal> {
        let ended = |run: &Run| match run.hop().and_then(|h| self.task.hop(h)).map(|h| &h.state) {
            Some(HopState::Ended { output, .. }) => output.as_ref(),
            _ => None,
        };
        let outputs: Vec<Option<&Held>> = step.runs.iter().map(ended).collect();
        let shown = |held: &Option<&Held>| {
            let Some(held) = held else { return Ok(Value::Null) };
            let mut payload = self.payload(held)?;
            payload.artifacts.clear();
            Ok(payload.shown())
        };
        let list = outputs.iter().map(shown).collect::<Result<Vec<Value>, Refusal>>()?;
        let start = (self.ctx.registry.default_label.clone(), false);
        let (label, tainted) = outputs
            .into_iter()
            .flatten()
            .chain(&step.input)
            .fold(start, |(l, t), held| (l.join(&held.label), t || held.tainted));
        let payload = Payload::of_data(Value::Array(list));
        Ok(match payload.check(&self.ctx.registry.bounds.payload) {
            Ok(()) => Ok(self.hold(&payload, label, tainted)),
            Err(e) => {
                let why = format!("what the elements of for_each gave doesn't fit into one output: {e}");
                Err(End::badly(Ending::Failed, ReasonCode::ExpressionFailed, &why))
            }
        })
    }

    /// Ends a step.
    pub(crate) fn end_step(&mut self, name: &StepName, end: &End) -> Result<(), Refusal> {
        let now = self.now();
        let step = self.step_mut(name)?;
        step.status = StepStatus::Ended(end.ending);
        step.reason.clone_from(&end.reason);
        step.output.clone_from(&end.output);
        step.ended_at = Some(now);
        Ok(())
    }

    fn held_to_schema(&mut self, name: &StepName, end: End) -> Result<End, Refusal> {
        let (Some(output), Some(def)) = (&end.output, self.flow.step(name)) else { return Ok(end) };
        let Some(schema) = def.output_schema.clone() else { return Ok(end) };
        let data = self.payload(output)?.data();
        Ok(match self.ctx.schemas.check(&schema, &data) {
            Ok(()) => end,
            Err(why) => End::badly(Ending::Failed, ReasonCode::OutputSchemaMismatch, &why),
        })
    }

    /// Puts a run back for another try, if the workflow grants one and trying again can't double an effect.
    fn may_try_again(&mut self, name: &StepName, nth: usize, end: &End) -> Result<bool, Refusal> {
        let unsafe_to_repeat = end.reason.as_ref().is_some_and(|r| {
            use ReasonCode as R;
            matches!(r.code, R::OutcomeUnknown | R::Unconfirmed | R::Tampered | R::IngressDenied)
        });
        if unsafe_to_repeat || end.ending == Ending::Canceled || self.task.status.is_ended() {
            return Ok(false);
        }
        let def = self.def(name)?;
        let (now, bounds) = (self.now(), self.ctx.registry.bounds.clone());
        let run = self.run_mut(name, nth)?;
        let retries = matches!(end.ending, Ending::Failed | Ending::TimedOut | Ending::Rejected);
        if let Some(retry) = def.retry
            && retries
            && run.on_fallback.is_none()
            && run.tries < u32::from(retry.attempts)
        {
            let first = retry.backoff.unwrap_or(bounds.retry_first);
            let pause = backoff(run.tries, first, bounds.retry_max.max(first));
            run.state = RunState::Waiting { not_before: Some(now + pause) };
            return Ok(true);
        }
        if let (Some(fallback), None) = (def.fallback, &run.on_fallback) {
            run.on_fallback = Some(fallback);
            run.state = RunState::Waiting { not_before: None };
            return Ok(true);
        }
        Ok(false)
    }

    fn def(&self, name: &StepName) -> Result<StepDef, Refusal> {
        self.flow.step(name).cloned().ok_or(Refusal::NotFound("step"))
    }

    fn run_mut(&mut self, name: &StepName, nth: usize) -> Result<&mut Run, Refusal> {
        self.step_mut(name)?.runs.get_mut(nth).ok_or(Refusal::NotFound("run"))
    }
}
