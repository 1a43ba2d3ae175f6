//! Steps that run over a list or are tried again: each run goes its own way, and the step is what they give together.

use serde_json::{Value, json};

use crate::e2e::rig::{Gateway, Stub};

const TRANSLATE: &str = r#"
name: translate-all
steps:
  translate:
    to: agent:auditor
    for_each: { in: "${{ input.data.documents }}", max: 3 }
    input: "${{ item.send }}"
    retry: { attempts: 2, backoff: 1s }
    fallback: role:writer
  collect:
    to: role:publisher
    needs: [translate]
    input: "${{ steps.translate.output.data[0].text }}/${{ steps.translate.output.data[1].text }}/${{ steps.translate.output.data[2].text }}"
output: "${{ steps.collect.output }}"
"#;

fn run(gateway: &Gateway, workflow: &str, input: &Value) -> Value {
    let input = input.to_string();
    let ran = ["run", workflow, "--input", &input, "--wait", "--timeout", "60s", "--json"];
    gateway.admin(&ran).json()
}

#[test]
fn each_element_goes_its_own_way_and_the_step_gives_them_in_their_order() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &["--price", "100"]);
    gateway.admin(&["workflow", "push", &gateway.file("w.yaml", TRANSLATE)]).ok();
    let _writer = gateway.worker("writer", &["--text"], &["printf", "by the fallback"]);
    let _publisher = gateway.worker("publisher", &["--text"], &["cat"]);
    let documents = json!([{"send": "!later 1s\nfirst"}, {"send": "!fail no\nsecond"}, {"send": "third"}]);
    let ran = run(&gateway, "translate-all", &json!({ "documents": documents }));
    assert_eq!(ran["status"], "completed", "{ran:#}");
    assert_eq!(ran["output"]["text"], "first/by the fallback/third");

    let task = gateway.task(ran["task_id"].as_str().unwrap());
    let step = &task["steps"][0];
    assert_eq!(step["elements"], json!({"total": 3, "over": 3}));
    assert_eq!((&step["tainted"], &task["steps"][1]["tainted"]), (&json!(false), &json!(true)));
    // Two tries of the second element, one of each other; the fallback is a hop to a role.
    assert_eq!(step["hops"].as_array().unwrap().len(), 4, "{step:#}");
    assert_eq!(stub.messages().len(), 4);
    assert_eq!(task["cost_microusd"], 400);
    let sent = gateway.edges().iter().filter(|e| e.starts_with("a2a_egress")).count();
    assert_eq!(sent, 4);
    gateway.admin(&["audit", "verify"]).ok();
}

#[test]
fn a_list_is_bounded_may_be_empty_and_one_bad_end_ends_the_step() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[("EXEAT_HOP_POLL_FIRST", "200ms")], &[]);
    let text = TRANSLATE.split("  collect:").next().unwrap().replace("    fallback: role:writer\n", "");
    let text = format!("{text}output: {{ data: \"${{{{ steps.translate.output.data }}}}\" }}\n");
    gateway.admin(&["workflow", "push", &gateway.file("w.yaml", &text)]).ok();

    let none = run(&gateway, "translate-all", &json!({ "documents": [] }));
    assert_eq!((&none["status"], &none["output"]["data"]), (&json!("completed"), &json!([])));
    let one = json!({"send": "x"});
    let many = run(&gateway, "translate-all", &json!({ "documents": [one, one, one, one] }));
    assert_eq!(many["reason"]["code"], "expression_failed", "{many:#}");
    assert!(many["reason"]["message"].as_str().unwrap().contains("it takes 3 at most"), "{many:#}");
    let no_list = run(&gateway, "translate-all", &json!({ "documents": "x" }));
    assert_eq!(no_list["reason"]["code"], "expression_failed", "{no_list:#}");
    assert_eq!(stub.seen()["accepts"], 0, "nothing has left so far");

    let bad = json!([{"send": "!later 1h\nfirst"}, {"send": "!reject not this one\nsecond"}]);
    let bad = run(&gateway, "translate-all", &json!({ "documents": bad }));
    assert_eq!((&bad["status"], &bad["reason"]["code"]), (&json!("rejected"), &json!("foreign_rejected")));
    let task = gateway.task(bad["task_id"].as_str().unwrap());
    let states: Vec<&str> =
        task["steps"][0]["hops"].as_array().unwrap().iter().map(|h| h["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["canceled_by_us", "rejected", "rejected"]);
}

#[test]
fn a_role_that_fails_is_tried_again_as_an_edge_of_its_own() {
    let stub = Stub::start(&[]);
    let gateway = Gateway::to(&stub.url, &[], &[]);
    let text = "name: again\nsteps:\n  a: { to: role:writer, retry: { attempts: 2, backoff: 1s } }\n";
    gateway.admin(&["workflow", "push", &gateway.file("w.yaml", text)]).ok();
    let began = gateway.file("began", "");
    let once = format!("if test -s {began}; then cat; else echo . > {began}; exit 65; fi");
    let _writer = gateway.worker("writer", &["--text"], &["sh", "-c", &once]);
    let ran = gateway.json(&["run", "again", "--text", "hello", "--wait", "--timeout", "60s"]);
    assert_eq!((&ran["status"], &ran["output"]["text"]), (&json!("completed"), &json!("hello")));
    let forward = "forward coordinator -> role:writer";
    assert_eq!(gateway.edges(), [forward, forward]);
    gateway.admin(&["audit", "verify"]).ok();
}
