//! Doors (REST, callback) and loops (coordinator, egress, outbox, sweep).
//!
//! Every decision is the core's: a door loads nothing and decides nothing by itself, it reads a request,
//! walks, and shows what came of it. A loop claims what is due and walks. Nothing here dials a foreign host
//! or writes SQL.

pub mod agents;
pub mod app;
pub mod auth;
pub mod body;
pub mod budgets;
pub mod checkpoints;
pub mod costs;
pub mod dead_letters;
pub mod egress_mode;
pub mod govern;
pub mod health;
pub mod idempotency;
pub mod keys;
pub mod ledger;
pub mod openapi;
pub mod orgs;
pub mod page;
pub mod policy;
pub mod problem;
pub mod roles;
pub mod runtime;
pub mod workflows;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The doors for whoever governs, runs and audits an org, and `/healthz`, `/readyz`, `/openapi.json`.
pub fn admin_routes() -> Router<Arc<App>> {
    Router::new()
        .merge(agents::routes())
        .merge(roles::routes())
        .merge(egress_mode::routes())
        .merge(policy::routes())
        .merge(workflows::routes())
        .merge(keys::routes())
        .merge(budgets::routes())
        .merge(costs::routes())
        .merge(ledger::routes())
        .merge(dead_letters::routes())
        .merge(orgs::routes())
        .merge(health::routes())
        .merge(openapi::routes())
}
