//! API keys and workflows: who may call, and what may be run.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::{Acting, Change, NotChanged, WrittenLabel, changed, condition_of};
use crate::change::{Row, WorkflowRow, Write};
use crate::id::{KeyId, RoleName};
use crate::ledger::Code;
use crate::ledger::data::{Condition, Governs};
use crate::principal::{ApiKey, KeyScope};
use crate::workflow::Workflow;

const NAME: usize = 128;

/// What may be said of a new key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenKey {
    /// For people.
    pub name: String,
    /// What it may do.
    pub scopes: BTreeSet<KeyScope>,
    /// Which approver roles it holds.
    #[serde(default)]
    pub approver_roles: BTreeSet<RoleName>,
    /// Which roles it may lease for.
    #[serde(default)]
    pub worker_roles: BTreeSet<RoleName>,
    /// What its holder may see; the org's default label if it isn't said.
    #[serde(default)]
    pub clearance: Option<WrittenLabel>,
}

/// Makes an API key. Its secret was drawn by the door; here is its id and its hash.
///
/// # Errors
/// Why not: among others, a key gives no platform scope that it hasn't, and no clearance beyond its own.
pub fn create_key(
    mut acting: Acting<'_>,
    written: &WrittenKey,
    id: KeyId,
    hash: String,
) -> Result<Change<ApiKey>, NotChanged> {
    let name = written.name.trim();
    if !(1..=NAME).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(NotChanged::invalid("/name", format!("a name has 1 to {NAME} characters, no controls")));
    }
    if written.scopes.is_empty() {
        return Err(NotChanged::invalid("/scopes", "a key without scopes could do nothing"));
    }
    if written.scopes.contains(&KeyScope::Platform) && !acting.by.scopes.contains(&KeyScope::Platform) {
        return Err(NotChanged::ScopeMissing);
    }
    let clearance = match &written.clearance {
        Some(label) => label.at("/clearance", &acting.registry.levels)?,
        None if is_first(acting.by) => acting.registry.default_label.clone(),
        None => acting.registry.default_label.meet(&acting.by.clearance),
    };
    if !is_first(acting.by) && !clearance.flows_to(&acting.by.clearance) {
        return Err(NotChanged::ClearanceTooLow(acting.by.clearance.clone()));
    }
    let key = ApiKey {
        id,
        org: acting.registry.org.clone(),
        name: name.to_owned(),
        hash,
        scopes: written.scopes.clone(),
        approver_roles: written.approver_roles.iter().map(ToString::to_string).collect(),
        worker_roles: written.worker_roles.clone(),
        clearance,
        minted_by: Some(acting.by.id.clone()),
        created_at: acting.now,
        expires_at: None,
        revoked_at: None,
    };
    let mut set = acting.begin();
    set.writes.push(Write { expected: 0, row: Row::ApiKey(key.clone()) });
    let mut data = changed(Governs::Key, key.id.as_str());
    data.version = Some(1);
    data.after = Some(condition_of(&granted(&key)));
    acting.record(&mut set, data);
    Ok(Change::Made(key, Box::new(set)))
}

/// A key that no other made holds the top. Its label can't say so, since it names no tags: those are the org's to
/// invent, and a key of the first start is who gives them out.
const fn is_first(key: &ApiKey) -> bool {
    key.minted_by.is_none()
}

/// What a key may do, as its record's digest covers it: nothing of its secret.
fn granted(key: &ApiKey) -> serde_json::Value {
    json!({
        "id": key.id, "name": key.name, "scopes": key.scopes, "approver_roles": key.approver_roles,
        "worker_roles": key.worker_roles, "clearance": key.clearance.shown(), "minted_by": key.minted_by,
    })
}

/// Revokes an API key of this org; `all` are its keys with their rows' versions.
///
/// # Errors
/// If there is no such key, or nobody could administer the org any more.
pub fn revoke_key(
    mut acting: Acting<'_>,
    id: &KeyId,
    all: &[(ApiKey, u64)],
) -> Result<Change<()>, NotChanged> {
    let (key, row) = all.iter().find(|(k, _)| k.id == *id).ok_or(NotChanged::NotFound("key"))?;
    if key.revoked_at.is_some() {
        return Ok(Change::Same(()));
    }
    let administers = |k: &ApiKey| k.scopes.contains(&KeyScope::Admin) && k.is_live(acting.now);
    if administers(key) && !all.iter().any(|(k, _)| k.id != *id && administers(k)) {
        let why = "it is the last key that can administer the org; make another one first";
        return Err(NotChanged::invalid("", why));
    }
    let mut next = key.clone();
    next.revoked_at = Some(acting.now);
    let mut set = acting.begin();
    set.writes.push(Write { expected: *row, row: Row::ApiKey(next) });
    let mut data = changed(Governs::Key, id.as_str());
    data.version = Some(row + 1);
    data.before = Some(condition_of(&granted(key)));
    data.after = Some(Condition::Word(Code::of("revoked")));
    acting.record(&mut set, data);
    Ok(Change::Made((), Box::new(set)))
}

/// Pushes a workflow. Its versions are never changed; a text that means the same as the newest makes none.
///
/// # Errors
/// None so far.
pub fn push_workflow(
    mut acting: Acting<'_>,
    workflow: &Workflow,
    newest: Option<&WorkflowRow>,
) -> Result<Change<WorkflowRow>, NotChanged> {
    let digest = workflow.digest();
    if let Some(row) = newest.filter(|row| row.digest == digest) {
        return Ok(Change::Same(row.clone()));
    }
    let next = WorkflowRow {
        name: workflow.name.clone(),
        version: newest.map_or(0, |row| row.version) + 1,
        digest,
        source: workflow.source().to_owned(),
        at: acting.now,
        by: acting.by.id.clone(),
    };
    let mut set = acting.begin();
    set.writes.push(Write { expected: 0, row: Row::Workflow(next.clone()) });
    let mut data = changed(Governs::Workflow, next.name.as_str());
    data.version = Some(u64::from(next.version));
    data.before = newest.map(|row| Condition::Digest(row.digest));
    data.after = Some(Condition::Digest(digest));
    acting.record(&mut set, data);
    Ok(Change::Made(next, Box::new(set)))
}
