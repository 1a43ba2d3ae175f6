//! Roles, switch, policy, workflows, budgets, costs, orgs.

use serde_json::{Value, json};

use crate::admin_rig::{Rig, call, get, post, put};

#[tokio::test]
async fn a_role_is_set_whole_and_an_unknown_one_counts_as_the_default() {
    let rig = Rig::several().await;
    let unknown = rig.admin(get("/api/v1/roles/writer")).await.is(200);
    assert_eq!(unknown["clearance"]["level"], "internal");
    assert_eq!(unknown["may"], json!([]));
    let body = json!({ "clearance": "confidential+eu", "may": ["agent:peer"], "teams": ["press"] });
    let set = rig.admin(put("/api/v1/roles/writer", &body)).await.is(200);
    assert_eq!(set["clearance"], json!({ "level": "confidential", "tags": ["eu"] }));
    assert_eq!(rig.admin(get("/api/v1/roles")).await.is(200)["items"], json!([set]));
    let cleared = rig.admin(put("/api/v1/roles/writer", &json!({}))).await.is(200);
    assert_eq!(cleared["may"], json!([]));
    let bad = json!({ "may": ["https://x"] });
    let problem = rig.admin(put("/api/v1/roles/writer", &bad)).await.problem(422, "invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/may/0");
    rig.admin(put("/api/v1/roles/Writer", &json!({}))).await.problem(404, "not_found");
}

#[tokio::test]
async fn egress_is_let_on_by_two_and_halted_by_one() {
    let rig = Rig::several().await;
    let wish = |mode: &str| put("/api/v1/egress", &json!({ "mode": mode, "reason": "why" }));
    let mode = async || rig.admin(get("/api/v1/egress")).await.is(200)["mode"].clone();
    assert_eq!(mode().await, "off");
    rig.admin(wish("on")).await.problem(403, "four_eyes_required");
    rig.admin(wish("on")).await.problem(403, "four_eyes_required");
    assert_eq!(mode().await, "off");
    let on = rig.second(wish("on")).await.is(200);
    assert_eq!((&on["mode"], &on["effective"]), (&json!("on"), &json!("on")));
    assert_eq!(mode().await, "on");
    let halted = rig.admin(wish("halt")).await.is(200);
    assert_eq!((&halted["exeats_out"], &halted["out_until"]), (&json!(0), &Value::Null));
    rig.second(wish("on")).await.problem(403, "four_eyes_required");
    assert_eq!(rig.admin(wish("on")).await.is(200)["mode"], "on");
    assert_eq!(rig.admin(wish("off")).await.is(200)["mode"], "off");
    rig.admin(put("/api/v1/egress", &json!({ "mode": "on", "reason": " " }))).await.problem(422, "invalid");
    rig.admin(put("/api/v1/egress", &json!({ "mode": "up", "reason": "x" }))).await.problem(422, "invalid");
    rig.admin(get("/api/v1/egress?scope=platform")).await.problem(422, "invalid");
    let words: Vec<_> = rig
        .records("change")
        .await
        .iter()
        .map(|r| (r["data"]["after"].clone(), r["data"]["four_eyes"].clone()))
        .collect();
    let expected = [
        ("proposed", false),
        ("proposed", false),
        ("on", true),
        ("halt", false),
        ("proposed", false),
        ("on", true),
        ("off", false),
    ];
    assert_eq!(words, expected.map(|(w, f)| (json!(w), json!(f))));
}

#[tokio::test]
async fn one_person_lets_egress_on_in_single_operator_mode() {
    let rig = Rig::single().await;
    let wish = json!({ "mode": "on", "reason": "why" });
    assert_eq!(rig.admin(put("/api/v1/egress", &wish)).await.is(200)["mode"], "on");
}

const FORWARD: &str = "@id(\"f\")\npermit (principal, action == Action::\"forward\", resource);";

