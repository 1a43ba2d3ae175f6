//! What the runs are about: an org with agents, roles, budgets and workflows, and how an operator changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use exeat_core::change::{ChangeSet, Key, PolicyRow, Receipt, Refused, Row, Snapshot, WorkflowRow, Write};
use exeat_core::cost::{Budget, Period, Scope};
use exeat_core::id::{ChangeId, Ids, KeyId, OrgName};
use exeat_core::label::{Label, Levels};
use exeat_core::ledger::data::CostRule;
use exeat_core::payload::Sha256Digest;
use exeat_core::ports::{Clock as _, Entropy as _, Store};
use exeat_core::principal::{ApiKey, KeyScope};
use exeat_core::registry::{
    AgentEntry, AgentStatus, Bounds, CallbackTrust, ContextChoice, Dedup, EgressMode, OrgDefaults, Posture,
    Price, ProtocolPin, Provider, PushChoice, Registry, RoleEntry, Terms,
};
use exeat_core::time::{Span, Timestamp};
use exeat_core::walk::Flows;
use exeat_core::workflow::Workflow;

use crate::sim::chance::Chance;
use crate::sim::faulty::Shared;
use crate::sim::policy::{Says, Table};

/// The one org.
#[must_use]
pub fn org() -> &'static OrgName {
    static ORG: OnceLock<OrgName> = OnceLock::new();
    ORG.get_or_init(|| name("main"))
}

/// A name of whatever kind is wanted.
#[must_use]
pub fn name<T: std::str::FromStr>(of: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    of.parse().expect("a name")
}

/// The workflows, by name.
const FLOWS: [(&str, &str); 8] = [
    (
        "line",
        r#"{"name":"line","steps":{
            "draft":{"to":"role:writer","input":"${{ input }}"},
            "audit":{"to":"agent:alpha","needs":["draft"],"input":"${{ steps.draft.output }}"},
            "publish":{"to":"role:publisher","needs":["audit"],"input":"${{ steps.audit.output }}"}},
            "output":"${{ steps.publish.output }}"}"#,
    ),
    (
        "wide",
        r#"{"name":"wide","steps":{
            "one":{"to":"agent:alpha","skill":"paint","input":"${{ input }}","retry":{"attempts":2,"backoff":"1s"}},
            "two":{"to":"agent:beta","input":"${{ input }}","on_input_required":"fail"},
            "three":{"to":"role:writer","input":"${{ input }}"},
            "join":{"to":"role:publisher","needs":["one","two","three"],"input":{"data":{"a":"${{ steps.one.status }}","b":"${{ steps.two.output.data }}"}}}}}"#,
    ),
    (
        "choice",
        r#"{"name":"choice","deadline":"5m","budget_microusd":45,"steps":{
            "ask":{"to":"agent:beta","input":"${{ input }}","output_schema":{"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}}},
            "yes":{"to":"role:writer","needs":["ask"],"when":"${{ steps.ask.output.data.ok }}","input":"${{ steps.ask.output }}"},
            "no":{"to":"agent:alpha","needs":["ask"],"when":"${{ !steps.ask.output.data.ok }}","input":"no","fallback":"agent:beta"}}}"#,
    ),
    (
        "each",
        r#"{"name":"each","steps":{
            "list":{"to":"role:writer","for_each":"${{ [1, 2, 3] }}","retry":{"attempts":2,"backoff":"1s"},"fallback":"role:helper"},
            "none":{"to":"role:writer","for_each":"${{ [] }}"},
            "out":{"to":"agent:alpha","needs":["list","none"],"for_each":{"in":"${{ ['a', 'b'] }}","max":2},
                "input":{"text":"${{ item }}","data":"${{ steps.list.output.data }}"},"retry":{"attempts":2},"fallback":"agent:beta"}},
            "output":{"data":"${{ steps.out.output.data }}"}}"#,
    ),
    (
        "skilled",
        r#"{"name":"skilled","steps":{"one":{"to":"agent:alpha","skill":"paint","input":"${{ input }}"},
            "two":{"to":"role:writer","needs":["one"],"input":"${{ steps.one.output }}"}}}"#,
    ),
    ("hop-alpha", r#"{"name":"hop-alpha","steps":{"hop":{"to":"agent:alpha"}}}"#),
    (
        "hop-beta",
        r#"{"name":"hop-beta","label":"confidential","steps":{"hop":{"to":"agent:beta","deadline":"40s"}}}"#,
    ),
    ("hop-writer", r#"{"name":"hop-writer","max_hops":7,"steps":{"hop":{"to":"role:writer"}}}"#),
];

fn flows() -> &'static BTreeMap<String, Arc<Workflow>> {
    static READ: OnceLock<BTreeMap<String, Arc<Workflow>>> = OnceLock::new();
    READ.get_or_init(|| {
        let read = |text| Workflow::parse(text, &Levels::default()).expect("a workflow of the simulator");
        FLOWS.iter().map(|(n, text)| ((*n).to_owned(), Arc::new(read(text)))).collect()
    })
}

