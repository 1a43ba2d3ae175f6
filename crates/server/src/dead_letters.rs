//! What gave up, for whoever must look at it.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::DeadLetter;
use exeat_core::id::DeadLetterId;
use exeat_core::ports::Page;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Operator;
use crate::body::{Asked, Named};
use crate::page::{Listing, Paged};
use crate::problem::Problem;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/dead-letters", get(list)).route("/api/v1/dead-letters/{id}", get(show))
}

/// Nothing can be done about one at this door yet, so no actions are offered.
fn shown(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id,
        "kind": letter.kind,
        "task_id": letter.task,
        "step": letter.step,
        "hop_id": letter.hop,
        "reason": letter.reason,
        "at": letter.at,
        "actions": [],
    })
}

async fn list(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let (letters, next) = app.archive.dead_letters(caller.org(), &asked.page()?).await?;
    Ok(Json(Paged::of(letters.iter().map(shown).collect(), next)))
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
            return Ok(Json(shown(letter)));
        }
        let Some(after) = next else { return Err(Problem::not_found("dead letter")) };
        page.after = Some(after);
    }
}
