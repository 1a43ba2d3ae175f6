//! What changes when a person sits there: the command on a real pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::exeat::command;
use crate::server::{Reply, Seen, Server};

const ID: &str = "0197f3a0-0000-7000-8000-000000000001";

/// Runs the command on a terminal; types `answer` once `prompt` is on the screen. Gives the screen.
fn on_a_terminal(mut command: Command, prompt: &str, answer: &str) -> (i32, String) {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let side = || Stdio::from(line.try_clone().unwrap());
    let mut child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    drop((command, line));
    let mut person = File::from(person);
    let mut screen = Vec::new();
    let mut piece = [0; 4096];
    let mut answered = answer.is_empty();
    // A terminal whose other side is closed reads as an error.
    while let Ok(n @ 1..) = person.read(&mut piece) {
        screen.extend_from_slice(&piece[..n]);
        if !answered && String::from_utf8_lossy(&screen).contains(prompt) {
            answered = true;
            person.write_all(answer.as_bytes()).unwrap();
        }
    }
    (child.wait().unwrap().code().unwrap(), String::from_utf8(screen).unwrap())
}

fn approvals() -> Server {
    Server::start(|r: &Seen| {
        let status = if r.line.starts_with("POST") { "approved" } else { "pending" };
        let content = format!("{{\"parts\":[{{\"text\":\"{}\u{200b}\"}}]}}", "x".repeat(5_000));
        Reply::Json(
            200,
            json!({"approval_id": ID, "status": status, "digest": "sha256:dd", "content": content,
                "payload": {"text": "pay \u{1b}[2J"}}),
        )
    })
}

#[test]
fn a_person_is_shown_the_whole_content_and_asked() {
    for (answer, code, posts) in [("y\n", 0, 1), ("n\n", 3, 0), ("\n", 3, 0)] {
        let server = approvals();
        let approve = command(&server.url, &["approval", "approve", ID]);
        let (got, screen) = on_a_terminal(approve, "[y/N]", answer);
        assert_eq!((got, server.seen("POST").len()), (code, posts), "{answer:?}: {screen}");
        assert!(screen.contains(&format!("{}\\u{{200B}}", "x".repeat(5_000))), "the end of it is shown");
        assert!(screen.contains("pay \\u{001B}[2J") && !screen.contains("\u{1b}[2J"), "{screen}");
    }
}

#[test]
fn text_of_others_moves_no_cursor_and_no_color_is_heeded() {
    let task = |r: &Seen| {
        let data =
            json!({"at": "2026-01-02T03:04:05Z", "task_id": ID, "status": "completed", "reason": null});
        match r.line.as_str() {
            l if l.ends_with("/events") => crate::server::events(1, &[("task", data)]),
            l if l.contains("/tasks?") => Reply::Json(
                200,
                json!({"items": [{"task_id": ID, "status": "failed"}], "next_cursor": Value::Null}),
            ),
            _ => Reply::Json(
                200,
                json!({"task_id": ID, "status": "completed", "output": {"text": "a\u{1b}[31m\u{202e}b"}}),
            ),
        }
    };
    let server = Server::start(task);
    let (code, screen) = on_a_terminal(command(&server.url, &["delegate", "agent:a", "x", "--wait"]), "", "");
    assert_eq!(code, 0);
    assert!(screen.ends_with("a\\u{001B}[31m\\u{202E}b\r\n"), "{screen:?}");
    let list = || command(&server.url, &["task", "list"]);
    let (_, coloured) = on_a_terminal(list(), "", "");
    assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m"), "{coloured:?}");
    let mut plain = list();
    plain.env("NO_COLOR", "1");
    let (_, plain) = on_a_terminal(plain, "", "");
    assert!(plain.contains("failed") && !plain.contains('\u{1b}'), "{plain:?}");
}
