//! The doors of approvals: list, show, approve, deny.
//!
//! A decision names the digest of what its maker saw; whether it is taken is the core's to say. Approving
//! sends nothing: the gate is asked again, and only its answer does.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use exeat_core::approval::{Approval, Choice};
use exeat_core::change::{ChangeSet, Snapshot};
use exeat_core::id::{ApprovalId, ChangeId};
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::Find;
use exeat_core::task::decision::{self, Decision};
use exeat_core::task::desk::Refusal;
use exeat_core::walk::Stopped;
use http::StatusCode;
use serde::Deserialize;

use crate::app::App;
use crate::auth::{Approver, Caller, Examiner};
use crate::body::{Asked, Body, Named};
use crate::idempotency::{Idempotent, Turn};
use crate::page::{Paged, page};
use crate::problem::Problem;
use crate::shown::{Sight, approval};
use crate::tasks::{outcome, reason};

/// The doors of approvals.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/approvals", get(list))
        .route("/api/v1/approvals/{id}", get(show))
        .route("/api/v1/approvals/{id}/approve", post(approve))
        .route("/api/v1/approvals/{id}/deny", post(deny))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    status: Option<ApprovalStatus>,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list(
    State(app): State<Arc<App>>,
    Examiner(caller): Examiner,
    Asked(asked): Asked<Listing>,
) -> Result<Response, Problem> {
    let page = page(asked.limit, asked.cursor.as_deref())?;
    let (org, sight) = (caller.org(), Sight::of(&caller.key.clearance));
    let (approvals, next) = app.archive.approvals(org, asked.status, &page).await?;
    let mut items = Vec::with_capacity(approvals.len());
    for a in approvals {
        let mut payloads = BTreeMap::new();
        if sight.sees(&a.label)
            && let Some(sealed) = app.archive.payload(org, a.payload.id).await?
        {
            payloads.insert(a.payload.id, sealed);
        }
        items.push(approval::shown(&a, &payloads, &caller.key));
    }
    Ok(Json(Paged::of(items, next)).into_response())
}

async fn show(
    State(app): State<Arc<App>>,
    Examiner(caller): Examiner,
    Named(id): Named<ApprovalId>,
) -> Result<Response, Problem> {
    let found = app.ports.store.load(caller.org(), Find::Approval(id)).await?;
    let snapshot = found.ok_or_else(|| Problem::not_found("approval"))?;
    let shown = find(&snapshot, id).map(|a| approval::shown(a, &snapshot.payloads, &caller.key));
    Ok(Json(shown.ok_or_else(|| Problem::not_found("approval"))?).into_response())
}

fn find(snapshot: &Snapshot, id: ApprovalId) -> Option<&Approval> {
    snapshot.approvals.iter().map(|(a, _)| a).find(|a| a.id == id)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    digest: String,
    #[serde(default)]
    reason: Option<String>,
}

async fn approve(
    State(app): State<Arc<App>>,
    Approver(caller): Approver,
    Named(id): Named<ApprovalId>,
    once: Idempotent,
    body: Body<Decided>,
) -> Result<Response, Problem> {
    decide(&app, &caller, id, once, body, Choice::Approve).await
}

async fn deny(
    State(app): State<Arc<App>>,
    Approver(caller): Approver,
    Named(id): Named<ApprovalId>,
    once: Idempotent,
    body: Body<Decided>,
) -> Result<Response, Problem> {
    decide(&app, &caller, id, once, body, Choice::Deny).await
}

async fn decide(
    app: &Arc<App>,
    caller: &Caller,
    id: ApprovalId,
    once: Idempotent,
    body: Body<Decided>,
    choice: Choice,
) -> Result<Response, Problem> {
    let why = reason("/reason", body.value.reason.as_deref())?;
    if choice == Choice::Deny && why.is_none() {
        return Err(Problem::invalid("/reason", "A denial needs a reason."));
    }
    let once = match once.begin(app, caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let walked = app.ports.walk(caller.org(), Find::Approval(id), |ctx, ids, flow, snapshot| {
        let before = snapshot.clone();
        let mut set = ChangeSet::new(ChangeId::draw(&mut ids.clone()), caller.org().clone(), ctx.now);
        // What isn't a digest is no less a mismatch: it stands for itself.
        let said = body.value.digest.as_str();
        let seen =
            Sha256Digest::try_from(said.to_owned()).unwrap_or_else(|_| Sha256Digest::of(said.as_bytes()));
        match decision::decide(ctx, ids, flow, snapshot, id, &caller.key, choice, seen, why)? {
            Decision::Again => {}
            Decision::Made(made) => set = *made,
        }
        let after = outcome::after(before, &set);
        let decided = find(&after, id).ok_or(Refusal::NotFound("approval"))?;
        let answer = approval::shown(decided, &after.payloads, &caller.key);
        set.writes.extend(once.row(StatusCode::OK, &answer, ctx.now));
        Ok((answer, set))
    });
    let (answer, acts) = walked.await.map_err(|e| match e {
        Stopped::NotFound(_) => Problem::not_found("approval"),
        other => other.into(),
    })?;
    app.runtime.act(acts);
    Ok(Json(answer).into_response())
}
