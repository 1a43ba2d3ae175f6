//! A task with all that hangs on it, and an org's registry: each one statement, so as of one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exeat_core::bridge::{Bridge, CancelIntent, InboxRow};
use exeat_core::change::{PolicyRow, Snapshot, WorkflowRow};
use exeat_core::cost::{Budget, Scope};
use exeat_core::envelope::Envelope;
use exeat_core::id::{AgentKey, OrgName, PayloadId};
use exeat_core::payload::Sealed;
use exeat_core::ports::{Find, Unreadable};
use exeat_core::registry::{AgentEntry, EgressMode, OrgDefaults, Registry, RoleEntry};
use exeat_core::task::Task;
use exeat_core::time::Timestamp;
use serde_json::Value;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::read::{corrupt, count, doc, get, keyed, sealed, unavailable};
use super::sql;

/// Where a task is to be found, and what else is wanted of it.
struct Found {
    task: String,
    envelope: Option<String>,
    approval: Option<String>,
}

/// The task that `find` belongs to. `now` is asked after the reading, so that nothing read is of the future.
pub(super) async fn snapshot(
    readers: &SqlitePool,
    org: &OrgName,
    find: Find,
    now: impl Fn() -> Timestamp,
) -> Result<Option<Snapshot>, Unreadable> {
    let Some(found) = locate(readers, org, find).await? else { return Ok(None) };
    let query = sqlx::query(sql::LOAD).bind(org.as_str()).bind(&found.task);
    let query = query.bind(&found.envelope).bind(&found.approval);
    let rows = query.fetch_all(readers).await.map_err(|e| unavailable(&e))?;
    let mut parts = Parts::default();
    for row in &rows {
        parts.take(row)?;
    }
    parts.sort();
    let Some(task) = parts.task else { return Ok(None) };
    Ok(Some(Snapshot {
        now: now(),
        task,
        workflow: parts.workflow.map(Arc::new),
        bridges: parts.bridges,
        envelopes: parts.envelopes,
        approvals: parts.approvals,
        cancels: parts.cancels,
        inbox: parts.inbox,
        payloads: parts.payloads,
    }))
}

/// What belongs to which task never changes, so this needn't be as of the same moment as the rest.
async fn locate(readers: &SqlitePool, org: &OrgName, find: Find) -> Result<Option<Found>, Unreadable> {
    let (statement, key) = match find {
        Find::Task(id) => {
            return Ok(Some(Found { task: id.to_string(), envelope: None, approval: None }));
        }
        Find::Hop(id) => (sql::TASK_OF_HOP, id.to_string()),
        Find::Approval(id) => (sql::TASK_OF_APPROVAL, id.to_string()),
        Find::Envelope(id) => (sql::TASK_OF_ENVELOPE, id.to_string()),
        Find::Lease(id) => (sql::ENVELOPE_OF_LEASE, id.to_string()),
    };
    let row = sqlx::query(statement).bind(org.as_str()).bind(&key).fetch_optional(readers).await;
    let Some(row) = row.map_err(|e| unavailable(&e))? else { return Ok(None) };
    Ok(Some(Found {
        task: get(&row, "task", &key, 0)?,
        envelope: match find {
            Find::Lease(_) => Some(get(&row, "envelope", &key, 1)?),
            Find::Envelope(_) => Some(key.clone()),
            _ => None,
        },
        approval: matches!(find, Find::Approval(_)).then_some(key),
    }))
}

#[derive(Default)]
struct Parts {
    task: Option<(Task, u64)>,
    workflow: Option<WorkflowRow>,
    bridges: Vec<(Bridge, u64)>,
    envelopes: Vec<(Envelope, u64)>,
    approvals: Vec<(exeat_core::approval::Approval, u64)>,
    cancels: Vec<(CancelIntent, u64)>,
    inbox: Vec<(InboxRow, u64)>,
    payloads: BTreeMap<PayloadId, Sealed>,
}

impl Parts {
    fn sort(&mut self) {
        self.bridges.sort_by_key(|(b, _)| b.hop);
        self.envelopes.sort_by_key(|(e, _)| e.id);
        self.approvals.sort_by_key(|(a, _)| a.id);
        self.cancels.sort_by(|(a, _), (b, _)| (a.hop, &a.foreign_task).cmp(&(b.hop, &b.foreign_task)));
        self.inbox.sort_by_key(|(i, _)| (i.at, i.id));
    }

