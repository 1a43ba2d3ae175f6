//! The commands that govern: what they ask of the API, what they print, and with which code they end.

use exeat_core::id::OrgName;
use exeat_core::ledger::export::{ListedKey, header, last_line};
use exeat_core::ledger::{Checkpoint, Head, LedgerKey};
use exeat_core::time::Timestamp;
use serde_json::{Value, json};

use crate::exeat::{command, exeat, ran};
use crate::server::{Reply, Seen, Server, problem};

const ID: &str = "0197f3a0-0000-7000-8000-000000000001";

fn agent() -> Value {
    json!({"key": "a", "version": 3, "status": "pending_review", "posture_digest": "sha256:aa", "signed_by": [],
        "url": "http://x", "ceiling": {"level": "internal", "tags": []}, "halted": false,
        "price": {"estimate_microusd": 0, "cap_microusd": null, "rule": "estimate"}})
}

#[test]
fn an_agent_is_made_only_if_it_is_new_and_changed_only_if_nobody_else_did() {
    let server = Server::start(|_| Reply::Json(201, agent()));
    let got = exeat(&server.url, &["agent", "add", "a", "--url", "http://x", "--ceiling", "internal"]);
    assert_eq!((got.code, got.out.as_str()), (0, "a pending_review\n"));
    assert!(got.err.contains("exeat agent sign a"));
    let put = &server.seen("PUT /api/v1/agents/a")[0];
    assert_eq!(put.header("if-none-match"), "*");
    assert_eq!(put.json(), json!({"url": "http://x", "ceiling": {"level": "internal", "tags": []}}));
    assert_eq!(exeat(&server.url, &["agent", "set", "a", "--price", "7"]).code, 0);
    let put = &server.seen("PUT /api/v1/agents/a")[1];
    assert_eq!(put.header("if-match"), "\"3\"");
    assert_eq!(put.json()["price"]["estimate_microusd"], 7);
    assert!(put.json().get("version").is_none());
}

#[test]
fn a_signature_covers_the_posture_that_was_shown() {
    let server = Server::start(|r: &Seen| match r.line.as_str() {
        "POST /api/v1/agents/a/sign" => {
            let mut signed = agent();
            signed["status"] = json!("active");
            signed["signed_by"] = json!(["admin"]);
            Reply::Json(200, signed)
        }
        _ => Reply::Json(200, agent()),
    });
    let got = exeat(&server.url, &["agent", "sign", "a"]);
    assert_eq!((got.code, got.out.as_str()), (0, "a active, signed by admin\n"));
    assert!(got.err.contains("sha256:aa") && got.err.contains("http://x"), "{}", got.err);
    let body = server.seen("POST")[0].json();
    assert_eq!(body, json!({"version": 3, "posture_digest": "sha256:aa"}));
    let got = exeat(&server.url, &["agent", "sign", "a", "--version", "2"]);
    assert_eq!(got.code, 3);
    assert!(got.err.starts_with("error: version_conflict: a is at version 3, not 2"), "{}", got.err);
    assert_eq!(server.seen("POST").len(), 1);
}

fn approval() -> Value {
    json!({"approval_id": ID, "status": "pending", "dir": "a2a_egress", "to": "agent:a", "digest": "sha256:dd",
        "label": {"level": "internal", "tags": []}, "content": "{\"parts\":[{\"text\":\"hi\u{202e}\"}]}",
        "payload": {"text": "hi\u{202e}"}, "roles": ["ops"], "price_microusd": 0})
}

fn approvals() -> Server {
    Server::start(|r: &Seen| match r.line.as_str() {
        l if l.starts_with("POST") => {
            let mut decided = approval();
            decided["status"] = json!(if l.ends_with("/deny") { "denied" } else { "approved" });
            Reply::Json(200, decided)
        }
        l if l.contains("/approvals?") => {
            Reply::Json(200, json!({"items": [approval()], "next_cursor": null}))
        }
        _ => Reply::Json(200, approval()),
    })
}

