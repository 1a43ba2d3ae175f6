//! Reads a workflow whole, or says everything that is wrong with it and where.
//!
//! Promise: what is let through names only endpoints, has at least one step and no cycle, refers only to
//! steps that must have ended by then, and has no condition that a foreign agent's free words decide.
//! Every step can be reached: without a cycle, each starts once what it needs has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::definition::{StepDef, Workflow};
use super::document::{self, Held, Node};
use super::expression::{Expression, Root};
use super::fault::{Fault, FaultCode, Mark};
use super::guard;
use super::reading::{Draft, MEMBERS, Reader, StepDraft};
use super::template::{Placed, Template};
use crate::endpoint::Endpoint;
use crate::id::{StepName, WorkflowName};
use crate::label::Levels;

/// Bytes of a workflow's text at most.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Steps of a workflow at most.
pub const MAX_STEPS: usize = 256;
/// Faults told at most: a hostile text mustn't make an answer larger than itself.
const MAX_FAULTS: usize = 100;

impl Workflow {
    /// Reads a workflow from YAML or JSON, as it is pushed.
    ///
    /// # Errors
    /// Every fault (at most a hundred), in the order of the text.
    pub fn parse(text: &str, levels: &Levels) -> Result<Self, Vec<Fault>> {
        read(text, Reader::new(Some(levels), &|_| true))
    }

    /// As [`parse`](Self::parse), refusing also each endpoint that isn't `known` (an agent that the registry
    /// doesn't have) where it stands.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_against(
        text: &str,
        levels: &Levels,
        known: &dyn Fn(&Endpoint) -> bool,
    ) -> Result<Self, Vec<Fault>> {
        read(text, Reader::new(Some(levels), known))
    }

    /// Where the node of a JSON pointer stands in a text that was read; its beginning if there is no such node.
    #[must_use]
    pub fn place(text: &str, pointer: &str) -> Mark {
        document::read(text).ok().and_then(|root| root.at_pointer(pointer)).unwrap_or(Mark::START)
    }

    /// Reads a text back that was checked when it was pushed. Labels aren't checked again: the org's
    /// levels may have changed since, which is for the step that uses them to find.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn load(text: &str) -> Result<Self, Vec<Fault>> {
        read(text, Reader::new(None, &|_| true))
    }
}

/// A stored text that doesn't read back: its first fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a workflow: {0}")]
pub struct NotAWorkflow(pub Fault);

impl TryFrom<String> for Workflow {
    type Error = NotAWorkflow;
    fn try_from(text: String) -> Result<Self, NotAWorkflow> {
        Self::load(&text).map_err(|faults| {
            let unknown = || Fault::new(FaultCode::BadYaml, Mark::START, "", "unreadable");
            NotAWorkflow(faults.into_iter().next().unwrap_or_else(unknown))
        })
    }
}

fn read(text: &str, mut reader: Reader<'_>) -> Result<Workflow, Vec<Fault>> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the text is {} bytes; at most {MAX_TEXT_BYTES} are allowed", text.len());
        return Err(vec![Fault::new(FaultCode::TooLarge, Mark::START, "", message)]);
    }
    let root = document::read(text).map_err(settled)?;
    let read = whole(&mut reader, &root, text);
    match read {
        Some(workflow) if reader.faults.is_empty() => Ok(workflow),
        _ => Err(settled(reader.faults)),
    }
}

/// In the order of the text, each once, not too many.
fn settled(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort();
    faults.dedup();
    faults.truncate(MAX_FAULTS);
    faults
}

