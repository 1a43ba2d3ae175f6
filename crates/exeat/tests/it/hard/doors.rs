//! Everything bad, at every door: the right status and code, as a problem; and the server lives on.

use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::rig::{Gateway, Stub};

/// A uuid that nothing has.
const NOBODY: &str = "01890000-0000-7000-8000-000000000000";
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// A problem, whole, of this status.
#[track_caller]
fn is_problem(answer: &Answer, about: &str) -> Value {
    let about = format!("{about}: {} {}", answer.status, answer.text());
    assert!((400..500).contains(&answer.status), "{about}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{about}");
    let problem = answer.json();
    assert_eq!(problem["status"], json!(answer.status), "{about}");
    assert_eq!(
        problem["type"],
        json!(format!("urn:exeat:problem:{}", problem["code"].as_str().unwrap())),
        "{about}"
    );
    for member in ["title", "detail", "next"] {
        assert!(problem[member].as_str().is_some_and(|t| !t.is_empty()), "{about}");
    }
    problem
}

struct Door {
    method: String,
    path: String,
    needs_key: bool,
    takes_body: bool,
    media: String,
}

/// All doors that the server says it has, with names in their paths.
fn doors(gateway: &Gateway) -> Vec<Door> {
    let description = gateway.request("GET", "/openapi.json").must().good();
    let mut doors = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = match path.as_str() {
                p if p.contains("{key}") => p.replace("{key}", "nobody"),
                p if p.contains("{name}") => p.replace("{name}", "nothing"),
                p if p.contains("{scope}") => p.replace("{scope}", "agent:nobody"),
                p if p.contains("/keys/{id}") => p.replace("{id}", "0123456789abcdef"),
                p => p.replace("{id}", NOBODY).replace("{callback_id}", "AAAAAAAAAAAAAAAAAAAAAA"),
            };
            assert!(!path.contains('{'), "{path}");
            let content = operation["requestBody"]["content"].as_object();
            doors.push(Door {
                method: method.to_uppercase(),
                needs_key: operation["security"].as_array().is_some_and(|s| !s.is_empty()),
                takes_body: content.is_some(),
                media: content.and_then(|c| c.keys().next()).cloned().unwrap_or_default(),
                path,
            });
        }
    }
    assert!(doors.len() > 45, "{}", doors.len());
    doors
}

fn key(gateway: &Gateway, body: &Value) -> String {
    gateway.post("/keys", body).good()["key"].as_str().unwrap().to_owned()
}

/// A key that may do everything but sign for two.
fn everything(gateway: &Gateway) -> String {
    let scopes = ["admin", "operator", "approver", "requester", "worker", "viewer"];
    key(
        gateway,
        &json!({"name": "all", "scopes": scopes, "worker_roles": ["writer"], "approver_roles": ["ops"]}),
    )
}

