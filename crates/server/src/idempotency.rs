//! `Idempotency-Key`: the same POST twice is one effect and one answer.
//!
//! What a key did is written in the effect's own change set, so the two are durable together or not at all.
//! A key counts per (org, API key, path) and for 24 hours. Within this process a request that is still
//! running is known; a second one at another process loses at the commit and is then a replay.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use exeat_core::change::{Done, Key, Row, Write};
use exeat_core::id::KeyId;
use exeat_core::payload::Sha256Digest;
use exeat_core::time::{Span, Timestamp};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::problem::{Code, Problem};
use crate::shown::hop::UpTo;
use crate::tasks::with_edges;

const HEADER: &str = "idempotency-key";
const KEPT: Span = Span::of_secs(86_400);
const MAX_KEY: usize = 255;

type Name = (KeyId, String, String);

/// Requests with a key that this process is running now.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<BTreeSet<Name>>>);

impl InFlight {
    fn enter(&self, name: &Name) -> Option<Running> {
        let entered = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        entered.then(|| Running { all: self.clone(), name: name.clone() })
    }
}

/// One of them, until dropped.
#[derive(Debug)]
struct Running {
    all: InFlight,
    name: Name,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// The request's path and its `Idempotency-Key`, if it has one.
#[derive(Debug)]
pub struct Idempotent {
    route: String,
    key: Option<String>,
}

impl FromRequestParts<Arc<App>> for Idempotent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let bad = || {
            let why = "An Idempotency-Key is given once: 1 to 255 visible ASCII characters.";
            Problem::new(Code::Invalid, why)
        };
        let mut all = parts.headers.get_all(HEADER).iter();
        let key = match (all.next(), all.next()) {
            (None, _) => None,
            (Some(v), None) => {
                let text = v.to_str().map_err(|_| bad())?;
                let fits = (1..=MAX_KEY).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
                Some(if fits { text.to_owned() } else { return Err(bad()) })
            }
            (Some(_), Some(_)) => return Err(bad()),
        };
        Ok(Self { route: parts.uri.path().to_owned(), key })
    }
}

/// What to do with a request.
#[derive(Debug)]
pub enum Turn {
    /// Run it, and put [`Once::row`] into its change set.
    Run(Once),
    /// It ran before: this was the answer.
    Replay(Response),
}

/// A request that runs now. Holds its key until dropped: keep it until the commit.
#[derive(Debug)]
pub struct Once {
    key: Option<(Name, Sha256Digest, u64)>,
    _running: Option<Running>,
}

impl Idempotent {
    /// Looks the request up.
    ///
    /// # Errors
    /// 422 if the key was used for another request, 409 if the same is still running.
    pub async fn begin(self, app: &App, caller: &Caller, request: Sha256Digest) -> Result<Turn, Problem> {
        let Some(key) = self.key else { return Ok(Turn::Run(Once::none())) };
        let name = (caller.id().clone(), self.route, key);
        let running = app.in_flight.enter(&name).ok_or_else(|| {
            Problem::new(Code::IdempotencyInFlight, "A request with this Idempotency-Key is still running.")
                .retry_after(1)
        })?;
        let (by, route, key) = &name;
        let done = app.archive.done(caller.org(), by, route, key).await?;
        let fresh = |d: &Done| app.ports.clock.now().since(d.at) < KEPT;
        let expected = match done {
            Some(d) if fresh(&d) && d.request == request => {
                // What its commit couldn't hold yet is read from the ledger, as it was for the first answer.
                let answer = with_edges(app, caller, d.answer, UpTo::Then(d.at)).await?;
                return Ok(Turn::Replay(replay(d.status, &answer)));
            }
            Some(d) if fresh(&d) => {
                let why = "This Idempotency-Key was used with another body.";
                return Err(Problem::new(Code::IdempotencyMismatch, why));
            }
            Some(_) => {
                let row = Key::Idempotency(by.clone(), route.clone(), key.clone());
                app.archive.version(caller.org(), &row).await?
            }
            None => 0,
        };
        Ok(Turn::Run(Once { key: Some((name, request, expected)), _running: Some(running) }))
    }
}

impl Once {
    /// Of a request that has no key, or whose method is idempotent by itself.
    #[must_use]
    pub const fn none() -> Self {
        Self { key: None, _running: None }
    }

    /// What belongs into the effect's change set: that this request was answered so. None without a key.
    #[must_use]
    pub fn row(&self, status: StatusCode, answer: &Value, at: Timestamp) -> Option<Write> {
        let ((by, route, key), request, expected) = self.key.as_ref()?;
        let done = Done { request: *request, status: status.as_u16(), answer: answer.clone(), at };
        let row = Row::Idempotency(by.clone(), route.clone(), key.clone(), done);
        Some(Write { expected: *expected, row })
    }
}

fn replay(status: u16, answer: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = match answer {
        Value::Null => status.into_response(),
        answer => (status, Json(answer)).into_response(),
    };
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}
