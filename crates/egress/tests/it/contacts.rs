//! Looks and cancels: contacts that carry no content out.

use exeat_core::gate::exeat::{Bound, Interface, LookFor};
use exeat_core::id::{ContextId, Ids};
use exeat_core::reason::ReasonCode;
use exeat_core::time::{Span, Timestamp};
use exeat_core::transport::{CancelOutcome, ForeignState, LookOutcome, Transport as _};
use serde_json::{Value, json};

use crate::agent::{
    Agent, World, bearer, cancel, card_1_0, interface, look, look_at, rpc_error, rpc_ok, status,
};
use crate::peers::Peer;

fn agent(say: impl Fn(&Value) -> String + Send + Sync + 'static) -> Agent {
    Agent::new(card_1_0(&json!({})), say)
}
async fn look_for(agent: &Agent, ask: LookFor) -> LookOutcome {
    World::new().a2a.look(look(agent.entry(), agent.rpc(), ask)).await
}
fn task(id: &str, state: &str) -> Value {
    json!({ "id": id, "contextId": "c1", "status": { "state": state } })
}
fn t1() -> LookFor {
    LookFor::Task("t1".to_owned())
}
fn ours() -> ContextId {
    ContextId::draw(&mut Ids::new(Timestamp::EPOCH, [9; 32]))
}

#[tokio::test]
async fn a_look_asks_for_the_task_and_nothing_else_and_fetches_no_card() {
    let agent = agent(|_| {
        let mut t = task("t1", "TASK_STATE_COMPLETED");
        t["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": "done" }] }]);
        rpc_ok(&t)
    });
    let LookOutcome::Task(found) = look_for(&agent, t1()).await else { panic!() };
    assert_eq!((found.state, found.output.text().as_str()), (ForeignState::Completed, "done"));
    let requests = agent.calls();
    assert_eq!(
        requests,
        [
            json!({ "jsonrpc": "2.0", "id": "1", "method": "GetTask", "params": { "id": "t1", "historyLength": 20 } })
        ]
    );
    assert!(agent.gets().is_empty());
}

