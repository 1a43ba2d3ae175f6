//! A hop that was made, explained: how it was judged, by which policies, and what those in force would say now.
//!
//! Changes nothing. What was judged is read from the ledger; the sentences of its policies from the version that
//! was asked then. Facts that no record holds are shown as they stand now, and named.

use std::collections::BTreeMap;

use exeat_core::change::Snapshot;
use exeat_core::gate::verdict::{Because, Decision, Facts, HopFacts, Verdict};
use exeat_core::id::{HopId, Ids};
use exeat_core::label::Label;
use exeat_core::ledger::data::{EdgeData, Judged};
use exeat_core::ledger::{Data, Dir, Record};
use exeat_core::ports::Find;
use exeat_core::reason::{Reason, ReasonCode};
use exeat_core::registry::Registry;
use exeat_core::task::desk::{Desk, Hindsight, Refusal};
use exeat_core::task::explain::Explained;
use exeat_core::task::{Hop, Task};
use exeat_core::walk::{Loaded, Stopped};
use exeat_policy::{PolicySet, describe};
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;

/// Facts that the record of an edge doesn't hold.
const AS_OF_NOW: [&str; 4] = ["principal", "first_contact", "hops", "budget_left_microusd"];

/// One judgement, as it was recorded.
struct Recorded {
    record: Record,
    judged: Judged,
}

/// The explanation of a hop.
///
/// # Errors
/// If there is no such hop, or the record can't be read.
pub async fn past(app: &App, caller: &Caller, id: HopId) -> Result<Value, Problem> {
    let loaded = app.ports.load(caller.org(), Find::Hop(id)).await.map_err(|e| match e {
        Stopped::NotFound(_) => Problem::not_found("hop"),
        other => other.into(),
    })?;
    let (task, registry) = (loaded.snapshot.task.0.clone(), loaded.registry.clone());
    let hop = task.hop(id).cloned().ok_or_else(|| Problem::not_found("hop"))?;
    let bridge = loaded.snapshot.bridges.iter().map(|(b, _)| b).find(|b| b.hop == id).cloned();
    let recorded = judgements(app, caller, &task, &hop).await?;
    let mut sentences = Sentences::new(app, caller);
    let mut shown_judgements = Vec::with_capacity(recorded.len());
    for r in &recorded {
        shown_judgements.push(judgement(r, sentences.verdict(&r.judged).await?));
    }
    // The edge that goes out is what a hop is asked about; what came back is among the judgements.
    let outgoing = recorded.iter().rev().find(|r| r.record_dir(&recorded) != Some(Dir::A2aIngress));
    let outgoing = outgoing.ok_or_else(|| Problem::not_found("judgement"))?;
    let edge = recorded.iter().rev().find_map(|r| outgoing_edge(r, outgoing.record.turn));
    let now = today(app, loaded, id)?;
    let verdict = sentences.verdict(&outgoing.judged).await?;
    let reason = bridge.as_ref().and_then(|b| b.reason.as_ref().map(|r| r.code));
    let mut shown = json!(verdict);
    let Some(members) = shown.as_object_mut() else { return Ok(shown) };
    let mut say = |name: &str, value: Value| members.insert(name.to_owned(), value);
    say("hop_id", json!(id));
    say("task_id", json!(task.id));
    say("reason", json!(denial(&verdict, reason).map(Reason::from)));
    say("label", edge.map_or_else(|| json!(hop.seen), |e| json!(e.label)));
    say("price_microusd", json!(edge.map_or(0, |e| e.price_microusd)));
    say("redactions", json!([]));
    say("context", then(now.as_ref(), edge, &outgoing.judged, &registry));
    say("as_of_now", json!(AS_OF_NOW));
    say("judgements", json!(shown_judgements));
    say("now", now.map_or(Value::Null, |n| in_force(&n)));
    Ok(shown)
}

impl Recorded {
    /// Which way its edge goes: a later verdict says it by the record that it points to.
    fn record_dir(&self, all: &[Self]) -> Option<Dir> {
        let edge = match (&self.record.data, self.record.edge) {
            (Data::Edge(e), _) => return Some(e.dir),
            (_, edge) => edge?,
        };
        all.iter().find(|r| r.record.seq == edge).and_then(|r| match &r.record.data {
            Data::Edge(e) => Some(e.dir),
            _ => None,
        })
    }
}

fn outgoing_edge(r: &Recorded, turn: Option<u32>) -> Option<&EdgeData> {
    match &r.record.data {
        Data::Edge(e) if e.dir != Dir::A2aIngress && r.record.turn == turn => Some(e),
        _ => None,
    }
}

async fn judgements(app: &App, caller: &Caller, task: &Task, hop: &Hop) -> Result<Vec<Recorded>, Problem> {
    let own = task.edge_hop(hop);
    let records = app.archive.records_of(caller.org(), task.id).await?;
    let read = records.iter().filter_map(|r| serde_json::from_slice::<Record>(&r.bytes).ok());
    let of_hop = read.filter(|r| r.hop == own && r.step.as_ref() == Some(&hop.step));
    let judged = of_hop.filter_map(|record| {
        let judged = match &record.data {
            Data::Edge(e) => e.verdict.clone(),
            Data::Verdict(v) => v.clone(),
            _ => return None,
        };
        Some(Recorded { record, judged })
    });
    Ok(judged.collect())
}

