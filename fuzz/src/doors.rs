//! Bodies and questions at every door that takes any, at the whole server without sockets.

use std::cell::RefCell;
use std::sync::LazyLock;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::rig::{Rig, get};

/// A server is made anew after so many requests, so that what they leave doesn't grow.
const REQUESTS: u32 = 500;

/// Method and path of each operation that the server documents and that takes a body, with ids that lead somewhere.
static DOORS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let document = exeat_server::openapi::document();
    let paths = document["paths"].as_object().cloned().unwrap_or_default();
    let mut doors = Vec::new();
    for (path, operations) in paths {
        let path = path
            .replace("{key}", "auditor")
            .replace("{name}", "writer")
            .replace("{scope}", "org")
            .replace("{callback_id}", "AAAAAAAAAAAAAAAAAAAAAA")
            .replace("{id}", "01980000-0000-7000-8000-000000000000");
        for (name, method) in [("post", "POST"), ("put", "PUT")] {
            if operations.get(name).is_some() {
                doors.push((method, path.clone()));
            }
        }
    }
    doors
});

thread_local! {
    static SERVER: RefCell<Option<(Runtime, Rig, u32)>> = const { RefCell::new(None) };
}

/// The first byte picks the door; a first line that starts with `?` is the query; the rest is the body. Whatever it is,
/// the answer is no fault of the server's, and a refusal says what it is.
pub fn doors(bytes: &[u8]) {
    let Some((first, mut body)) = bytes.split_first() else { return };
    let (method, path) = &DOORS[usize::from(*first) % DOORS.len()];
    let mut path = path.clone();
    if body.first() == Some(&b'?') {
        let end = body.iter().position(|b| *b == b'\n').unwrap_or(body.len());
        let (query, rest) = body.split_at(end);
        if query.iter().all(|b| b.is_ascii_graphic()) {
            path.push_str(&String::from_utf8_lossy(query));
        }
        body = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    if path.parse::<http::Uri>().is_err() {
        return;
    }
    SERVER.with_borrow_mut(|server| {
        if server.as_ref().is_none_or(|(.., asked)| *asked >= REQUESTS) {
            *server = Some(started());
        }
        let Some((runtime, rig, asked)) = server else { return };
        *asked += 1;
        let call = get(path.as_str()).method(method).key(&rig.admin).raw(body);
        let answer = runtime.block_on(rig.call(call.with("content-type", "application/json")));
        let status = answer.status.as_u16();
        assert_ne!(status, 500, "{method} {path}");
        if status >= 400 && !path.contains("/callback/") {
            let problem: Value = answer.json();
            assert!(problem["code"].is_string() && problem["next"].is_string(), "{problem}");
        }
    });
}

fn started() -> (Runtime, Rig, u32) {
    // Time goes on by itself where a door waits.
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|e| panic!("a runtime: {e}"));
    let rig = runtime.block_on(Rig::new());
    (runtime, rig, 0)
}
