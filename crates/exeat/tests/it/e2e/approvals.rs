//! Policies that are pushed while the server runs: denied, asked for, allowed; and approvals that let out exactly
//! the bytes that a person saw.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub, ending, until};

const PERMITS: &str = r#"
@id("internal") permit (principal, action == Action::"forward", resource);
@id("foreign") permit (principal, action in [Action::"a2a_egress", Action::"a2a_ingress"], resource);
@id("admin") permit (principal is Key, action in [Action::"declassify", Action::"register_agent", Action::"sign_posture"], resource)
  when { principal.scopes.contains("admin") };
"#;

const DENY: &str = r#"
@id("no-foreign") @reason("nothing leaves on my watch")
forbid (principal, action == Action::"a2a_egress", resource);
"#;

const ASK: &str = r#"
@id("ask-first") @approval("ops") @reason("a person sees what leaves")
forbid (principal, action == Action::"a2a_egress", resource);
"#;

fn push(gateway: &Gateway, policy: &str) {
    let file = gateway.file("policy.cedar", &format!("{PERMITS}{policy}"));
    gateway.admin(&["policy", "push", &file]).ok();
}

/// A gateway that asks before anything leaves.
fn asking(stub: &Stub, settings: &[(&str, &str)]) -> Gateway {
    let gateway = Gateway::to(&stub.url, settings, &[]);
    push(&gateway, ASK);
    gateway
}

fn id_of(approval: &Value) -> String {
    approval["approval_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_policy_counts_from_its_push_on() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    push(&gateway, DENY);
    let denied = gateway.admin(&["delegate", "agent:auditor", "hello", "--wait"]);
    assert_eq!(denied.code, 1, "{denied:?}");
    let line = denied.err.lines().find(|l| l.starts_with("error: denied_by_policy: ")).unwrap_or_default();
    assert!(line.contains("nothing leaves on my watch") && line.contains("; "), "{denied:?}");
    let (_, told) = gateway.delegate(&["hello"]);
    assert_eq!(ending(&told), ("denied".into(), "denied_by_policy".into()));
    assert_ne!(told["reason"]["next"].as_str().unwrap_or_default(), "", "{told}");

    push(&gateway, ASK);
    let asked = gateway.begin(&["hello"]);
    let approval = gateway.pending_approval();
    assert_eq!(approval["task_id"], asked);
    assert_eq!(stub.seen()["accepts"], 0);

    push(&gateway, "");
    let (code, allowed) = gateway.delegate(&["hello"]);
    assert_eq!((code, &allowed["status"]), (0, &json!("completed")), "{allowed}");
    assert_eq!(stub.seen()["sends"], 1);
    gateway.records();
}

#[test]
fn what_is_sent_is_what_was_approved_byte_for_byte() {
    let stub = Stub::start(&[]);
    let gateway = asking(&stub, &[]);
    let id = gateway.begin(&["héllo 🦀", "--data", r#"{"b":1.0,"a":[1e2,"\u20ac"]}"#]);
    let approval = gateway.pending_approval();
    assert_eq!(stub.seen()["accepts"], 0, "nobody decided yet");
    let waiting = &gateway.task(&id)["waiting"][0];
    assert_eq!((&waiting["for"], &waiting["ref"]), (&json!("approval"), &approval["approval_id"]));

    let shown = gateway.second(&["approval", "show", &id_of(&approval), "--json"]).ok().json();
    let (content, digest) = (shown["content"].as_str().unwrap(), shown["digest"].as_str().unwrap());
    assert_eq!(content, r#"{"parts":[{"text":"héllo 🦀"},{"data":{"a":[100,"€"],"b":1}}]}"#);
    assert_eq!(shown["because"], json!([{"id": "ask-first", "reason": "a person sees what leaves"}]));
    let approved = gateway.second(&["approval", "approve", &id_of(&approval), "--digest", digest, "--json"]);
    assert_eq!(approved.ok().json()["status"], "approved");
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");

    let messages = stub.messages();
    assert_eq!(messages.len(), 1);
    let parts = json!({"parts": messages[0]["parts"]});
    assert_eq!(serde_json_canonicalizer::to_string(&parts).unwrap(), content);
    gateway.records();
}

#[test]
fn a_requester_never_approves_its_own_request() {
    let stub = Stub::start(&[]);
    let gateway = asking(&stub, &[]);
    let both = ["--name", "both", "--scope", "requester", "--scope", "approver", "--scope", "viewer"];
    let key = gateway.key(&[&both[..], &["--approver-role", "ops"]].concat());
    let ran = |line: &[&str]| crate::exeat::ran(&mut gateway.command(&key, line));
    ran(&["delegate", "agent:auditor", "hello"]).ok();
    let id = id_of(&gateway.pending_approval());
    ran(&["approval", "approve", &id, "--yes", "--json"]).refused(3, "own_request");
    // Whoever holds no approver role can't either.
    let other = gateway.key(&["--name", "other", "--scope", "approver"]);
    let refused =
        crate::exeat::ran(&mut gateway.command(&other, &["approval", "approve", &id, "--yes", "--json"]));
    refused.refused(3, "role_missing");
    assert_eq!(stub.seen()["accepts"], 0);
}

#[test]
fn what_an_approver_denies_never_leaves() {
    let stub = Stub::start(&[]);
    let gateway = asking(&stub, &[]);
    let id = gateway.begin(&["hello"]);
    let approval = id_of(&gateway.pending_approval());
    gateway.second(&["approval", "deny", &approval, "--reason", "names a customer"]).ok();
    let task = gateway.ended(&id);
    assert_eq!(ending(&task), ("denied".into(), "approval_denied".into()));
    assert_eq!(stub.seen()["accepts"], 0);
    // It was decided: nothing turns it round.
    gateway.second(&["approval", "approve", &approval, "--yes", "--json"]).refused(3, "approval_decided");
}

#[test]
fn an_approval_that_nobody_gives_expires() {
    let stub = Stub::start(&[]);
    let gateway = asking(&stub, &[("EXEAT_APPROVAL_TTL", "500ms")]);
    let (code, told) = gateway.delegate(&["hello"]);
    assert_eq!((code, ending(&told)), (1, ("denied".into(), "approval_expired".into())));
    assert_eq!(stub.seen()["accepts"], 0);
}

#[test]
fn an_entry_that_changed_after_the_approval_was_asked_needs_a_new_one() {
    let stub = Stub::start(&[]);
    let gateway = asking(&stub, &[]);
    let id = gateway.begin(&["hello"]);
    let old = gateway.pending_approval();
    gateway.admin(&["agent", "set", "auditor", "--region", "eu"]).ok();
    gateway.admin(&["agent", "sign", "auditor"]).ok();
    let decided = gateway.second(&["approval", "approve", &id_of(&old), "--yes"]);
    let new = until("a new approval", || {
        let page = gateway.second(&["approval", "list", "--json"]).ok().json();
        page["items"].get(0).filter(|a| a["approval_id"] != old["approval_id"]).cloned()
    });
    assert_eq!((&new["task_id"], &new["supersedes"]), (&json!(id), &old["approval_id"]), "{decided:?}");
    assert_ne!(new["digest"], old["digest"]);
    assert_eq!(stub.seen()["accepts"], 0);
    gateway.second(&["approval", "approve", &id_of(&new), "--yes"]).ok();
    assert_eq!(ending(&gateway.ended(&id)).0, "completed");
    gateway.records();
}
