//! Which card is read, and which interface of it is dialled.

use exeat_core::gate::exeat::Bound;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{AgentEntry, ProtocolPin};
use exeat_core::time::Span;
use exeat_core::transport::{SendOutcome, SendReport, Transport as _};
use serde_json::{Value, json};

use crate::agent::{
    Agent, World, bearer, body, card_0_3, card_1_0, entry, exeat, interface, parcel, rpc_error, rpc_ok,
    status, working,
};
use crate::peers::{Peer, ok};

async fn send(world: &World, entry: AgentEntry) -> SendReport {
    world.a2a.send(exeat(parcel(entry))).await
}
fn is_task(report: &SendReport) -> bool {
    matches!(report.outcome, SendOutcome::Task(_))
}
fn impossible(code: ReasonCode) -> SendOutcome {
    SendOutcome::Impossible(code)
}
fn one(url: &str) -> Value {
    json!([{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }])
}

/// O-CARD-07, O-SEND-13
#[tokio::test]
async fn a_1_0_card_is_spoken_to_in_1_0() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let report = send(&World::new(), agent.entry()).await;
    assert!(is_task(&report), "{report:?}");
    let call = agent.calls().remove(0);
    assert_eq!(call["method"], "SendMessage");
    assert_eq!(call["params"]["message"]["role"], "ROLE_USER");
    assert_eq!(call["params"]["message"]["parts"], json!([{ "text": "hi" }]));
    assert_eq!(call["params"]["configuration"]["returnImmediately"], true);
    let requests = agent.peer.requests();
    assert!(requests.iter().all(|r| r.contains("\r\na2a-version: 1.0\r\n")), "{requests:?}");
    assert_eq!(report.interface, Some(agent.rpc()));
    assert!(report.card.is_some() && report.wire.is_some());
}

/// O-CARD-06, O-SEND-13
#[tokio::test]
async fn a_0_3_card_is_spoken_to_in_0_3() {
    let answer = json!({ "kind": "task", "id": "t1", "contextId": "c1", "status": { "state": "working" } });
    let agent = Agent::new(card_0_3(&json!({})), move |_| rpc_ok(&answer));
    let report = send(&World::new(), agent.entry()).await;
    assert!(is_task(&report), "{report:?}");
    let call = agent.calls().remove(0);
    assert_eq!(call["method"], "message/send");
    assert_eq!(call["params"]["message"]["role"], "user");
    assert_eq!(call["params"]["message"]["parts"], json!([{ "kind": "text", "text": "hi" }]));
    assert_eq!(call["params"]["configuration"]["blocking"], false);
}

/// O-CARD-04
#[tokio::test]
async fn the_old_path_is_tried_only_where_the_new_one_says_that_nothing_is_there() {
    for (first, found) in
        [(404, true), (405, true), (410, true), (401, false), (403, false), (500, false), (503, false)]
    {
        let card = ok(&card_0_3(&json!({})).to_string());
        let agent = Agent::by_path(move |path, _| match path {
            "/.well-known/agent-card.json" => Some(status(first, "", "")),
            "/.well-known/agent.json" => Some(card.clone()),
            _ => Some(rpc_ok(&working())),
        });
        let report = send(&World::new(), agent.entry()).await;
        assert_eq!(is_task(&report), found, "{first}: {report:?}");
        assert_eq!(agent.gets().len(), if found { 2 } else { 1 }, "{first}");
        assert_eq!(agent.calls().len(), usize::from(found), "{first}");
    }
}

/// O-CARD-05
#[tokio::test]
async fn a_prefix_is_tried_before_the_origin_and_the_error_names_the_paths() {
    for (base, at) in
        [("/t/one", "/t/one/.well-known/agent-card.json"), ("/a2a", "/.well-known/agent-card.json")]
    {
        let card = ok(&card_1_0(&json!({})).to_string());
        let agent = Agent::by_path(move |path, request| match path {
            p if p == at => Some(card.clone()),
            "/rpc" => Some(rpc_ok(&working())),
            _ => request.starts_with("GET /.well").then(|| status(405, "", "")),
        });
        let report = send(&World::new(), entry(&format!("{}{base}", agent.base()))).await;
        assert!(is_task(&report), "{base}: {report:?}");
        assert!(agent.gets().len() <= 4);
    }
    let none = Agent::by_path(|_, _| None);
    let report = send(&World::new(), entry(&format!("{}/a2a", none.base()))).await;
    assert_eq!(report.outcome, impossible(ReasonCode::CardInvalid));
    assert!(report.detail.contains("/a2a/.well-known/agent-card.json, "), "{}", report.detail);
    assert_eq!(none.gets().len(), 4);
}

