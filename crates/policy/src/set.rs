//! Cedar text to a policy set that can be asked, or to all that is wrong with it.
//!
//! Promises: a [`PolicySet`] is within its bounds, free of templates, valid against the schema in strict
//! mode, and each of its policies has a unique `@id`. It is split once, here, into the policies that decide
//! and the `@approval` forbids that name who must say yes.
//! Never: guesses; an annotation we don't know is a fault, so that a misspelt `@approval` is seen at push.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cedar_policy::{Effect, Policy, PolicyId, PolicySet as CedarSet, ValidationMode};
use exeat_core::gate::verdict::Because;
use exeat_core::id::RoleName;

use crate::set::bounds::{MAX_POLICIES, PARSING_STACK, judging_stack, operators_within_bounds};
use crate::vocabulary::Vocabulary;

mod bounds;
mod fault;

pub use bounds::MAX_BYTES;
pub use fault::PolicyFault;

/// What a fresh org starts with: everything that the hard rules let through, and registry acts for admins.
pub const STARTER: &str = include_str!("../../../policies/starter.cedar");

/// The platform's set where the operator gave none: it objects to nothing.
pub const PLATFORM_DEFAULT: &str = "@id(\"platform-default\")\npermit (principal, action, resource);\n";

/// More than this a person doesn't read at once; the rest shows after the first are mended.
const MAX_FAULTS: usize = 100;

const ID_CHARS: usize = 128;
const REASON_CHARS: usize = 500;

/// A checked set of policies of one owner: the platform, or an org.
pub struct PolicySet {
    pub(crate) vocabulary: &'static Vocabulary,
    /// Permits, and forbids without `@approval`.
    pub(crate) deciding: CedarSet,
    /// Forbids with `@approval`.
    pub(crate) approvals: CedarSet,
    pub(crate) known: HashMap<PolicyId, Known>,
    /// How many bytes of stack the deepest of its policies may need to be evaluated.
    pub(crate) judging_stack: usize,
    warnings: Vec<PolicyFault>,
}

/// What we say of a policy, and whom it wants asked.
pub(crate) struct Known {
    pub(crate) because: Because,
    pub(crate) approver: Option<String>,
}

impl std::fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.ids()).finish()
    }
}

impl PolicySet {
    /// Reads and checks a set: at most [`MAX_BYTES`] and 500 policies, each with a unique `@id("…")`,
    /// perhaps `@reason("a sentence")`, and `@approval("role")` only on a `forbid`.
    ///
    /// The empty text is a valid set. It allows nothing.
    ///
    /// # Errors
    /// All faults found (at most 100), in the order in which they stand in the text. Never an empty list.
    pub fn parse(text: &str) -> Result<Self, Vec<PolicyFault>> {
        let operators = operators_within_bounds(text)?;
        stacker::maybe_grow(PARSING_STACK / 2, PARSING_STACK, || Self::parse_bounded(text, operators))
    }

    fn parse_bounded(text: &str, operators: usize) -> Result<Self, Vec<PolicyFault>> {
        let Some(vocabulary) = Vocabulary::get() else {
            return Err(vec![PolicyFault::at(text, 0, "The built-in policy schema can't be read.")]);
        };
        let parsed: CedarSet = text.parse().map_err(|errors| PolicyFault::of_parse(text, &errors))?;
        let mut reading = Reading::new(text);
        reading.no_templates(&parsed);
        let policies = in_text_order(&parsed);
        reading.not_too_many(&policies);
        for policy in &policies {
            reading.policy(policy);
        }
        let checked = vocabulary.validator.validate(&parsed, ValidationMode::Strict);
        let names = reading.names();
        let errors = checked.validation_errors();
        reading.unsound(errors.map(|error| PolicyFault::of_check(text, error, error.policy_id(), &names)));
        let warnings = checked
            .validation_warnings()
            .map(|warning| PolicyFault::of_check(text, warning, warning.policy_id(), &names));
        let permits = policies.iter().any(|p| p.effect() == Effect::Permit);
        let nothing =
            "This set permits nothing: everything is denied. Push it together with its permits, in one file.";
        let warnings = warnings.chain((!permits).then(|| PolicyFault::at(text, 0, nothing))).collect();
        reading.finish(vocabulary, policies, operators, warnings)
    }

