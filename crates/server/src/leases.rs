//! The doors of workers: lease, complete, suspend, fail, extend.
//!
//! Promises: a worker gets work of its org, of a role that its key and this server play, and labelled no
//! higher than the role and the key may see; a lease's answer is given again to the same call; a destination
//! outside `may` is refused and recorded, and nothing else moves. Never: hands out what somebody else holds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use exeat_core::change::{Done, Row, Write};
use exeat_core::endpoint::Endpoint;
use exeat_core::id::{EnvelopeId, LeaseId, QuestionId, RoleName};
use exeat_core::payload::{Sha256Digest, canonical};
use exeat_core::ports::Find;
use exeat_core::registry::Registry;
use exeat_core::task::decision;
use exeat_core::task::desk::Refusal;
use exeat_core::task::query::{Suspend, What, Wish};
use exeat_core::task::worker::{self, Call, Retry};
use exeat_core::time::Span;
use exeat_core::walk::Stopped;
use http::{HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Caller, Worker};
use crate::body::{Body, Named};
use crate::problem::{Code, Problem};
use crate::tasks::given;

const MAX_WAIT_S: u64 = 30;
const MAX_LEASES: u32 = 32;
const MAX_WORKER: usize = 128;
const MAX_EXTENSION_S: u64 = 86_400;
/// A waiting worker looks at the record this often, in case the bus was silent.
const LOOK_AGAIN: Span = Span::of_secs(5);

/// The doors of workers.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/leases", post(lease))
        .route("/api/v1/leases/{id}/complete", post(complete))
        .route("/api/v1/leases/{id}/suspend", post(suspend))
        .route("/api/v1/leases/{id}/fail", post(fail))
        .route("/api/v1/leases/{id}/extend", post(extend))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    role: RoleName,
    worker: String,
    #[serde(default)]
    wait_s: u64,
    #[serde(default = "one")]
    max: u32,
}

const fn one() -> u32 {
    1
}

async fn lease(
    State(app): State<Arc<App>>,
    Worker(caller): Worker,
    body: Body<Wanted>,
) -> Result<Response, Problem> {
    let wanted = body.value;
    plays(&caller, &wanted.role)?;
    if wanted.wait_s > MAX_WAIT_S {
        return Err(Problem::invalid("/wait_s", format!("A wait is 0 to {MAX_WAIT_S} seconds.")));
    }
    if !(1..=MAX_LEASES).contains(&wanted.max) {
        return Err(Problem::invalid("/max", format!("1 to {MAX_LEASES} leases at once.")));
    }
    let named =
        (1..=MAX_WORKER).contains(&wanted.worker.len()) && !wanted.worker.chars().any(char::is_control);
    if !named {
        return Err(Problem::invalid(
            "/worker",
            format!("A worker has a name of 1 to {MAX_WORKER} bytes on one line."),
        ));
    }
    let leases = until_some(&app, &caller, &wanted).await?;
    Ok(Json(json!({ "leases": leases })).into_response())
}

fn plays(caller: &Caller, role: &RoleName) -> Result<(), Problem> {
    if caller.key.worker_roles.contains(role) {
        return Ok(());
    }
    Err(Problem::new(Code::RoleMissing, format!("The key may not lease for the role {role}.")))
}

/// Tries to lease until there is something, the wait is over or the server stops.
async fn until_some(app: &Arc<App>, caller: &Caller, wanted: &Wanted) -> Result<Vec<Value>, Problem> {
    let mut over = pin!(tokio::time::sleep(Duration::from_secs(wanted.wait_s)));
    let mut rung: Option<EnvelopeId> = None;
    loop {
        let registry = app.ports.store.registry(caller.org()).await?;
        let to = endpoints(app, &registry, &wanted.role);
        // What is ready in the record comes first: the bus may have lost it.
        let ready = match to.is_empty() {
            true => Vec::new(),
            false => app.ports.store.ready_envelopes(caller.org(), &to, wanted.max.saturating_mul(2)).await?,
        };
        let mut leases = Vec::new();
        let mut above = false;
        for envelope in rung.take().into_iter().chain(ready) {
            if leases.len() >= wanted.max as usize {
                break;
            }
            match take(app, caller, wanted, envelope).await? {
                Taken::Lease(lease) => leases.push(lease),
                Taken::TooHigh => above = true,
                Taken::Gone => {}
            }
        }
        if !leases.is_empty() {
            return Ok(leases);
        }
        if above {
            let why = "There is work for the role, labelled above what this key may see.";
            return Err(Problem::new(Code::ClearanceTooLow, why)
                .advising("Give the worker a key whose clearance covers the role's."));
        }
        let ring = app.ports.bus.wait(caller.org(), &to, LOOK_AGAIN);
        tokio::select! {
            () = &mut over => return Ok(Vec::new()),
            () = app.runtime.stopping().cancelled() => return Ok(Vec::new()),
            got = ring => rung = got,
        }
    }
}

