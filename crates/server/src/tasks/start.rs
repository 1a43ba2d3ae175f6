//! `POST /tasks`: hands out a delegation or runs a workflow.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use exeat_core::change::WorkflowRow;
use exeat_core::endpoint::Endpoint;
use exeat_core::id::TaskId;
use exeat_core::payload::Payload;
use exeat_core::registry::Registry;
use exeat_core::task::advance::{self, NewTask};
use exeat_core::task::desk::{Hindsight, Refusal};
use exeat_core::time::{Span, Timestamp};
use exeat_core::walk::{Act, Committed, Stopped};
use exeat_core::workflow::{Workflow, WorkflowRef};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::auth::{Caller, Requester};
use crate::body::Body;
use crate::disk::room_for_new;
use crate::idempotency::{Idempotent, Once, Turn};
use crate::judges::Workflows;
use crate::problem::{Code, Fault, Problem};
use crate::quota::one_more_task;
use crate::shown::hop::UpTo;
use crate::shown::{Sight, task};
use crate::tasks::{given, outcome, preferred_wait, settled, task_of, waited, whole, with_edges};

/// How often a start is decided anew when its rows have moved.
const TRIES: u32 = 32;

/// A task as it is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    to: Option<Endpoint>,
    #[serde(default)]
    workflow: Option<String>,
    input: Value,
    #[serde(default)]
    skill: Option<String>,
    #[serde(default)]
    label: Option<Value>,
    #[serde(default)]
    deadline: Option<Span>,
    #[serde(default)]
    budget_microusd: Option<u64>,
}

/// What shall run.
struct Runs {
    flow: Arc<Workflow>,
    pinned: Option<Arc<WorkflowRow>>,
}

pub(crate) async fn start(
    State(app): State<Arc<App>>,
    Extension(flows): Extension<Arc<Workflows>>,
    Requester(caller): Requester,
    headers: HeaderMap,
    once: Idempotent,
    body: Body<Wanted>,
) -> Result<Response, Problem> {
    takes_tasks(&app)?;
    let wait = preferred_wait(&headers);
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return replayed(&app, &caller, answer, wait).await,
    };
    room_for_new(&app)?;
    one_more_task(&app, caller.org()).await?;
    let Begun { id, answer, decided_at, acts } = begin(&app, &flows, &caller, &body.value, &once).await?;
    drop(once);
    app.runtime.act(acts);
    let shown = match wait {
        Some(patience) => {
            settled(&app, caller.org(), id, patience).await?;
            whole(&app, &caller, id).await?
        }
        None => with_edges(&app, &caller, answer, UpTo::Then(decided_at)).await?,
    };
    let mut response = (StatusCode::CREATED, Json(shown)).into_response();
    locate(&mut response, id);
    Ok(waited(response, wait))
}

/// Does this server begin tasks now?
///
/// # Errors
/// 503 if it is switched off or about to stop.
pub(crate) fn takes_tasks(app: &App) -> Result<(), Problem> {
    if !app.settings.switches.coordinator {
        return Err(Problem::new(Code::CoordinatorOff, "This server's coordinator is switched off."));
    }
    if app.runtime.stopping().is_cancelled() {
        return Err(Problem::new(Code::ShuttingDown, "The server is shutting down.").retry_after(1));
    }
    Ok(())
}

