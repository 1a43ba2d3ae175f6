//! GetTask and ListTasks: the truth, or what the task's orders say of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Stub;
use super::answer::{Answer, Fault};
use super::dialect::{Artifacts, Dialect, View, task as written};
use super::rpc::task_id;
use super::script::Flip;
use super::world::State;

/// Answers a look at a task.
///
/// # Errors
/// If there is no such task, or it is ordered to be lost.
pub(super) fn get(stub: &Arc<Stub>, dialect: Dialect, id: &Value, params: &Value) -> Result<Answer, Fault> {
    let mut world = stub.world();
    world.gets += 1;
    let task = world.task(task_id(params, "id")?)?;
    if let Some((code, left @ 1..)) = task.poll.status {
        task.poll.status = Some((code, left - 1));
        return Ok(Answer::status(code));
    }
    if task.poll.lost > 0 {
        // All of them stays all of them.
        task.poll.lost = if task.poll.lost == u32::MAX { u32::MAX } else { task.poll.lost - 1 };
        return Err(Fault::TaskNotFound);
    }
    let view = View { history: history_length(params)?, artifacts: Artifacts::Shown };
    let said = match task.poll.flip {
        None => written(task, dialect, view),
        Some(Flip::Completed) => {
            task.poll.flip = Some(Flip::Working);
            written(&task.said_to_be(State::Completed), dialect, view)
        }
        Some(Flip::Working) => written(&task.said_to_be(State::Working), dialect, view),
    };
    Ok(Answer::result(id, &said))
}

/// A page of tasks, as 1.0 lists them.
///
/// # Errors
/// If a parameter is out of range.
pub(super) fn list(stub: &Arc<Stub>, params: &Value) -> Result<Value, Fault> {
    let text = |member: &str| params.get(member).and_then(Value::as_str).filter(|t| !t.is_empty());
    let size = match params.get("pageSize").filter(|v| !v.is_null()) {
        None => 50,
        Some(size) => size
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| (1..=100).contains(n))
            .ok_or_else(|| Fault::Params("pageSize: 1 to 100".to_owned()))?,
    };
    let skip = match text("pageToken") {
        None => 0,
        Some(token) => token.parse::<usize>().map_err(|_| Fault::Params("pageToken".to_owned()))?,
    };
    let shown = params.get("includeArtifacts").and_then(Value::as_bool) == Some(true);
    let artifacts = if shown { Artifacts::Shown } else { Artifacts::Left };
    let view = View { history: history_length(params)?, artifacts };
    let world = stub.world();
    let matching = || {
        world.newest().filter(|task| {
            text("contextId").is_none_or(|context| context == task.context)
                && text("status").is_none_or(|state| state == task.state.word(Dialect::V1))
        })
    };
    let total = matching().count();
    let tasks: Vec<Value> =
        matching().skip(skip).take(size).map(|task| written(task, Dialect::V1, view)).collect();
    let end = skip.saturating_add(tasks.len());
    let next = if end < total { end.to_string() } else { String::new() };
    Ok(json!({ "tasks": tasks, "nextPageToken": next, "pageSize": size, "totalSize": total }))
}

/// How many messages a caller wants to see.
///
/// # Errors
/// If it isn't a whole number.
pub(super) fn history_length(params: &Value) -> Result<Option<usize>, Fault> {
    match params.get("historyLength").filter(|v| !v.is_null()) {
        None => Ok(None),
        Some(length) => match length.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(length) => Ok(Some(length)),
            None => Err(Fault::Params("historyLength: a whole number".to_owned())),
        },
    }
}