fn whole(reader: &mut Reader<'_>, root: &Node<'_>, text: &str) -> Option<Workflow> {
    let m = reader.members(root, "", &MEMBERS)?;
    if m.get("name").is_none() {
        reader.missing(m.at, &m.pointer, "name");
    }
    let name: Option<WorkflowName> = reader.parsed(&m, "name");
    let version = reader.number(&m, "version", 1, u64::from(u32::MAX));
    let description = reader.text(&m, "description", 4096);
    let input_schema = reader.schema(&m, "input_schema");
    let label = reader.label(&m);
    let deadline = reader.span(&m, "deadline");
    let budget_microusd = reader.number(&m, "budget_microusd", 0, (1 << 53) - 1);
    let max_hops = reader.number(&m, "max_hops", 1, 10_000);
    let output = reader.template(&m, "output");
    let drafts = match m.get("steps") {
        Some((node, pointer)) => steps(reader, node, &pointer),
        None => {
            reader.missing(m.at, &m.pointer, "steps");
            Vec::new()
        }
    };
    let graph = Graph::of(reader, &drafts);
    references(reader, &drafts, &graph, output.as_ref());
    let defs = definitions(reader, drafts);
    let small = |n: Option<u64>| n.and_then(|n| u32::try_from(n).ok());
    let mut workflow = Workflow {
        name: name?,
        version: small(version),
        description,
        input_schema,
        label,
        deadline,
        budget_microusd,
        max_hops: small(max_hops),
        steps: defs?,
        output: output.map(|d| d.template),
        source: text.to_owned(),
    };
    if workflow.output.is_none() {
        workflow.output = match workflow.last().as_slice() {
            [only] => whole_output(&only.name),
            _ => None,
        };
    }
    Some(workflow)
}

fn steps(reader: &mut Reader<'_>, node: &Node<'_>, pointer: &str) -> Vec<StepDraft> {
    let Held::Members(all) = &node.held else {
        let message = format!("this must be a mapping of steps by name, got {}", node.kind());
        reader.fault(FaultCode::WrongType, node.at, pointer, message);
        return Vec::new();
    };
    if all.is_empty() {
        reader.fault(FaultCode::BadValue, node.at, pointer, "a workflow needs at least one step");
    }
    if let Some((key, _)) = all.get(MAX_STEPS) {
        let message = format!("there are {} steps; at most {MAX_STEPS} are allowed", all.len());
        reader.fault(FaultCode::TooManySteps, key.at, pointer, message);
        return Vec::new();
    }
    all.iter().filter_map(|(key, node)| reader.step(key, node)).collect()
}

/// Who needs whom, by place in the text.
struct Graph {
    places: BTreeMap<StepName, usize>,
    needs: Vec<Vec<usize>>,
}

