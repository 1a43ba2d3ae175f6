//! Who judges in this process: policies, JSON Schemas and workflows, each compiled once from its text, and
//! the door that agents are told to push to.
//!
//! Promises: whatever can't be read denies, with `policy_error` or a sentence; the same text gives the same
//! judge; memory is bounded. Never: does I/O, prints a token.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use exeat_core::change::Snapshot;
use exeat_core::endpoint::Endpoint;
use exeat_core::gate::exeat::PushTarget;
use exeat_core::gate::verdict::{Governor, Judgement, Opinion, PolicyDenial, Question};
use exeat_core::id::{CallbackId, OrgName};
use exeat_core::key::{CallbackToken, callbacks_out, mint_callback};
use exeat_core::payload::{Sha256Digest, canonical};
use exeat_core::registry::Registry;
use exeat_core::task::desk::Schemas;
use exeat_core::time::Timestamp;
use exeat_core::walk::{Flows, Governors, PushDoor};
use exeat_core::workflow::Workflow;
use exeat_policy::json_schema::SchemaCheck;
use exeat_policy::{PolicySet, Sets, Versions};
use serde_json::Value;

use crate::keyring::Keyring;

/// Compiled things kept at most, of each kind; beyond that all are forgotten and compiled anew.
const KEPT: usize = 512;
/// Mismatches told in one sentence.
const TOLD: usize = 3;

/// A few compiled things by what they were compiled from.
struct Kept<K, V>(Mutex<HashMap<K, V>>);

impl<K: Eq + Hash, V: Clone> Kept<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// The one that is kept, or the one that `make` makes. Two that ask at once may both make it.
    fn get_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(kept) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(kept.clone());
        }
        let made = make()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(key, made.clone());
        Ok(made)
    }
}

/// The governors of all orgs, by policy version.
pub struct Policies {
    platform: Result<Arc<PolicySet>, ()>,
    sets: Kept<(OrgName, u32), Arc<dyn Governor>>,
}

impl Policies {
    /// With the platform's set, or none: then its built-in default.
    #[must_use]
    pub fn new(platform: Option<Arc<PolicySet>>) -> Self {
        let built_in = || PolicySet::platform(None).map(Arc::new).map_err(|_| ());
        Self { platform: platform.map_or_else(built_in, Ok), sets: Kept::new() }
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Governors for Policies {
    fn of(&self, registry: &Registry) -> Arc<dyn Governor> {
        let (version, text) = registry.policy.as_ref().map_or((0, ""), |p| (p.version, p.source.as_str()));
        let made = self.sets.get_or_make((registry.org.clone(), version), || {
            let platform = self.platform.clone()?;
            let org = Arc::new(PolicySet::parse(text).map_err(|_| ())?);
            let sets: Arc<dyn Governor> =
                Arc::new(Sets::new(platform, org, Versions { platform: 0, org: version }));
            Ok::<_, ()>(sets)
        });
        made.unwrap_or_else(|()| {
            tracing::error!(org.id = %registry.org, policy.version = version, "the policy can't be read; everything is denied");
            Arc::new(DenyAll { version })
        })
    }
}

/// The governor of a policy that can't be read.
struct DenyAll {
    version: u32,
}

impl Governor for DenyAll {
    fn judge(&self, _: &Question) -> Judgement {
        Judgement {
            opinion: Opinion::Deny(PolicyDenial::PolicyError),
            because: Vec::new(),
            policy_version: Versions { platform: 0, org: self.version }.to_string(),
        }
    }
}

/// JSON Schemas, by digest.
pub struct JsonSchemas(Kept<Sha256Digest, Arc<SchemaCheck>>);

impl JsonSchemas {
    /// None compiled yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Kept::new())
    }
}

impl Default for JsonSchemas {
    fn default() -> Self {
        Self::new()
    }
}

impl Schemas for JsonSchemas {
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let compile = || SchemaCheck::compile(schema).map(Arc::new);
        let check = self
            .0
            .get_or_make(Sha256Digest::of(&canonical(schema)), compile)
            .map_err(|e| format!("the schema can't be used {e}"))?;
        check.check(value).map_err(|mismatches| {
            let told = mismatches.iter().take(TOLD).map(|m| {
                let at = if m.pointer.is_empty() { "the value" } else { m.pointer.as_str() };
                format!("{at}: {}", m.message)
            });
            told.collect::<Vec<_>>().join("; ")
        })
    }
}

