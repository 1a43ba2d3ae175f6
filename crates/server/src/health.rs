//! Does the process live, and can it do its work?

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::time::Span;
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Code, Problem};

/// The sweep ticks at least each second; silent for so long, it is stuck.
const STUCK: Span = Span::of_secs(30);

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    if app.runtime.stopping().is_cancelled() {
        return Err(Problem::new(Code::ShuttingDown, "The server is shutting down."));
    }
    app.ports.store.now().await?;
    match app.runtime.swept_at() {
        None => Err(Problem::new(Code::StoreUnavailable, "The sweep hasn't run yet.").retry_after(1)),
        Some(at) if (at + STUCK).left(app.ports.clock.monotonic()) == Span::ZERO => {
            tracing::error!("the sweep is stuck");
            Err(Problem::new(Code::StoreUnavailable, "The sweep hasn't run for half a minute.")
                .retry_after(5))
        }
        Some(_) => Ok(Json(json!({ "status": "ready", "store": "ok", "sweep": "ok" }))),
    }
}