impl Graph {
    fn of(reader: &mut Reader<'_>, drafts: &[StepDraft]) -> Self {
        let places: BTreeMap<StepName, usize> =
            drafts.iter().enumerate().map(|(i, d)| (d.name.clone(), i)).collect();
        let mut needs = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let mut known = Vec::new();
            for (i, (name, at)) in draft.needs.iter().enumerate() {
                match places.get(name) {
                    Some(place) => known.push(*place),
                    None => {
                        let pointer = format!("{}/needs/{i}", draft.pointer);
                        let message = format!("there is no step `{name}`");
                        reader.fault(FaultCode::UnknownStep, *at, &pointer, message);
                    }
                }
            }
            needs.push(known);
        }
        let graph = Self { places, needs };
        graph.cycles(reader, drafts);
        graph
    }

    fn needs_of(&self, step: usize) -> &[usize] {
        self.needs.get(step).map(Vec::as_slice).unwrap_or_default()
    }

    /// Which steps come before this one, however far back.
    fn before(&self, step: usize) -> Vec<bool> {
        let mut found = vec![false; self.needs.len()];
        let mut open = self.needs_of(step).to_vec();
        while let Some(at) = open.pop() {
            if let Some(seen) = found.get_mut(at).filter(|seen| !**seen) {
                *seen = true;
                open.extend(self.needs_of(at));
            }
        }
        found
    }

    /// The shortest way from a step over its needs back to itself.
    fn round(&self, start: usize) -> Option<Vec<usize>> {
        let mut came_from: Vec<Option<usize>> = vec![None; self.needs.len()];
        let mut open = VecDeque::from([start]);
        while let Some(at) = open.pop_front() {
            for need in self.needs_of(at) {
                if *need == start {
                    let mut way = vec![start, at];
                    while let Some(previous) = way.last().and_then(|s| came_from.get(*s).copied().flatten()) {
                        way.push(previous);
                    }
                    way.reverse();
                    return Some(way);
                }
                if let Some(unseen) = came_from.get_mut(*need).filter(|from| from.is_none()) {
                    *unseen = Some(at);
                    open.push_back(*need);
                }
            }
        }
        None
    }

    fn cycles(&self, reader: &mut Reader<'_>, drafts: &[StepDraft]) {
        let mut told: BTreeSet<usize> = BTreeSet::new();
        for (place, draft) in drafts.iter().enumerate() {
            if told.contains(&place) {
                continue;
            }
            let Some(way) = self.round(place) else { continue };
            told.extend(&way);
            let name = |i: &usize| drafts.get(*i).map(|d| d.name.to_string()).unwrap_or_default();
            let names: Vec<String> = way.iter().map(name).collect();
            let second = names.get(1).cloned().unwrap_or_default();
            let found = draft.needs.iter().enumerate().find(|(_, (n, _))| n.as_str() == second);
            let (index, at) = found.map_or((0, draft.at), |(i, (_, at))| (i, *at));
            let pointer = format!("{}/needs/{index}", draft.pointer);
            let message = format!("the needs go round: {}; none of them could start", names.join(" → "));
            reader.fault(FaultCode::Cycle, at, &pointer, message);
        }
    }
}

/// Where an expression is used: what it may name depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Condition,
    Input,
    EachInput,
    Output,
}

fn references(reader: &mut Reader<'_>, drafts: &[StepDraft], graph: &Graph, output: Option<&Draft>) {
    let tainted = tainted(drafts, graph);
    for (place, draft) in drafts.iter().enumerate() {
        let before = graph.before(place);
        let condition = draft.when.iter().flat_map(|d| &d.placed);
        let list = draft.for_each.iter().flat_map(|(_, placed)| placed);
        let checker = Checker { drafts, graph, before: Some(&before), tainted: &tainted };
        for placed in condition.chain(list) {
            checker.expression(reader, placed, Use::Condition);
        }
        let input = if draft.for_each.is_some() { Use::EachInput } else { Use::Input };
        for placed in draft.input.iter().flat_map(|d| &d.placed) {
            checker.expression(reader, placed, input);
        }
    }
    let checker = Checker { drafts, graph, before: None, tainted: &tainted };
    for placed in output.iter().flat_map(|d| &d.placed) {
        checker.expression(reader, placed, Use::Output);
    }
}

