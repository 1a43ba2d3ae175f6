//! The door at which foreign agents push: what comes is stored, nothing acts on it here.
//!
//! Promises: nothing is read, of body or record, before a token's MAC holds in the ring (but for the ring itself, at
//! most once a second, if a key isn't in it); whatever is wrong
//! looks the same (404, empty); what is answered with 202 is durable, now or before; 429 and 503 are told only
//! to who has a good token. Never: believes a body, logs a token, answers with content.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use exeat_core::bridge::{Doorway, PushClaim};
use exeat_core::change::ChangeSet;
use exeat_core::id::{CallbackId, ChangeId, Ids, OrgName};
use exeat_core::key::{kid_of, verify_callback};
use exeat_core::ledger::data::NoteData;
use exeat_core::ledger::{Actor, Code, Data, Draft};
use exeat_core::payload::{Limits, Payload, Sha256Digest};
use exeat_core::registry::AgentEntry;
use exeat_core::time::Monotonic;
use exeat_core::walk::confirm::{Accepted, Pushed, accept};
use exeat_core::walk::{Committed, Stopped};
use exeat_wire::push::{self, Claim, Push, PushEvent};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::app::App;
use crate::body::PATIENCE;
use crate::metrics::Callback;

const TOKEN_HEADERS: [&str; 2] = ["x-a2a-notification-token", "a2a-notification-token"];
/// Buckets kept at most, of each kind.
const BUCKETS: usize = 16_384;
/// A foreign agent's id is at most this long, in bytes.
const FOREIGN_ID: usize = 512;

/// The callback door.
pub fn routes() -> Router<Arc<App>> {
    let meters = Arc::new(Meters::default());
    let handler = move |State(app): State<Arc<App>>, Path(id): Path<String>, request: Request| {
        let meters = Arc::clone(&meters);
        async move {
            let answer = pushed(&app, &meters, &id, request).await;
            app.metrics.callback(answer.as_ref().map_or_else(No::counted, |()| Callback::Accepted));
            match answer {
                Ok(()) => StatusCode::ACCEPTED.into_response(),
                Err(no) => no.into_response(),
            }
        }
    };
    Router::new().route("/api/v1/a2a/callback/{callback_id}", post(handler))
}

/// Why a push isn't taken; all that its sender learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum No {
    /// Whatever is wrong.
    NotFound,
    /// More than the configured bytes.
    TooLarge,
    /// More often than configured.
    TooMany,
    /// It can't be stored now.
    Unavailable,
}

impl No {
    const fn counted(&self) -> Callback {
        match self {
            Self::NotFound => Callback::NotFound,
            Self::TooLarge => Callback::TooLarge,
            Self::TooMany => Callback::TooMany,
            Self::Unavailable => Callback::Unavailable,
        }
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND.into_response(),
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
            Self::TooMany => {
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, HeaderValue::from(1_u32))]).into_response()
            }
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, HeaderValue::from(1_u32))]).into_response()
            }
        }
    }
}

fn unavailable(e: impl std::fmt::Display) -> No {
    tracing::error!(error = %e, "a pushed event couldn't be stored");
    No::Unavailable
}

/// A stranger learns nothing of the store.
fn unavailable_quietly(e: impl std::fmt::Display) -> No {
    tracing::error!(error = %e, "the callback keys can't be read");
    No::NotFound
}

async fn pushed(app: &App, meters: &Meters, id: &str, request: Request) -> Result<(), No> {
    let callback: CallbackId = id.parse().map_err(|_| No::NotFound)?;
    let credentials = Credentials::of(request.headers(), request.uri().query()).ok_or(No::NotFound)?;
    let org = match credentials.org(app, &callback) {
        Err(_) if credentials.name_a_new_key(app) => {
            let (archive, now) = (app.archive.as_ref(), app.ports.clock.now());
            let read = app.keyring.reload(archive, &app.root, &app.settings.org, now).await;
            read.map_err(unavailable_quietly)?;
            credentials.org(app, &callback)?
        }
        other => other?,
    };
    let source = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|c| c.0.ip());
    if !meters.admit(&callback, source, app.settings.callback_per_minute, app.ports.clock.monotonic()) {
        return Err(No::TooMany);
    }
    if app.runtime.stopping().is_cancelled() {
        return Err(No::Unavailable);
    }
    let bytes = body(request, app.settings.callback_body_bytes).await?;
    let door = app.ports.store.route(&callback).await.map_err(unavailable)?.ok_or(No::NotFound)?;
    if door.route.org != org {
        return Err(No::NotFound);
    }
    let registry = app.ports.store.registry(&org).await.map_err(unavailable)?;
    let (key, version) = &door.agent;
    let agent = registry.agent_at(key, *version).ok_or(No::NotFound)?;
    if credentials.query_only && !agent.posture.token_in_query {
        return Err(No::NotFound);
    }
    let pushed = clean(app, &org, agent, &credentials.tokens, &bytes).await;
    match accept(&app.ports, &door, agent.posture.callback_trust, pushed).await.map_err(unavailable)? {
        Accepted::Stored(acts) => {
            app.runtime.act(acts);
            Ok(())
        }
        Accepted::Full => Err(No::TooMany),
        Accepted::OtherTask => {
            note_other_task(app, &door).await.map_err(unavailable)?;
            Err(No::NotFound)
        }
    }
}