#[tokio::test]
async fn a_policy_counts_once_two_have_pushed_it_and_its_faults_have_places() {
    let rig = Rig::several().await;
    let push = |text: &str| call("PUT", "/api/v1/policy").body("text/plain; charset=utf-8", text);
    rig.admin(push(FORWARD)).await.problem(403, "four_eyes_required");
    assert_eq!(rig.second(push(FORWARD)).await.is(200), json!({ "version": 2, "warnings": [] }));
    assert_eq!(rig.admin(push(FORWARD)).await.is(200)["version"], 2);
    let shown = rig.admin(get("/api/v1/policy")).await.is(200);
    assert_eq!((&shown["version"], &shown["policy"]), (&json!(2), &json!(FORWARD)));
    let broken = "@id(\"a\")\npermit (principal, action, resourc);";
    let problem = rig.admin(push(broken)).await.problem(422, "bad_policy");
    assert_eq!(problem["errors"][0]["line"], 2);
    assert!(problem["errors"][0]["column"].as_u64().unwrap() > 1);
    rig.admin(call("PUT", "/api/v1/policy").body("text/html", "x"))
        .await
        .problem(415, "unsupported_media_type");
    let check = |text: &str| post("/api/v1/policy/check", &json!({ "policy": text }));
    let sound = rig.admin(check(FORWARD)).await.is(200);
    assert_eq!((&sound["ok"], &sound["errors"]), (&json!(true), &json!([])));
    let faulty = rig.admin(check(broken)).await.is(200);
    assert_eq!((&faulty["ok"], &faulty["errors"][0]["line"]), (&json!(false), &json!(2)));
    let missing = rig.admin(check("permit (principal, action, resource);")).await.is(200);
    assert_eq!(missing["ok"], false, "a policy without @id");
}

