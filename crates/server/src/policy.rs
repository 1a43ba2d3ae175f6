//! The org's policy: checked, pushed, explained.
//!
//! A push counts once a second person has pushed the very same text (by its digest); in single-operator mode
//! at once. Rolling back is pushing the old text: it takes two as well.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::{post, put};
use axum::{Json, Router};
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::verdict::{Action, Entity, Facts, HopFacts, Question};
use exeat_core::gate::{Asked as AskedGate, Begun, is_halted, posture_rule, weigh};
use exeat_core::id::{HopId, KeyId, RoleName};
use exeat_core::label::Label;
use exeat_core::ledger::data::Governs;
use exeat_core::payload::Payload;
use exeat_core::reason::ReasonCode;
use exeat_core::registry::Registry;
use exeat_core::registry::change::rule::push_policy;
use exeat_core::registry::change::{WrittenLabel, agent_facts};
use exeat_core::time::Timestamp;
use exeat_policy::{PolicyFault, PolicySet, describe};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::{Admin, Caller, Reader};
use crate::body::{Body, Text, from_json};
use crate::explain::past;
use crate::govern::{Ground, earlier, settle, until_done};
use crate::idempotency::Once;
use crate::problem::{Code, Fault, Problem};

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/policy", put(push).get(show))
        .route("/api/v1/policy/check", post(check))
        .route("/api/v1/policy/explain", post(explain))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    policy: String,
}

fn cedar(text: Text) -> Result<String, Problem> {
    match text.media_type.as_str() {
        "text/plain" | "text/cedar" | "application/cedar" => Ok(text.text),
        "application/json" => Ok(from_json::<Wrapped>(text.text.as_bytes())?.policy),
        _ => Err(Problem::new(
            Code::UnsupportedMediaType,
            "A policy is sent as text/plain, or as application/json {\"policy\":\"…\"}.",
        )),
    }
}

/// Reads a set; apart from the other requests, since a long text takes its time.
async fn read(text: String) -> Result<Result<PolicySet, Vec<PolicyFault>>, Problem> {
    tokio::task::spawn_blocking(move || PolicySet::parse(&text)).await.map_err(|e| Problem::internal(&e))
}

fn bad_policy(faults: &[PolicyFault]) -> Problem {
    let errors = faults.iter().map(|f| Fault {
        line: Some(f.line),
        column: Some(f.column),
        message: match &f.policy_id {
            Some(id) => format!("{id}: {}", f.message),
            None => f.message.clone(),
        },
        ..Fault::default()
    });
    let errors: Vec<Fault> = errors.collect();
    let number = match errors.len() {
        1 => "1 fault".to_owned(),
        n => format!("{n} faults"),
    };
    Problem::new(Code::BadPolicy, format!("The policy has {number}.")).listing(errors)
}

async fn check(State(_): State<Arc<App>>, _: Reader, text: Text) -> Result<Json<Value>, Problem> {
    Ok(Json(match read(cedar(text)?).await? {
        Ok(set) => json!({ "ok": true, "errors": [], "warnings": set.warnings() }),
        Err(faults) => json!({ "ok": false, "errors": faults }),
    }))
}

/// The set in force, as it was pushed.
async fn show(State(app): State<Arc<App>>, Reader(caller): Reader) -> Result<Json<Value>, Problem> {
    let registry = app.ports.store.registry(caller.org()).await?;
    let policy = registry.policy.as_ref().ok_or_else(|| Problem::not_found("policy"))?;
    Ok(Json(json!({ "version": policy.version, "policy": policy.source, "at": policy.at, "by": policy.by })))
}

async fn push(State(app): State<Arc<App>>, Admin(caller): Admin, text: Text) -> Result<Response, Problem> {
    let source = cedar(text)?;
    let set = read(source.clone()).await?.map_err(|faults| bad_policy(&faults))?;
    let (app, caller, source, warnings) = (&app, &caller, &source, &set.warnings());
    until_done(|| async move {
        let ground = Ground::load(app, caller).await?;
        let earlier = earlier(app, caller, Governs::Policy).await?;
        let change = push_policy(ground.acting(caller), source, &earlier)?;
        let show = |version: &u32, _| json!({ "version": version, "warnings": warnings });
        settle(app, change, &Once::none(), StatusCode::OK, show).await
    })
    .await
}

/// What would become of a hop.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Imagined {
    #[serde(default)]
    hop_id: Option<HopId>,
    /// `key:ID` or `role:NAME`; the caller's own key if it isn't said.
    #[serde(default)]
    r#as: Option<String>,
    #[serde(default)]
    to: Option<Endpoint>,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    label: Option<WrittenLabel>,
    #[serde(default)]
    skill: Option<String>,
    #[serde(default)]
    budget_microusd: Option<u64>,
}

