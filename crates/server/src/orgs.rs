//! The tenants of this store: one.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::id::OrgName;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Platform;
use crate::body::{Asked, Body};
use crate::page::{Listing, Paged, paged};
use crate::problem::{Code, Problem};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/orgs", get(list).post(create))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: OrgName,
}

async fn list(
    State(app): State<Arc<App>>,
    Platform(_): Platform,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let name = app.settings.org.to_string();
    let only = std::iter::once((name.clone(), json!({ "name": name })));
    Ok(Json(paged(only, &asked.page()?)))
}

async fn create(
    State(app): State<Arc<App>>,
    Platform(_): Platform,
    Body { value: wanted, .. }: Body<Wanted>,
) -> Problem {
    let only = &app.settings.org;
    Problem::new(Code::SingleOrg, format!("This store holds the org {only}, and no {}.", wanted.name))
}