#[tokio::test]
async fn an_explanation_says_what_would_become_of_a_hop_and_changes_nothing() {
    let rig = Rig::single().await;
    let agent = rig.agent("peer").await;
    let before = rig.store.rows(&rig.org).len();
    let ask = |to: &str, more: Value| {
        let mut body = json!({ "to": to, "input": "hello" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post("/api/v1/policy/explain", &body)
    };
    let forward = rig.admin(ask("role:writer", json!({}))).await.is(200);
    assert_eq!(forward["decision"], "allow");
    assert_eq!(forward["policies"][1], json!({ "id": "starter-internal", "reason": null }), "{forward}");
    assert_eq!(forward["context"]["context"]["size_bytes"], 28, "{forward}");
    let unsigned = rig.admin(ask("agent:peer", json!({}))).await.is(200);
    assert_eq!(
        (&unsigned["decision"], &unsigned["reason"]["code"]),
        (&json!("deny"), &json!("posture_unsigned"))
    );
    assert_eq!(rig.store.rows(&rig.org).len(), before);
    rig.admin(post("/api/v1/agents/peer/sign", &Rig::signature(&agent))).await.is(200);
    rig.admin(put("/api/v1/egress", &json!({ "mode": "on", "reason": "x" }))).await.is(200);
    assert_eq!(rig.admin(ask("agent:peer", json!({}))).await.is(200)["decision"], "allow");
    let high = rig.admin(ask("agent:peer", json!({ "label": "restricted" }))).await.is(200);
    assert_eq!(high["reason"]["code"], "label_above_ceiling");
    let role = ask("agent:peer", json!({ "as": "role:writer" }));
    rig.admin(role).await.problem(403, "destination_not_allowed");
    rig.admin(put("/api/v1/roles/writer", &json!({ "may": ["agent:peer"] }))).await.is(200);
    let may = rig.admin(ask("agent:peer", json!({ "as": "role:writer" }))).await.is(200);
    assert_eq!(may["context"]["principal"]["type"], "Role");
    rig.admin(ask("agent:none", json!({}))).await.problem(422, "unknown_destination");
    rig.admin(ask("agent:peer", json!({ "label": "secret" }))).await.problem(422, "bad_label");
    rig.admin(ask("agent:peer", json!({ "as": "somebody" }))).await.problem(422, "invalid");
    let hop = |more: Value| {
        let mut body = json!({ "hop_id": "0197f3a0-0000-7000-8000-000000000001" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post("/api/v1/policy/explain", &body)
    };
    rig.admin(hop(json!({}))).await.problem(404, "not_found");
    let both = rig.admin(hop(json!({ "to": "role:writer" }))).await.problem(422, "invalid");
    assert_eq!(both["errors"][0]["pointer"], "/hop_id");
}

const FLOW: &str = "name: w\nsteps:\n  draft: { to: role:writer }\n";

#[tokio::test]
async fn a_workflow_is_pushed_in_versions_that_never_change() {
    let rig = Rig::several().await;
    let push = |query: &str, text: &str| {
        call("PUT", &format!("/api/v1/workflows/w{query}")).body("application/yaml", text)
    };
    let dry = rig.admin(push("?dry_run=1", FLOW)).await.is(200);
    assert_eq!(dry["version"], 1);
    rig.admin(get("/api/v1/workflows/w")).await.problem(404, "not_found");
    let first = rig.admin(push("", FLOW)).await;
    assert_eq!(first.headers["location"], "/api/v1/workflows/w");
    let first = first.is(201);
    assert_eq!(first, dry);
    assert_eq!(rig.admin(push("", &format!("# again\n{FLOW}"))).await.is(200), first);
    let second = rig.admin(push("", &FLOW.replace("writer", "editor"))).await.is(201);
    assert_eq!(second["version"], 2);
    assert_eq!(rig.admin(get("/api/v1/workflows/w?version=1")).await.is(200)["source"], FLOW);
    assert_eq!(rig.admin(get("/api/v1/workflows/w")).await.is(200)["version"], 2);
    assert_eq!(rig.admin(get("/api/v1/workflows")).await.is(200)["items"].as_array().unwrap().len(), 1);
    rig.admin(get("/api/v1/workflows/w?version=9")).await.problem(404, "not_found");
    let as_json = json!({ "name": "w", "steps": { "draft": { "to": "role:writer" } } });
    assert_eq!(rig.admin(put("/api/v1/workflows/w", &as_json)).await.is(201)["version"], 3);
}

#[tokio::test]
async fn what_a_workflow_may_not_hold_is_refused_with_its_place() {
    let rig = Rig::several().await;
    let step = |rest: &str| format!("name: w\nsteps:\n  a:\n    to: role:writer\n{rest}");
    for (text, code, line) in [
        ("name: w\nsteps:\n  a: { to: agent:nobody }\n".to_owned(), "unknown_destination", 3),
        ("name: w\nsteps:\n  a: { to: \"https://x.example\" }\n".to_owned(), "url_in_workflow", 3),
        (step("    needs: [b]\n"), "bad_workflow", 5),
        (step("    label: secret\n"), "bad_label", 5),
        (step("    for_each: 3\n"), "bad_workflow", 5),
        (step("    colour: red\n"), "bad_workflow", 5),
        ("name: [".to_owned(), "bad_workflow", 1),
    ] {
        let push = call("PUT", "/api/v1/workflows/w").body("application/yaml", text.as_str());
        let problem = rig.admin(push).await.problem(422, code);
        assert_eq!(problem["errors"][0]["line"], line, "{text}: {problem}");
        assert!(problem["errors"][0]["column"].as_u64().is_some(), "{problem}");
    }
    let other = call("PUT", "/api/v1/workflows/other").body("application/yaml", FLOW);
    let problem = rig.admin(other).await.problem(422, "bad_workflow");
    assert_eq!(problem["errors"][0]["pointer"], "/name");
    let html = call("PUT", "/api/v1/workflows/w").body("text/html", FLOW);
    rig.admin(html).await.problem(415, "unsupported_media_type");
    assert_eq!(rig.records("change").await.len(), 0);
}

#[tokio::test]
async fn budgets_costs_orgs_and_dead_letters_answer_as_they_should() {
    let rig = Rig::several().await;
    let body = json!({ "limit_microusd": 5000, "period": "day" });
    for scope in ["org", "agent:peer", "workflow:w"] {
        let set = rig.admin(put(&format!("/api/v1/budgets/{scope}"), &body)).await.is(200);
        assert_eq!((&set["scope"], &set["limit_microusd"]), (&json!(scope), &json!(5000)));
    }
    rig.admin(put("/api/v1/budgets/task:x", &body)).await.problem(404, "not_found");
    let much = json!({ "limit_microusd": u64::MAX });
    rig.admin(put("/api/v1/budgets/org", &much)).await.problem(422, "invalid");
    let costs = rig.admin(get("/api/v1/costs?by=day&from=2026-01-01T00:00:00Z")).await.is(200);
    assert_eq!(costs, json!({ "items": [], "total_microusd": 0 }));
    rig.admin(get("/api/v1/costs?by=weather")).await.problem(422, "invalid");
    rig.admin(get("/api/v1/costs?from=yesterday")).await.problem(422, "invalid");
    assert_eq!(rig.admin(get("/api/v1/orgs")).await.is(200)["items"], json!([{ "name": "main" }]));
    rig.admin(post("/api/v1/orgs", &json!({ "name": "acme" }))).await.problem(409, "single_org");
    assert_eq!(rig.admin(get("/api/v1/dead-letters")).await.is(200)["items"], json!([]));
    let id = "0197f3a0-0000-7000-8000-000000000001";
    rig.admin(get(&format!("/api/v1/dead-letters/{id}"))).await.problem(404, "not_found");
}

#[tokio::test]
async fn each_fault_of_a_workflow_has_its_code_and_their_head_counts_them() {
    let rig = Rig::several().await;
    let push = |name: &str, text: &str| {
        call("PUT", &format!("/api/v1/workflows/{name}?dry_run=1")).body("application/yaml", text)
    };
    let told = |p: &Value| -> Vec<(String, u64, u64)> {
        let place = |e: &Value, m: &str| e[m].as_u64().unwrap();
        let all = p["errors"].as_array().unwrap().iter();
        all.map(|e| (e["code"].as_str().unwrap().to_owned(), place(e, "line"), place(e, "column"))).collect()
    };
    let fault = |code: &str, line, column| (code.to_owned(), line, column);

    let text = "name: X_Y\ncolour: red\nsteps:\n  a: { to: \"https://x.example\" }\n";
    let mixed = rig.admin(push("w", text)).await.problem(422, "url_in_workflow");
    assert_eq!(
        told(&mixed),
        [fault("bad_value", 1, 7), fault("unknown_member", 2, 1), fault("url_in_workflow", 4, 12)]
    );
    assert_eq!(
        mixed["detail"],
        "The workflow has 3 faults: 1 unknown_member, 1 bad_value, 1 url_in_workflow."
    );
    assert_eq!(mixed["next"], "Correct each place that is listed.", "no advice that fits one of them only");

    let one = rig.admin(push("w", "name: w\nsteps:\n  a: { to: \"https://x.example\" }\n")).await;
    let one = one.problem(422, "url_in_workflow");
    assert_eq!(one["detail"], "The workflow has 1 fault: url_in_workflow.");
    assert!(one["next"].as_str().unwrap().contains("agent:KEY"), "{one}");

    let other = rig.admin(push("other", "steps: { a: { to: role:r } }\nname: w\n")).await;
    assert_eq!(told(&other.problem(422, "bad_workflow")), [fault("bad_value", 2, 7)]);
    let schema = "name: w\nsteps:\n  a:\n    to: role:r\n    output_schema: { type: 5 }\n";
    assert_eq!(
        told(&rig.admin(push("w", schema)).await.problem(422, "bad_workflow")),
        [fault("bad_schema", 5, 20)]
    );
}