/// What a workflow is compiled from.
#[derive(PartialEq, Eq, Hash)]
enum FlowKey {
    Pushed(Sha256Digest),
    Delegation(String, Option<String>),
}

/// Workflows, by digest; delegations, by destination and skill.
pub struct Workflows(Kept<FlowKey, Arc<Workflow>>);

impl Workflows {
    /// None compiled yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Kept::new())
    }

    /// A workflow's stored text, read.
    ///
    /// # Errors
    /// Why it isn't one.
    pub fn pushed(&self, row: &exeat_core::change::WorkflowRow) -> Result<Arc<Workflow>, String> {
        self.0.get_or_make(FlowKey::Pushed(row.digest), || {
            let read = Workflow::load(&row.source);
            read.map(Arc::new).map_err(|f| {
                let why = f.first().map(ToString::to_string).unwrap_or_default();
                format!("workflow {}@{}: {why}", row.name, row.version)
            })
        })
    }

    /// One hop as a workflow.
    ///
    /// # Errors
    /// If the skill isn't a text that a definition may hold.
    pub fn delegation(
        &self,
        to: &Endpoint,
        skill: Option<&str>,
        registry: &Registry,
    ) -> Result<Arc<Workflow>, String> {
        let key = FlowKey::Delegation(to.to_string(), skill.map(str::to_owned));
        self.0.get_or_make(key, || {
            let read = Workflow::delegation(to, skill, &registry.levels);
            read.map(Arc::new).map_err(|f| f.first().map(ToString::to_string).unwrap_or_default())
        })
    }
}

impl Default for Workflows {
    fn default() -> Self {
        Self::new()
    }
}

impl Flows for Workflows {
    fn of(&self, snapshot: &Snapshot, registry: &Registry) -> Result<Arc<Workflow>, String> {
        let task = &snapshot.task.0;
        match (&snapshot.workflow, &task.delegation) {
            (Some(row), _) => self.pushed(row),
            (None, Some(d)) if task.workflow.is_none() => {
                self.delegation(&d.to, d.skill.as_deref(), registry)
            }
            _ => Err(format!("the workflow of task {} is missing", task.id)),
        }
    }
}

/// Our callback door, with the keys that its tokens are made of.
pub struct CallbackDoor {
    keyring: Arc<Keyring>,
    public_url: String,
}

impl CallbackDoor {
    /// At this base, without a slash at the end.
    #[must_use]
    pub const fn new(keyring: Arc<Keyring>, public_url: String) -> Self {
        Self { keyring, public_url }
    }
}

impl PushDoor for CallbackDoor {
    fn target(&self, org: &OrgName, callback: &CallbackId, until: Timestamp) -> Option<PushTarget> {
        if self.public_url.is_empty() {
            return None;
        }
        let token = mint_callback(&self.keyring.now(), org, callback, until).ok()?;
        Some(self.target_by(callback, &token))
    }

    fn told(&self, org: &OrgName, callback: &CallbackId, until: Timestamp) -> Vec<PushTarget> {
        let tokens = callbacks_out(&self.keyring.now(), org, callback, until);
        tokens.iter().map(|token| self.target_by(callback, token)).collect()
    }
}

impl CallbackDoor {
    fn target_by(&self, callback: &CallbackId, token: &CallbackToken) -> PushTarget {
        let url = format!("{}/api/v1/a2a/callback/{callback}", self.public_url);
        PushTarget { url, token: token.expose().to_owned() }
    }
}
