//! What the command says beside its results: hints that can be typed, what a dry run tells, why not and what next.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub, ending, until};
use crate::exeat::ran;

const STARTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/starter.cedar");

#[test]
fn a_dry_run_says_what_would_become_of_a_hop_and_sends_nothing() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "600"]);
    let line = ["delegate", "agent:auditor", "hello", "--dry-run"];
    let told = gateway.admin(&line).ok().out;
    for shown in [
        "verdict     allow",
        "starter-foreign",
        "label       internal",
        "price       $0.0006",
        "redactions  none",
    ] {
        assert!(told.contains(shown), "{shown} in\n{told}");
    }
    let with = |flags: &[&str]| gateway.json(&[&line[..], flags].concat());
    assert_eq!(with(&["--budget", "600"])["decision"], "allow");
    let over = with(&["--budget", "500"]);
    assert_eq!((&over["decision"], &over["reason"]["code"]), (&json!("deny"), &json!("budget_exceeded")));
    gateway.admin(&["egress", "halt", "--reason", "incident"]).ok();
    let halted = gateway.admin(&line).ok().out;
    assert!(halted.contains("allow") && halted.contains("the kill switch holds it back"), "{halted}");
    gateway.admin(&["egress", "off", "--reason", "done"]).ok();
    let off = gateway.admin(&line).ok().out;
    assert!(off.contains("deny") && off.contains("egress_off"), "{off}");
    assert_eq!(stub.seen()["accepts"], 0);
    assert_eq!(gateway.json(&["task", "list"])["items"], json!([]));
}

#[test]
fn a_dry_run_of_a_workflow_judges_what_is_known_of_its_steps() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "600"]);
    let flow = "name: w\nsteps:\n  draft: { to: role:writer, input: \"${{ input.text }}!\" }\n  \
        never: { to: role:writer, when: \"${{ input.text == 'x' }}\" }\n  \
        audit: { to: agent:auditor, needs: [draft], input: \"${{ steps.draft.output }}\" }\n";
    gateway.admin(&["workflow", "push", &gateway.file("w.yaml", flow)]).ok();
    let line = ["run", "w", "--text", "hello", "--dry-run"];
    let told = gateway.json(&line);
    assert_eq!(told["workflow"], "w@1");
    let of =
        |m: &str| -> Vec<Value> { told["steps"].as_array().unwrap().iter().map(|s| s[m].clone()).collect() };
    assert_eq!(of("step"), ["draft", "never", "audit"]);
    assert_eq!(of("content"), ["known", "skipped", "not_yet"]);
    assert_eq!(of("decision"), [json!("allow"), Value::Null, json!("allow")]);
    assert_eq!(
        told["steps"][0]["context"]["context"]["size_bytes"],
        r#"{"parts":[{"text":"hello!"}]}"#.len()
    );
    assert_eq!(told["steps"][2]["price_microusd"], 600);
    let table = gateway.admin(&line).ok().out;
    assert!(table.starts_with("STEP") && table.contains("not yet known"), "{table}");
    assert_eq!(gateway.json(&["task", "list"])["items"], json!([]));
    assert_eq!(stub.seen()["accepts"], 0);
    let skill = gateway.admin(&["run", "w", "--skill", "s", "--json"]).refused(3, "invalid");
    assert!(skill["detail"].as_str().unwrap().contains("a workflow names its own"), "{skill}");
}

#[test]
fn work_that_nobody_takes_says_how_to_start_a_worker_and_with_which_key() {
    let gateway = Gateway::start(&[]);
    gateway.admin(&["role", "set", "proofreader", "--team", "desk"]).ok();
    for (to, role) in [("role:writer", "writer"), ("team:desk", "proofreader")] {
        let id = gateway.admin(&["delegate", to, "x"]).ok().out;
        let task = gateway.task(id.trim());
        let hint = task["waiting"][0]["hint"].as_str().unwrap();
        assert!(hint.contains(&format!("`exeat worker --role {role} -- CMD`")), "{hint}");
        let made = hint.split('`').find(|c| c.starts_with("exeat key create")).unwrap();
        let typed: Vec<&str> = made.split_whitespace().skip(1).collect();
        assert!(gateway.admin(&typed).ok().out.starts_with("exk_"), "{hint}");
    }
}

#[test]
fn a_key_that_may_only_hand_out_work_may_wait_for_its_own() {
    let gateway = Gateway::start(&[]);
    let _writer = gateway.worker("writer", &["--text"], &["tr", "a-z", "A-Z"]);
    let key = gateway.key(&["--name", "ci", "--scope", "requester"]);
    let line = ["delegate", "role:writer", "hello", "--wait", "--timeout", "30s"];
    let got = ran(&mut gateway.command(&key, &line)).ok();
    assert_eq!(got.out, "HELLO\n");
    assert_eq!(gateway.json(&["task", "list"])["items"].as_array().unwrap().len(), 1, "one effect");
    let line = ["delegate", "role:nobody", "hello", "--timeout", "300ms"];
    let got = ran(&mut gateway.command(&key, &line));
    assert_eq!(got.code, 5, "{got:?}");
    assert!(got.err.contains("still_waiting: after 300ms the task is running"), "{got:?}");
}

