//! Rows and records that are whole and mean nothing, for checks that only store them.

use std::collections::BTreeSet;

use exeat_core::approval::Approval;
use exeat_core::bridge::{Bridge, BridgeState, CancelIntent, HopCost, InboxRow, Push, PushClaim, Route};
use exeat_core::change::{
    ChangeSet, DeadKind, DeadLetter, Done, Expect, PolicyRow, Row, TaskEvent, WorkflowRow, Write,
};
use exeat_core::endpoint::Endpoint;
use exeat_core::envelope::{Envelope, EnvelopeKind, EnvelopeState};
use exeat_core::gate::exeat::{Bound, ForeignIds};
use exeat_core::gate::verdict::{Decision, KeyFacts, Verdict};
use exeat_core::id::{
    ApprovalId, CallbackId, ChangeId, ContextId, DeadLetterId, EnvelopeId, HopId, Ids, InboxId, MessageId,
    PayloadId, TaskId,
};
use exeat_core::label::{Label, Levels};
use exeat_core::ledger::data::{
    Act, ApprovalStatus, CostData, CostEntry, CostRule, Data, EdgeData, Judged, OperatorData, RecordedLabel,
};
use exeat_core::ledger::record::Actor;
use exeat_core::ledger::{Dir, Draft, EdgeKey, OutsideId, Party, SaltedDigest};
use exeat_core::payload::{Payload, Sealed, Sha256Digest};
use exeat_core::principal::{ApiKey, KeyScope};
use exeat_core::reason::ReasonCode;
use exeat_core::registry::{
    AgentEntry, AgentStatus, CallbackTrust, ContextChoice, Dedup, Posture, Price, ProtocolPin, Provider,
    PushChoice, Terms,
};
use exeat_core::task::{Held, Hop, HopOwner, HopState, Task, TaskStatus};
use exeat_core::time::{Span, Timestamp};
use serde_json::json;

use super::org;

/// Makes them, each with ids of its own.
pub struct Maker {
    ids: Ids,
    /// The time that everything it makes is of.
    pub at: Timestamp,
}

impl Maker {
    /// One whose ids nobody else makes who has another seed.
    #[must_use]
    pub fn new(at: Timestamp, seed: u8) -> Self {
        Self { ids: Ids::new(at, [seed; 32]), at }
    }

    /// Goes on at another time. Ids of later times are greater.
    pub fn at(&mut self, at: Timestamp, seed: u8) {
        *self = Self::new(at, seed);
    }

    /// An empty change set.
    pub fn set(&mut self) -> ChangeSet {
        ChangeSet::new(ChangeId::draw(&mut self.ids), org(), self.at)
    }

    /// A set that writes new rows.
    pub fn writing(&mut self, rows: impl IntoIterator<Item = Row>) -> ChangeSet {
        let mut set = self.set();
        set.writes.extend(rows.into_iter().map(|row| Write { expected: 0, row }));
        set
    }

    /// A set that writes one row over a version.
    pub fn over(&mut self, expected: u64, row: Row) -> ChangeSet {
        let mut set = self.set();
        set.writes.push(Write { expected, row });
        set
    }

    /// Something sealed.
    pub fn sealed(&mut self, text: &str) -> Sealed {
        Sealed::new(Payload::of_text(text).bytes(), &mut self.ids)
    }

    /// A reference to some payload.
    pub fn held(&mut self) -> Held {
        let sealed = self.sealed("some content");
        Held {
            id: PayloadId::draw(&mut self.ids),
            digest: SaltedDigest::from(&sealed),
            plain: Sha256Digest::of(&sealed.bytes),
            bytes: u64::try_from(sealed.bytes.len()).unwrap_or(0),
            label: label(),
            tainted: false,
            artifacts: Vec::new(),
        }
    }

    /// A stored payload of a task.
    pub fn payload(&mut self, task: TaskId, text: &str) -> (PayloadId, Row) {
        let (id, sealed) = (PayloadId::draw(&mut self.ids), self.sealed(text));
        (id, Row::Payload(id, task, sealed))
    }

