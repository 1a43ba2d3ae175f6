//! Cards, versions, credentials, lists, configurations, and the record of what came.

use serde_json::{Value, json};

use super::super::{Protocol, StubAgentArgs, Switch};
use super::rig::{Rig, Webhook, args, eventually, message, message_v03};

const CARD: &str = "/.well-known/agent-card.json";

#[tokio::test]
async fn the_card_shows_the_version_that_is_spoken() {
    for (protocol, interfaces, legacy) in [
        (Protocol::V1, json!(["1.0"]), Value::Null),
        (Protocol::V03, json!([]), json!("0.3.0")),
        (Protocol::Both, json!(["1.0", "0.3"]), json!("0.3.0")),
    ] {
        let rig = Rig::start(StubAgentArgs { protocol, ..args() }).await;
        let card = rig.get(CARD).await.json();
        let url = json!(format!("http://{}/rpc", rig.address));
        let listed = card["supportedInterfaces"].as_array().cloned().unwrap_or_default();
        let versions: Vec<_> = listed.iter().map(|i| i["protocolVersion"].clone()).collect();
        assert_eq!(json!(versions), interfaces);
        assert!(listed.iter().all(|i| i["url"] == url && i["protocolBinding"] == "JSONRPC"));
        assert_eq!(card["protocolVersion"], legacy);
        assert_eq!(card["url"] == url, legacy != Value::Null);
        assert_eq!(card["capabilities"]["pushNotifications"], true);
        let older = rig.get("/.well-known/agent.json").await;
        assert_eq!(older.status, if protocol == Protocol::V1 { 404 } else { 200 });
    }
}

