//! What gave up, for whoever must look at it, and what they do about it.
//!
//! Promises: a letter is decided once; a retry is a new task, whose row, the letter's and the answer's are one commit.
//! Its requester stays who it was, and must still hold a key: an operator lends nobody their own rights, and revives
//! no rights that were taken back. Never: reopens anything.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use exeat_core::change::DeadLetter;
use exeat_core::id::{DeadLetterId, TaskId};
use exeat_core::ports::Find;
use exeat_core::reason::Reason;
use exeat_core::task::desk::Hindsight;
use exeat_core::task::redo::{self, Choice, Duplicates, Mode};
use exeat_core::walk::{Act, Committed, Loaded, Stopped};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Operator};
use crate::body::{Asked, Body, Named};
use crate::idempotency::{Idempotent, Once, Turn};
use crate::page::{Listing, Paged};
use crate::problem::{Code, Problem};
use crate::shown::{Sight, task};
use crate::tasks::{outcome, reason, start};

/// How often a decision is made anew when its rows have moved.
const TRIES: u32 = 32;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/dead-letters", get(list))
        .route("/api/v1/dead-letters/{id}", get(show))
        .route("/api/v1/dead-letters/{id}/retry", post(retry))
        .route("/api/v1/dead-letters/{id}/discard", post(discard))
}

/// Its reason may hold words of the task: who may not see those gets the code's own sentence.
async fn shown(app: &App, caller: &Caller, letter: &DeadLetter) -> Result<Value, Problem> {
    let (reason, actions) = match app.ports.load(caller.org(), Find::Task(letter.task)).await {
        Ok(Loaded { snapshot, flow, .. }) => {
            let label = task::carried(&snapshot.task.0);
            let reason = Sight::of(&caller.key.clearance).reason(Some(&letter.reason), &label);
            (reason, redo::possible(&snapshot, &flow, letter))
        }
        Err(Stopped::Unreadable(e)) => return Err(e.into()),
        // Its task, or what that ran, is gone: there is nothing to go on from.
        Err(_) => {
            let actions = if letter.decided.is_some() { vec![] } else { vec![Choice::Discard] };
            (json!(Reason::from(letter.reason.code)), actions)
        }
    };
    let decided =
        letter.decided.as_ref().map(|d| json!({ "act": d.act, "by": d.by, "at": d.at, "task_id": d.task }));
    Ok(json!({
        "id": letter.id,
        "kind": letter.kind,
        "task_id": letter.task,
        "step": letter.step,
        "hop_id": letter.hop,
        "reason": reason,
        "at": letter.at,
        "actions": actions.iter().map(|a| a.as_str()).collect::<Vec<_>>(),
        "decided": decided,
    }))
}

async fn list(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let (letters, next) = app.archive.dead_letters(caller.org(), &asked.page()?).await?;
    let mut items = Vec::with_capacity(letters.len());
    for letter in &letters {
        items.push(shown(&app, &caller, letter).await?);
    }
    Ok(Json(Paged::of(items, next)))
}

async fn found(app: &App, caller: &Caller, id: DeadLetterId) -> Result<(DeadLetter, u64), Problem> {
    let found = app.archive.dead_letter(caller.org(), id).await?;
    found.ok_or_else(|| Problem::not_found("dead letter"))
}

async fn show(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(id): Named<DeadLetterId>,
) -> Result<Json<Value>, Problem> {
    let (letter, _) = found(&app, &caller, id).await?;
    Ok(Json(shown(&app, &caller, &letter).await?))
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Resend,
    Adopt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retry {
    mode: Wanted,
    #[serde(default)]
    accept_duplicate: Option<bool>,
}

impl Retry {
    fn mode<'a>(&self, caller: &'a Caller) -> Result<Mode<'a>, Problem> {
        match (self.mode, self.accept_duplicate) {
            (Wanted::Resend, Some(true)) => Ok(Mode::Resend(Duplicates::Accepted)),
            (Wanted::Resend, _) => Ok(Mode::Resend(Duplicates::Refused)),
            (Wanted::Adopt, None | Some(false)) => Ok(Mode::Adopt(&caller.key.clearance)),
            (Wanted::Adopt, Some(true)) => {
                Err(Problem::invalid("/accept_duplicate", "Nothing is sent when a result is adopted."))
            }
        }
    }
}

