//! Who must move: for each thing that a task waits for, when Exeat looks at it next, when it gives up, and
//! the command that helps.

use exeat_core::bridge::{Bridge, BridgeState};
use exeat_core::change::Snapshot;
use exeat_core::endpoint::Endpoint;
use exeat_core::envelope::EnvelopeState;
use exeat_core::gate::is_halted;
use exeat_core::id::{ApprovalId, EnvelopeId};
use exeat_core::registry::{AgentStatus, EgressMode, Registry};
use exeat_core::task::{Hop, HopState, Question, Run, Step, Wants};
use exeat_core::time::{Span, Timestamp};
use serde_json::{Value, json};

/// Everything that the task waits for.
#[must_use]
pub fn shown(snapshot: &Snapshot, registry: &Registry) -> Vec<Value> {
    let task = &snapshot.task.0;
    if task.status.is_ended() {
        return Vec::new();
    }
    let hops = task.hops.iter().filter_map(|h| of_hop(h, snapshot, registry));
    let retries = task.steps.iter().flat_map(|s| retries_of(s, task.deadline));
    hops.chain(retries).map(Wait::shown).collect()
}

struct Wait<'a> {
    step: &'a exeat_core::id::StepName,
    on: &'static str,
    of: String,
    since: Timestamp,
    next_at: Option<Timestamp>,
    until: Option<Timestamp>,
    hint: String,
}

impl Wait<'_> {
    fn shown(self) -> Value {
        json!({
            "step": self.step, "for": self.on, "ref": self.of, "since": self.since,
            "next_at": self.next_at, "until": self.until, "hint": self.hint,
        })
    }
}

fn retries_of(s: &Step, deadline: Option<Timestamp>) -> impl Iterator<Item = Wait<'_>> {
    let runs = s.runs.iter().filter(|_| !s.status.is_over());
    runs.filter_map(Run::retries_at).map(move |at| Wait {
        step: &s.name,
        on: "retry",
        of: s.name.to_string(),
        since: s.started_at.unwrap_or(at),
        next_at: Some(at),
        until: deadline,
        hint: "Nothing to do: it is tried again by itself.".to_owned(),
    })
}

fn of_hop<'a>(h: &'a Hop, snapshot: &'a Snapshot, registry: &Registry) -> Option<Wait<'a>> {
    match &h.state {
        HopState::Ended { .. } => None,
        HopState::AwaitingForward { approval }
        | HopState::AwaitingEgress { approval }
        | HopState::AwaitingIngress { approval } => Some(approval_of(h, *approval, snapshot)),
        HopState::Out { envelope } => Some(worker_of(h, *envelope, snapshot, registry)),
        HopState::Parked => Some(Wait {
            step: &h.step,
            on: "delegations",
            of: h.id.to_string(),
            since: h.created_at,
            next_at: snapshot.task.0.due_at,
            until: h.until.or(snapshot.task.0.deadline),
            hint: "Its worker goes on by itself once all that it delegated has ended or asks.".to_owned(),
        }),
        HopState::Asking(q) => Some(question_of(h, q, snapshot)),
        HopState::Foreign => {
            let bridge = snapshot.bridges.iter().map(|(b, _)| b).find(|b| b.hop == h.id)?;
            foreign_of(h, bridge, registry)
        }
    }
}

fn approval_of<'a>(h: &'a Hop, id: ApprovalId, snapshot: &'a Snapshot) -> Wait<'a> {
    let approval = snapshot.approvals.iter().map(|(a, _)| a).find(|a| a.id == id);
    let until = approval.map(|a| a.expires_at);
    let roles = approval
        .map(|a| a.missing_roles().into_iter().collect::<Vec<_>>().join(", "))
        .filter(|r| !r.is_empty())
        .map(|r| format!(" as {r}"))
        .unwrap_or_default();
    Wait {
        step: &h.step,
        on: "approval",
        of: id.to_string(),
        since: approval.map_or(h.created_at, |a| a.created_at),
        next_at: until,
        until,
        hint: format!("Somebody other than the requester decides{roles}: `exeat approval approve {id}`"),
    }
}

