//! The description of the API (OpenAPI 3.1), made from the table of its routes and the schemas beside it.
//!
//! The table is also what tests walk: a route that isn't in it, or is in it and not in the router, fails them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use exeat_core::principal::KeyScope::{self, *};
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::problem::Code;

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Its door.
pub fn routes() -> Router<Arc<App>> {
    Router::new().route("/openapi.json", get(show))
}

/// One route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `get`, `put`, `post` or `delete`.
    pub method: &'static str,
    /// With its parameters in braces.
    pub path: &'static str,
    /// A key needs one of these; empty: no key is asked for.
    pub scopes: &'static [KeyScope],
    /// What it does.
    pub summary: &'static str,
    /// The query's members.
    pub query: &'static [&'static str],
    /// Media type and schema of the body.
    pub body: Option<(&'static str, &'static str)>,
    /// Status, media type and schema of the answer; no schema: no body.
    pub answer: (u16, &'static str, &'static str),
}

const JSON: &str = "application/json";
const PAGE: &[&str] = &["limit", "cursor"];

const fn read(
    path: &'static str,
    scopes: &'static [KeyScope],
    summary: &'static str,
    query: &'static [&'static str],
    schema: &'static str,
) -> Route {
    Route { method: "get", path, scopes, summary, query, body: None, answer: (200, JSON, schema) }
}

