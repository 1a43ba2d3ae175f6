//! What is pushed, when, how often, and with which secret.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::rig::{Pushed, Rig, Webhook, message_v03};

fn ends(pushed: &Pushed) -> Value {
    pushed.json()["task"].clone()
}

#[tokio::test]
async fn a_later_task_pushes_working_then_its_end_with_both_secrets() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let sent = rig.v1("SendMessage", hook.asked_by("m1", "!later 7d")).await.json();
    let working = hook.next().await;
    let update = &working.json()["statusUpdate"];
    assert_eq!(update["taskId"], sent["result"]["task"]["id"]);
    assert_eq!(update["status"]["state"], "TASK_STATE_WORKING");
    let sent = rig.v1("SendMessage", hook.asked_by("m2", "!later 50ms; say done")).await.json();
    // The end may come before the answer is out; then there is no `working` to tell.
    let end = match hook.next().await {
        pushed if pushed.json().get("statusUpdate").is_some() => hook.next().await,
        pushed => pushed,
    };
    assert_eq!(ends(&end)["id"], sent["result"]["task"]["id"]);
    assert_eq!(ends(&end)["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(ends(&end)["artifacts"][0]["parts"], json!([{ "text": "done" }]));
    for pushed in [working, end] {
        assert!(pushed.head.header("host").is_some());
        assert_eq!(pushed.header("content-type"), Some("application/a2a+json"));
        assert_eq!(pushed.header("x-a2a-notification-token"), Some("token-of-many-letters"));
        assert_eq!(pushed.header("authorization"), Some("Bearer secret-of-many-letters"));
    }
}

#[tokio::test]
async fn an_older_caller_is_told_by_a_bare_task() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let mut params = message_v03("m", "hello");
    params["configuration"] = json!({ "blocking": false, "pushNotificationConfig": {
        "url": hook.url, "token": "t", "authentication": { "schemes": ["Bearer"], "credentials": "c" },
    }});
    let sent = rig.v03("message/send", params).await.json();
    let pushed = hook.next().await;
    let body = pushed.json();
    assert_eq!((&body["kind"], &body["id"]), (&json!("task"), &sent["result"]["id"]));
    assert_eq!(body["status"]["state"], "completed");
    assert_eq!(body["artifacts"][0]["parts"], json!([{ "kind": "text", "text": "hello" }]));
    assert_eq!(pushed.header("content-type"), Some("application/json"));
    assert_eq!(pushed.header("authorization"), Some("Bearer c"));
    assert_eq!(pushed.header("x-a2a-notification-token"), Some("t"));
}

#[tokio::test]
async fn push_none_stays_silent() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let silent = rig.v1("SendMessage", hook.asked_by("m1", "!later 1ms; push none")).await.json();
    rig.await_state(&silent["result"]["task"]["id"], "TASK_STATE_COMPLETED").await;
    let loud = rig.v1("SendMessage", hook.asked_by("m2", "!say x")).await.json();
    assert_eq!(ends(&hook.next().await)["id"], loud["result"]["task"]["id"]);
}

