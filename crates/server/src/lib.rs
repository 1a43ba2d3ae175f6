//! Doors (REST, callback) and loops (coordinator, egress, outbox, sweep).
//!
//! Every decision is the core's: a door loads nothing and decides nothing by itself, it reads a request,
//! walks, and shows what came of it. A loop claims what is due and walks. Nothing here dials a foreign host
//! or writes SQL.

pub mod app;
pub mod approvals;
pub mod auth;
pub mod body;
pub mod callback;
pub mod events;
pub mod idempotency;
pub mod judges;
pub mod leases;
pub mod page;
pub mod problem;
pub mod runtime;
pub mod shown;
pub mod tasks;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::app::App;

/// Every door.
pub fn router(app: Arc<App>) -> Router {
    tasks::task_routes().with_state(app)
}

/// Starts the loops.
pub fn start(app: &Arc<App>) {
    app.runtime.run(app.ports.clone());
}

/// Serves until told to stop; requests under way are answered.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let stopping = app.runtime.stopping().clone();
    let service = router(app).into_make_service_with_connect_info::<SocketAddr>();
    let told = async move {
        stop.await;
        // Long polls and streams end by this.
        stopping.cancel();
    };
    axum::serve(listener, service).with_graceful_shutdown(told).await
}
