//! A governor that is a table: the policy's text says what each action gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use exeat_core::gate::verdict::{Action, Because, Governor, Judgement, Opinion, PolicyDenial, Question};
use exeat_core::registry::Registry;
use exeat_core::task::desk::Schemas;
use exeat_core::walk::Governors;
use serde_json::Value;

/// What the table says of one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Yes.
    Allow,
    /// One role must say yes.
    Ask,
    /// Two roles must say yes.
    AskTwo,
    /// No.
    Deny,
}

/// The table: forward, egress, ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table(pub [Says; 3]);

impl Table {
    /// As a policy's text.
    #[must_use]
    pub fn text(self) -> String {
        self.0
            .map(|s| match s {
                Says::Allow => "allow",
                Says::Ask => "ask",
                Says::AskTwo => "asktwo",
                Says::Deny => "deny",
            })
            .join(" ")
    }

    fn of(text: &str) -> Self {
        let mut words = text.split(' ').map(|w| match w {
            "allow" => Says::Allow,
            "ask" => Says::Ask,
            "asktwo" => Says::AskTwo,
            _ => Says::Deny,
        });
        let mut next = || words.next().unwrap_or(Says::Deny);
        Self([next(), next(), next()])
    }
}

struct Fixed(Table, u32);

impl Governor for Fixed {
    fn judge(&self, question: &Question) -> Judgement {
        let Table([forward, egress, ingress]) = self.0;
        let says = match question.action {
            Action::Forward => forward,
            Action::A2aEgress => egress,
            Action::A2aIngress => ingress,
            _ => Says::Deny,
        };
        let roles = |r: &[&str]| r.iter().map(|s| (*s).to_owned()).collect::<BTreeSet<_>>();
        let opinion = match says {
            Says::Allow => Opinion::Allow,
            Says::Ask => Opinion::RequireApproval(roles(&["ops"])),
            Says::AskTwo => Opinion::RequireApproval(roles(&["legal", "ops"])),
            Says::Deny => Opinion::Deny(PolicyDenial::DeniedByPolicy),
        };
        let because = vec![Because { id: "table".into(), reason: None }];
        Judgement { opinion, because, policy_version: format!("1.{}", self.1) }
    }
}

/// Reads the table of a registry's policy; without one it denies.
pub struct Tables;

impl Governors for Tables {
    fn of(&self, registry: &Registry) -> Arc<dyn Governor> {
        let policy = registry.policy.as_ref();
        let table = policy.map_or(Table([Says::Deny; 3]), |p| Table::of(&p.source));
        Arc::new(Fixed(table, policy.map_or(0, |p| p.version)))
    }
}

/// Knows one keyword: `required`.
pub struct Required;

impl Schemas for Required {
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let names = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        match names.iter().filter_map(Value::as_str).find(|n| value.get(n).is_none()) {
            Some(n) => Err(format!("{n} is missing")),
            None => Ok(()),
        }
    }
}