/// A workflow by its name.
#[must_use]
pub fn flow(of: &str) -> Arc<Workflow> {
    Arc::clone(flows().get(of).expect("a workflow by that name"))
}

/// The names of all workflows.
#[must_use]
pub fn flow_names() -> Vec<&'static str> {
    FLOWS.iter().map(|(n, _)| *n).collect()
}

/// Finds workflows by name; they were read once.
pub struct ReadOnce;

impl Flows for ReadOnce {
    fn of(&self, snapshot: &Snapshot, _: &Registry) -> Result<Arc<Workflow>, String> {
        let row = snapshot.workflow.as_ref().ok_or("a task without its workflow")?;
        flows().get(row.name.as_str()).cloned().ok_or_else(|| format!("no workflow {}", row.name))
    }
}

/// A label.
#[must_use]
pub fn label(text: &str) -> Label {
    Levels::default().parse(text).expect("a label")
}

/// Everything is shorter than it is in life, and in proportion.
#[must_use]
pub fn defaults() -> OrgDefaults {
    let bounds = Bounds {
        depth: 3,
        hops: 12,
        lease: Span::of_secs(10),
        max_deliveries: 3,
        hop_deadline: Span::of_secs(240),
        send_timeout: Span::of_secs(10),
        send_attempts: 4,
        retry_first: Span::of_millis(200),
        retry_max: Span::of_secs(8),
        unknown_grace: Span::of_secs(60),
        poll_first: Span::of_millis(500),
        poll_max: Span::of_secs(20),
        approval_ttl: Span::of_secs(90),
        callback_grace: Span::of_secs(60),
        ..Bounds::default()
    };
    OrgDefaults {
        levels: Levels::default(),
        default_label: label("internal"),
        egress_cap: EgressMode::On,
        bounds: Arc::new(bounds),
    }
}

/// A key of a person.
#[must_use]
pub fn person(id: &str, roles: &[&str]) -> ApiKey {
    ApiKey {
        id: name(id),
        org: org().clone(),
        name: id.to_owned(),
        hash: String::new(),
        scopes: KeyScope::ALL.into(),
        approver_roles: roles.iter().map(|r| (*r).to_owned()).collect(),
        worker_roles: BTreeSet::new(),
        clearance: label("restricted"),
        minted_by: None,
        created_at: Timestamp::EPOCH,
        expires_at: None,
        revoked_at: None,
    }
}