/// O-CARD-01, O-CARD-02, O-CARD-03
#[tokio::test]
async fn a_card_cannot_move_the_call_or_the_credential_to_another_host() {
    let other = Peer::saying(rpc_ok(&working()));
    let elsewhere = format!("http://{}/rpc", other.address);
    for card in [
        card_1_0(&json!({ "supportedInterfaces": one(&elsewhere) })),
        card_0_3(&json!({ "url": elsewhere })),
        card_0_3(&json!({ "supportedInterfaces": one(&elsewhere), "url": "ftp://x/" })),
        card_0_3(&json!({ "url": "http://0.0.0.0:8001/" })),
        card_0_3(&json!({ "url": "http://[::]:8080/invoke" })),
        card_0_3(&json!({ "url": "http://localhost:8000/" })),
        card_0_3(&json!({ "url": "http://169.254.169.254/" })),
        card_0_3(&json!({ "url": "http://127.0.0.1:6666\\@peer.test/" })),
        card_0_3(&json!({ "url": format!("http://{}\\@other.test/", other.address) })),
    ] {
        let agent = Agent::new(card.clone(), |_| rpc_ok(&working()));
        let mut entry = agent.entry();
        entry.posture.credential = bearer();
        let report = send(&World::new(), entry).await;
        assert_eq!(report.outcome, impossible(ReasonCode::EndpointNotAllowed), "{card}");
        assert_eq!(agent.calls().len(), 0);
    }
    assert_eq!(other.accepts(), 0);
}

/// O-CARD-03
#[tokio::test]
async fn of_a_hybrid_card_only_the_allowed_address_is_dialled() {
    let other = Peer::saying(rpc_ok(&working()));
    let elsewhere = format!("http://{}/rpc", other.address);
    for card in [
        card_0_3(&json!({ "supportedInterfaces": one(&elsewhere) })),
        card_0_3(&json!({ "supportedInterfaces": one("{base}/rpc"), "url": elsewhere })),
    ] {
        let agent = Agent::new(card, |_| rpc_ok(&working()));
        let report = send(&World::new(), agent.entry()).await;
        assert!(is_task(&report), "{report:?}");
        assert_eq!(agent.calls().len(), 1);
    }
    assert_eq!(other.accepts(), 0);
}

#[tokio::test]
async fn an_allowed_other_origin_is_dialled_only_once_the_decision_was_bound_to_it() {
    let other = Peer::saying(rpc_ok(&working()));
    let elsewhere = format!("http://{}/rpc", other.address);
    let agent =
        Agent::new(card_1_0(&json!({ "supportedInterfaces": one(&elsewhere) })), |_| rpc_ok(&working()));
    let mut listed = agent.entry();
    listed.posture.allow_origins.insert(format!("http://{}", other.address));
    let world = World::new();
    let report = send(&world, listed.clone()).await;
    assert_eq!(report.outcome, SendOutcome::OtherInterface(interface(&elsewhere, "1.0")));
    assert_eq!(other.accepts(), 0);
    let mut bound = parcel(listed.clone());
    bound.bound = Bound::Interface(interface(&elsewhere, "1.0"));
    assert!(is_task(&world.a2a.send(exeat(bound)).await));
    assert_eq!((other.accepts(), agent.calls().len()), (1, 0));
    // A secret that is granted towards the registered origin goes nowhere else, and neither does the call.
    listed.posture.credential = bearer();
    let mut bound = parcel(listed);
    bound.bound = Bound::Interface(interface(&elsewhere, "1.0"));
    let report = world.a2a.send(exeat(bound)).await;
    assert_eq!(report.outcome, impossible(ReasonCode::CredentialUnavailable));
    assert_eq!(other.accepts(), 1);
}

#[tokio::test]
async fn another_interface_than_the_one_bound_is_reported_and_nothing_is_sent() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    for bound in [
        interface(&format!("{}/old", agent.base()), "1.0"),
        interface(&format!("{}/rpc", agent.base()), "0.3"),
        exeat_core::gate::exeat::Interface { tenant: Some("x".into()), ..agent.rpc() },
    ] {
        let mut p = parcel(agent.entry());
        p.bound = Bound::Interface(bound);
        let report = World::new().a2a.send(exeat(p)).await;
        assert_eq!(report.outcome, SendOutcome::OtherInterface(agent.rpc()));
    }
    assert_eq!(agent.calls().len(), 0);
}