impl Imagined {
    const fn says_more(&self) -> bool {
        let (who, what) = (self.r#as.is_some() || self.to.is_some(), self.input.is_some());
        who || what || self.label.is_some() || self.skill.is_some() || self.budget_microusd.is_some()
    }
}

/// Who would send it, and what they may.
struct Sender {
    entity: Entity,
    role: Option<RoleName>,
}

async fn sender(
    app: &App,
    caller: &Caller,
    registry: &Registry,
    named: Option<&str>,
) -> Result<Sender, Problem> {
    let bad = |why: &str| Problem::invalid("/as", why);
    let Some(named) = named else {
        return Ok(Sender { entity: Entity::Key(caller.key.facts()), role: None });
    };
    match named.split_once(':') {
        Some(("key", id)) => {
            let id: KeyId = id.parse().map_err(|_| bad("This isn't a key's id."))?;
            let found = app.archive.api_key(&id).await?.filter(|(k, _)| k.org == *caller.org());
            let (key, _) = found.ok_or_else(|| bad("There is no such key in this org."))?;
            Ok(Sender { entity: Entity::Key(key.facts()), role: None })
        }
        Some(("role", name)) => {
            let name: RoleName = name.parse().map_err(|_| bad("This isn't a role's name."))?;
            let to = Endpoint::Role(name.clone());
            let clearance = registry.role(&name).clearance;
            let entity = Entity::of_internal(&to, &clearance).ok_or_else(|| bad("This isn't a role."))?;
            Ok(Sender { entity, role: Some(name) })
        }
        _ => Err(bad("Name who sends it as key:ID or role:NAME.")),
    }
}

fn facts(
    payload: &Payload,
    label: &Label,
    skill: Option<String>,
    to: &Endpoint,
    registry: &Registry,
    now: Timestamp,
) -> HopFacts {
    let agent = match to {
        Endpoint::Agent(key) => registry.agent(key),
        Endpoint::Role(_) | Endpoint::Team(_) => None,
    };
    let (hour_utc, weekday) = HopFacts::clock(now);
    HopFacts {
        task: String::new(),
        workflow: String::new(),
        step: "hop".to_owned(),
        turn: 1,
        depth: 1,
        hops: 1,
        label: label.clone(),
        tainted: false,
        parts: payload.kinds(),
        size_bytes: u64::try_from(payload.bytes().len()).unwrap_or(u64::MAX),
        skill,
        first_contact: agent.is_some_and(|a| !registry.met.contains(&a.key)),
        price_microusd: agent.map_or(0, |a| a.terms.price.estimate_microusd),
        budget_left_microusd: None,
        hour_utc,
        weekday,
    }
}

async fn explain(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Body { value: imagined, .. }: Body<Imagined>,
) -> Result<Json<Value>, Problem> {
    if let Some(hop) = imagined.hop_id {
        if imagined.says_more() {
            return Err(Problem::invalid("/hop_id", "A hop that was made is named by its id alone."));
        }
        return past(&app, &caller, hop).await.map(Json);
    }
    let to = imagined.to.ok_or_else(|| Problem::invalid("/to", "Say to whom: role:N, team:N or agent:K."))?;
    let registry = app.ports.store.registry(caller.org()).await?;
    let now = app.ports.store.now().await?;
    let label = match &imagined.label {
        Some(written) => written.read(&registry.levels)?,
        None => registry.default_label.clone(),
    };
    let input = imagined.input.unwrap_or_else(|| json!(""));
    let payload = Payload::from_json(&input, &app.settings.bounds.payload)?;
    let sender = sender(&app, &caller, &registry, imagined.r#as.as_deref()).await?;
    let may = sender.role.as_ref().is_none_or(|r| registry.role(r).may.contains(&to));
    if !may {
        return Err(Problem::new(Code::DestinationNotAllowed, format!("The role may not delegate to {to}.")));
    }
    let mut facts = facts(&payload, &label, imagined.skill, &to, &registry, now);
    facts.budget_left_microusd = imagined.budget_microusd;
    let (action, resource, broken) = destination(&registry, &to, &label)?;
    let over = imagined.budget_microusd.is_some_and(|budget| facts.price_microusd > budget);
    let broken = broken.or(over.then_some(ReasonCode::BudgetExceeded));
    let halted =
        matches!(&to, Endpoint::Agent(key) if registry.agent(key).is_some_and(|a| is_halted(&registry, a)));
    let asked = AskedGate {
        org: caller.org(),
        principal: sender.entity.clone(),
        action,
        resource: resource.clone(),
        facts: facts.clone(),
        broken,
        granted: std::collections::BTreeSet::new(),
    };
    let weighed = weigh(&asked, app.ports.governors.of(&registry).as_ref(), now);
    let question = Question {
        org: caller.org().clone(),
        principal: sender.entity,
        action,
        resource,
        facts: Facts::Hop(facts.clone()),
    };
    let mut shown = json!(weighed.verdict);
    if let Some(members) = shown.as_object_mut() {
        members.insert("reason".to_owned(), json!(weighed.denied.map(exeat_core::reason::Reason::from)));
        members.insert("label".to_owned(), label.shown());
        members.insert("price_microusd".to_owned(), json!(facts.price_microusd));
        members.insert("redactions".to_owned(), json!([]));
        members.insert("halted".to_owned(), json!(halted));
        members.insert("context".to_owned(), describe(&question));
    }
    Ok(Json(shown))
}

/// The resource, and the hard rule that it breaks.
fn destination(
    registry: &Registry,
    to: &Endpoint,
    label: &Label,
) -> Result<(Action, Entity, Option<ReasonCode>), Problem> {
    if let Endpoint::Agent(key) = to {
        let unknown = || Problem::new(Code::UnknownDestination, format!("There is no agent {key}."));
        let agent = registry.agent(key).ok_or_else(unknown)?;
        let above = (!label.flows_to(&agent.posture.ceiling)).then_some(ReasonCode::LabelAboveCeiling);
        let broken = posture_rule(registry, agent, Begun::Not).or(above);
        return Ok((Action::A2aEgress, Entity::Agent(agent_facts(agent)), broken));
    }
    let ceiling = registry.internal_ceiling(to).unwrap_or_else(|| registry.default_label.clone());
    let resource = Entity::of_internal(to, &ceiling)
        .ok_or_else(|| Problem::new(Code::UnknownDestination, format!("There is no {to}.")))?;
    let above = (!label.flows_to(&ceiling)).then_some(ReasonCode::LabelAboveCeiling);
    Ok((Action::Forward, resource, above))
}
