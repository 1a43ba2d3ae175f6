//! A workflow as the task sees it: checked, with its defaults filled in.
//!
//! Built only by [`Workflow::parse`] and [`Workflow::load`]. Stored as its text and read back from it, so
//! that what an operator sees is what was pushed; told apart by [`Workflow::digest`], which covers the
//! meaning and not the spelling.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::guard::Source;
use super::template::Template;
use crate::endpoint::Endpoint;
use crate::id::{Malformed, StepName, WorkflowName};
use crate::label::Levels;
use crate::payload::{Sha256Digest, canonical};
use crate::time::Span;

/// A workflow. In JSON it is its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Workflow {
    /// Its name.
    pub name: WorkflowName,
    /// The version that the text says it is, if it says; the record counts the real ones.
    pub version: Option<u32>,
    /// What it is for.
    pub description: Option<String>,
    /// JSON Schema that the input's data must meet.
    pub input_schema: Option<Value>,
    /// The label that its input is raised to, as text (`internal+eu`).
    pub label: Option<String>,
    /// How long a task of it may run.
    pub deadline: Option<Span>,
    /// What a task of it may cost, in millionths of a dollar.
    pub budget_microusd: Option<u64>,
    /// How many hops a task of it may make.
    pub max_hops: Option<u32>,
    /// The steps, in the order of the text, each name once.
    pub steps: Vec<StepDef>,
    /// What the task gives. Omitted in the text: the output of the one step that no other needs; none if
    /// there are several.
    pub output: Option<Template>,
    pub(super) source: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepDef {
    /// Its name.
    pub name: StepName,
    /// Where its hop goes.
    pub to: Endpoint,
    /// The steps that must have ended well, or been skipped, before it starts.
    pub needs: Vec<StepName>,
    /// Skipped unless this holds.
    pub when: Option<Template>,
    /// Its input. Omitted in the text: the `item` of a `for_each`; else the output of its one need; else
    /// the task's input.
    pub input: Template,
    /// The skill that the foreign agent must offer.
    pub skill: Option<String>,
    /// The label that its input is raised to, as text.
    pub label: Option<String>,
    /// JSON Schema that the output's data must meet.
    pub output_schema: Option<Value>,
    /// How long its hop may take.
    pub deadline: Option<Span>,
    /// How often it is tried before its `fallback`.
    pub retry: Option<Retry>,
    /// Where it goes once `to` ended badly.
    pub fallback: Option<Endpoint>,
    /// Runs once for each element of a list.
    pub for_each: Option<ForEach>,
    /// What becomes of a question that the foreign agent asks.
    pub on_input_required: Ask,
    /// Where a worker of this step may delegate to; narrows what its role may. Omitted in the text: all
    /// that its role may.
    pub may: Option<Vec<Endpoint>>,
}

/// What becomes of a foreign agent's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// The step waits for a person's answer.
    #[default]
    Ask,
    /// The step fails.
    Fail,
}

/// How often a step is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first one among them: 1 to 10.
    pub attempts: u8,
    /// The pause before the second try; it doubles from try to try. None: the configured one.
    pub backoff: Option<Span>,
}

/// A step that runs once for each element of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEach {
    /// The list.
    pub list: Template,
    /// Elements at most, 1 to 100; a longer list fails the step.
    pub max: u8,
}

impl Workflow {
    /// A delegation as a workflow: one step, `hop`, that hands the task's input on.
    ///
    /// # Errors
    /// If the skill isn't a text that a definition may hold.
    pub fn delegation(to: &Endpoint, skill: Option<&str>, levels: &Levels) -> Result<Self, Vec<Fault>> {
        let mut step = json!({ "to": to });
        if let (Some(skill), Some(m)) = (skill, step.as_object_mut()) {
            m.insert("skill".to_owned(), json!(skill));
        }
        Self::parse(&json!({ "name": "delegation", "steps": { "hop": step } }).to_string(), levels)
    }

    /// The text that it was read from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// A step by name.
    #[must_use]
    pub fn step(&self, name: &StepName) -> Option<&StepDef> {
        self.steps.iter().find(|s| s.name == *name)
    }

    /// Every step that must come before this one, however far back.
    #[must_use]
    pub fn before(&self, name: &StepName) -> BTreeSet<StepName> {
        let needs: BTreeMap<&StepName, &[StepName]> =
            self.steps.iter().map(|s| (&s.name, s.needs.as_slice())).collect();
        let mut found = BTreeSet::new();
        let mut open: Vec<&StepName> = needs.get(name).copied().unwrap_or_default().iter().collect();
        while let Some(step) = open.pop() {
            if found.insert(step.clone()) {
                open.extend(needs.get(step).copied().unwrap_or_default());
            }
        }
        found
    }