#[tokio::test]
async fn push_early_comes_before_the_answer() {
    for (text, answered) in [
        ("!push early; say x", "TASK_STATE_COMPLETED"),
        ("!push early; later 1ms; say x", "TASK_STATE_WORKING"),
    ] {
        let (rig, mut hook) = (Rig::plain().await, Webhook::holding().await);
        let params = hook.asked_by("m", text);
        let mut sending = JoinSet::new();
        sending.spawn(async move { (rig.v1("SendMessage", params).await.json(), rig) });
        let pushed = hook.next().await;
        assert!(sending.try_join_next().is_none(), "not answered while the push is out");
        hook.release();
        let (sent, rig) = sending.join_next().await.unwrap().unwrap();
        let task = &sent["result"]["task"];
        assert_eq!(ends(&pushed)["id"], task["id"]);
        assert_eq!(ends(&pushed)["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(task["status"]["state"], answered);
        rig.await_state(&task["id"], "TASK_STATE_COMPLETED").await;
    }
}

#[tokio::test]
async fn an_early_push_and_a_drop_leave_the_push_alone() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let params = hook.asked_by("m", "!drop 1; push early; say x");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    let answer = rig.raw("POST", "/rpc", &[("A2A-Version", "1.0")], &body.to_string()).await;
    assert_eq!(answer, b"");
    assert_eq!(ends(&hook.next().await)["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn push_dup_posts_in_parallel() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::holding().await);
    rig.v1("SendMessage", hook.asked_by("m", "!push dup 5; say x")).await;
    let first = ends(&hook.next().await);
    for _ in 1..5 {
        // None has been answered yet.
        assert_eq!(ends(&hook.next().await), first);
    }
}

#[tokio::test]
async fn push_reverse_tells_the_end_before_an_older_working() {
    for text in ["!push reverse; say x", "!push reverse; later 20ms; say x"] {
        let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
        rig.v1("SendMessage", hook.asked_by("m", text)).await;
        let end = ends(&hook.next().await);
        assert_eq!(end["status"]["state"], "TASK_STATE_COMPLETED");
        let working = hook.next().await.json()["statusUpdate"].clone();
        assert_eq!(working["status"]["state"], "TASK_STATE_WORKING");
        let at = |task: &Value| task["status"]["timestamp"].as_str().unwrap().to_owned();
        assert!(at(&working) <= at(&end));
    }
}

#[tokio::test]
async fn push_lie_says_completed_of_a_task_that_works() {
    for text in ["!push lie; say x", "!push lie; later 7d; say x", "!push lie; push early; later 7d; say x"] {
        let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
        let sent = rig.v1("SendMessage", hook.asked_by("m", text)).await.json();
        let task = &sent["result"]["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_WORKING");
        let pushed = ends(&hook.next().await);
        assert_eq!(
            (&pushed["id"], &pushed["status"]["state"]),
            (&task["id"], &json!("TASK_STATE_COMPLETED"))
        );
        assert_eq!(rig.look(&task["id"]).await.json()["result"]["status"]["state"], "TASK_STATE_WORKING");
    }
}

#[tokio::test]
async fn push_other_names_a_task_that_is_not_ours() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let sent = rig.v1("SendMessage", hook.asked_by("m", "!push other; say x")).await.json();
    let pushed = ends(&hook.next().await);
    assert_ne!(pushed["id"], sent["result"]["task"]["id"]);
    assert_eq!(rig.look(&pushed["id"]).await.error_code(), -32001);
}

#[tokio::test]
async fn push_badtoken_changes_one_character_of_each_secret() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    rig.v1("SendMessage", hook.asked_by("m", "!push badtoken; say x")).await;
    let pushed = hook.next().await;
    for (name, right) in [
        ("x-a2a-notification-token", "token-of-many-letters"),
        ("authorization", "Bearer secret-of-many-letters"),
    ] {
        let sent = pushed.header(name).unwrap();
        assert_eq!(sent.len(), right.len());
        assert_eq!(sent.chars().zip(right.chars()).filter(|(a, b)| a != b).count(), 1, "{sent}");
    }
}

#[tokio::test]
async fn a_receiver_that_breaks_is_tried_three_times_and_one_that_refuses_once() {
    let rig = Rig::plain().await;
    let mut broken = Webhook::answering(vec![503, 500, 503], usize::MAX >> 3).await;
    rig.v1("SendMessage", broken.asked_by("m", "!say x")).await;
    let first = ends(&broken.next().await);
    assert_eq!(ends(&broken.next().await), first);
    assert_eq!(ends(&broken.next().await), first);
    let second = rig.v1("SendMessage", broken.asked_by("m", "!say x")).await.json();
    assert_eq!(ends(&broken.next().await)["id"], second["result"]["task"]["id"], "no fourth try");
    let mut refusing = Webhook::answering(vec![404], usize::MAX >> 3).await;
    rig.v1("SendMessage", refusing.asked_by("m", "!say x")).await;
    refusing.next().await;
    let second = rig.v1("SendMessage", refusing.asked_by("m", "!say x")).await.json();
    assert_eq!(ends(&refusing.next().await)["id"], second["result"]["task"]["id"], "no second try");
}

#[tokio::test]
async fn a_cancellation_is_pushed_and_overtakes_the_end() {
    let (rig, mut hook) = (Rig::plain().await, Webhook::open().await);
    let sent = rig.v1("SendMessage", hook.asked_by("m", "!later 7d")).await.json();
    let id = &sent["result"]["task"]["id"];
    assert_eq!(hook.next().await.json()["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    let canceled = rig.v1("CancelTask", json!({ "id": id })).await.json();
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(ends(&hook.next().await)["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(rig.v1("CancelTask", json!({ "id": id })).await.error_code(), -32002);
    assert_eq!(rig.seen().await["cancels"], 2);
}
