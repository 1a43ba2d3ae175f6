//! Secrets go to the one agent that they are for, and are found nowhere else, even if that agent says them back.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::http::Request;
use super::rig::{Gateway, until};
use crate::server::{Reply, Seen, Server};

/// With all that encodings change.
const SECRET: &str = r#"s3cret/+~"q\uote%41&0123456789abcdef"#;
const OTHER: &str = "0ther-s3cret-in-a-header-0123456789";

/// A foreign agent that says whatever it was told, in every way.
struct Parrot {
    server: Server,
    /// Callback URL and token of each send.
    told: Arc<Mutex<Vec<(String, String)>>>,
}

impl Parrot {
    fn start() -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        Self { server: Server::start(move |r| answer(r, &log)), told }
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

fn lightly_percent(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// A secret in every dress.
fn dressed(secret: &str) -> Vec<String> {
    vec![
        secret.to_owned(),
        json!(secret).to_string(),
        percent(secret),
        lightly_percent(secret),
        secret.bytes().map(|b| format!("{b:02x}")).collect(),
        STANDARD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
    ]
}

fn answer(r: &Seen, told: &Mutex<Vec<(String, String)>>) -> Reply {
    let (authorization, header) = (r.header("authorization").to_owned(), r.header("x-api-key").to_owned());
    let host = r.header("host");
    if r.line.starts_with("GET") {
        return Reply::Json(
            200,
            json!({
                "name": format!("parrot {authorization}"), "description": "says it back", "version": "1",
                "capabilities": {"pushNotifications": true},
                "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
                "supportedInterfaces": [{"url": format!("http://{host}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            }),
        );
    }
    let body = r.json();
    let secret = authorization.strip_prefix("Bearer ").unwrap_or(&header).to_owned();
    let push = &body["params"]["configuration"]["taskPushNotificationConfig"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (url, token) = (text(&push["url"]), text(&push["token"]));
    if !url.is_empty() {
        told.lock().unwrap().push((url.clone(), token.clone()));
    }
    let how = &body["params"]["message"]["parts"][0]["text"];
    let said = [dressed(&secret), dressed(&token)].concat().join(" | ");
    let task = |state: &str, how: &Value| {
        let mut task = json!({
            "id": format!("task-{how}"), "contextId": body["params"]["message"]["contextId"],
            "status": {"state": state, "timestamp": "2026-01-01T00:00:00Z",
                "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": said}]}},
            "artifacts": [{"artifactId": format!("a {secret}"), "name": said,
                "parts": [{"text": said}, {"data": {secret.as_str(): token}}, {"raw": STANDARD.encode(&said)}]}],
        });
        if how == "name" {
            task["id"] = json!(format!("task {secret}"));
        }
        task
    };
    let result =
        |value: Value| Reply::Json(200, json!({"jsonrpc": "2.0", "id": body["id"], "result": value}));
    match (body["method"].as_str().unwrap_or_default(), how.as_str().unwrap_or_default()) {
        ("SendMessage", "result" | "name") => result(json!({"task": task("TASK_STATE_COMPLETED", how)})),
        ("SendMessage", "message") => {
            result(json!({"message": {"messageId": said, "role": "ROLE_AGENT", "parts": [{"text": said}]}}))
        }
        ("SendMessage", "fail") => result(json!({"task": task("TASK_STATE_FAILED", how)})),
        ("SendMessage", "reject") => result(json!({"task": task("TASK_STATE_REJECTED", how)})),
        ("SendMessage", "ask") => result(json!({"task": task("TASK_STATE_INPUT_REQUIRED", how)})),
        ("SendMessage", "state") => result(json!({"task": task(&said, how)})),
        ("SendMessage", "rpc") => Reply::Json(
            200,
            json!({"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32602, "message": said, "data": [{"why": said}]}}),
        ),
        ("SendMessage", "http") => Reply::Text("text/plain", said),
        ("SendMessage", "refuse") => Reply::Json(403, json!({"error": said})),
        ("SendMessage", "push") => {
            let pushed = json!({"task": task("TASK_STATE_COMPLETED", how)});
            let (to, path) = url.trim_start_matches("http://").split_once('/').unwrap();
            let request = Request::new(to.parse().unwrap(), "POST", &format!("/{path}"))
                .header("x-a2a-notification-token", &token)
                .header("authorization", &format!("Bearer {token}"))
                .json(&pushed);
            std::thread::spawn(move || assert_eq!(request.must().status, 202));
            result(json!({"task": task("TASK_STATE_WORKING", how)}))
        }
        ("GetTask", _) => result(task("TASK_STATE_COMPLETED", &json!("push"))),
        _ => Reply::Json(404, json!({"error": said})),
    }
}

/// Every file beneath a folder that holds a word.
fn files_with(folder: &Path, words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files_with(&entry.path(), words));
            continue;
        }
        // The words are ASCII, so that what isn't text beside them doesn't matter.
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
        for word in words {
            if let Some(at) = text.find(word.as_str()) {
                let around: String = text[at..].chars().take(word.len() + 60).collect();
                found.push(format!("{}: {}", entry.path().display(), around.escape_debug()));
            }
        }
    }
    found
}

#[test]
fn no_secret_is_found_anywhere_even_if_the_agent_says_it_back() {
    let parrot = Parrot::start();
    let env = [("PARROT_TOKEN", SECRET), ("PARROT_KEY", OTHER), ("EXEAT_LOG_LEVEL", "trace")];
    let gateway = Gateway::started(&env);
    gateway.agent("bearer", &parrot.server.url, &["--credential", "env:PARROT_TOKEN"]);
    gateway.agent("header", &parrot.server.url, &["--credential", "env:PARROT_KEY", "--header", "x-api-key"]);
    gateway.agent("body", &parrot.server.url, &["--credential", "env:PARROT_TOKEN", "--trust", "body"]);
    gateway.does(&["egress", "on", "--reason", "a test"]);
    let mut shown = String::new();
    for agent in ["bearer", "header", "body"] {
        for how in
            ["result", "name", "message", "fail", "reject", "ask", "state", "rpc", "http", "refuse", "push"]
        {
            let to = format!("agent:{agent}");
            let id = gateway.begin(&json!({"to": to, "input": how, "deadline": "20s"}));
            let task = until(&format!("{agent} {how}"), Duration::from_secs(40), || {
                let task = gateway.task(&id);
                let rests = task["status"] != "running" || matches!(how, "state" | "http");
                let sent = task["steps"][0]["hops"][0]["attempts"].as_array().is_some_and(|a| !a.is_empty());
                (rests && sent).then_some(task)
            });
            if matches!(how, "result" | "message" | "push") {
                assert_eq!(task["status"], "completed", "{agent} {how}: {task:#}");
            }
            shown += &task.to_string();
            for line in [
                &["task", "show", &id][..],
                &["task", "show", &id, "--json"],
                &["delegate", &to, how, "--timeout", "2s"],
            ] {
                let got = gateway.cli(line);
                shown += &(got.out + &got.err);
            }
            shown += &gateway
                .request("GET", &format!("/api/v1/tasks/{id}/events"))
                .key(&gateway.admin())
                .must_soon();
        }
    }
    for line in [
        &["agent", "probe", "bearer", "--json"][..],
        &["agent", "probe", "header"],
        &["agent", "probe", "body"],
        &["key", "rotate-callback", "--json"],
        &["doctor", "--json"],
    ] {
        let got = gateway.cli(line);
        shown += &(got.out + &got.err);
    }
    assert!(shown.contains("parrot Bearer [secret]"), "the card was looked at");
    shown += &gateway.request("GET", "/metrics").key(&gateway.admin()).must_soon();
    let sent = parrot.server.seen("POST");
    let carried = |name: &str, value: &str| sent.iter().any(|r| r.header(name) == value);
    assert!(
        carried("authorization", &format!("Bearer {SECRET}")) && carried("x-api-key", OTHER),
        "they were sent"
    );
    let tokens: Vec<String> = parrot.told.lock().unwrap().iter().map(|(_, token)| token.clone()).collect();
    assert!(tokens.len() > 20 && tokens.iter().all(|t| t.starts_with("ec1.")), "{tokens:?}");
    let mut words = [dressed(SECRET), dressed(OTHER)].concat();
    words.extend(tokens.iter().flat_map(|t| dressed(t)));
    words.sort();
    words.dedup();
    let export = gateway.export().0;
    shown += &export;
    shown += &serde_json::to_string(&gateway.all("/agents")).unwrap();
    shown += &serde_json::to_string(&gateway.all("/dead-letters")).unwrap();
    for word in &words {
        let at = shown.find(word.as_str());
        let around = at.map(|at| shown[..at + word.len()].chars().rev().take(300).collect::<Vec<_>>());
        let around = around.map(|a| a.into_iter().rev().collect::<String>());
        assert_eq!(around, None, "{word} is shown");
    }
    let admin = gateway.admin();
    let ours: Vec<String> = [admin.rsplit('_').next().unwrap().to_owned()].into();
    let data = gateway.data();
    let folder = data.parent().unwrap();
    assert_eq!(files_with(folder, &words), Vec::<String>::new(), "in a file");
    let keyed = files_with(folder, &ours);
    assert!(
        keyed.iter().all(|f| f.contains("/admin.key: ")),
        "an API key in a file that isn't its own: {keyed:#?}"
    );
}
