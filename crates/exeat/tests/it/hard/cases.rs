//! What goes wrong in the field, each failure by its number in `docs/cases.md`, through the running server and an agent
//! over HTTP.

mod peer;
mod polls;
mod pushes;
mod script;
mod sends;

use std::time::Duration;

use serde_json::{Value, json};

use self::peer::Agent;
use super::http::Answer;
use super::rig::{Gateway, records, until};

/// No look comes by itself in time to matter.
const NO_LOOKS: &[(&str, &str)] = &[("EXEAT_HOP_POLL_FIRST", "1h"), ("EXEAT_HOP_POLL_MAX", "1h")];

/// Starts a task, and waits until its hop has its foreign task: the agent's `n`th.
fn begun(gateway: &Gateway, agent: &Agent, n: usize) -> (String, String) {
    let task = gateway.begin(&json!({"to": "agent:auditor", "input": format!("errand {n}")}));
    until("a hop with its foreign task", Duration::from_secs(30), || {
        hop(gateway, &task)["foreign_task_id"].is_string().then_some(())
    });
    (task, agent.task(n))
}

/// Its only hop.
fn hop(gateway: &Gateway, task: &str) -> Value {
    gateway.task(task)["steps"][0]["hops"][0].clone()
}

/// A push was taken in.
fn taken(answer: &Answer) {
    assert_eq!((answer.status, answer.body.len()), (202, 0), "{}", answer.text());
}

/// A push was refused as everything is.
fn turned_away(answer: &Answer) {
    assert_eq!(answer.status, 404, "{}", answer.text());
}

/// The task ended well with this text, by one edge in, one settlement and nothing more.
fn came_back_once(gateway: &Gateway, task: &str, text: &str) {
    let ended = gateway.ended(task);
    assert_eq!(
        (&ended["status"], &ended["output"]["text"]),
        (&json!("completed"), &json!(text)),
        "{ended:#}"
    );
    let of_task: Vec<Value> =
        records(&gateway.export().0).into_iter().filter(|r| r["task"] == task).collect();
    let count = |kind: &str, member: &str, value: &str| {
        of_task.iter().filter(|r| r["kind"] == kind && r["data"][member] == value).count()
    };
    assert_eq!(count("edge", "dir", "a2a_ingress"), 1, "{of_task:#?}");
    assert_eq!(of_task.iter().filter(|r| r["kind"] == "outcome").count(), 1, "{of_task:#?}");
    assert!(count("cost", "entry", "settle") <= 1, "{of_task:#?}");
}