    /// The platform's set: of the operator's text, or [`PLATFORM_DEFAULT`].
    ///
    /// # Errors
    /// As [`PolicySet::parse`].
    pub fn platform(text: Option<&str>) -> Result<Self, Vec<PolicyFault>> {
        Self::parse(text.unwrap_or(PLATFORM_DEFAULT))
    }

    /// What is valid but looks wrong: policies that can never apply, confusable characters.
    #[must_use]
    pub fn warnings(&self) -> &[PolicyFault] {
        &self.warnings
    }

    /// The `@id`s, sorted.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<&str> {
        self.known.values().map(|known| known.because.id.as_str()).collect()
    }

    /// What a policy says of itself, by its `@id`.
    #[must_use]
    pub fn reason(&self, id: &str) -> Option<&str> {
        let found = self.known.values().find(|known| known.because.id == id)?;
        found.because.reason.as_deref()
    }

    /// Every role that some policy of the set may ask to approve.
    #[must_use]
    pub fn approver_roles(&self) -> BTreeSet<&str> {
        self.known.values().filter_map(|known| known.approver.as_deref()).collect()
    }
}

/// Cedar keeps policies in a map; people keep them in a file.
fn in_text_order(set: &CedarSet) -> Vec<Policy> {
    let mut policies: Vec<Policy> = set.policies().cloned().collect();
    policies.sort_by_key(|policy| (offset(policy), policy.id().clone()));
    policies
}

fn offset(policy: &Policy) -> usize {
    policy.as_ref().loc().map_or(0, |loc| loc.start())
}

/// One pass over a parsed text, gathering what is known and what is wrong.
struct Reading<'a> {
    text: &'a str,
    known: HashMap<PolicyId, Known>,
    taken: BTreeMap<String, usize>,
    faults: Vec<PolicyFault>,
}

