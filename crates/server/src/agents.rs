//! The registry of foreign agents: written, signed, switched.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use exeat_core::id::{AgentKey, KeyId};
use exeat_core::payload::Sha256Digest;
use exeat_core::principal::ApiKey;
use exeat_core::registry::change::entry::{self, Act, Seen, Written, status_word};
use exeat_core::registry::change::{Change, are_two};
use exeat_core::registry::{AgentEntry, Registry};
use exeat_egress::entry::{BadEntry, entry_of, origin_of};
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Admin, Caller, Operator, Reader};
use crate::body::{Asked, Body, Named};
use crate::govern::{Ground, settle, until_done};
use crate::idempotency::{Idempotent, Turn};
use crate::page::{Listing, Paged, paged};
use crate::problem::{Code, Problem, sentence};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/agents", get(list))
        .route("/api/v1/agents/{key}", get(show).put(put))
        .route("/api/v1/agents/{key}/sign", post(sign))
        .route("/api/v1/agents/{key}/disable", post(disable))
        .route("/api/v1/agents/{key}/enable", post(enable))
        .route("/api/v1/agents/{key}/revoke", post(revoke))
        .route("/api/v1/agents/{key}/halt", post(halt))
        .route("/api/v1/agents/{key}/resume", post(resume))
}

/// An entry as the doors show it.
#[must_use]
pub fn shown(agent: &AgentEntry, registry: &Registry, keys: &BTreeMap<KeyId, ApiKey>) -> Value {
    let (p, t) = (&agent.posture, &agent.terms);
    let two = |signer: &KeyId| match (keys.get(signer), keys.get(&agent.written_by)) {
        (Some(one), Some(other)) => are_two(one, other),
        _ => false,
    };
    json!({
        "key": agent.key,
        "version": agent.version,
        "status": status_word(agent.status),
        "url": p.url,
        "provider": p.provider,
        "protocol": p.protocol,
        "skills": p.skills,
        "credential": p.credential,
        "allow_origins": p.allow_origins,
        "plaintext": p.plaintext,
        "allow_cidrs": p.allow_cidrs,
        "ceiling": p.ceiling.shown(),
        "output_label": p.output_label.shown(),
        "region": p.region,
        "redaction": "off",
        "callback_trust": p.callback_trust,
        "token_in_query": p.token_in_query,
        "context": t.context,
        "dedup": t.dedup,
        "push": t.push,
        "price": t.price,
        "deadline": t.deadline,
        "max_in_flight": t.max_in_flight,
        "origin": agent.origin,
        "posture_digest": agent.posture_digest(),
        "signed_by": agent.signed_by,
        "four_eyes": agent.signed_by.iter().any(two),
        "halted": agent.halted,
        "health": { "has_answered": registry.met.contains(&agent.key) },
    })
}

async fn keys(app: &App, caller: &Caller) -> Result<BTreeMap<KeyId, ApiKey>, Problem> {
    let all = app.archive.api_keys(caller.org()).await?;
    Ok(all.into_iter().map(|(k, _)| (k.id.clone(), k)).collect())
}

async fn list(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Asked(asked): Asked<Listing>,
) -> Result<Json<Paged<Value>>, Problem> {
    let page = asked.page()?;
    let registry = app.ports.store.registry(caller.org()).await?;
    let keys = keys(&app, &caller).await?;
    let all = registry.agents.iter().filter_map(|(key, versions)| {
        let newest = versions.values().next_back()?;
        Some((key.to_string(), shown(newest, &registry, &keys)))
    });
    Ok(Json(paged(all, &page)))
}

async fn show(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Named(key): Named<AgentKey>,
) -> Result<Response, Problem> {
    let registry = app.ports.store.registry(caller.org()).await?;
    let agent = registry.agent(&key).ok_or_else(|| Problem::not_found("agent"))?;
    let keys = keys(&app, &caller).await?;
    Ok(tagged(agent.version, Json(shown(agent, &registry, &keys)).into_response()))
}

