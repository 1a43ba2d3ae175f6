//! Looking at an agent for an operator.

use exeat_core::gate::exeat::{Carry, Interface};
use exeat_core::payload::Sha256Digest;
use exeat_core::principal::KeyScope;
use exeat_core::time::Span;
use exeat_core::transport::{Auth, Probed, ProbedCard};
use serde_json::json;

use crate::admin_rig::{Rig, call, get, nobody, post, put};

const PROBE: &str = "/api/v1/agents/peer/probe";

async fn rig(mode: &str) -> Rig {
    let rig = Rig::single().await;
    rig.agent("peer").await;
    set(&rig, mode).await;
    rig
}

async fn set(rig: &Rig, mode: &str) {
    rig.admin(put("/api/v1/egress", &json!({ "mode": mode, "reason": "r" }))).await.is(200);
}

async fn sign(rig: &Rig) {
    let agent = rig.admin(get("/api/v1/agents/peer")).await.is(200);
    rig.admin(post("/api/v1/agents/peer/sign", &Rig::signature(&agent))).await.is(200);
}

#[tokio::test]
async fn a_probe_is_recorded_as_an_act_and_shows_what_would_be_used() {
    let rig = rig("on").await;
    sign(&rig).await;
    let interface = Interface {
        url: "https://peer.example/rpc".into(),
        binding: "JSONRPC".into(),
        version: "1.0".into(),
        tenant: None,
    };
    *rig.scout.says.lock().unwrap() = Some(Probed {
        reachable: true,
        card: Some(ProbedCard {
            found_at: "https://peer.example/.well-known/agent-card.json".into(),
            digest: Sha256Digest::of(b"card"),
            name: "Peer".into(),
            skills: vec!["review".into()],
        }),
        would_use: Some((interface, "the first that is spoken".into())),
        auth: Auth::Ok,
        push_claimed: true,
        latency: Span::of_millis(12),
        problems: Vec::new(),
    });
    let probe = rig.admin(post(PROBE, &json!({ "reason": "before the go-live" }))).await.is(200);
    let expected = json!({
        "reachable": true,
        "card": { "found_at": "https://peer.example/.well-known/agent-card.json",
            "digest": Sha256Digest::of(b"card"), "name": "Peer", "skills": ["review"] },
        "would_use": { "url": "https://peer.example/rpc", "protocol": "1.0", "binding": "JSONRPC",
            "why": "the first that is spoken" },
        "auth": "ok", "push": "claimed", "latency_ms": 12, "problems": [],
    });
    assert_eq!(probe, expected);
    let acts = rig.records("operator").await;
    let [act] = acts.as_slice() else { panic!("{acts:?}") };
    assert_eq!((&act["data"]["act"], &act["data"]["target"]), (&json!("discover"), &json!("peer")));
    assert_eq!(act["actor"]["type"], "key");
    assert!(act["data"]["reason"].as_str().unwrap().starts_with("sha256s:"));
    assert_eq!(rig.scout.seen.lock().unwrap().as_slice(), [("peer".to_owned(), 1, Carry::Credential)]);
}

#[tokio::test]
async fn a_probe_of_an_entry_that_isnt_signed_may_show_no_credential() {
    let rig = rig("on").await;
    assert_eq!(rig.admin(call("POST", PROBE)).await.is(200)["reachable"], false);
    sign(&rig).await;
    rig.admin(post("/api/v1/agents/peer/disable", &json!({}))).await.is(200);
    rig.admin(call("POST", PROBE)).await.is(200);
    let seen: Vec<_> = rig.scout.seen.lock().unwrap().iter().map(|s| s.2).collect();
    assert_eq!(seen, [Carry::Nothing, Carry::Nothing]);
}

#[tokio::test]
async fn nobody_is_looked_at_while_a_switch_forbids_it_and_the_refusal_is_recorded() {
    let rig = rig("halt").await;
    sign(&rig).await;
    let mut why = Vec::new();
    for mode in ["halt", "drain", "off"] {
        set(&rig, mode).await;
        let problem = rig.admin(call("POST", PROBE)).await.problem(403, "destination_not_allowed");
        assert!(!problem["next"].as_str().unwrap().contains("may"), "{problem}");
        why.push(match mode {
            "off" => "egress_off",
            "drain" => "egress_draining",
            _ => "egress_halted",
        });
    }
    set(&rig, "on").await;
    rig.admin(post("/api/v1/agents/peer/halt", &json!({}))).await.is(200);
    rig.admin(call("POST", PROBE)).await.problem(403, "destination_not_allowed");
    rig.admin(post("/api/v1/agents/peer/resume", &json!({}))).await.is(200);
    rig.admin(post("/api/v1/agents/peer/revoke", &json!({}))).await.is(200);
    rig.admin(call("POST", PROBE)).await.problem(403, "destination_not_allowed");
    why.extend(["agent_halted", "agent_revoked"]);
    let refused = rig.records("refused").await;
    assert!(refused.iter().all(|r| r["data"]["what"] == "probe"), "{refused:?}");
    let told: Vec<_> = refused.iter().map(|r| r["data"]["why"].as_str().unwrap()).collect();
    assert_eq!(told, why);
    assert!(rig.records("operator").await.is_empty());
    assert!(rig.scout.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_operator_looks_and_nobody_else_and_only_at_what_is_registered() {
    let rig = rig("on").await;
    let admin = rig.key("only-admin", &[KeyScope::Admin]).await;
    rig.call(call("POST", PROBE).key(&admin)).await.problem(403, "scope_missing");
    rig.admin(call("POST", "/api/v1/agents/nobody/probe")).await.problem(404, "not_found");
    assert!(rig.records("refused").await.is_empty() && rig.records("operator").await.is_empty());
}

#[tokio::test]
async fn a_probe_that_is_sent_again_with_its_key_looks_once() {
    let rig = rig("on").await;
    let ask = || post(PROBE, &json!({})).with("idempotency-key", "k1");
    let first = rig.admin(ask()).await.is(200);
    *rig.scout.says.lock().unwrap() = Some(Probed { reachable: true, ..nobody() });
    let again = rig.admin(ask()).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.is(200), first);
    assert_eq!(rig.scout.seen.lock().unwrap().len(), 1);
}