/// O-CARD-08
#[tokio::test]
async fn the_first_interface_that_is_spoken_is_used_and_none_is_guessed() {
    let grpc = json!({ "url": "{base}/g", "protocolBinding": "GRPC", "protocolVersion": "1.0" });
    let custom = json!({ "url": "{base}/x", "protocolBinding": "X-CUSTOM", "protocolVersion": "1.0" });
    let json_rpc = json!({ "url": "{base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    let rest = json!({ "url": "{base}/r", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0" });
    let all = card_1_0(&json!({ "supportedInterfaces": [grpc, custom, json_rpc, rest] }));
    let agent = Agent::new(all, |_| rpc_ok(&working()));
    let report = send(&World::new(), agent.entry()).await;
    assert_eq!(report.interface, Some(agent.rpc()));
    let two = card_1_0(&json!({ "supportedInterfaces": [grpc, custom] }));
    let agent = Agent::new(two, |_| rpc_ok(&working()));
    let report = send(&World::new(), agent.entry()).await;
    assert_eq!(report.outcome, impossible(ReasonCode::NoCommonInterface));
    assert_eq!(agent.calls().len(), 0);
}

/// O-CARD-09
#[tokio::test]
async fn the_other_dialect_is_tried_once_where_nothing_can_have_run_and_is_remembered() {
    let unversioned = json!([{ "url": "{base}/rpc", "protocolBinding": "JSONRPC" }]);
    let agent = Agent::new(card_1_0(&json!({ "supportedInterfaces": unversioned })), |call| {
        if call["method"] == "SendMessage" { rpc_ok(&working()) } else { rpc_error(-32601, "no such method") }
    });
    let world = World::new();
    assert!(is_task(&send(&world, agent.entry()).await));
    let methods = || agent.calls().iter().map(|c| c["method"].to_string()).collect::<Vec<_>>();
    assert_eq!(methods(), ["\"message/send\"", "\"SendMessage\""]);
    assert!(is_task(&send(&world, agent.entry()).await));
    assert_eq!(methods().len(), 3);
    let mut pinned = agent.entry();
    pinned.posture.protocol = ProtocolPin::V0_3;
    let report = send(&World::new(), pinned).await;
    assert_eq!(report.outcome, SendOutcome::Refused { code: ReasonCode::SendRefused, after: None });
    assert!(report.detail.contains("-32601"), "{}", report.detail);
    assert_eq!(methods().len(), 4);
}

#[tokio::test]
async fn an_agent_that_knows_neither_dialect_is_asked_twice_and_no_more() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_error(-32009, "no such version"));
    let report = send(&World::new(), agent.entry()).await;
    assert_eq!(report.outcome, SendOutcome::Refused { code: ReasonCode::SendRefused, after: None });
    assert_eq!(agent.calls().len(), 2);
}

/// O-CARD-12
#[tokio::test]
async fn an_endpoint_that_refuses_json_rpc_is_left_after_one_attempt_and_its_page_is_not_shown() {
    let card = card_0_3(&json!({ "url": "{base}/v1/message:stream", "preferredTransport": null }));
    let agent = Agent::new(card, |_| status(400, "Content-Type: text/html\r\n", "<html>secret page</html>"));
    let report = send(&World::new(), agent.entry()).await;
    assert_eq!(report.outcome, SendOutcome::Refused { code: ReasonCode::SendRefused, after: None });
    assert!(report.detail.contains("400") && !report.detail.contains("html"), "{}", report.detail);
    assert_eq!(agent.calls().len(), 1);
}

#[tokio::test]
async fn a_skill_that_the_kept_card_lacks_is_looked_for_in_a_fresh_one_once() {
    let skill =
        |id: &str| card_1_0(&json!({ "skills": [{ "id": id, "name": id, "description": "", "tags": [] }] }));
    let agent = Agent::new(skill("old"), |_| rpc_ok(&working()));
    let world = World::new();
    let asking = |skill: &str| {
        let mut p = parcel(agent.entry());
        p.skill = Some(skill.to_owned());
        exeat(p)
    };
    assert!(is_task(&world.a2a.send(asking("old")).await));
    assert_eq!(agent.gets().len(), 1);
    agent.set_card(skill("new"));
    assert!(is_task(&world.a2a.send(asking("new")).await));
    assert_eq!(agent.gets().len(), 2);
    let report = world.a2a.send(asking("none")).await;
    assert_eq!(report.outcome, impossible(ReasonCode::SkillNotOffered));
    assert_eq!((agent.gets().len(), agent.calls().len()), (3, 2));
}