    fn take(&mut self, row: &SqliteRow) -> Result<(), Unreadable> {
        let part: i64 = get(row, "snapshot", "part", 0)?;
        let key: &str = get(row, "snapshot", "key", 1)?;
        let version = count(row, "snapshot", key, 2)?;
        let text: Option<&str> = get(row, "snapshot", key, 3)?;
        let text = text.unwrap_or_default();
        match part {
            0 => self.task = Some((keyed("task", key, text, |t: &Task| t.id.to_string())?, version)),
            1 => self.workflow = Some(doc("workflow", key, text)?),
            2 => {
                self.bridges.push((keyed("a2a_bridge", key, text, |b: &Bridge| b.hop.to_string())?, version))
            }
            3 => {
                self.envelopes.push((keyed("envelope", key, text, |e: &Envelope| e.id.to_string())?, version))
            }
            4 => {
                let own = |a: &exeat_core::approval::Approval| a.id.to_string();
                self.approvals.push((keyed("approval", key, text, own)?, version));
            }
            5 => {
                let own = |c: &CancelIntent| c.hop.to_string();
                self.cancels.push((keyed("cancel_intent", key, text, own)?, version));
            }
            6 => self.inbox.push((keyed("inbox", key, text, |i: &InboxRow| i.id.to_string())?, version)),
            7 => {
                let id = key.parse().map_err(|e| corrupt("payload", key, e))?;
                self.payloads.insert(id, sealed(row, key, 4, 5)?);
            }
            other => return Err(corrupt("snapshot", key, format!("part {other}"))),
        }
        Ok(())
    }
}

/// The registry as its rows have it, under what configuration says.
pub(super) async fn registry(
    readers: &SqlitePool,
    org: &OrgName,
    defaults: &OrgDefaults,
) -> Result<Registry, Unreadable> {
    let mut r = Registry {
        org: org.clone(),
        version: 0,
        levels: defaults.levels.clone(),
        default_label: defaults.default_label.clone(),
        platform_mode: defaults.egress_cap,
        org_mode: EgressMode::Off,
        agents: BTreeMap::new(),
        roles: BTreeMap::new(),
        budgets: BTreeMap::new(),
        met: BTreeSet::new(),
        policy: None,
        bounds: Arc::clone(&defaults.bounds),
    };
    let rows = sqlx::query(sql::REGISTRY).bind(org.as_str()).fetch_all(readers).await;
    for row in &rows.map_err(|e| unavailable(&e))? {
        take_governing(&mut r, row)?;
    }
    Ok(r)
}

fn take_governing(r: &mut Registry, row: &SqliteRow) -> Result<(), Unreadable> {
    let part: i64 = get(row, "registry", "part", 0)?;
    let key: &str = get(row, "registry", "key", 1)?;
    let version = count(row, "registry", key, 2)?;
    let text: &str = get(row, "registry", key, 3)?;
    match part {
        0 => r.version = version,
        1 => {
            let a: AgentEntry =
                keyed("foreign_agent_registry", key, text, |a: &AgentEntry| a.key.to_string())?;
            r.agents.entry(a.key.clone()).or_default().insert(a.version, Arc::new(a));
        }
        2 => {
            let role: RoleEntry = keyed("role", key, text, |role: &RoleEntry| role.name.to_string())?;
            r.roles.insert(role.name.clone(), role);
        }
        3 => {
            let mode: EgressMode = serde_json::from_value(Value::String(text.to_owned()))
                .map_err(|e| corrupt("egress_mode", r.org.as_str(), e))?;
            r.org_mode = mode;
        }
        4 => {
            let policy: PolicyRow = doc("policy", key, text)?;
            r.policy = Some(Arc::new(policy));
        }
        5 => {
            let own = |(scope, _): &(Scope, Budget)| scope.to_string();
            let (scope, budget) = keyed("budget", key, text, own)?;
            r.budgets.insert(scope, budget);
        }
        6 => {
            let agent: AgentKey = key.parse().map_err(|e| corrupt("contact", key, e))?;
            r.met.insert(agent);
        }
        other => return Err(corrupt("registry", key, format!("part {other}"))),
    }
    Ok(())
}
