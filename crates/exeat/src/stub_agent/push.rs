//! Push notifications: configurations as callers register them, and their delivery, honest or not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request, Uri, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::answer::Fault;
use super::dialect::{self, Dialect, View, put};
use super::rpc::task_id;
use super::script::{Content, Secret};
use super::world::{State, Task};
use super::{Stub, Switch, clock};

const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// Where a caller wants to be told, and in which version.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Empty until the task gives it one.
    pub(super) id: String,
    url: String,
    token: Option<String>,
    scheme: Option<String>,
    credentials: Option<String>,
    dialect: Dialect,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// If it has no address.
    pub(super) fn read(dialect: Dialect, config: &Value) -> Result<Self, Fault> {
        let text = |pointer: &str| {
            config.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned)
        };
        let url = text("/url").ok_or_else(|| Fault::Params("url of the push configuration".to_owned()))?;
        let scheme = match dialect {
            Dialect::V1 => text("/authentication/scheme"),
            Dialect::V03 => text("/authentication/schemes/0"),
        };
        Ok(Self {
            id: text("/id").unwrap_or_default(),
            url,
            token: text("/token"),
            scheme,
            credentials: text("/authentication/credentials"),
            dialect,
        })
    }

    fn written(&self, task: &str, dialect: Dialect) -> Value {
        let mut config = json!({ "id": self.id, "url": self.url });
        if let Some(token) = &self.token {
            put(&mut config, "token", json!(token));
        }
        if let Some(scheme) = &self.scheme {
            let mut authentication = match dialect {
                Dialect::V1 => json!({ "scheme": scheme }),
                Dialect::V03 => json!({ "schemes": [scheme] }),
            };
            if let Some(credentials) = &self.credentials {
                put(&mut authentication, "credentials", json!(credentials));
            }
            put(&mut config, "authentication", authentication);
        }
        match dialect {
            Dialect::V1 => {
                put(&mut config, "taskId", json!(task));
                config
            }
            Dialect::V03 => json!({ "taskId": task, "pushNotificationConfig": config }),
        }
    }
}

/// What is done with configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Set,
    Get,
    List,
    Delete,
}

/// Answers a configuration method.
///
/// # Errors
/// If push is off, or the task or configuration isn't there.
pub(super) fn configure(stub: &Stub, dialect: Dialect, act: Act, params: &Value) -> Result<Value, Fault> {
    if stub.args.push == Switch::Off {
        return Err(Fault::PushUnsupported);
    }
    let named = match (dialect, act) {
        (Dialect::V1, _) | (Dialect::V03, Act::Set) => "taskId",
        (Dialect::V03, _) => "id",
    };
    let task = task_id(params, named)?;
    let mut world = stub.world();
    let kept = world.task(task)?;
    let which = match dialect {
        Dialect::V1 => params.get("id"),
        Dialect::V03 => params.get("pushNotificationConfigId"),
    };
    let which = which.and_then(Value::as_str).filter(|id| !id.is_empty()).unwrap_or(task);
    match act {
        Act::Set => {
            let given = match dialect {
                Dialect::V1 => params,
                Dialect::V03 => params.get("pushNotificationConfig").unwrap_or(&Value::Null),
            };
            let mut config = Config::read(dialect, given)?;
            if config.id.is_empty() {
                task.clone_into(&mut config.id);
            }
            let written = config.written(task, dialect);
            kept.register(config)?;
            Ok(written)
        }
        Act::Get => match kept.configs.iter().find(|config| config.id == which) {
            Some(config) => Ok(config.written(task, dialect)),
            None => Err(Fault::TaskNotFound),
        },
        Act::List => {
            let all: Vec<_> = kept.configs.iter().map(|config| config.written(task, dialect)).collect();
            Ok(match dialect {
                Dialect::V1 => json!({ "configs": all, "nextPageToken": "" }),
                Dialect::V03 => json!(all),
            })
        }
        Act::Delete => {
            kept.configs.retain(|config| config.id != which);
            Ok(Value::Null)
        }
    }
}

/// How often a notice goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    One,
    AsOrdered,
}

