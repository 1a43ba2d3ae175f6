//! `GET /tasks/{id}/events`: what happened to a task, as server-sent events, from any event on.
//!
//! Promises: ids count from 1 without gaps; `Last-Event-ID` resumes after that event; the stream ends after
//! the event that the task ended, when its key no longer holds, or when the server stops; a comment every
//! 15 s keeps it open. Never: holds events in memory, shows content above the watcher's clearance.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use exeat_core::id::TaskId;
use exeat_core::ports::{Find, StoredEvent};
use futures::{Stream, StreamExt as _, stream};
use http::HeaderMap;
use tokio::sync::watch;

use crate::app::App;
use crate::auth::{Caller, Viewer};
use crate::body::Named;
use crate::problem::{Code, Problem};
use crate::shown::{Sight, event};

/// Events read in one go.
const BATCH: u32 = 128;
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// A stream looks again this often, whatever it was told: at the record, and whether its key still holds.
const LOOK_AGAIN: Duration = Duration::from_secs(4);

/// The door of events.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/tasks/{id}/events", get(watch_task))
}

async fn watch_task(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Named(id): Named<TaskId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        None => 0,
        Some(v) => v.to_str().ok().and_then(|v| v.trim().parse().ok()).ok_or_else(|| {
            Problem::new(Code::Invalid, "Last-Event-ID must be the number of an event, as it was sent.")
        })?,
    };
    let found = app.ports.store.load(caller.org(), Find::Task(id)).await?;
    found.ok_or_else(|| Problem::not_found("task"))?;
    let told = app.runtime.watchers().watch(id);
    let watching = Watching { app, caller, id, after, told };
    let keep_alive = KeepAlive::new().interval(COMMENT_EVERY).text("still here");
    Ok(Sse::new(watching.events()).keep_alive(keep_alive).into_response())
}

struct Watching {
    app: Arc<App>,
    caller: Caller,
    id: TaskId,
    after: u64,
    told: watch::Receiver<u64>,
}

/// What came next.
enum Batch {
    /// These, and maybe more.
    Some(Vec<Event>),
    /// These, and nothing after them.
    Last(Vec<Event>),
}

impl Watching {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let batches = stream::unfold(Some(self), |watching| async {
            let mut watching = watching?;
            match watching.next().await {
                Batch::Some(events) => Some((events, Some(watching))),
                Batch::Last(events) => Some((events, None)),
            }
        });
        batches.flat_map(stream::iter).map(Ok)
    }

    async fn next(&mut self) -> Batch {
        loop {
            self.told.mark_unchanged();
            match self.read().await {
                Ok(Some(batch)) => return batch,
                Ok(None) => {}
                Err(e) => {
                    // The watcher comes back with the last id that it saw.
                    tracing::warn!(error = ?e.code, task.id = %self.id, "a stream of events ended early");
                    return Batch::Last(Vec::new());
                }
            }
            let stopping = self.app.runtime.stopping().clone();
            tokio::select! {
                () = stopping.cancelled() => return Batch::Last(Vec::new()),
                changed = self.told.changed() => {
                    if changed.is_err() {
                        self.told = self.app.runtime.watchers().watch(self.id);
                    }
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// The next events, or none yet.
    async fn read(&mut self) -> Result<Option<Batch>, Problem> {
        let (app, org) = (&self.app, self.caller.org());
        let now = app.ports.clock.now();
        let key = app.archive.api_key(self.caller.id()).await?;
        if !key.is_some_and(|(k, _)| k.is_live(now)) {
            return Ok(Some(Batch::Last(Vec::new())));
        }
        // The task first: if it has ended by now, all its events are there.
        let snapshot = app.ports.store.load(org, Find::Task(self.id)).await?;
        let snapshot = snapshot.ok_or_else(|| Problem::not_found("task"))?;
        let stored = app.archive.events(org, self.id, self.after, BATCH).await?;
        let Some(last) = stored.last() else {
            return Ok(snapshot.task.0.status.is_ended().then(|| Batch::Last(Vec::new())));
        };
        let (last_id, over) = (last.id, stored.iter().any(is_end));
        let sight = Sight::of(&self.caller.key.clearance);
        let events = stored
            .iter()
            .map(|e| {
                let data = event::shown(e, &snapshot, sight).to_string();
                Event::default().id(e.id.to_string()).event(&e.event).data(data)
            })
            .collect();
        self.after = last_id;
        Ok(Some(if over { Batch::Last(events) } else { Batch::Some(events) }))
    }
}

/// Is it the event that the task ended?
fn is_end(e: &StoredEvent) -> bool {
    let status = e.data.get("status").and_then(serde_json::Value::as_str).unwrap_or_default();
    e.event == "task" && !["running", "awaiting_approval", "awaiting_input"].contains(&status)
}