/// The steps whose output foreign words may be in, as far as the text shows: foreign steps, and those that
/// were handed or guarded by what such steps wrote.
fn tainted(drafts: &[StepDraft], graph: &Graph) -> BTreeSet<usize> {
    let reads = |d: &StepDraft| -> BTreeSet<usize> {
        let own = d.when.iter().chain(&d.input).flat_map(|d| &d.placed);
        let all = own.chain(d.for_each.iter().flat_map(|(_, placed)| placed));
        let mut read: BTreeSet<usize> = all
            .flat_map(|p| p.expression.reads())
            .filter_map(|r| if let Root::Output(s) = &r.root { graph.places.get(s).copied() } else { None })
            .collect();
        // Without an `input` it is handed what its one need gave.
        if let (None, [(need, _)]) = (&d.input, d.needs.as_slice()) {
            read.extend(graph.places.get(need));
        }
        read
    };
    let foreign = |d: &StepDraft| {
        let named = d.to.iter().chain(&d.fallback).chain(d.may.iter().flatten());
        guard::any_agent(named)
    };
    let all: Vec<BTreeSet<usize>> = drafts.iter().map(reads).collect();
    let mut found: BTreeSet<usize> =
        drafts.iter().enumerate().filter(|(_, d)| foreign(d)).map(|(i, _)| i).collect();
    loop {
        let more: Vec<usize> = all
            .iter()
            .enumerate()
            .filter(|(i, read)| !found.contains(i) && !read.is_disjoint(&found))
            .map(|(i, _)| i)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

struct Checker<'c> {
    drafts: &'c [StepDraft],
    graph: &'c Graph,
    /// The steps that have ended by then; none: all.
    before: Option<&'c [bool]>,
    tainted: &'c BTreeSet<usize>,
}

impl Checker<'_> {
    fn expression(&self, reader: &mut Reader<'_>, placed: &Placed, used: Use) {
        for (read, at) in placed.expression.reads().iter().zip(&placed.marks) {
            let mut fault = |code, message: String| reader.fault(code, *at, &placed.pointer, message);
            let step = match &read.root {
                Root::Output(step) | Root::Status(step) => step,
                Root::Item if used != Use::EachInput => {
                    let message = "`item` is there only in the input of a step with `for_each`";
                    fault(FaultCode::UnknownName, message.to_owned());
                    continue;
                }
                Root::Item | Root::Input | Root::TaskId | Root::Requester => continue,
            };
            let Some(place) = self.graph.places.get(step).copied() else {
                fault(FaultCode::UnknownStep, format!("there is no step `{step}`"));
                continue;
            };
            if self.before.is_some_and(|before| before.get(place) != Some(&true)) {
                let message = format!("`{step}` may not have ended by then; put it into `needs`");
                fault(FaultCode::NotNeeded, message);
                continue;
            }
            let draft = self.drafts.get(place);
            let schema = draft.and_then(|d| d.output_schema.as_ref());
            let each = draft.and_then(|d| d.for_each.as_ref()).map(|(each, _)| each);
            let reads_output = matches!(read.root, Root::Output(_));
            if used == Use::Condition
                && reads_output
                && self.tainted.contains(&place)
                && !guard::is_confined(read, schema, each)
            {
                let message = format!(
                    "foreign words may be in the output of `{step}`, and they mustn't decide: read a boolean, a number \
                     or an enum under .data that its `output_schema` declares"
                );
                fault(FaultCode::ForeignCondition, message);
            }
        }
    }
}

fn definitions(reader: &mut Reader<'_>, drafts: Vec<StepDraft>) -> Option<Vec<StepDef>> {
    let mut defs = Vec::with_capacity(drafts.len());
    for d in drafts {
        let input = match (d.input, &d.for_each, d.needs.as_slice()) {
            (Some(draft), _, _) => Some(draft.template),
            (None, Some(_), _) => whole_of("item"),
            (None, None, []) => whole_of("input"),
            (None, None, [(need, _)]) => whole_output(need),
            (None, None, _) => {
                let message = "the step has several needs; say with `input` what it is handed";
                reader.fault(FaultCode::AmbiguousInput, d.at, &d.pointer, message);
                None
            }
        };
        let (Some(to), Some(input)) = (d.to, input) else { continue };
        defs.push(StepDef {
            name: d.name,
            to,
            needs: d.needs.into_iter().map(|(name, _)| name).collect(),
            when: d.when.map(|d| d.template),
            input,
            skill: d.skill,
            label: d.label,
            output_schema: d.output_schema,
            deadline: d.deadline,
            retry: d.retry,
            fallback: d.fallback,
            for_each: d.for_each.map(|(each, _)| each),
            on_input_required: d.on_input_required,
            may: d.may,
        });
    }
    reader.faults.is_empty().then_some(defs)
}

fn whole_output(step: &StepName) -> Option<Template> {
    whole_of(&format!("steps.{step}.output"))
}

fn whole_of(expression: &str) -> Option<Template> {
    Expression::parse(expression).ok().map(Template::of)
}

#[cfg(test)]
mod tests;