fn entry(chance: &Chance, key: &str) -> AgentEntry {
    let rule = chance.pick(&[CostRule::Estimate, CostRule::ReportedClamped, CostRule::Elapsed]);
    AgentEntry {
        key: name(key),
        version: 1,
        status: AgentStatus::Active,
        origin: format!("https://{key}.example"),
        posture: Posture {
            url: format!("https://{key}.example/"),
            provider: Provider::A2a,
            protocol: ProtocolPin::Auto,
            skills: if chance.permille(50) { BTreeSet::from(["draw".to_owned()]) } else { BTreeSet::new() },
            credential: None,
            allow_origins: BTreeSet::new(),
            plaintext: false,
            allow_cidrs: BTreeSet::new(),
            ceiling: label(if key == "alpha" { "confidential" } else { "restricted" }),
            output_label: label("internal"),
            region: None,
            callback_trust: chance.pick(&[
                CallbackTrust::Confirm,
                CallbackTrust::Confirm,
                CallbackTrust::Body,
            ]),
            token_in_query: false,
        },
        terms: Terms {
            price: Price {
                estimate_microusd: chance.pick(&[0, 10, 10, 25]),
                cap_microusd: chance.pick(&[None, Some(30)]),
                rule,
            },
            deadline: None,
            max_in_flight: 4,
            push: chance.pick(&[PushChoice::Auto, PushChoice::Auto, PushChoice::Off]),
            context: chance.pick(&[ContextChoice::Auto, ContextChoice::Theirs]),
            dedup: chance.pick(&[Dedup::None, Dedup::None, Dedup::MessageId]),
        },
        written_by: name("boss"),
        signed_by: vec![name("ann")],
        halted: false,
    }
}

fn role(of: &str, clearance: &str, may: &[&str]) -> RoleEntry {
    RoleEntry {
        name: name(of),
        clearance: label(clearance),
        may: may.iter().map(|m| m.parse().expect("an endpoint")).collect(),
        teams: BTreeSet::new(),
    }
}

/// A policy for a run: mostly yes.
#[must_use]
pub fn some_policy(chance: &Chance) -> Table {
    let says = |yes: u64| match chance.below(1_000) {
        n if n < yes => Says::Allow,
        n if n < yes + (1_000 - yes) / 2 => Says::Ask,
        n if n < yes + (1_000 - yes) * 3 / 4 => Says::AskTwo,
        _ => Says::Deny,
    };
    Table([says(920), says(750), says(880)])
}

/// Rows that govern, changed by an operator: all at once, with the registry's version.
///
/// # Errors
/// As the record says.
pub async fn govern(shared: &Shared, rows: Vec<(u64, Row)>) -> Result<Receipt, Refused> {
    let now = shared.clock.now();
    let mut ids = Ids::new(now, shared.chance.seed());
    let registry = shared.memory.registry(org()).await.map_err(|e| Refused::Unavailable(e.to_string()))?;
    let mut set = ChangeSet::new(ChangeId::draw(&mut ids), org().clone(), now);
    set.writes.push(Write { expected: registry.version, row: Row::Registry });
    set.writes.extend(rows.into_iter().map(|(expected, row)| Write { expected, row }));
    shared.memory.commit(set).await
}

/// One version of the policy.
#[must_use]
pub fn policy(version: u32, table: Table) -> Row {
    Row::Policy(PolicyRow { version, source: table.text(), at: Timestamp::EPOCH, by: None })
}

/// Sets the org up.
pub async fn set_up(shared: &Shared, plain: bool) {
    let c = &shared.chance;
    let table = if plain { Table([Says::Allow; 3]) } else { some_policy(c) };
    let mut rows = vec![
        (0, Row::Mode(EgressMode::On)),
        (0, policy(1, table)),
        (0, Row::Agent(entry(c, "alpha"))),
        (0, Row::Agent(entry(c, "beta"))),
        (0, Row::Role(role("writer", "restricted", &["agent:alpha", "agent:beta", "role:helper"]))),
        (0, Row::Role(role("publisher", "restricted", &["agent:beta", "agent:gone"]))),
        (0, Row::Role(role("helper", "restricted", &["agent:alpha", "role:helper"]))),
    ];
    if !plain && c.permille(300) {
        let limit_microusd = c.pick(&[20, 60, 200]);
        rows.push((0, Row::Budget(Scope::Org, Budget { limit_microusd, period: Period::Day })));
    }
    if !plain && c.permille(150) {
        let budget = Budget { limit_microusd: 30, period: Period::None };
        rows.push((0, Row::Budget(Scope::Agent(name("alpha")), budget)));
    }
    for (n, text) in FLOWS {
        let row = WorkflowRow {
            name: name(n),
            version: 1,
            digest: Sha256Digest::of(text.as_bytes()),
            source: text.to_owned(),
            at: Timestamp::EPOCH,
            by: name::<KeyId>("boss"),
        };
        rows.push((0, Row::Workflow(row)));
    }
    govern(shared, rows).await.expect("an empty record takes its first rows");
}

