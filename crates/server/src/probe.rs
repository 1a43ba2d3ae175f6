//! An operator's look at an agent: is it there, what does its card say, what would a hop use.
//!
//! Promises: the act is recorded before anything is contacted, and a refused one is recorded as refused; where the
//! posture isn't signed, no secret goes along. An `Idempotency-Key` keeps the answer once there is one: a repeat after
//! a crash in between looks anew, as a record of its own.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use exeat_core::change::ChangeSet;
use exeat_core::id::{AgentKey, ChangeId, Ids};
use exeat_core::registry::change::discover::{Barred, Discovery, discover};
use exeat_core::transport::{Auth, Probed};
use exeat_core::walk::{Committed, probe as walk};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Operator};
use crate::body::{Body, Named};
use crate::govern::{Ground, until_done};
use crate::idempotency::{Idempotent, Once, Turn};
use crate::problem::{Code, Problem};

/// Its door.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/v1/agents/{key}/probe", post(probe))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    #[serde(default)]
    reason: Option<String>,
}

fn shown(probed: &Probed) -> Value {
    let card = probed
        .card
        .as_ref()
        .map(|c| json!({ "found_at": c.found_at, "digest": c.digest, "name": c.name, "skills": c.skills }));
    let would_use = probed.would_use.as_ref().map(|(interface, why)| {
        json!({
            "url": interface.url,
            "protocol": interface.version,
            "binding": interface.binding,
            "why": why,
        })
    });
    let auth = match probed.auth {
        Auth::Ok => "ok",
        Auth::Refused => "refused",
        Auth::NotTried => "not_tried",
    };
    json!({
        "reachable": probed.reachable,
        "card": card,
        "would_use": would_use,
        "auth": auth,
        "push": if probed.push_claimed { "claimed" } else { "not_claimed" },
        "latency_ms": probed.latency.micros() / 1_000,
        "problems": probed.problems,
    })
}

fn barred(key: &AgentKey, why: Barred) -> Problem {
    let (detail, next) = match why {
        Barred::Off => ("egress is off", "Turn it on: `exeat egress on`."),
        Barred::Draining => ("egress drains", "Turn it on: `exeat egress on`."),
        Barred::Halted => ("the kill switch is thrown", "Go on when it is over: `exeat egress on`."),
        Barred::AgentHalted => ("it is halted", "Go on when it is over: `exeat agent resume KEY`."),
        Barred::Revoked => ("it is revoked", "Register it under another key, if it is to be used again."),
    };
    Problem::new(Code::DestinationNotAllowed, format!("{key} isn't contacted: {detail}.")).advising(next)
}

async fn probe(
    State(app): State<Arc<App>>,
    Operator(caller): Operator,
    Named(key): Named<AgentKey>,
    idempotent: Idempotent,
    Body { value: why, digest }: Body<Why>,
) -> Result<Response, Problem> {
    let once = match idempotent.begin(&app, &caller, digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let (app, caller, key, once, reason) = (&app, &caller, &key, &once, why.reason.as_deref());
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let (discovery, set) = discover(ground.acting(caller), key, reason)?;
        let (agent, carry) = match discovery {
            Discovery::Cleared(agent, carry) => (agent, carry),
            Discovery::Barred(why) => {
                return match app.ports.commit(set).await? {
                    Committed::Durable(_) => Err(barred(key, why)),
                    Committed::Moved | Committed::Learned(_) => Ok(None),
                };
            }
        };
        let patience = app.settings.bounds.send_timeout;
        let Some(permit) = walk::clear(&app.ports, set, agent, carry, patience).await? else {
            return Ok(None);
        };
        // Counted among what is out, so that who throws the switch knows.
        let place = app.runtime.contact(key);
        let answer = shown(&app.prober.probe(permit).await);
        drop(place);
        keep(app, caller, once, &answer).await;
        Ok(Some((StatusCode::OK, Json(answer)).into_response()))
    })
    .await
}

/// Keeps the answer for a repeat. It was given whatever comes of this.
async fn keep(app: &App, caller: &Caller, once: &Once, answer: &Value) {
    let Ok(now) = app.ports.store.now().await else { return };
    let mut ids = Ids::new(now, app.ports.entropy.seed());
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), caller.org().clone(), now);
    set.writes.extend(once.row(StatusCode::OK, answer, now));
    if let Err(e) = app.ports.commit(set).await {
        tracing::warn!(error = %e, "a probe's answer isn't kept for a repeat");
    }
}