#[test]
fn a_missing_key_is_told_from_a_wrong_one() {
    let gateway = Gateway::start(&[]);
    let without = ran(gateway.command("", &["task", "list", "--json"]).env("EXEAT_DATA", "/nowhere"));
    let problem = without.refused(3, "unauthenticated");
    assert_eq!((&problem["status"], &problem["detail"]), (&json!(401), &json!("no key was given")));
    assert!(problem["next"].as_str().unwrap().contains("--key"), "{problem}");
    let wrong =
        ran(&mut gateway.command("exk_wrong", &["task", "list", "--json"])).refused(3, "unauthenticated");
    assert_eq!(wrong["detail"], "the key that was given isn't valid here");
}

#[test]
fn the_last_records_are_listed_in_order_and_it_is_said_that_there_are_earlier_ones() {
    let gateway = Gateway::start(&[]);
    for role in ["a", "b", "c", "d"] {
        gateway.admin(&["role", "set", role]).ok();
    }
    let seqs = |line: &[&str]| -> Vec<u64> {
        gateway.json(line)["items"].as_array().unwrap().iter().map(|r| r["seq"].as_u64().unwrap()).collect()
    };
    let all = seqs(&["audit", "list"]);
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    let last = all.len() as u64;
    assert_eq!(seqs(&["audit", "list", "--limit", "2"]), [last - 1, last]);
    assert_eq!(seqs(&["audit", "list", "--limit", "2", "--from", "2"]), [2, 3]);
    let kinds = seqs(&["audit", "list", "--kind", "change", "--limit", "1"]);
    assert_eq!(kinds, [last]);
    let listed = gateway.admin(&["audit", "list", "--limit", "2"]).ok();
    assert!(listed.err.contains("earlier records aren't shown"), "{listed:?}");
    assert!(!gateway.admin(&["audit", "list"]).ok().err.contains("aren't shown"));
}

#[test]
fn the_first_of_two_yeses_says_that_it_counted_and_who_is_missing() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let both = "\n@id(\"a\") @approval(\"ops\") forbid (principal, action == Action::\"a2a_egress\", resource);\n\
        @id(\"b\") @approval(\"legal\") forbid (principal, action == Action::\"a2a_egress\", resource);\n";
    let text = std::fs::read_to_string(STARTER).unwrap() + both;
    gateway.admin(&["policy", "push", &gateway.file("p.cedar", &text)]).ok();
    let id = gateway.begin(&["hello"]);
    let approval = gateway.pending_approval()["approval_id"].as_str().unwrap().to_owned();
    let first = gateway.second(&["approval", "approve", &approval, "--yes"]).ok().out;
    assert!(first.contains("your yes counted") && first.contains("as legal"), "{first}");
    let key = gateway.key(&["--name", "counsel", "--scope", "approver", "--approver-role", "legal"]);
    let last = ran(&mut gateway.command(&key, &["approval", "approve", &approval, "--yes"])).ok().out;
    assert_eq!(last, format!("approved {approval}\n"));
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");
}

#[test]
fn a_hop_to_an_agent_that_was_revoked_meanwhile_says_so() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "1h")], &[]);
    let id = gateway.begin(&["!later 1h\nhello"]);
    gateway.task_when(&id, "the hop is out", |t| t["steps"][0]["hops"][0]["foreign_task_id"].is_string());
    gateway.admin(&["agent", "revoke", "auditor", "--reason", "key leaked"]).ok();
    let task = gateway.task(&id);
    let hint = task["waiting"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("is revoked") && hint.contains(&format!("`exeat task cancel {id}`")), "{hint}");
}

#[test]
fn a_budget_that_is_too_small_is_named_with_what_the_hop_costs() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &["--price", "600"]);
    gateway.admin(&["budget", "set", "agent:auditor", "1000", "--period", "day"]).ok();
    assert_eq!(gateway.delegate(&["hello"]).0, 0);
    let told = gateway.delegate(&["hello"]).1;
    let message = told["reason"]["message"].as_str().unwrap();
    for named in ["budget of agent:auditor", "$0.0006"] {
        assert!(message.contains(named), "{named} in {message}");
    }
}

#[test]
fn a_question_tells_its_worker_what_it_has_cost_so_far() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &["--price", "500"]);
    gateway.admin(&["role", "set", "writer", "--may", "agent:auditor"]).ok();
    let script = r#"read -r line
        case "$line" in
          *'"kind":"REPLY"'*) printf '{"output":{"data":%s}}' "$line" ;;
          *) printf '{"suspend":{"continuation":1,"delegations":[{"id":"q","to":"agent:auditor","input":"!ask Which?\\nx"}]}}' ;;
        esac"#;
    let _writer = gateway.worker("writer", &[], &["sh", "-c", script]);
    let done = gateway.json(&["delegate", "role:writer", "x", "--wait", "--timeout", "30s"]);
    let reply = &done["output"]["data"]["replies"][0];
    assert_eq!(
        (&reply["status"], &reply["cost_microusd"]),
        (&json!("awaiting_input"), &json!(500)),
        "{done}"
    );
}

#[test]
fn a_log_as_text_in_a_file_has_no_colours() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_LOG_FORMAT", "text")], &[]);
    assert_eq!(gateway.delegate(&["hello"]).0, 0);
    let log = until("a line of the log", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("serve.log")).unwrap();
        log.contains("INFO").then_some(log)
    });
    assert!(!log.contains('\u{1b}'), "{log}");
}
