//! Names and TLS, from permit to peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exeat_core::gate::exeat::LookFor;
use exeat_core::reason::ReasonCode;
use exeat_core::time::Span;
use exeat_core::transport::{LookOutcome, SendOutcome, Transport as _};
use exeat_egress::resolve::{Dns, Table};
use serde_json::json;

use crate::agent::{Agent, World, bearer, card_1_0, entry, exeat, interface, look, parcel, rpc_ok, working};
use crate::peers::{Identity, NameServer, Peer, Reply, addresses, ok};

/// Answers the first `good` look-ups with an address that the entry lists, later ones with one that it doesn't.
fn turning(good: usize) -> NameServer {
    let asked = AtomicUsize::new(0);
    NameServer::new(move |_, kind| match kind {
        1 if asked.fetch_add(1, Ordering::SeqCst) < good => addresses(&["127.0.0.1"]),
        1 => addresses(&["127.0.0.2"]),
        _ => Reply::Addresses(vec![]),
    })
}

/// O-SSRF-04, O-SSRF-12
#[tokio::test]
async fn a_name_that_turns_inward_is_refused_at_the_card_the_send_and_the_look_alike() {
    let agent = Agent::new(card_1_0(&json!({})), |_| rpc_ok(&working()));
    let port = agent.peer.address.port();
    let inside = Peer::at(&format!("127.0.0.2:{port}"), |wire, _| drop(wire.write_all(ok("{}").as_bytes())));
    let base = format!("http://rebind.test:{port}");
    let mut listed = entry(&base);
    listed.posture.allow_cidrs = ["127.0.0.1/32".to_owned()].into();
    listed.posture.credential = bearer();
    for (good, gets, posts) in [(0, 0, 0), (1, 1, 0), (2, 2, 1)] {
        let dns = turning(good);
        let world = World::asking(Arc::new(Dns::server(dns.address).unwrap()), |_| {});
        let report = world.a2a.send(exeat(parcel(listed.clone()))).await;
        let refused = report.outcome == SendOutcome::Impossible(ReasonCode::AddressRefused);
        assert_eq!(refused, good < 2, "{good}: {report:?}");
        let ask = look(listed.clone(), interface(&format!("{base}/rpc"), "1.0"), LookFor::Task("t1".into()));
        let expected = LookOutcome::Nothing { code: ReasonCode::AddressRefused, after: None };
        assert_eq!(world.a2a.look(ask).await, expected);
        assert_eq!((agent.gets().len(), agent.calls().len()), (gets, posts), "{good}");
        assert!(dns.questions().iter().all(|(name, _)| name == "rebind.test"));
    }
    assert_eq!(inside.accepts(), 0);
}

#[tokio::test]
async fn a_refused_entry_is_met_by_no_question() {
    let dns = NameServer::new(|_, _| addresses(&["127.0.0.1"]));
    let world = World::asking(Arc::new(Dns::server(dns.address).unwrap()), |s| {
        s.platform.origins = exeat_egress::target::Origins::parse(&["https://other.test"]).unwrap();
    });
    let report = world.a2a.send(exeat(parcel(entry("http://peer.test/")))).await;
    assert_eq!(report.outcome, SendOutcome::Impossible(ReasonCode::EndpointNotAllowed));
    assert_eq!(dns.questions(), []);
}

#[tokio::test]
async fn an_https_agent_is_spoken_to_under_its_name() {
    let identity = Identity::of("peer.test");
    let agent = Agent::tls(&identity, card_1_0(&json!({})), |_| rpc_ok(&working()));
    let port = agent.peer.address.port();
    let names = Table::new([("peer.test".to_owned(), vec![agent.peer.address.ip()])]);
    let trusting = World::asking(Arc::new(names.clone()), |s| {
        s.platform.ports = vec![port];
        s.extra_roots = identity.ca_pem.clone().into_bytes();
    });
    let mut strict = entry(&format!("https://peer.test:{port}"));
    strict.posture.plaintext = false;
    let report = trusting.a2a.send(exeat(parcel(strict.clone()))).await;
    assert!(matches!(report.outcome, SendOutcome::Task(_)), "{report:?}");
    assert_eq!(agent.peer.server_names(), vec![Some("peer.test".to_owned()); 2]);
    let stranger = World::asking(Arc::new(names), |s| s.platform.ports = vec![port]);
    let report = stranger.a2a.send(exeat(parcel(strict))).await;
    assert_eq!(report.outcome, SendOutcome::NotSent(ReasonCode::AttemptsExhausted));
    assert_eq!(agent.peer.requests().len(), 2);
}

#[tokio::test]
async fn a_name_server_that_fails_or_is_silent_leaves_the_message_unsent() {
    for reply in [Reply::Code(2), Reply::Silence, Reply::Code(3)] {
        let dns = NameServer::new(move |_, _| reply.clone());
        let world = World::asking(Arc::new(Dns::server(dns.address).unwrap()), |s| {
            s.bounds.connect = Span::of_millis(300);
        });
        let report = world.a2a.send(exeat(parcel(entry("http://nowhere.test/")))).await;
        assert_eq!(report.outcome, SendOutcome::NotSent(ReasonCode::AttemptsExhausted));
    }
}