/// What a sender shows of itself. All of it must be right.
struct Credentials {
    tokens: Vec<String>,
    /// Came nothing but a token in the query, which only some entries allow?
    query_only: bool,
}

impl Credentials {
    /// None if there are none, or one can't be a token.
    fn of(headers: &HeaderMap, query: Option<&str>) -> Option<Self> {
        let mut tokens = Vec::new();
        for value in TOKEN_HEADERS.iter().flat_map(|name| headers.get_all(*name)) {
            tokens.push(value.to_str().ok()?.trim().to_owned());
        }
        for value in headers.get_all(AUTHORIZATION) {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            if !scheme.eq_ignore_ascii_case("bearer") {
                return None;
            }
            tokens.push(token.trim().to_owned());
        }
        let query_only = tokens.is_empty();
        let in_query = query.unwrap_or_default().split('&').filter_map(|p| p.strip_prefix("t="));
        tokens.extend(in_query.map(str::to_owned));
        (!tokens.is_empty()).then_some(Self { tokens, query_only })
    }

    /// Is one of them made with a key that isn't known here, and may the record be asked for it now?
    fn name_a_new_key(&self, app: &App) -> bool {
        let ring = app.keyring.now();
        let unknown = |t: &String| kid_of(t).is_some_and(|kid| !ring.knows(kid));
        self.tokens.iter().any(unknown) && app.keyring.may_ask(app.ports.clock.monotonic())
    }

    /// The one org that all tokens are of. Reads nothing but the ring.
    fn org(&self, app: &App, callback: &CallbackId) -> Result<OrgName, No> {
        let (now, ring) = (app.ports.clock.now(), app.keyring.now());
        let mut known: Option<OrgName> = None;
        for token in &self.tokens {
            let org = verify_callback(&ring, token, callback, now).map_err(|_| No::NotFound)?;
            if known.as_ref().is_some_and(|k| *k != org) {
                return Err(No::NotFound);
            }
            known = Some(org);
        }
        known.ok_or(No::NotFound)
    }
}

/// What was pushed, without the credential that the agent is shown and the tokens that came along. Where the
/// former can't be told, nothing is kept of it but that something came.
async fn clean(app: &App, org: &OrgName, agent: &AgentEntry, tokens: &[String], bytes: &[u8]) -> Pushed {
    let scrubbed = |bytes| app.ports.transport.scrubbed(org, agent, tokens, bytes);
    let Some(once) = scrubbed(bytes.to_vec()).await else { return unknown(bytes) };
    let mut pushed = read(&once, &app.settings.bounds.payload);
    if let Some(body) = &mut pushed.body {
        // Once more after unescaping: what was escaped in part shows only now.
        let twice = scrubbed(body.bytes()).await.and_then(|b| Payload::from_bytes(&b).ok());
        match twice {
            Some(twice) => body.parts = twice.parts,
            None => return unknown(bytes),
        }
    }
    pushed
}

/// Something came with a good token: a reason to look.
fn unknown(bytes: &[u8]) -> Pushed {
    let (foreign_task, foreign_context, body) = (None, None, None);
    let digest = Sha256Digest::of(bytes);
    Pushed { claim: PushClaim::Unknown, foreign_task, foreign_context, body, digest }
}

async fn body(request: Request, most: usize) -> Result<Bytes, No> {
    let read = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(all)) => Ok(all.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(No::TooLarge),
        // Half a body is nobody's event; who sent it may send it again.
        Ok(Err(_)) | Err(_) => Err(No::Unavailable),
    }
}

/// Reads a push. What isn't A2A came with a good token all the same: it is a reason to look.
fn read(bytes: &[u8], limits: &Limits) -> Pushed {
    let Ok(push) = push::event(bytes, &exeat_wire::Limits::default()) else {
        return unknown(bytes);
    };
    let short = |id: &str| (id.len() <= FOREIGN_ID).then(|| id.to_owned());
    let named = push.names_task();
    let foreign_task = named.and_then(short);
    // A task whose id can't be one of those that we keep can't be told from another: only look.
    let claim = if named.is_some() && foreign_task.is_none() { PushClaim::Unknown } else { claim(&push) };
    let kept = content(&push.event, claim).filter(|p| p.check(limits).is_ok());
    Pushed {
        claim,
        foreign_task,
        foreign_context: push.names_context().and_then(short),
        body: kept,
        digest: push.digest,
    }
}