    /// A task without hops, not due.
    pub fn task(&mut self) -> Task {
        Task {
            id: TaskId::draw(&mut self.ids),
            org: org(),
            workflow: None,
            delegation: None,
            status: TaskStatus::Running,
            reason: None,
            requester: KeyFacts {
                id: "requester".parse().unwrap(),
                name: "A requester".to_owned(),
                scopes: BTreeSet::new(),
                roles: BTreeSet::new(),
                clearance: label(),
            },
            input: self.held(),
            output: None,
            budget_microusd: None,
            max_hops: 100,
            cost_microusd: 0,
            reserved_microusd: 0,
            created_at: self.at,
            deadline: None,
            ended_at: None,
            continues: None,
            steps: Vec::new(),
            hops: Vec::new(),
            due_at: None,
        }
    }

    /// A hop of a task's step.
    pub fn hop(&mut self, to: &str) -> Hop {
        Hop {
            id: HopId::draw(&mut self.ids),
            step: "step".parse().unwrap(),
            owner: HopOwner::Step { run: 0 },
            to: to.parse().unwrap(),
            depth: 1,
            skill: None,
            deadline: None,
            input: self.held(),
            turn: 1,
            closed: 0,
            seen: label(),
            tainted: false,
            state: HopState::Foreign,
            wait: None,
            replies: None,
            until: None,
            deliveries: 0,
            created_at: self.at,
        }
    }

    /// A bridge of a task to the agent `auditor`, version 1, not due.
    pub fn bridge(&mut self, task: TaskId) -> Bridge {
        let message_id = MessageId::draw(&mut self.ids);
        let hop = HopId::draw(&mut self.ids);
        Bridge {
            hop,
            org: org(),
            task,
            step: "step".parse().unwrap(),
            agent: "auditor".parse().unwrap(),
            registry_version: 1,
            origin: "https://auditor.example".to_owned(),
            state: BridgeState::Working,
            turn: 1,
            payload: self.held(),
            skill: None,
            message_id,
            message_ids: vec![message_id],
            context_id: ContextId::draw(&mut self.ids),
            context_refused: false,
            cannot_list: false,
            foreign: Some(ForeignIds { task: format!("theirs-{hop}"), context: None }),
            interface: None,
            bound: Bound::Origin("https://auditor.example".to_owned()),
            card_digest: None,
            attempts: Vec::new(),
            begun: 1,
            leases: Vec::new(),
            callback: None,
            push: Push::default(),
            looks: 0,
            look: None,
            lost: 0,
            lost_since: None,
            quiet_looks: 0,
            strays: BTreeSet::new(),
            claimed: None,
            question: None,
            verdict: self.verdict(),
            approval: None,
            grant: None,
            cost: HopCost {
                rule: CostRule::Estimate,
                estimate_microusd: 10,
                reported_microusd: None,
                elapsed: Span::ZERO,
                reserved_microusd: 0,
                settled_microusd: 0,
                accounts: Vec::new(),
            },
            deadline_after: Span::of_secs(60),
            deadline: None,
            turn_began: None,
            reason: None,
            ending: None,
            created_at: self.at,
            ended_at: None,
            due_at: None,
        }
    }

    fn verdict(&self) -> Verdict {
        Verdict {
            decision: Decision::Allow,
            roles: BTreeSet::new(),
            policies: Vec::new(),
            policy_version: "1".to_owned(),
            at: self.at,
        }
    }

    /// An envelope to a role or a team, ready, not due.
    pub fn envelope(&mut self, task: TaskId, to: &str) -> Envelope {
        Envelope {
            id: EnvelopeId::draw(&mut self.ids),
            org: org(),
            kind: EnvelopeKind::Work,
            to: to.parse().unwrap(),
            task,
            step: "step".parse().unwrap(),
            hop: HopId::draw(&mut self.ids),
            turn: 1,
            delivery: 0,
            state: EnvelopeState::Ready,
            created_at: self.at,
            due_at: None,
        }
    }