#[test]
fn without_a_terminal_nothing_is_approved_unless_told_so() {
    let server = approvals();
    let got = exeat(&server.url, &["approval", "approve", ID]);
    assert_eq!((got.code, got.out.as_str()), (2, ""));
    assert!(got.err.contains("--digest") && got.err.contains("--yes"), "{}", got.err);
    let got = exeat(&server.url, &["approval", "approve", ID, "--digest", "sha256:other"]);
    assert_eq!(got.code, 3);
    assert!(got.err.contains("digest_mismatch"));
    assert!(server.seen("POST").is_empty());
}

#[test]
fn a_decision_carries_the_digest_that_was_seen() {
    let server = approvals();
    let got = exeat(&server.url, &["approval", "approve", ID, "--yes"]);
    assert_eq!((got.code, got.out), (0, format!("approved {ID}\n")));
    assert_eq!(exeat(&server.url, &["approval", "approve", ID, "--digest", "sha256:dd"]).code, 0);
    assert_eq!(
        exeat(&server.url, &["approval", "deny", ID, "--reason", "no", "--json"]).json()["status"],
        "denied"
    );
    let bodies: Vec<_> = server.seen("POST").iter().map(Seen::json).collect();
    assert_eq!(bodies[0], json!({"digest": "sha256:dd"}));
    assert_eq!(bodies[1], json!({"digest": "sha256:dd"}));
    assert_eq!(bodies[2], json!({"digest": "sha256:dd", "reason": "no"}));
}

