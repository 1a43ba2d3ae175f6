//! A foreign agent of our own that does by itself nothing at all: it takes messages, and a test says what it shows and
//! pushes. Written with bytes and literal JSON, so that it shares no fault with what it tests.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::rig::until;

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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let (own, at) = (Arc::clone(&state), url.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (state, at) = (Arc::clone(&own), at.clone());
                std::thread::spawn(move || serve(&socket, &state, &at));
            }
        });
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

fn serve(socket: &TcpStream, state: &(Mutex<State>, Condvar), at: &str) {
    let mut lines = BufReader::new(socket);
    let mut head = String::new();
    while lines.read_line(&mut head).is_ok_and(|n| n > 2) {}
    let length = head
        .lines()
        .filter_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.last().unwrap_or(0)];
    let _ = lines.read_exact(&mut body);
    let answer = if head.starts_with("GET ") {
        card(at)
    } else {
        let call: Value = serde_json::from_slice(&body).unwrap_or_default();
        json!({ "jsonrpc": "2.0", "id": call["id"], "result": called(&call, state) })
    };
    let answer = answer.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let mut socket = socket;
    let _ = write!(socket, "{head}content-length: {}\r\n\r\n{answer}", answer.len());
}

fn card(at: &str) -> Value {
    json!({
        "name": "agent", "description": "d", "version": "1", "skills": [],
        "capabilities": { "pushNotifications": true },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "supportedInterfaces": [{ "url": at, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    })
}

fn called(call: &Value, (state, changed): &(Mutex<State>, Condvar)) -> Value {
    let mut state = state.lock().unwrap();
    if call["method"] == "GetTask" {
        let id = call["params"]["id"].as_str().unwrap_or_default().to_owned();
        *state.gets.entry(id.clone()).or_default() += 1;
        return state.tasks.get(&id).cloned().unwrap_or_default();
    }
    if call["method"] != "SendMessage" {
        return json!({ "tasks": [] });
    }
    let task = format!("srv-{:03}", state.tasks.len() + 1);
    let config = &call["params"]["configuration"]["taskPushNotificationConfig"];
    let text = |member: &str| config[member].as_str().unwrap_or_default().to_owned();
    state.doors.insert(task.clone(), (text("url"), text("token")));
    let mut made = shown(&task, "WORKING", "");
    // As the specification has it, the caller's context is kept.
    made["contextId"] = call["params"]["message"]["contextId"].clone();
    state.contexts.insert(task.clone(), made["contextId"].clone());
    state.tasks.insert(task, made.clone());
    let _open = changed.wait_while(state, |s| s.is_holding).unwrap();
    json!({ "task": made })
}