pub(crate) fn locate(response: &mut Response, id: TaskId) {
    if let Ok(location) = HeaderValue::try_from(format!("/api/v1/tasks/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
}

/// The same request again: the same answer, or for one that waits the task as it stands after the wait, as
/// the first would have got it.
pub(crate) async fn replayed(
    app: &App,
    caller: &Caller,
    answer: Response,
    wait: Option<Duration>,
) -> Result<Response, Problem> {
    let (mut parts, body) = answer.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.map_err(|e| Problem::internal(&e))?;
    let read: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let id = read.as_object().and_then(task_of);
    let Some(id) = id else { return Ok(Response::from_parts(parts, bytes.into())) };
    let body = match wait {
        None => bytes.into(),
        Some(patience) => {
            settled(app, caller.org(), id, patience).await?;
            let shown = whole(app, caller, id).await?;
            parts.headers.remove(http::header::CONTENT_LENGTH);
            axum::body::Body::from(shown.to_string())
        }
    };
    let mut response = Response::from_parts(parts, body);
    locate(&mut response, id);
    Ok(waited(response, wait))
}

/// A task that was begun.
struct Begun {
    id: TaskId,
    answer: Value,
    decided_at: Timestamp,
    acts: Vec<Act>,
}

/// Decides and commits; anew when rows have moved.
async fn begin(
    app: &App,
    flows: &Workflows,
    caller: &Caller,
    wanted: &Wanted,
    once: &Once,
) -> Result<Begun, Problem> {
    let (org, sight) = (caller.org(), Sight::of(&caller.key.clearance));
    let mut hindsight = Hindsight::default();
    for _ in 0..TRIES {
        let registry = app.ports.store.registry(org).await?;
        let runs = runs(app, flows, caller, wanted, &registry).await?;
        let new = new_task(caller, wanted, &runs, &registry)?;
        let governor = app.ports.governors.of(&registry);
        let now = app.ports.store.now().await?;
        let decided = app
            .ports
            .decide(&registry, governor.as_ref(), now, &hindsight, |ctx, ids| advance::start(ctx, ids, new));
        let (id, mut set) = decided?;
        let snapshot = outcome::begun(&set, runs.pinned.clone())
            .ok_or_else(|| Problem::internal(&"a start that begins no task"))?;
        let answer = task::whole(&snapshot, &runs.flow, &registry, sight);
        set.writes.extend(once.row(StatusCode::CREATED, &answer, now));
        match app.ports.commit(set).await? {
            Committed::Durable(acts) => return Ok(Begun { id, answer, decided_at: now, acts }),
            Committed::Moved => {}
            Committed::Learned(lesson) => hindsight.learn(lesson),
        }
    }
    Err(Stopped::Busy.into())
}

fn new_task(caller: &Caller, wanted: &Wanted, runs: &Runs, registry: &Registry) -> Result<NewTask, Problem> {
    let label = given::raising("/label", wanted.label.as_ref(), &registry.default_label, &registry.levels)?;
    let input = Payload::from_json(&wanted.input, &registry.bounds.payload).map_err(|e| {
        let problem = Problem::from(e);
        let message = problem.detail.clone();
        problem.listing(vec![Fault { pointer: Some("/input".to_owned()), message, ..Fault::default() }])
    })?;
    let workflow = runs.pinned.as_ref().map(|r| WorkflowRef { name: r.name.clone(), version: r.version });
    Ok(NewTask {
        org: caller.org().clone(),
        workflow,
        flow: Arc::clone(&runs.flow),
        requester: caller.key.facts(),
        input,
        label,
        tainted: false,
        deadline: wanted.deadline,
        budget_microusd: wanted.budget_microusd,
        continues: None,
    })
}

async fn runs(
    app: &App,
    flows: &Workflows,
    caller: &Caller,
    wanted: &Wanted,
    registry: &Registry,
) -> Result<Runs, Problem> {
    match (&wanted.to, &wanted.workflow) {
        (Some(to), None) => delegation(flows, wanted, to, registry),
        (None, Some(_)) if wanted.skill.is_some() => {
            Err(Problem::invalid("/skill", "A skill goes with `to`; a workflow names its own."))
        }
        (None, Some(name)) => workflow(app, flows, caller, name).await,
        _ => Err(Problem::new(Code::Invalid, "Name either `to` or `workflow`, and not both.")),
    }
}

fn delegation(
    flows: &Workflows,
    wanted: &Wanted,
    to: &Endpoint,
    registry: &Registry,
) -> Result<Runs, Problem> {
    if let Endpoint::Agent(key) = to
        && registry.agent(key).is_none()
    {
        let message = format!("The agent {key} isn't registered.");
        let fault = Fault { pointer: Some("/to".to_owned()), message: message.clone(), ..Fault::default() };
        return Err(Problem::new(Code::UnknownDestination, message).listing(vec![fault]));
    }
    let flow = flows
        .delegation(to, wanted.skill.as_deref(), registry)
        .map_err(|why| Problem::invalid("/skill", crate::problem::sentence(&why)))?;
    Ok(Runs { flow, pinned: None })
}

async fn workflow(app: &App, flows: &Workflows, caller: &Caller, named: &str) -> Result<Runs, Problem> {
    let (name, version) = match named.parse::<WorkflowRef>() {
        Ok(pinned) => (pinned.name, Some(pinned.version)),
        Err(_) => {
            let name = named.parse();
            let name =
                name.map_err(|e: exeat_core::id::Malformed| Problem::invalid("/workflow", e.to_string()))?;
            (name, None)
        }
    };
    let row = app.archive.workflow(caller.org(), &name, version).await?;
    let row = Arc::new(row.ok_or_else(|| Problem::not_found("workflow"))?);
    let flow = flows.pushed(&row).map_err(|why| Problem::from(Refusal::Wrong(why)))?;
    Ok(Runs { flow, pinned: Some(row) })
}