#[test]
fn an_approval_shows_what_cannot_be_seen() {
    let got = exeat(&approvals().url, &["approval", "show", ID]);
    assert!(got.out.contains("│ hi\\u{202E}"), "{}", got.out);
    assert!(got.out.contains(r#"│ {"parts":[{"text":"hi\u{202E}"}]}"#), "{}", got.out);
    let listed = exeat(&approvals().url, &["approval", "list"]);
    assert!(listed.out.lines().nth(1).unwrap().starts_with(ID), "{}", listed.out);
}

#[test]
fn lists_are_read_page_by_page() {
    let server = Server::start(|r: &Seen| {
        if r.line.contains("cursor=two") {
            return Reply::Json(200, json!({"items": [{"task_id": "t3"}], "next_cursor": null}));
        }
        Reply::Json(200, json!({"items": [{"task_id": "t1"}, {"task_id": "t2"}], "next_cursor": "two"}))
    });
    let got = exeat(&server.url, &["task", "list", "--json"]).json();
    assert_eq!(got["items"].as_array().unwrap().len(), 3);
    assert_eq!(got["next_cursor"], Value::Null);
    let got = exeat(&server.url, &["task", "list", "--limit", "2", "--json"]).json();
    assert_eq!((got["items"].as_array().unwrap().len(), &got["next_cursor"]), (2, &json!("two")));
}

#[test]
fn faults_of_a_workflow_are_printed_where_they_are() {
    let server = Server::start(|_| {
        let errors =
            json!([{"line": 3, "column": 9, "code": "unknown_step", "message": "there is no step `x`"}]);
        Reply::Json(
            422,
            json!({"code": "bad_workflow", "detail": "1 fault", "errors": errors, "status": 422}),
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.yaml");
    std::fs::write(&file, "name: invoice\nsteps: {}\n").unwrap();
    let path = file.to_str().unwrap();
    let got = exeat(&server.url, &["workflow", "check", path]);
    assert_eq!((got.code, got.out.as_str()), (3, ""));
    assert_eq!(
        got.err,
        format!("{path}:3:9: unknown_step: there is no step `x`\nerror: bad_workflow: 1 fault\n")
    );
    let put = &server.seen("PUT")[0];
    assert_eq!(put.line, "PUT /api/v1/workflows/invoice?dry_run=1");
    assert_eq!(
        (put.header("content-type"), put.body.as_str()),
        ("application/yaml", "name: invoice\nsteps: {}\n")
    );
    let got = exeat(&server.url, &["workflow", "push", path, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&got.err).unwrap()["errors"][0]["line"], 3);
    assert_eq!(server.seen("PUT")[1].line, "PUT /api/v1/workflows/invoice");
}

#[test]
fn a_ledger_that_does_not_verify_exits_4() {
    let verification = |ok: bool| {
        let bad = if ok { Value::Null } else { json!({"seq": 7, "why": "hash"}) };
        json!({"verified": ok, "records": 9, "head": "00", "checkpoint": null, "first_bad": bad, "edges": 4,
            "costs_balanced": true})
    };
    let good = Server::start(move |_| Reply::Json(200, verification(true)));
    assert_eq!(exeat(&good.url, &["audit", "verify", "--json"]).json(), verification(true));
    let bad = Server::start(move |_| Reply::Json(200, verification(false)));
    let got = exeat(&bad.url, &["audit", "verify", "--json"]);
    assert_eq!((got.code, got.json()), (4, verification(false)));
    assert!(got.err.contains("record 7: hash"));
    assert_eq!(exeat(&bad.url, &["audit", "verify", "--key", "other"]).code, 4);
    assert_eq!(bad.seen("GET")[1].header("authorization"), "Bearer other");
}

#[test]
fn an_export_verifies_without_a_server_and_only_whole_and_under_its_own_key() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (key, other) = (LedgerKey::of_seed(&[1; 32]), LedgerKey::of_seed(&[2; 32]));
    let org: OrgName = "main".parse().unwrap();
    let time = Timestamp::of_micros(1_700_000_000_000_000);
    let note = key.sign(&Checkpoint { org: org.clone(), size: 0, head: Head::EMPTY.hash, at: time });
    let first = header(&org, &Head::EMPTY);
    let last = last_line(&note, vec![ListedKey::of(&key.public(), &org, time, None)]);
    std::fs::write(at("whole"), [first.as_slice(), &last].concat()).unwrap();
    std::fs::write(at("cut"), &first).unwrap();
    std::fs::write(at("key.pem"), key.public().to_pem()).unwrap();
    std::fs::write(at("other.pem"), other.public().to_pem()).unwrap();
    let verify = |file: &str, key: &str| {
        let got = exeat(
            "http://127.0.0.1:1",
            &["audit", "verify", "--file", &at(file), "--key", &at(key), "--json"],
        );
        (got.code, got.json()["verified"].clone())
    };
    assert_eq!(verify("whole", "key.pem"), (0, json!(true)));
    assert_eq!(verify("cut", "key.pem"), (4, json!(false)));
    assert_eq!(verify("whole", "other.pem"), (4, json!(false)));
    let said = |file: &str, key: &str| {
        exeat("http://127.0.0.1:1", &["audit", "verify", "--file", &at(file), "--key", &at(key)])
    };
    let got = said("whole", "other.pem");
    let signer = format!("signed by another key than this PEM: {}", key.public().shown(&org));
    assert!(got.err.contains(&signer), "{}", got.err);
    std::fs::write(at("noise"), "noise\n").unwrap();
    let got = said("noise", "key.pem");
    assert!(got.err.contains("not_verified: it can't be begun: bad_header"), "{}", got.err);
    assert!(!got.out.contains("records") && !got.out.contains("head "), "{}", got.out);
    for line in [
        &["audit", "verify", "--file", &at("whole")][..],
        &["audit", "verify", "--file", "/none", "--key", "/none"],
    ] {
        assert_eq!(exeat("http://127.0.0.1:1", line).code, 2, "{line:?}");
    }
}

#[test]
fn an_export_comes_through_byte_for_byte() {
    let lines = "{\"export\":\"exeat-ledger-v1\"}\n{\"record\":{\"n\":1.0},\"hash\":\"ü\"}\n";
    let server = Server::start(move |_| Reply::Text("application/jsonl", lines.to_owned()));
    for json in [&[][..], &["--json"]] {
        let got = exeat(&server.url, &[&["audit", "export"], json].concat());
        assert_eq!((got.code, got.out.as_str()), (0, lines));
    }
}

#[test]
fn a_refusal_is_one_line_or_the_problem_as_it_came() {
    let server = Server::start(|_| problem(403, "scope_missing", "this needs operator"));
    let got = exeat(&server.url, &["egress", "on"]);
    assert_eq!((got.code, got.out.as_str()), (3, ""));
    assert_eq!(got.err, "error: scope_missing: this needs operator; do better\n");
    let got = exeat(&server.url, &["egress", "on", "--json"]);
    let sent: Value = serde_json::from_str(&got.err).unwrap();
    assert_eq!((got.code, &sent["code"], &sent["status"]), (3, &json!("scope_missing"), &json!(403)));
    let got = exeat(&server.url, &["egress", "sideways", "--json"]);
    assert_eq!(
        (got.code, serde_json::from_str::<Value>(&got.err).unwrap()["code"].clone()),
        (2, json!("usage"))
    );
}

#[test]
fn a_key_that_lies_about_is_offered_to_this_machine_only() {
    let server = Server::start(|_| Reply::Json(200, json!({"mode": "off"})));
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("admin.key"), "exk_admin_x\n").unwrap();
    let show = |data: &std::path::Path| {
        let mut c = command(&server.url, &["egress", "show"]);
        ran(c.env_remove("EXEAT_KEY").env("EXEAT_DATA", data))
    };
    assert_eq!(show(dir.path()).code, 0);
    assert_eq!(show("/nowhere".as_ref()).code, 0);
    let sent: Vec<_> = server.seen("GET").iter().map(|r| r.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer exk_admin_x", ""]);
    let at = format!("@{}", dir.path().join("admin.key").display());
    assert_eq!(exeat(&server.url, &["egress", "show", "--key", &at]).code, 0);
    assert_eq!(server.seen("GET")[2].header("authorization"), "Bearer exk_admin_x");
}

#[test]
fn a_key_is_shown_once_alone_on_stdout() {
    let server = Server::start(|_| Reply::Json(201, json!({"key_id": "k1", "key": "exk_k1_s"})));
    let line = ["key", "create", "--name", "ci", "--scope", "requester", "--worker-role", "writer"];
    let got = exeat(&server.url, &line);
    assert_eq!((got.code, got.out.as_str()), (0, "exk_k1_s\n"));
    let body = server.seen("POST /api/v1/keys")[0].json();
    assert_eq!(body, json!({"name": "ci", "scopes": ["requester"], "worker_roles": ["writer"]}));
}

#[test]
fn the_help_names_every_group_and_the_exit_codes() {
    let got = exeat("http://127.0.0.1:1", &["--help"]);
    assert_eq!((got.code, got.err.as_str()), (0, ""));
    insta::assert_snapshot!("help", got.out.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    assert_eq!(exeat("http://127.0.0.1:1", &[]).code, 2);
    let bash = exeat("http://127.0.0.1:1", &["completions", "bash"]);
    assert!(bash.code == 0 && bash.out.contains("delegate"));
}

#[test]
fn each_command_asks_what_the_api_offers() {
    let internal = json!({"level": "internal", "tags": []});
    for (line, request, body) in [
        (
            "egress off --strand --reason r",
            "PUT /egress",
            json!({"mode": "off", "reason": "r", "strand": true}),
        ),
        ("egress halt --reason r", "PUT /egress", json!({"mode": "halt", "reason": "r"})),
        ("egress show", "GET /egress", Value::Null),
        ("agent halt a --reason r", "POST /agents/a/halt", json!({"reason": "r"})),
        ("agent revoke a", "POST /agents/a/revoke", json!({})),
        ("agent list", "GET /agents?limit=200", Value::Null),
        (
            "task list --status failed --workflow w --agent a",
            "GET /tasks?status=failed&workflow=w&agent=a&limit=50",
            Value::Null,
        ),
        ("task show ID", "GET /tasks/ID", Value::Null),
        ("task cancel ID --reason r", "POST /tasks/ID/cancel", json!({"reason": "r"})),
        (
            "task answer ID yes --question q",
            "POST /tasks/ID/answer",
            json!({"question_id": "q", "input": "yes"}),
        ),
        (
            "task answer ID --data [1] --question q",
            "POST /tasks/ID/answer",
            json!({"question_id": "q", "input": {"parts": [{"data": [1]}]}}),
        ),
        ("approval list", "GET /approvals?status=pending&limit=50", Value::Null),
        ("approval list --status all", "GET /approvals?limit=50", Value::Null),
        (
            "role set writer --clearance internal --may agent:a --team t",
            "PUT /roles/writer",
            json!({"clearance": internal, "may": ["agent:a"], "teams": ["t"]}),
        ),
        ("role set writer", "PUT /roles/writer", json!({"may": [], "teams": []})),
        (
            "budget set agent:a 5 --period day",
            "PUT /budgets/agent:a",
            json!({"limit_microusd": 5, "period": "day"}),
        ),
        ("cost show", "GET /costs?by=agent", Value::Null),
        (
            "cost show --by day --from 2026-01-01 --to 2026-02-01T01:00:00Z",
            "GET /costs?by=day&from=2026-01-01T00%3A00%3A00.000000Z&to=2026-02-01T01%3A00%3A00.000000Z",
            Value::Null,
        ),
        ("workflow show w --version 2", "GET /workflows/w?version=2", Value::Null),
        (
            "audit list --task ID --kind edge --from 3",
            "GET /ledger?from=3&kind=edge&task=ID&limit=100",
            Value::Null,
        ),
        ("audit list --limit 5", "GET /ledger?order=newest&limit=5", Value::Null),
        ("audit verify", "GET /ledger/verify", Value::Null),
        ("audit key", "GET /ledger/key", Value::Null),
        ("policy explain ID", "POST /policy/explain", json!({"hop_id": ID})),
        ("key list", "GET /keys?limit=200", Value::Null),
        ("key rotate-callback", "POST /callback-keys/rotate", json!({})),
        ("key revoke abc", "DELETE /keys/abc", Value::Null),
        ("org create acme", "POST /orgs", json!({"name": "acme"})),
    ] {
        let server =
            Server::start(|_| Reply::Json(200, json!({"items": [], "next_cursor": null, "verified": true})));
        let line = line.replace("ID", ID);
        let got = exeat(&server.url, &line.split(' ').collect::<Vec<_>>());
        assert_eq!(got.code, 0, "{line}: {}", got.err);
        let seen = server.seen("").remove(0);
        assert_eq!(seen.line, request.replace("ID", ID).replacen('/', "/api/v1/", 1), "{line}");
        assert_eq!(seen.json(), body, "{line}");
        let key = seen.header("idempotency-key");
        assert_eq!(
            key.is_empty(),
            !request.starts_with("POST"),
            "{line}: every POST has a key, nothing else"
        );
    }
}

#[test]
fn a_policy_with_faults_is_refused_where_they_are() {
    let errors = json!([{"line": 2, "column": 1, "message": "no @id"}]);
    let server = Server::start(move |_| Reply::Json(200, json!({"ok": false, "errors": errors})));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.cedar");
    std::fs::write(&file, "permit (principal, action, resource);").unwrap();
    let path = file.to_str().unwrap();
    let got = exeat(&server.url, &["policy", "check", path]);
    assert_eq!((got.code, got.out.as_str()), (3, ""));
    assert_eq!(got.err, format!("{path}:2:1: no @id\nerror: bad_policy: {path} has 1 fault(s)\n"));
    assert_eq!(server.seen("POST /api/v1/policy/check")[0].body, "permit (principal, action, resource);");
}

#[test]
fn an_answer_that_no_exeat_server_gives_is_told_as_that() {
    let html = Server::start(|_| Reply::Text("text/html", "<html>hello</html>".to_owned()));
    let other = Server::start(|_| Reply::Json(200, json!({"hello": "world"})));
    let away = Server::start(|_| Reply::Json(404, json!({"error": "nothing here"})));
    for (server, status) in [(&html, 0), (&other, 0), (&away, 404)] {
        let got = exeat(&server.url, &["task", "list", "--json"]);
        assert_eq!((got.code, got.out.as_str()), (3, ""), "{got:?}");
        let p: Value = serde_json::from_str(&got.err).unwrap();
        assert!(p["detail"].as_str().unwrap().contains("isn't an Exeat server's"), "{p}");
        assert!(p["next"].as_str().unwrap().contains("--url"), "{p}");
        assert_eq!(p["status"], status, "{p}");
    }
}

#[test]
fn a_problem_of_the_command_itself_has_the_members_of_any_other() {
    let dir = tempfile::tempdir().unwrap();
    for line in [&["egress", "sideways"][..], &["task", "list"], &["workflow", "check", "/none"]] {
        let mut command = command("http://127.0.0.1:1", &[line, &["--json"]].concat());
        let got = ran(command.current_dir(dir.path()));
        let p: Value = serde_json::from_str(&got.err).unwrap();
        for member in ["type", "code", "title", "detail", "next"] {
            assert!(p[member].as_str().is_some_and(|t| !t.is_empty()), "{line:?}: {member} in {p}");
        }
        assert_eq!(p["status"], 0, "{p}");
    }
}

#[test]
fn a_workflow_whose_name_cant_be_one_is_sent_so_that_all_its_faults_are_told() {
    let server = Server::start(|_| problem(422, "bad_workflow", "2 faults"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("X_Y.yaml");
    std::fs::write(&file, "name: X_Y\nsteps: {}\n").unwrap();
    let got = exeat(&server.url, &["workflow", "check", file.to_str().unwrap()]);
    assert_eq!(got.code, 3, "{got:?}");
    assert_eq!(server.seen("PUT")[0].body, "name: X_Y\nsteps: {}\n");
}

#[test]
fn warnings_of_a_policy_that_was_pushed_are_told_where_they_are() {
    let warnings = json!([{"line": 4, "column": 2, "message": "it never applies"}]);
    let server = Server::start(move |_| Reply::Json(200, json!({"version": 3, "warnings": warnings})));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.cedar");
    std::fs::write(&file, "x").unwrap();
    let path = file.to_str().unwrap();
    let got = exeat(&server.url, &["policy", "push", path]);
    assert_eq!((got.code, got.out.as_str()), (0, "policy 3\n"));
    assert_eq!(got.err, format!("{path}:4:2: it never applies\n"));
}

#[test]
fn stuck_tasks_are_those_that_somebody_must_see_to() {
    let waits = |on: &str, since: &str, hint: &str| json!({"task_id": ID, "status": "running", "waiting": [{"step": "hop", "for": on, "since": since, "hint": hint}]});
    let (long_ago, nobody) =
        ("2026-01-02T03:04:05.000000Z", "No worker has taken it: `exeat worker --role w -- CMD`");
    for (task, stuck) in [
        (waits("worker", long_ago, nobody), 1),
        (waits("worker", "2999-01-01T00:00:00.000000Z", nobody), 0),
        (waits("worker", long_ago, "Worker w has it; its lease lasts until then."), 0),
        (waits("approval", long_ago, ""), 1),
    ] {
        let server = Server::start(move |r: &Seen| {
            let items = if r.line.contains("status=running") { json!([task]) } else { json!([]) };
            Reply::Json(200, json!({"items": items, "next_cursor": null}))
        });
        let got = exeat(&server.url, &["task", "list", "--stuck", "--json"]).json();
        assert_eq!(got["items"].as_array().unwrap().len(), stuck, "{got}");
    }
}

#[test]
fn the_tries_that_failed_are_shown_with_why() {
    let attempt = |n: u64, outcome: &str, detail: &str| json!({"n": n, "turn": 1, "at": "2026-01-02T03:04:05.000000Z", "outcome": outcome, "detail": detail});
    let server = Server::start(move |_| {
        let attempts = [attempt(1, "not_sent", "connection refused"), attempt(2, "answered", "task t1")];
        let hop =
            json!({"hop_id": "h1", "to": "agent:a", "state": "parked", "turn": 1, "attempts": attempts});
        Reply::Json(
            200,
            json!({"task_id": ID, "status": "running", "steps": [{"name": "hop", "hops": [hop]}]}),
        )
    });
    let got = exeat(&server.url, &["task", "show", ID]);
    let row = got.out.lines().find(|l| l.contains("connection refused")).unwrap_or_default();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        words,
        ["h1", "1", "2026-01-02", "03:04:05Z", "not_sent", "connection", "refused"],
        "{}",
        got.out
    );
    assert!(!got.out.contains("task t1"), "what went well needs no explanation: {}", got.out);
}

#[test]
fn what_the_server_refuses_is_not_offered() {
    for flags in [["--provider", "claude"], ["--protocol", "0.1"]] {
        let line = ["agent", "add", "a", "--url", "http://x", "--ceiling", "internal"];
        let got = exeat("http://127.0.0.1:1", &[&line[..], &flags].concat());
        assert_eq!(got.code, 2, "{got:?}");
    }
    let help = exeat("http://127.0.0.1:1", &["agent", "add", "--help"]).out;
    assert!(!help.contains("claude") && !help.contains("0.1,") && help.contains("google_adk"), "{help}");
    let help = exeat("http://127.0.0.1:1", &["delegate", "--help"]).out;
    assert!(help.contains("--dry-run"), "{help}");
}
