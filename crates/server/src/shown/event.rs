//! An event of a task, as its watchers see it.

use exeat_core::change::Snapshot;
use exeat_core::id::{QuestionId, TaskId};
use exeat_core::label::Label;
use exeat_core::ports::StoredEvent;
use exeat_core::reason::Reason;
use exeat_core::task::HopState;
use serde_json::{Map, Value, json};

use crate::shown::{Sight, task, withheld};

/// The event's data with `at` and `task_id`, and without what the watcher may not see.
#[must_use]
pub fn shown(event: &StoredEvent, snapshot: &Snapshot, sight: Sight<'_>) -> Value {
    let id: TaskId = snapshot.task.0.id;
    let mut m = match &event.data {
        Value::Object(m) => m.clone(),
        other => Map::from_iter([("data".to_owned(), other.clone())]),
    };
    // An event doesn't say what it carries, so it carries what its task does, unless that is known better.
    let label = task::carried(&snapshot.task.0);
    if !sight.sees(&label)
        && let Some(reason) = m.get_mut("reason")
    {
        *reason = own_words(reason);
    }
    if event.event == "question" {
        let label = asked(&m, snapshot).map_or(label, |l| l.clone());
        if !sight.sees(&label) {
            m.insert("prompt".to_owned(), withheld("clearance_too_low", &label));
        }
    }
    m.insert("at".to_owned(), json!(event.at));
    m.insert("task_id".to_owned(), json!(id));
    Value::Object(m)
}

/// A reason without the words that came with it.
fn own_words(reason: &Value) -> Value {
    let read = serde_json::from_value::<Option<Reason>>(reason.clone());
    json!(read.ok().flatten().map(|r| Reason::from(r.code)))
}

fn asked<'a>(m: &Map<String, Value>, snapshot: &'a Snapshot) -> Option<&'a Label> {
    let id: QuestionId = m.get("question_id")?.as_str()?.parse().ok()?;
    let now = snapshot.task.0.hops.iter().filter_map(|h| match &h.state {
        HopState::Asking(q) => Some(q),
        _ => None,
    });
    let last = snapshot.bridges.iter().filter_map(|(b, _)| b.question.as_ref());
    now.chain(last).find(|q| q.id == id).map(|q| &q.prompt.label)
}
