//! What agents make of the message that they are sent, and what they answer.

use std::time::Duration;

use serde_json::{Value, json};

use super::peer::{Agent, shown};
use super::script::{Call, GET, Generation, SEND, Says, Scripted};
use super::{NO_LOOKS, came_back_once, hop, taken};
use crate::hard::http::Request;
use crate::hard::rig::{Gateway, records, until};

const BOTH: [Generation; 2] = [Generation::V1, Generation::V03];

fn before(agent: &Scripted, flags: &[&str]) -> Gateway {
    Gateway::with_agent(&[], "auditor", &agent.url, flags)
}

/// A task of one delegation to the agent.
fn begin(gateway: &Gateway, input: &str) -> String {
    gateway.begin(&json!({"to": "agent:auditor", "input": input}))
}

/// Its status and its reason.
fn ending(task: &Value) -> (String, String) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (text(&task["status"]), text(&task["reason"]["code"]))
}

/// A task of the 0.3 generation.
fn old(state: &str, text: &str) -> Value {
    json!({
        "kind": "task", "id": "t1", "contextId": "c1", "status": { "state": state },
        "artifacts": [{ "artifactId": "a", "parts": [{ "kind": "text", "text": text }] }],
    })
}

/// Where a message said to push.
fn door(params: &Value) -> (String, String) {
    let config = &params["configuration"];
    let config = config.get("taskPushNotificationConfig").unwrap_or(&config["pushNotificationConfig"]);
    let text = |member: &str| config[member].as_str().unwrap().to_owned();
    (text("url"), text("token"))
}

fn push(gateway: &Gateway, (url, token): &(String, String), body: &Value) -> Request {
    let path = url.splitn(4, '/').last().unwrap();
    let push = gateway.request("POST", &format!("/{path}")).header("x-a2a-notification-token", token);
    push.body("application/a2a+json", body.to_string())
}

#[test]
fn o_send_01_a_message_as_answer_ends_the_hop_at_once() {
    for generation in BOTH {
        let agent = Scripted::start(generation, true, move |_| {
            Says::Result(match generation {
                Generation::V1 => json!({ "message":
                    { "messageId": "m9", "role": "ROLE_AGENT", "parts": [{ "text": "42" }] } }),
                Generation::V03 => json!({ "kind": "message", "messageId": "m9", "role": "agent",
                    "parts": [{ "kind": "text", "text": "42" }] }),
            })
        });
        let gateway = before(&agent, &[]);
        let task = begin(&gateway, "sum");
        came_back_once(&gateway, &task, "42");
        let late = json!({ "task": shown("t1", "FAILED", "late") });
        taken(&push(&gateway, &door(&agent.sends()[0]), &late).must());
        came_back_once(&gateway, &task, "42");
        assert_eq!(hop(&gateway, &task)["state"], "completed");
        assert_eq!((agent.sends().len(), agent.looks()), (1, 0), "{generation:?}");
    }
}

#[test]
fn o_send_02_the_whole_content_arrives_in_order_and_a_file_stays_a_reference() {
    let agent = Scripted::start(Generation::V1, false, |_| {
        let file = json!({ "url": "https://peer.test/f.pdf", "mediaType": "application/pdf" });
        Says::Result(json!({ "task": {
            "id": "t1", "contextId": "c1",
            "status": { "state": "TASK_STATE_COMPLETED", "message":
                { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "summary" }] } },
            "artifacts": [{ "artifactId": "a1", "name": "out",
                "parts": [{ "text": "body" }, { "data": { "n": 1 } }, file] }],
        } }))
    });
    let gateway = before(&agent, &[]);
    let ended = gateway.ended(&begin(&gateway, "all of it"));
    assert_eq!(ending(&ended), ("completed".into(), String::new()), "{ended:#}");
    let parts = ended["output"]["parts"].as_array().unwrap();
    let texts: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
    assert_eq!((parts.len(), texts.len()), (4, 2), "{parts:?}");
    let of_artifact = &ended["output"]["artifacts"][0];
    assert_eq!((&of_artifact["id"], &of_artifact["count"]), (&json!("a1"), &json!(3)), "{ended:#}");
    let from = usize::try_from(of_artifact["first"].as_u64().unwrap()).unwrap();
    assert_eq!(parts[from]["text"], "body", "{ended:#}");
    assert_eq!(parts[from + 1]["data"], json!({ "n": 1 }));
    assert_eq!(parts[from + 2]["url"], "https://peer.test/f.pdf");
    assert!(texts.contains(&"summary"), "{parts:?}");
    assert_eq!(agent.calls().len(), 1, "nothing was fetched");
}

