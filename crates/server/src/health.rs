//! Does the process live, and can it do its work?
//!
//! `/readyz` says of each thing that the work needs how it stands. A store that failed is written to before it counts
//! as well again.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::{ChangeSet, Key, Row, Write};
use exeat_core::id::{ChangeId, Ids};
use exeat_core::time::Span;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::disk::too_little;
use crate::problem::{Code, Fault, Problem};

/// The sweep ticks at least each second; silent for so long, it is stuck.
const STUCK: Span = Span::of_secs(30);
/// The setting that is written to see whether the store takes anything.
const WRITE_CHECK: &str = "write_check";

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    /// Well.
    Ok,
    /// The work goes on, and somebody should look.
    Warn,
    /// The work can't go on.
    Fail,
}

/// One thing that the work needs.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Standing,
    detail: String,
    #[serde(skip)]
    code: Code,
}

impl Check {
    fn ok(name: &'static str) -> Self {
        Self { name, status: Standing::Ok, detail: String::new(), code: Code::StoreUnavailable }
    }
    fn fails(name: &'static str, code: Code, detail: impl Into<String>) -> Self {
        Self { name, status: Standing::Fail, detail: detail.into(), code }
    }
}

async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Value>, Problem> {
    let checks = [stopping(&app), store(&app).await, disk(&app), sweep(&app), keys(&app)];
    let word = |name: &str| checks.iter().find(|c| c.name == name).map(|c| c.status);
    let failed: Vec<&Check> = checks.iter().filter(|c| c.status == Standing::Fail).collect();
    let Some(first) = failed.first() else {
        let (store, sweep) = (word("store"), word("sweep"));
        return Ok(Json(json!({ "status": "ready", "store": store, "sweep": sweep, "checks": checks })));
    };
    let told = |c: &&Check| Fault { message: format!("{}: {}", c.name, c.detail), ..Fault::default() };
    let faults = failed.iter().map(told).collect();
    Err(Problem::new(first.code, first.detail.clone()).listing(faults).retry_after(5))
}

fn stopping(app: &App) -> Check {
    if app.runtime.stopping().is_cancelled() {
        return Check::fails("serving", Code::ShuttingDown, "The server is shutting down.");
    }
    Check::ok("serving")
}

/// Can the record be read, and does it take what is handed in?
async fn store(app: &App) -> Check {
    let unavailable = |detail: &str| Check::fails("store", Code::StoreUnavailable, detail);
    if app.ports.store.now().await.is_err() {
        return unavailable("The store doesn't answer.");
    }
    if !app.metrics.store_fails() || writes(app).await {
        return Check::ok("store");
    }
    unavailable("The store took nothing when it was last written to.")
}

/// Writes something that means nothing; whoever counts commits sees how it went.
async fn writes(app: &App) -> bool {
    let (org, key) = (&app.settings.org, Key::Setting(WRITE_CHECK.to_owned()));
    let (Ok(now), Ok(expected)) = (app.ports.store.now().await, app.archive.version(org, &key).await) else {
        return false;
    };
    let mut ids = Ids::new(now, app.ports.entropy.seed());
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), org.clone(), now);
    set.writes.push(Write { expected, row: Row::Setting(WRITE_CHECK.to_owned(), json!(now)) });
    app.ports.store.commit(set).await.is_ok()
}

fn disk(app: &App) -> Check {
    let reserve = app.settings.disk_reserve_bytes;
    match (app.disk.free_bytes(), too_little(app)) {
        (_, Some(free)) => {
            let why = format!("{free} bytes are left, and {reserve} are kept for what is under way.");
            Check::fails("disk", Code::DiskFull, why)
        }
        (Some(free), None) => Check { detail: format!("{free} bytes are left"), ..Check::ok("disk") },
        (None, None) => {
            let detail = "how much is left can't be told".to_owned();
            Check { status: Standing::Warn, detail, ..Check::ok("disk") }
        }
    }
}

fn sweep(app: &App) -> Check {
    match app.runtime.swept_at() {
        None => Check::fails("sweep", Code::StoreUnavailable, "The sweep hasn't run yet."),
        Some(at) if (at + STUCK).left(app.ports.clock.monotonic()) == Span::ZERO => {
            tracing::error!("the sweep is stuck");
            Check::fails("sweep", Code::StoreUnavailable, "The sweep hasn't run for half a minute.")
        }
        Some(_) => Check::ok("sweep"),
    }
}

/// The work goes on with the keys in memory, but the next start would refuse.
fn keys(app: &App) -> Check {
    let gone = app.settings.key_files.iter().find(|path| !path.is_file());
    gone.map_or_else(
        || Check::ok("keys"),
        |path| {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let detail = format!("keys/{name} isn't there any more: the next start will refuse");
            Check { status: Standing::Warn, detail, ..Check::ok("keys") }
        },
    )
}
