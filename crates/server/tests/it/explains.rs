//! Why a hop that was made was let out, held or denied, and what would be said of it now.

use exeat_core::principal::KeyScope;
use serde_json::{Value, json};

use crate::rig::{Rig, post};

const FORBIDS: &str = r#"
@id("internal") permit (principal, action == Action::"forward", resource);
@id("foreign") permit (principal, action in [Action::"a2a_egress", Action::"a2a_ingress"], resource);
@id("closed") @reason("Nothing goes there any more.")
forbid (principal, action == Action::"a2a_egress", resource == Agent::"careful");
"#;

async fn explain(rig: &Rig, hop: &Value) -> Value {
    let asked = post("/api/v1/policy/explain", &json!({ "hop_id": hop }));
    rig.call(asked.key(&rig.admin)).await.is(200)
}

async fn hop(rig: &Rig, to: &str) -> (Value, Value) {
    let task = rig.start(&json!({ "to": to, "input": "hello" })).await;
    let task = rig.task(&task["task_id"]).await;
    (task["steps"][0]["hops"][0]["hop_id"].clone(), task["task_id"].clone())
}

#[tokio::test]
async fn a_hop_is_explained_as_it_was_judged_and_as_it_would_be_now() {
    let rig = Rig::new().await;
    let (hop, task) = hop(&rig, "agent:careful").await;
    let records = rig.records().await.len();
    let told = explain(&rig, &hop).await;
    assert_eq!((&told["hop_id"], &told["task_id"]), (&hop, &task));
    assert_eq!((&told["decision"], &told["policy_version"]), (&json!("require_approval"), &json!("0.1")));
    assert_eq!(told["policies"], json!([{ "id": "careful-asks", "reason": "Careful wants a look." }]));
    assert_eq!((&told["roles"], &told["reason"]), (&json!(["ops"]), &Value::Null));
    let context = &told["context"];
    assert_eq!((&context["action"], &context["resource"]["id"]), (&json!("a2a_egress"), &json!("careful")));
    assert_eq!(context["context"]["parts"], json!(["text"]));
    assert!(context["context"]["size_bytes"].as_u64().unwrap() > 10, "{context}");
    assert_eq!(told["now"]["decision"], "require_approval");
    let [judged] = told["judgements"].as_array().unwrap().as_slice() else { panic!("{told}") };
    assert_eq!((&judged["dir"], &judged["turn"]), (&json!("a2a_egress"), &json!(1)));

    rig.policy(2, FORBIDS).await;
    let told = explain(&rig, &hop).await;
    // What was said then keeps the words of the policy that said it.
    assert_eq!(told["policies"], json!([{ "id": "careful-asks", "reason": "Careful wants a look." }]));
    assert_eq!((&told["now"]["decision"], &told["now"]["policy_version"]), (&json!("deny"), &json!("0.2")));
    assert_eq!(told["now"]["policies"][0]["reason"], "Nothing goes there any more.");
    assert_eq!(told["now"]["reason"]["code"], "denied_by_policy");
    assert_eq!(rig.records().await.len(), records, "nothing was changed");
    assert_eq!(rig.task(&task).await["status"], "awaiting_approval");
}

#[tokio::test]
async fn each_judgement_of_a_hop_is_listed_and_a_hard_rule_has_its_sentence() {
    let rig = Rig::new().await;
    let (done, _) = hop(&rig, "agent:auditor").await;
    let told = explain(&rig, &done).await;
    assert_eq!(
        (&told["decision"], &told["policies"][1]["id"]),
        (&json!("allow"), &json!("foreign")),
        "{told}"
    );
    let above = json!({ "to": "agent:auditor", "input": "hello", "label": "restricted" });
    let task = rig.start(&above).await;
    let task = rig.task(&task["task_id"]).await;
    assert_eq!(task["status"], "denied");
    let told = explain(&rig, &task["steps"][0]["hops"][0]["hop_id"]).await;
    assert_eq!((&told["decision"], &told["reason"]["code"]), (&json!("deny"), &json!("label_above_ceiling")));
    assert_eq!(told["policies"][0]["id"], "label_above_ceiling");
    assert!(told["policies"][0]["reason"].as_str().unwrap().contains("above what the receiver"), "{told}");
    assert_eq!(told["label"]["level"], "restricted");
    assert_eq!(told["now"]["reason"]["code"], "label_above_ceiling");
}

#[tokio::test]
async fn only_who_may_read_is_told_why() {
    let rig = Rig::new().await;
    let (hop, _) = hop(&rig, "agent:auditor").await;
    let requester = rig.key("asker", &[KeyScope::Requester], "internal", |_| {}).await;
    let asked = post("/api/v1/policy/explain", &json!({ "hop_id": hop }));
    rig.call(asked.key(&requester)).await.problem(403, "scope_missing");
}
