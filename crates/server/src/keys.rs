//! API keys: made, listed, revoked. A key's text is shown once, and kept nowhere.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use exeat_core::id::KeyId;
use exeat_core::principal::ApiKey;
use exeat_core::registry::change::grant::{WrittenKey, create_key, revoke_key};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Admin, mint};
use crate::body::{Asked, Body, Named};
use crate::govern::{Answer, Ground, settle, until_done};
use crate::idempotency::{Idempotent, Once, Turn};
use crate::page::{Listing, Paged, paged};
use crate::problem::Problem;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/keys", get(list).post(create)).route("/api/v1/keys/{id}", delete(revoke))
}

fn shown(key: &ApiKey) -> Value {
    json!({
        "key_id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "approver_roles": key.approver_roles,
        "worker_roles": key.worker_roles,
        "clearance": key.clearance.shown(),
        "minted_by": key.minted_by,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    })
}

async fn list(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let page = asked.page()?;
    let all = app.archive.api_keys(caller.org()).await?;
    // By the time they were made, as the store lists them.
    let named = all.iter().map(|(k, _)| (format!("{}~{}", k.created_at, k.id), shown(k)));
    Ok(Json(paged(named, &page)))
}

async fn create(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    idempotent: Idempotent,
    Body { value: written, digest }: Body<WrittenKey>,
) -> Result<Response, Problem> {
    let once = match idempotent.begin(&app, &caller, digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let (app, caller, once, written) = (&app, &caller, &once, &written);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let minted = mint(&mut ground.ids(app));
        let change = create_key(ground.acting(caller), written, minted.id.clone(), minted.hash.clone())?;
        let show = |key: &ApiKey, answer| match answer {
            Answer::Given => json!({ "key_id": key.id, "key": minted.text }),
            // A replay can't show it again: only its hash is kept.
            Answer::Kept => json!({ "key_id": key.id, "key": null }),
        };
        let place = HeaderValue::try_from(format!("/api/v1/keys/{}", minted.id));
        let response = settle(app, change, once, StatusCode::CREATED, show).await?;
        Ok(response.map(|mut r| {
            if let (true, Ok(place)) = (r.status() == StatusCode::CREATED, place) {
                r.headers_mut().insert(http::header::LOCATION, place);
            }
            r
        }))
    })
    .await
}

async fn revoke(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(id): Named<KeyId>,
) -> Result<Response, Problem> {
    let (app, caller, id) = (&app, &caller, &id);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let all = app.archive.api_keys(caller.org()).await?;
        let change = revoke_key(ground.acting(caller), id, &all)?;
        let done = settle(app, change, &Once::none(), StatusCode::OK, |(), _| Value::Null).await?;
        Ok(done.map(|_| StatusCode::NO_CONTENT.into_response()))
    })
    .await
}
