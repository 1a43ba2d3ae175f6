//! What gave up: run anew as a task of its own, taken in, discarded, or resolved by who knows.

use serde_json::{Value, json};

use crate::e2e::outcomes::HASTY;
use crate::e2e::rig::{Gateway, Stub, ending, hop, http};

/// Of an agent that can't be asked for our conversation, so that a lost send stays unknown.
fn unlistable(stub: &Stub) -> Gateway {
    Gateway::to(&stub.url, HASTY, &["--context", "theirs", "--price", "100"])
}

/// The one dead letter that nobody decided about.
fn letter(gateway: &Gateway) -> Value {
    let page = gateway.json(&["dlq", "list"]);
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    page["items"][0].clone()
}

fn id(letter: &Value) -> &str {
    letter["id"].as_str().unwrap()
}

/// Acts of operators in the ledger, with what each was about.
fn acts(gateway: &Gateway) -> Vec<(String, String)> {
    let records = gateway.records().into_iter().filter(|r| r["kind"] == "operator");
    let word = |v: &Value| v.as_str().unwrap().to_owned();
    records.map(|r| (word(&r["data"]["act"]), word(&r["data"]["target"]))).collect()
}

#[test]
fn what_may_have_run_runs_anew_only_when_a_duplicate_is_accepted_and_once() {
    let stub = Stub::start(&[]);
    let gateway = unlistable(&stub);
    let (_, old) = gateway.delegate(&["!drop 1; push none\nhello", "--label", "internal"]);
    assert_eq!(ending(&old), ("failed".into(), "outcome_unknown".into()));
    let letter = letter(&gateway);
    assert_eq!((&letter["kind"], &letter["task_id"]), (&json!("unknown"), &old["task_id"]));
    assert_eq!((&letter["actions"], &letter["decided"]), (&json!(["resend", "discard"]), &Value::Null));
    gateway.admin(&["dlq", "retry", id(&letter), "--json"]).refused(3, "duplicate_risk");
    gateway.admin(&["dlq", "retry", id(&letter), "--adopt", "--json"]).refused(3, "invalid");
    assert_eq!(stub.seen()["sends"], 1);
    let retried = gateway.admin(&["dlq", "retry", id(&letter), "--accept-duplicate"]).ok();
    let new = gateway.ended(retried.out.trim());
    assert_eq!((ending(&new).0, &new["output"]["text"]), ("completed".into(), &json!("hello")));
    let was = gateway.task(old["task_id"].as_str().unwrap());
    assert_eq!((&new["continues"], &was["status"]), (&was["task_id"], &json!("failed")));
    for same in ["requester", "label", "input"] {
        assert_eq!(new[same], was[same], "{same}");
    }
    assert_ne!(hop(&new)["message_ids"], hop(&was)["message_ids"]);
    gateway
        .admin(&["dlq", "retry", id(&letter), "--accept-duplicate", "--json"])
        .refused(3, "dead_letter_decided");
    gateway.admin(&["dlq", "discard", id(&letter), "--json"]).refused(3, "dead_letter_decided");
    assert_eq!(gateway.json(&["dlq", "list"])["items"], json!([]));
    let decided = gateway.json(&["dlq", "show", id(&letter)]);
    assert_eq!(
        (&decided["decided"]["act"], &decided["decided"]["task_id"]),
        (&json!("retry"), &new["task_id"])
    );
    assert_eq!(decided["actions"], json!([]));
    assert_eq!(gateway.json(&["dlq", "list", "--all"])["items"][0], decided);
    assert_eq!(acts(&gateway), [("retry".to_owned(), id(&letter).to_owned())]);
    assert_eq!(stub.seen()["sends"], 2);
}

const FLOW: &str = r#"
name: checked
steps:
  draft: { to: role:writer, input: "${{ input.text }}" }
  audit: { to: agent:auditor, needs: [draft], input: "${{ steps.draft.output.text }}", output_schema: { type: object }, retry: { attempts: 2 } }
  publish: { to: role:publisher, needs: [audit], input: "${{ steps.audit.output }}" }