    /// The state of an envelope that a worker has taken.
    pub fn leased(&mut self) -> (exeat_core::id::LeaseId, EnvelopeState) {
        let lease = exeat_core::id::LeaseId::draw(&mut self.ids);
        let until = self.at + Span::of_secs(60);
        (
            lease,
            EnvelopeState::Leased {
                lease,
                key: Some("k1".parse().unwrap()),
                worker: "w".to_owned(),
                role: "writer".parse().unwrap(),
                until,
            },
        )
    }

    /// A pending approval that expires in a minute.
    pub fn approval(&mut self, task: TaskId) -> Approval {
        let payload = self.held();
        Approval {
            id: ApprovalId::draw(&mut self.ids),
            org: org(),
            status: ApprovalStatus::Pending,
            dir: Dir::A2aEgress,
            task,
            step: "step".parse().unwrap(),
            hop: HopId::draw(&mut self.ids),
            turn: 1,
            requester: "requester".parse().unwrap(),
            to: "agent:auditor".to_owned(),
            origin: None,
            skill: None,
            registry_version: Some(1),
            label: label(),
            tainted: false,
            digest: payload.plain,
            payload,
            bound: None,
            foreign: None,
            price_microusd: 0,
            because: Vec::new(),
            roles: BTreeSet::from(["legal".to_owned()]),
            decisions: Vec::new(),
            created_at: self.at,
            expires_at: self.at + Span::of_secs(60),
            supersedes: None,
        }
    }

    /// A pushed event that is due at once.
    pub fn inbox(&mut self, hop: HopId, event: &str) -> InboxRow {
        InboxRow {
            id: InboxId::draw(&mut self.ids),
            org: org(),
            hop,
            n: 1,
            digest: Sha256Digest::of(event.as_bytes()),
            claim: PushClaim::Completed,
            foreign_task: None,
            foreign_context: None,
            body: None,
            at: self.at,
            checks: 0,
            due_at: Some(self.at),
        }
    }

    /// A cancel intent that is due at once.
    #[must_use]
    pub fn cancel(&self, bridge: &Bridge) -> CancelIntent {
        CancelIntent {
            hop: bridge.hop,
            org: org(),
            task: bridge.task,
            foreign_task: None,
            tries: 0,
            due_at: Some(self.at),
            until: self.at + Span::of_secs(60),
            outcome: None,
        }
    }

    /// A callback door of a hop.
    pub fn route(&mut self, task: TaskId, hop: HopId) -> Route {
        Route {
            callback: CallbackId::draw(&mut self.ids),
            org: org(),
            task,
            hop,
            turn: 1,
            n: 1,
            until: self.at + Span::of_secs(60),
        }
    }

    /// A dead letter.
    pub fn dead_letter(&mut self, task: TaskId) -> DeadLetter {
        DeadLetter {
            id: DeadLetterId::draw(&mut self.ids),
            kind: DeadKind::Late,
            task,
            step: "step".parse().unwrap(),
            hop: HopId::draw(&mut self.ids),
            reason: ReasonCode::Deadline.into(),
            body: None,
            at: self.at,
            decided: None,
        }
    }

    /// A version of the entry `auditor`.
    #[must_use]
    pub fn agent(&self, version: u32) -> AgentEntry {
        AgentEntry {
            key: "auditor".parse().unwrap(),
            version,
            status: AgentStatus::Active,
            origin: "https://auditor.example".to_owned(),
            posture: Posture {
                url: "https://auditor.example".to_owned(),
                provider: Provider::A2a,
                protocol: ProtocolPin::Auto,
                skills: BTreeSet::new(),
                credential: None,
                allow_origins: BTreeSet::new(),
                plaintext: false,
                allow_cidrs: BTreeSet::new(),
                ceiling: label(),
                output_label: label(),
                region: None,
                callback_trust: CallbackTrust::Confirm,
                token_in_query: false,
            },
            terms: Terms {
                price: Price::default(),
                deadline: None,
                max_in_flight: 4,
                push: PushChoice::Auto,
                context: ContextChoice::Auto,
                dedup: Dedup::None,
            },
            written_by: "admin".parse().unwrap(),
            signed_by: Vec::new(),
            halted: false,
        }
    }

