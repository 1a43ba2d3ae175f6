//! The first start of an empty data folder: the org, its first keys, the starter policy, and what is recorded
//! of it. One change set, and the files that a person needs.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use exeat_core::change::{ChangeSet, PolicyRow, Row, Write};
use exeat_core::id::{ChangeId, Ids, OrgName};
use exeat_core::key::{CALLBACK_KEYS, CallbackKey, KeyState, Kid};
use exeat_core::label::Label;
use exeat_core::ledger::data::{ChangeData, Condition, Governs};
use exeat_core::ledger::{Actor, Code, Data, Draft, OutsideId};
use exeat_core::payload::Sha256Digest;
use exeat_core::principal::{ApiKey, KeyScope};
use exeat_core::registry::EgressMode;
use exeat_core::time::Timestamp;
use exeat_server::auth;
use serde_json::json;
use zeroize::Zeroizing;

/// The setting that tells whether another root is over this store.
pub(crate) const ROOT_CHECK: &str = "root_check";
/// The setting that tells which key signs heads: its public half, PEM.
pub(crate) const LEDGER_KEY: &str = "ledger_key";

/// What a first start makes.
pub(crate) struct First {
    pub(crate) set: ChangeSet,
    /// File names and contents, for the data folder.
    pub(crate) files: Vec<(&'static str, Zeroizing<String>)>,
}

/// Facts of the start.
pub(crate) struct Facts<'a> {
    pub(crate) org: &'a OrgName,
    pub(crate) now: Timestamp,
    pub(crate) top: &'a Label,
    pub(crate) root_check: [u8; 32],
    pub(crate) ledger_key: &'a str,
    pub(crate) single_operator: bool,
}

/// Decides the first start. Pure.
pub(crate) fn first(facts: &Facts<'_>, mut ids: Ids) -> First {
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), facts.org.clone(), facts.now);
    let everything: BTreeSet<KeyScope> =
        KeyScope::ALL.into_iter().filter(|s| *s != KeyScope::Worker).collect();
    let second = BTreeSet::from([KeyScope::Approver, KeyScope::Admin]);
    let (admin, admin_text) = key(facts, &mut ids, "admin", everything, &[]);
    let (approver, approver_text) = key(facts, &mut ids, "second", second, &["ops"]);
    for name in [&admin.id, &approver.id] {
        record(&mut set, Governs::Key, name.as_str(), None, Some("created"));
    }
    put(&mut set, Row::ApiKey(admin));
    put(&mut set, Row::ApiKey(approver));
    put(&mut set, Row::Registry);
    put(&mut set, Row::Mode(EgressMode::Off));
    let policy = PolicyRow { version: 1, source: exeat_policy::STARTER.to_owned(), at: facts.now, by: None };
    let digest = Sha256Digest::of(policy.source.as_bytes());
    put(&mut set, Row::Policy(policy));
    put(&mut set, Row::Setting(ROOT_CHECK.into(), json!(hex::encode(facts.root_check))));
    put(&mut set, Row::Setting(LEDGER_KEY.into(), json!(facts.ledger_key)));
    let kid = Kid::draw(&mut ids);
    let first_key = CallbackKey { kid, epoch: 1, state: KeyState::Active, retires_at: None };
    put(&mut set, Row::Setting(CALLBACK_KEYS.into(), json!([first_key])));
    record(&mut set, Governs::Org, facts.org.as_str(), None, Some("created"));
    record(&mut set, Governs::Policy, "org", Some(digest), None);
    record(&mut set, Governs::Egress, "org", None, Some("off"));
    if facts.single_operator {
        record(&mut set, Governs::Setting, "single_operator", None, Some("on"));
    }
    First { set, files: vec![("admin.key", admin_text), ("approver.key", approver_text)] }
}

type Made = (ApiKey, Zeroizing<String>);

fn key(facts: &Facts<'_>, ids: &mut Ids, name: &str, scopes: BTreeSet<KeyScope>, roles: &[&str]) -> Made {
    let minted = auth::mint(ids);
    let key = ApiKey {
        id: minted.id,
        org: facts.org.clone(),
        name: name.to_owned(),
        hash: minted.hash,
        scopes,
        approver_roles: roles.iter().map(|r| (*r).to_owned()).collect(),
        worker_roles: BTreeSet::new(),
        clearance: facts.top.clone(),
        minted_by: None,
        created_at: facts.now,
        expires_at: None,
        revoked_at: None,
    };
    (key, minted.text.into())
}

fn put(set: &mut ChangeSet, row: Row) {
    set.writes.push(Write { expected: 0, row });
}

/// Records a change of what governs.
pub(crate) fn record(
    set: &mut ChangeSet,
    what: Governs,
    name: &str,
    digest: Option<Sha256Digest>,
    after: Option<&'static str>,
) {
    let data = ChangeData {
        what,
        name: OutsideId::of(name),
        version: Some(1),
        before: None,
        after: after.map(|a| Condition::Word(Code::of(a))),
        digest,
        reason: None,
        four_eyes: false,
    };
    set.drafts.push(Draft::apart(set.at, set.id, Actor::system("first_start"), Data::Change(data)));
}

/// Writes the files of a first start. What an interrupted one left names keys that no store knows: it is replaced.
pub(crate) fn write_files(data: &Path, files: &[(&str, Zeroizing<String>)]) -> io::Result<()> {
    for (name, content) in files {
        let fresh = data.join(format!(".{name}.new"));
        match std::fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        super::keys::write_secret(&fresh, format!("{}\n", content.as_str()).as_bytes())?;
        std::fs::rename(&fresh, data.join(name))?;
    }
    Ok(())
}
