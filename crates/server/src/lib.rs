//! Doors (REST, callback) and loops (coordinator, egress, outbox, sweep).
//!
//! Every decision is the core's: a door loads nothing and decides nothing by itself, it reads a request,
//! walks, and shows what came of it. A loop claims what is due and walks. Nothing here dials a foreign host
//! or writes SQL.

pub mod agents;
pub mod app;
pub mod approvals;
pub mod auth;
pub mod body;
pub mod budgets;
pub mod callback;
pub mod callback_keys;
pub mod checkpoints;
mod connections;
pub mod costs;
pub mod dead_letters;
pub mod disk;
pub mod egress_mode;
pub mod events;
pub mod explain;
pub mod govern;
pub mod health;
pub mod idempotency;
pub mod judges;
pub mod keyring;
pub mod keys;
pub mod leases;
pub mod ledger;
pub mod metrics;
pub mod openapi;
pub mod orgs;
pub mod page;
pub mod policy;
pub mod probe;
pub mod problem;
pub mod quota;
pub mod roles;
pub mod runtime;
pub mod shown;
pub mod tasks;
pub mod vitals;
pub mod workflows;

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::app::App;
use crate::connections::Connections;
pub use crate::connections::within as connections_within;

/// Every door.
pub fn router(app: Arc<App>) -> Router {
    tasks::task_routes()
        .merge(admin_routes())
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(app)
}

/// The doors for whoever governs, runs and audits an org, and `/healthz`, `/readyz`, `/openapi.json`.
pub fn admin_routes() -> Router<Arc<App>> {
    Router::new()
        .merge(agents::routes())
        .merge(probe::routes())
        .merge(roles::routes())
        .merge(egress_mode::routes())
        .merge(policy::routes())
        .merge(workflows::routes())
        .merge(keys::routes())
        .merge(callback_keys::routes())
        .merge(budgets::routes())
        .merge(costs::routes())
        .merge(ledger::routes())
        .merge(dead_letters::routes())
        .merge(orgs::routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(vitals::routes())
        .merge(openapi::routes())
}

/// Starts the loops.
pub fn start(app: &Arc<App>) {
    app.runtime.run(app.ports.clone());
    checkpoints::spawn(app);
}

/// Serves until told to stop; requests under way are answered.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: impl Future<Output = ()> + Send + 'static) {
    let stopping = app.runtime.stopping().clone();
    let runtime = Arc::clone(&app.runtime);
    let most = app.settings.connections;
    let connections = Connections::new(router(app), runtime, most);
    tokio::select! {
        () = connections.accept(&listener) => {}
        () = stop => {}
    }
    // Who comes now is refused, long polls and streams end, and what is under way is answered.
    drop(listener);
    stopping.cancel();
    connections.finished().await;
}