#[test]
fn o_send_03_a_second_attempt_carries_the_same_message_id_and_the_same_parts() {
    for generation in BOTH {
        let agent = Scripted::start(generation, false, |call| {
            if call.nth == 0 {
                return Says::Status(503);
            }
            let mut task = old("completed", "ok");
            task["id"] = json!(format!("t{}", call.nth));
            Says::Result(task)
        });
        let gateway = before(&agent, &[]);
        came_back_once(&gateway, &begin(&gateway, "hello"), "ok");
        let sends = agent.sends();
        assert_eq!(sends.len(), 2, "{sends:?}");
        assert!(sends[0]["message"]["messageId"].as_str().is_some_and(|id| !id.is_empty()));
        assert_eq!(sends[0]["message"], sends[1]["message"]);
        came_back_once(&gateway, &begin(&gateway, "hello"), "ok");
        let ids: Vec<Value> = agent.sends().iter().map(|s| s["message"]["messageId"].clone()).collect();
        assert_ne!(ids[1], ids[2], "another hop, another message");
    }
}

#[test]
fn o_send_04_work_whose_answer_was_lost_is_never_sent_under_another_id_and_resumes_once() {
    let agent = Scripted::start(Generation::V03, true, |call| {
        if call.is(SEND) { Says::HangsUp } else { Says::Result(old("completed", "first")) }
    });
    let gateway = Gateway::with_agent(&[("EXEAT_HOP_UNKNOWN_GRACE", "1h")], "auditor", &agent.url, &[]);
    let task = begin(&gateway, "once");
    let door = door(&agent.sent(1)[0]);
    until("the send is unknown", Duration::from_secs(30), || {
        (hop(&gateway, &task)["state"] == "send_unknown").then_some(())
    });
    taken(&push(&gateway, &door, &old("completed", "first")).must());
    let mut second = old("completed", "second");
    second["id"] = json!("t2");
    push(&gateway, &door, &second).must();
    let ended = gateway.ended(&task);
    assert_eq!(ending(&ended), ("completed".into(), String::new()), "{ended:#}");
    let edges = records(&gateway.export().0);
    let came_in = edges.iter().filter(|r| r["task"] == task && r["data"]["dir"] == "a2a_ingress");
    assert_eq!(came_in.count(), 1);
    let shown = hop(&gateway, &task);
    assert_eq!(shown["attempts"][0]["outcome"], "ambiguous", "{shown:#}");
    assert_eq!(agent.sends().len(), 1);
}

#[test]
fn o_send_05_a_task_without_any_content_is_one_that_goes_on() {
    for (n, more) in
        [json!({}), json!({ "message": null }), json!({ "message": { "parts": [] } })].into_iter().enumerate()
    {
        let agent = Scripted::start(Generation::V03, true, move |call| {
            let mut task = json!({ "kind": "task", "id": "t1", "contextId": "c1", "status": more });
            task["status"]["state"] = json!("submitted");
            if n == 0 {
                (task["history"], task["artifacts"]) = (json!([]), Value::Null);
            }
            Says::Result(if call.is(GET) { old("completed", "at last") } else { task })
        });
        let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &[]);
        let task = begin(&gateway, "go");
        until("the agent has it", Duration::from_secs(30), || {
            (hop(&gateway, &task)["state"] == "working").then_some(())
        });
        let running = gateway.task(&task);
        assert_eq!((&running["status"], &running["output"]), (&json!("running"), &Value::Null));
        taken(&push(&gateway, &door(&agent.sends()[0]), &old("completed", "at last")).must());
        came_back_once(&gateway, &task, "at last");
    }
}

