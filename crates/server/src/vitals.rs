//! How the gateway stands, for `exeat doctor` and whoever watches over it: numbers and times, no content.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::ledger::checkpoint::Checkpoint;
use exeat_core::ports::Crowd;
use exeat_core::registry::change::rule::mode_word;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::auth::Reader;
use crate::checkpoints::newest_in;
use crate::metrics::sweep_lag;
use crate::problem::Problem;

/// Its door.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/vitals", get(show))
}

fn crowd(c: Crowd) -> Value {
    json!({ "count": c.count, "oldest_at": c.oldest })
}

fn signed(checkpoint: Option<&Checkpoint>) -> Value {
    checkpoint.map_or(Value::Null, |c| json!({ "records": c.size, "at": c.at }))
}

async fn show(State(app): State<Arc<App>>, Reader(caller): Reader) -> Result<Json<Value>, Problem> {
    let org = caller.org();
    let (vitals, registry) = (app.archive.vitals(org).await?, app.ports.store.registry(org).await?);
    let hops: Map<String, Value> = vitals.hops.iter().map(|(state, c)| (state.clone(), crowd(*c))).collect();
    let waiting =
        vitals.ready.iter().map(|(to, c)| json!({ "to": to, "count": c.count, "oldest_at": c.oldest }));
    let waiting: Vec<Value> = waiting.collect();
    let silent = app.runtime.swept_at().map(|at| app.ports.clock.monotonic().left(at).micros() / 1_000);
    Ok(Json(json!({
        "at": app.ports.store.now().await?,
        "version": env!("CARGO_PKG_VERSION"),
        "key": { "key_id": caller.key.id, "name": caller.key.name, "scopes": caller.key.scopes },
        "egress": mode_word(registry.mode()),
        "public_url": app.settings.public_url,
        "hops": hops,
        "waiting": waiting,
        "leased": crowd(vitals.leased),
        "inbox": crowd(vitals.inbox),
        "approvals_pending": crowd(vitals.approvals),
        "dead_letters": crowd(vitals.dead_letters),
        "tasks_open": vitals.tasks,
        "contacts_out": app.runtime.bulkheads().out(),
        "sweep": { "lag_ms": sweep_lag(&app).await? / 1_000, "silent_ms": silent },
        "ledger": ledger(&app).await?,
        "disk": { "free_bytes": app.disk.free_bytes(), "reserve_bytes": app.settings.disk_reserve_bytes },
    })))
}

/// How far the record is, and the newest checkpoints in it and outside of it.
async fn ledger(app: &App) -> Result<Value, Problem> {
    let (org, public) = (&app.settings.org, app.ledger_key.public());
    let head = app.archive.head(org).await?;
    let note = app.archive.checkpoint(org).await?;
    let inside = note.and_then(|n| Checkpoint::open(&n, &public).ok());
    let path = app.settings.checkpoint_file.clone();
    let read = tokio::task::spawn_blocking(move || newest_in(&path, &public)).await;
    let (outside, unreadable) = match read {
        Ok(Ok(found)) => (found, None),
        Ok(Err(e)) => (None, Some(e.to_string())),
        Err(e) => (None, Some(e.to_string())),
    };
    Ok(json!({
        "records": head.size,
        "checkpoint": signed(inside.as_ref()),
        "checkpoint_file": signed(outside.as_ref()),
        "checkpoint_file_unreadable": unreadable,
    }))
}
