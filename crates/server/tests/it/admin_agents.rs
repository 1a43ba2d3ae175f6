//! The registry's doors.

use exeat_core::principal::KeyScope;
use serde_json::{Value, json};

use crate::admin_rig::{Rig, get, id_of, post, put};

#[tokio::test]
async fn an_entry_is_created_once_shown_with_its_defaults_and_changed_on_what_was_seen() {
    let rig = Rig::several().await;
    let agent = rig.agent("peer").await;
    for (member, value) in [
        ("status", json!("pending_review")),
        ("version", json!(1)),
        ("provider", json!("a2a")),
        ("protocol", json!("auto")),
        ("skills", json!([])),
        ("credential", Value::Null),
        ("plaintext", json!(false)),
        ("ceiling", json!({ "level": "internal", "tags": [] })),
        ("redaction", json!("off")),
        ("callback_trust", json!("confirm")),
        ("context", json!("auto")),
        ("dedup", json!("none")),
        ("push", json!("auto")),
        ("price", json!({ "estimate_microusd": 0, "cap_microusd": null, "rule": "estimate" })),
        ("deadline", Value::Null),
        ("max_in_flight", json!(16)),
        ("signed_by", json!([])),
        ("four_eyes", json!(false)),
        ("halted", json!(false)),
    ] {
        assert_eq!(agent[member], value, "{member}");
    }
    let path = "/api/v1/agents/peer";
    let body = json!({ "url": "https://peer.example", "ceiling": "internal", "plaintext": true });
    rig.admin(put(path, &body).with("if-none-match", "*")).await.problem(409, "exists");
    rig.admin(put(path, &body).with("if-match", "\"7\"")).await.problem(409, "version_conflict");
    rig.admin(put(path, &body)).await.problem(422, "invalid");
    rig.admin(put(path, &body).with("if-match", "x")).await.problem(422, "invalid");
    let changed = rig.admin(put(path, &body).with("if-match", "\"1\"")).await;
    assert_eq!(changed.headers["etag"], "\"2\"");
    assert_eq!(changed.is(200)["version"], 2);
    assert_eq!(rig.admin(get(path)).await.is(200)["plaintext"], true);
    rig.admin(get("/api/v1/agents/none")).await.problem(404, "not_found");
}

