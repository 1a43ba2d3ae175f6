//! Roles: what their workers may see, and where they may delegate.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::Key;
use exeat_core::id::RoleName;
use exeat_core::registry::RoleEntry;
use exeat_core::registry::change::rule::{WrittenRole, put_role};
use http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Admin, Reader};
use crate::body::{Asked, Body, Named};
use crate::govern::{Ground, settle, until_done, version};
use crate::idempotency::Once;
use crate::page::{Listing, Paged, paged};
use crate::problem::Problem;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/roles", get(list)).route("/api/v1/roles/{name}", get(show).put(put))
}

fn shown(role: &RoleEntry) -> Value {
    json!({
        "name": role.name,
        "clearance": role.clearance.shown(),
        "may": role.may,
        "teams": role.teams,
    })
}

async fn list(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let page = asked.page()?;
    let registry = app.ports.store.registry(caller.org()).await?;
    Ok(Json(paged(registry.roles.iter().map(|(name, role)| (name.to_string(), shown(role))), &page)))
}

/// A role that was never set is what it counts as.
async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Named(name): Named<RoleName>,
) -> Result<Json<Value>, Problem> {
    let registry = app.ports.store.registry(caller.org()).await?;
    Ok(Json(shown(&registry.role(&name))))
}

async fn put(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(name): Named<RoleName>,
    Body { value: written, .. }: Body<WrittenRole>,
) -> Result<Response, Problem> {
    let (app, caller, name, written) = (&app, &caller, &name, &written);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let row = version(app, caller, &Key::Role(name.clone())).await?;
        let change = put_role(ground.acting(caller), name, written, row)?;
        settle(app, change, &Once::none(), StatusCode::OK, |role, _| shown(role)).await
    })
    .await
}
