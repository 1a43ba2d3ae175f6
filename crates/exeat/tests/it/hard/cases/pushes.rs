//! Pushed results.

use std::time::Duration;

use serde_json::{Value, json};

use super::peer::{Agent, shown};
use super::{NO_LOOKS, begun, came_back_once, taken, turned_away};
use crate::hard::rig::{Gateway, records, until};

fn scene() -> (Agent, Gateway) {
    let agent = Agent::start();
    let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &[]);
    (agent, gateway)
}

#[test]
fn o_push_01_the_door_is_named_by_us_and_the_tasks_in_bodies_are_checked() {
    let (agent, gateway) = scene();
    let (first, one) = begun(&gateway, &agent, 1);
    let (second, two) = begun(&gateway, &agent, 2);
    let doors = [agent.door(&one), agent.door(&two)];
    let id = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    assert_ne!(id(&doors[0].0), id(&doors[1].0));
    for (url, _) in &doors {
        assert_eq!(id(url).len(), 22, "128 bits in base64url: {url}");
        assert!(!url.contains("srv-"), "nothing of the agent's: {url}");
    }
    agent.shows(&one, "COMPLETED", "1");
    agent.shows(&two, "COMPLETED", "2");
    turned_away(&agent.push(&one, &json!({ "task": shown(&two, "COMPLETED", "2") })).must());
    taken(&agent.pushes(&one, "COMPLETED", "1"));
    taken(&agent.pushes(&two, "COMPLETED", "2"));
    came_back_once(&gateway, &first, "1");
    came_back_once(&gateway, &second, "2");
}

#[test]
fn o_push_02_progress_under_the_same_token_doesnt_swallow_the_end() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    let status = |state: &str| {
        let status = json!({ "state": format!("TASK_STATE_{state}") });
        json!({ "statusUpdate": { "taskId": t, "contextId": format!("ctx-{t}"), "status": status } })
    };
    let artifact = json!({ "artifactUpdate": { "taskId": t, "contextId": format!("ctx-{t}"),
        "artifact": { "artifactId": "a1", "parts": [{ "text": "done" }] } } });
    for body in [status("SUBMITTED"), status("WORKING"), artifact, status("WORKING")] {
        taken(&agent.push(&t, &body).must());
    }
    assert_eq!(gateway.task(&task)["status"], "running");
    agent.shows(&t, "COMPLETED", "done");
    taken(&agent.push(&t, &status("COMPLETED")).must());
    came_back_once(&gateway, &task, "done");
    taken(&agent.push(&t, &status("COMPLETED")).must());
    came_back_once(&gateway, &task, "done");
}

#[test]
fn o_push_03_every_shape_is_taken_and_what_lacks_the_content_is_fetched() {
    let (agent, gateway) = scene();
    // A bare 0.3 task, a task, and an update of the status, which carries no artifacts.
    let old = |t: &str| {
        json!({ "kind": "task", "id": t, "contextId": format!("ctx-{t}"), "status": { "state": "completed" },
            "artifacts": [{ "artifactId": "a1", "parts": [{ "kind": "text", "text": "done" }] }] })
    };
    let update = |t: &str| json!({ "statusUpdate": { "taskId": t, "contextId": format!("ctx-{t}"), "status": { "state": "TASK_STATE_COMPLETED" } } });
    let whole = |t: &str| json!({ "task": shown(t, "COMPLETED", "done") });
    for (n, body) in [&old as &dyn Fn(&str) -> Value, &whole, &update].into_iter().enumerate() {
        let (task, t) = begun(&gateway, &agent, n + 1);
        agent.shows(&t, "COMPLETED", "done");
        taken(&agent.push(&t, &body(&t)).must());
        came_back_once(&gateway, &task, "done");
        assert_eq!(agent.gets(&t), 1, "asked once, before it counts");
    }
    // An artifact alone ends nothing, and a message says nothing of a hop that has a task.
    let (task, t) = begun(&gateway, &agent, 4);
    let part = json!([{ "text": "half" }]);
    let artifact = json!({ "taskId": t, "contextId": format!("ctx-{t}"), "artifact": { "artifactId": "a1", "parts": part } });
    taken(&agent.push(&t, &json!({ "artifactUpdate": artifact })).must());
    let message = json!({ "messageId": "m1", "role": "ROLE_AGENT", "parts": part });
    taken(&agent.push(&t, &json!({ "message": message })).must());
    until("a look at what the message may mean", Duration::from_secs(30), || {
        (agent.gets(&t) > 0).then_some(())
    });
    assert_eq!(gateway.task(&task)["status"], "running");
    agent.shows(&t, "COMPLETED", "whole");
    taken(&agent.pushes(&t, "COMPLETED", "whole"));
    came_back_once(&gateway, &task, "whole");
}

