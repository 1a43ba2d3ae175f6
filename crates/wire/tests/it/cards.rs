//! Cards of every version, and which interface is chosen from them.

use exeat_wire::card::{Card, CardError, NoCommonInterface, SchemeKind};
use exeat_wire::{BadJson, Binding, Dialect, Interface, Limits, ProtocolPin};
use serde_json::{Value, json};

fn card(v: &Value) -> Card {
    Card::parse(v.to_string().as_bytes(), &Limits::default()).unwrap()
}

fn chosen(v: &Value) -> Interface {
    card(v).choose(ProtocolPin::Auto).unwrap()
}

fn one(url: &str, binding: &str, version: &str) -> Value {
    json!({ "url": url, "protocolBinding": binding, "protocolVersion": version })
}

/// As a2a-sdk for Python 1.3.0 serves it for an agent that declares both versions.
fn python_hybrid() -> Value {
    json!({
        "name": "Echo", "description": "echoes", "version": "1.0.0",
        "supportedInterfaces": [
            {"url": "https://peer.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "https://peer.test/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "https://peer.test/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        ],
        "capabilities": {"streaming": true, "pushNotifications": true},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "says it again", "tags": ["test"]}],
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {}}}],
        "url": "https://peer.test/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3"
    })
}

/// As @a2a-js/sdk 1.3.0 prints defaults.
fn js_card() -> Value {
    json!({
        "name": "JS", "description": "d", "version": "1", "documentationUrl": "", "iconUrl": "",
        "supportedInterfaces": [{"url": "https://peer.test/a2a", "protocolBinding": "JSONRPC", "tenant": "", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": false, "pushNotifications": false, "extensions": []},
        "securitySchemes": {}, "securityRequirements": [], "signatures": [], "skills": [], "provider": null
    })
}

/// As a2a-sdk for Python 0.3.26 serves it.
fn python_0_3() -> Value {
    json!({
        "name": "Old", "description": "d", "version": "1.0.0", "protocolVersion": "0.3.0",
        "url": "https://peer.test/rpc", "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"transport": "JSONRPC", "url": "https://peer.test/rpc"}, {"transport": "GRPC", "url": "peer.test:50051"}],
        "capabilities": {"pushNotifications": true, "streaming": true, "stateTransitionHistory": false},
        "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}, "oauth": {"type": "oauth2", "flows": {}}, "m": {"type": "mutualTLS"}},
        "security": [{"key": []}, {"oauth": ["a"], "m": []}],
        "skills": [{"id": "s", "name": "S", "description": "", "tags": []}],
        "supportsAuthenticatedExtendedCard": false
    })
}

/// As langgraph-api serves it: the new list and the old address, without the old version.
fn langgraph() -> Value {
    json!({
        "name": "graph", "description": "d", "version": "1", "url": "https://peer.test/a2a/7",
        "supportedInterfaces": [one("https://peer.test/a2a/7", "JSONRPC", "1.0")],
        "capabilities": {"streaming": true, "pushNotifications": false}, "skills": []
    })
}

#[test]
fn cards_of_published_servers_are_read() {
    let c = card(&python_hybrid());
    assert_eq!((c.name.as_str(), c.push, c.streaming, c.extended), ("Echo", Some(true), Some(true), None));
    assert_eq!(c.skills[0].id, "echo");
    assert!(c.offers("echo") && !c.offers("Echo"));
    assert_eq!(c.security[0].kind, SchemeKind::Http { scheme: "bearer".into() });
    assert_eq!(c.requirements, [["bearer"]]);
    assert_eq!(c.interfaces().len(), 3);

    let c = card(&js_card());
    assert_eq!(c.push, Some(false));
    assert_eq!(chosen(&js_card()).tenant, None, "an empty tenant is none");

    let c = card(&python_0_3());
    assert_eq!(c.extended, Some(false));
    let kinds: Vec<_> = c.security.iter().map(|s| s.kind.clone()).collect();
    let key = SchemeKind::ApiKey { place: "header".into(), name: "X-Key".into() };
    assert_eq!(kinds, [key, SchemeKind::MutualTls, SchemeKind::OAuth2]);
    assert_eq!(c.requirements, [vec!["key"], vec!["m", "oauth"]]);
    assert_eq!(c.interfaces().len(), 2, "the repeated one counts once");

    assert_eq!(chosen(&langgraph()).dialect, Some(Dialect::V1_0));
    assert_eq!(card(&langgraph()).interfaces().len(), 1);
}

#[test]
fn a_0_1_card_names_its_schemes_and_is_spoken_to_in_0_3() {
    let c = json!({"name":"p","url":"https://peer.test/","version":"1","authentication":{"schemes":["Bearer"],"credentials":null},"capabilities":{},"skills":[]});
    assert_eq!(card(&c).security[0].kind, SchemeKind::Http { scheme: "bearer".into() });
    assert_eq!(chosen(&c).dialect, Some(Dialect::V0_3));
}

#[test]
fn o_card_03_the_allow_list_is_asked_about_the_very_url_that_would_be_dialled() {
    let hybrid = |listed: &str, top: &str| {
        card(
            &json!({"name":"p","url":top,"protocolVersion":"0.3.0","supportedInterfaces":[one(listed,"JSONRPC","1.0")]}),
        )
    };
    let home = |u: &url::Url| u.host_str() == Some("peer.test");
    // The listed one is elsewhere: only the home one may be used, in its own dialect.
    let i = hybrid("https://other.test/rpc", "https://peer.test/rpc")
        .choose_where(ProtocolPin::Auto, home)
        .unwrap();
    assert_eq!((i.url.as_str(), i.dialect), ("https://peer.test/rpc", Some(Dialect::V0_3)));
    // The mirror image.
    let i = hybrid("https://peer.test/rpc", "https://other.test/rpc")
        .choose_where(ProtocolPin::Auto, home)
        .unwrap();
    assert_eq!((i.url.as_str(), i.dialect), ("https://peer.test/rpc", Some(Dialect::V1_0)));
}

#[test]
fn o_card_01_o_card_02_a_card_that_points_elsewhere_names_no_usable_interface() {
    let home = |u: &url::Url| u.origin() == url::Url::parse("https://peer.test").unwrap().origin();
    for elsewhere in [
        "http://0.0.0.0:8001/",
        "http://[::]:8080/invoke",
        "http://localhost:8000/",
        "https://other.test/rpc",
    ] {
        for c in [
            json!({"name":"p","version":"1","protocolVersion":"0.3.0","url":elsewhere,"skills":[],"capabilities":{}}),
            json!({"name":"p","supportedInterfaces":[one(elsewhere,"JSONRPC","1.0")]}),
        ] {
            let refused = card(&c).choose_where(ProtocolPin::Auto, home).unwrap_err();
            assert_eq!(refused, NoCommonInterface::NotAllowed { urls: vec![elsewhere.into()] });
        }
    }
}

#[test]
fn o_card_06_a_pure_0_3_card_is_spoken_to_in_0_3() {
    let c = json!({"name":"p","protocolVersion":"0.3.0","version":"1","url":"https://peer.test/rpc","preferredTransport":"JSONRPC","skills":[],"capabilities":{},"defaultInputModes":["text"],"defaultOutputModes":["text"]});
    let i = chosen(&c);
    assert_eq!(
        (i.url.as_str(), i.dialect, i.version.as_str()),
        ("https://peer.test/rpc", Some(Dialect::V0_3), "0.3.0")
    );
    assert_eq!(card(&c).push, None);
}

#[test]
fn a_0_2_card_is_spoken_to_in_0_3() {
    let c = json!({"name":"p","protocolVersion":"0.2.6","url":"https://peer.test/rpc","capabilities":{"streaming":null}});
    assert_eq!(chosen(&c).dialect, Some(Dialect::V0_3));
    assert_eq!(card(&c).choose(ProtocolPin::V0_2).unwrap().dialect, Some(Dialect::V0_3));
    assert!(card(&c).choose(ProtocolPin::V0_3).is_err());
}

#[test]
fn o_card_07_a_1_0_card_needs_no_top_level_address() {
    let i = chosen(&json!({"supportedInterfaces":[one("https://peer.test/rpc","JSONRPC","1.0")]}));
    assert_eq!((i.url.as_str(), i.dialect), ("https://peer.test/rpc", Some(Dialect::V1_0)));
}

#[test]
fn o_card_08_an_interface_that_we_can_not_speak_is_passed_over() {
    let all = [
        one("peer.test:443", "GRPC", "1.0"),
        one("https://peer.test/x", "X-CUSTOM", "1.0"),
        one("https://peer.test/rpc", "JSONRPC", "1.0"),
        one("https://peer.test/rest", "HTTP+JSON", "1.0"),
    ];
    assert_eq!(chosen(&json!({"name":"p","supportedInterfaces":all})).url, "https://peer.test/rpc");
    let refused =
        card(&json!({"name":"p","supportedInterfaces":all[..2]})).choose(ProtocolPin::Auto).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the card offers GRPC 1.0, X-CUSTOM 1.0; protocol auto over JSONRPC is wanted"
    );
    // REST alone isn't chosen either.
    assert!(card(&json!({"name":"p","supportedInterfaces":[all[3]]})).choose(ProtocolPin::Auto).is_err());
    let rest = json!({"name":"p","url":"https://peer.test/","preferredTransport":"HTTP+JSON","protocolVersion":"0.3.0"});
    assert_eq!(card(&rest).interfaces()[0].binding, Binding::HttpJson);
    assert!(card(&rest).choose(ProtocolPin::Auto).is_err());
}

#[test]
fn the_newest_spoken_version_wins_and_the_card_s_order_breaks_ties() {
    let at = |path: &str, version: &str| one(&format!("https://peer.test/{path}"), "JSONRPC", version);
    let order = |list: &[Value]| -> Vec<String> {
        let c = card(&json!({"name":"p","supportedInterfaces":list}));
        c.interfaces().iter().map(|i| i.url.trim_start_matches("https://peer.test/").to_owned()).collect()
    };
    let all = [
        at("none", ""),
        at("a03", "0.3"),
        at("v2", "2.0"),
        at("v11", "1.1"),
        at("a10", "1.0.0"),
        at("b10", "1.0"),
        at("a02", "0.2.5"),
    ];
    assert_eq!(order(&all), ["a10", "b10", "v11", "a03", "a02", "none", "v2"]);
    // A version that nobody speaks is never chosen.
    let c = card(&json!({"name":"p","supportedInterfaces":[at("v2","2.0")]}));
    assert!(c.choose(ProtocolPin::Auto).is_err());
}

#[test]
fn o_card_09_a_card_without_a_version_is_tried_in_0_3_first_unless_the_entry_pins_one() {
    let c = json!({"name":"p","supportedInterfaces":[{"url":"https://peer.test/rpc","protocolBinding":"JSONRPC"}]});
    assert_eq!((chosen(&c).dialect, chosen(&c).version.as_str()), (Some(Dialect::V0_3), ""));
    assert_eq!(chosen(&c).dialect.unwrap().other(), Dialect::V1_0);
    for (pin, dialect) in [
        (ProtocolPin::V1_0, Dialect::V1_0),
        (ProtocolPin::V0_3, Dialect::V0_3),
        (ProtocolPin::V0_2, Dialect::V0_3),
    ] {
        assert_eq!(card(&c).choose(pin).unwrap().dialect, Some(dialect));
    }
    assert!(card(&c).choose(ProtocolPin::V0_1).is_err());
}

#[test]
fn a_pin_takes_only_what_claims_that_version() {
    let c = card(&python_hybrid());
    assert_eq!(c.choose(ProtocolPin::Auto).unwrap().dialect, Some(Dialect::V1_0));
    assert_eq!(c.choose(ProtocolPin::V0_3).unwrap().version, "0.3");
    assert!(matches!(
        c.choose(ProtocolPin::V0_2),
        Err(NoCommonInterface::NotSpoken { pin: ProtocolPin::V0_2, .. })
    ));
    assert!(card(&python_0_3()).choose(ProtocolPin::V1_0).is_err());
}

#[test]
fn an_older_field_of_a_hybrid_card_counts_if_it_claims_another_dialect() {
    let c = json!({"name":"p","url":"https://peer.test/rpc","protocolVersion":"0.3.0","supportedInterfaces":[one("https://peer.test/rpc","JSONRPC","1.0")]});
    assert_eq!(chosen(&c).dialect, Some(Dialect::V1_0));
    assert_eq!(card(&c).choose(ProtocolPin::V0_3).unwrap().version, "0.3.0");
}

#[test]
fn o_card_09_a_version_written_as_a_number_is_a_claim() {
    for (version, dialect) in
        [(json!(1.0), Dialect::V1_0), (json!(1), Dialect::V1_0), (json!(0.3), Dialect::V0_3)]
    {
        let c = json!({"name":"p","supportedInterfaces":[{"url":"https://peer.test/rpc","protocolBinding":"JSONRPC","protocolVersion":version}]});
        assert_eq!(chosen(&c).dialect, Some(dialect));
        assert!(!chosen(&c).version.is_empty());
    }
}

#[test]
fn o_card_10_the_tenant_of_the_chosen_interface_is_kept_exactly() {
    let mut i = one("https://peer.test/rpc", "JSONRPC", "1.0");
    i["tenant"] = json!("acme-7");
    assert_eq!(chosen(&json!({"name":"p","supportedInterfaces":[i]})).tenant.as_deref(), Some("acme-7"));
}

#[test]
fn o_card_11_members_that_nobody_knows_change_nothing() {
    let mut c = python_hybrid();
    let plain = card(&c);
    c["x-new"] = json!({"a":[1]});
    c["skills"][0]["x-new"] = json!({"a":[1]});
    c["supportedInterfaces"][0]["x-new"] = json!(null);
    let extended = card(&c);
    assert_eq!(extended.projection(), plain.projection());
    assert_ne!(extended.digest(), plain.digest());
}

#[test]
fn the_projection_changes_with_whatever_matters_and_only_then() {
    let base = python_hybrid();
    let with = |pointer: &str, v: Value| {
        let mut c = base.clone();
        *c.pointer_mut(pointer).unwrap() = v;
        card(&c).projection()
    };
    let plain = card(&base).projection();
    for (pointer, v) in [
        ("/supportedInterfaces/0/url", json!("https://peer.test/other")),
        ("/supportedInterfaces/0/protocolVersion", json!("1.1")),
        ("/skills/0/id", json!("other")),
        ("/securitySchemes/bearer/httpAuthSecurityScheme/scheme", json!("Basic")),
        ("/securityRequirements", json!([])),
    ] {
        assert_ne!(with(pointer, v), plain, "{pointer}");
    }
    for (pointer, v) in
        [("/description", json!("new words")), ("/skills/0/description", json!("new")), ("/name", json!("N"))]
    {
        assert_eq!(with(pointer, v), plain, "{pointer}");
    }
    let mut signed = base.clone();
    // {"alg":"ES256","kid":"k1"}
    signed["signatures"] = json!([{"protected":"eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0","signature":"x"}]);
    assert_eq!(card(&signed).projection()["signing_keys"], json!(["k1"]));
}

#[test]
fn what_is_no_card_is_refused() {
    let read = |s: &str| Card::parse(s.as_bytes(), &Limits::default());
    for other in
        ["{}", "[]", "null", "\"card\"", r#"{"detail":"Not Found"}"#, r#"{"name":""}"#, r#"{"name":null}"#]
    {
        assert_eq!(read(other), Err(CardError::NotACard), "{other}");
    }
    assert!(matches!(read("<html>"), Err(CardError::Json(BadJson::Syntax { .. }))));
    let bare = read(r#"{"name":"p","capabilities":null,"skills":null,"url":""}"#).unwrap();
    assert_eq!(
        bare.choose(ProtocolPin::Auto).unwrap_err().to_string(),
        "the card offers no interface; protocol auto over JSONRPC is wanted"
    );
}

#[test]
fn an_address_that_is_no_web_address_is_never_chosen() {
    for url in ["/a2a", "peer.test:443", "ftp://peer.test/", "javascript:alert(1)", "unix:/run/x"] {
        assert!(
            card(&json!({"name":"p","supportedInterfaces":[one(url,"JSONRPC","1.0")]}))
                .choose(ProtocolPin::Auto)
                .is_err(),
            "{url}"
        );
    }
}