async fn retry(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(id): Named<DeadLetterId>,
    once: Idempotent,
    body: Body<Retry>,
) -> Result<Response, Problem> {
    start::takes_tasks(&app)?;
    let mode = body.value.mode(&caller)?;
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return start::replayed(&app, &caller, answer, None).await,
    };
    let (task, answer, acts) = go_on(&app, &caller, id, mode, &once).await?;
    drop(once);
    app.runtime.act(acts);
    let mut response = (StatusCode::CREATED, Json(answer)).into_response();
    start::locate(&mut response, task);
    Ok(response)
}

/// Decides and commits; anew when rows have moved.
async fn go_on(
    app: &App,
    caller: &Caller,
    id: DeadLetterId,
    mode: Mode<'_>,
    once: &Once,
) -> Result<(TaskId, Value, Vec<Act>), Problem> {
    let mut hindsight = Hindsight::default();
    for _ in 0..TRIES {
        let (letter, version) = found(app, caller, id).await?;
        let loaded = app.ports.load(caller.org(), Find::Task(letter.task)).await?;
        let Loaded { registry, governor, snapshot, flow } = loaded;
        requester_holds(app, &snapshot.task.0).await?;
        let now = snapshot.now;
        let decided = app.ports.decide(&registry, governor.as_ref(), now, &hindsight, |ctx, ids| {
            redo::retry(ctx, ids, Arc::clone(&flow), &snapshot, (&letter, version), mode, caller.id())
        });
        let (task, mut set) = decided.map_err(|e| Problem::from(e).of_task(letter.task))?;
        let begun = outcome::begun(&set, snapshot.workflow.clone())
            .ok_or_else(|| Problem::internal(&"a retry that begins no task"))?;
        let answer = task::whole(&begun, &flow, &registry, Sight::of(&caller.key.clearance));
        set.writes.extend(once.row(StatusCode::CREATED, &answer, now));
        match app.ports.commit(set).await? {
            Committed::Durable(acts) => return Ok((task, answer, acts)),
            Committed::Moved => {}
            Committed::Learned(lesson) => hindsight.learn(lesson),
        }
    }
    Err(Stopped::Busy.into())
}

/// The new task acts for who asked for the old one: with a key that was taken back since, nobody acts any more.
async fn requester_holds(app: &App, task: &exeat_core::task::Task) -> Result<(), Problem> {
    let by = &task.requester.id;
    let key = app.archive.api_key(by).await?;
    if key.is_some_and(|(k, _)| k.org == task.org && k.is_live(app.ports.clock.now())) {
        return Ok(());
    }
    let why = format!("The key {by}, for which the task ran, is revoked or has expired.");
    let next = "Start the task anew, with a key of your own.";
    Err(Problem::new(Code::ScopeMissing, why).advising(next).of_task(task.id))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Discard {
    #[serde(default)]
    reason: Option<String>,
}

async fn discard(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(id): Named<DeadLetterId>,
    once: Idempotent,
    body: Body<Discard>,
) -> Result<Response, Problem> {
    let why = reason("/reason", body.value.reason.as_deref())?;
    let once = match once.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    for _ in 0..TRIES {
        let (letter, version) = found(&app, &caller, id).await?;
        let registry = app.ports.store.registry(caller.org()).await?;
        let governor = app.ports.governors.of(&registry);
        let now = app.ports.store.now().await?;
        let hindsight = Hindsight::default();
        let decided = app.ports.decide(&registry, governor.as_ref(), now, &hindsight, |ctx, ids| {
            redo::discard(&ctx, ids, caller.org(), (&letter, version), caller.id(), why)
        });
        let (letter, mut set) = decided?;
        let answer = shown(&app, &caller, &letter).await?;
        set.writes.extend(once.row(StatusCode::OK, &answer, now));
        if let Committed::Durable(acts) = app.ports.commit(set).await? {
            app.runtime.act(acts);
            return Ok(Json(answer).into_response());
        }
    }
    Err(Stopped::Busy.into())
}
