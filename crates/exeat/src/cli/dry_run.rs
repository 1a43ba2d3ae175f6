//! `--dry-run`: what would become of a hop, or of a workflow's steps, without sending or recording anything.
//!
//! The governor judges on the server, by `POST /policy/explain`. Of a workflow the steps whose input is known before it
//! runs are judged with that input; of the others only the way is judged, with nothing on it, and that is said.

use exeat_core::payload::{Limits, Payload};
use exeat_core::workflow::{Bounds, Root, Scope, StepDef, Template, Workflow};
use serde_json::{Value, json};

use super::Session;
use super::given;
use crate::client::Call;
use crate::failure::{Exit, Failure, Problem};
use crate::show::table::{Style, cell, fields, money, table};

/// Says what would become of a delegation, whose body is that of `POST /tasks`.
pub(super) async fn hop(session: &Session, body: &Value) -> Result<Exit, Failure> {
    let judged = judge(session, body).await?;
    session.show.result(&judged, |style| one(style, &judged))?;
    Ok(Exit::Done)
}

async fn judge(session: &Session, body: &Value) -> Result<Value, Failure> {
    let asked = given::members(
        ["to", "input", "skill", "label", "budget_microusd"].map(|m| (m, body.get(m).cloned())),
    );
    Ok(session.client.json(&Call::post(&["policy", "explain"], &asked)).await?)
}

/// The policies that decided.
fn policies(judged: &Value) -> String {
    let named = judged.get("policies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    named.iter().map(|p| cell(p, "id")).collect::<Vec<_>>().join(", ")
}

/// Why not, what it would wait for, or from whom a yes is needed.
fn remark(judged: &Value) -> String {
    let reason = judged.get("reason").filter(|r| !r.is_null());
    let roles = Some(cell(judged, "roles")).filter(|r| !r.is_empty());
    let halted = judged.get("halted") == Some(&Value::Bool(true));
    let said = [
        reason.map(|r| format!("{}: {} {}", cell(r, "code"), cell(r, "message"), cell(r, "next"))),
        roles.map(|r| format!("a yes is needed from {r}")),
        halted.then(|| "it would wait: the kill switch holds it back".to_owned()),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn redactions(judged: &Value) -> String {
    match cell(judged, "redactions") {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    }
}

fn one(style: Style, judged: &Value) -> String {
    fields(
        style,
        &[
            ("verdict", cell(judged, "decision")),
            ("policies", policies(judged)),
            ("label", cell(judged, "label")),
            ("price", money(judged.get("price_microusd").unwrap_or(&Value::Null))),
            ("redactions", redactions(judged)),
            ("reason", remark(judged)),
        ],
    )
}

/// Says what would become of the steps of a workflow, as far as that can be said.
pub(super) async fn workflow(session: &Session, name: &str, body: &Value) -> Result<Exit, Failure> {
    let pushed = session.client.json(&Call::get(&["workflows", name])).await?;
    let flow = Workflow::load(&cell(&pushed, "source")).map_err(|faults| {
        let why = faults.first().map(ToString::to_string).unwrap_or_default();
        Failure::of(Exit::Refused, Problem::not_exeats(&format!("its workflow can't be read: {why}")))
    })?;
    let input = body.get("input").unwrap_or(&Value::Null);
    let input = Payload::from_json(input, &Limits::default())
        .map_err(|e| Failure::usage(format!("the input can't be sent: {e}")))?;
    let mut steps = Vec::new();
    for step in &flow.steps {
        steps.push(judged_step(session, step, &input, body).await?);
    }
    let version = cell(&pushed, "version");
    let answer = json!({ "workflow": format!("{name}@{version}"), "steps": steps });
    session.show.result(&answer, |style| all(style, &steps))?;
    Ok(Exit::Done)
}

/// What is known of a step before the workflow runs.
enum Known {
    /// It is handed this.
    Input(Value),
    /// Its condition doesn't hold.
    Skipped,
    /// That depends on what happens.
    NotYet,
}

async fn judged_step(
    session: &Session,
    step: &StepDef,
    input: &Payload,
    body: &Value,
) -> Result<Value, Failure> {
    let known = known(step, input);
    let (content, sent) = match known {
        Known::Skipped => {
            return Ok(json!({ "step": step.name, "to": step.to, "content": "skipped" }));
        }
        Known::Input(sent) => ("known", sent),
        Known::NotYet => ("not_yet", json!("")),
    };
    let label = body.get("label").cloned().or_else(|| step.label.as_ref().map(|l| json!(l)));
    let asked = given::members([
        ("to", Some(json!(step.to))),
        ("input", Some(sent)),
        ("skill", step.skill.as_ref().map(|s| json!(s))),
        ("label", label),
        ("budget_microusd", body.get("budget_microusd").cloned()),
    ]);
    let mut judged = judge(session, &asked).await?;
    if let Some(members) = judged.as_object_mut() {
        members.insert("step".to_owned(), json!(step.name));
        members.insert("to".to_owned(), json!(step.to));
        members.insert("content".to_owned(), json!(content));
    }
    Ok(judged)
}

fn known(step: &StepDef, input: &Payload) -> Known {
    let from_the_task = |t: &Template| t.reads().all(|r| matches!(r.root, Root::Input));
    let scope = Scope::new(input, "", "");
    let bounds = Bounds::default();
    match &step.when {
        Some(when) if !from_the_task(when) => return Known::NotYet,
        Some(when) if when.holds(&scope, bounds) == Ok(false) => return Known::Skipped,
        _ => {}
    }
    if step.for_each.is_some() || !from_the_task(&step.input) {
        return Known::NotYet;
    }
    match step.input.payload(&scope, bounds, &Limits::default()) {
        Ok(sent) => Known::Input(json!({ "parts": sent.shown().get("parts") })),
        Err(_) => Known::NotYet,
    }
}

fn all(style: Style, steps: &[Value]) -> String {
    let rows: Vec<_> = steps
        .iter()
        .map(|s| {
            let content = match cell(s, "content").as_str() {
                "not_yet" => "not yet known".to_owned(),
                word => word.to_owned(),
            };
            let price = money(s.get("price_microusd").unwrap_or(&Value::Null));
            let label = cell(s, "label");
            [
                cell(s, "step"),
                cell(s, "to"),
                cell(s, "decision"),
                policies(s),
                label,
                price,
                content,
                remark(s),
            ]
        })
        .collect();
    table(style, ["STEP", "TO", "VERDICT", "POLICIES", "LABEL", "PRICE", "CONTENT", "REASON"], &rows)
}