fn claim(push: &Push) -> PushClaim {
    use exeat_wire::State as S;
    let state = match &push.event {
        PushEvent::Task(task) => &task.state,
        PushEvent::Status { state, .. } => state,
        PushEvent::Message(_) if push.claims() == Claim::End => return PushClaim::Message,
        PushEvent::Artifact { .. } => return PushClaim::Progress,
        PushEvent::Message(_) | PushEvent::Unknown => return PushClaim::Unknown,
    };
    match (push.claims(), state) {
        (Claim::Unknown, _) => PushClaim::Unknown,
        (_, S::Completed) => PushClaim::Completed,
        (_, S::Failed) => PushClaim::Failed,
        (_, S::Canceled) => PushClaim::Canceled,
        (_, S::Rejected) => PushClaim::Rejected,
        (_, S::InputRequired) => PushClaim::InputRequired,
        (_, S::AuthRequired) => PushClaim::AuthRequired,
        (_, S::Submitted | S::Working) => PushClaim::Progress,
        (_, S::Other(_)) => PushClaim::Unknown,
    }
}

/// What belongs to the claim. A change of state carries no artifacts, so of a completion it has nothing to give.
fn content(event: &PushEvent, claim: PushClaim) -> Option<Payload> {
    use PushClaim as C;
    match (event, claim) {
        (_, C::Progress | C::Unknown) => None,
        (PushEvent::Message(m), _) => Some(m.payload()),
        (PushEvent::Task(t), C::Completed) => Some(t.output()),
        (PushEvent::Task(t), C::InputRequired | C::AuthRequired) => Some(t.question()),
        (PushEvent::Task(t), _) => t.reason().map(Payload::of_text),
        (PushEvent::Status { .. }, C::Completed) => None,
        (PushEvent::Status { message: Some(m), .. }, C::InputRequired | C::AuthRequired) => Some(m.payload()),
        (PushEvent::Status { message: Some(m), .. }, _) => m.line().map(Payload::of_text),
        (PushEvent::Status { .. } | PushEvent::Artifact { .. } | PushEvent::Unknown, _) => None,
    }
}

/// Somebody with a good token spoke of another task: that is recorded, and nothing moves.
async fn note_other_task(app: &App, door: &Doorway) -> Result<(), Stopped> {
    let now = app.ports.store.now().await?;
    let mut ids = Ids::new(now, app.ports.entropy.seed());
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), door.route.org.clone(), now);
    let data = NoteData { what: Code::of("callback"), why: Code::of("other_task"), payload: None };
    let mut draft = Draft::apart(now, set.id, Actor::system("callback"), Data::Refused(data));
    draft.task = Some(door.route.task);
    draft.hop = Some(door.route.hop);
    draft.turn = Some(door.route.turn);
    set.drafts.push(draft);
    match app.ports.commit(set).await? {
        Committed::Durable(acts) => {
            app.runtime.act(acts);
            Ok(())
        }
        Committed::Moved | Committed::Learned(_) => Err(Stopped::Busy),
    }
}

/// How often each callback id and each source came, lately.
#[derive(Default)]
struct Meters {
    callbacks: Meter<CallbackId>,
    sources: Meter<IpAddr>,
}

impl Meters {
    fn admit(&self, callback: &CallbackId, source: Option<IpAddr>, per_minute: u32, now: Monotonic) -> bool {
        let by_id = self.callbacks.take(callback.clone(), per_minute, now);
        let by_source = source.is_none_or(|s| self.sources.take(s, per_minute, now));
        by_id && by_source
    }
}

/// Token buckets, each as large as a minute's allowance.
struct Meter<K>(Mutex<HashMap<K, Bucket>>);

impl<K> Default for Meter<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Millionths of a token that are left, and when that was so.
#[derive(Clone, Copy)]
struct Bucket {
    left: u64,
    at: Monotonic,
}

const TOKEN: u64 = 1_000_000;
const MINUTE: u64 = 60_000_000;

impl Bucket {
    fn refilled(self, per_minute: u64, now: Monotonic) -> Self {
        let passed = now.left(self.at).micros().min(MINUTE);
        let gained = passed.saturating_mul(per_minute) / (MINUTE / TOKEN);
        Self { left: self.left.saturating_add(gained).min(per_minute * TOKEN), at: now }
    }
}

