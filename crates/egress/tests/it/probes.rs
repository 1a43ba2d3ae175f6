//! Probes: what an operator learns, and what goes out for it.

use std::sync::Arc;

use exeat_core::gate::exeat::{self, Carry, Claim};
use exeat_core::registry::AgentEntry;
use exeat_core::transport::{Auth, Probed, Prober as _};
use serde_json::json;

use crate::agent::{Agent, LATER, World, bearer, card_1_0, entry, org, rpc_error, rpc_ok, status};
use crate::peers::{Peer, ok};

async fn probe(world: &World, agent: &AgentEntry, carry: Carry) -> Probed {
    world.a2a.probe(exeat::probe(Claim::receipted(org(), 1), Arc::new(agent.clone()), carry, LATER)).await
}

#[tokio::test]
async fn a_probe_tells_what_would_be_used_and_whether_the_credential_is_taken() {
    let card = card_1_0(&json!({
        "capabilities": { "pushNotifications": true },
        "skills": [{ "id": "review", "name": "r", "description": "", "tags": [] }],
    }));
    let agent = Agent::new(card, |_| rpc_error(-32001, "no such task"));
    let mut listed = agent.entry();
    listed.posture.credential = bearer();
    listed.posture.skills = ["review".to_owned(), "other".to_owned()].into();
    let probed = probe(&World::new(), &listed, Carry::Credential).await;
    let card = probed.card.unwrap();
    assert!(probed.reachable && probed.push_claimed);
    assert_eq!(card.found_at, format!("{}/.well-known/agent-card.json", agent.base()));
    assert_eq!((card.name.as_str(), card.skills), ("p", vec!["review".to_owned()]));
    assert_eq!(probed.would_use.unwrap().0, agent.rpc());
    assert_eq!(probed.auth, Auth::Ok);
    assert_eq!(probed.problems, [r#"the card doesn't offer the skill "other""#]);
    assert_eq!(agent.calls()[0]["method"], "GetTask");
}

#[tokio::test]
async fn a_probe_of_an_unsigned_entry_carries_no_secret() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&json!({})));
    let mut listed = agent.entry();
    listed.posture.credential = bearer();
    let probed = probe(&World::new(), &listed, Carry::Nothing).await;
    assert_eq!(probed.auth, Auth::NotTried);
    assert_eq!((agent.gets().len(), agent.calls().len()), (1, 0));
    assert!(!agent.peer.requests()[0].contains("authorization"));
}

#[tokio::test]
async fn a_refused_credential_shows_whether_at_the_card_or_at_the_call() {
    let agent = Agent::new(card_1_0(&json!({})), |_| status(401, "", ""));
    let mut listed = agent.entry();
    listed.posture.credential = bearer();
    assert_eq!(probe(&World::new(), &listed, Carry::Credential).await.auth, Auth::Refused);
    let closed = Agent::by_path(|_, _| Some(status(403, "", "")));
    let probed = probe(&World::new(), &closed.entry(), Carry::Nothing).await;
    assert!(probed.reachable && probed.card.is_none());
    assert!(probed.problems[0].contains("403"), "{:?}", probed.problems);
}

#[tokio::test]
async fn what_stands_in_the_way_is_named_and_nobody_else_is_contacted() {
    let other = Peer::saying("");
    let elsewhere = json!([{ "url": format!("http://{}/", other.address), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    let agent = Agent::new(card_1_0(&json!({ "supportedInterfaces": elsewhere })), |_| String::new());
    let probed = probe(&World::new(), &agent.entry(), Carry::Nothing).await;
    assert!(probed.reachable && probed.would_use.is_none());
    assert!(probed.problems[0].contains(&other.address.to_string()), "{:?}", probed.problems);
    assert_eq!(other.accepts(), 0);
    let mut refused = entry("http://169.254.169.254/");
    refused.posture.allow_cidrs.insert("169.254.0.0/16".to_owned());
    let probed = probe(&World::new(), &refused, Carry::Nothing).await;
    assert!(!probed.reachable && probed.problems[0].contains("link-local"), "{:?}", probed.problems);
}

#[tokio::test]
async fn an_echo_of_the_secret_in_a_card_is_shown_to_nobody_however_it_is_escaped() {
    let secret = "tok-1";
    let skill = json!([{ "id": secret, "name": "r", "description": "", "tags": [] }]);
    let card = card_1_0(&json!({ "name": "NAME", "skills": skill })).to_string();
    let card = card.replace("NAME", "\\u0074ok-1");
    let agent = Agent::by_path(move |path, request| match path {
        "/.well-known/agent-card.json" => Some(ok(&card)),
        _ => request.starts_with("POST").then(|| rpc_error(-32001, "no such task")),
    });
    let mut listed = agent.entry();
    listed.posture.credential = bearer();
    let probed = probe(&World::new(), &listed, Carry::Credential).await;
    let card = probed.card.as_ref().unwrap();
    assert_eq!((card.name.as_str(), card.skills.as_slice()), ("[secret]", &["[secret]".to_owned()][..]));
    assert!(!format!("{probed:?}").contains(secret));
}
