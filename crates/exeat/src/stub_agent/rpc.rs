//! JSON-RPC: which method, in which version, and whether the caller may use it here.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Fault};
use super::dialect::Dialect;
use super::{Protocol, Stub, poll, push, send, turn};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Send,
    Get,
    List,
    Cancel,
    Push(push::Act),
    Refused(&'static str),
}

/// Answers a JSON-RPC call.
pub(super) async fn answer(stub: &Arc<Stub>, version: Option<String>, body: &Bytes) -> Answer {
    let spoken = if stub.args.protocol == Protocol::V03 { Dialect::V03 } else { Dialect::V1 };
    let Ok(call) = serde_json::from_slice::<Value>(body) else {
        return Answer::fault(&Value::Null, spoken, &Fault::Parse);
    };
    let id = call.get("id").cloned().unwrap_or(Value::Null);
    let method = call.get("method").and_then(Value::as_str);
    let (Some(method), Some("2.0")) = (method, call.get("jsonrpc").and_then(Value::as_str)) else {
        return Answer::fault(&id, spoken, &Fault::Request);
    };
    let (dialect, wanted) = match find(stub.args.protocol, method) {
        Ok(found) => found,
        Err(fault) => return Answer::fault(&id, spoken, &fault),
    };
    if let Err(fault) = admit(stub.args.protocol, dialect, version) {
        return Answer::fault(&id, dialect, &fault);
    }
    let params = call.get("params").unwrap_or(&Value::Null);
    let answered = match wanted {
        Call::Send => send::answer(stub, dialect, &id, params).await,
        Call::Get => poll::get(stub, dialect, &id, params),
        Call::List => poll::list(stub, params).map(|list| Answer::result(&id, &list)),
        Call::Cancel => cancel(stub, dialect, &id, params),
        Call::Push(act) => push::configure(stub, dialect, act, params).map(|r| Answer::result(&id, &r)),
        Call::Refused(what) => Err(Fault::Unsupported(what)),
    };
    answered.unwrap_or_else(|fault| Answer::fault(&id, dialect, &fault))
}

fn find(protocol: Protocol, method: &str) -> Result<(Dialect, Call), Fault> {
    use push::Act;
    let found = match method {
        "SendMessage" => (Dialect::V1, Call::Send),
        "GetTask" => (Dialect::V1, Call::Get),
        "ListTasks" => (Dialect::V1, Call::List),
        "CancelTask" => (Dialect::V1, Call::Cancel),
        "CreateTaskPushNotificationConfig" => (Dialect::V1, Call::Push(Act::Set)),
        "GetTaskPushNotificationConfig" => (Dialect::V1, Call::Push(Act::Get)),
        "ListTaskPushNotificationConfigs" => (Dialect::V1, Call::Push(Act::List)),
        "DeleteTaskPushNotificationConfig" => (Dialect::V1, Call::Push(Act::Delete)),
        "SendStreamingMessage" | "SubscribeToTask" => (Dialect::V1, Call::Refused("streaming")),
        "GetExtendedAgentCard" => (Dialect::V1, Call::Refused("extended card")),
        "message/send" => (Dialect::V03, Call::Send),
        "tasks/get" => (Dialect::V03, Call::Get),
        "tasks/cancel" => (Dialect::V03, Call::Cancel),
        "tasks/pushNotificationConfig/set" => (Dialect::V03, Call::Push(Act::Set)),
        "tasks/pushNotificationConfig/get" => (Dialect::V03, Call::Push(Act::Get)),
        "tasks/pushNotificationConfig/list" => (Dialect::V03, Call::Push(Act::List)),
        "tasks/pushNotificationConfig/delete" => (Dialect::V03, Call::Push(Act::Delete)),
        "message/stream" | "tasks/resubscribe" => (Dialect::V03, Call::Refused("streaming")),
        "agent/getAuthenticatedExtendedCard" => (Dialect::V03, Call::Refused("extended card")),
        _ => return Err(Fault::Method(method.to_owned())),
    };
    match (protocol, found.0) {
        (Protocol::V1, Dialect::V03) | (Protocol::V03, Dialect::V1) => Err(Fault::Method(method.to_owned())),
        _ => Ok(found),
    }
}

/// The reference SDK's rules; servers of 0.3 alone never knew the header.
fn admit(protocol: Protocol, dialect: Dialect, version: Option<String>) -> Result<(), Fault> {
    let is = |major: &str| {
        version
            .as_deref()
            .is_some_and(|v| v == major || v.strip_prefix(major).is_some_and(|t| t.starts_with('.')))
    };
    match (dialect, protocol) {
        // The header's absence means 0.3.
        (Dialect::V1, _) if is("1") => Ok(()),
        (Dialect::V1, _) => Err(Fault::Version(version.unwrap_or_else(|| "0.3".to_owned()))),
        (Dialect::V03, Protocol::Both) if version.is_some() && !is("0.3") => {
            Err(Fault::Internal(format!("version {version:?} is not supported by this handler")))
        }
        (Dialect::V03, _) => Ok(()),
    }
}

fn cancel(stub: &Arc<Stub>, dialect: Dialect, id: &Value, params: &Value) -> Result<Answer, Fault> {
    let task = task_id(params, "id")?;
    let canceled = {
        let mut world = stub.world();
        world.cancels += 1;
        world.cancel(task)?.clone()
    };
    let answered = CancellationToken::new();
    let guard = answered.clone().drop_guard();
    stub.spawn(turn::canceled(Arc::clone(stub), canceled.id.clone(), answered));
    let view = super::dialect::View::WHOLE;
    let mut answer = Answer::result(id, &super::dialect::task(&canceled, dialect, view));
    answer.answered = Some(guard);
    Ok(answer)
}

/// The task that a call names.
///
/// # Errors
/// If it names none.
pub(super) fn task_id<'p>(params: &'p Value, member: &str) -> Result<&'p str, Fault> {
    let id = params.get(member).and_then(Value::as_str).filter(|id| !id.is_empty());
    id.ok_or_else(|| Fault::Params(format!("{member}: the id of a task")))
}