/// Something changes while work is under way.
pub async fn change_something(shared: &Shared) {
    let c = &shared.chance;
    let Ok(registry) = shared.memory.registry(org()).await else { return };
    let key = name(c.pick(&["alpha", "beta"]));
    let Some(agent) = registry.agent(&key) else { return };
    let mut next = AgentEntry { version: agent.version + 1, ..AgentEntry::clone(agent) };
    let mode = version_of(shared, &Key::Mode).await;
    let row = match c.below(10) {
        0 => {
            next.terms.price.estimate_microusd = c.pick(&[0, 5, 10, 25]);
            (0, Row::Agent(next))
        }
        1 => {
            next.status =
                if next.status == AgentStatus::Active { AgentStatus::Disabled } else { AgentStatus::Active };
            (0, Row::Agent(next))
        }
        2 => {
            next.posture.ceiling = label(c.pick(&["internal", "confidential", "restricted"]));
            (0, Row::Agent(next))
        }
        3 => {
            next.halted = !next.halted;
            (0, Row::Agent(next))
        }
        4 | 8 => {
            next.posture.skills = if c.permille(300) { BTreeSet::new() } else { ["draw".to_owned()].into() };
            (0, Row::Agent(next))
        }
        5 | 6 => {
            (mode, Row::Mode(c.pick(&[EgressMode::On, EgressMode::Halt, EgressMode::Drain, EgressMode::On])))
        }
        7 if c.permille(100) => (mode, Row::Mode(EgressMode::Off)),
        _ => (0, policy(registry.policy.as_ref().map_or(1, |p| p.version + 1), some_policy(c))),
    };
    shared.tally.one("changes of the registry");
    shared.audit.trail(|| format!("registry: {row:?}").chars().take(300).collect());
    let _ = govern(shared, vec![row]).await;
}

/// An agent loses a skill while hops that want it are held back.
pub async fn drop_a_skill_while_halted(shared: &Shared) {
    let turn = |change: fn(&mut AgentEntry)| async move {
        let Ok(registry) = shared.memory.registry(org()).await else { return };
        let Some(agent) = registry.agent(&name("alpha")) else { return };
        let mut next = AgentEntry { version: agent.version + 1, ..AgentEntry::clone(agent) };
        change(&mut next);
        let _ = govern(shared, vec![(0, Row::Agent(next))]).await;
    };
    turn(|a| a.halted = true).await;
    shared.clock.sleep(Span::of_secs(20)).await;
    turn(|a| a.posture.skills = ["draw".to_owned()].into()).await;
    shared.clock.sleep(Span::of_secs(5)).await;
    turn(|a| a.halted = false).await;
}

/// Everything is switched on again.
pub async fn switch_on(shared: &Shared) {
    let Ok(registry) = shared.memory.registry(org()).await else { return };
    let mut rows = vec![(version_of(shared, &Key::Mode).await, Row::Mode(EgressMode::On))];
    for agent in ["alpha", "beta"].iter().filter_map(|k| registry.agent(&name(k))) {
        let next = AgentEntry {
            version: agent.version + 1,
            status: AgentStatus::Active,
            halted: false,
            ..AgentEntry::clone(agent)
        };
        rows.push((0, Row::Agent(next)));
    }
    let _ = govern(shared, rows).await;
}

async fn version_of(shared: &Shared, key: &Key) -> u64 {
    exeat_core::ports::Archive::version(&shared.memory, org(), key).await.unwrap_or(0)
}
