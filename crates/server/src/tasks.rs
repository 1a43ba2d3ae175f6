//! The doors of tasks: start, list, show, cancel, answer; and all task-side doors as one router.
//!
//! Promises: a request is read whole and strictly before anything is decided; its effect and what its
//! `Idempotency-Key` did are durable together; content is shown by the caller's clearance. Never: picks a
//! destination, moves a row by itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use exeat_core::bridge::unknown::Ran;
use exeat_core::change::{ChangeSet, Snapshot};
use exeat_core::id::{AgentKey, HopId, Ids, OrgName, QuestionId, TaskId, WorkflowName};
use exeat_core::ports::{Find, TaskFilter};
use exeat_core::principal::KeyScope;
use exeat_core::task::desk::{Context, Refusal};
use exeat_core::task::{Task, TaskStatus, decision};
use exeat_core::time::Timestamp;
use exeat_core::walk::{Loaded, Stopped};
use exeat_core::workflow::Workflow;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::auth::{Caller, Mover, Operator, Viewer};
use crate::body::{Asked, Body, Named};
use crate::idempotency::{Idempotent, Once, Turn};
use crate::judges::Workflows;
use crate::page::{Paged, page};
use crate::problem::{Code, Problem};
use crate::shown::hop::UpTo;
use crate::shown::{Sight, hop, task, waiting};

pub mod given;
pub mod outcome;
pub mod start;

/// Longest reason that a person gives, in characters.
pub(crate) const REASON_CHARS: usize = 2_000;
/// A waiting request looks again this often, whatever it was told.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Longest wait that `Prefer: wait=N` gets, in seconds.
const MAX_WAIT: u64 = 60;

/// All doors of the task side: tasks, their events, approvals, leases and the callback.
pub fn task_routes() -> Router<Arc<App>> {
    routes()
        .merge(crate::events::routes())
        .merge(crate::approvals::routes())
        .merge(crate::leases::routes())
        .merge(crate::callback::routes())
}

/// The doors of tasks.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/tasks", get(list).post(start::start))
        .route("/api/v1/tasks/{id}", get(show))
        .route("/api/v1/tasks/{id}/cancel", post(cancel))
        .route("/api/v1/tasks/{id}/answer", post(answer))
        .route("/api/v1/tasks/{id}/resolve", post(resolve))
        .layer(Extension(Arc::new(Workflows::default())))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    status: Option<String>,
    workflow: Option<WorkflowName>,
    agent: Option<AgentKey>,
    due_before: Option<Timestamp>,
    limit: Option<u32>,
    cursor: Option<String>,
}

const STATUSES: [&str; 9] = [
    "running",
    "awaiting_approval",
    "awaiting_input",
    "completed",
    "failed",
    "denied",
    "rejected",
    "timed_out",
    "canceled",
];

async fn list(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Asked(asked): Asked<Listing>,
) -> Result<Response, Problem> {
    if let Some(status) = asked.status.as_ref().filter(|s| !STATUSES.contains(&s.as_str())) {
        let status: String = status.chars().take(40).collect();
        let known = STATUSES.join(", ");
        return Err(Problem::new(Code::Invalid, format!("The status {status:?} isn't one of {known}.")));
    }
    let page = page(asked.limit, asked.cursor.as_deref())?;
    let filter = TaskFilter {
        status: asked.status,
        workflow: asked.workflow,
        agent: asked.agent,
        due_before: asked.due_before,
    };
    let (tasks, next) = app.archive.tasks(caller.org(), &filter, &page).await?;
    let mut items = Vec::with_capacity(tasks.len());
    for t in tasks {
        items.push(listed(&app, &caller, &t).await?);
    }
    Ok(Json(Paged::of(items, next)).into_response())
}

/// A task as listings show it. Of one that is over nothing is read but what it was given and gave.
async fn listed(app: &App, caller: &Caller, t: &Task) -> Result<Value, Problem> {
    let (org, sight) = (caller.org(), Sight::of(&caller.key.clearance));
    if !t.status.is_ended()
        && let Some(snapshot) = app.ports.store.load(org, Find::Task(t.id)).await?
    {
        let registry = app.ports.store.registry(org).await?;
        let waits = waiting::shown(&snapshot, &registry);
        return Ok(task::bare(&snapshot.task.0, &snapshot.payloads, sight, waits));
    }
    let mut payloads = std::collections::BTreeMap::new();
    for held in [Some(&t.input), t.output.as_ref()].into_iter().flatten().filter(|h| sight.sees(&h.label)) {
        if let Some(sealed) = app.archive.payload(org, held.id).await? {
            payloads.insert(held.id, sealed);
        }
    }
    Ok(task::bare(t, &payloads, sight, Vec::new()))
}

