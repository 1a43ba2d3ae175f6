//! The rotation of the key that callback tokens are made with.
//!
//! Hops in flight keep the tokens that they were given: the key that made them verifies until the last of them has
//! expired. Nothing secret is stored or shown; the record lists epochs, and the ledger says that they changed.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use exeat_core::registry::change::rotate::{Rotated, rotate_callback};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::auth::Admin;
use crate::body::Body;
use crate::govern::{Ground, settle, until_done};
use crate::idempotency::{Idempotent, Turn};
use crate::keyring::listed;
use crate::problem::Problem;

/// Its door.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/callback-keys/rotate", post(rotate))
}

/// Nothing is to be said.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

async fn rotate(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    idempotent: Idempotent,
    Body { digest, .. }: Body<Nothing>,
) -> Result<Response, Problem> {
    let once = match idempotent.begin(&app, &caller, digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let (app, caller, once) = (&app, &caller, &once);
    let done = until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let (keys, row) = listed(app.archive.as_ref(), caller.org()).await?;
        let bounds = &app.settings.bounds;
        // What is leased while this is decided gets no more than a hop's usual time.
        let usual = ground.now + bounds.hop_deadline + bounds.callback_grace;
        let last = app.archive.last_callback(caller.org()).await?;
        let until = last.map_or(usual, |l| l.max(usual));
        let change = rotate_callback(ground.acting(caller), &keys, row, until)?;
        let show = |r: &Rotated, _| json!({ "key_id": r.kid, "retires_at": r.retires_at });
        settle(app, change, once, StatusCode::OK, show).await
    })
    .await?;
    let now = app.ports.clock.now();
    app.keyring.reload(app.archive.as_ref(), &app.root, caller.org(), now).await?;
    Ok(done)
}
