//! The agent card in its three shapes: 1.0, 0.3, and the hybrid that servers of both publish.

use serde_json::{Value, json};

use super::dialect::put;
use super::{Protocol, StubAgentArgs, Switch};

/// The card, with its endpoint at `authority`.
pub(super) fn card(args: &StubAgentArgs, authority: &str) -> Value {
    let url = format!("http://{authority}/rpc");
    let push = args.push == Switch::On;
    let mut card = json!({
        "name": "Exeat stub agent",
        "description": "Does what the first line of a message says. For demos and tests only.",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": { "streaming": false, "pushNotifications": push },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [{
            "id": "echo", "name": "Echo", "description": "Gives back the parts it was given.", "tags": ["test"],
        }],
    });
    let v1 = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    let v03 = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3" });
    match args.protocol {
        Protocol::V1 => put(&mut card, "supportedInterfaces", json!([v1])),
        Protocol::Both => put(&mut card, "supportedInterfaces", json!([v1, v03])),
        Protocol::V03 => {}
    }
    if args.protocol != Protocol::V1 {
        put(&mut card, "url", json!(url));
        put(&mut card, "preferredTransport", json!("JSONRPC"));
        put(&mut card, "protocolVersion", json!("0.3.0"));
    }
    if args.token.is_some() {
        secure(&mut card, args.protocol);
    }
    card
}

fn secure(card: &mut Value, protocol: Protocol) {
    if protocol == Protocol::V03 {
        put(card, "securitySchemes", json!({ "bearer": { "type": "http", "scheme": "Bearer" } }));
        put(card, "security", json!([{ "bearer": [] }]));
    } else {
        let scheme = json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } });
        put(card, "securitySchemes", json!({ "bearer": scheme }));
        put(card, "securityRequirements", json!([{ "schemes": { "bearer": { "list": [] } } }]));
    }
}