output: "${{ steps.publish.output.text }}"
"#;

#[test]
fn completed_steps_are_taken_over_and_the_workflow_stays_the_one_that_ran() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, HASTY, &["--price", "100"]);
    let flow = FLOW.replace(", output_schema: { type: object }, retry: { attempts: 2 }", "");
    gateway.admin(&["workflow", "push", &gateway.file("one.yaml", &flow)]).ok();
    let count = gateway.file("count", "");
    let script = format!("echo x >> {count}; cat");
    let _writer = gateway.worker("writer", &["--text"], &["sh", "-c", &script]);
    let _publisher = gateway.worker("publisher", &["--text"], &["tr", "a-z", "A-Z"]);
    let line =
        ["run", "checked", "--text", "!status 503 3\nhello", "--wait", "--timeout", "30s", "--budget", "150"];
    let old = gateway.admin(&[&line[..], &["--json"]].concat());
    let old = (old.code, old.json());
    assert_eq!((old.0, ending(&old.1)), (1, ("failed".into(), "attempts_exhausted".into())));
    gateway
        .admin(&[
            "workflow",
            "push",
            &gateway.file("two.yaml", &flow.replace("steps.publish.output", "steps.draft.output")),
        ])
        .ok();
    let letter = letter(&gateway);
    assert_eq!((&letter["kind"], &letter["step"]), (&json!("send"), &json!("audit")));
    // Nothing has run, so nothing needs to be accepted.
    let new = gateway.json(&["dlq", "retry", id(&letter)]);
    assert_eq!(new["steps"][0]["status"], "completed");
    let new = gateway.ended(new["task_id"].as_str().unwrap());
    assert_eq!((&new["output"]["text"], &new["workflow"]), (&json!("HELLO"), &json!("checked@1")), "{new}");
    assert_eq!(new["output"], gateway.task(new["task_id"].as_str().unwrap())["steps"][2]["output"]);
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1, "the draft isn't made again");
    assert_eq!(new["steps"][1]["tainted"], false);
    assert_eq!(new["steps"][2]["tainted"], true);
    gateway.records();
}

/// A result that was pushed, and that the agent doesn't stand by.
fn unconfirmed(gateway: &Gateway, said: &str) -> (Value, Value) {
    let old = gateway.delegate(&[&format!("!drop 1; poll lost\n{said}")]).1;
    assert_eq!(ending(&old), ("failed".into(), "unconfirmed".into()), "{old}");
    (old, letter(gateway))
}

#[test]
fn a_result_that_was_kept_is_taken_in_through_the_gate_and_nothing_is_sent() {
    let stub = Stub::start(&[]);
    let gateway = unlistable(&stub);
    let (old, letter) = unconfirmed(&gateway, "hello");
    assert_eq!(letter["actions"], json!(["resend", "adopt", "discard"]));
    let new = gateway.admin(&["dlq", "retry", id(&letter), "--adopt"]).ok();
    let new = gateway.ended(new.out.trim());
    assert_eq!((ending(&new).0, &new["output"]["text"]), ("completed".into(), &json!("hello")));
    assert_eq!((&new["continues"], &new["cost_microusd"]), (&old["task_id"], &json!(0)));
    let taken = hop(&new);
    assert_eq!((&taken["state"], &taken["message_ids"]), (&json!("completed"), &json!([])));
    assert_eq!(taken["attempts"], json!([]));
    assert_eq!(stub.seen()["sends"], 1);
    let edges: Vec<Value> = gateway
        .records()
        .into_iter()
        .filter(|r| r["kind"] == "edge" && r["task"] == new["task_id"])
        .collect();
    assert_eq!(edges.len(), 1, "{edges:?}");
    let edge = &edges[0]["data"];
    assert_eq!((&edge["dir"], &edge["tainted"]), (&json!("a2a_ingress"), &json!(true)));
    assert_eq!(acts(&gateway), [("adopt".to_owned(), id(&letter).to_owned())]);
}