#[tokio::test]
async fn what_cant_be_registered_is_pointed_to() {
    let rig = Rig::several().await;
    for (change, status, code, pointer) in [
        (json!({ "url": "ftp://x" }), 422, "invalid", "/url"),
        (json!({ "url": "https://a:b@x.example" }), 422, "invalid", "/url"),
        (json!({ "allow_cidrs": ["10.0.0.0/99"] }), 422, "invalid", "/allow_cidrs"),
        (json!({ "allow_origins": ["nonsense"] }), 422, "invalid", "/allow_origins"),
        (json!({ "ceiling": "secret" }), 422, "bad_label", "/ceiling"),
        (json!({ "colour": "red" }), 422, "unknown_member", "/colour"),
        (json!({ "price": { "colour": 1 } }), 422, "unknown_member", "/price/colour"),
        (
            json!({ "price": { "estimate_microusd": 5, "cap_microusd": 4 } }),
            422,
            "invalid",
            "/price/cap_microusd",
        ),
        (json!({ "token_in_query": true, "callback_trust": "body" }), 422, "invalid", "/token_in_query"),
        (json!({ "provider": "claude" }), 422, "invalid", "/provider"),
        (json!({ "max_in_flight": 0 }), 422, "invalid", "/max_in_flight"),
    ] {
        let mut body = json!({ "url": "https://peer.example", "ceiling": "internal" });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let call = put("/api/v1/agents/peer", &body).with("if-none-match", "*");
        let problem = rig.admin(call).await.problem(status, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{change}: {problem}");
    }
    assert_eq!(rig.admin(get("/api/v1/agents")).await.is(200)["items"], json!([]));
}

#[tokio::test]
async fn a_posture_is_signed_by_two_persons_and_a_change_of_it_unsigns() {
    let rig = Rig::several().await;
    let agent = rig.agent("peer").await;
    let sign = |by: Value| post("/api/v1/agents/peer/sign", &by);
    rig.admin(sign(Rig::signature(&agent))).await.problem(403, "four_eyes_required");
    let made =
        rig.admin(post("/api/v1/keys", &json!({ "name": "child", "scopes": ["admin"] }))).await.is(201);
    let child = made["key"].as_str().unwrap();
    rig.call(sign(Rig::signature(&agent)).key(child)).await.problem(403, "four_eyes_required");
    let stale = json!({ "version": 2, "posture_digest": agent["posture_digest"] });
    rig.second(sign(stale)).await.problem(409, "posture_changed");
    let signed = rig.second(sign(Rig::signature(&agent))).await.is(200);
    assert_eq!((&signed["status"], &signed["four_eyes"]), (&json!("active"), &json!(true)));
    assert_eq!(signed["signed_by"], json!([id_of(&rig.second)]));
    // Other terms leave the signature, another posture takes it.
    let mut body = json!({ "url": "https://peer.example", "ceiling": "internal", "max_in_flight": 3 });
    let next = rig.admin(put("/api/v1/agents/peer", &body).with("if-match", "\"1\"")).await.is(200);
    assert_eq!((&next["version"], &next["status"]), (&json!(2), &json!("active")));
    body["ceiling"] = json!("public");
    let next = rig.admin(put("/api/v1/agents/peer", &body).with("if-match", "\"2\"")).await.is(200);
    assert_eq!((&next["version"], &next["status"]), (&json!(3), &json!("pending_review")));
    assert_eq!(next["signed_by"], json!([]));
    let changes = rig.records("change").await;
    let four: Vec<_> =
        changes.iter().filter(|r| r["data"]["what"] == "agent").map(|r| &r["data"]["four_eyes"]).collect();
    assert_eq!(four, [false, true, false, false]);
}

#[tokio::test]
async fn one_person_signs_in_single_operator_mode_and_the_record_says_so() {
    let rig = Rig::single().await;
    let agent = rig.agent("peer").await;
    let signed = rig.admin(post("/api/v1/agents/peer/sign", &Rig::signature(&agent))).await.is(200);
    assert_eq!((&signed["status"], &signed["four_eyes"]), (&json!("active"), &json!(false)));
    assert_eq!(rig.records("change").await.last().unwrap()["data"]["four_eyes"], false);
}

#[tokio::test]
async fn an_entry_is_switched_and_the_reason_lies_beside_the_ledger() {
    let rig = Rig::single().await;
    let agent = rig.agent("peer").await;
    rig.admin(post("/api/v1/agents/peer/sign", &Rig::signature(&agent))).await.is(200);
    for (act, status, halted) in [
        ("disable", "disabled", false),
        ("enable", "active", false),
        ("halt", "active", true),
        ("halt", "active", true),
        ("resume", "active", false),
        ("revoke", "revoked", false),
    ] {
        let path = format!("/api/v1/agents/peer/{act}");
        let shown = rig.admin(post(&path, &json!({ "reason": "a private word" }))).await.is(200);
        assert_eq!((&shown["status"], &shown["halted"]), (&json!(status), &json!(halted)), "{act}");
    }
    rig.admin(post("/api/v1/agents/peer/enable", &json!({}))).await.problem(422, "invalid");
    rig.admin(post("/api/v1/agents/peer/explode", &json!({}))).await.problem(404, "not_found");
    rig.admin(post("/api/v1/agents/none/halt", &json!({}))).await.problem(404, "not_found");
    let changes = rig.records("change").await;
    let reason = changes.last().unwrap()["data"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("sha256s:"));
    assert!(!changes.iter().any(|r| r.to_string().contains("private")));
    let note = rig.app.archive.note(&rig.org, reason).await.unwrap();
    assert_eq!(note.as_deref(), Some("a private word"));
}

#[tokio::test]
async fn policy_has_a_say_in_the_registry() {
    let rig = Rig::single().await;
    let policy = "@id(\"only-forward\") permit (principal, action == Action::\"forward\", resource);";
    rig.admin(put("/api/v1/policy", &json!({ "policy": policy }))).await.is(200);
    let body = json!({ "url": "https://peer.example", "ceiling": "internal" });
    let call = put("/api/v1/agents/peer", &body).with("if-none-match", "*");
    rig.admin(call).await.problem(403, "denied_by_policy");
}

#[tokio::test]
async fn pages_go_through_all_entries_in_order() {
    let rig = Rig::single().await;
    for key in ["c", "a", "b"] {
        rig.agent(key).await;
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/agents?limit=2".to_owned();
    loop {
        let page = rig.admin(get(&path)).await.is(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|a| a["key"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => path = format!("/api/v1/agents?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
    rig.admin(get("/api/v1/agents?limit=0")).await.problem(422, "invalid");
    rig.admin(get("/api/v1/agents?cursor=!")).await.problem(400, "bad_cursor");
    rig.admin(get("/api/v1/agents?colour=red")).await.problem(422, "unknown_member");
}

#[tokio::test]
async fn the_same_request_twice_is_one_change_and_one_answer() {
    let rig = Rig::several().await;
    let made = |name: &str| post("/api/v1/keys", &json!({ "name": name, "scopes": ["viewer"] }));
    let first = rig.admin(made("x").with("idempotency-key", "k1")).await;
    let again = rig.admin(made("x").with("idempotency-key", "k1")).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let (first, again) = (first.is(201), again.is(201));
    assert_eq!(first["key_id"], again["key_id"]);
    assert!(first["key"].is_string() && again["key"].is_null(), "a key is shown once");
    rig.admin(made("y").with("idempotency-key", "k1")).await.problem(422, "idempotency_mismatch");
    rig.admin(made("y").with("idempotency-key", "")).await.problem(422, "invalid");
    let other = rig.second(made("x").with("idempotency-key", "k1")).await.is(201);
    assert_ne!(first["key_id"], other["key_id"], "another caller's key is another key");
    rig.clock.pass(exeat_core::time::Span::of_secs(86_400));
    let later = rig.admin(made("x").with("idempotency-key", "k1")).await.is(201);
    assert_ne!(first["key_id"], later["key_id"], "after a day it is forgotten");
    let names = rig.admin(get("/api/v1/keys?limit=200")).await.is(200);
    assert_eq!(names["items"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_key_that_is_revoked_or_expired_or_wrong_holds_no_more() {
    let rig = Rig::several().await;
    let in_a_minute = rig.app.ports.clock.now() + exeat_core::time::Span::of_secs(60);
    let brief = rig.key_with("brief", &[KeyScope::Admin], |k| k.expires_at = Some(in_a_minute)).await;
    rig.call(get("/api/v1/keys").key(&brief)).await.is(200);
    rig.clock.pass(exeat_core::time::Span::of_secs(60));
    rig.call(get("/api/v1/keys").key(&brief)).await.problem(401, "unauthenticated");
    let path = format!("/api/v1/keys/{}", id_of(&rig.second));
    assert_eq!(rig.admin(crate::admin_rig::call("DELETE", &path)).await.status, 204);
    assert_eq!(rig.admin(crate::admin_rig::call("DELETE", &path)).await.status, 204);
    rig.second(get("/api/v1/keys")).await.problem(401, "unauthenticated");
    let mut wrong = rig.admin.clone();
    wrong.replace_range(wrong.len() - 2.., "AA");
    for bad in [wrong.as_str(), "", "exk_a_b", "nonsense", &rig.admin[1..]] {
        let answer = rig.call(get("/api/v1/keys").key(bad)).await;
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        answer.problem(401, "unauthenticated");
    }
    rig.call(get("/api/v1/keys")).await.problem(401, "unauthenticated");
    let last = format!("/api/v1/keys/{}", id_of(&rig.admin));
    rig.admin(crate::admin_rig::call("DELETE", &last)).await.problem(422, "invalid");
    rig.admin(crate::admin_rig::call("DELETE", "/api/v1/keys/none")).await.problem(404, "not_found");
}