#[test]
fn o_send_06_an_answer_in_the_other_generations_shape_is_understood() {
    for generation in BOTH {
        let agent = Scripted::start(generation, false, move |_| {
            Says::Result(match generation {
                Generation::V1 => old("completed", "ok"),
                Generation::V03 => json!({ "task": shown("t1", "COMPLETED", "ok") }),
            })
        });
        let gateway = before(&agent, &[]);
        came_back_once(&gateway, &begin(&gateway, "hello"), "ok");
    }
}

#[test]
fn o_send_07_an_answer_in_no_shape_fails_shortly_and_is_passed_to_nobody() {
    let wrapped =
        json!({ "Task": { "id": "t1", "history": [{ "parts": [{ "text": "hearsay" }] }] }, "snapshot": {} });
    let bodies = [
        json!({ "jsonrpc": "2.0", "result": wrapped }),
        json!({ "jsonrpc": "2.0", "result": null }),
        json!({ "jsonrpc": "2.0", "result": [] }),
        json!({ "jsonrpc": "2.0", "hearsay": "hearsay" }),
        json!(["hearsay"]),
    ];
    for generation in BOTH {
        let said = bodies.clone();
        let agent = Scripted::start(generation, false, move |call| Says::Body(said[call.nth].clone()));
        let gateway = before(&agent, &[]);
        for body in &bodies {
            let ended = gateway.ended(&begin(&gateway, "hello"));
            assert_eq!(ending(&ended), ("failed".into(), "invalid_response".into()), "{body}: {ended:#}");
            assert_eq!(ended["output"], Value::Null);
            assert!(!ended.to_string().contains("hearsay"), "{ended:#}");
        }
        assert!(!gateway.export().0.contains("hearsay"));
    }
}

#[test]
fn o_send_08_canceled_is_one_ending_however_it_is_spelt() {
    let spelt = [
        (Generation::V1, "TASK_STATE_CANCELED"),
        (Generation::V1, "TASK_STATE_CANCELLED"),
        (Generation::V03, "canceled"),
        (Generation::V03, "cancelled"),
    ];
    for (generation, state) in spelt {
        let agent = Scripted::start(generation, false, move |_| {
            let mut task = old(state, "");
            task["status"]["state"] = json!(state);
            Says::Result(if generation == Generation::V1 { json!({ "task": task }) } else { task })
        });
        let gateway = before(&agent, &[]);
        let task = begin(&gateway, "hello");
        let ended = gateway.ended(&task);
        assert_eq!(ending(&ended), ("rejected".into(), "foreign_canceled".into()), "{state}: {ended:#}");
        assert_eq!(hop(&gateway, &task)["state"], "canceled_by_peer");
    }
}