#[tokio::test]
async fn each_answer_to_a_look_is_taken_for_what_it_is() {
    let nothing = |code, after: Option<u64>| LookOutcome::Nothing { code, after: after.map(Span::of_secs) };
    for (answer, expected) in [
        (rpc_error(-32001, "not found"), LookOutcome::NotFound),
        (rpc_error(-32004, "no"), LookOutcome::Unsupported),
        (rpc_error(-32603, "no"), nothing(ReasonCode::SendRefused, None)),
        (rpc_ok(&task("t2", "completed")), nothing(ReasonCode::InvalidResponse, None)),
        (rpc_ok(&json!(null)), nothing(ReasonCode::InvalidResponse, None)),
        (status(404, "", r#"{"error":"no route"}"#), nothing(ReasonCode::SendRefused, None)),
        (
            status(404, "", r#"{"error":{"code":404,"message":"no route"}}"#),
            nothing(ReasonCode::SendRefused, None),
        ),
        (status(404, "", r#"{"error":{"code":-32001,"message":"gone"}}"#), LookOutcome::NotFound),
        (
            status(503, "Retry-After: 6\r\n", r#"{"error":{"code":-32603}}"#),
            nothing(ReasonCode::SendRefused, Some(6)),
        ),
        (status(404, "", "<html>"), nothing(ReasonCode::SendRefused, None)),
        (status(503, "Retry-After: 9\r\n", ""), nothing(ReasonCode::SendRefused, Some(9))),
        (status(429, "Retry-After: 3\r\n", ""), nothing(ReasonCode::SendRefused, Some(3))),
        (status(302, "Location: http://127.0.0.1/\r\n", ""), nothing(ReasonCode::RedirectRefused, None)),
        (String::new(), nothing(ReasonCode::InvalidResponse, None)),
    ] {
        let shown = answer.clone();
        let agent = agent(move |_| answer.clone());
        assert_eq!(look_for(&agent, t1()).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_look_speaks_the_interfaces_dialect_and_tries_the_other_once() {
    let agent = agent(|call| match call["method"].as_str() {
        Some("tasks/get") => rpc_ok(&task("t1", "working")),
        _ => rpc_error(-32601, "no such method"),
    });
    let world = World::new();
    let old = interface(&agent.rpc().url, "0.3.0");
    assert!(matches!(world.a2a.look(look(agent.entry(), old, t1())).await, LookOutcome::Task(_)));
    assert_eq!(agent.calls().len(), 1);
    for expected in [3, 4] {
        assert!(matches!(world.a2a.look(look(agent.entry(), agent.rpc(), t1())).await, LookOutcome::Task(_)));
        assert_eq!(agent.calls().len(), expected);
    }
}

#[tokio::test]
async fn a_listing_keeps_only_what_names_our_conversation_on_every_page() {
    let context = ours().to_string();
    let named = context.clone();
    let agent = agent(move |call| {
        assert_eq!(call["method"], "ListTasks");
        assert_eq!(call["params"]["contextId"], named.as_str());
        let mut mine = task("t1", "working");
        mine["contextId"] = json!(named);
        match call["params"].get("pageToken").and_then(Value::as_str) {
            None => rpc_ok(
                &json!({ "tasks": [task("x", "completed"), mine], "nextPageToken": "p2", "pageSize": 2, "totalSize": 3 }),
            ),
            _ => {
                mine["id"] = json!("t2");
                rpc_ok(&json!({ "tasks": [mine], "nextPageToken": "", "pageSize": 2, "totalSize": 3 }))
            }
        }
    });
    let LookOutcome::Tasks(found) = look_for(&agent, LookFor::Context(ours())).await else { panic!() };
    assert_eq!(found.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(), ["t1", "t2"]);
    assert_eq!(agent.calls().len(), 2);
}

/// After a crash no attempt has told of an interface.
#[tokio::test]
async fn a_look_without_an_interface_goes_where_the_card_at_the_bound_origin_leads_and_nowhere_else() {
    let agent = agent(|_| rpc_ok(&task("t1", "working")));
    let world = World::new();
    let at = |origin: &str| look_at(agent.entry(), Bound::Origin(origin.to_owned()), t1());
    assert!(matches!(world.a2a.look(at(&agent.base())).await, LookOutcome::Task(_)));
    assert!(matches!(world.a2a.look(at(&agent.base())).await, LookOutcome::Task(_)));
    assert_eq!((agent.calls().len(), agent.gets().len()), (2, 1), "the card is kept");
    let nothing = LookOutcome::Nothing { code: ReasonCode::EndpointNotAllowed, after: None };
    assert_eq!(world.a2a.look(at("http://127.0.0.1:9")).await, nothing);
    assert_eq!(agent.calls().len(), 2);
    let mut entry = agent.entry();
    entry.posture.credential = bearer();
    *world.secret.lock().unwrap() = None;
    let ask = look_at(entry, Bound::Origin(agent.base()), t1());
    let nothing = LookOutcome::Nothing { code: ReasonCode::CredentialUnavailable, after: None };
    assert_eq!(world.a2a.look(ask).await, nothing);
}

#[tokio::test]
async fn an_endless_listing_is_left() {
    let agent =
        agent(|_| rpc_ok(&json!({ "tasks": [], "nextPageToken": "more", "pageSize": 0, "totalSize": 9 })));
    assert_eq!(look_for(&agent, LookFor::Context(ours())).await, LookOutcome::Tasks(vec![]));
    assert_eq!(agent.calls().len(), 5);
}

#[tokio::test]
async fn where_listing_does_not_work_it_is_said_so() {
    for code in [-32601, -32004] {
        let agent = agent(move |_| rpc_error(code, "no"));
        assert_eq!(look_for(&agent, LookFor::Context(ours())).await, LookOutcome::Unsupported);
        assert_eq!(agent.calls().len(), 1);
    }
    let old = agent(|_| rpc_error(-32601, "no"));
    let ask = look(old.entry(), interface(&old.rpc().url, "0.3"), LookFor::Context(ours()));
    assert_eq!(World::new().a2a.look(ask).await, LookOutcome::Unsupported);
    assert_eq!(old.peer.accepts(), 0);
}

#[tokio::test]
async fn each_answer_to_a_cancel_is_taken_for_what_it_is() {
    let over = || CancelOutcome::Over;
    for (answer, expected) in [
        (rpc_error(-32001, "not found"), over()),
        (rpc_error(-32002, "ended"), over()),
        (rpc_error(-32601, "no"), over()),
        (rpc_error(-32603, "no"), CancelOutcome::Nothing { after: None }),
        (rpc_ok(&task("t2", "canceled")), CancelOutcome::Nothing { after: None }),
        (status(503, "Retry-After: 4\r\n", ""), CancelOutcome::Nothing { after: Some(Span::of_secs(4)) }),
        (String::new(), CancelOutcome::Nothing { after: None }),
    ] {
        let shown = answer.clone();
        let agent = agent(move |_| answer.clone());
        let outcome = World::new().a2a.cancel(cancel(agent.entry(), agent.rpc(), "t1")).await;
        assert_eq!(outcome, expected, "{shown}");
    }
    let agent = agent(|_| rpc_ok(&task("t1", "TASK_STATE_CANCELED")));
    let outcome = World::new().a2a.cancel(cancel(agent.entry(), agent.rpc(), "t1")).await;
    assert!(matches!(outcome, CancelOutcome::Task(t) if t.state == ForeignState::Canceled));
    assert_eq!(agent.calls()[0]["method"], "CancelTask");
}

/// O-CARD-10
#[tokio::test]
async fn looks_and_cancels_echo_the_interfaces_tenant() {
    let agent = agent(|_| rpc_ok(&task("t1", "working")));
    let with = Interface { tenant: Some("acme-7".to_owned()), ..agent.rpc() };
    let world = World::new();
    world.a2a.look(look(agent.entry(), with.clone(), t1())).await;
    world.a2a.cancel(cancel(agent.entry(), with, "t1")).await;
    assert!(agent.calls().iter().all(|c| c["params"]["tenant"] == "acme-7"));
    assert_eq!(agent.calls().len(), 2);
}

#[tokio::test]
async fn a_look_is_held_to_the_entry_as_it_stands() {
    let other = Peer::saying(rpc_ok(&task("t1", "completed")));
    let agent = agent(|_| rpc_ok(&task("t1", "working")));
    let world = World::new();
    let elsewhere = interface(&format!("http://{}/rpc", other.address), "1.0");
    let nothing = |code| LookOutcome::Nothing { code, after: None };
    let outcome = world.a2a.look(look(agent.entry(), elsewhere.clone(), t1())).await;
    assert_eq!(outcome, nothing(ReasonCode::EndpointNotAllowed));
    let grpc = Interface { binding: "GRPC".to_owned(), ..agent.rpc() };
    assert_eq!(world.a2a.look(look(agent.entry(), grpc, t1())).await, nothing(ReasonCode::NoCommonInterface));
    let mut entry = agent.entry();
    entry.posture.credential = bearer();
    *world.secret.lock().unwrap() = None;
    let outcome = world.a2a.look(look(entry, agent.rpc(), t1())).await;
    assert_eq!(outcome, nothing(ReasonCode::CredentialUnavailable));
    let outcome = world.a2a.cancel(cancel(agent.entry(), elsewhere, "t1")).await;
    assert_eq!(outcome, CancelOutcome::Nothing { after: None });
    assert_eq!((other.accepts(), agent.peer.accepts()), (0, 0));
}