    /// The steps that no other step needs.
    #[must_use]
    pub fn last(&self) -> Vec<&StepDef> {
        let needed: BTreeSet<&StepName> = self.steps.iter().flat_map(|s| &s.needs).collect();
        self.steps.iter().filter(|s| !needed.contains(&s.name)).collect()
    }

    /// Every endpoint that it names: what the push checks against the registry, and the only places that
    /// a task of it can reach.
    #[must_use]
    pub fn endpoints(&self) -> BTreeSet<Endpoint> {
        let of = |s: &StepDef| -> Vec<Endpoint> {
            let may = s.may.iter().flatten();
            [&s.to].into_iter().chain(&s.fallback).chain(may).cloned().collect()
        };
        self.steps.iter().flat_map(of).collect()
    }

    /// What it means, as JSON: defaults filled in, spelling and the order of the text left out, and
    /// without the version that the text says.
    #[must_use]
    pub fn meaning(&self) -> Value {
        let mut m = Map::new();
        let steps: Map<String, Value> =
            self.steps.iter().map(|s| (s.name.to_string(), s.meaning())).collect();
        put(&mut m, "name", Some(self.name.as_str()));
        put(&mut m, "description", self.description.as_deref());
        put(&mut m, "input_schema", self.input_schema.clone());
        put(&mut m, "label", self.label.as_deref());
        put(&mut m, "deadline", self.deadline.map(|d| d.to_string()));
        put(&mut m, "budget_microusd", self.budget_microusd);
        put(&mut m, "max_hops", self.max_hops);
        put(&mut m, "steps", Some(Value::Object(steps)));
        put(&mut m, "output", self.output.as_ref().map(|t| t.source().clone()));
        Value::Object(m)
    }

    /// SHA-256 over the JCS (RFC 8785) of [`meaning`](Self::meaning).
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(&canonical(&self.meaning()))
    }
}

impl StepDef {
    /// What it is handed or decided by: the label and the taint of each join into its input, and so into
    /// all that comes of it.
    #[must_use]
    pub fn sources(&self) -> BTreeSet<Source> {
        let list = self.for_each.iter().map(|e| &e.list);
        [&self.input].into_iter().chain(&self.when).chain(list).flat_map(Template::sources).collect()
    }

    fn meaning(&self) -> Value {
        let mut m = Map::new();
        let sorted = |of: BTreeSet<String>| json!(of);
        let needs = self.needs.iter().map(ToString::to_string).collect();
        let may = self.may.as_ref().map(|may| sorted(may.iter().map(ToString::to_string).collect()));
        let retry = self.retry.map(|r| json!({ "attempts": r.attempts, "backoff": r.backoff }));
        let each = self.for_each.as_ref().map(|e| json!({ "in": e.list.source(), "max": e.max }));
        put(&mut m, "to", Some(self.to.to_string()));
        put(&mut m, "needs", Some(sorted(needs)));
        put(&mut m, "when", self.when.as_ref().map(|t| t.source().clone()));
        put(&mut m, "input", Some(self.input.source().clone()));
        put(&mut m, "skill", self.skill.as_deref());
        put(&mut m, "label", self.label.as_deref());
        put(&mut m, "output_schema", self.output_schema.clone());
        put(&mut m, "deadline", self.deadline.map(|d| d.to_string()));
        put(&mut m, "retry", retry);
        put(&mut m, "fallback", self.fallback.as_ref().map(ToString::to_string));
        put(&mut m, "for_each", each);
        put(&mut m, "on_input_required", Some(json!(self.on_input_required)));
        put(&mut m, "may", may);
        Value::Object(m)
    }
}

fn put(m: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(v) = value {
        m.insert(name.to_owned(), v.into());
    }
}

/// One version of a workflow, as `name@3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkflowRef {
    /// Which workflow.
    pub name: WorkflowName,
    /// Which version, from 1.
    pub version: u32,
}

impl fmt::Display for WorkflowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl FromStr for WorkflowRef {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::new("workflow version", "NAME@N with N from 1", s);
        let (name, version) = s.split_once('@').ok_or_else(bad)?;
        let plain = !version.starts_with(['0', '+']);
        let version = version.parse().ok().filter(|_| plain).ok_or_else(bad)?;
        Ok(Self { name: name.parse()?, version })
    }
}

impl TryFrom<String> for WorkflowRef {
    type Error = Malformed;
    fn try_from(s: String) -> Result<Self, Malformed> {
        s.parse()
    }
}

impl From<WorkflowRef> for String {
    fn from(r: WorkflowRef) -> Self {
        r.to_string()
    }
}

impl From<Workflow> for String {
    fn from(w: Workflow) -> Self {
        w.source
    }
}