async fn show(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Named(id): Named<TaskId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wait = preferred_wait(&headers);
    if let Some(patience) = wait {
        settled(&app, caller.org(), id, patience).await?;
    }
    let shown = whole(&app, &caller, id).await?;
    Ok(waited(Json(shown).into_response(), wait))
}

/// A task with its steps, as it stands now.
pub(crate) async fn whole(app: &App, caller: &Caller, id: TaskId) -> Result<Value, Problem> {
    let Loaded { registry, snapshot, flow, .. } = app.ports.load(caller.org(), Find::Task(id)).await?;
    let shown = task::whole(&snapshot, &flow, &registry, Sight::of(&caller.key.clearance));
    with_edges(app, caller, shown, UpTo::Now).await
}

/// A shown task with the edges of its hops, which stand in the ledger.
pub(crate) async fn with_edges(
    app: &App,
    caller: &Caller,
    mut shown: Value,
    up_to: UpTo,
) -> Result<Value, Problem> {
    let id = shown.as_object().and_then(task_of);
    if let Some(id) = id.filter(|_| hop::hops_of(&mut shown).next().is_some()) {
        let records = app.archive.records_of(caller.org(), id).await?;
        hop::put_edges(&mut shown, &records, up_to);
    }
    Ok(shown)
}

/// How long a request wants to wait (RFC 7240 §4.3), at most a minute.
pub(crate) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let all = headers.get_all("prefer").iter().filter_map(|v| v.to_str().ok());
    let seconds = all
        .flat_map(|v| v.split([',', ';']))
        .filter_map(|p| p.trim().split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
        .and_then(|(_, n)| n.trim().trim_matches('"').parse::<u64>().ok())?;
    (seconds > 0).then(|| Duration::from_secs(seconds.min(MAX_WAIT)))
}

/// Says that a wait was granted.
pub(crate) fn waited(mut response: Response, wait: Option<Duration>) -> Response {
    if let Some(value) = wait.and_then(|w| HeaderValue::try_from(format!("wait={}", w.as_secs())).ok()) {
        response.headers_mut().insert("preference-applied", value);
    }
    response
}