#[test]
fn a_kept_result_that_policy_denies_is_quarantined() {
    let stub = Stub::start(&[]);
    let gateway = unlistable(&stub);
    let (_, letter) = unconfirmed(&gateway, "hello");
    let policy = gateway.file(
        "policy.cedar",
        "@id(\"in\") permit (principal, action == Action::\"forward\", resource);\n\
         @id(\"out\") permit (principal, action == Action::\"a2a_egress\", resource);",
    );
    gateway.admin(&["policy", "push", &policy]).ok();
    let new = gateway.json(&["dlq", "retry", id(&letter), "--adopt"]);
    let new = gateway.ended(new["task_id"].as_str().unwrap());
    assert_eq!(ending(&new), ("denied".into(), "ingress_denied".into()), "{new}");
    assert_eq!((&new["output"], stub.seen()["sends"].as_u64()), (&Value::Null, Some(1)));
    gateway.records();
}

#[test]
fn a_kept_result_that_doesnt_match_fails_the_step_and_sends_nothing_in_its_place() {
    let stub = Stub::start(&[]);
    let gateway = unlistable(&stub);
    let _writer = gateway.worker("writer", &["--text"], &["cat"]);
    gateway.admin(&["workflow", "push", &gateway.file("flow.yaml", FLOW)]).ok();
    let line =
        ["run", "checked", "--text", "!drop 1; poll lost\nhello", "--wait", "--timeout", "30s", "--json"];
    let old = gateway.admin(&line).json();
    // It may have run, so the step isn't tried again by itself.
    assert_eq!(ending(&old), ("failed".into(), "unconfirmed".into()), "{old}");
    assert_eq!(stub.seen()["sends"], 1);
    let new = gateway.json(&["dlq", "retry", id(&letter(&gateway)), "--adopt"]);
    let new = gateway.ended(new["task_id"].as_str().unwrap());
    assert_eq!(ending(&new), ("failed".into(), "output_schema_mismatch".into()), "{new}");
    assert_eq!(stub.seen()["sends"], 1);
    gateway.records();
}

