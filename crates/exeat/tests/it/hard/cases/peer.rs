//! A foreign agent of our own that does by itself nothing at all: it takes messages, and a test says what it shows and
//! pushes. Written with bytes and literal JSON, so that it shares no fault with what it tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::script::{Call, Generation, Says, card, listen};
use crate::hard::http::{Answer, Request};
use crate::hard::rig::until;

/// What the agent knows.
#[derive(Default)]
struct State {
    /// Tasks as it shows them, by id.
    tasks: BTreeMap<String, Value>,
    /// Where to push each, and with which token.
    doors: BTreeMap<String, (String, String)>,
    /// The conversation of each.
    contexts: BTreeMap<String, Value>,
    /// How often each was asked for.
    gets: BTreeMap<String, u32>,
    /// Are answers to messages held back?
    is_holding: bool,
}

/// The agent.
pub(super) struct Agent {
    pub(super) url: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Agent {
    /// Listening, with push.
    pub(super) fn start() -> Self {
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let own = Arc::clone(&state);
        let url = listen(|url| card(url, Generation::V1, true), move |call| called(call, &own));
        Self { url, state }
    }

    /// Holds back its answers to messages from now on; tasks are made all the same.
    pub(super) fn hold(&self) {
        self.state.0.lock().unwrap().is_holding = true;
    }

    /// Gives what it held back.
    pub(super) fn release(&self) {
        self.state.0.lock().unwrap().is_holding = false;
        self.state.1.notify_all();
    }

    /// The id of its `n`th task, once there is one.
    pub(super) fn task(&self, n: usize) -> String {
        until("a message at the agent", Duration::from_secs(30), || {
            self.state.0.lock().unwrap().tasks.keys().nth(n - 1).cloned()
        })
    }

    /// Shows a task in this state from now on, with this text as its artifact.
    pub(super) fn shows(&self, task: &str, state: &str, text: &str) {
        let mut shown = shown(task, state, text);
        let mut known = self.state.0.lock().unwrap();
        shown["contextId"] = known.contexts[task].clone();
        known.tasks.insert(task.to_owned(), shown);
    }

    /// How often it was asked for a task.
    pub(super) fn gets(&self, task: &str) -> u32 {
        self.state.0.lock().unwrap().gets.get(task).copied().unwrap_or(0)
    }

    /// Where it was told to push a task, and with which token.
    pub(super) fn door(&self, task: &str) -> (String, String) {
        self.state.0.lock().unwrap().doors[task].clone()
    }

    /// A push of a task, to be sent or changed.
    pub(super) fn push(&self, task: &str, body: &Value) -> Request {
        self.bare_push(task, body).header("x-a2a-notification-token", &self.door(task).1)
    }

    /// The same without any credential.
    pub(super) fn bare_push(&self, task: &str, body: &Value) -> Request {
        let (url, _) = self.door(task);
        let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        let at: SocketAddr = host.parse().unwrap();
        Request::new(at, "POST", &format!("/{path}")).body("application/a2a+json", body.to_string())
    }

    /// Pushes a task in this state, as a whole.
    pub(super) fn pushes(&self, task: &str, state: &str, text: &str) -> Answer {
        self.push(task, &json!({ "task": shown(task, state, text) })).must()
    }
}

/// A task of the 1.0 generation.
pub(super) fn shown(task: &str, state: &str, text: &str) -> Value {
    json!({
        "id": task, "contextId": format!("ctx-{task}"), "status": { "state": format!("TASK_STATE_{state}") },
        "artifacts": [{ "artifactId": "a1", "parts": [{ "text": text }] }],
    })
}

fn called(call: &Call, (state, changed): &(Mutex<State>, Condvar)) -> Says {
    let mut state = state.lock().unwrap();
    if call.method == "GetTask" {
        let id = call.params["id"].as_str().unwrap_or_default().to_owned();
        *state.gets.entry(id.clone()).or_default() += 1;
        return Says::Result(state.tasks.get(&id).cloned().unwrap_or_default());
    }
    if call.method != "SendMessage" {
        return Says::Result(json!({ "tasks": [] }));
    }
    let task = format!("srv-{:03}", state.tasks.len() + 1);
    let config = &call.params["configuration"]["taskPushNotificationConfig"];
    let text = |member: &str| config[member].as_str().unwrap_or_default().to_owned();
    state.doors.insert(task.clone(), (text("url"), text("token")));
    let mut made = shown(&task, "WORKING", "");
    // As the specification has it, the caller's context is kept.
    made["contextId"] = call.params["message"]["contextId"].clone();
    state.contexts.insert(task.clone(), made["contextId"].clone());
    state.tasks.insert(task, made.clone());
    let _open = changed.wait_while(state, |s| s.is_holding).unwrap();
    Says::Result(json!({ "task": made }))
}
