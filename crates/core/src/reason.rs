//! Why something ended as it did: a stable code, a sentence, and what to do.
//!
//! The code is what scripts rely on and what the ledger holds; the sentences lie beside it.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident = $code:literal, $message:literal, $next:literal;)*) => {
        /// The stable codes of endings and denials.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ReasonCode {
            $(#[doc = $message] $variant,)*
        }

        impl ReasonCode {
            /// All of them, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// As scripts see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
            /// One sentence.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
            /// What to do.
            #[must_use]
            pub const fn next(self) -> &'static str {
                match self { $(Self::$variant => $next,)* }
            }
        }
    };
}

codes! {
    OutputSchemaMismatch = "output_schema_mismatch", "The output doesn't match the step's output_schema.", "Ask the agent's owner for the agreed shape, or widen the schema and push the workflow again.";
    IngressDenied = "ingress_denied", "Policy denied the result; its content is quarantined.", "See the policies named in the verdict.";
    ForeignFailed = "foreign_failed", "The foreign agent says that it failed.", "Read its text with `exeat task show TASK`; ask its owner.";
    OutcomeUnknown = "outcome_unknown", "Nobody knows whether the message arrived; effects are possible.", "Ask the agent's owner whether it ran; `exeat dlq list` shows what can be done then.";
    AttemptsExhausted = "attempts_exhausted", "All attempts to send were used up; nothing arrived.", "Check the agent's address and health, then `exeat dlq retry` the dead letter, or start the task again.";
    Unconfirmed = "unconfirmed", "A result was pushed that the agent doesn't confirm.", "Ask the agent's owner; the pushed content is kept, and `exeat dlq retry --adopt` takes it in.";
    ForeignTaskLost = "foreign_task_lost", "The agent no longer knows the task.", "The agent has probably restarted without its store; ask its owner before you send it again.";
    Tampered = "tampered", "The stored bytes no longer match their digest.", "Treat the store as compromised: stop the server and verify the ledger.";
    InvalidResponse = "invalid_response", "The agent's answer isn't A2A.", "Check the registered URL and protocol with `exeat agent show AGENT`.";
    ResponseTooLarge = "response_too_large", "The agent's answer is larger than allowed.", "Ask for less, or raise [egress] response_bytes.";
    CredentialUnavailable = "credential_unavailable", "The credential couldn't be resolved, so no call was made.", "Set the environment variable or file that the entry's handle names, and check that it is granted to the org.";
    CardInvalid = "card_invalid", "The agent's card couldn't be fetched or read.", "Open the card's URL yourself; correct the registered URL.";
    SkillNotOffered = "skill_not_offered", "The agent's card doesn't offer the skill.", "See the skills in the agent's card, and correct the step or the entry.";
    NoCommonInterface = "no_common_interface", "The card lists no interface that we speak.", "Exeat speaks JSON-RPC of A2A 1.0 and 0.3; ask the agent's owner for one of them.";
    EndpointNotAllowed = "endpoint_not_allowed", "The entry doesn't allow the endpoint that would be called.", "If it is right, allow it (`exeat agent set`: --plaintext, allow_origins; ports in exeat.toml) and sign again.";
    AddressRefused = "address_refused", "The host's address isn't one that may be called.", "Only globally routable addresses are called; list a CIDR at the entry and the platform to allow another.";
    RedirectRefused = "redirect_refused", "The agent answered with a redirect; redirects are never followed.", "Register the final URL.";
    SendRefused = "send_refused", "The agent refused the message.", "Read the detail of the attempt with `exeat task show TASK`.";
    ForeignRejected = "foreign_rejected", "The foreign agent rejected the task.", "Read its text with `exeat task show TASK`.";
    ForeignCanceled = "foreign_canceled", "The foreign agent canceled the task.", "Ask its owner why, then start it again.";
    Deadline = "deadline", "The deadline passed.", "Give it a longer deadline, or ask the agent's owner.";
    CanceledByRequester = "canceled_by_requester", "It was canceled on request.", "Start it again if that was a mistake.";
    SiblingEnded = "sibling_ended", "Another step ended badly, so this one was stopped.", "See the step that ended the task.";
    DeniedByPolicy = "denied_by_policy", "A policy forbids it.", "See the policies named in the verdict; `exeat policy push` changes them.";
    NoPolicyAllows = "no_policy_allows", "No policy permits it.", "Add a permit with `exeat policy push`.";
    PolicyError = "policy_error", "A policy couldn't be evaluated, which denies.", "Guard optional attributes with `has`, and push the policy again.";
    LabelAboveCeiling = "label_above_ceiling", "The content's label is above what the receiver may get.", "Send content with a lower label, or raise the receiver's ceiling and sign it.";
    RegionNotAllowed = "region_not_allowed", "The agent's region isn't permitted for the content.", "Use an agent of a permitted region.";
    PostureUnsigned = "posture_unsigned", "The agent's entry isn't signed off.", "Review it and run `exeat agent sign KEY`.";
    AgentDisabled = "agent_disabled", "The agent is disabled.", "`exeat agent enable KEY` lets new work go.";
    AgentRevoked = "agent_revoked", "The agent is revoked for good.", "Register another agent.";
    UnknownAgent = "unknown_agent", "No such agent is registered.", "`exeat agent list` shows those that are; `exeat agent add` registers one.";
    EgressOff = "egress_off", "Egress is off: nothing leaves.", "`exeat egress on --reason …` turns it on.";
    EgressDraining = "egress_draining", "Egress is draining: only what began before may go on.", "`exeat egress on --reason …` lets new work go.";
    BudgetExceeded = "budget_exceeded", "The budget doesn't cover it.", "Raise the one that is named (a task's own with its --budget, others with `exeat budget set`), or wait for its next period.";
    DepthExceeded = "depth_exceeded", "Delegations are nested too deeply.", "Flatten the work, or raise [limits] depth.";
    HopsExceeded = "hops_exceeded", "The task has used up its hops.", "Raise the workflow's max_hops, or look for a loop.";
    ApprovalDenied = "approval_denied", "An approver said no.", "Read the reason with `exeat approval show APPROVAL` (its id is in `exeat task show TASK`).";
    ApprovalExpired = "approval_expired", "Nobody decided in time.", "Start it again, and tell the approvers.";
    WorkerFailed = "worker_failed", "The worker gave up.", "Read its message; see the dead letters.";
    BadWorkerOutput = "bad_worker_output", "The worker's output isn't what it must be.", "A worker prints one JSON object with exactly one of output, suspend, fail.";
    ExpressionFailed = "expression_failed", "An expression of the workflow failed on this data.", "Correct the expression and push the workflow again.";
    DestinationNotAllowed = "destination_not_allowed", "The role may not delegate there.", "`exeat role set NAME --may ENDPOINT` allows it.";
    AnswerUnknown = "answer_unknown", "Nobody knows whether the answer arrived.", "Ask the agent's owner, then answer again.";
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A code with its sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable.
    pub code: ReasonCode,
    /// One sentence that a person understands.
    pub message: String,
    /// What to do next.
    pub next: String,
}

impl Reason {
    /// A reason with the code's own sentence, followed by `detail` if there is one.
    #[must_use]
    pub fn new(code: ReasonCode, detail: &str) -> Self {
        let message = match detail.trim() {
            d if d.is_empty() || d == code.message() => code.message().to_owned(),
            d => format!("{} ({})", code.message(), d.chars().take(2_000).collect::<String>()),
        };
        Self { code, message, next: code.next().to_owned() }
    }
}

impl From<ReasonCode> for Reason {
    fn from(code: ReasonCode) -> Self {
        Self::new(code, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_its_own_name_on_the_wire_and_says_what_to_do() {
        for code in ReasonCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(code.message().ends_with('.') && !code.next().is_empty(), "{code}");
        }
    }
}