const fn write(
    method: &'static str,
    path: &'static str,
    scopes: &'static [KeyScope],
    summary: &'static str,
    body: &'static str,
    answer: (u16, &'static str),
) -> Route {
    let body = Some((JSON, body));
    Route { method, path, scopes, summary, query: &[], body, answer: (answer.0, JSON, answer.1) }
}

const READER: &[KeyScope] = &[Viewer, Admin, Operator];
const RUNNER: &[KeyScope] = &[Viewer, Admin, Requester];

/// The doors of whoever governs, runs and audits.
pub const ADMIN: &[Route] = &[
    read("/api/v1/agents", READER, "Lists the registered agents.", PAGE, "AgentPage"),
    read("/api/v1/agents/{key}", READER, "Shows an agent's entry.", &[], "Agent"),
    write(
        "put",
        "/api/v1/agents/{key}",
        &[Admin],
        "Writes an entry: If-None-Match: * creates, If-Match changes.",
        "AgentWritten",
        (201, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/sign",
        &[Admin],
        "Signs a posture as it was seen.",
        "Signature",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/disable",
        &[Admin],
        "Stops new sends to the agent.",
        "Why",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/enable",
        &[Admin],
        "Lets sends go to the agent again.",
        "Why",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/revoke",
        &[Admin],
        "Ends all contact with the agent, for good.",
        "Why",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/halt",
        &[Operator],
        "Throws the agent's kill switch.",
        "Why",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/resume",
        &[Operator],
        "Takes the agent's kill switch back.",
        "Why",
        (200, "Agent"),
    ),
    write(
        "post",
        "/api/v1/agents/{key}/probe",
        &[Operator],
        "Looks at the agent: is it there, what would be used.",
        "Why",
        (200, "Probe"),
    ),
    read("/api/v1/roles", READER, "Lists the roles that were set.", PAGE, "RolePage"),
    read("/api/v1/roles/{name}", READER, "Shows a role, set or not.", &[], "Role"),
    write("put", "/api/v1/roles/{name}", &[Admin], "Sets a role, whole.", "RoleWritten", (200, "Role")),
    read("/api/v1/egress", READER, "Shows the switch of egress.", &["scope"], "Egress"),
    Route {
        query: &["scope"],
        ..write(
            "put",
            "/api/v1/egress",
            &[Operator],
            "Sets the switch of egress.",
            "EgressWanted",
            (200, "Egress"),
        )
    },
    read("/api/v1/policy", READER, "Shows the policy in force.", &[], "Policy"),
    Route {
        body: Some(("text/plain", "Text")),
        ..write(
            "put",
            "/api/v1/policy",
            &[Admin],
            "Makes a policy the org's.",
            "Text",
            (200, "PolicyVersion"),
        )
    },
    Route {
        body: Some(("text/plain", "Text")),
        ..write(
            "post",
            "/api/v1/policy/check",
            READER,
            "Checks a policy; changes nothing.",
            "Text",
            (200, "PolicyCheck"),
        )
    },
    write(
        "post",
        "/api/v1/policy/explain",
        READER,
        "Says what would become of a hop; changes nothing.",
        "Imagined",
        (200, "Explained"),
    ),
    read("/api/v1/workflows", RUNNER, "Lists the newest version of each workflow.", PAGE, "WorkflowPage"),
    read("/api/v1/workflows/{name}", RUNNER, "Shows a version of a workflow.", &["version"], "Workflow"),
    Route {
        query: &["dry_run"],
        body: Some(("application/yaml", "Text")),
        ..write(
            "put",
            "/api/v1/workflows/{name}",
            &[Admin],
            "Pushes a workflow.",
            "Text",
            (201, "WorkflowVersion"),
        )
    },
    read("/api/v1/keys", &[Admin], "Lists the API keys.", PAGE, "KeyPage"),
    write(
        "post",
        "/api/v1/keys",
        &[Admin],
        "Makes an API key; its text is shown this once.",
        "KeyWritten",
        (201, "KeyMade"),
    ),
    Route {
        method: "delete",
        path: "/api/v1/keys/{id}",
        scopes: &[Admin],
        summary: "Revokes an API key.",
        query: &[],
        body: None,
        answer: (204, JSON, ""),
    },
    write(
        "post",
        "/api/v1/callback-keys/rotate",
        &[Admin],
        "Makes callback tokens with the next key; the old one verifies until its last token expires.",
        "Nothing",
        (200, "CallbackKey"),
    ),
    write(
        "put",
        "/api/v1/budgets/{scope}",
        &[Admin],
        "Limits what org, agent:KEY or workflow:NAME may spend.",
        "BudgetWritten",
        (200, "Budget"),
    ),
    read("/api/v1/costs", &[Viewer], "Sums what was spent.", &["by", "from", "to"], "Costs"),
    read(
        "/api/v1/ledger",
        &[Viewer],
        "Lists records.",
        &["from", "kind", "task", "order", "limit", "cursor"],
        "RecordPage",
    ),
    Route {
        answer: (200, "application/jsonl", "Text"),
        ..read(
            "/api/v1/ledger/export",
            &[Viewer],
            "Writes all records, with a signed head at the end.",
            &["from"],
            "Text",
        )
    },
    read("/api/v1/ledger/verify", &[Viewer], "Verifies the whole ledger.", &[], "Verification"),
    Route {
        answer: (200, "application/x-pem-file", "Text"),
        ..read(
            "/api/v1/ledger/key",
            &[Viewer],
            "Shows the public key that signs the ledger's heads.",
            &[],
            "Text",
        )
    },
    read("/api/v1/dead-letters", &[Operator], "Lists what gave up.", PAGE, "DeadLetterPage"),
    read("/api/v1/dead-letters/{id}", &[Operator], "Shows one that gave up.", &[], "DeadLetter"),
    write(
        "post",
        "/api/v1/dead-letters/{id}/retry",
        &[Operator],
        "Takes its task further, as a new one.",
        "DeadLetterRetried",
        (201, "Task"),
    ),
    write(
        "post",
        "/api/v1/dead-letters/{id}/discard",
        &[Operator],
        "Gives it up for good.",
        "Why",
        (200, "DeadLetter"),
    ),
    read("/api/v1/orgs", &[Platform], "Lists the orgs of this store.", PAGE, "OrgPage"),
    write(
        "post",
        "/api/v1/orgs",
        &[Platform],
        "Makes an org, where the store holds several.",
        "OrgWritten",
        (201, "OrgMade"),
    ),
    read("/healthz", &[], "Does the process live?", &[], "Health"),
    read("/readyz", &[], "Can it do its work?", &[], "Health"),
    Route {
        answer: (200, "application/openmetrics-text", "Text"),
        ..read("/metrics", READER, "Numbers for Prometheus.", &[], "Text")
    },
    read("/api/v1/vitals", READER, "How the gateway stands, in numbers and times.", &[], "Vitals"),
    read("/openapi.json", &[], "This description.", &[], "Any"),
];

/// The doors of whoever asks for work, does it, and decides about it.
pub const TASKS: &[Route] = &[
    read(
        "/api/v1/tasks",
        &[Viewer],
        "Lists tasks.",
        &["status", "workflow", "agent", "due_before", "limit", "cursor"],
        "TaskPage",
    ),
    write(
        "post",
        "/api/v1/tasks",
        &[Requester],
        "Starts a task: a workflow, or one hop.",
        "TaskWanted",
        (201, "Task"),
    ),
    read("/api/v1/tasks/{id}", &[Viewer], "Shows a task; Prefer: wait=N waits for its end.", &[], "Task"),
    Route {
        answer: (200, "text/event-stream", "Text"),
        ..read("/api/v1/tasks/{id}/events", &[Viewer], "Follows a task's events.", &[], "Text")
    },
    write(
        "post",
        "/api/v1/tasks/{id}/cancel",
        &[Requester, Operator],
        "Cancels a task.",
        "Why",
        (202, "Task"),
    ),
    write(
        "post",
        "/api/v1/tasks/{id}/answer",
        &[Requester, Operator],
        "Answers a foreign agent's question.",
        "Answered",
        (202, "Task"),
    ),
    write(
        "post",
        "/api/v1/tasks/{id}/resolve",
        &[Operator],
        "Says what became of a send that nobody answered.",
        "Resolved",
        (202, "Task"),
    ),
    read(
        "/api/v1/approvals",
        &[Approver, Viewer],
        "Lists approvals.",
        &["status", "limit", "cursor"],
        "ApprovalPage",
    ),
    read(
        "/api/v1/approvals/{id}",
        &[Approver, Viewer],
        "Shows an approval with the bytes that it is about.",
        &[],
        "Approval",
    ),
    write(
        "post",
        "/api/v1/approvals/{id}/approve",
        &[Approver],
        "Says yes to what was seen.",
        "Decided",
        (200, "Approval"),
    ),
    write(
        "post",
        "/api/v1/approvals/{id}/deny",
        &[Approver],
        "Says no, and why.",
        "Decided",
        (200, "Approval"),
    ),
    write("post", "/api/v1/leases", &[Worker], "Leases work for a role.", "LeaseWanted", (200, "Leases")),
    write(
        "post",
        "/api/v1/leases/{id}/complete",
        &[Worker],
        "Ends the work with an output.",
        "Completed",
        (200, "Settled"),
    ),
    write(
        "post",
        "/api/v1/leases/{id}/suspend",
        &[Worker],
        "Delegates, and parks until the answers are there.",
        "Suspended",
        (202, "Settled"),
    ),
    write("post", "/api/v1/leases/{id}/fail", &[Worker], "Gives the work up.", "Failed", (200, "Settled")),
    write(
        "post",
        "/api/v1/leases/{id}/extend",
        &[Worker],
        "Holds the lease longer.",
        "Extended",
        (200, "Lasting"),
    ),
    Route {
        method: "post",
        path: "/api/v1/a2a/callback/{callback_id}",
        scopes: &[],
        summary: "Takes what a foreign agent pushes; its token stands in its own headers.",
        query: &[],
        body: Some((JSON, "Any")),
        answer: (202, JSON, ""),
    },
];

/// All routes.
pub fn all() -> impl Iterator<Item = &'static Route> {
    TASKS.iter().chain(ADMIN)
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn content(media: &str, schema: &str) -> Value {
    json!({ media: { "schema": reference(schema) } })
}

fn parameters(route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let mut all = Vec::new();
    let mut rest = route.path;
    while let Some((_, after)) = rest.split_once('{')
        && let Some((name, after)) = after.split_once('}')
    {
        all.push(json!({ "name": name, "in": "path", "required": true, "schema": text }));
        rest = after;
    }
    all.extend(route.query.iter().map(|name| json!({ "name": name, "in": "query", "schema": text })));
    if route.method == "post" && !route.scopes.is_empty() {
        all.push(json!({ "name": "Idempotency-Key", "in": "header", "schema": text }));
    }
    all
}

fn operation(route: &Route) -> Value {
    let (status, media, schema) = route.answer;
    let mut answer = Map::new();
    answer.insert("description".to_owned(), json!(route.summary));
    if !schema.is_empty() {
        answer.insert("content".to_owned(), content(media, schema));
    }
    let problem = json!({
        "description": "A problem (RFC 9457).",
        "content": content("application/problem+json", "Problem"),
    });
    let scopes: Vec<_> = route.scopes.iter().map(|s| s.as_str()).collect();
    let (description, security) = match scopes.as_slice() {
        [] => ("Needs no API key.".to_owned(), json!([])),
        some => (format!("Needs a key with the scope {}.", some.join(" or ")), json!([{ "key": [] }])),
    };
    let mut shown = Map::new();
    let mut say = |member: &str, value: Value| shown.insert(member.to_owned(), value);
    say("summary", json!(route.summary));
    say("description", json!(description));
    say("parameters", json!(parameters(route)));
    say("security", security);
    if let Some((media, schema)) = route.body {
        say("requestBody", json!({ "content": content(media, schema) }));
    }
    say("responses", json!({ status.to_string(): answer, "default": problem }));
    Value::Object(shown)
}

/// The whole document.
#[must_use]
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in all() {
        paths.entry(route.path).or_default().insert(route.method.to_owned(), operation(route));
    }
    // The file is part of the program, and a test reads it.
    let mut schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let codes: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
    if let Some(code) = schemas.pointer_mut("/Problem/properties/code") {
        *code = json!({ "type": "string", "enum": codes });
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Exeat",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Governed delegation between agents.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer", "bearerFormat": "exk_…" } },
        },
    })
}

async fn show() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    ([(CONTENT_TYPE, JSON)], text.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_the_api_lists_every_call_and_no_other() {
        let page = include_str!("../../../docs/api.md");
        let rows = page.lines().filter_map(|l| l.strip_prefix("| `"));
        let listed: BTreeSet<&str> = rows.filter_map(|r| r.split('`').next()).collect();
        let named: Vec<String> = all()
            .map(|r| {
                let path = r.path.strip_prefix("/api/v1").unwrap_or(r.path);
                format!("{} {path}", r.method.to_uppercase())
            })
            .collect();
        let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(listed, named);
    }
}
