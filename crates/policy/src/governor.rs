//! Asks the platform's set and the org's set, apart, and both must say yes.
//!
//! Each set is judged twice. First the policies without `@approval`: they must give Allow. Then the
//! `@approval` forbids: those that match name the roles that must say yes. Cedar skips a policy whose
//! evaluation errors, so that a broken `forbid` would silently allow: here **any error of any policy of
//! either set in either pass denies**, whatever the others say.
//!
//! Never: an allow out of a failure; a clock, I/O or randomness; a parser at judging time.

use std::collections::BTreeSet;
use std::sync::Arc;

use cedar_policy::{AuthorizationError, Decision, PolicyId, Response};
use exeat_core::gate::verdict::{Because, Governor, Judgement, Opinion, PolicyDenial, Question};
use serde::Serialize;
use serde_json::Value;

use crate::request::{Asked, describe};
use crate::set::PolicySet;

/// The versions of the two sets asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of the platform's set; 0 is the built-in default.
    pub platform: u32,
    /// Of the org's set.
    pub org: u32,
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.platform, self.org)
    }
}

/// The governor of one org: both sets, checked and split, and the version that goes on the record.
#[derive(Debug)]
pub struct Sets {
    platform: Arc<PolicySet>,
    org: Arc<PolicySet>,
    policy_version: String,
}

/// A judgement with all that led to it, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The judgement, as the gate gets it.
    pub judgement: Judgement,
    /// Why `policy_error`, if it is one.
    pub troubles: Vec<Trouble>,
    /// The question as policy saw it ([`describe`]).
    pub context: Value,
}

/// A policy that couldn't be evaluated, or a question that couldn't be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Trouble {
    /// The policy's `@id`; absent if the question itself didn't fit the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_id: Option<String>,
    /// What went wrong.
    pub message: String,
}

/// What one set says.
struct Answer {
    opinion: Opinion,
    because: BTreeSet<Because>,
    troubles: Vec<Trouble>,
}

impl Sets {
    /// Puts the two sets together. The platform's may be shared by all orgs.
    #[must_use]
    pub fn new(platform: Arc<PolicySet>, org: Arc<PolicySet>, versions: Versions) -> Self {
        Self { platform, org, policy_version: versions.to_string() }
    }

    /// Judges, and tells what led to it. Changes nothing.
    #[must_use]
    pub fn explain(&self, question: &Question) -> Explanation {
        let (judgement, troubles) = self.asked(question);
        Explanation { judgement, troubles, context: describe(question) }
    }

    fn asked(&self, question: &Question) -> (Judgement, Vec<Trouble>) {
        // Cedar gives up where the stack is nearly used up. With enough of it for the deepest policy, the
        // answer doesn't depend on how deep our caller was.
        let stack = self.platform.judging_stack.max(self.org.judging_stack);
        stacker::maybe_grow(stack, stack, || match Asked::of(question, self.org.vocabulary) {
            Ok(asked) => self.united(self.platform.answer(&asked), self.org.answer(&asked)),
            Err(unaskable) => {
                let opinion = Opinion::Deny(PolicyDenial::PolicyError);
                let trouble = Trouble { policy_id: None, message: unaskable.to_string() };
                (self.judgement(opinion, Vec::new()), vec![trouble])
            }
        })
    }

    fn united(&self, platform: Answer, org: Answer) -> (Judgement, Vec<Trouble>) {
        let troubles = [platform.troubles, org.troubles].concat();
        let opinion = both(platform.opinion.clone(), org.opinion.clone());
        // Only a set that wants what was decided is a ground for it: a permit is none for a denial.
        let because = [(platform.opinion, platform.because), (org.opinion, org.because)]
            .into_iter()
            .filter(|(one, _)| std::mem::discriminant(one) == std::mem::discriminant(&opinion))
            .flat_map(|(_, because)| because)
            .collect();
        (self.judgement(opinion, because), troubles)
    }

    fn judgement(&self, opinion: Opinion, because: Vec<Because>) -> Judgement {
        Judgement { opinion, because, policy_version: self.policy_version.clone() }
    }
}

impl Governor for Sets {
    fn judge(&self, question: &Question) -> Judgement {
        self.asked(question).0
    }
}