#[tokio::test]
async fn a_card_is_kept_for_its_time_and_met_by_no_other_version_or_credential() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let world = World::new();
    let mut with_secret = agent.entry();
    with_secret.posture.credential = bearer();
    let newer = AgentEntry { version: 2, ..agent.entry() };
    let mut expected = 0;
    for (entry, fetched) in [
        (agent.entry(), 1),
        (agent.entry(), 0),
        (newer, 1),
        (with_secret.clone(), 1),
        (with_secret.clone(), 0),
    ] {
        send(&world, entry).await;
        expected += fetched;
        assert_eq!(agent.gets().len(), expected);
    }
    *world.secret.lock().unwrap() = Some("tok-2".to_owned());
    send(&world, with_secret).await;
    assert_eq!(agent.gets().len(), expected + 1);
    world.pass(Span::of_secs(299));
    send(&world, agent.entry()).await;
    assert_eq!(agent.gets().len(), expected + 1);
    world.pass(Span::of_secs(2));
    send(&world, agent.entry()).await;
    assert_eq!(agent.gets().len(), expected + 2);
}

#[tokio::test]
async fn many_sends_at_once_fetch_one_card() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let world = World::new();
    let reports = tokio::join!(
        send(&world, agent.entry()),
        send(&world, agent.entry()),
        send(&world, agent.entry()),
        send(&world, agent.entry()),
    );
    assert!(is_task(&reports.0) && is_task(&reports.1) && is_task(&reports.2) && is_task(&reports.3));
    assert_eq!((agent.gets().len(), agent.calls().len()), (1, 4));
}

#[tokio::test]
async fn a_refusal_of_the_card_is_kept_for_a_while_and_a_failure_to_reach_it_is_not() {
    let refusing = Agent::by_path(|_, _| Some(status(401, "", "")));
    let world = World::new();
    for _ in 0..3 {
        assert_eq!(send(&world, refusing.entry()).await.outcome, impossible(ReasonCode::CardInvalid));
    }
    assert_eq!(refusing.gets().len(), 1);
    world.pass(Span::of_secs(31));
    send(&world, refusing.entry()).await;
    assert_eq!(refusing.gets().len(), 2);
    let busy = Agent::by_path(|_, _| Some(status(503, "", "")));
    let world = World::new();
    for _ in 0..2 {
        assert_eq!(send(&world, busy.entry()).await.outcome, SendOutcome::NotSent(ReasonCode::CardInvalid));
    }
    assert_eq!(busy.gets().len(), 2);
}

#[tokio::test]
async fn what_is_no_card_is_no_card() {
    for said in ["null", "[]", "{}", "<html>", "{\"name\":", ""] {
        let agent = Agent::by_path(move |_, _| Some(ok(said)));
        let report = send(&World::new(), agent.entry()).await;
        assert!(
            matches!(report.outcome, SendOutcome::Impossible(ReasonCode::CardInvalid)),
            "{said}: {report:?}"
        );
        assert_eq!(agent.calls().len(), 0);
    }
}

/// O-CARD-10
#[tokio::test]
async fn the_interfaces_tenant_is_echoed_and_is_absent_where_there_is_none() {
    let tenant = json!([{ "url": "{base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "acme-7" }]);
    let agent = Agent::new(card_1_0(&json!({ "supportedInterfaces": tenant })), |_| rpc_ok(&working()));
    let report = send(&World::new(), agent.entry()).await;
    assert_eq!(report.interface.unwrap().tenant.as_deref(), Some("acme-7"));
    assert_eq!(agent.calls()[0]["params"]["tenant"], "acme-7");
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    send(&World::new(), agent.entry()).await;
    assert!(agent.calls()[0]["params"].get("tenant").is_none());
}

/// O-AUTH-03, O-SSRF-05
#[tokio::test]
async fn a_redirected_card_is_not_followed() {
    let other = Peer::saying(ok("{}"));
    let to = format!("Location: http://{}/\r\n", other.address);
    let agent = Agent::by_path(move |_, _| Some(status(302, &to, "")));
    let mut entry = agent.entry();
    entry.posture.credential = bearer();
    assert_eq!(send(&World::new(), entry).await.outcome, impossible(ReasonCode::RedirectRefused));
    assert_eq!((agent.peer.requests().len(), other.accepts()), (1, 0));
}

#[tokio::test]
async fn the_card_is_asked_for_with_the_credential() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let mut entry = agent.entry();
    entry.posture.credential = bearer();
    assert!(is_task(&send(&World::new(), entry).await));
    let requests = agent.peer.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|r| r.contains("\r\nauthorization: Bearer tok-1\r\n")));
    assert!(body(&requests[1]).to_string().find("tok-1").is_none());
}
