//! Budgets: what a scope may spend in a period.

use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::put;
use exeat_core::change::Key;
use exeat_core::cost::{Account, Budget, Period, Scope};
use exeat_core::id::Malformed;
use exeat_core::registry::change::rule::put_budget;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Body, Named};
use crate::govern::{Ground, settle, until_done, version};
use crate::idempotency::Once;
use crate::problem::Problem;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/budgets/{scope}", put(set))
}

/// Money above this has no exact form in JSON.
const MOST: u64 = 9_007_199_254_740_991;

/// A scope that a person may limit; a task's is given with the task.
struct Limited(Scope);

impl FromStr for Limited {
    type Err = Malformed;
    fn from_str(s: &str) -> Result<Self, Malformed> {
        match s.split_once(':') {
            None if s == "org" => Ok(Self(Scope::Org)),
            Some(("agent", key)) => key.parse().map(|k| Self(Scope::Agent(k))),
            Some(("workflow", name)) => name.parse().map(|n| Self(Scope::Workflow(n))),
            _ => Err(Malformed::new("scope", "org, agent:KEY or workflow:NAME", s)),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    limit_microusd: u64,
    #[serde(default = "never")]
    period: Period,
}

const fn never() -> Period {
    Period::None
}

async fn set(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(Limited(scope)): Named<Limited>,
    Body { value: wanted, .. }: Body<Wanted>,
) -> Result<Response, Problem> {
    if wanted.limit_microusd > MOST {
        return Err(Problem::invalid("/limit_microusd", format!("A limit is at most {MOST}.")));
    }
    let budget = Budget { limit_microusd: wanted.limit_microusd, period: wanted.period };
    let (app, caller, scope) = (&app, &caller, &scope);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let row = version(app, caller, &Key::Budget(scope.clone())).await?;
        let account = Account { scope: scope.clone(), since: budget.period.start(ground.now) };
        let balance = app.archive.balance(caller.org(), &account).await?;
        let change = put_budget(ground.acting(caller), scope, budget, row)?;
        let show = |b: &Budget, _| {
            json!({
                "scope": scope.to_string(),
                "limit_microusd": b.limit_microusd,
                "period": b.period,
                "settled_microusd": balance.settled_microusd,
                "reserved_microusd": balance.reserved_microusd,
            })
        };
        settle(app, change, &Once::none(), StatusCode::OK, show).await
    })
    .await
}
