//! What was spent, summed.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::ports::CostBy;
use exeat_core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Viewer;
use crate::body::Asked;
use crate::problem::Problem;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/costs", get(show))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum By {
    #[default]
    Agent,
    Workflow,
    Task,
    Day,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    by: By,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

async fn show(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Asked(asked): Asked<Wanted>,
) -> Result<Json<Value>, Problem> {
    let by = match asked.by {
        By::Agent => CostBy::Agent,
        By::Workflow => CostBy::Workflow,
        By::Task => CostBy::Task,
        By::Day => CostBy::Day,
    };
    let (from, to) = (asked.from.unwrap_or(Timestamp::EPOCH), asked.to.unwrap_or(Timestamp::NEVER));
    let lines = app.archive.costs(caller.org(), by, from, to).await?;
    let total = lines.iter().fold(0_u64, |sum, l| sum.saturating_add(l.settled_microusd));
    let items: Vec<Value> = lines
        .into_iter()
        .map(|l| {
            json!({
                "key": l.key,
                "hops": l.hops,
                "settled_microusd": l.settled_microusd,
                "reserved_microusd": l.reserved_microusd,
            })
        })
        .collect();
    Ok(Json(json!({ "items": items, "total_microusd": total })))
}
