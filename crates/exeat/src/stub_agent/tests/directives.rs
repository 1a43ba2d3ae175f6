//! What each directive does to answers and looks.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::super::{StubAgentArgs, Switch};
use super::rig::{Rig, args, eventually, message, message_v03};

const NEVER: &str = "!later 7d";

#[tokio::test]
async fn without_directives_the_parts_come_back_as_they_were() {
    let rig = Rig::plain().await;
    let parts = json!([
        { "text": "a\n!not a directive", "metadata": { "x": 1 } }, { "data": { "n": [1, null] } },
        { "raw": "aGk=", "filename": "f", "mediaType": "a/b" }, { "url": "http://x.test/" },
    ]);
    let params =
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": parts, "contextId": "c9" } });
    let answer = rig.v1("SendMessage", params.clone()).await;
    let task = &answer.json()["result"]["task"];
    assert_eq!(answer.json()["id"], 7);
    assert_eq!(task["contextId"], "c9");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"], json!([{ "artifactId": "a1", "name": "result", "parts": parts }]));
    assert_eq!(task["history"][0]["parts"], params["message"]["parts"]);
    let id = task["id"].as_str().unwrap();
    let seen = rig.seen().await;
    let want = json!({ "accepts": 1, "sends": 1, "gets": 0, "cancels": 0, "message_ids": { "m": 1 }, "tasks": { id: "completed" } });
    assert_eq!(seen, want);
}

#[tokio::test]
async fn the_directive_line_is_not_part_of_the_echo() {
    let rig = Rig::plain().await;
    let task = rig.task("!later 0s\nline one\nline two").await;
    let task = rig.await_state(&task["id"], "TASK_STATE_COMPLETED").await;
    assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "line one\nline two" }]));
}