/// Tells everyone who asked that a task is in a state, and waits until all were told or given up.
pub(super) async fn deliver(stub: &Arc<Stub>, task: &str, state: State, copies: Copies) {
    let Ok(mut told) = stub.world().task(task).map(|task| task.said_to_be(state)) else { return };
    if told.push.content == Content::OtherTask {
        told.id = clock::fresh_id();
        told.context = clock::fresh_id();
    }
    let copies = if copies == Copies::One { 1 } else { told.push.copies };
    let mut posts = tokio::task::JoinSet::new();
    for config in &told.configs {
        let body = Bytes::from(body(&told, config.dialect).to_string());
        for _ in 0..copies {
            let (stub, config, body) = (Arc::clone(stub), config.clone(), body.clone());
            let (task, secret) = (told.id.clone(), told.push.secret);
            posts.spawn(async move {
                let outcome = persist(&config, secret, body).await;
                let (status, error) = match outcome {
                    Ok(status) => (Some(status), None),
                    Err(error) => (None, Some(error)),
                };
                stub.log.line(&json!({
                    "event": "push", "at": clock::now(), "url": config.url, "task": task,
                    "state": state.word(Dialect::V03), "status": status, "error": error,
                }));
            });
        }
    }
    posts.join_all().await;
}

fn body(task: &Task, dialect: Dialect) -> Value {
    match dialect {
        Dialect::V1 if task.state == State::Working => dialect::status_update(task),
        Dialect::V1 => json!({ "task": dialect::task(task, dialect, View::PUSHED) }),
        Dialect::V03 => dialect::task(task, dialect, View::PUSHED),
    }
}

async fn persist(config: &Config, secret: Secret, body: Bytes) -> Result<u16, String> {
    let (mut pause, mut left) = (FIRST_PAUSE, TRIES);
    loop {
        left -= 1;
        let posted = tokio::time::timeout(TIMEOUT, post(config, secret, body.clone())).await;
        let outcome = posted.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        if left == 0 || outcome.as_ref().is_ok_and(|status| *status < 500) {
            return outcome;
        }
        tokio::time::sleep(pause).await;
        pause *= 4;
    }
}

async fn post(config: &Config, secret: Secret, body: Bytes) -> Result<u16, String> {
    let uri: Uri = config.url.parse().map_err(|e| format!("url: {e}"))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("only http:// is pushed to".to_owned());
    };
    let host = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().unwrap_or(80);
    #[expect(
        clippy::disallowed_methods,
        reason = "the foreign side dials by itself; nothing of Exeat's leaves"
    )]
    let stream = TcpStream::connect((host, port)).await.map_err(|e| e.to_string())?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
    let request = request(config, secret, &uri, body)?;
    let sending = sender.send_request(request);
    tokio::pin!(sending, connection);
    // The connection is driven here, and ends with the answer's head: its body is nobody's business.
    let answer = tokio::select! {
        answer = &mut sending => answer,
        ended = &mut connection => match ended {
            Ok(()) => sending.await,
            Err(error) => Err(error),
        },
    };
    answer.map(|response| response.status().as_u16()).map_err(|e| e.to_string())
}

fn request(config: &Config, secret: Secret, uri: &Uri, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let media = match config.dialect {
        Dialect::V1 => "application/a2a+json",
        Dialect::V03 => "application/json",
    };
    let carried = |text: &str| match secret {
        Secret::Right => text.to_owned(),
        Secret::Wrong => altered(text),
    };
    let mut request = Request::builder().method(Method::POST).uri(path).header(header::CONTENT_TYPE, media);
    request = request.header(header::HOST, uri.authority().map_or("", |a| a.as_str()));
    if let Some(token) = &config.token {
        request = request.header(TOKEN_HEADER, carried(token));
    }
    if let (Some(scheme), Some(credentials)) = (&config.scheme, &config.credentials) {
        request = request.header(header::AUTHORIZATION, format!("{scheme} {}", carried(credentials)));
    }
    request.body(Full::new(body)).map_err(|e| e.to_string())
}

/// The secret with one character changed, so that only a real check finds out.
fn altered(secret: &str) -> String {
    let mut letters: Vec<char> = secret.chars().collect();
    // Not the last one: its low bits may mean nothing in base64.
    let position = letters.len().saturating_sub(10);
    if let Some(letter) = letters.get_mut(position) {
        *letter = if *letter == 'A' { 'B' } else { 'A' };
    }
    letters.into_iter().collect()
}
