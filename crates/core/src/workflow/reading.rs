//! From a document's tree to drafts of steps, with every fault of shape noted where it stands.
//!
//! What needs only one member is judged here: kinds, names, ranges, endpoints, labels, expressions. What
//! needs the whole workflow (needs, cycles, references, conditions) is judged in [`super::check`].

use serde_json::Value;

use super::check::MAX_STEPS;
use super::definition::{Ask, ForEach, Retry};
use super::document::{Held, Key, Node};
use super::fault::{Fault, FaultCode, Mark, beneath, excerpt};
use super::template::{Placed, Template};
use crate::endpoint::Endpoint;
use crate::id::StepName;
use crate::label::Levels;
use crate::time::Span;

/// Members of a workflow.
pub(super) const MEMBERS: [&str; 10] = [
    "name",
    "version",
    "description",
    "input_schema",
    "label",
    "deadline",
    "budget_microusd",
    "max_hops",
    "steps",
    "output",
];
/// Members of a step.
pub(super) const STEP_MEMBERS: [&str; 13] = [
    "to",
    "needs",
    "when",
    "input",
    "skill",
    "label",
    "output_schema",
    "deadline",
    "retry",
    "fallback",
    "for_each",
    "on_input_required",
    "may",
];

/// No clock of a task runs longer than this.
const LONGEST: Span = Span::of_secs(366 * 86_400);

/// A template and where its expressions stand.
pub(super) struct Draft {
    pub(super) template: Template,
    pub(super) placed: Vec<Placed>,
}

/// A step whose own members are good as far as they are there.
pub(super) struct StepDraft {
    pub(super) name: StepName,
    pub(super) at: Mark,
    pub(super) pointer: String,
    pub(super) to: Option<Endpoint>,
    pub(super) needs: Vec<(StepName, Mark)>,
    pub(super) when: Option<Draft>,
    pub(super) input: Option<Draft>,
    pub(super) skill: Option<String>,
    pub(super) label: Option<String>,
    pub(super) output_schema: Option<Value>,
    pub(super) deadline: Option<Span>,
    pub(super) retry: Option<Retry>,
    pub(super) fallback: Option<Endpoint>,
    pub(super) for_each: Option<(ForEach, Vec<Placed>)>,
    pub(super) on_input_required: Ask,
    pub(super) may: Option<Vec<Endpoint>>,
}

/// Reads nodes, noting what is wrong.
pub(super) struct Reader<'l> {
    /// The org's levels; none when a stored text is read back.
    levels: Option<&'l Levels>,
    /// Can work go there?
    known: &'l dyn Fn(&Endpoint) -> bool,
    pub(super) faults: Vec<Fault>,
}

/// The members of one mapping, and where it stands.
pub(super) struct Members<'n, 't> {
    all: &'n [(Key, Node<'t>)],
    pub(super) at: Mark,
    pub(super) pointer: String,
}

impl<'n, 't> Members<'n, 't> {
    /// A member, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<(&'n Node<'t>, String)> {
        let (_, node) = self.all.iter().find(|(k, _)| k.text == name)?;
        Some((node, beneath(&self.pointer, name)))
    }
}

impl<'l> Reader<'l> {
    pub(super) fn new(levels: Option<&'l Levels>, known: &'l dyn Fn(&Endpoint) -> bool) -> Self {
        Self { levels, known, faults: Vec::new() }
    }

    pub(super) fn fault(&mut self, code: FaultCode, at: Mark, pointer: &str, message: impl Into<String>) {
        self.faults.push(Fault::new(code, at, pointer, message));
    }

    fn wrong_kind(&mut self, node: &Node<'_>, pointer: &str, wanted: &str) {
        let message = format!("this must be {wanted}, got {}", node.kind());
        self.fault(FaultCode::WrongType, node.at, pointer, message);
    }

    /// A mapping whose members are all known.
    pub(super) fn members<'n, 't>(
        &mut self,
        node: &'n Node<'t>,
        pointer: &str,
        known: &[&str],
    ) -> Option<Members<'n, 't>> {
        let Held::Members(all) = &node.held else {
            self.wrong_kind(node, pointer, "a mapping");
            return None;
        };
        for (key, value) in all.iter().filter(|(k, _)| !known.contains(&k.text.as_str())) {
            let pointer = beneath(pointer, &key.text);
            if matches!(&value.held, Held::Text(t) if looks_like_url(t)) {
                self.url(value.at, &pointer);
            } else {
                let message = format!(
                    "there is no member `{}` here; there are {}",
                    excerpt(&key.text),
                    known.join(", ")
                );
                self.fault(FaultCode::UnknownMember, key.at, &pointer, message);
            }
        }
        Some(Members { all, at: node.at, pointer: pointer.to_owned() })
    }