/// Both must say yes: a denial outweighs an approval, an approval an allow. Of two denials the graver is
/// told: an error first (somebody must act), then a `forbid`, then that nothing permits.
fn both(platform: Opinion, org: Opinion) -> Opinion {
    match (platform, org) {
        (Opinion::Deny(one), Opinion::Deny(other)) => Opinion::Deny(graver(one, other)),
        (Opinion::Deny(denial), _) | (_, Opinion::Deny(denial)) => Opinion::Deny(denial),
        (Opinion::RequireApproval(one), Opinion::RequireApproval(other)) => {
            Opinion::RequireApproval(one.into_iter().chain(other).collect())
        }
        (Opinion::RequireApproval(roles), Opinion::Allow)
        | (Opinion::Allow, Opinion::RequireApproval(roles)) => Opinion::RequireApproval(roles),
        (Opinion::Allow, Opinion::Allow) => Opinion::Allow,
    }
}

fn graver(one: PolicyDenial, other: PolicyDenial) -> PolicyDenial {
    let weight = |denial: &PolicyDenial| match denial {
        PolicyDenial::PolicyError => 2,
        PolicyDenial::DeniedByPolicy => 1,
        PolicyDenial::NoPolicyAllows => 0,
    };
    if weight(&one) >= weight(&other) { one } else { other }
}

impl PolicySet {
    /// Both passes, always: an error in the second denies even where the first has denied already, so that
    /// the answer doesn't depend on which was asked first.
    fn answer(&self, asked: &Asked) -> Answer {
        let ask = |set| self.vocabulary.authorizer.is_authorized(&asked.request, set, &asked.entities);
        let deciding = ask(&self.deciding);
        // Nothing permits in this pass, so the decision means nothing; the reasons are the forbids that match.
        let approvals = ask(&self.approvals);
        let troubles = self.troubles([&deciding, &approvals]);
        if !troubles.is_empty() {
            let failed = [&deciding, &approvals].into_iter().flat_map(|r| r.diagnostics().errors());
            let because = self.because(failed.map(failed_policy));
            return Answer { opinion: Opinion::Deny(PolicyDenial::PolicyError), because, troubles };
        }
        let because = self.because(deciding.diagnostics().reason());
        if deciding.decision() != Decision::Allow {
            let denial = if deciding.diagnostics().reason().next().is_none() {
                PolicyDenial::NoPolicyAllows
            } else {
                PolicyDenial::DeniedByPolicy
            };
            return Answer { opinion: Opinion::Deny(denial), because, troubles };
        }
        match self.roles(approvals.diagnostics().reason()) {
            None => Answer {
                opinion: Opinion::Deny(PolicyDenial::PolicyError),
                because: BTreeSet::new(),
                troubles,
            },
            Some(roles) if roles.is_empty() => Answer { opinion: Opinion::Allow, because, troubles },
            Some(roles) => Answer {
                opinion: Opinion::RequireApproval(roles),
                because: self.because(approvals.diagnostics().reason()),
                troubles,
            },
        }
    }

    fn because<'a>(&self, ids: impl Iterator<Item = &'a PolicyId>) -> BTreeSet<Because> {
        ids.filter_map(|id| self.known.get(id)).map(|known| known.because.clone()).collect()
    }

    /// The roles that the matching `@approval` forbids name. `None` if one names nobody: it can't be, and
    /// must not be read as "nobody need be asked".
    fn roles<'a>(&self, mut ids: impl Iterator<Item = &'a PolicyId>) -> Option<BTreeSet<String>> {
        ids.try_fold(BTreeSet::new(), |mut roles, id| {
            roles.insert(self.known.get(id)?.approver.clone()?);
            Some(roles)
        })
    }

    fn troubles<'a>(&self, responses: impl IntoIterator<Item = &'a Response>) -> Vec<Trouble> {
        let errors = responses.into_iter().flat_map(|response| response.diagnostics().errors());
        let mut troubles: Vec<_> = errors.map(|error| self.trouble(error)).collect();
        troubles.sort();
        troubles
    }

    fn trouble(&self, error: &AuthorizationError) -> Trouble {
        let AuthorizationError::PolicyEvaluationError(failure) = error;
        let policy_id = self.known.get(failure.policy_id()).map(|known| known.because.id.clone());
        Trouble { policy_id, message: failure.inner().to_string() }
    }
}

fn failed_policy(error: &AuthorizationError) -> &PolicyId {
    let AuthorizationError::PolicyEvaluationError(failure) = error;
    failure.policy_id()
}
