//! Workflows: checked, pushed, shown. A pushed version is never changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::WorkflowRow;
use exeat_core::endpoint::Endpoint;
use exeat_core::id::WorkflowName;
use exeat_core::registry::change::Change;
use exeat_core::registry::change::grant::push_workflow;
use exeat_core::registry::{AgentStatus, Registry};
use exeat_core::workflow::{Fault as FlowFault, FaultCode, Workflow};
use exeat_policy::json_schema::SchemaCheck;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Admin, Runner};
use crate::body::{Asked, Named, Text};
use crate::govern::{Ground, settle, until_done};
use crate::idempotency::Once;
use crate::page::{Listing, Paged, paged};
use crate::problem::{Code, Fault, Problem};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/workflows", get(list)).route("/api/v1/workflows/{name}", get(show).put(push))
}

fn shown(row: &WorkflowRow) -> Value {
    json!({ "name": row.name, "version": row.version, "digest": row.digest, "at": row.at, "by": row.by })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    version: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    dry_run: Option<String>,
}

async fn list(
    State(app): State<Arc<App>>,
    Runner(caller): Runner,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let page = asked.page()?;
    let rows = app.archive.workflows(caller.org()).await?;
    Ok(Json(paged(rows.iter().map(|r| (r.name.to_string(), shown(r))), &page)))
}

async fn show(
    State(app): State<Arc<App>>,
    Runner(caller): Runner,
    Named(name): Named<WorkflowName>,
    Asked(which): Asked<Which>,
) -> Result<Json<Value>, Problem> {
    let row = app.archive.workflow(caller.org(), &name, which.version).await?;
    let row = row.ok_or_else(|| Problem::not_found("workflow"))?;
    let mut shown = shown(&row);
    if let Some(members) = shown.as_object_mut() {
        members.insert("source".to_owned(), json!(row.source));
    }
    Ok(Json(shown))
}

/// Reads a text against what is registered, or says all that is wrong with it.
fn read(text: &Text, registry: &Registry, name: &WorkflowName) -> Result<Workflow, Problem> {
    match text.media_type.as_str() {
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/json" => {}
        _ => {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "A workflow is sent as application/yaml or application/json.",
            ));
        }
    }
    let known = |to: &Endpoint| match to {
        Endpoint::Agent(key) => registry.agent(key).is_some_and(|a| a.status != AgentStatus::Revoked),
        // A role that nobody set yet is one with the default clearance.
        Endpoint::Role(_) | Endpoint::Team(_) => true,
    };
    let workflow =
        Workflow::parse_against(&text.text, &registry.levels, &known).map_err(|f| bad_workflow(&f))?;
    let mut faults = Vec::new();
    let mut fault = |code: FaultCode, pointer: String, message: String| {
        let at = Workflow::place(&text.text, &pointer);
        faults.push(FlowFault::new(code, at, pointer, message));
    };
    if workflow.name != *name {
        let message = format!("the text is of {}, the path of {name}", workflow.name);
        fault(FaultCode::BadValue, "/name".to_owned(), message);
    }
    let mut schema = |pointer: String, schema: &Value| {
        if let Err(e) = SchemaCheck::compile(schema) {
            fault(FaultCode::BadSchema, pointer, format!("the schema can't be used: {e}"));
        }
    };
    if let Some(s) = &workflow.input_schema {
        schema("/input_schema".to_owned(), s);
    }
    for step in &workflow.steps {
        if let Some(s) = &step.output_schema {
            schema(format!("/steps/{}/output_schema", step.name), s);
        }
    }
    if faults.is_empty() {
        return Ok(workflow);
    }
    Err(bad_workflow(&faults))
}

/// How many, and of which kinds: `3 faults: 2 unknown_member, 1 cycle`.
fn counted(faults: &[FlowFault]) -> String {
    let mut kinds: BTreeMap<FaultCode, usize> = BTreeMap::new();
    for fault in faults {
        *kinds.entry(fault.code).or_default() += 1;
    }
    let of_kind: Vec<String> = kinds.iter().map(|(code, n)| format!("{n} {code}")).collect();
    match (faults, of_kind.len()) {
        ([only], _) => format!("1 fault: {}", only.code),
        (_, 1) => {
            format!("{} faults, all of them {}", faults.len(), faults.first().map_or("", |f| f.code.as_str()))
        }
        _ => format!("{} faults: {}", faults.len(), of_kind.join(", ")),
    }
}

fn bad_workflow(faults: &[FlowFault]) -> Problem {
    let any = |code| faults.iter().any(|f| f.code == code);
    let code = if any(FaultCode::UrlInWorkflow) {
        Code::UrlInWorkflow
    } else if any(FaultCode::UnknownDestination) {
        Code::UnknownDestination
    } else if faults.iter().all(|f| f.code == FaultCode::BadLabel) {
        Code::BadLabel
    } else {
        Code::BadWorkflow
    };
    let errors = faults.iter().map(|f| Fault {
        pointer: Some(f.pointer.clone()),
        line: Some(f.line),
        column: Some(f.column),
        code: Some(f.code),
        message: f.message.clone(),
    });
    let problem =
        Problem::new(code, format!("The workflow has {}.", counted(faults))).listing(errors.collect());
    // What helps against one kind is no advice for a text that has others too.
    let is_mixed = faults.iter().any(|f| faults.first().is_some_and(|first| first.code != f.code));
    if is_mixed { problem.advising(Code::BadWorkflow.next()) } else { problem }
}

async fn push(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(name): Named<WorkflowName>,
    Asked(how): Asked<How>,
    text: Text,
) -> Result<Response, Problem> {
    let is_dry = match how.dry_run.as_deref() {
        None | Some("0" | "false") => false,
        Some("1" | "true" | "") => true,
        Some(_) => return Err(Problem::new(Code::Invalid, "dry_run must be 1 or 0.")),
    };
    let registry = app.ports.store.registry(caller.org()).await?;
    let workflow = read(&text, &registry, &name)?;
    let (app, caller, name, workflow) = (&app, &caller, &name, &workflow);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let newest = app.archive.workflow(caller.org(), name, None).await?;
        let change = push_workflow(ground.acting(caller), workflow, newest.as_ref())?;
        let show =
            |row: &WorkflowRow, _| json!({ "name": row.name, "version": row.version, "digest": row.digest });
        if is_dry {
            let (Change::Made(row, _) | Change::Same(row)) = &change else { return Ok(None) };
            return Ok(Some(Json(show(row, crate::govern::Answer::Given)).into_response()));
        }
        let done = settle(app, change, &Once::none(), StatusCode::CREATED, show).await?;
        Ok(done.map(|mut response| {
            let place = HeaderValue::try_from(format!("/api/v1/workflows/{name}"));
            if let (StatusCode::CREATED, Ok(place)) = (response.status(), place) {
                response.headers_mut().insert(LOCATION, place);
            }
            response
        }))
    })
    .await
}