impl<K: Eq + Hash> Meter<K> {
    fn take(&self, key: K, per_minute: u32, now: Monotonic) -> bool {
        let per_minute = u64::from(per_minute);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= BUCKETS && !all.contains_key(&key) {
            // A full bucket says nothing; if all are in use, forgetting them lets some through too often.
            all.retain(|_, b| b.refilled(per_minute, now).left < per_minute * TOKEN);
            if all.len() >= BUCKETS {
                all.clear();
            }
        }
        let full = Bucket { left: per_minute * TOKEN, at: now };
        let bucket = all.entry(key).or_insert(full);
        *bucket = bucket.refilled(per_minute, now);
        let enough = bucket.left >= TOKEN;
        if enough {
            bucket.left -= TOKEN;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pushed(v: &Value) -> Pushed {
        read(v.to_string().as_bytes(), &Limits::default())
    }

    #[test]
    fn each_shape_makes_its_claim_and_keeps_what_belongs_to_it() {
        let said = json!({"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"words"}]});
        let task = |state: &str| {
            json!({"task":{"id":"t1","contextId":"c1","status":{"state":state,"message":said},
                "artifacts":[{"artifactId":"a","parts":[{"text":"result"}]}]}})
        };
        let update = |state: &str| json!({"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":state,"message":said}}});
        for (body, claim, kept) in [
            (task("TASK_STATE_COMPLETED"), PushClaim::Completed, Some("words\n\nresult")),
            (task("TASK_STATE_INPUT_REQUIRED"), PushClaim::InputRequired, Some("words")),
            (task("TASK_STATE_AUTH_REQUIRED"), PushClaim::AuthRequired, Some("words")),
            (task("TASK_STATE_FAILED"), PushClaim::Failed, Some("words")),
            (task("TASK_STATE_REJECTED"), PushClaim::Rejected, Some("words")),
            (task("TASK_STATE_CANCELED"), PushClaim::Canceled, Some("words")),
            (task("TASK_STATE_WORKING"), PushClaim::Progress, None),
            (task("TASK_STATE_MAYBE"), PushClaim::Unknown, None),
            (update("TASK_STATE_COMPLETED"), PushClaim::Completed, None),
            (update("TASK_STATE_FAILED"), PushClaim::Failed, Some("words")),
            (update("TASK_STATE_INPUT_REQUIRED"), PushClaim::InputRequired, Some("words")),
            (json!({"message":said}), PushClaim::Message, Some("words")),
            (
                json!({"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}),
                PushClaim::Progress,
                None,
            ),
            (
                json!({"kind":"task","id":"t1","contextId":"c1","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"old"}]}]}),
                PushClaim::Completed,
                Some("old"),
            ),
            (json!({"hello":1}), PushClaim::Unknown, None),
        ] {
            let got = pushed(&body);
            assert_eq!(got.claim, claim, "{body}");
            assert_eq!(got.body.map(|p| p.text()).as_deref(), kept, "{body}");
        }
        for not_a2a in [&b""[..], b"null", b"[]", b"<html>", b"{\"a\":", b"\xff\xfe"] {
            let got = read(not_a2a, &Limits::default());
            assert_eq!((got.claim, got.foreign_task, got.body), (PushClaim::Unknown, None, None));
        }
    }

    #[test]
    fn content_beyond_the_limits_is_not_kept_and_an_endless_id_names_nothing() {
        let long = "x".repeat(2 << 20);
        let big = pushed(
            &json!({"task":{"id":"t1","status":{"state":"completed"},"artifacts":[{"parts":[{"text":long}]}]}}),
        );
        assert_eq!((big.claim, big.body), (PushClaim::Completed, None));
        let named = pushed(&json!({"task":{"id":"t".repeat(513),"status":{"state":"completed"}}}));
        assert_eq!((named.claim, named.foreign_task), (PushClaim::Unknown, None));
    }

    #[test]
    fn a_bucket_gives_a_minutes_allowance_and_refills_with_time() {
        let meter = Meter::<u8>::default();
        let at = |s: u64| Monotonic(s * 1_000_000);
        assert_eq!((0..10).filter(|_| meter.take(1, 6, at(0))).count(), 6);
        assert!(meter.take(2, 6, at(0)), "another key has its own");
        assert_eq!((0..10).filter(|_| meter.take(1, 6, at(10))).count(), 1);
        assert_eq!((0..10).filter(|_| meter.take(1, 6, at(1_000))).count(), 6);
    }

    #[test]
    fn buckets_are_bounded_whoever_comes() {
        let meter = Meter::<usize>::default();
        for key in 0..BUCKETS * 2 {
            meter.take(key, 6, Monotonic(0));
        }
        assert!(meter.0.lock().unwrap().len() <= BUCKETS);
    }
}
