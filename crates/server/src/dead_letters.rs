//! What gave up, for whoever must look at it.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::DeadLetter;
use exeat_core::id::DeadLetterId;
use exeat_core::ports::{Find, Page};
use exeat_core::reason::Reason;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Operator};
use crate::body::{Asked, Named};
use crate::page::{Listing, Paged};
use crate::problem::Problem;
use crate::shown::{Sight, task};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/dead-letters", get(list)).route("/api/v1/dead-letters/{id}", get(show))
}

/// Nothing can be done about one at this door yet, so no actions are offered. Its reason may hold words of the task:
/// who may not see those gets the code's own sentence.
async fn shown(app: &App, caller: &Caller, letter: &DeadLetter) -> Result<Value, Problem> {
    let snapshot = app.ports.store.load(caller.org(), Find::Task(letter.task)).await?;
    let label = snapshot.map(|s| task::carried(&s.task.0));
    let reason = match &label {
        Some(label) => Sight::of(&caller.key.clearance).reason(Some(&letter.reason), label),
        None => json!(Reason::from(letter.reason.code)),
    };
    Ok(json!({
        "id": letter.id,
        "kind": letter.kind,
        "task_id": letter.task,
        "step": letter.step,
        "hop_id": letter.hop,
        "reason": reason,
        "at": letter.at,
        "actions": [],
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

async fn show(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(id): Named<DeadLetterId>,
) -> Result<Json<Value>, Problem> {
    let mut page = Page { after: None, limit: 200 };
    loop {
        let (letters, next) = app.archive.dead_letters(caller.org(), &page).await?;
        if let Some(letter) = letters.iter().find(|l| l.id == id) {
            return Ok(Json(shown(&app, &caller, letter).await?));
        }
        let Some(after) = next else { return Err(Problem::not_found("dead letter")) };
        page.after = Some(after);
    }
}
