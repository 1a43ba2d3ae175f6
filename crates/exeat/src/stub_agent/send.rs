//! SendMessage and message/send: reads the orders, begins the work, and answers, or fails to, as ordered.

use std::sync::Arc;

use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Fault};
use super::dialect::{self, Dialect, View};
use super::parts::Parts;
use super::poll::history_length;
use super::push::Config;
use super::script::{Garbage, Moment, Script, Shows};
use super::turn::{self, Turn};
use super::world::{Begun, Freshness, Order, Received, State};
use super::{Stub, Switch};

/// Depth of `garbage deep`: past any parser's patience, small enough to send.
const DEEP: usize = 10_000;

/// Answers a send.
///
/// # Errors
/// If the message can't be read, can't be taken, or an error is ordered.
pub(super) async fn answer(
    stub: &Arc<Stub>,
    dialect: Dialect,
    id: &Value,
    params: &Value,
) -> Result<Answer, Fault> {
    stub.world().sends += 1;
    let (received, script) = read(dialect, params)?;
    let configuration = params.get("configuration").unwrap_or(&Value::Null);
    let history = history_length(configuration)?;
    let config = inline_config(stub, dialect, configuration)?;
    if let Some(refusal) = refuse(stub, &received, &script)? {
        return Ok(refusal);
    }
    let hangs_up = stub.world().spend(&received.message, Order::Drop, script.drops);
    let answered = CancellationToken::new();
    // Lives here while the answer is held back, so that a caller who leaves releases those who wait.
    let guard = answered.clone().drop_guard();
    let begun = begin(stub, received, &script, config)?;
    let held = hold(stub, &begun, &script, answered).await;
    if hangs_up {
        return Ok(Answer::hang_up());
    }
    let result = match &begun {
        Begun::Message(bare) => {
            let message = dialect::message(&bare.id, &bare.context, &bare.parts, dialect);
            in_envelope(dialect, "message", message)
        }
        Begun::Task { id, .. } => {
            let view = View { history, ..View::WHOLE };
            let mut world = stub.world();
            let oldest = world.oldest().unwrap_or_else(|| id.clone());
            let task = world.task(if script.shows == Shows::Oldest { &oldest } else { id })?;
            let shown = match held {
                Held::AsItIs => dialect::task(task, dialect, view),
                Held::AsItWas => dialect::task(&task.said_to_be(State::Working), dialect, view),
            };
            in_envelope(dialect, "task", shown)
        }
    };
    let mut answer = match script.garbage {
        None => Answer::result(id, &result),
        Some(garbage) => spoil(id, &result, garbage),
    };
    answer.answered = Some(guard);
    Ok(answer)
}

fn in_envelope(dialect: Dialect, member: &str, content: Value) -> Value {
    match dialect {
        Dialect::V1 => json!({ member: content }),
        Dialect::V03 => content,
    }
}

fn read(dialect: Dialect, params: &Value) -> Result<(Received, Script), Fault> {
    let message = params.get("message").filter(|m| m.is_object());
    let message = message.ok_or_else(|| Fault::Params("message: missing".to_owned()))?;
    let text =
        |name: &str| message.get(name).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let id = text("messageId").ok_or_else(|| Fault::Params("message.messageId: missing".to_owned()))?;
    let mut parts = Parts::of_message(message, dialect);
    if parts.is_empty() {
        return Err(Fault::Params("message.parts: at least one".to_owned()));
    }
    let script = match parts.take_directives() {
        Some(line) => Script::parse(&line).map_err(Fault::Params)?,
        None => Script::default(),
    };
    let (task, context) = (text("taskId"), text("contextId"));
    Ok((Received { dialect, message: message.clone(), parts, id, task, context }, script))
}

/// The push configuration sent along. Without push it is swallowed, as some real servers do.
fn inline_config(stub: &Stub, dialect: Dialect, configuration: &Value) -> Result<Option<Config>, Fault> {
    let member = match dialect {
        Dialect::V1 => "taskPushNotificationConfig",
        Dialect::V03 => "pushNotificationConfig",
    };
    match configuration.get(member).filter(|v| !v.is_null()) {
        Some(config) if stub.args.push == Switch::On => Config::read(dialect, config).map(Some),
        _ => Ok(None),
    }
}

fn refuse(stub: &Stub, received: &Received, script: &Script) -> Result<Option<Answer>, Fault> {
    if let Some(url) = &script.redirect {
        let answer = Answer::raw(StatusCode::TEMPORARY_REDIRECT, "text/plain", "elsewhere\n");
        return Ok(Some(answer.with(header::LOCATION, url.clone())));
    }
    let mut world = stub.world();
    if let Some((code, limit)) = script.status
        && world.spend(&received.message, Order::Status, limit)
    {
        return Ok(Some(Answer::status(code)));
    }
    if let Some((code, limit)) = script.rpc
        && world.spend(&received.message, Order::Rpc, limit)
    {
        return Err(Fault::Ordered(code));
    }
    Ok(None)
}

fn begin(stub: &Stub, received: Received, script: &Script, config: Option<Config>) -> Result<Begun, Fault> {
    let mut world = stub.world();
    let begun = world.begin(received, script, stub.args.dedup)?;
    if let (Begun::Task { id, .. }, Some(mut config)) = (&begun, config) {
        if config.id.is_empty() {
            config.id.clone_from(id);
        }
        world.task(id)?.register(config)?;
    }
    Ok(begun)
}

/// What a held answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    AsItIs,
    AsItWas,
}

/// Sets the turn going, and waits as long as the answer is to be held back.
async fn hold(stub: &Arc<Stub>, begun: &Begun, script: &Script, answered: CancellationToken) -> Held {
    let mut held = Held::AsItIs;
    match begun {
        Begun::Message(_) => tokio::time::sleep(script.later.unwrap_or_default()).await,
        Begun::Task { id, turn, freshness: Freshness::New } => {
            let pushed = CancellationToken::new();
            let turn = Turn { task: id.clone(), turn: *turn, later: script.later, push: script.push.clone() };
            stub.spawn(turn::run(Arc::clone(stub), turn, answered, pushed.clone().drop_guard()));
            if script.push.moment == Moment::BeforeAnswer {
                pushed.cancelled().await;
                if script.later.is_some() {
                    held = Held::AsItWas;
                }
            }
        }
        Begun::Task { freshness: Freshness::Known, .. } => {}
    }
    if let Some(block) = script.block {
        tokio::time::sleep(block).await;
    }
    held
}

fn spoil(id: &Value, result: &Value, garbage: Garbage) -> Answer {
    match garbage {
        Garbage::Null => Answer::result(id, &Value::Null),
        Garbage::Array => Answer::result(id, &json!([])),
        Garbage::Html => Answer::raw(
            StatusCode::OK,
            "text/html",
            "<!DOCTYPE html><html><body><h1>Welcome to nginx!</h1></body></html>\n",
        ),
        Garbage::Cut => {
            let mut whole = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string().into_bytes();
            whole.truncate(whole.len() / 2);
            Answer::raw(StatusCode::OK, "application/json", whole)
        }
        Garbage::Deep => {
            let nest = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{nest}}}"#);
            Answer::raw(StatusCode::OK, "application/json", body)
        }
    }
}