#[test]
fn o_send_09_the_words_of_a_failure_are_a_reason_and_go_to_nobody_else() {
    for state in ["failed", "rejected"] {
        let failing = Scripted::start(Generation::V03, false, move |_| {
            let words = json!([{ "kind": "text", "text": "db password rejected" }]);
            let message = json!({ "kind": "message", "messageId": "m", "role": "agent", "parts": words });
            Says::Result(json!({ "kind": "task", "id": "t1", "contextId": "c1",
                "status": { "state": state, "message": message } }))
        });
        let next = Scripted::start(Generation::V03, false, |_| Says::Result(old("completed", "acted")));
        let gateway = Gateway::with_agent(&[], "b", &failing.url, &[]);
        gateway.agent("c", &next.url, &[]);
        gateway.does(&["role", "set", "a"]);
        let flow = "name: chain\nsteps:\n  a: { to: role:a, input: go }\n  \
            b: { to: agent:b, needs: [a], input: \"${{ steps.a.output }}\" }\n  \
            c: { to: agent:c, needs: [b], input: \"${{ steps.b.output }}\" }\n";
        gateway.does(&["workflow", "push", &gateway.file("chain.yaml", flow)]);
        let _a = gateway.worker(&gateway.worker_key(&["a"]), "a", &["--text"], &["cat"]);
        let ended = gateway.ended(&gateway.begin(&json!({"workflow": "chain", "input": "x"})));
        assert_eq!(ended["status"], state, "{ended:#}");
        assert_eq!((failing.sends().len(), next.calls().len()), (1, 0));
        assert_eq!(ended["output"], Value::Null, "{ended:#}");
        let told = ended["steps"][1]["hops"][0]["reason"]["message"].as_str().unwrap();
        assert!(told.contains("(db password rejected)"), "{ended:#}");
    }
}

/// An agent that asks, and is content with any answer.
fn asking(call: &Call, asked: &str) -> Says {
    if call.is(GET) {
        return Says::Error(-32001);
    }
    if call.params["message"]["taskId"].is_string() {
        return Says::Result(old("completed", "thanks"));
    }
    let parts = json!([{ "kind": "text", "text": asked }]);
    let message = json!({ "kind": "message", "messageId": "q", "role": "agent", "parts": parts });
    let mut task = old("input-required", "");
    task["artifacts"] = json!([]);
    task["status"]["message"] = message;
    Says::Result(task)
}

fn question(gateway: &Gateway, task: &str) -> String {
    until("a question", Duration::from_secs(30), || {
        hop(gateway, task)["question"]["question_id"].as_str().map(str::to_owned)
    })
}

fn edges_out(gateway: &Gateway, task: &str) -> usize {
    let all = records(&gateway.export().0);
    all.iter()
        .filter(|r| r["task"] == task && r["kind"] == "edge" && r["data"]["dir"] == "a2a_egress")
        .count()
}

#[test]
fn o_send_10_an_answer_names_the_task_and_the_conversation_and_is_an_edge_of_its_own() {
    let agent = Scripted::start(Generation::V03, false, |call| asking(call, "Which currency?"));
    let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &["--price", "100"]);
    let task = begin(&gateway, "12.50");
    let body = json!({"question_id": question(&gateway, &task), "input": "CAD"});
    assert_eq!(gateway.post(&format!("/tasks/{task}/answer"), &body).status, 202);
    let ended = gateway.ended(&task);
    assert_eq!(ended["output"]["text"], "thanks", "{ended:#}");
    let [first, second] = &agent.sends()[..] else { panic!("{:?}", agent.sends()) };
    assert_eq!((&second["message"]["taskId"], &second["message"]["contextId"]), (&json!("t1"), &json!("c1")));
    assert_ne!(first["message"]["messageId"], second["message"]["messageId"]);
    assert_eq!((edges_out(&gateway, &task), &ended["cost_microusd"]), (2, &json!(200)));
}

#[test]
fn o_send_11_only_an_answer_to_its_question_goes_on_a_waiting_task() {
    let agent = Scripted::start(Generation::V03, false, |call| {
        if call.nth > 0 && !call.params["message"]["taskId"].is_string() {
            return Says::Result(json!({ "kind": "message", "messageId": "m", "role": "agent",
                "parts": [{ "kind": "text", "text": "summarised" }] }));
        }
        asking(call, "Delete all? yes/no")
    });
    let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &[]);
    let waiting = begin(&gateway, "clean up");
    question(&gateway, &waiting);
    came_back_once(&gateway, &begin(&gateway, "yes, summarise the report"), "summarised");
    let [_, second] = &agent.sends()[..] else { panic!("{:?}", agent.sends()) };
    assert!(second["message"].get("taskId").is_none(), "{second}");
    assert_eq!(gateway.task(&waiting)["status"], "awaiting_input");
}

