//! The switch of egress, and what is still out when it is thrown.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use exeat_core::change::Key;
use exeat_core::ledger::data::Governs;
use exeat_core::principal::KeyScope;
use exeat_core::registry::change::rule::{ModeWish, Strand, mode_word, set_mode};
use exeat_core::registry::{EgressMode, Registry};
use exeat_core::time::Timestamp;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Operator, Reader};
use crate::body::{Asked, Body};
use crate::govern::{Ground, earlier, settle, until_done, version};
use crate::idempotency::Once;
use crate::problem::{Code, Problem};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/egress", get(show).put(put))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    mode: EgressMode,
    reason: String,
    #[serde(default)]
    strand: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    scope: Option<Scope>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    Org,
    Platform,
}

impl Of {
    fn check(&self, caller: &Caller) -> Result<(), Problem> {
        if self.scope == Some(Scope::Platform) {
            caller.needs(KeyScope::Platform)?;
            let why = "The platform's switch of this server is its configuration.";
            return Err(Problem::new(Code::Invalid, why).advising("Set a2a_egress_enabled, and restart."));
        }
        Ok(())
    }
}

/// Attempts that have left and have no outcome: how many, and when the last of them is over at the latest.
fn shown(app: &App, registry: &Registry, mode: EgressMode, hops: u64, now: Timestamp) -> Value {
    let out = app.runtime.bulkheads().out();
    let until = (out > 0).then(|| now + app.settings.bounds.send_timeout);
    json!({
        "mode": mode_word(mode),
        "platform": mode_word(registry.platform_mode),
        "effective": mode_word(mode.min(registry.platform_mode)),
        "exeats_out": out,
        "out_until": until,
        "hops_open": hops,
    })
}

async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Asked(of): Asked<Of>,
) -> Result<Json<Value>, Problem> {
    of.check(&caller)?;
    let registry = app.ports.store.registry(caller.org()).await?;
    let hops = app.archive.open_hops(caller.org()).await?;
    let now = app.ports.store.now().await?;
    Ok(Json(shown(&app, &registry, registry.org_mode, hops, now)))
}

async fn put(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Asked(of): Asked<Of>,
    Body { value: wanted, .. }: Body<Wanted>,
) -> Result<Response, Problem> {
    of.check(&caller)?;
    if wanted.reason.trim().is_empty() {
        return Err(Problem::invalid("/reason", "A switch of egress needs a reason."));
    }
    let (app, caller, wanted) = (&app, &caller, &wanted);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let hops_out = app.archive.open_hops(caller.org()).await?;
        let row = version(app, caller, &Key::Mode).await?;
        let earlier = earlier(app, caller, Governs::Egress).await?;
        let strand = if wanted.strand { Strand::Accepted } else { Strand::Refused };
        let wish = ModeWish { mode: wanted.mode, reason: Some(&wanted.reason), hops_out, strand };
        let change = set_mode(ground.acting(caller), wish, row, &earlier)?;
        let show = |mode: &EgressMode, _| shown(app, &ground.registry, *mode, hops_out, ground.now);
        settle(app, change, &Once::none(), StatusCode::OK, show).await
    })
    .await
}