#[test]
fn o_push_04_a_push_that_overtakes_the_answer_counts_also_if_the_answer_never_comes() {
    let (agent, gateway) = scene();
    agent.hold();
    let task = gateway.begin(&json!({"to": "agent:auditor", "input": "early"}));
    let t = agent.task(1);
    agent.shows(&t, "COMPLETED", "early");
    taken(&agent.pushes(&t, "COMPLETED", "early"));
    // Its send is given up meanwhile, and nothing was answered.
    came_back_once(&gateway, &task, "early");
    agent.release();
    gateway.is_well();
}

#[test]
fn o_push_05_older_states_that_come_after_the_end_change_nothing() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    agent.shows(&t, "COMPLETED", "done");
    taken(&agent.pushes(&t, "COMPLETED", "done"));
    came_back_once(&gateway, &task, "done");
    taken(&agent.pushes(&t, "WORKING", ""));
    taken(&agent.pushes(&t, "FAILED", "no"));
    until("a record of what came late", Duration::from_secs(30), || {
        records(&gateway.export().0).iter().any(|r| r["kind"] == "late" && r["task"] == task).then_some(())
    });
    came_back_once(&gateway, &task, "done");
}

#[test]
fn o_push_06_fifty_of_the_same_at_once_resume_once() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    agent.shows(&t, "COMPLETED", "once");
    let push = agent.push(&t, &json!({ "task": shown(&t, "COMPLETED", "once") }));
    std::thread::scope(|s| {
        let all: Vec<_> = (0..50).map(|_| s.spawn(|| push.must())).collect();
        for answer in all {
            taken(&answer.join().unwrap());
        }
    });
    came_back_once(&gateway, &task, "once");
    gateway.is_well();
}

#[test]
fn o_push_07_any_right_credential_passes_and_none_or_a_wrong_one_never_does() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    let body = json!({ "task": shown(&t, "WORKING", "") });
    let (_, token) = agent.door(&t);
    let names = ["x-a2a-notification-token", "a2a-notification-token", "authorization"];
    let value = |name: &str, token: &str| {
        if name == "authorization" { format!("Bearer {token}") } else { token.into() }
    };
    turned_away(&agent.bare_push(&t, &body).must());
    for name in names {
        taken(&agent.bare_push(&t, &body).header(name, &value(name, &token)).must());
        turned_away(&agent.bare_push(&t, &body).header(name, &value(name, "ec1.x.1.y")).must());
        for other in names.iter().filter(|o| **o != name) {
            let both = agent.bare_push(&t, &body).header(name, &value(name, &token));
            turned_away(&both.header(other, &value(other, "ec1.x.1.y")).must());
        }
    }
    agent.shows(&t, "COMPLETED", "done");
    taken(&agent.pushes(&t, "COMPLETED", "done"));
    came_back_once(&gateway, &task, "done");
}

