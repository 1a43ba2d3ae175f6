//! A foreign agent that answers each call as its test says, however wrong that is, and keeps what it was asked. Written
//! with bytes and literal JSON, so that it shares no fault with what it tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hard::rig::{clock, until};

/// One request to the agent's interface.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) method: String,
    pub(super) params: Value,
    /// How many of this method came before.
    pub(super) nth: usize,
    pub(super) came: Instant,
}

/// What it answers.
pub(super) enum Says {
    /// A JSON-RPC result.
    Result(Value),
    /// A JSON-RPC error of this code.
    Error(i64),
    /// This as the whole body, its `id` set where it is an object.
    Body(Value),
    /// An HTTP status and nothing else.
    Status(u16),
    /// The connection is closed without an answer.
    HangsUp,
}

/// The generation of A2A that an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    V03,
    V1,
}

/// A card with one JSON-RPC interface at this address.
pub(super) fn card(url: &str, generation: Generation, pushes: bool) -> Value {
    let mut card = json!({
        "name": "agent", "description": "d", "version": "1", "skills": [],
        "capabilities": { "pushNotifications": pushes },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    });
    match generation {
        Generation::V1 => {
            let interface = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
            card["supportedInterfaces"] = json!([interface]);
        }
        Generation::V03 => {
            card["url"] = json!(url);
            card["protocolVersion"] = json!("0.3.0");
            card["preferredTransport"] = json!("JSONRPC");
        }
    }
    card
}

/// Serves a card and answers calls, for as long as the tests run. Gives its URL.
pub(super) fn listen(
    card: impl Fn(&str) -> Value,
    answer: impl Fn(&Call) -> Says + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shared = Arc::new((card(&url), answer, Mutex::new(Vec::<String>::new())));
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let (card, answer, methods) = &*shared;
                serve(&socket, card, answer, methods);
            });
        }
    });
    url
}

fn serve(socket: &TcpStream, card: &Value, answer: &dyn Fn(&Call) -> Says, methods: &Mutex<Vec<String>>) {
    let (head, body) = heard(socket);
    if head.starts_with("GET ") {
        return say(socket, 200, &card.to_string());
    }
    let mut asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = asked["method"].as_str().unwrap_or_default().to_owned();
    let nth = {
        let mut methods = methods.lock().unwrap();
        methods.push(method.clone());
        methods.iter().filter(|m| **m == method).count() - 1
    };
    let call = Call { method, params: asked["params"].take(), nth, came: clock() };
    let mut body = match answer(&call) {
        Says::Result(result) => json!({ "jsonrpc": "2.0", "result": result }),
        Says::Error(code) => json!({ "jsonrpc": "2.0", "error": { "code": code, "message": "no" } }),
        Says::Body(body) => body,
        Says::Status(status) => return say(socket, status, "{}"),
        Says::HangsUp => return,
    };
    if body.is_object() {
        body["id"] = asked["id"].take();
    }
    say(socket, 200, &body.to_string());
}

/// A whole request: its head, and its body.
fn heard(socket: &TcpStream) -> (String, Vec<u8>) {
    let mut lines = BufReader::new(socket);
    let mut head = String::new();
    while lines.read_line(&mut head).is_ok_and(|n| n > 2) {}
    let mut length = head
        .lines()
        .filter_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.next_back().unwrap_or(0)];
    let _ = lines.read_exact(&mut body);
    (head, body)
}

fn say(mut socket: &TcpStream, status: u16, body: &str) {
    let head = format!("HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let _ = write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len());
}

/// An agent by a script, and what it was asked.
pub(super) struct Scripted {
    pub(super) url: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Scripted {
    /// With push or without, answering by the script.
    pub(super) fn start(
        generation: Generation,
        pushes: bool,
        script: impl Fn(&Call) -> Says + Send + Sync + 'static,
    ) -> Self {
        Self::with_card(move |url| card(url, generation, pushes), script)
    }

    /// With a card of its own, made for its URL.
    pub(super) fn with_card(
        card: impl Fn(&str) -> Value,
        script: impl Fn(&Call) -> Says + Send + Sync + 'static,
    ) -> Self {
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let kept = Arc::clone(&calls);
        let url = listen(card, move |call| {
            kept.lock().unwrap().push(call.clone());
            script(call)
        });
        Self { url, calls }
    }

    /// Every call so far.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls of one method, in the words of either generation.
    pub(super) fn of(&self, methods: [&str; 2]) -> Vec<Call> {
        self.calls().into_iter().filter(|c| methods.contains(&c.method.as_str())).collect()
    }

    /// The messages that it was sent, with what came along.
    pub(super) fn sends(&self) -> Vec<Value> {
        self.of(SEND).into_iter().map(|c| c.params).collect()
    }

    /// The messages that it was sent, once there are so many.
    pub(super) fn sent(&self, n: usize) -> Vec<Value> {
        until(&format!("{n} messages at the agent"), Duration::from_secs(30), || {
            Some(self.sends()).filter(|s| s.len() >= n)
        })
    }

    /// How often it was asked for a task.
    pub(super) fn looks(&self) -> usize {
        self.of(GET).len()
    }
}

/// Sending a message.
pub(super) const SEND: [&str; 2] = ["SendMessage", "message/send"];
/// Asking for a task.
pub(super) const GET: [&str; 2] = ["GetTask", "tasks/get"];

impl Call {
    pub(super) fn is(&self, methods: [&str; 2]) -> bool {
        methods.contains(&self.method.as_str())
    }
}