/// Where the role's work comes from, as far as this server plays it: itself, and the teams it belongs to.
fn endpoints(app: &App, registry: &Registry, role: &RoleName) -> Vec<Endpoint> {
    let switches = &app.settings.switches;
    let on = |list: &[String], name: &str| list.iter().any(|l| l == "*" || l == name);
    if !switches.harness || !on(&switches.harness_roles, role.as_str()) {
        return Vec::new();
    }
    let teams = registry.role(role).teams.into_iter();
    let teams = teams.filter(|t| on(&switches.harness_teams, t.as_str())).map(Endpoint::Team);
    [Endpoint::Role(role.clone())].into_iter().chain(teams).collect()
}

/// What became of an envelope that was tried.
enum Taken {
    Lease(Value),
    /// Labelled above the key's clearance.
    TooHigh,
    /// Somebody else has it, it is over, or it isn't for the role.
    Gone,
}

async fn take(
    app: &Arc<App>,
    caller: &Caller,
    wanted: &Wanted,
    envelope: EnvelopeId,
) -> Result<Taken, Problem> {
    const TOO_HIGH: &str = "envelope within the key's clearance";
    let walked = app.ports.walk(caller.org(), Find::Envelope(envelope), |ctx, ids, flow, snapshot| {
        let row = snapshot.envelopes.iter().map(|(e, _)| e).find(|e| e.id == envelope);
        let row = row.ok_or(Refusal::LeaseLost)?;
        let hop = snapshot.task.0.hop(row.hop).ok_or(Refusal::LeaseLost)?;
        let role = ctx.registry.role(&wanted.role);
        let ours = match &row.to {
            Endpoint::Role(r) => *r == wanted.role,
            Endpoint::Team(t) => role.teams.contains(t),
            Endpoint::Agent(_) => false,
        };
        // A role may have been lowered since its work was handed out, or belong to a team of higher ones.
        if !ours || !hop.seen.flows_to(&role.clearance) {
            return Err(Refusal::LeaseLost);
        }
        if !hop.seen.flows_to(&caller.key.clearance) {
            return Err(Refusal::NotFound(TOO_HIGH));
        }
        worker::lease(ctx, ids, flow, snapshot, envelope, &caller.key, (&wanted.worker, &wanted.role))
    });
    match walked.await {
        Ok((lease, acts)) => {
            app.runtime.act(acts);
            Ok(Taken::Lease(lease))
        }
        Err(Stopped::Refused(Refusal::NotFound(TOO_HIGH))) => Ok(Taken::TooHigh),
        Err(Stopped::Refused(Refusal::LeaseLost) | Stopped::NotFound(_) | Stopped::Busy) => Ok(Taken::Gone),
        Err(e) => Err(e.into()),
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Complete {
    output: Value,
    #[serde(default)]
    cost_microusd: Option<u64>,
}

async fn complete(
    State(app): State<Arc<App>>,
    Worker(caller): Worker,
    Named(id): Named<LeaseId>,
    body: Body<Complete>,
) -> Result<Response, Problem> {
    let same = json!({ "call": "complete", "body": body.value });
    let Complete { output, cost_microusd } = body.value;
    settle(&app, &caller, id, &Call::Complete { output, cost_microusd }, &same).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    reason: String,
    #[serde(default)]
    retry: bool,
}

async fn fail(
    State(app): State<Arc<App>>,
    Worker(caller): Worker,
    Named(id): Named<LeaseId>,
    body: Body<Fail>,
) -> Result<Response, Problem> {
    let same = json!({ "call": "fail", "body": body.value });
    let said = body.value;
    let retry = if said.retry { Retry::Again } else { Retry::Never };
    // A worker's words may be a program's whole complaint: the end of it says most.
    let skip = said.reason.chars().count().saturating_sub(crate::tasks::REASON_CHARS);
    let reason = said.reason.chars().skip(skip).collect();
    settle(&app, &caller, id, &Call::Fail { reason, retry }, &same).await
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Suspended {
    continuation: Value,
    delegations: Vec<Delegation>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Delegation {
    id: String,
    #[serde(default)]
    to: Option<Endpoint>,
    #[serde(default, deserialize_with = "present")]
    input: Option<Value>,
    #[serde(default)]
    skill: Option<String>,
    #[serde(default)]
    label: Option<Value>,
    #[serde(default)]
    deadline: Option<Span>,
    #[serde(default)]
    answer: Option<Answer>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    question_id: QuestionId,
    input: Value,
}

/// A member that is there counts, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(d).map(Some)
}

async fn suspend(
    State(app): State<Arc<App>>,
    Worker(caller): Worker,
    Named(id): Named<LeaseId>,
    body: Body<Suspended>,
) -> Result<Response, Problem> {
    let same = json!({ "call": "suspend", "body": body.value });
    let said = body.value;
    let registry = app.ports.store.registry(caller.org()).await?;
    let wishes = said.delegations.into_iter().enumerate();
    let delegations = wishes.map(|(n, d)| wish(n, d, &registry)).collect::<Result<_, _>>()?;
    let call = Call::Suspend(Suspend { continuation: said.continuation, delegations });
    settle(&app, &caller, id, &call, &same).await
}

fn wish(n: usize, d: Delegation, registry: &Registry) -> Result<Wish, Problem> {
    let at = format!("/delegations/{n}");
    let what = match d {
        Delegation {
            to: None,
            input: None,
            skill: None,
            label: None,
            deadline: None,
            answer: Some(a),
            ..
        } => What::Answer { question: a.question_id, input: a.input },
        Delegation { to: Some(to), input: Some(input), skill, label, deadline, answer: None, .. } => {
            let pointer = format!("{at}/label");
            let label = label.filter(|l| !l.is_null());
            let label = label.map(|l| given::label(&pointer, &l, &registry.levels)).transpose()?;
            What::Delegate { to, input, skill, label: label.map(|l| l.to_string()), deadline }
        }
        _ => {
            let why = "A delegation has either `to` and `input`, or an `answer` alone.";
            return Err(Problem::invalid(&at, why));
        }
    };
    Ok(Wish { id: d.id, what })
}

/// Settles a lease. `same` is what makes two calls the same: its name and what it says.
async fn settle(
    app: &Arc<App>,
    caller: &Caller,
    id: LeaseId,
    call: &Call,
    same: &Value,
) -> Result<Response, Problem> {
    let status = if matches!(call, Call::Suspend(_)) { StatusCode::ACCEPTED } else { StatusCode::OK };
    let digest = Sha256Digest::of(&canonical(same));
    let walked = app.ports.walk(caller.org(), Find::Lease(id), |ctx, ids, flow, snapshot| {
        let held = (id, &caller.key);
        let (answer, mut set) = worker::settle(ctx, ids, flow, snapshot, held, call.clone(), same)?;
        if matches!(call, Call::Fail { retry: Retry::Again, .. }) {
            // The envelope goes back and forgets the lease, so the answer is kept beside it.
            let done = Done { request: digest, status: status.as_u16(), answer: answer.clone(), at: ctx.now };
            let row = Row::Idempotency(caller.id().clone(), given_back(id), LEASE.to_owned(), done);
            set.writes.push(Write { expected: 0, row });
        }
        Ok((answer, set))
    });
    match walked.await {
        Ok((answer, acts)) => {
            app.runtime.act(acts);
            Ok((status, Json(answer)).into_response())
        }
        Err(Stopped::Refused(Refusal::Answered(answer))) => Ok(again(status, answer)),
        Err(Stopped::Refused(Refusal::LeaseLost)) => {
            let done = app.archive.done(caller.org(), caller.id(), &given_back(id), LEASE).await?;
            match done {
                Some(d) if d.request == digest => Ok(again(status, d.answer)),
                Some(_) => Err(Refusal::LeaseSettled.into()),
                None => Err(Refusal::LeaseLost.into()),
            }
        }
        Err(Stopped::Refused(Refusal::DestinationNotAllowed(to))) => {
            refuse(app, caller, id).await?;
            Err(Refusal::DestinationNotAllowed(to).into())
        }
        Err(e) => Err(of_lease(e)),
    }
}

/// The name under which the answer to a lease that was given back is kept.
const LEASE: &str = "lease";

fn given_back(id: LeaseId) -> String {
    format!("/api/v1/leases/{id}/fail")
}

/// The answer that the same call got before.
fn again(status: StatusCode, answer: Value) -> Response {
    let mut response = (status, Json(answer)).into_response();
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}

/// Records that a worker named a destination which it may not have.
async fn refuse(app: &Arc<App>, caller: &Caller, id: LeaseId) -> Result<(), Problem> {
    let walked = app.ports.walk(caller.org(), Find::Lease(id), |ctx, ids, flow, snapshot| {
        decision::refuse_destination(ctx, ids, flow, snapshot, id).map(|set| ((), set))
    });
    let ((), acts) = walked.await.map_err(of_lease)?;
    app.runtime.act(acts);
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extend {
    by_s: u64,
}

async fn extend(
    State(app): State<Arc<App>>,
    Worker(caller): Worker,
    Named(id): Named<LeaseId>,
    body: Body<Extend>,
) -> Result<Response, Problem> {
    let by = body.value.by_s;
    if !(1..=MAX_EXTENSION_S).contains(&by) {
        return Err(Problem::invalid(
            "/by_s",
            format!("A lease is extended by 1 to {MAX_EXTENSION_S} seconds."),
        ));
    }
    let walked = app.ports.walk(caller.org(), Find::Lease(id), |ctx, ids, flow, snapshot| {
        worker::extend(ctx, ids, flow, snapshot, (id, &caller.key), Span::of_secs(by))
    });
    let (answer, acts) = walked.await.map_err(of_lease)?;
    app.runtime.act(acts);
    Ok(Json(answer).into_response())
}

fn of_lease(e: Stopped) -> Problem {
    match e {
        Stopped::NotFound(_) => Problem::not_found("lease"),
        other => other.into(),
    }
}
