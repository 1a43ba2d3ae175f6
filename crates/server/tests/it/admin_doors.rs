//! Every door there is: who may pass, what is described, what health says.

use std::collections::{BTreeMap, BTreeSet};

use exeat_core::principal::KeyScope;
use exeat_server::openapi::{all, document};
use serde_json::{Value, json};

use crate::admin_rig::{Call, Rig, call, get};

fn concrete(path: &str) -> String {
    path.replace("{id}", "0197f3a0-0000-7000-8000-000000000001")
        .replace("{callback_id}", "AAAAAAAAAAAAAAAAAAAAAA")
        .replace("{scope}", "org")
        .replace("{key}", "peer")
        .replace("{name}", "writer")
}

fn bare(method: &str, path: &str) -> Call {
    call(&method.to_ascii_uppercase(), &concrete(path))
}

#[tokio::test]
async fn each_scope_passes_the_doors_that_name_it_and_no_others() {
    let rig = Rig::several().await;
    let mut keys = BTreeMap::new();
    for scope in KeyScope::ALL {
        keys.insert(scope, rig.key(scope.as_str(), &[scope]).await);
    }
    for route in all().filter(|r| !r.scopes.is_empty()) {
        rig.call(bare(route.method, route.path)).await.problem(401, "unauthenticated");
        for (scope, key) in &keys {
            let answer = rig.call(bare(route.method, route.path).key(key)).await;
            if route.scopes.contains(scope) {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{scope:?} {route:?} {answer:?}");
            } else {
                answer.problem(403, "scope_missing");
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_scope_is_told_before_anything_that_was_said_is_read() {
    let rig = Rig::several().await;
    let mut keys = BTreeMap::new();
    for scope in KeyScope::ALL {
        keys.insert(scope, rig.key(scope.as_str(), &[scope]).await);
    }
    let big = vec![b' '; 6 * 1_048_576];
    for route in all().filter(|r| !r.scopes.is_empty()) {
        let (_, key) = keys.iter().find(|(scope, _)| !route.scopes.contains(scope)).unwrap();
        let method = route.method.to_ascii_uppercase();
        let nowhere = route.path.replace(['{', '}'], "");
        for path in [concrete(route.path), nowhere, format!("{}?nope=1", concrete(route.path))] {
            for (media, body) in [
                ("application/json", b"{".to_vec()),
                ("application/json", br#"{"nope":1}"#.to_vec()),
                ("text/html", b"x".to_vec()),
                ("application/json", big.clone()),
            ] {
                let said = call(&method, &path).key(key).with("idempotency-key", "\t").body(media, body);
                rig.call(said).await.problem(403, "scope_missing");
            }
        }
    }
}

#[tokio::test]
async fn another_orgs_things_are_not_there() {
    let rig = Rig::single().await;
    rig.agent("peer").await;
    let scopes: Vec<_> = KeyScope::ALL.into_iter().collect();
    let alien = rig.key_with("alien", &scopes, |k| k.org = "other".parse().unwrap()).await;
    for path in ["/api/v1/agents/peer", "/api/v1/workflows/w"] {
        rig.call(get(path).key(&alien)).await.problem(404, "not_found");
    }
    for path in ["/api/v1/agents", "/api/v1/ledger", "/api/v1/keys"] {
        let page = rig.call(get(path).key(&alien)).await.is(200);
        assert_eq!(page["items"], json!([]), "{path}");
    }
}

#[tokio::test]
async fn what_is_described_is_there_and_what_is_there_is_described() {
    let rig = Rig::several().await;
    let mut methods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for route in all() {
        methods.entry(route.path).or_default().insert(route.method.to_ascii_uppercase());
    }
    for (path, described) in &methods {
        let answer = rig.call(bare("trace", path)).await;
        answer.problem(405, "method_not_allowed");
        let allowed = answer.headers["allow"].to_str().unwrap();
        let there: BTreeSet<String> = allowed.split(',').map(str::to_owned).filter(|m| m != "HEAD").collect();
        assert_eq!(&there, described, "{path}");
    }
    // A path that the table lacks shows in the sources.
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    for file in std::fs::read_dir(sources).unwrap() {
        let path = file.unwrap().path();
        let Some("rs") = path.extension().and_then(|e| e.to_str()) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        for after in text.split(".route(").skip(1) {
            let route = after.split('"').nth(1).unwrap();
            // Others are calls of a method of that name.
            assert!(
                !route.starts_with('/') || methods.contains_key(route),
                "{route} of {path:?} isn't described"
            );
        }
    }
}

#[tokio::test]
async fn the_description_is_whole() {
    let rig = Rig::several().await;
    let served = rig.call(get("/openapi.json")).await.is(200);
    assert_eq!(served, document());
    assert_eq!(served["openapi"], "3.1.0");
    let schemas = served["components"]["schemas"].as_object().unwrap();
    assert!(schemas.len() > 50);
    let mut referred = BTreeSet::new();
    collect(&served, &mut referred);
    for name in &referred {
        assert!(schemas.contains_key(name), "{name} isn't there");
    }
    for name in schemas.keys() {
        assert!(referred.contains(name), "nothing refers to {name}");
    }
}

fn collect(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(r)) = members.get("$ref") {
                into.insert(r.rsplit('/').next().unwrap().to_owned());
            }
            members.values().for_each(|v| collect(v, into));
        }
        Value::Array(items) => items.iter().for_each(|v| collect(v, into)),
        _ => {}
    }
}

#[tokio::test]
async fn an_answer_has_the_members_that_its_description_demands() {
    let rig = Rig::single().await;
    let agent = rig.agent("peer").await;
    let schemas = document()["components"]["schemas"].clone();
    let egress = rig.admin(get("/api/v1/egress")).await.is(200);
    let role = rig.admin(get("/api/v1/roles/writer")).await.is(200);
    let record = rig.admin(get("/api/v1/ledger")).await.is(200)["items"][0].clone();
    let key = rig.admin(get("/api/v1/keys")).await.is(200)["items"][0].clone();
    let verification = rig.admin(get("/api/v1/ledger/verify")).await.is(200);
    for (name, answer, is_closed) in [
        ("Agent", &agent, true),
        ("Egress", &egress, true),
        ("Role", &role, true),
        ("Record", &record, true),
        ("Key", &key, true),
        ("Verification", &verification, true),
    ] {
        let mut parts = vec![schemas[name].clone()];
        parts.extend(schemas[name]["allOf"].as_array().into_iter().flatten().cloned());
        let required = parts.iter().flat_map(|p| p["required"].as_array().cloned().unwrap_or_default());
        for member in required {
            assert!(answer.get(member.as_str().unwrap()).is_some(), "{name}: {member} of {answer}");
        }
        let described: BTreeSet<&String> =
            parts.iter().filter_map(|p| p["properties"].as_object()).flat_map(|p| p.keys()).collect();
        for member in answer.as_object().unwrap().keys() {
            assert!(!is_closed || described.contains(member), "{name}: {member} isn't described");
        }
    }
}

#[tokio::test]
async fn nothing_and_the_wrong_method_are_problems_too() {
    let rig = Rig::several().await;
    rig.call(get("/api/v1/nothing")).await.problem(404, "not_found");
    rig.call(get("/")).await.problem(404, "not_found");
    rig.call(call("PATCH", "/api/v1/agents/peer")).await.problem(405, "method_not_allowed");
    let path = "/api/v1/roles/writer";
    rig.admin(call("PUT", path).body("text/plain", "{}")).await.problem(415, "unsupported_media_type");
    rig.admin(call("PUT", path).body("application/json", "{")).await.problem(400, "bad_json");
    let big = vec![b' '; 6 * 1_048_576];
    rig.admin(call("PUT", path).body("application/json", big)).await.problem(413, "payload_too_large");
}

#[tokio::test]
async fn health_is_told_as_it_is() {
    let rig = Rig::several().await;
    rig.call(get("/healthz")).await.is(200);
    rig.call(get("/readyz")).await.problem(503, "store_unavailable");
    rig.app.runtime.run(rig.app.ports.clone());
    while rig.app.runtime.swept_at().is_none() {
        tokio::task::yield_now().await;
    }
    rig.call(get("/readyz")).await.is(200);
    rig.app.runtime.stopping().cancel();
    rig.call(get("/readyz")).await.problem(503, "shutting_down");
}