fn judgement(r: &Recorded, verdict: Verdict) -> Value {
    let mut shown = json!(verdict);
    if let Some(members) = shown.as_object_mut() {
        members.insert("seq".to_owned(), json!(r.record.seq));
        members.insert("turn".to_owned(), json!(r.record.turn));
        if let Data::Edge(e) = &r.record.data {
            members.insert("dir".to_owned(), json!(e.dir));
        } else {
            members.insert("edge".to_owned(), json!(r.record.edge));
        }
    }
    shown
}

/// What the gate would say now; none if the agent is gone or the content erased.
fn today(app: &App, loaded: Loaded, id: HopId) -> Result<Option<Explained>, Problem> {
    let Loaded { registry, governor, snapshot, flow } = loaded;
    let Snapshot { now, .. } = snapshot;
    let told = app.ports.decide(&registry, governor.as_ref(), now, &Hindsight::default(), |ctx, ids: Ids| {
        Desk::open(ctx, ids, flow, snapshot).explain(id)
    });
    match told {
        Ok(explained) => Ok(Some(explained)),
        Err(Refusal::NotFound(_) | Refusal::Wrong(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn in_force(n: &Explained) -> Value {
    let mut shown = json!(n.weighed.verdict);
    if let Some(members) = shown.as_object_mut() {
        members.insert("reason".to_owned(), json!(n.weighed.denied.map(Reason::from)));
        members.insert("context".to_owned(), describe(&n.question));
    }
    shown
}

/// The context as it was judged: what the record holds over what is known now.
fn then(now: Option<&Explained>, edge: Option<&EdgeData>, judged: &Judged, registry: &Registry) -> Value {
    let (Some(now), Some(edge)) = (now, edge) else { return Value::Null };
    let mut question = now.question.clone();
    let Facts::Hop(facts) = &mut question.facts else { return Value::Null };
    let (hour_utc, weekday) = HopFacts::clock(judged.at);
    if let Some(label) = label_of(edge, registry) {
        facts.label = label;
    }
    facts.tainted = edge.tainted;
    facts.size_bytes = edge.bytes;
    facts.price_microusd = edge.price_microusd;
    (facts.hour_utc, facts.weekday) = (hour_utc, weekday);
    describe(&question)
}

fn label_of(edge: &EdgeData, registry: &Registry) -> Option<Label> {
    let tags = edge.label.tags.iter().map(|t| t.as_str().to_owned());
    let text = std::iter::once(edge.label.level.clone()).chain(tags).collect::<Vec<_>>().join("+");
    registry.levels.parse(&text).ok()
}

/// Why it was denied, if it was: a hard rule's own code, or what the policies make of it.
fn denial(verdict: &Verdict, ended: Option<ReasonCode>) -> Option<ReasonCode> {
    if verdict.decision != Decision::Deny {
        return None;
    }
    let hard = |id: &str| ReasonCode::ALL.iter().copied().find(|c| c.as_str() == id);
    let rule = verdict.policies.iter().find_map(|p| hard(&p.id));
    rule.or(ended).or(Some(match verdict.policies.as_slice() {
        [] => ReasonCode::NoPolicyAllows,
        _ => ReasonCode::DeniedByPolicy,
    }))
}

/// The sentences of policies, by the version that they are of.
struct Sentences<'a> {
    app: &'a App,
    caller: &'a Caller,
    sets: BTreeMap<u32, Option<PolicySet>>,
}

impl<'a> Sentences<'a> {
    const fn new(app: &'a App, caller: &'a Caller) -> Self {
        Self { app, caller, sets: BTreeMap::new() }
    }

    /// A recorded verdict with what its policies say of themselves; the ledger holds their ids alone.
    async fn verdict(&mut self, judged: &Judged) -> Result<Verdict, Problem> {
        let version = judged.policy_version.to_string();
        let org = version.split_once('.').and_then(|(_, org)| org.parse::<u32>().ok());
        if let Some(org) = org
            && !self.sets.contains_key(&org)
        {
            let row = self.app.archive.policy(self.caller.org(), org).await?;
            let read = move || row.and_then(|r| PolicySet::parse(&r.source).ok());
            let set = tokio::task::spawn_blocking(read).await.map_err(|e| Problem::internal(&e))?;
            self.sets.insert(org, set);
        }
        let set = org.and_then(|org| self.sets.get(&org)).and_then(Option::as_ref);
        let hard = |id: &str| ReasonCode::ALL.iter().find(|c| c.as_str() == id).map(|c| c.message());
        let policies = judged.policies.iter().map(|p| {
            let id = p.id.to_string();
            let reason = match set {
                Some(set) => set.reason(&id).map(str::to_owned),
                None => hard(&id).map(str::to_owned),
            };
            Because { id, reason }
        });
        Ok(Verdict {
            decision: judged.decision,
            roles: judged.roles.iter().map(ToString::to_string).collect(),
            policies: policies.collect(),
            policy_version: version,
            at: judged.at,
        })
    }
}