fn tagged(version: u32, mut response: Response) -> Response {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// What the writer has seen, by the headers of RFC 9110 §13.1.
fn seen(headers: &HeaderMap) -> Result<Seen, Problem> {
    let text = |v: &HeaderValue| v.to_str().unwrap_or_default().trim().to_owned();
    match (headers.get(IF_MATCH).map(text), headers.get(IF_NONE_MATCH).map(text)) {
        (None, Some(star)) if star == "*" => Ok(Seen::New),
        (Some(tag), None) => {
            let version = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(&tag);
            let bad = || Problem::new(Code::Invalid, "If-Match must be the entry's version, like \"3\".");
            version.parse().map(Seen::Version).map_err(|_| bad())
        }
        _ => Err(Problem::new(
            Code::Invalid,
            "Send If-None-Match: * to create the entry, or If-Match: \"version\" to change it.",
        )),
    }
}

fn bad_entry(e: &BadEntry) -> Problem {
    let pointer = match e {
        BadEntry::Url(_) | BadEntry::Origin => "/url",
        BadEntry::AllowOrigin { .. } => "/allow_origins",
        BadEntry::Network(_) => "/allow_cidrs",
    };
    Problem::invalid(pointer, sentence(&e.to_string()))
}

async fn put(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(key): Named<AgentKey>,
    headers: HeaderMap,
    Body { value: written, .. }: Body<Written>,
) -> Result<Response, Problem> {
    let seen = seen(&headers)?;
    let origin =
        origin_of(&written.url).map_err(|e| Problem::invalid("/url", sentence(&e.to_string())))?.to_string();
    let keys = keys(&app, &caller).await?;
    let (app, caller, key, written, origin, keys) = (&app, &caller, &key, &written, &origin, &keys);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let change = entry::put(ground.acting(caller), key, written, origin.clone(), seen)?;
        let version = match &change {
            Change::Made(agent, _) | Change::Same(agent) => {
                entry_of(agent).map_err(|e| bad_entry(&e))?;
                agent.version
            }
            Change::Asked(_) => 0,
        };
        let made = if version == 1 { StatusCode::CREATED } else { StatusCode::OK };
        let show = |agent: &AgentEntry, _| shown(agent, &ground.registry, keys);
        let response = settle(app, change, &crate::idempotency::Once::none(), made, show).await?;
        Ok(response.map(|r| {
            let mut r = tagged(version, r);
            let place = HeaderValue::try_from(format!("/api/v1/agents/{key}"));
            if let (true, Ok(place)) = (r.status() == StatusCode::CREATED, place) {
                r.headers_mut().insert(http::header::LOCATION, place);
            }
            r
        }))
    })
    .await
}

/// A signature names what was seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    version: u32,
    posture_digest: Sha256Digest,
}

async fn sign(
    State(app): State<Arc<App>>,
    Admin(caller): Admin,
    Named(key): Named<AgentKey>,
    idempotent: Idempotent,
    Body { value: signature, digest }: Body<Signature>,
) -> Result<Response, Problem> {
    let once = match idempotent.begin(&app, &caller, digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let keys = keys(&app, &caller).await?;
    let (app, caller, key, once, keys, signature) = (&app, &caller, &key, &once, &keys, &signature);
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let standing = ground.standing(app, caller, key).await?;
        let (version, seen) = (signature.version, signature.posture_digest);
        let change = entry::sign(ground.acting(caller), key, version, seen, &standing)?;
        let show = |agent: &AgentEntry, _| shown(agent, &ground.registry, keys);
        settle(app, change, once, StatusCode::OK, show).await
    })
    .await
}

/// Why.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    #[serde(default)]
    reason: Option<String>,
}

async fn act(
    app: Arc<App>,
    caller: Caller,
    key: AgentKey,
    idempotent: Idempotent,
    body: Body<Why>,
    act: Act,
) -> Result<Response, Problem> {
    let once = match idempotent.begin(&app, &caller, body.digest).await? {
        Turn::Run(once) => once,
        Turn::Replay(answer) => return Ok(answer),
    };
    let keys = keys(&app, &caller).await?;
    let (app, caller, key, once, keys) = (&app, &caller, &key, &once, &keys);
    let reason = body.value.reason.as_deref();
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let standing = ground.standing(app, caller, key).await?;
        let change = entry::act(ground.acting(caller), key, act, reason, &standing)?;
        let show = |agent: &AgentEntry, _| shown(agent, &ground.registry, keys);
        settle(app, change, once, StatusCode::OK, show).await
    })
    .await
}

macro_rules! acts {
    ($($name:ident: $who:ident $act:ident;)*) => {$(
        async fn $name(
            State(app): State<Arc<App>>,
            $who(caller): $who,
            Named(key): Named<AgentKey>,
            idempotent: Idempotent,
            body: Body<Why>,
        ) -> Result<Response, Problem> {
            act(app, caller, key, idempotent, body, Act::$act).await
        }
    )*};
}

acts! {
    disable: Admin Disable;
    enable: Admin Enable;
    revoke: Admin Revoke;
    halt: Operator Halt;
    resume: Operator Resume;
}