#[tokio::test]
async fn the_card_is_at_the_authority_by_which_it_was_asked_for() {
    let rig = Rig::plain().await;
    let asked = format!("GET {CARD} HTTP/1.1\r\nhost: peer.test:81\r\n\r\n");
    let mut stream = rig.dial().await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, asked.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains("http://peer.test:81/rpc") {
        assert_ne!(tokio::io::AsyncReadExt::read_buf(&mut stream, &mut bytes).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn versions_are_taken_as_the_reference_sdk_takes_them() {
    let both = Rig::plain().await;
    let call = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let (new, old) = (call("SendMessage", message("m", "x")), call("message/send", message_v03("m", "x")));
    for (version, body, code) in [
        (None, &new, Some(-32009)),
        (Some("0.3"), &new, Some(-32009)),
        (Some("2.0"), &new, Some(-32009)),
        (Some("1.7"), &new, None),
        (Some("1.0"), &new, None),
        (None, &old, None),
        (Some("0.3"), &old, None),
        (Some("1.0"), &old, Some(-32603)),
    ] {
        let headers: Vec<_> = version.map(|v| ("A2A-Version", v)).into_iter().collect();
        let answer = both.http("POST", "/", &headers, body).await.json();
        assert_eq!(answer["error"]["code"].as_i64(), code, "{version:?} {body}");
    }
    assert!(both.http("POST", "/rpc?A2A-Version=1.0", &[], &new).await.json()["result"].is_object());
    let newer = Rig::start(StubAgentArgs { protocol: Protocol::V1, ..args() }).await;
    assert_eq!(newer.http("POST", "/rpc", &[], &old).await.error_code(), -32601);
    let older = Rig::start(StubAgentArgs { protocol: Protocol::V03, ..args() }).await;
    assert_eq!(older.http("POST", "/rpc", &[("A2A-Version", "1.0")], &new).await.error_code(), -32601);
    assert!(older.http("POST", "/rpc", &[("A2A-Version", "1.0")], &old).await.json()["result"].is_object());
}

#[tokio::test]
async fn what_cannot_be_read_or_done_is_refused_by_its_own_code() {
    let rig = Rig::plain().await;
    let post =
        async |body: &str| rig.http("POST", "/rpc", &[("A2A-Version", "1.0")], body).await.error_code();
    assert_eq!(post("{").await, -32700);
    assert_eq!(post(&"[".repeat(100_000)).await, -32700);
    assert_eq!(post("[]").await, -32600);
    assert_eq!(post(r#"{"id":1,"method":"GetTask"}"#).await, -32600);
    assert_eq!(rig.v1("Nonsense", json!({})).await.error_code(), -32601);
    for params in [
        json!(null),
        json!({ "message": {} }),
        json!({ "message": { "messageId": "m", "parts": [] } }),
        json!({ "message": { "parts": [{ "text": "x" }] } }),
    ] {
        assert_eq!(rig.v1("SendMessage", params).await.error_code(), -32602);
    }
    assert_eq!(rig.v1("SendStreamingMessage", message("m", "x")).await.error_code(), -32004);
    assert_eq!(rig.v1("GetTask", json!({})).await.error_code(), -32602);
    let lost = rig.v1("GetTask", json!({ "id": "x" })).await.json();
    assert_eq!(lost["error"]["code"], -32001);
    assert_eq!(lost["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
    assert_eq!(rig.get("/rpc").await.status, 405);
    assert_eq!(rig.get("/elsewhere").await.status, 404);
    assert_eq!(rig.http("POST", "/v1/message:send", &[], "{}").await.status, 404);
}

#[tokio::test]
async fn a_call_without_the_right_bearer_is_refused_and_nothing_is_made() {
    let rig = Rig::start(StubAgentArgs { token: Some("s3cret".into()), ..args() }).await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": message_v03("m", "x") });
    let body = body.to_string();
    for credential in [None, Some("Bearer wrong"), Some("Basic s3cret"), Some("s3cret")] {
        let headers: Vec<_> = credential.map(|c| ("authorization", c)).into_iter().collect();
        let refused = rig.http("POST", "/rpc", &headers, &body).await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    }
    assert_eq!(rig.seen().await["sends"], 0);
    let right = rig.http("POST", "/rpc", &[("authorization", "Bearer s3cret")], &body).await;
    assert_eq!(right.json()["result"]["status"]["state"], "completed");
    assert!(rig.get(CARD).await.json()["securityRequirements"][0]["schemes"]["bearer"].is_object());
}

#[tokio::test]
async fn tasks_are_listed_by_context_page_by_page_newest_first() {
    let rig = Rig::plain().await;
    let mut ids = Vec::new();
    for (n, context) in ["c1", "c2", "c1", "c1"].into_iter().enumerate() {
        let mut params = message(&format!("m{n}"), "x");
        params["message"]["contextId"] = json!(context);
        ids.push(rig.v1("SendMessage", params).await.json()["result"]["task"]["id"].clone());
    }
    let list = async |params: Value| rig.v1("ListTasks", params).await.json()["result"].clone();
    let first = list(json!({ "contextId": "c1", "pageSize": 2, "historyLength": 0 })).await;
    let listed =
        |page: &Value| page["tasks"].as_array().unwrap().iter().map(|t| t["id"].clone()).collect::<Vec<_>>();
    assert_eq!(listed(&first), [ids[3].clone(), ids[2].clone()]);
    assert_eq!((&first["totalSize"], &first["pageSize"]), (&json!(3), &json!(2)));
    assert_eq!((first["tasks"][0].get("artifacts"), first["tasks"][0].get("history")), (None, None));
    let last = list(json!({ "contextId": "c1", "pageSize": 2, "pageToken": first["nextPageToken"], "includeArtifacts": true })).await;
    assert_eq!(listed(&last), [ids[0].clone()]);
    assert_eq!(last["nextPageToken"], "");
    assert_eq!(last["tasks"][0]["artifacts"][0]["artifactId"], "a1");
    assert_eq!(list(json!({ "contextId": "none" })).await["tasks"], json!([]));
    assert_eq!(rig.v1("ListTasks", json!({ "pageSize": 0 })).await.error_code(), -32602);
}

#[tokio::test]
async fn history_is_as_long_as_asked_for() {
    let rig = Rig::plain().await;
    let id = rig.task("hello").await["id"].clone();
    let get = async |params: Value| rig.v1("GetTask", params).await.json()["result"].get("history").cloned();
    assert_eq!(get(json!({ "id": id, "historyLength": 0 })).await, None);
    assert_eq!(get(json!({ "id": id })).await.unwrap()[0]["messageId"], "m");
    let old = rig.v03("tasks/get", json!({ "id": id })).await.json()["result"].clone();
    assert_eq!(old["history"][0]["kind"], "message");
    assert_eq!(old["artifacts"][0]["parts"], json!([{ "kind": "text", "text": "hello" }]));
}

#[tokio::test]
async fn push_configurations_are_kept_shown_and_forgotten_in_both_versions() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let id = rig.task("!later 7d; push none").await["id"].clone();
    let new = json!({
        "taskId": id, "id": "k1", "url": hook.url, "token": "t",
        "authentication": { "scheme": "Bearer", "credentials": "c" },
    });
    assert_eq!(rig.v1("CreateTaskPushNotificationConfig", new.clone()).await.json()["result"], new);
    let old = json!({ "taskId": id, "pushNotificationConfig": { "url": hook.url } });
    let kept = rig.v03("tasks/pushNotificationConfig/set", old).await.json()["result"].clone();
    assert_eq!(kept["pushNotificationConfig"]["id"], id, "the task's id where none is given");
    let one = rig.v1("GetTaskPushNotificationConfig", json!({ "taskId": id, "id": "k1" })).await.json();
    assert_eq!(one["result"], new);
    let one = rig.v03("tasks/pushNotificationConfig/get", json!({ "id": id })).await.json();
    assert_eq!(one["result"], kept);
    let all = rig.v1("ListTaskPushNotificationConfigs", json!({ "taskId": id })).await.json();
    assert_eq!(all["result"]["configs"].as_array().unwrap().len(), 2);
    let gone = rig.v1("DeleteTaskPushNotificationConfig", json!({ "taskId": id, "id": "k1" })).await.json();
    assert_eq!(gone["result"], Value::Null);
    let all = rig.v03("tasks/pushNotificationConfig/list", json!({ "id": id })).await.json();
    assert_eq!(all["result"], json!([kept]));
    let params = json!({ "id": id, "pushNotificationConfigId": id });
    rig.v03("tasks/pushNotificationConfig/delete", params.clone()).await;
    assert_eq!(rig.v03("tasks/pushNotificationConfig/get", params).await.error_code(), -32001);

    // One that is registered afterwards is told of the end.
    let working = rig.task("!ask more?").await["id"].clone();
    rig.v1("CreateTaskPushNotificationConfig", json!({ "taskId": working, "url": hook.url })).await;
    rig.v1("CancelTask", json!({ "id": working })).await;
    assert_eq!(hook.next().await.json()["task"]["id"], working);
}

#[tokio::test]
async fn without_push_a_configuration_sent_along_is_swallowed_and_the_methods_refuse() {
    let rig = Rig::start(StubAgentArgs { push: Switch::Off, ..args() }).await;
    assert_eq!(rig.get(CARD).await.json()["capabilities"]["pushNotifications"], false);
    let (mut hook, loud) = (Webhook::open().await, Rig::plain().await);
    let sent = rig.v1("SendMessage", hook.asked_by("m", "!say x")).await.json();
    let id = &sent["result"]["task"]["id"];
    let config = json!({ "taskId": id, "url": hook.url });
    assert_eq!(rig.v1("CreateTaskPushNotificationConfig", config).await.error_code(), -32003);
    let other = loud.v1("SendMessage", hook.asked_by("m", "!say x")).await.json();
    assert_eq!(hook.next().await.json()["task"]["id"], other["result"]["task"]["id"]);
}

#[tokio::test]
async fn every_accept_and_request_is_a_line_but_looking_at_seen_is_none() {
    let path = std::env::temp_dir().join(format!("exeat-stub-{}.jsonl", super::super::clock::fresh_id()));
    let rig = Rig::start(StubAgentArgs { log: Some(path.clone()), ..args() }).await;
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(rig.seen().await["accepts"], 0);
    let silent = rig.dial().await;
    let peer = silent.local_addr().unwrap().to_string();
    eventually(async || (lines().len() == 1).then_some(())).await;
    assert_eq!((&lines()[0]["event"], &lines()[0]["peer"]), (&json!("accept"), &json!(peer)));
    assert_eq!(rig.seen().await["accepts"], 1);
    let params = message("m", "hello");
    rig.v1("SendMessage", params.clone()).await;
    rig.http("PUT", "/x?y=z", &[("X-Many", "a"), ("x-many", "b")], "not json").await;
    rig.seen().await;
    let events: Vec<_> = lines().iter().map(|line| line["event"].clone()).collect();
    assert_eq!(json!(events), json!(["accept", "accept", "request", "accept", "request"]));
    let (send, put) = (lines()[2].clone(), lines()[4].clone());
    assert_eq!((&send["method"], &send["path"]), (&json!("POST"), &json!("/rpc")));
    assert_eq!(send["headers"]["a2a-version"], "1.0");
    assert_eq!(send["body"]["params"], params);
    assert_eq!(send["peer"], lines()[1]["peer"]);
    assert!(send["at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        (&put["path"], &put["query"], &put["body"]),
        (&json!("/x"), &json!("y=z"), &json!("not json"))
    );
    assert_eq!(put["headers"]["x-many"], "a, b");
    assert_eq!(rig.seen().await["accepts"], 3);
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_body_over_the_cap_is_refused() {
    let rig = Rig::plain().await;
    let mut stream = rig.dial().await;
    let head = format!("POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", (8 << 20) + 1);
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..8 {
        tokio::io::AsyncWriteExt::write_all(&mut stream, &chunk).await.unwrap();
    }
    tokio::io::AsyncWriteExt::write_all(&mut stream, b" ").await.unwrap();
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
}
