//! Roles, the switch of egress, the policy, budgets.

use super::{Acting, Change, Earlier, NotChanged, Second, WrittenLabel, changed, condition_of, digest_of};
use crate::change::{PolicyRow, Row, Write};
use crate::cost::{Budget, Scope};
use crate::endpoint::Endpoint;
use crate::id::{RoleName, TeamName};
use crate::ledger::Code;
use crate::ledger::data::{Condition, Governs};
use crate::payload::Sha256Digest;
use crate::registry::{EgressMode, RoleEntry};
use serde::Deserialize;
use std::collections::BTreeSet;

/// What may be written of a role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenRole {
    /// What its workers may see; the org's default if it isn't said.
    #[serde(default)]
    pub clearance: Option<WrittenLabel>,
    /// Where it may delegate.
    #[serde(default)]
    pub may: BTreeSet<Endpoint>,
    /// Teams it belongs to.
    #[serde(default)]
    pub teams: BTreeSet<TeamName>,
}

/// Sets a role, whole. `row` is the version of its row.
///
/// # Errors
/// Why not.
pub fn put_role(
    mut acting: Acting<'_>,
    name: &RoleName,
    written: &WrittenRole,
    row: u64,
) -> Result<Change<RoleEntry>, NotChanged> {
    let clearance = match &written.clearance {
        Some(label) => label.at("/clearance", &acting.registry.levels)?,
        None => acting.registry.default_label.clone(),
    };
    let next =
        RoleEntry { name: name.clone(), clearance, may: written.may.clone(), teams: written.teams.clone() };
    let before = acting.registry.roles.get(name);
    if before == Some(&next) {
        return Ok(Change::Same(next));
    }
    let mut set = acting.begin();
    acting.govern(&mut set);
    set.writes.push(Write { expected: row, row: Row::Role(next.clone()) });
    let mut data = changed(Governs::Role, name.as_str());
    data.version = Some(row + 1);
    data.before = before.map(condition_of);
    data.after = Some(condition_of(&next));
    acting.record(&mut set, data);
    Ok(Change::Made(next, Box::new(set)))
}

/// A mode as the doors show it.
#[must_use]
pub const fn mode_word(mode: EgressMode) -> &'static str {
    match mode {
        EgressMode::Off => "off",
        EgressMode::Halt => "halt",
        EgressMode::Drain => "drain",
        EgressMode::On => "on",
    }
}

/// A wish for another mode.
#[derive(Clone, Copy, Debug)]
pub struct ModeWish<'a> {
    /// Which.
    pub mode: EgressMode,
    /// Why.
    pub reason: Option<&'a str>,
    /// Hops to foreign agents that aren't over.
    pub hops_out: u64,
    /// May those be left alone, without looks, until the mode is raised?
    pub strand: Strand,
}

/// May hops that are out be left alone?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strand {
    /// Yes.
    Accepted,
    /// No.
    Refused,
}

/// Sets the org's switch. Letting more leave (`on`, or `drain` from below) takes two persons: the first one's word
/// is kept, and the second must ask for the same. Whatever lets less leave takes one. `row` is the version of
/// the switch's row.
///
/// # Errors
/// Why not.
pub fn set_mode(
    mut acting: Acting<'_>,
    wish: ModeWish<'_>,
    row: u64,
    earlier: &Earlier,
) -> Result<Change<EgressMode>, NotChanged> {
    let before = acting.registry.org_mode;
    let mode = wish.mode;
    if before == mode && row > 0 {
        return Ok(Change::Same(mode));
    }
    if mode == EgressMode::Off && wish.hops_out > 0 && wish.strand == Strand::Refused {
        let why = format!(
            "{} hops to foreign agents aren't over, and nobody would look after them: `halt` stops everything now and keeps \
             them, `drain` lets them end, `off` with strand (--strand) leaves them to their deadlines",
            wish.hops_out
        );
        return Err(NotChanged::invalid("/strand", why));
    }
    let mut set = acting.begin();
    let mut data = changed(Governs::Egress, "org");
    data.before = Some(Condition::Word(Code::of(mode_word(before))));
    data.reason = acting.note(&mut set, wish.reason)?;
    let raises = mode == EgressMode::On || (mode == EgressMode::Drain && before < EgressMode::Drain);
    if raises {
        let digest = Sha256Digest::of(mode_word(mode).as_bytes());
        match acting.second(earlier, digest) {
            Second::Said => data.four_eyes = true,
            Second::Waived => {}
            Second::Wanted => return Ok(acting.asked(set, earlier, data, digest)),
        }
    }
    acting.govern(&mut set);
    set.writes.push(Write { expected: row, row: Row::Mode(mode) });
    acting.settle(&mut set, Governs::Egress, earlier);
    data.after = Some(Condition::Word(Code::of(mode_word(mode))));
    data.version = Some(row + 1);
    acting.record(&mut set, data);
    Ok(Change::Made(mode, Box::new(set)))
}

/// Makes a policy the org's. The text was checked before. It takes two persons: the first one's push is noted by its
/// digest, and the policy counts once another key has pushed the same text. In single-operator mode one does.
///
/// # Errors
/// None so far.
pub fn push_policy(
    mut acting: Acting<'_>,
    source: &str,
    earlier: &Earlier,
) -> Result<Change<u32>, NotChanged> {
    let before = acting.registry.policy.clone();
    if let Some(p) = before.as_ref().filter(|p| p.source == source) {
        return Ok(Change::Same(p.version));
    }
    let digest = Sha256Digest::of(source.as_bytes());
    let version = before.as_ref().map_or(0, |p| p.version) + 1;
    let mut set = acting.begin();
    let mut data = changed(Governs::Policy, "org");
    data.version = Some(u64::from(version));
    data.before = before.map(|p| Condition::Digest(Sha256Digest::of(p.source.as_bytes())));
    match acting.second(earlier, digest) {
        Second::Said => data.four_eyes = true,
        Second::Waived => {}
        Second::Wanted => return Ok(acting.asked(set, earlier, data, digest)),
    }
    acting.govern(&mut set);
    let row =
        PolicyRow { version, source: source.to_owned(), at: acting.now, by: Some(acting.by.id.clone()) };
    set.writes.push(Write { expected: 0, row: Row::Policy(row) });
    acting.settle(&mut set, Governs::Policy, earlier);
    data.after = Some(Condition::Digest(digest));
    acting.record(&mut set, data);
    Ok(Change::Made(version, Box::new(set)))
}

/// Limits what a scope may spend. `row` is the version of the budget's row.
///
/// # Errors
/// None so far.
pub fn put_budget(
    mut acting: Acting<'_>,
    scope: &Scope,
    budget: Budget,
    row: u64,
) -> Result<Change<Budget>, NotChanged> {
    let before = acting.registry.budgets.get(scope);
    if before == Some(&budget) {
        return Ok(Change::Same(budget));
    }
    let mut set = acting.begin();
    acting.govern(&mut set);
    set.writes.push(Write { expected: row, row: Row::Budget(scope.clone(), budget) });
    let mut data = changed(Governs::Budget, &scope.to_string());
    data.version = Some(row + 1);
    data.before = before.map(condition_of);
    data.after = Some(Condition::Digest(digest_of(&budget)));
    acting.record(&mut set, data);
    Ok(Change::Made(budget, Box::new(set)))
}