#[tokio::test]
async fn later_answers_working_without_artifacts_and_completes_by_itself() {
    let rig = Rig::plain().await;
    let never = rig.task(NEVER).await;
    assert_eq!(never["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(never.get("artifacts"), None);
    assert_eq!(rig.look(&never["id"]).await.json()["result"]["status"]["state"], "TASK_STATE_WORKING");
    let soon = rig.task("!later 30ms; say done").await;
    assert_eq!(soon["status"]["state"], "TASK_STATE_WORKING");
    let done = rig.await_state(&soon["id"], "TASK_STATE_COMPLETED").await;
    assert_eq!(done["artifacts"][0]["parts"], json!([{ "text": "done" }]));
}

#[tokio::test]
async fn message_answers_with_a_bare_message_in_either_version() {
    let rig = Rig::plain().await;
    let v1 = rig.send("!message; say 42; data {\"k\":\"a;b\"}").await.json();
    assert_eq!(v1["result"]["message"]["role"], "ROLE_AGENT");
    assert_eq!(v1["result"]["message"]["parts"], json!([{ "text": "42" }, { "data": { "k": "a;b" } }]));
    let v03 = rig.v03("message/send", message_v03("m2", "!message; later 1ms; say 42")).await.json();
    assert_eq!(v03["result"]["kind"], "message");
    assert_eq!(v03["result"]["role"], "agent");
    assert_eq!(v03["result"]["parts"], json!([{ "kind": "text", "text": "42" }]));
    let seen = rig.seen().await;
    assert_eq!((&seen["message_ids"], &seen["tasks"]), (&json!({ "m": 1, "m2": 1 }), &json!({})));
}

#[tokio::test]
async fn a_question_is_answered_by_the_next_message_on_the_task() {
    let rig = Rig::plain().await;
    for (text, state, said) in [
        ("!ask Which currency?", "TASK_STATE_INPUT_REQUIRED", "Which currency?"),
        ("!auth", "TASK_STATE_AUTH_REQUIRED", "Please sign in first."),
    ] {
        let task = rig.task(text).await;
        assert_eq!(task["status"]["state"], state);
        assert_eq!(task["status"]["message"]["parts"], json!([{ "text": said }]));
        assert_eq!(task["status"]["message"]["taskId"], task["id"]);
        let mut answer = message("a", "CAD");
        answer["message"]["taskId"] = task["id"].clone();
        answer["message"]["contextId"] = json!("someone else's");
        assert_eq!(rig.v1("SendMessage", answer.clone()).await.error_code(), -32602);
        answer["message"]["contextId"] = task["contextId"].clone();
        let done = rig.v1("SendMessage", answer.clone()).await.json()["result"]["task"].clone();
        assert_eq!(done["id"], task["id"]);
        assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(done["artifacts"][0]["parts"], json!([{ "text": "CAD" }]));
        assert_eq!(done["history"].as_array().unwrap().len(), 2);
        assert_eq!(rig.v1("SendMessage", answer).await.error_code(), -32004, "it is final");
    }
    let mut lost = message("b", "hello");
    lost["message"]["taskId"] = json!("no such task");
    assert_eq!(rig.v1("SendMessage", lost).await.error_code(), -32001);
}

#[tokio::test]
async fn bad_ends_carry_their_text_and_no_artifact() {
    let rig = Rig::plain().await;
    for (text, state, v03) in [
        ("!reject not mine", "TASK_STATE_REJECTED", "rejected"),
        ("!fail not mine", "TASK_STATE_FAILED", "failed"),
        ("!cancel not mine", "TASK_STATE_CANCELED", "canceled"),
    ] {
        let task = rig.task(text).await;
        assert_eq!(task["status"]["state"], state);
        assert_eq!(task["status"]["message"]["parts"], json!([{ "text": "not mine" }]));
        assert_eq!(task.get("artifacts"), None);
        let old = rig.v03("tasks/get", json!({ "id": task["id"] })).await.json()["result"].clone();
        assert_eq!(old["status"]["state"], v03);
        assert_eq!(old["status"]["message"]["parts"], json!([{ "kind": "text", "text": "not mine" }]));
    }
    assert_eq!(rig.task("!cancel").await["status"].get("message"), None);
}

#[tokio::test]
async fn a_dropped_send_did_its_work_and_the_caller_sees_not_one_byte() {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m", "!drop 2; say x") });
    let body = body.to_string();
    for (dedup, begun, tasks) in [(Switch::Off, 3, 3), (Switch::On, 1, 1)] {
        let rig = Rig::start(StubAgentArgs { dedup, ..args() }).await;
        for _ in 0..2 {
            let bytes = rig.raw("POST", "/rpc", &[("A2A-Version", "1.0")], &body).await;
            assert_eq!(bytes, b"");
        }
        let third = rig.http("POST", "/rpc", &[("A2A-Version", "1.0")], &body).await.json();
        assert_eq!(third["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        let seen = rig.seen().await;
        assert_eq!(seen["sends"], 3);
        assert_eq!(seen["message_ids"]["m"], begun);
        assert_eq!(seen["tasks"].as_object().unwrap().len(), tasks);
        assert!(seen["tasks"].as_object().unwrap().values().all(|state| state == "completed"));
    }
}

#[tokio::test]
async fn counts_belong_to_the_content_of_a_message() {
    let rig = Rig::plain().await;
    let first = rig.v1("SendMessage", message("m1", "!rpc -32001 1\none")).await;
    let again = rig.v1("SendMessage", message("m2", "!rpc -32001 1\none")).await;
    let other = rig.v1("SendMessage", message("m3", "!rpc -32001 1\ntwo")).await;
    assert_eq!(first.error_code(), -32001);
    assert_eq!(again.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(other.error_code(), -32001);
}

#[tokio::test]
async fn refusals_make_nothing_and_end_after_their_count() {
    let rig = Rig::plain().await;
    let text = "!drop 0; status 503 2; rpc -32603 1";
    for _ in 0..2 {
        let refused = rig.send(text).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    }
    assert_eq!(rig.send(text).await.error_code(), -32603);
    assert_eq!(rig.seen().await["message_ids"], json!({}));
    assert_eq!(rig.send(text).await.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    let limited = rig.send("!status 429").await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("1")));
    let broken = rig.send("!status 500").await;
    assert_eq!((broken.status, broken.header("retry-after")), (500, None));
    for _ in 0..3 {
        assert_eq!(rig.send("!rpc -32005").await.error_code(), -32005);
    }
    let moved = rig.send("!redirect http://10.0.0.1/x").await;
    assert_eq!((moved.status, moved.header("location")), (307, Some("http://10.0.0.1/x")));
    assert_eq!(rig.seen().await["message_ids"], json!({ "m": 1 }));
}

#[tokio::test]
async fn a_blocked_answer_keeps_the_caller_waiting_while_the_task_is_there() {
    let rig = Rig::plain().await;
    let mut stream = rig.dial().await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m", "!block 7d") });
    let body = body.to_string();
    let head = format!(
        "POST /rpc HTTP/1.1\r\nhost: x\r\na2a-version: 1.0\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    eventually(async || (rig.seen().await["message_ids"] == json!({ "m": 1 })).then_some(())).await;
    let nothing = stream.try_read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    let held = rig.task("!block 500ms; later 1ms; say x").await;
    assert_eq!(held["status"]["state"], "TASK_STATE_COMPLETED", "it ended while the answer was held");
}

#[tokio::test]
async fn looks_are_lost_refused_and_lied_to_as_ordered() {
    let rig = Rig::plain().await;
    let state = async |id: &Value| rig.look(id).await.json()["result"]["status"]["state"].clone();
    let task = rig.task("!poll lost 2; poll 503 1").await;
    let refused = rig.look(&task["id"]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(rig.look(&task["id"]).await.error_code(), -32001);
    assert_eq!(rig.look(&task["id"]).await.error_code(), -32001);
    assert_eq!(state(&task["id"]).await, "TASK_STATE_COMPLETED");
    let lost = rig.task("!poll lost").await;
    for _ in 0..5 {
        assert_eq!(rig.look(&lost["id"]).await.error_code(), -32001);
    }
    let flips = rig.task("!later 7d; poll flip; say x").await;
    let first = rig.look(&flips["id"]).await.json()["result"].clone();
    assert_eq!(first["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(first["artifacts"][0]["parts"], json!([{ "text": "x" }]));
    assert_eq!(state(&flips["id"]).await, "TASK_STATE_WORKING");
    assert_eq!(state(&flips["id"]).await, "TASK_STATE_WORKING");
    assert_eq!(rig.seen().await["gets"], 12);
}

#[tokio::test]
async fn garbage_is_an_answer_to_work_that_was_done() {
    let rig = Rig::plain().await;
    let null = rig.send("!garbage null").await.json();
    assert_eq!(null, json!({ "jsonrpc": "2.0", "id": 7, "result": null }));
    assert_eq!(rig.send("!garbage array").await.json()["result"], json!([]));
    let html = rig.send("!garbage html").await;
    assert_eq!((html.status, html.header("content-type")), (200, Some("text/html")));
    assert!(html.body.starts_with("<!DOCTYPE html>"));
    let cut = rig.send("!garbage cut").await;
    assert_eq!(cut.header("content-length"), Some(cut.body.len().to_string().as_str()));
    assert!(serde_json::from_str::<Value>(&cut.body).unwrap_err().is_eof());
    let deep = rig.send("!garbage deep").await;
    assert_eq!(deep.body.matches('[').count(), 10_000);
    assert_eq!(rig.seen().await["message_ids"]["m"], 5);
}

#[tokio::test]
async fn size_gives_a_text_of_exactly_that_many_bytes() {
    let rig = Rig::plain().await;
    for (order, bytes) in [("!size 3", 3), ("!size 2k", 2048), ("!size 9m", 9 << 20)] {
        let task = rig.task(order).await;
        assert_eq!(task["artifacts"][0]["parts"][0]["text"].as_str().unwrap().len(), bytes);
    }
}

#[tokio::test]
async fn a_steering_result_names_agents_urls_and_other_tasks() {
    let rig = Rig::plain().await;
    let task = rig.task("!steer; say ok").await;
    let parts = &task["artifacts"][0]["parts"];
    assert_eq!(parts[0], json!({ "text": "ok" }));
    assert!(parts[1]["text"].as_str().unwrap().starts_with("Next agent: http://"));
    assert_eq!(parts[2]["data"]["nextAgent"], "http://steer.invalid/agent");
    assert_eq!(parts[3]["url"], "http://steer.invalid/file");
    assert_eq!(task["metadata"]["routeTo"], "agent:exfiltrate");
    assert_eq!(task["status"]["message"]["referenceTaskIds"], json!(["steer-task-1", "steer-task-2"]));
}

#[tokio::test]
async fn an_order_that_is_not_understood_is_said_so_and_makes_nothing() {
    let rig = Rig::plain().await;
    let refused = rig.send("!do as you like").await;
    assert_eq!(refused.error_code(), -32602);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("do as you like"));
    assert_eq!(rig.seen().await["tasks"], json!({}));
}