#[test]
fn every_door_refuses_who_has_no_key_or_a_bad_one() {
    let gateway = Gateway::started(&[]);
    let admin = gateway.admin();
    let forged = format!("{}A", &admin[..admin.len() - 1]);
    let swapped = format!("{}B", &admin[..admin.len() - 1]);
    let forged = if forged == admin { swapped } else { forged };
    let revoked = key(&gateway, &json!({"name": "gone", "scopes": ["viewer"]}));
    let id = revoked.split('_').nth(1).unwrap();
    assert_eq!(gateway.request("DELETE", &format!("/api/v1/keys/{id}")).key(&admin).must().status, 204);
    let bad: Vec<Option<String>> = [None]
        .into_iter()
        .chain(
            ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer exk_", "Bearer x y", "Bearer \u{e9}"]
                .map(|t| Some(t.to_owned())),
        )
        .chain([Some(format!("Bearer {forged}")), Some(format!("Bearer {revoked}")), Some(admin.clone())])
        .collect();
    for door in doors(&gateway).iter().filter(|d| d.needs_key) {
        for authorization in &bad {
            let mut request = gateway.request(&door.method, &door.path).json(&json!({}));
            if let Some(text) = authorization {
                request = request.header("authorization", text);
            }
            let answer = request.must();
            let about = format!("{} {} as {authorization:?}", door.method, door.path);
            assert_eq!(answer.status, 401, "{about}: {}", answer.text());
            assert_eq!(is_problem(&answer, &about)["code"], "unauthenticated");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
        let twice = gateway.request(&door.method, &door.path).key(&admin).key(&admin).must();
        assert_eq!(twice.status, 401, "{} {}: two keys", door.method, door.path);
    }
    gateway.is_well();
}

/// What no door can take as a body, and what is said of it where one is taken.
fn junk() -> Vec<(&'static str, Vec<u8>)> {
    let deep = format!("{{\"input\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let wide = format!("{{\"nope\":\"{}\"}}", "x".repeat(9 << 20));
    vec![
        ("broken", b"{\"a\":".to_vec()),
        ("not text", vec![0xff, 0xfe, 0x00, 0x80]),
        ("a list", b"[]".to_vec()),
        ("a word", b"null".to_vec()),
        ("a number", b"1e999".to_vec()),
        ("unknown members", b"{\"nope\":1,\"\\u0000\":2}".to_vec()),
        ("twice", b"{\"nope\":1,\"nope\":1}".to_vec()),
        ("two values", b"{} {}".to_vec()),
        ("half a surrogate", b"{\"nope\":\"\\ud800\"}".to_vec()),
        ("deep", deep.into_bytes()),
        ("large", wide.into_bytes()),
    ]
}

#[test]
fn every_door_refuses_junk_and_the_server_lives_on() {
    let gateway = Gateway::started(&[]);
    let key = everything(&gateway);
    let doors = doors(&gateway);
    for door in doors.iter().filter(|d| d.takes_body && d.needs_key) {
        for (what, body) in junk() {
            let request = gateway.request(&door.method, &door.path).key(&key).header("if-none-match", "*");
            let answer = request.body(&door.media, body).must();
            let about = format!("{} {}: {what}", door.method, door.path);
            // A check answers with what is wrong.
            if door.path.ends_with("/policy/check") && answer.status == 200 {
                assert_eq!(answer.json()["ok"], json!(false), "{about}");
                continue;
            }
            is_problem(&answer, &about);
        }
        let request = gateway.request(&door.method, &door.path).key(&key).header("if-none-match", "*");
        if door.path == "/api/v1/orgs" {
            // Another scope's; who hasn't it learns nothing else.
            continue;
        }
        let strange = request.body("image/png", "{}").must();
        assert_eq!(strange.status, 415, "{} {}: {}", door.method, door.path, strange.text());
        is_problem(&strange, &door.path);
    }
    for door in &doors {
        for query in [
            "?nope=1",
            "?limit=0",
            "?limit=201",
            "?limit=x",
            "?cursor=%00",
            "?cursor=!",
            "?limit=1&limit=2",
            "?%ff=%ff",
        ] {
            let answer = gateway.request(&door.method, &format!("{}{query}", door.path)).key(&key).must();
            let about = format!("{} {}{query}: {} {}", door.method, door.path, answer.status, answer.text());
            assert!(answer.status < 500, "{about}");
        }
    }
    gateway.is_well();
}

#[test]
fn every_path_refuses_other_methods_and_ids_that_are_none() {
    let gateway = Gateway::started(&[]);
    let key = everything(&gateway);
    let doors = doors(&gateway);
    for door in &doors {
        for method in METHODS {
            if doors.iter().any(|d| d.path == door.path && d.method == method) {
                continue;
            }
            let answer = gateway.request(method, &door.path).key(&key).must();
            let about = format!("{method} {}", door.path);
            if door.path.contains("/callback/") {
                assert_eq!(answer.status, 405, "{about}");
                continue;
            }
            assert_eq!(is_problem(&answer, &about)["code"], "method_not_allowed", "{about}");
            assert_eq!(answer.status, 405, "{about}");
        }
    }
    for path in [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/tasks",
        "/api/v1/tasks/",
        "/api/v1/nothing",
        "//api/v1/tasks",
        "/api/v1/tasks/../keys",
    ] {
        let answer = gateway.request("GET", path).key(&key).must();
        assert_eq!((answer.status, &is_problem(&answer, path)["code"]), (404, &json!("not_found")), "{path}");
    }
    let ids = [
        "x",
        "0",
        NOBODY,
        "01890000-0000-4000-8000-000000000000",
        "%00",
        "%ff",
        "..%2f..%2fkeys",
        "a%20b",
        &"a".repeat(3_000),
    ];
    for family in ["tasks", "approvals", "dead-letters", "agents", "workflows"] {
        for id in ids {
            let answer = gateway.request("GET", &format!("/api/v1/{family}/{id}")).key(&key).must();
            assert_eq!(answer.status, 404, "{family}/{id}: {}", answer.text());
            is_problem(&answer, id);
        }
    }
    gateway.is_well();
}

/// A case: method, path, body, and what must come.
type Case = (&'static str, &'static str, Value, u16, &'static str);

#[test]
fn what_is_wrong_with_a_request_is_named() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::with_agent(&[], "there", &stub.url, &[]);
    let task = gateway.begin(&json!({"to": "agent:there", "input": "done"}));
    gateway.ended(&task);
    let all = everything(&gateway);
    let deep = (0..80).fold(json!(1), |inner, _| json!([inner]));
    let many: Vec<Value> = (0..300).map(|n| json!({"text": n.to_string()})).collect();
    let cases: Vec<Case> = vec![
        ("POST", "/tasks", json!({}), 422, "invalid"),
        ("POST", "/tasks", json!({"input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "workflow": "w", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "urgent": true}), 422, "unknown_member"),
        ("POST", "/tasks", json!({"to": "there", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "https://evil.example", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:UPPER", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": 5, "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:nobody", "input": "x"}), 422, "unknown_destination"),
        ("POST", "/tasks", json!({"workflow": "nothing", "input": "x"}), 404, "not_found"),
        ("POST", "/tasks", json!({"workflow": "nothing@0", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "label": "secret"}), 422, "bad_label"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "label": "public"}), 422, "bad_label"),
        (
            "POST",
            "/tasks",
            json!({"to": "agent:there", "input": "x", "label": {"level": "internal", "tag": []}}),
            422,
            "unknown_member",
        ),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "label": 7}), 422, "bad_label"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "deadline": "soon"}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "deadline": -1}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": "x", "budget_microusd": -1}), 422, "invalid"),
        (
            "POST",
            "/tasks",
            json!({"to": "agent:there", "input": "x", "budget_microusd": 1.5}),
            422,
            "invalid",
        ),
        ("POST", "/tasks", json!({"to": "agent:there", "input": {"parts": []}}), 422, "invalid"),
        (
            "POST",
            "/tasks",
            json!({"to": "agent:there", "input": {"parts": [{"text": "a", "url": "b"}]}}),
            422,
            "invalid",
        ),
        ("POST", "/tasks", json!({"to": "agent:there", "input": {"parts": [{"raw": "%"}]}}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": {"parts": many}}), 422, "invalid"),
        ("POST", "/tasks", json!({"to": "agent:there", "input": {"data": deep}}), 422, "invalid"),
        (
            "POST",
            "/tasks",
            json!({"to": "agent:there", "input": {"data": 9_007_199_254_740_993_u64}}),
            422,
            "invalid",
        ),
        (
            "POST",
            "/tasks",
            json!({"to": "agent:there", "input": "x".repeat(1_100_000)}),
            413,
            "payload_too_large",
        ),
        ("POST", "/tasks/TASK/cancel", json!({}), 409, "task_ended"),
        ("POST", "/tasks/TASK/cancel", json!({"reason": 1}), 422, "invalid"),
        ("POST", "/tasks/TASK/answer", json!({"question_id": "x", "input": "y"}), 422, "invalid"),
        ("POST", "/tasks/NOBODY/cancel", json!({}), 404, "not_found"),
        ("GET", "/tasks?status=done", Value::Null, 422, "invalid"),
        ("GET", "/tasks?due_before=today", Value::Null, 422, "invalid"),
        ("GET", "/tasks?nope=1", Value::Null, 422, "unknown_member"),
        ("GET", "/tasks?limit=0", Value::Null, 422, "invalid"),
        ("GET", "/tasks?limit=201", Value::Null, 422, "invalid"),
        ("GET", "/tasks?cursor=!", Value::Null, 400, "bad_cursor"),
        ("GET", "/agents?cursor=!", Value::Null, 400, "bad_cursor"),
        ("GET", "/ledger?cursor=!", Value::Null, 400, "bad_cursor"),
        ("GET", "/ledger?kind=nope", Value::Null, 422, "invalid"),
        ("GET", "/ledger?task=x", Value::Null, 422, "invalid"),
        ("GET", "/approvals?status=nope", Value::Null, 422, "invalid"),
        ("GET", "/costs?by=colour", Value::Null, 422, "invalid"),
        ("GET", "/workflows/nothing?version=x", Value::Null, 422, "invalid"),
        (
            "POST",
            "/approvals/NOBODY/approve",
            json!({"digest": format!("sha256:{}", "0".repeat(64))}),
            404,
            "not_found",
        ),
        ("POST", "/approvals/NOBODY/approve", json!({"digest": "yes"}), 404, "not_found"),
        ("POST", "/approvals/NOBODY/deny", json!({}), 422, "invalid"),
        ("POST", "/leases", json!({"role": "writer", "worker": "w", "wait_s": 31}), 422, "invalid"),
        ("POST", "/leases", json!({"role": "writer", "worker": "w", "max": 0}), 422, "invalid"),
        ("POST", "/leases", json!({"role": "Writer", "worker": "w"}), 422, "invalid"),
        ("POST", "/leases", json!({"role": "writer", "worker": "a\nb"}), 422, "invalid"),
        ("POST", "/leases", json!({"role": "reader", "worker": "w"}), 403, "role_missing"),
        ("POST", "/leases/NOBODY/complete", json!({"output": 1}), 404, "not_found"),
        ("POST", "/leases/NOBODY/extend", json!({"by_s": 0}), 422, "invalid"),
        (
            "POST",
            "/leases/NOBODY/suspend",
            json!({"continuation": 1, "delegations": [{"id": "q"}]}),
            422,
            "invalid",
        ),
        ("PUT", "/agents/nobody", json!({"url": "ftp://x", "ceiling": "internal"}), 422, "invalid"),
        (
            "PUT",
            "/agents/nobody",
            json!({"url": "https://u:p@x.example", "ceiling": "internal"}),
            422,
            "invalid",
        ),
        ("PUT", "/agents/nobody", json!({"url": "https://x.example", "ceiling": "secret"}), 422, "bad_label"),
        ("PUT", "/agents/nobody", json!({"url": "https://x.example"}), 422, "invalid"),
        (
            "PUT",
            "/agents/nobody",
            json!({"url": "https://x.example", "ceiling": "internal", "colour": 1}),
            422,
            "unknown_member",
        ),
        (
            "PUT",
            "/agents/nobody",
            json!({"url": "https://x.example", "ceiling": "internal", "allow_cidrs": ["10/8x"]}),
            422,
            "invalid",
        ),
        (
            "PUT",
            "/agents/nobody",
            json!({"url": "https://x.example", "ceiling": "internal", "credential": {"kind": "bearer", "from": "env:"}}),
            422,
            "invalid",
        ),
        (
            "PUT",
            "/agents/nobody",
            json!({"url": "https://x.example", "ceiling": "internal", "credential": {"kind": "bearer", "from": "file:../../keys/root-1"}}),
            422,
            "invalid",
        ),
        (
            "PUT",
            "/agents/Nobody",
            json!({"url": "https://x.example", "ceiling": "internal"}),
            404,
            "not_found",
        ),
        (
            "POST",
            "/agents/nobody/sign",
            json!({"version": 1, "posture_digest": format!("sha256:{}", "0".repeat(64))}),
            404,
            "not_found",
        ),
        (
            "POST",
            "/agents/there/sign",
            json!({"version": 1, "posture_digest": format!("sha256:{}", "0".repeat(64))}),
            409,
            "posture_changed",
        ),
        ("POST", "/agents/nobody/halt", json!({}), 404, "not_found"),
        ("PUT", "/egress", json!({"mode": "open", "reason": "x"}), 422, "invalid"),
        ("PUT", "/egress", json!({"mode": "on"}), 422, "invalid"),
        ("PUT", "/roles/writer", json!({"clearance": "nope", "may": []}), 422, "bad_label"),
        ("PUT", "/roles/writer", json!({"clearance": "internal", "may": ["everyone"]}), 422, "invalid"),
        ("PUT", "/budgets/planet", json!({"limit_microusd": 1, "period": "day"}), 404, "not_found"),
        ("PUT", "/budgets/org", json!({"limit_microusd": -1, "period": "day"}), 422, "invalid"),
        ("PUT", "/budgets/org", json!({"limit_microusd": 1, "period": "year"}), 422, "invalid"),
        ("POST", "/keys", json!({"name": "x", "scopes": ["root"]}), 422, "invalid"),
        ("POST", "/keys", json!({"name": "x", "scopes": []}), 422, "invalid"),
        ("POST", "/orgs", json!({"name": "other"}), 409, "single_org"),
        ("POST", "/policy/explain", json!({"to": "there", "input": "x"}), 422, "invalid"),
        ("POST", "/tasks", json!(["agent:there", null, "x"]), 422, "invalid"),
        ("PUT", "/roles/writer", json!(["internal"]), 422, "invalid"),
    ];
    let mut wrong = Vec::new();
    for (method, path, body, status, code) in cases {
        let path = path.replace("TASK", &task).replace("NOBODY", NOBODY);
        let by = if path == "/orgs" { gateway.admin() } else { all.clone() };
        let mut request = gateway.request(method, &format!("/api/v1{path}")).key(&by);
        if path.starts_with("/agents/") && method == "PUT" {
            request = request.header("if-none-match", "*");
        }
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.must();
        let got = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()["code"].clone();
        if (answer.status, &got) != (status, &json!(code)) {
            let body: String = body.to_string().chars().take(120).collect();
            wrong.push(format!(
                "{method} {path} {body}: not {status} {code} but {} {}",
                answer.status,
                answer.text()
            ));
        } else {
            is_problem(&answer, &path);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    gateway.is_well();
}

#[test]
fn a_key_does_what_its_scopes_say_and_nothing_else() {
    let gateway = Gateway::started(&[]);
    let scoped =
        |scope: &str| key(&gateway, &json!({"name": scope, "scopes": [scope], "worker_roles": ["writer"]}));
    let scopes = ["admin", "operator", "approver", "requester", "worker", "viewer"];
    let keys: Vec<(&str, String)> = scopes.into_iter().map(|s| (s, scoped(s))).collect();
    let digest = format!("sha256:{}", "0".repeat(64));
    let cases: Vec<(&str, &str, Value, &[&str])> = vec![
        ("POST", "/tasks", json!({"to": "role:nobody", "input": "x"}), &["requester"]),
        ("GET", "/tasks", Value::Null, &["viewer"]),
        ("GET", "/tasks/NOBODY", Value::Null, &["viewer"]),
        ("GET", "/tasks/NOBODY/events", Value::Null, &["viewer"]),
        ("POST", "/tasks/NOBODY/cancel", json!({}), &["requester", "operator"]),
        ("PUT", "/roles/writer", json!({"clearance": "internal"}), &["admin"]),
        ("POST", "/agents/nobody/sign", json!({"version": 1, "posture_digest": digest}), &["admin"]),
        ("POST", "/agents/nobody/halt", json!({}), &["operator"]),
        ("PUT", "/egress", json!({"mode": "off", "reason": "x"}), &["operator"]),
        ("GET", "/approvals", Value::Null, &["approver", "viewer"]),
        ("POST", "/approvals/NOBODY/approve", json!({"digest": digest}), &["approver"]),
        ("POST", "/leases", json!({"role": "writer", "worker": "w"}), &["worker"]),
        ("POST", "/leases/NOBODY/complete", json!({"output": 1}), &["worker"]),
        ("GET", "/costs", Value::Null, &["viewer"]),
        ("PUT", "/budgets/org", json!({"limit_microusd": 1, "period": "none"}), &["admin"]),
        ("GET", "/ledger", Value::Null, &["viewer"]),
        ("GET", "/ledger/export", Value::Null, &["viewer"]),
        ("GET", "/dead-letters", Value::Null, &["operator"]),
        ("GET", "/keys", Value::Null, &["admin"]),
        ("POST", "/keys", json!({"name": "x", "scopes": ["viewer"]}), &["admin"]),
        ("GET", "/orgs", Value::Null, &[]),
        ("POST", "/orgs", json!({"name": "x"}), &[]),
    ];
    let mut wrong = Vec::new();
    for (method, path, body, may) in cases {
        let path = path.replace("NOBODY", NOBODY);
        for (scope, key) in &keys {
            let request = gateway.request(method, &format!("/api/v1{path}")).key(key);
            let request = if body.is_null() { request } else { request.json(&body) };
            let answer = request.must();
            let is_refused = answer.status == 403 && answer.json()["code"] == "scope_missing";
            if is_refused == may.contains(scope) {
                wrong.push(format!("{scope}: {method} {path}: {} {}", answer.status, answer.text()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    gateway.is_well();
}

#[test]
fn a_bad_workflow_or_policy_is_refused_with_line_and_column() {
    let gateway = Gateway::started(&[]);
    let admin = gateway.admin();
    let put = |path: &str, media: &str, text: &str| {
        gateway.request("PUT", &format!("/api/v1{path}")).key(&admin).body(media, text).must()
    };
    let step = |rest: &str| {
        format!("name: w\nsteps:\n  a: {{ to: role:writer, input: \"${{{{ input }}}}\" }}\n{rest}")
    };
    let alias = "name: w\nsteps:\n  a: &x { to: role:writer, input: 1 }\n  b: *x\n".to_owned();
    let workflows: Vec<(&str, String, &str, u64)> = vec![
        ("not yaml", "name: [w\n".into(), "bad_workflow", 1),
        ("a list", "- a\n".into(), "bad_workflow", 1),
        ("an alias", alias, "bad_workflow", 4),
        ("an unknown member", step("colour: red\n"), "bad_workflow", 4),
        ("an unknown step member", step("  b: { to: role:x, input: 1, colour: 2 }\n"), "bad_workflow", 4),
        ("an unknown agent", step("  b: { to: agent:nobody, input: 1 }\n"), "unknown_destination", 4),
        ("an address", step("  b: { to: \"https://evil.example\", input: 1 }\n"), "url_in_workflow", 4),
        (
            "a cycle",
            step("  b: { to: role:x, needs: [c], input: 1 }\n  c: { to: role:x, needs: [b], input: 1 }\n"),
            "bad_workflow",
            4,
        ),
        ("an unknown need", step("  b: { to: role:x, needs: [z], input: 1 }\n"), "bad_workflow", 4),
        (
            "not in needs",
            step("  b: { to: role:x, input: \"${{ steps.a.output.text }}\" }\n"),
            "bad_workflow",
            4,
        ),
        ("an unknown name", step("output: \"${{ nobody }}\"\n"), "bad_workflow", 4),
        ("an unknown function", step("output: \"${{ system('x') }}\"\n"), "bad_workflow", 4),
        ("half an expression", step("output: \"${{ input. }}\"\n"), "bad_workflow", 4),
        (
            "an endless expression",
            step(&format!("output: \"${{{{ 1{} }}}}\"\n", "+1".repeat(100_000))),
            "bad_workflow",
            4,
        ),
        (
            "a schema from elsewhere",
            step("input_schema: { $ref: \"https://evil.example/s.json\" }\n"),
            "bad_workflow",
            4,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, text, code, line) in workflows {
        let answer = put("/workflows/w", "application/yaml", &text);
        let problem = is_problem(&answer, what);
        let place = &problem["errors"][0];
        let placed = place["line"].as_u64() >= Some(line.min(2)) || line == 1;
        if answer.status != 422 || problem["code"] != code || !placed || !place["column"].is_u64() {
            wrong.push(format!("{what}: {problem}"));
        }
    }
    let permit = "@id(\"a\") permit (principal, action, resource)";
    for (what, text, line) in [
        ("not cedar", "permit everything;", 1),
        ("no id", "permit (principal, action, resource);", 1),
        ("the same id", &*format!("{permit};\n{permit};"), 2),
        ("an unknown member", &*format!("{permit}\nwhen {{ principal.colour == 1 }};"), 2),
        (
            "an approval that permits",
            "@id(\"a\") @approval(\"ops\")\npermit (principal, action, resource);",
            1,
        ),
        ("an unknown action", "@id(\"a\")\npermit (principal, action == Action::\"fly\", resource);", 1),
        ("no end", "@id(\"a\")\n\npermit (principal, action, resource)", 1),
    ] {
        let answer = put("/policy", "text/plain", text);
        let problem = is_problem(&answer, what);
        let place = &problem["errors"][0];
        if problem["code"] != "bad_policy" || place["line"].as_u64() < Some(line) || !place["column"].is_u64()
        {
            wrong.push(format!("{what}: {problem}"));
        }
        let checked =
            gateway.request("POST", "/api/v1/policy/check").key(&admin).body("text/plain", text).must();
        if checked.status != 200 || checked.json()["ok"] != json!(false) {
            wrong.push(format!("check {what}: {} {}", checked.status, checked.text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(gateway.all("/workflows"), Vec::<Value>::new());
    gateway.is_well();
}

#[test]
fn the_callback_door_says_nothing_to_who_has_no_token() {
    let gateway = Gateway::started(&[]);
    let path = "/api/v1/a2a/callback/AAAAAAAAAAAAAAAAAAAAAA";
    let mac = "A".repeat(43);
    let tokens = [
        "",
        "x",
        "ec1",
        "ec1.a.b.c",
        "ec1.0011223344556677.9999999999.",
        &format!("ec1.0011223344556677.9999999999.{mac}"),
        &format!("ec1.0011223344556677.99999999999999999999.{mac}"),
        &format!("ec2.0011223344556677.9999999999.{mac}"),
        &"e".repeat(20_000),
    ];
    let quiet = |request: Request, about: &str| {
        let answer = request.must();
        assert_eq!((answer.status, answer.body.len()), (404, 0), "{about}: {}", answer.text());
    };
    let post = |path: &str| gateway.request("POST", path);
    for token in tokens {
        for header in ["x-a2a-notification-token", "a2a-notification-token"] {
            quiet(post(path).header(header, token).json(&json!({"task": {"id": "x"}})), token);
        }
        quiet(post(path).header("authorization", &format!("Bearer {token}")).body("text/html", "<p>"), token);
        if token.len() < 1_000 {
            quiet(post(&format!("{path}?t={token}")), token);
        }
    }
    quiet(post(path), "nothing");
    quiet(post(path).key(&gateway.admin()), "an API key is no token");
    quiet(post(path).body("application/json", vec![b'x'; 5 << 20]), "nothing is read of who has no token");
    for id in ["x", "%00", "..", &"A".repeat(2_000)] {
        quiet(post(&format!("/api/v1/a2a/callback/{id}")), id);
    }
    gateway.is_well();
    let admin = gateway.admin();
    gateway.never_said(&[&mac, admin.rsplit('_').next().unwrap()]);
}
