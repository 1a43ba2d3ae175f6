//! The stream of a task's events.

use exeat_core::principal::KeyScope;
use exeat_core::transport::{ForeignState, SendOutcome};
use serde_json::{Value, json};

use crate::rig::{Rig, foreign, get, in_time, post};

/// Reads a whole stream: (id, event, data) of each.
fn read(text: &str) -> Vec<(u64, String, Value)> {
    text.split("\n\n")
        .filter(|block| block.contains("data:"))
        .map(|block| {
            let field = |name: &str| {
                let line =
                    block.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{block}"));
                line.trim_start_matches(':').trim().to_owned()
            };
            (field("id").parse().unwrap(), field("event"), serde_json::from_str(&field("data")).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_stream_counts_from_one_without_gaps_ends_with_the_task_and_resumes_anywhere() {
    let rig = Rig::new().await;
    rig.peer.sends.lock().unwrap().extend([
        SendOutcome::Task(foreign(ForeignState::InputRequired, "which?")),
        SendOutcome::Task(foreign(ForeignState::Completed, "done")),
    ]);
    let id = rig.start(&json!({"to":"agent:auditor","input":"x"})).await["task_id"].clone();
    let task = rig.until(&id, |t| t["status"] == "awaiting_input").await;
    let path = format!("/api/v1/tasks/{}", id.as_str().unwrap());
    // One watcher is there while it goes on.
    let live = rig.call(get(format!("{path}/events")).key(&rig.admin));
    let answering = async {
        tokio::task::yield_now().await;
        let question = &task["steps"][0]["hops"][0]["question"]["question_id"];
        let body = json!({"question_id": question, "input": "red"});
        rig.call(post(format!("{path}/answer"), &body).key(&rig.admin)).await.is(202)
    };
    let (live, _) = in_time(async { tokio::join!(live, answering) }).await;
    assert_eq!(live.headers["content-type"], "text/event-stream");
    let all = read(std::str::from_utf8(&live.bytes).unwrap());
    let ids: Vec<u64> = all.iter().map(|(id, ..)| *id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let (_, event, data) = all.last().unwrap();
    assert_eq!((event.as_str(), &data["status"]), ("task", &json!("completed")));
    for (_, event, data) in &all {
        assert_eq!(data["task_id"], id);
        assert!(data["at"].is_string());
        let members: &[&str] = match event.as_str() {
            "task" => &["status", "reason"],
            "step" => &["step", "to", "status", "reason"],
            "hop" => &["step", "hop_id", "state", "turn", "attempt", "reason", "due_at"],
            "question" => &["step", "question_id", "prompt", "until"],
            other => panic!("{other}"),
        };
        assert!(members.iter().all(|m| data.get(m).is_some()), "{event} {data}");
    }
    assert!(all.iter().any(|(_, e, d)| e == "question" && d["prompt"]["text"] == "which?"));
    for after in 0..=ids.len() {
        let call = get(format!("{path}/events")).key(&rig.admin).with("last-event-id", &after.to_string());
        let rest = read(std::str::from_utf8(&rig.call(call).await.bytes).unwrap());
        assert_eq!(rest, all[after..], "after {after}");
    }
    let call = get(format!("{path}/events")).key(&rig.admin).with("last-event-id", "x");
    rig.call(call).await.problem(422, "invalid");
}

#[tokio::test]
async fn a_question_above_the_watchers_clearance_is_told_without_its_words() {
    let rig = Rig::new().await;
    let low = rig.key("low", &[KeyScope::Viewer], "internal", |_| {}).await;
    rig.peer.sends.lock().unwrap().extend([
        SendOutcome::Task(foreign(ForeignState::InputRequired, "the secret?")),
        SendOutcome::Task(foreign(ForeignState::Completed, "secret indeed")),
    ]);
    let id =
        rig.start(&json!({"to":"agent:auditor","input":"x","label":"confidential"})).await["task_id"].clone();
    let task = rig.until(&id, |t| t["status"] == "awaiting_input").await;
    let path = format!("/api/v1/tasks/{}", id.as_str().unwrap());
    let question = &task["steps"][0]["hops"][0]["question"]["question_id"];
    let body = json!({"question_id": question, "input": "red"});
    rig.call(post(format!("{path}/answer"), &body).key(&rig.admin)).await.is(202);
    rig.until(&id, |t| t["status"] == "completed").await;
    let stream = rig.call(get(format!("{path}/events")).key(&low)).await;
    let text = String::from_utf8(stream.bytes).unwrap();
    assert!(!text.contains("secret") && text.contains("clearance_too_low"), "{text}");
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let rig = Rig::new().await;
    let id = rig.start(&json!({"to":"role:writer","input":"x"})).await["task_id"].clone();
    let path = format!("/api/v1/tasks/{}/events", id.as_str().unwrap());
    let watching = rig.call(get(path).key(&rig.admin));
    let stopping = async {
        tokio::task::yield_now().await;
        rig.app.runtime.stopping().cancel();
    };
    let (stream, ()) = in_time(async { tokio::join!(watching, stopping) }).await;
    assert_eq!(stream.status, 200);
}
