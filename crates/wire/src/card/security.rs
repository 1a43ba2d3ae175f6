//! How an agent wants to be authenticated to, as its card says. Only names and kinds: which secret goes where
//! is the registry's word, and an address in here (a token endpoint, say) is never dialled.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::json::Look as _;

/// A named way to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityScheme {
    /// The card's name for it.
    pub name: String,
    /// What it is.
    pub kind: SchemeKind,
}

/// A kind of authentication (A2A 1.0 §4.5; OpenAPI's shapes before).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemeKind {
    /// A key in a header, query or cookie.
    ApiKey {
        /// Where it goes: `header`, `query`, `cookie`.
        place: String,
        /// The name of that header, parameter or cookie.
        name: String,
    },
    /// An HTTP authentication scheme.
    Http {
        /// Its name, lower case (`bearer`).
        scheme: String,
    },
    /// OAuth 2.
    OAuth2,
    /// OpenID Connect.
    OpenIdConnect,
    /// A client certificate.
    MutualTls,
    /// Something else, as the card names it.
    Other(String),
}

impl SchemeKind {
    pub(super) fn projection(&self) -> Value {
        match self {
            Self::ApiKey { place, name } => json!({ "kind": "api_key", "place": place, "name": name }),
            Self::Http { scheme } => json!({ "kind": "http", "scheme": scheme }),
            Self::OAuth2 => json!({ "kind": "oauth2" }),
            Self::OpenIdConnect => json!({ "kind": "open_id_connect" }),
            Self::MutualTls => json!({ "kind": "mutual_tls" }),
            Self::Other(name) => json!({ "kind": "other", "name": name }),
        }
    }

    /// Reads a scheme: 1.0 wraps it in a member, before it had a `type`.
    fn read(m: &Map<String, Value>) -> Self {
        const WRAPPERS: [(&str, &str); 5] = [
            ("apiKeySecurityScheme", "apiKey"),
            ("httpAuthSecurityScheme", "http"),
            ("oauth2SecurityScheme", "oauth2"),
            ("openIdConnectSecurityScheme", "openIdConnect"),
            ("mtlsSecurityScheme", "mutualTLS"),
        ];
        let wrapped = WRAPPERS.into_iter().find_map(|(name, kind)| Some((kind, m.object(name)?)));
        let (kind, inner) = wrapped.unwrap_or_else(|| (m.text("type").unwrap_or_default(), m));
        let said = |name: &str| inner.text(name).unwrap_or_default().to_owned();
        match kind.to_ascii_lowercase().as_str() {
            "apikey" => Self::ApiKey {
                place: inner.text("location").or_else(|| inner.text("in")).unwrap_or_default().to_owned(),
                name: said("name"),
            },
            "http" => Self::Http { scheme: said("scheme").to_ascii_lowercase() },
            "oauth2" => Self::OAuth2,
            "openidconnect" => Self::OpenIdConnect,
            "mutualtls" | "mtls" => Self::MutualTls,
            _ => Self::Other(if kind.is_empty() {
                m.keys().next().cloned().unwrap_or_default()
            } else {
                kind.to_owned()
            }),
        }
    }
}

/// The card's schemes, by name. A 0.1 card names HTTP schemes only.
pub(super) fn schemes(card: &Map<String, Value>) -> Vec<SecurityScheme> {
    let named = card.object("securitySchemes").into_iter().flatten().filter_map(|(name, v)| {
        Some(SecurityScheme { name: name.clone(), kind: SchemeKind::read(v.as_object()?) })
    });
    let oldest = card.object("authentication").map_or(&[][..], |a| a.list("schemes"));
    let oldest = oldest.iter().filter_map(Value::as_str).map(|s| SecurityScheme {
        name: s.to_owned(),
        kind: SchemeKind::Http { scheme: s.to_ascii_lowercase() },
    });
    let mut all: Vec<SecurityScheme> = named.chain(oldest).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The card's requirements: `[{"schemes":{"a":{…}}}]` in 1.0, `[{"a":[…]}]` before.
pub(super) fn requirements(card: &Map<String, Value>) -> Vec<Vec<String>> {
    let listed = card.list("securityRequirements");
    let listed = if listed.is_empty() { card.list("security") } else { listed };
    listed
        .iter()
        .filter_map(Value::as_object)
        .map(|r| {
            let names: BTreeSet<&String> = r.object("schemes").unwrap_or(r).keys().collect();
            names.into_iter().cloned().collect()
        })
        .collect()
}