#[test]
fn deciding_about_a_dead_letter_needs_an_operator_a_live_requester_and_happens_once_per_key() {
    let stub = Stub::start(&[]);
    let gateway = unlistable(&stub);
    let asks =
        gateway.json(&["key", "create", "--name", "asks", "--scope", "requester", "--scope", "viewer"]);
    let line =
        ["delegate", "agent:auditor", "!drop 1; push none\nhello", "--wait", "--timeout", "30s", "--json"];
    let asked = |line: &[&str]| crate::exeat::ran(&mut gateway.command(asks["key"].as_str().unwrap(), line));
    assert_eq!(asked(&line).code, 1);
    let letter = letter(&gateway);
    asked(&["dlq", "retry", id(&letter), "--accept-duplicate", "--json"]).refused(3, "scope_missing");
    gateway.admin(&["key", "revoke", asks["key_id"].as_str().unwrap()]).ok();
    gateway.admin(&["dlq", "retry", id(&letter), "--accept-duplicate", "--json"]).refused(3, "scope_missing");
    let path = format!("/api/v1/dead-letters/{}/discard", id(&letter));
    let key = gateway.admin_key();
    let discard = |once: &str| http(&gateway.url, "POST", &path, &key, &[("Idempotency-Key", once)], "{}");
    let (first, again, other) = (discard("a"), discard("a"), discard("b"));
    assert_eq!((first.status, again.status, other.status), (200, 200, 409));
    assert_eq!((&first.body, again.header("idempotency-replayed")), (&again.body, Some("true")));
    assert_eq!(other.body["code"], "dead_letter_decided");
    let wrong = format!("/api/v1/dead-letters/{}/retry", id(&letter));
    for (body, code) in [
        (r#"{"mode":"again"}"#, "invalid"),
        (r#"{"mode":"resend","x":1}"#, "unknown_member"),
        (r#"{"mode":"adopt","accept_duplicate":true}"#, "invalid"),
    ] {
        let refused = http(&gateway.url, "POST", &wrong, &key, &[], body);
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (422, &json!(code)),
            "{body}: {:?}",
            refused.body
        );
    }
    assert_eq!(acts(&gateway), [("discard".to_owned(), id(&letter).to_owned())]);
}

/// A hop whose sending stays unknown for long.
fn unknown(gateway: &Gateway) -> String {
    let id = gateway.begin(&["!drop 1; push none\nhello"]);
    let task =
        gateway.task_when(&id, "it is unknown", |t| t["steps"][0]["hops"][0]["state"] == "send_unknown");
    assert!(task["waiting"][0]["hint"].as_str().unwrap().contains("exeat task resolve"), "{task}");
    id
}

#[test]
fn who_knows_that_it_never_ran_has_it_sent_again_and_who_knows_that_it_ran_ends_it() {
    let stub = Stub::start(&[]);
    let settings = [HASTY, &[("EXEAT_HOP_UNKNOWN_GRACE", "10m")]].concat();
    let gateway = Gateway::to(&stub.url, &settings, &["--context", "theirs", "--price", "100"]);
    let id = unknown(&gateway);
    let resolve = |id: &str, ran: &str| {
        gateway.admin(&["task", "resolve", id, "--ran", ran, "--reason", "their log", "--json"])
    };
    resolve(&id, "no").ok();
    let done = gateway.ended(&id);
    assert_eq!((ending(&done).0, &done["output"]["text"]), ("completed".into(), &json!("hello")), "{done}");
    assert_eq!((&done["cost_microusd"], &done["reserved_microusd"]), (&json!(100), &json!(0)));
    let outcomes: Vec<&Value> =
        hop(&done)["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, ["not_sent", "answered"]);
    assert_eq!(
        (stub.seen()["sends"].as_u64(), hop(&done)["message_ids"].as_array().unwrap().len()),
        (Some(2), 1)
    );
    resolve(&id, "no").refused(3, "hop_not_unknown");
    let path = format!("/api/v1/tasks/{id}/resolve");
    let body = json!({"hop_id": hop(&done)["hop_id"], "ran": "yes", "reason": "late"}).to_string();
    let late = http(&gateway.url, "POST", &path, &gateway.admin_key(), &[], &body);
    assert_eq!((late.status, &late.body["code"]), (409, &json!("hop_not_unknown")));

    let stub = Stub::start(&[]);
    gateway.register("other", &stub.url, &["--context", "theirs", "--price", "70"]);
    let id =
        gateway.admin(&["delegate", "agent:other", "!drop 1; push none\nhello"]).ok().out.trim().to_owned();
    gateway.task_when(&id, "it is unknown", |t| t["steps"][0]["hops"][0]["state"] == "send_unknown");
    resolve(&id, "yes").ok();
    let failed = gateway.ended(&id);
    assert_eq!(ending(&failed), ("failed".into(), "outcome_unknown".into()));
    assert_eq!((&failed["cost_microusd"], &failed["reserved_microusd"]), (&json!(70), &json!(0)));
    let outcome = gateway.records().into_iter().rfind(|r| r["kind"] == "outcome").unwrap();
    assert_eq!(outcome["data"]["effects"], "known", "{outcome}");
    assert_eq!((&letter(&gateway)["kind"], stub.seen()["sends"].as_u64()), (&json!("unknown"), Some(1)));
    let acts = acts(&gateway);
    assert_eq!(acts.iter().map(|a| a.0.as_str()).collect::<Vec<_>>(), ["resolve", "resolve"]);
}