/// Waits until the task has ended or awaits a person, or patience is over, or the server stops.
pub(crate) async fn settled(app: &App, org: &OrgName, id: TaskId, patience: Duration) -> Result<(), Problem> {
    let mut over = pin!(tokio::time::sleep(patience));
    let mut told = app.runtime.watchers().watch(id);
    loop {
        told.mark_unchanged();
        let snapshot = app.ports.store.load(org, Find::Task(id)).await?;
        let status = snapshot.map(|s| s.task.0.status).ok_or_else(|| Problem::not_found("task"))?;
        if status != TaskStatus::Running {
            return Ok(());
        }
        tokio::select! {
            () = &mut over => return Ok(()),
            () = app.runtime.stopping().cancelled() => return Ok(()),
            changed = told.changed() => if changed.is_err() { told = app.runtime.watchers().watch(id) },
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    reason: Option<String>,
}

async fn cancel(
    State(app): State<Arc<App>>,
    Mover(caller): Mover,
    Named(id): Named<TaskId>,
    once: Idempotent,
    body: Body<Cancel>,
) -> Result<Response, Problem> {
    let reason = reason("/reason", body.value.reason.as_deref())?;
    may_move(&app, &caller, id).await?;
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    moved(&app, &caller, id, &once, |ctx, ids, flow, snapshot| {
        decision::cancel(ctx, ids, flow, snapshot, caller.id(), reason)
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    question_id: QuestionId,
    input: Value,
}

async fn answer(
    State(app): State<Arc<App>>,
    Mover(caller): Mover,
    Named(id): Named<TaskId>,
    once: Idempotent,
    body: Body<Answer>,
) -> Result<Response, Problem> {
    may_move(&app, &caller, id).await?;
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let Answer { question_id, input } = body.value;
    moved(&app, &caller, id, &once, |ctx, ids, flow, snapshot| {
        decision::answer(ctx, ids, flow, snapshot, question_id, &input, &caller.key)
    })
    .await
}

/// What an operator says of a send that nobody answered.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Yes,
    No,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    hop_id: HopId,
    ran: Told,
    reason: String,
}

async fn resolve(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(id): Named<TaskId>,
    once: Idempotent,
    body: Body<Resolve>,
) -> Result<Response, Problem> {
    let why = reason("/reason", Some(&body.value.reason))?;
    let why = why.ok_or_else(|| Problem::invalid("/reason", "Say how you know: it is recorded."))?;
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let ran = match body.value.ran {
        Told::Yes => Ran::Yes,
        Told::No => Ran::No,
    };
    moved(&app, &caller, id, &once, |ctx, ids, flow, snapshot| {
        decision::resolve(ctx, ids, flow, snapshot, body.value.hop_id, ran, caller.id(), why)
    })
    .await
}

/// A person's words: trimmed, bounded, or none.
///
/// # Errors
/// 422 if it is too long.
pub(crate) fn reason<'a>(pointer: &str, given: Option<&'a str>) -> Result<Option<&'a str>, Problem> {
    let text = given.map(str::trim).filter(|r| !r.is_empty());
    match text {
        Some(t) if t.chars().count() > REASON_CHARS => {
            Err(Problem::invalid(pointer, format!("A reason has at most {REASON_CHARS} characters.")))
        }
        other => Ok(other),
    }
}

/// An operator moves any task, a requester their own. Who a task's requester is never changes.
async fn may_move(app: &App, caller: &Caller, id: TaskId) -> Result<(), Problem> {
    let found = app.ports.store.load(caller.org(), Find::Task(id)).await?;
    let found = found.ok_or_else(|| Problem::not_found("task"))?;
    if caller.has(KeyScope::Operator) || found.task.0.requester.id == *caller.id() {
        return Ok(());
    }
    let why = "The task is another requester's; only an operator may do this.";
    Err(Problem::new(Code::ScopeMissing, why).of_task(id))
}

/// Walks a decision about a task, and answers with the task as it stands after it.
async fn moved(
    app: &Arc<App>,
    caller: &Caller,
    id: TaskId,
    once: &Once,
    decide: impl Fn(Context<'_>, Ids, Arc<Workflow>, Snapshot) -> Result<ChangeSet, Refusal>,
) -> Result<Response, Problem> {
    let sight = Sight::of(&caller.key.clearance);
    let walked = app.ports.walk(caller.org(), Find::Task(id), |ctx, ids, flow, snapshot| {
        let before = snapshot.clone();
        let mut set = decide(ctx, ids, Arc::clone(&flow), snapshot)?;
        let after = outcome::after(before, &set);
        let answer = task::whole(&after, &flow, ctx.registry, sight);
        set.writes.extend(once.row(StatusCode::ACCEPTED, &answer, ctx.now));
        Ok(((answer, ctx.now), set))
    });
    let ((answer, decided_at), acts) = walked.await.map_err(|e| of_task(e, id))?;
    app.runtime.act(acts);
    let answer = with_edges(app, caller, answer, UpTo::Then(decided_at)).await?;
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

fn of_task(e: Stopped, id: TaskId) -> Problem {
    match e {
        Stopped::NotFound(_) => e.into(),
        other => Problem::from(other).of_task(id),
    }
}

/// Reads an answer of ours back, to show the same thing anew.
pub(crate) fn task_of(answer: &Map<String, Value>) -> Option<TaskId> {
    answer.get("task_id")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_wherever_it_stands_and_is_at_most_a_minute() {
        for (text, wait) in [
            ("wait=5", Some(5)),
            ("respond-async, wait=10", Some(10)),
            ("Wait=\"7\"; x=1", Some(7)),
            ("wait=600", Some(60)),
            ("wait=0", None),
            ("wait=-1", None),
            ("wait", None),
            ("waiting=5", None),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("prefer"),
                HeaderValue::from_str(text).unwrap(),
            )]);
            assert_eq!(preferred_wait(&headers), wait.map(Duration::from_secs), "{text}");
        }
    }
}