#[test]
fn o_send_12_the_agents_conversation_is_named_from_its_first_answer_on_and_inside_the_message() {
    for (generation, flags) in [(Generation::V03, &[][..]), (Generation::V1, &["--context", "theirs"][..])] {
        let agent = Scripted::start(generation, false, move |call| {
            let mut said = asking(call, "more?");
            if let Says::Result(task) = &mut said {
                task["contextId"] = json!("c77");
            }
            said
        });
        let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, flags);
        let task = begin(&gateway, "first");
        let body = json!({"question_id": question(&gateway, &task), "input": "more"});
        assert_eq!(gateway.post(&format!("/tasks/{task}/answer"), &body).status, 202);
        gateway.ended(&task);
        let [first, second] = &agent.sends()[..] else { panic!("{:?}", agent.sends()) };
        assert!(first["message"].get("contextId").is_none() && first.get("contextId").is_none(), "{first}");
        assert_eq!(second["message"]["contextId"], "c77");
        assert!(second.get("contextId").is_none(), "{second}");
    }
}

#[test]
fn o_send_13_every_send_asks_for_an_answer_at_once_and_one_that_blocks_is_unknown_in_time() {
    let agent = Scripted::start(Generation::V03, false, |_| Says::Result(old("completed", "ok")));
    let gateway = before(&agent, &[]);
    gateway.ended(&begin(&gateway, "hello"));
    assert_eq!(agent.sends()[0]["configuration"]["blocking"], json!(false));
    let agent = Scripted::start(Generation::V1, false, |_| Says::Result(old("completed", "ok")));
    let gateway = before(&agent, &[]);
    gateway.ended(&begin(&gateway, "hello"));
    assert_eq!(agent.sends()[0]["configuration"]["returnImmediately"], json!(true));
    // It blocks all the same, for longer than a send may take.
    let blocking = Agent::start();
    let gateway = Gateway::with_agent(&[("EXEAT_HOP_UNKNOWN_GRACE", "1h")], "auditor", &blocking.url, &[]);
    blocking.hold();
    let task = begin(&gateway, "hello");
    until("the send is given up as unknown", Duration::from_secs(30), || {
        (hop(&gateway, &task)["attempts"][0]["outcome"] == "ambiguous").then_some(())
    });
    let t = blocking.task(1);
    blocking.shows(&t, "COMPLETED", "late but good");
    taken(&blocking.pushes(&t, "COMPLETED", "late but good"));
    came_back_once(&gateway, &task, "late but good");
    blocking.release();
}

#[test]
fn o_send_14_the_callback_is_told_in_the_generations_own_place_and_only_to_who_pushes() {
    for (generation, place, elsewhere) in [
        (Generation::V1, "taskPushNotificationConfig", "pushNotificationConfig"),
        (Generation::V03, "pushNotificationConfig", "taskPushNotificationConfig"),
    ] {
        let agent = Scripted::start(generation, true, |_| Says::Result(old("completed", "ok")));
        let gateway = before(&agent, &[]);
        gateway.ended(&begin(&gateway, "hello"));
        let config = agent.sends()[0]["configuration"].clone();
        let told = &config[place];
        assert!(told["url"].as_str().unwrap().contains("/api/v1/a2a/callback/"), "{config}");
        assert!(told["token"].as_str().unwrap().starts_with("ec1."), "{config}");
        assert!(config.get(elsewhere).is_none(), "{config}");
        if generation == Generation::V1 {
            assert!(told["authentication"]["scheme"].is_string(), "{config}");
        }
        let polled = Scripted::start(generation, false, |call| {
            Says::Result(if call.is(SEND) { old("working", "") } else { old("completed", "polled") })
        });
        let gateway = before(&polled, &[]);
        came_back_once(&gateway, &begin(&gateway, "hello"), "polled");
        let config = polled.sends()[0]["configuration"].clone();
        assert!(config.get(place).is_none() && config.get(elsewhere).is_none(), "{config}");
    }
}