    pub(super) fn missing(&mut self, at: Mark, pointer: &str, name: &str) {
        let message = format!("the member `{name}` must be there");
        self.fault(FaultCode::MissingMember, at, pointer, message);
    }

    fn url(&mut self, at: Mark, pointer: &str) {
        let message = "a workflow names agents by their key (agent:KEY); addresses belong in the registry";
        self.fault(FaultCode::UrlInWorkflow, at, pointer, message);
    }

    fn text_node<'n>(&mut self, node: &'n Node<'_>, pointer: &str) -> Option<&'n str> {
        if let Held::Text(t) = &node.held {
            return Some(t);
        }
        self.wrong_kind(node, pointer, "a string");
        None
    }

    pub(super) fn text(&mut self, m: &Members<'_, '_>, name: &str, longest: usize) -> Option<String> {
        let (node, pointer) = m.get(name)?;
        let text = self.text_node(node, &pointer)?;
        if text.is_empty() || text.chars().count() > longest {
            let message = format!("this must be 1 to {longest} characters");
            self.fault(FaultCode::BadValue, node.at, &pointer, message);
            return None;
        }
        Some(text.to_owned())
    }

    /// A member that reads from a string: a name, a duration.
    pub(super) fn parsed<T>(&mut self, m: &Members<'_, '_>, name: &str) -> Option<T>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let (node, pointer) = m.get(name)?;
        match self.text_node(node, &pointer)?.parse() {
            Ok(value) => Some(value),
            Err(e) => {
                self.fault(FaultCode::BadValue, node.at, &pointer, e.to_string());
                None
            }
        }
    }

    pub(super) fn span(&mut self, m: &Members<'_, '_>, name: &str) -> Option<Span> {
        let span: Span = self.parsed(m, name)?;
        if span > Span::ZERO && span <= LONGEST {
            return Some(span);
        }
        let (node, pointer) = m.get(name)?;
        self.fault(
            FaultCode::BadValue,
            node.at,
            &pointer,
            format!("this must be more than 0s, at most {LONGEST}"),
        );
        None
    }

    fn whole(&mut self, node: &Node<'_>, pointer: &str, least: u64, most: u64) -> Option<u64> {
        match &node.held {
            Held::Number(n) => match n.as_u64().filter(|n| (least..=most).contains(n)) {
                Some(n) => Some(n),
                None => {
                    let message = format!("this must be a whole number from {least} to {most}");
                    self.fault(FaultCode::BadValue, node.at, pointer, message);
                    None
                }
            },
            _ => {
                self.wrong_kind(node, pointer, "a number");
                None
            }
        }
    }

    pub(super) fn number(&mut self, m: &Members<'_, '_>, name: &str, least: u64, most: u64) -> Option<u64> {
        let (node, pointer) = m.get(name)?;
        self.whole(node, &pointer, least, most)
    }

    pub(super) fn label(&mut self, m: &Members<'_, '_>) -> Option<String> {
        let (node, pointer) = m.get("label")?;
        let text = self.text_node(node, &pointer)?;
        if let Some(Err(e)) = self.levels.map(|l| l.parse(text)) {
            self.fault(FaultCode::BadLabel, node.at, &pointer, e.to_string());
        }
        Some(text.to_owned())
    }

    /// A schema that stands for itself: an object or a boolean, with no reference to elsewhere.
    pub(super) fn schema(&mut self, m: &Members<'_, '_>, name: &str) -> Option<Value> {
        let (node, pointer) = m.get(name)?;
        if !matches!(node.held, Held::Members(_) | Held::Bool(_)) {
            let message = format!("a JSON Schema is a mapping or a boolean, not {}", node.kind());
            self.fault(FaultCode::BadSchema, node.at, &pointer, message);
            return None;
        }
        self.references(node, &pointer);
        Some(node.value())
    }

    fn references(&mut self, node: &Node<'_>, pointer: &str) {
        match &node.held {
            Held::List(items) => {
                items.iter().enumerate().for_each(|(i, n)| self.references(n, &format!("{pointer}/{i}")));
            }
            Held::Members(members) => {
                for (key, value) in members {
                    let pointer = beneath(pointer, &key.text);
                    let away = match (key.text.as_str(), &value.held) {
                        ("$ref" | "$dynamicRef", Held::Text(to)) => !to.starts_with('#'),
                        // It would give every reference beneath it another base.
                        ("$id", Held::Text(_)) => true,
                        _ => false,
                    };
                    if away {
                        let message = format!("`{}` may only refer to this schema itself: #/…", key.text);
                        self.fault(FaultCode::BadSchema, value.at, &pointer, message);
                    }
                    self.references(value, &pointer);
                }
            }
            Held::Null | Held::Bool(_) | Held::Number(_) | Held::Text(_) => {}
        }
    }

    fn endpoint_node(&mut self, node: &Node<'_>, pointer: &str) -> Option<Endpoint> {
        let text = self.text_node(node, pointer)?;
        if looks_like_url(text) {
            self.url(node.at, pointer);
            return None;
        }
        match text.parse() {
            Ok(endpoint) if (self.known)(&endpoint) => Some(endpoint),
            Ok(endpoint) => {
                let message = format!("there is no `{endpoint}`");
                self.fault(FaultCode::UnknownDestination, node.at, pointer, message);
                None
            }
            Err(_) if text.contains("${{") => {
                let message = "a destination is written out, never computed";
                self.fault(FaultCode::BadEndpoint, node.at, pointer, message);
                None
            }
            Err(e) => {
                self.fault(FaultCode::BadEndpoint, node.at, pointer, e.to_string());
                None
            }
        }
    }

    fn endpoint(&mut self, m: &Members<'_, '_>, name: &str) -> Option<Endpoint> {
        let (node, pointer) = m.get(name)?;
        self.endpoint_node(node, &pointer)
    }

    fn list<'n, 't>(&mut self, m: &Members<'n, 't>, name: &str) -> Option<(&'n [Node<'t>], String)> {
        let (node, pointer) = m.get(name)?;
        if let Held::List(items) = &node.held {
            if items.len() > MAX_STEPS {
                let message = format!("this has {} elements; at most {MAX_STEPS} are allowed", items.len());
                self.fault(FaultCode::BadValue, node.at, &pointer, message);
                return None;
            }
            return Some((items, pointer));
        }
        self.wrong_kind(node, &pointer, "a list");
        None
    }

    pub(super) fn template_node(&mut self, node: &Node<'_>, pointer: &str) -> Draft {
        let (mut placed, mut wrong) = (Vec::new(), Vec::new());
        let template = Template::read(node, pointer, &mut placed, &mut wrong);
        for w in wrong {
            self.fault(w.bad.code, w.at, &w.pointer, w.bad.message);
        }
        Draft { template, placed }
    }

    pub(super) fn template(&mut self, m: &Members<'_, '_>, name: &str) -> Option<Draft> {
        let (node, pointer) = m.get(name)?;
        Some(self.template_node(node, &pointer))
    }

    /// A string that is one expression.
    fn expression_node(&mut self, node: &Node<'_>, pointer: &str) -> Option<Draft> {
        let before = self.faults.len();
        let draft = self.template_node(node, pointer);
        if draft.template.expression().is_none() && self.faults.len() == before {
            self.wrong_kind(node, pointer, "a string that is one ${{ expression }}");
        }
        draft.template.expression().is_some().then_some(draft)
    }

    fn when(&mut self, m: &Members<'_, '_>) -> Option<Draft> {
        let (node, pointer) = m.get("when")?;
        let draft = self.expression_node(node, &pointer)?;
        if draft.template.reads().next().is_none() {
            let message = "this reads nothing, so the step would run always or never";
            self.fault(FaultCode::BadValue, node.at, &pointer, message);
        }
        Some(draft)
    }

    fn retry(&mut self, m: &Members<'_, '_>) -> Option<Retry> {
        let (node, pointer) = m.get("retry")?;
        let small = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
        if matches!(node.held, Held::Number(_)) {
            let attempts = self.whole(node, &pointer, 1, 10)?;
            return Some(Retry { attempts: small(attempts), backoff: None });
        }
        let members = self.members(node, &pointer, &["attempts", "backoff"])?;
        if members.get("attempts").is_none() {
            self.missing(node.at, &pointer, "attempts");
        }
        let attempts = self.number(&members, "attempts", 1, 10);
        let backoff = self.span(&members, "backoff");
        Some(Retry { attempts: small(attempts?), backoff })
    }

    fn for_each(&mut self, m: &Members<'_, '_>) -> Option<(ForEach, Vec<Placed>)> {
        const MOST: u8 = 100;
        let (node, pointer) = m.get("for_each")?;
        if matches!(node.held, Held::Text(_)) {
            let draft = self.expression_node(node, &pointer)?;
            return Some((ForEach { list: draft.template, max: MOST }, draft.placed));
        }
        let members = self.members(node, &pointer, &["in", "max"])?;
        let max = self.number(&members, "max", 1, u64::from(MOST));
        let Some((list, pointer)) = members.get("in") else {
            self.missing(node.at, &pointer, "in");
            return None;
        };
        let draft = self.expression_node(list, &pointer)?;
        let max = max.and_then(|n| u8::try_from(n).ok()).unwrap_or(MOST);
        Some((ForEach { list: draft.template, max }, draft.placed))
    }

    fn asks(&mut self, m: &Members<'_, '_>) -> Ask {
        let Some((node, pointer)) = m.get("on_input_required") else { return Ask::default() };
        match &node.held {
            Held::Text(t) if t == "ask" => Ask::Ask,
            Held::Text(t) if t == "fail" => Ask::Fail,
            _ => {
                self.fault(FaultCode::BadValue, node.at, &pointer, "this must be ask or fail");
                Ask::default()
            }
        }
    }

    fn needs(&mut self, m: &Members<'_, '_>) -> Vec<(StepName, Mark)> {
        let Some((items, pointer)) = self.list(m, "needs") else { return Vec::new() };
        let mut needs: Vec<(StepName, Mark)> = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let pointer = format!("{pointer}/{i}");
            let Some(text) = self.text_node(item, &pointer) else { continue };
            match text.parse::<StepName>() {
                Ok(name) if needs.iter().any(|(n, _)| *n == name) => {
                    let message = format!("`{name}` is there twice");
                    self.fault(FaultCode::BadValue, item.at, &pointer, message);
                }
                Ok(name) => needs.push((name, item.at)),
                Err(e) => self.fault(FaultCode::UnknownStep, item.at, &pointer, e.to_string()),
            }
        }
        needs
    }

    fn may(&mut self, m: &Members<'_, '_>) -> Option<Vec<Endpoint>> {
        let (items, pointer) = self.list(m, "may")?;
        let each = items.iter().enumerate();
        Some(each.filter_map(|(i, n)| self.endpoint_node(n, &format!("{pointer}/{i}"))).collect())
    }

    pub(super) fn step(&mut self, key: &Key, node: &Node<'_>) -> Option<StepDraft> {
        let pointer = beneath("/steps", &key.text);
        let name = match key.text.parse::<StepName>() {
            Ok(name) => Some(name),
            Err(e) => {
                self.fault(FaultCode::BadValue, key.at, &pointer, e.to_string());
                None
            }
        };
        let m = self.members(node, &pointer, &STEP_MEMBERS)?;
        if m.get("to").is_none() {
            self.missing(key.at, &pointer, "to");
        }
        let to = self.endpoint(&m, "to");
        let fallback = self.endpoint(&m, "fallback");
        if let (Some((node, pointer)), true) = (m.get("fallback"), fallback.is_some() && fallback == to) {
            let message = "the fallback is where the step goes already; `retry` tries there again";
            self.fault(FaultCode::BadValue, node.at, &pointer, message);
        }
        let draft = StepDraft {
            to,
            needs: self.needs(&m),
            when: self.when(&m),
            input: self.template(&m, "input"),
            skill: self.text(&m, "skill", 256),
            label: self.label(&m),
            output_schema: self.schema(&m, "output_schema"),
            deadline: self.span(&m, "deadline"),
            retry: self.retry(&m),
            fallback,
            for_each: self.for_each(&m),
            on_input_required: self.asks(&m),
            may: self.may(&m),
            name: name?,
            at: key.at,
            pointer,
        };
        Some(draft)
    }
}

/// Is this an address rather than a name? An endpoint never holds two slashes.
fn looks_like_url(text: &str) -> bool {
    let lower = text.trim_start().to_ascii_lowercase();
    lower.contains("//") || ["http:", "https:", "ws:", "wss:", "www."].iter().any(|s| lower.starts_with(s))
}