/// A time within a sentence: to the second, as a person reads it.
fn moment(at: Timestamp) -> String {
    let text = at.to_string().replacen('T', " ", 1);
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A role whose workers may take what goes there.
fn a_role_for(to: &Endpoint, registry: &Registry) -> String {
    match to {
        Endpoint::Role(name) => name.to_string(),
        Endpoint::Team(team) => {
            let member = registry.roles.values().find(|r| r.teams.contains(team));
            member.map_or_else(|| "ROLE".to_owned(), |r| r.name.to_string())
        }
        Endpoint::Agent(_) => "ROLE".to_owned(),
    }
}

fn worker_of<'a>(h: &'a Hop, id: EnvelopeId, snapshot: &'a Snapshot, registry: &Registry) -> Wait<'a> {
    let envelope = snapshot.envelopes.iter().map(|(e, _)| e).find(|e| e.id == id);
    let hint = match envelope.map(|e| &e.state) {
        Some(EnvelopeState::Leased { worker, until, .. }) => {
            format!("Worker {worker} has it; its lease lasts until {}.", moment(*until))
        }
        Some(EnvelopeState::Paused { until }) => {
            format!("Its last worker failed; it is handed out again at {}.", moment(*until))
        }
        _ => {
            let role = a_role_for(&h.to, registry);
            format!(
                "No worker has taken it: `exeat worker --role {role} -- CMD`, with a key from `exeat key create \
                 --name {role} --scope worker --worker-role {role}`"
            )
        }
    };
    Wait {
        step: &h.step,
        on: "worker",
        of: h.to.to_string(),
        since: envelope.map_or(h.created_at, |e| e.created_at),
        next_at: envelope.and_then(|e| e.due_at),
        until: h.until.or(snapshot.task.0.deadline),
        hint,
    }
}

fn question_of<'a>(h: &'a Hop, q: &Question, snapshot: &'a Snapshot) -> Wait<'a> {
    let bridge = snapshot.bridges.iter().map(|(b, _)| b).find(|b| b.hop == h.id);
    let (on, hint) = match q.wants {
        Wants::Input => {
            ("input", format!("`exeat task answer {} --question {} TEXT`", snapshot.task.0.id, q.id))
        }
        Wants::Auth => ("auth", format!("Authorise it with the owner of {}; Exeat keeps looking.", h.to)),
    };
    Wait {
        step: &h.step,
        on,
        of: q.id.to_string(),
        since: bridge.and_then(|b| b.turn_began).unwrap_or(h.created_at),
        next_at: bridge.and_then(|b| b.due_at),
        until: Some(q.until),
        hint,
    }
}

fn foreign_of<'a>(h: &'a Hop, b: &'a Bridge, registry: &Registry) -> Option<Wait<'a>> {
    if b.state.is_terminal() {
        return None;
    }
    let halted = registry.agent(&b.agent).is_some_and(|a| is_halted(registry, a));
    let off = registry.mode() == EgressMode::Off;
    let revoked = registry.agent(&b.agent).is_some_and(|a| a.status == AgentStatus::Revoked);
    let (on, of, hint) = match b.state {
        _ if revoked => (
            "halt",
            h.to.to_string(),
            format!("The agent is revoked and isn't contacted any more: `exeat task cancel {}`", b.task),
        ),
        _ if halted && registry.mode() == EgressMode::Halt => {
            ("halt", "egress".to_owned(), "`exeat egress on --reason TEXT`".to_owned())
        }
        _ if halted => ("halt", h.to.to_string(), format!("`exeat agent resume {}`", b.agent)),
        _ if off => ("halt", "egress".to_owned(), "`exeat egress on --reason TEXT`".to_owned()),
        BridgeState::Ready => (
            "retry",
            h.id.to_string(),
            format!("It is sent by itself; `exeat task show {}` says why the tries so far failed.", b.task),
        ),
        BridgeState::SendUnknown { .. } => (
            "agent",
            h.id.to_string(),
            format!(
                "Nobody knows whether it arrived: ask the owner of {}; Exeat keeps looking. Whoever knows says so: \
                 `exeat task resolve {} --ran yes|no --reason TEXT`",
                h.to, b.task
            ),
        ),
        _ => ("agent", h.id.to_string(), format!("`exeat task cancel {}` stops waiting for it.", b.task)),
    };
    Some(Wait {
        step: &h.step,
        on,
        of,
        since: b.turn_began.unwrap_or(b.created_at),
        next_at: b.due_at,
        until: gives_up_at(b, registry.bounds.unknown_grace),
        hint,
    })
}

/// When Exeat gives the hop up: at its deadline; and where nobody knows whether a message arrived, once the grace for that
/// is over.
fn gives_up_at(b: &Bridge, grace: Span) -> Option<Timestamp> {
    let BridgeState::SendUnknown { since } = b.state else { return b.deadline };
    let over = since + grace;
    Some(b.deadline.map_or(over, |d| d.min(over)))
}