    /// A version of a workflow.
    #[must_use]
    pub fn workflow(&self, name: &str, version: u32) -> WorkflowRow {
        WorkflowRow {
            name: name.parse().unwrap(),
            version,
            digest: Sha256Digest::of(name.as_bytes()),
            source: format!("name: {name}"),
            at: self.at,
            by: "admin".parse().unwrap(),
        }
    }

    /// A version of the policy.
    #[must_use]
    pub fn policy(&self, version: u32) -> PolicyRow {
        PolicyRow { version, source: format!("// {version}"), at: self.at, by: None }
    }

    /// An API key.
    #[must_use]
    pub fn api_key(&self, id: &str) -> ApiKey {
        ApiKey {
            id: id.parse().unwrap(),
            org: org(),
            name: id.to_owned(),
            hash: "00".repeat(32),
            scopes: BTreeSet::from([KeyScope::Viewer]),
            approver_roles: BTreeSet::new(),
            worker_roles: BTreeSet::new(),
            clearance: label(),
            minted_by: None,
            created_at: self.at,
            expires_at: None,
            revoked_at: None,
        }
    }

    /// What an `Idempotency-Key` did.
    #[must_use]
    pub fn done(&self) -> Done {
        // A double that has no short decimal form: what is read back must be it and not its neighbour.
        let answer = json!({ "id": 1, "ratio": 0.1 + 0.2, "deep": [null, { "é": -1.5e-7 }] });
        Done { request: Sha256Digest::of(b"{}"), status: 201, answer, at: self.at }
    }

    /// The key of a task's egress edge in a turn.
    #[must_use]
    pub fn edge_key(&self, task: TaskId, hop: HopId, turn: u32) -> EdgeKey {
        EdgeKey { task, step: "step".parse().unwrap(), hop: Some(hop), turn, dir: Dir::A2aEgress }
    }

    /// The key of the first egress edge of some task.
    pub fn fresh_edge(&mut self) -> EdgeKey {
        let (task, hop) = (self.task().id, self.hop("agent:auditor").id);
        self.edge_key(task, hop, 1)
    }

    /// The record of an edge.
    #[must_use]
    pub fn edge(&self, set: &ChangeSet, key: EdgeKey) -> Draft {
        let data = EdgeData {
            dir: key.dir,
            from: Party::Coordinator,
            to: Party::Endpoint(Endpoint::Agent("auditor".parse().unwrap())),
            origin: None,
            skill: None,
            registry_version: Some(1),
            payload: None,
            bytes: 0,
            label: RecordedLabel::from(&label()),
            tainted: false,
            price_microusd: 0,
            verdict: Judged::from(&self.verdict()),
        };
        Draft::edge(set.at, set.id, Actor::system("check"), key, data)
    }

    /// A cost record under an edge.
    #[must_use]
    pub fn cost(&self, set: &ChangeSet, key: EdgeKey, entry: CostEntry, amount: u64) -> Draft {
        let data = CostData {
            entry,
            amount_microusd: amount,
            rule: None,
            estimate_microusd: None,
            reported_microusd: None,
            elapsed_ms: None,
        };
        Draft::child(set.at, set.id, Actor::system("check"), key, Data::Cost(data))
    }

    /// A record about no edge, of a task if one is named.
    #[must_use]
    pub fn note(&self, set: &ChangeSet, task: Option<TaskId>) -> Draft {
        let data = OperatorData { act: Act::Discover, target: OutsideId::of("auditor"), reason: None };
        let draft = Draft::apart(set.at, set.id, Actor::system("check"), Data::Operator(data));
        Draft { task, ..draft }
    }

    /// An event of a task.
    #[must_use]
    pub fn event(&self, task: TaskId, n: u64) -> TaskEvent {
        TaskEvent { task, event: "task", data: json!({ "n": n }) }
    }
}

/// An expectation of a row that isn't written.
#[must_use]
pub fn expect(row: &Row, version: u64) -> Expect {
    Expect { key: row.key(), version }
}

/// `internal`.
#[must_use]
pub fn label() -> Label {
    Levels::default().parse("internal").unwrap()
}