#[test]
fn o_push_08_whatever_the_media_type_the_body_is_read() {
    let (agent, gateway) = scene();
    for (n, media) in ["application/a2a+json", "application/json; charset=utf-8", ""].into_iter().enumerate()
    {
        let (task, t) = begun(&gateway, &agent, n + 1);
        agent.shows(&t, "COMPLETED", "done");
        let (url, token) = agent.door(&t);
        let path = url.splitn(4, '/').last().unwrap().to_owned();
        let push = gateway.request("POST", &format!("/{path}")).header("x-a2a-notification-token", &token);
        taken(&push.body(media, json!({ "task": shown(&t, "COMPLETED", "done") }).to_string()).must());
        came_back_once(&gateway, &task, "done");
    }
}

#[test]
fn o_push_09_a_body_about_another_hops_task_moves_neither_and_is_recorded() {
    let (agent, gateway) = scene();
    let (first, one) = begun(&gateway, &agent, 1);
    let (second, two) = begun(&gateway, &agent, 2);
    turned_away(&agent.push(&one, &json!({ "task": shown(&two, "COMPLETED", "stolen") })).must());
    assert!(records(&gateway.export().0).iter().any(|r| r["kind"] == "refused"), "on record");
    for task in [&first, &second] {
        assert_eq!(gateway.task(task)["status"], "running");
    }
    assert_eq!((agent.gets(&one), agent.gets(&two)), (0, 0));
}

#[test]
fn o_push_10_malformed_tokens_all_get_the_same_answer() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    let (_, token) = agent.door(&t);
    let body = json!({ "task": shown(&t, "COMPLETED", "forged") });
    let flipped: String = token
        .chars()
        .rev()
        .enumerate()
        .map(|(n, c)| if n == 0 { if c == 'A' { 'B' } else { 'A' } } else { c })
        .collect::<String>()
        .chars()
        .rev()
        .collect();
    let long = "x".repeat(10_000);
    let bad = ["", "x", &token[..42], &token[..44], &long, "ec1.%00.1.y", "ec1.é.1.ü", &flipped];
    let first = agent.bare_push(&t, &body).must();
    turned_away(&first);
    for forged in bad {
        let answer = agent.bare_push(&t, &body).header("x-a2a-notification-token", forged).must();
        assert!(matches!(answer.status, 404 | 431), "{forged:.40}: {}", answer.status);
        if answer.status == 404 {
            assert_eq!(answer.body, first.body, "{forged:.40}");
        }
    }
    let twice = agent.bare_push(&t, &body).header("x-a2a-notification-token", &token);
    turned_away(&twice.header("x-a2a-notification-token", "ec1.x.1.y").must());
    assert_eq!(gateway.task(&task)["status"], "running");
    gateway.is_well();
}

#[test]
fn o_push_11_no_token_is_found_in_any_log_record_or_answer() {
    let (agent, gateway) = scene();
    let (task, t) = begun(&gateway, &agent, 1);
    let (url, token) = agent.door(&t);
    turned_away(&agent.push(&t, &json!({ "task": shown("other", "COMPLETED", "no") })).must());
    taken(&agent.push(&t, &json!({ "nothing": "we know" })).must());
    let wrong = gateway.request("POST", "/api/v1/a2a/callback/AAAAAAAAAAAAAAAAAAAAAA");
    let wrong = wrong.header("x-a2a-notification-token", &token).body("application/json", "{}").must();
    turned_away(&wrong);
    agent.shows(&t, "COMPLETED", &format!("my callback is {url} with {token}"));
    taken(&agent.pushes(&t, "COMPLETED", &format!("my callback is {url} with {token}")));
    let ended = gateway.ended(&task);
    let mac = token.rsplit('.').next().unwrap();
    for (place, text) in [
        ("the log", gateway.said()),
        ("the ledger", gateway.export().0),
        ("the task", ended.to_string()),
        ("an error", wrong.text()),
    ] {
        assert!(!text.contains(mac), "{place} holds the token");
    }
}