impl<'a> Reading<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, known: HashMap::new(), taken: BTreeMap::new(), faults: Vec::new() }
    }

    fn fault(&mut self, offset: usize, id: Option<&str>, message: impl Into<String>) {
        let fault = PolicyFault::at(self.text, offset, message);
        self.faults.push(PolicyFault { policy_id: id.map(str::to_owned), ..fault });
    }

    fn no_templates(&mut self, set: &CedarSet) {
        for template in set.templates() {
            let offset = template.as_ref().loc().map_or(0, |loc| loc.start());
            let message = "A template (`?principal`, `?resource`) can't be used here; write the policy out.";
            self.fault(offset, template.annotation("id"), message);
        }
    }

    fn not_too_many(&mut self, policies: &[Policy]) {
        if let Some(first_over) = policies.get(MAX_POLICIES) {
            let message = format!("A set has at most {MAX_POLICIES} policies; this has {}.", policies.len());
            self.fault(offset(first_over), None, message);
        }
    }

    fn policy(&mut self, policy: &Policy) {
        let offset = offset(policy);
        let id = self.id(policy, offset);
        let id_text = id.as_deref();
        self.no_unknown_annotation(policy, offset, id_text);
        let reason = self.reason(policy, offset, id_text);
        let approver = self.approver(policy, offset, id_text);
        if let Some(id) = id {
            self.known.insert(policy.id().clone(), Known { because: Because { id, reason }, approver });
        }
    }

    fn id(&mut self, policy: &Policy, offset: usize) -> Option<String> {
        let Some(id) = policy.annotation("id") else {
            self.fault(offset, None, "The policy has no @id(\"name\"); every policy needs one.");
            return None;
        };
        if !is_line(id, ID_CHARS) {
            let message = format!("An @id is 1 to {ID_CHARS} characters on one line, without controls.");
            self.fault(offset, None, message);
            return None;
        }
        match self.taken.get(id).copied() {
            Some(line) => {
                let message = format!("The @id {id:?} is taken by the policy on line {line}.");
                self.fault(offset, Some(id), message);
                None
            }
            None => {
                let line = PolicyFault::at(self.text, offset, "").line;
                self.taken.insert(id.to_owned(), usize::try_from(line).unwrap_or(usize::MAX));
                Some(id.to_owned())
            }
        }
    }

    fn no_unknown_annotation(&mut self, policy: &Policy, offset: usize, id: Option<&str>) {
        let known = ["id", "approval", "reason"];
        let mut unknown: Vec<_> =
            policy.annotations().map(|(name, _)| name).filter(|name| !known.contains(name)).collect();
        unknown.sort_unstable();
        for name in unknown {
            let message =
                format!("The annotation @{name} isn't known; known are @id, @approval and @reason.");
            self.fault(offset, id, message);
        }
    }

    fn reason(&mut self, policy: &Policy, offset: usize, id: Option<&str>) -> Option<String> {
        let reason = policy.annotation("reason")?;
        if is_line(reason, REASON_CHARS) {
            return Some(reason.to_owned());
        }
        let message = format!(
            "A @reason is one sentence, 1 to {REASON_CHARS} characters on one line, without controls."
        );
        self.fault(offset, id, message);
        None
    }

    fn approver(&mut self, policy: &Policy, offset: usize, id: Option<&str>) -> Option<String> {
        let role = policy.annotation("approval")?;
        if policy.effect() != Effect::Forbid {
            self.fault(offset, id, "An @approval stands on a forbid only; a permit asks nobody.");
        }
        match role.parse::<RoleName>() {
            Ok(role) => Some(role.to_string()),
            Err(malformed) => {
                let message = format!(
                    "The value of @approval names the approver role: {}; got {:?}.",
                    malformed.expected, malformed.got
                );
                self.fault(offset, id, message);
                None
            }
        }
    }

    /// Takes over what the validator found. It checks each policy once for each kind of request that it may
    /// meet and finds the same place several times: the first is told.
    fn unsound(&mut self, found: impl Iterator<Item = PolicyFault>) {
        let mut found: Vec<_> = found.collect();
        found.sort();
        found.dedup_by(|one, other| {
            (one.line, one.column, &one.policy_id) == (other.line, other.column, &other.policy_id)
        });
        self.faults.extend(found);
    }

    /// Cedar's own names of the policies to those that people know.
    fn names(&self) -> HashMap<PolicyId, String> {
        self.known.iter().map(|(id, known)| (id.clone(), known.because.id.clone())).collect()
    }

    fn finish(
        mut self,
        vocabulary: &'static Vocabulary,
        policies: Vec<Policy>,
        operators: usize,
        warnings: Vec<PolicyFault>,
    ) -> Result<PolicySet, Vec<PolicyFault>> {
        let is_approval = |policy: &Policy| policy.annotation("approval").is_some();
        let (approvals, deciding): (Vec<_>, Vec<_>) = policies.into_iter().partition(is_approval);
        match (CedarSet::from_policies(deciding), CedarSet::from_policies(approvals)) {
            (Ok(deciding), Ok(approvals)) if self.faults.is_empty() => Ok(PolicySet {
                vocabulary,
                deciding,
                approvals,
                known: self.known,
                judging_stack: judging_stack(operators),
                warnings: in_order(warnings),
            }),
            (Ok(_), Ok(_)) => Err(in_order(self.faults)),
            (Err(error), _) | (_, Err(error)) => {
                self.fault(0, None, format!("The policies can't be put together: {error}."));
                Err(in_order(self.faults))
            }
        }
    }
}

fn in_order(mut faults: Vec<PolicyFault>) -> Vec<PolicyFault> {
    faults.sort();
    faults.dedup();
    faults.truncate(MAX_FAULTS);
    faults
}

/// One line that a person can read: not blank, no controls.
fn is_line(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= most && !text.chars().any(char::is_control)
}
