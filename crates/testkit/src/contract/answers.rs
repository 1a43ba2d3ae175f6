//! Checks of questions: snapshots, the registry, and what doors and operators ask.

use std::collections::BTreeSet;
use std::sync::Arc;

use exeat_core::approval::Approval;
use exeat_core::bridge::{Bridge, CancelIntent, InboxRow, Unread};
use exeat_core::change::{DeadLetter, Decided, Key, PolicyRow, Refused, Row, Write};
use exeat_core::cost::{Account, Budget, Period, Scope, close, reserve};
use exeat_core::envelope::{Envelope, EnvelopeState};
use exeat_core::ledger::data::{Act, ApprovalStatus};
use exeat_core::ports::{CostBy, Find, Page, TaskFilter};
use exeat_core::registry::{EgressMode, RoleEntry};
use exeat_core::task::{Ending, Task, TaskStatus};
use exeat_core::time::{Span, Timestamp};
use exeat_core::workflow::WorkflowRef;
use serde_json::json;

use super::fixtures::{Maker, label};
use super::{Bench, HandClock, Record, org};

async fn open<B: Bench>() -> (B, Arc<dyn Record>, Maker) {
    let bench = B::open(Arc::new(HandClock::new())).await;
    let record = bench.record();
    let at = record.now().await.unwrap();
    (bench, record, Maker::new(at, 3))
}

async fn store(record: &dyn Record, m: &mut Maker, rows: impl IntoIterator<Item = Row>) {
    let set = m.writing(rows);
    record.commit(set).await.unwrap();
}

async fn again(record: &dyn Record, m: &mut Maker, expected: u64, row: Row) {
    let set = m.over(expected, row);
    record.commit(set).await.unwrap();
}

fn page(limit: u32) -> Page {
    Page { after: None, limit }
}

/// Everything of the task that is open is there with its version, and nothing of another task.
pub async fn a_task_is_loaded_with_all_that_hangs_on_it<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let workflow = m.workflow("check", 3);
    let pinned = WorkflowRef { name: workflow.name.clone(), version: 3 };
    let task = Task { workflow: Some(pinned), ..m.task() };
    let other = m.task();
    let (bridge, theirs) = (m.bridge(task.id), m.bridge(other.id));
    let ready = m.envelope(task.id, "role:writer");
    let void = Envelope {
        state: EnvelopeState::Void { lease: None, key: None },
        ..m.envelope(task.id, "role:writer")
    };
    let pending = m.approval(task.id);
    let denied = Approval { status: ApprovalStatus::Denied, ..m.approval(task.id) };
    let cancel = m.cancel(&bridge);
    let over = CancelIntent { foreign_task: Some("x".to_owned()), due_at: None, ..cancel.clone() };
    let first = m.inbox(bridge.hop, "first");
    let acted = InboxRow { due_at: None, ..m.inbox(bridge.hop, "acted on") };
    let (id, payload) = m.payload(task.id, "é \u{1F680}");
    let (foreign, not_ours) = m.payload(other.id, "not ours");
    let empty = m.held().id;
    let nothing =
        Row::Payload(empty, task.id, exeat_core::payload::Sealed { bytes: Vec::new(), salt: [0; 32] });
    let Row::Payload(_, _, sealed) = payload.clone() else { panic!("a payload") };
    let entry = Row::Agent(m.agent(1));
    store(
        &*record,
        &mut m,
        [
            payload,
            not_ours,
            nothing,
            Row::Inbox(first.clone()),
            Row::Inbox(acted),
            Row::Cancel(cancel.clone()),
            Row::Cancel(over),
            Row::Approval(pending.clone()),
            Row::Approval(denied.clone()),
            Row::Envelope(ready.clone()),
            Row::Envelope(void.clone()),
            Row::Bridge(bridge.clone()),
            Row::Bridge(theirs),
            Row::Task(task.clone()),
            Row::Task(other),
            entry,
            Row::Workflow(workflow.clone()),
        ],
    )
    .await;
    again(&*record, &mut m, 1, Row::Bridge(bridge.clone())).await;
    let s = record.load(&org(), Find::Task(task.id)).await.unwrap().unwrap();
    assert_eq!(s.now, m.at);
    assert_eq!(s.task, (task.clone(), 1));
    assert_eq!(s.workflow.as_deref(), Some(&workflow));
    assert_eq!(s.bridges, [(bridge, 2)]);
    assert_eq!(s.envelopes, [(ready.clone(), 1)]);
    assert_eq!(s.approvals, [(pending.clone(), 1)]);
    assert_eq!(s.cancels, [(cancel, 1)]);
    assert_eq!(s.inbox, [(first, 1)]);
    assert_eq!(s.payloads.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from([id, empty]));
    assert_eq!(s.payloads[&id], sealed);
    assert_eq!(record.payload(&org(), id).await.unwrap(), Some(sealed));
    assert!(record.payload(&org(), foreign).await.unwrap().is_some());
    let asked = record.load(&org(), Find::Envelope(void.id)).await.unwrap().unwrap();
    let mut both = vec![(ready, 1), (void, 1)];
    both.sort_by_key(|(e, _)| e.id);
    assert_eq!(asked.envelopes, both);
    let asked = record.load(&org(), Find::Approval(denied.id)).await.unwrap().unwrap();
    let mut both = vec![(pending, 1), (denied, 1)];
    both.sort_by_key(|(a, _)| a.id);
    assert_eq!(asked.approvals, both);
}

/// Hops to roles and to agents, approvals, envelopes: each leads to the task; nothing else does.
pub async fn a_task_is_found_by_any_of_its_parts<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let mut task = m.task();
    let hop = m.hop("role:writer");
    task.hops.push(hop.clone());
    let (bridge, approval, envelope) =
        (m.bridge(task.id), m.approval(task.id), m.envelope(task.id, "team:t"));
    let rows = [
        Row::Agent(m.agent(1)),
        Row::Task(task.clone()),
        Row::Bridge(bridge.clone()),
        Row::Approval(approval.clone()),
        Row::Envelope(envelope.clone()),
    ];
    store(&*record, &mut m, rows).await;
    for find in [
        Find::Task(task.id),
        Find::Hop(hop.id),
        Find::Hop(bridge.hop),
        Find::Approval(approval.id),
        Find::Envelope(envelope.id),
    ] {
        let found = record.load(&org(), find).await.unwrap().map(|s| s.task.0);
        assert_eq!(found, Some(task.clone()), "{find:?}");
    }
    let (lease, _) = m.leased();
    for find in [
        Find::Task(m.task().id),
        Find::Hop(m.hop("role:writer").id),
        Find::Approval(m.approval(task.id).id),
        Find::Envelope(m.envelope(task.id, "role:x").id),
        Find::Lease(lease),
    ] {
        assert!(record.load(&org(), find).await.unwrap().is_none(), "{find:?}");
    }
}

/// A worker whose lease was lost is still told about its envelope, and so is the one who has it now.
pub async fn a_lost_lease_still_finds_its_envelope<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    let envelope = m.envelope(task.id, "role:writer");
    store(&*record, &mut m, [Row::Task(task.clone()), Row::Envelope(envelope.clone())]).await;
    let (first, taken) = m.leased();
    again(&*record, &mut m, 1, Row::Envelope(Envelope { state: taken, ..envelope.clone() })).await;
    again(&*record, &mut m, 2, Row::Envelope(envelope.clone())).await;
    let (second, taken) = m.leased();
    again(&*record, &mut m, 3, Row::Envelope(Envelope { state: taken, ..envelope.clone() })).await;
    let void = Envelope { state: EnvelopeState::Void { lease: Some(second), key: None }, ..envelope };
    again(&*record, &mut m, 4, Row::Envelope(void.clone())).await;
    for lease in [first, second] {
        let found = record.load(&org(), Find::Lease(lease)).await.unwrap().unwrap();
        assert_eq!((found.task.0.id, found.envelopes), (task.id, vec![(void.clone(), 5)]));
    }
}

/// A callback door leads to its hop; the foreign task is what the bridge has bound by now, and what lies unread is
/// told.
pub async fn a_door_shows_its_hop_and_the_foreign_task<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    let mut bridge = m.bridge(task.id);
    let foreign = bridge.foreign.take();
    let route = m.route(task.id, bridge.hop);
    let agent = Row::Agent(m.agent(1));
    let rows = [agent, Row::Task(task), Row::Bridge(bridge.clone()), Row::Route(route.clone())];
    store(&*record, &mut m, rows).await;
    let door = record.route(&route.callback).await.unwrap().unwrap();
    assert_eq!((&door.route, door.foreign_task), (&route, None));
    bridge.foreign.clone_from(&foreign);
    again(&*record, &mut m, 1, Row::Bridge(bridge)).await;
    let door = record.route(&route.callback).await.unwrap().unwrap();
    assert_eq!(door.foreign_task, foreign.map(|f| f.task));
    assert_eq!(door.unread, Unread::default());
    let (body, kept) = m.payload(route.task, "four");
    let read = InboxRow { due_at: None, ..m.inbox(route.hop, "read") };
    let with = InboxRow { body: Some(body), ..m.inbox(route.hop, "with") };
    let bare = m.inbox(route.hop, "bare");
    let rows = [kept, Row::Inbox(read), Row::Inbox(with), Row::Inbox(bare)];
    store(&*record, &mut m, rows).await;
    let door = record.route(&route.callback).await.unwrap().unwrap();
    assert_eq!(door.unread, Unread { events: 2, body_bytes: r#"{"parts":[{"text":"four"}]}"#.len() as u64 });
    assert_eq!(record.last_callback(&org()).await.unwrap(), Some(route.until));
    let unknown = m.route(route.task, route.hop).callback;
    assert!(record.route(&unknown).await.unwrap().is_none());
}

/// The registry is what its rows say under what configuration allows, and a commit shows at once.
pub async fn the_registry_shows_what_governs_and_follows_each_change<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let empty = record.registry(&org()).await.unwrap();
    assert_eq!((empty.version, empty.org_mode, empty.platform_mode), (0, EgressMode::Off, EgressMode::Drain));
    assert!(empty.agents.is_empty() && empty.policy.is_none());
    let role = RoleEntry {
        name: "writer".parse().unwrap(),
        clearance: label(),
        may: BTreeSet::from(["agent:auditor".parse().unwrap()]),
        teams: BTreeSet::new(),
    };
    let budget = Budget { limit_microusd: 5, period: Period::Day };
    let rows = [
        Row::Registry,
        Row::Agent(m.agent(1)),
        Row::Agent(m.agent(2)),
        Row::Role(role.clone()),
        Row::Policy(m.policy(9)),
        Row::Policy(m.policy(10)),
        Row::Budget(Scope::Agent("auditor".parse().unwrap()), budget),
        Row::Mode(EgressMode::On),
    ];
    store(&*record, &mut m, rows).await;
    let full = record.registry(&org()).await.unwrap();
    let key = "auditor".parse().unwrap();
    assert_eq!((full.version, full.org_mode), (1, EgressMode::On), "a mode is kept as it was set");
    assert_eq!(full.mode(), EgressMode::Drain, "and capped by configuration");
    assert_eq!(full.agent(&key).map(|a| a.version), Some(2));
    assert_eq!(full.agent_at(&key, 1).map(|a| (**a).clone()), Some(m.agent(1)));
    assert_eq!(full.role(&role.name), role);
    assert_eq!(full.policy.as_ref().map(|p| p.version), Some(10));
    assert_eq!(full.budgets.get(&Scope::Agent(key.clone())), Some(&budget));
    assert!(full.met.is_empty());
    again(&*record, &mut m, 1, Row::Mode(EgressMode::Halt)).await;
    assert_eq!(record.registry(&org()).await.unwrap().org_mode, EgressMode::Halt);
    store(&*record, &mut m, [Row::Contact(key.clone())]).await;
    assert!(record.registry(&org()).await.unwrap().met.contains(&key));
    again(&*record, &mut m, 1, Row::Registry).await;
    assert_eq!(record.registry(&org()).await.unwrap().version, 2);
}

/// The answer comes back as it was, to the last digit, and only for the same principal, route and key.
pub async fn an_idempotency_key_tells_what_it_did<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let (by, other) = ("k1".parse().unwrap(), "k2".parse().unwrap());
    let done = m.done();
    let row = Row::Idempotency(by, "POST /tasks".to_owned(), "once".to_owned(), done.clone());
    let Row::Idempotency(by, ..) = row.clone() else { panic!("an idempotency row") };
    store(&*record, &mut m, [row]).await;
    assert_eq!(record.done(&org(), &by, "POST /tasks", "once").await.unwrap(), Some(done));
    for (by, route, key) in
        [(&other, "POST /tasks", "once"), (&by, "POST /x", "once"), (&by, "POST /tasks", "")]
    {
        assert_eq!(record.done(&org(), by, route, key).await.unwrap(), None);
    }
}

/// In whatever state: what is over isn't counted, nor what is another org's.
pub async fn open_foreign_hops_are_counted<B: Bench>() {
    use exeat_core::bridge::BridgeState as S;
    let (_bench, record, mut m) = open::<B>().await;
    assert_eq!(record.open_hops(&org()).await.unwrap(), 0);
    let task = m.task();
    let entry = m.agent(1);
    store(&*record, &mut m, [Row::Agent(entry), Row::Task(task.clone())]).await;
    let at = m.at;
    let states = [
        (S::AwaitingApproval, 1),
        (S::Ready, 1),
        (S::Sending { n: 1, until: at }, 1),
        (S::SendUnknown { since: at }, 1),
        (S::Working, 1),
        (S::InputRequired, 1),
        (S::AuthRequired, 1),
        (S::Completed, 0),
        (S::Failed, 0),
        (S::Rejected, 0),
        (S::CanceledByPeer, 0),
        (S::CanceledByUs, 0),
        (S::TimedOut, 0),
        (S::Denied, 0),
    ];
    let mut open = 0;
    for (state, counts) in states {
        let bridge = Bridge { state, foreign: None, ..m.bridge(task.id) };
        store(&*record, &mut m, [Row::Bridge(bridge)]).await;
        open += counts;
        assert_eq!(record.open_hops(&org()).await.unwrap(), open, "{state:?}");
    }
    assert_eq!(record.open_hops(&"other".parse().unwrap()).await.unwrap(), 0);
}

/// Texts beside the ledger, settings with their versions, and the newest checkpoint.
pub async fn notes_settings_and_checkpoints_are_kept<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let text = "because \u{0} 'quotes' and \u{1F680}";
    store(&*record, &mut m, [Row::Note("sha256s:1".to_owned(), [7; 32], text.to_owned())]).await;
    assert_eq!(record.note(&org(), "sha256s:1").await.unwrap().as_deref(), Some(text));
    assert_eq!(record.note(&org(), "sha256s:2").await.unwrap(), None);
    for (expected, value) in [json!({ "a": [1, null] }), json!("text"), json!(null)].into_iter().enumerate() {
        let expected = u64::try_from(expected).unwrap();
        again(&*record, &mut m, expected, Row::Setting("check".to_owned(), value.clone())).await;
        assert_eq!(record.setting(&org(), "check").await.unwrap(), Some((value, expected + 1)));
    }
    assert_eq!(record.setting(&org(), "none").await.unwrap(), None);
    assert_eq!(record.version(&org(), &Key::Setting("check".to_owned())).await.unwrap(), 3);
    assert_eq!(record.checkpoint(&org()).await.unwrap(), None);
    for (size, note) in [(5, "five"), (9, "nine"), (7, "seven")] {
        record.keep_checkpoint(&org(), size, note).await.unwrap();
    }
    assert_eq!(record.checkpoint(&org()).await.unwrap().as_deref(), Some("nine"));
}

/// Keys are listed oldest first, and found by id alone.
pub async fn api_keys_are_found_by_their_public_half<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let at = m.at;
    for (id, age) in [("b", 1), ("a", 1), ("c", 2)] {
        let mut key = m.api_key(id);
        key.created_at = at - Span::of_secs(age);
        store(&*record, &mut m, [Row::ApiKey(key)]).await;
    }
    let mut revoked = m.api_key("a");
    revoked.created_at = at - Span::of_secs(1);
    revoked.revoked_at = Some(at);
    again(&*record, &mut m, 1, Row::ApiKey(revoked.clone())).await;
    let all = record.api_keys(&org()).await.unwrap();
    let shown: Vec<_> = all.iter().map(|(k, v)| (k.id.as_str(), *v)).collect();
    assert_eq!(shown, [("c", 1), ("a", 2), ("b", 1)]);
    assert_eq!(record.api_key(&revoked.id).await.unwrap(), Some((revoked, 2)));
    assert_eq!(record.api_key(&"zz".parse().unwrap()).await.unwrap(), None);
}

/// By name, the newest version of each; one version on request.
pub async fn workflows_show_their_newest_version<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    for (name, version) in [("b", 1), ("a", 9), ("a", 10), ("b", 2)] {
        let row = Row::Workflow(m.workflow(name, version));
        store(&*record, &mut m, [row]).await;
    }
    assert_eq!(record.workflows(&org()).await.unwrap(), [m.workflow("a", 10), m.workflow("b", 2)]);
    let a = "a".parse().unwrap();
    assert_eq!(record.workflow(&org(), &a, None).await.unwrap(), Some(m.workflow("a", 10)));
    assert_eq!(record.workflow(&org(), &a, Some(9)).await.unwrap(), Some(m.workflow("a", 9)));
    assert_eq!(record.workflow(&org(), &a, Some(11)).await.unwrap(), None);
    assert_eq!(record.workflow(&org(), &"c".parse().unwrap(), None).await.unwrap(), None);
}

/// What was judged by it is explained by it, whatever is in force.
pub async fn each_version_of_the_policy_stays<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let policy = |version: u32| PolicyRow {
        version,
        source: format!("// {version}"),
        at: Timestamp::of_micros(1_767_225_600_000_000),
        by: None,
    };
    for version in [1, 2] {
        store(&*record, &mut m, [Row::Policy(policy(version))]).await;
    }
    assert_eq!(record.policy(&org(), 1).await.unwrap(), Some(policy(1)));
    assert_eq!(record.policy(&org(), 2).await.unwrap(), Some(policy(2)));
    assert_eq!(record.policy(&org(), 3).await.unwrap(), None);
}

async fn ids(record: &dyn Record, filter: &TaskFilter, limit: u32) -> Vec<exeat_core::id::TaskId> {
    let mut page = page(limit);
    let mut all = Vec::new();
    loop {
        let (tasks, next) = record.tasks(&org(), filter, &page).await.unwrap();
        assert!(tasks.len() <= usize::try_from(limit).unwrap());
        all.extend(tasks.iter().map(|t| t.id));
        match next {
            Some(after) => page.after = Some(after),
            None => return all,
        }
    }
}

/// Newest first, whatever the size of the pages, and only those that fit all of the filter.
pub async fn tasks_come_newest_first_in_pages_and_filtered<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let pinned = WorkflowRef { name: "check".parse().unwrap(), version: 2 };
    let mut made = Vec::new();
    for n in 0..7_u8 {
        let later = m.at + Span::of_secs(1);
        m.at(later, n);
        let mut task = m.task();
        task.due_at = (n % 3 == 0).then_some(m.at);
        task.workflow = (n % 2 == 0).then(|| pinned.clone());
        task.status = if n < 3 { TaskStatus::Ended(Ending::TimedOut) } else { TaskStatus::Running };
        if n > 4 {
            task.hops.push(m.hop("agent:auditor"));
        }
        store(&*record, &mut m, [Row::Task(task.clone())]).await;
        made.insert(0, task);
    }
    let all: Vec<_> = made.iter().map(|t| t.id).collect();
    for limit in [1, 2, 3, 7, 50] {
        assert_eq!(ids(&*record, &TaskFilter::default(), limit).await, all, "{limit}");
    }
    let status = Some("timed_out".to_owned());
    let workflow = Some(pinned.name.clone());
    let agent = Some("auditor".parse().unwrap());
    let due_before = Some(made[2].created_at);
    for (filter, fits) in [
        (TaskFilter { status: status.clone(), ..TaskFilter::default() }, vec![4, 5, 6]),
        (TaskFilter { workflow: workflow.clone(), ..TaskFilter::default() }, vec![0, 2, 4, 6]),
        (TaskFilter { agent: agent.clone(), ..TaskFilter::default() }, vec![0, 1]),
        (TaskFilter { due_before, ..TaskFilter::default() }, vec![3, 6]),
        (TaskFilter { status, workflow: workflow.clone(), ..TaskFilter::default() }, vec![4, 6]),
        (TaskFilter { agent, workflow, ..TaskFilter::default() }, vec![0]),
        (TaskFilter { status: Some("no such".to_owned()), ..TaskFilter::default() }, vec![]),
    ] {
        let wanted: Vec<_> = fits.into_iter().map(|i: usize| all[i]).collect();
        assert_eq!(ids(&*record, &filter, 2).await, wanted, "{filter:?}");
    }
    let hostile = Page { after: Some("'; DROP TABLE task; --".to_owned()), limit: 9 };
    assert!(record.tasks(&org(), &TaskFilter::default(), &hostile).await.is_ok());
    assert_eq!(ids(&*record, &TaskFilter::default(), 9).await, all);
}

/// As tasks: newest first, in pages.
pub async fn approvals_and_dead_letters_come_in_pages<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    store(&*record, &mut m, [Row::Task(task.clone())]).await;
    let (mut approvals, mut letters) = (Vec::new(), Vec::new());
    for n in 0..3_u8 {
        let later = m.at + Span::of_secs(1);
        m.at(later, n);
        let mut approval = m.approval(task.id);
        approval.status = if n == 1 { ApprovalStatus::Canceled } else { ApprovalStatus::Pending };
        let letter = m.dead_letter(task.id);
        store(&*record, &mut m, [Row::Approval(approval.clone()), Row::DeadLetter(letter.clone())]).await;
        approvals.insert(0, approval);
        letters.insert(0, letter);
    }
    let (first, next) = record.approvals(&org(), None, &page(2)).await.unwrap();
    assert_eq!(first, approvals[..2]);
    let rest = Page { after: next, limit: 2 };
    assert_eq!(record.approvals(&org(), None, &rest).await.unwrap(), (approvals[2..].to_vec(), None));
    let canceled = record.approvals(&org(), Some(ApprovalStatus::Canceled), &page(2)).await.unwrap();
    assert_eq!(canceled, (vec![approvals[1].clone()], None));
    let (first, next) = record.dead_letters(&org(), &page(2)).await.unwrap();
    assert_eq!(first, letters[..2]);
    let rest = Page { after: next, limit: 2 };
    assert_eq!(record.dead_letters(&org(), &rest).await.unwrap(), (letters[2..].to_vec(), None));
}

/// A letter that was decided can't be decided again on what was read before.
pub async fn a_dead_letter_is_decided_once<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task();
    let letter = m.dead_letter(task.id);
    assert_eq!(record.dead_letter(&org(), letter.id).await.unwrap(), None);
    store(&*record, &mut m, [Row::Task(task), Row::DeadLetter(letter.clone())]).await;
    assert_eq!(record.dead_letter(&org(), letter.id).await.unwrap(), Some((letter.clone(), 1)));
    let decided = Decided { act: Act::Discard, by: "ann".parse().unwrap(), at: m.at, task: None };
    let decided = DeadLetter { decided: Some(decided), ..letter };
    for again in [false, true] {
        let mut set = m.set();
        set.writes.push(Write { expected: 1, row: Row::DeadLetter(decided.clone()) });
        let refused = record.commit(set).await.err().is_some_and(|e| matches!(e, Refused::Conflict(_)));
        assert_eq!(refused, again);
        let held = record.dead_letter(&org(), decided.id).await.unwrap();
        assert_eq!(held, Some((decided.clone(), 2)));
    }
}

/// A watcher goes on where it left off.
pub async fn events_are_read_after_a_number<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task().id;
    for n in 1..=5 {
        let mut set = m.set();
        set.events.push(m.event(task, n));
        record.commit(set).await.unwrap();
    }
    let told = record.events(&org(), task, 2, 2).await.unwrap();
    assert_eq!(told.iter().map(|e| e.id).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((told[0].event.as_str(), &told[0].data, told[0].at), ("task", &json!({ "n": 3 }), m.at));
    assert!(record.events(&org(), task, 5, 9).await.unwrap().is_empty());
}

/// The chain is read in order from any place, or one task's part of it.
pub async fn records_are_read_from_a_place_and_by_task<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let task = m.task().id;
    for n in 0..6 {
        let mut set = m.set();
        set.drafts.push(m.note(&set, (n % 2 == 0).then_some(task)));
        record.commit(set).await.unwrap();
    }
    let seqs =
        |records: &[exeat_core::ports::StoredRecord]| records.iter().map(|r| r.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&record.records(&org(), 0, 2).await.unwrap()), [1, 2]);
    assert_eq!(seqs(&record.records(&org(), 4, 2).await.unwrap()), [4, 5]);
    assert_eq!(seqs(&record.records(&org(), 7, 2).await.unwrap()), [0; 0]);
    assert_eq!(seqs(&record.records_of(&org(), task).await.unwrap()), [1, 3, 5]);
}

/// Sums of entries between two times, the second out; a worker's own cost counts for its role.
pub async fn costs_are_summed_by_agent_workflow_task_and_day<B: Bench>() {
    let (_bench, record, mut m) = open::<B>().await;
    let workflow = Some(WorkflowRef { name: "check".parse().unwrap(), version: 1 });
    let mut task = Task { workflow, ..m.task() };
    task.hops = vec![m.hop("agent:auditor"), m.hop("agent:auditor"), m.hop("role:writer")];
    let lone = Task { hops: vec![m.hop("agent:other"), m.hop("agent:free")], ..m.task() };
    store(&*record, &mut m, [Row::Task(task.clone()), Row::Task(lone.clone())]).await;
    let account = Account { scope: Scope::Org, since: Timestamp::EPOCH };
    let spend = |n: usize| (task.hops[n].id, 10, [7, 4, 3][n]);
    let first_day = m.at;
    let next_day = m.at + Span::of_secs(86_400);
    for (at, (hop, reserved, settled)) in [
        (first_day, spend(0)),
        (first_day, spend(1)),
        (next_day, spend(2)),
        (next_day, (lone.hops[0].id, 5, 5)),
        (next_day, (lone.hops[1].id, 0, 0)),
    ] {
        m.at = at;
        let mut set = m.set();
        set.at = at;
        set.costs.push(reserve(hop, 1, reserved, vec![(account.clone(), None)]));
        set.costs.extend(close(hop, 1, reserved, settled, std::slice::from_ref(&account)));
        record.commit(set).await.unwrap();
    }
    let mut open_turn = m.set();
    open_turn.costs.push(reserve(lone.hops[0].id, 2, 6, vec![(account, None)]));
    record.commit(open_turn).await.unwrap();
    let end = next_day + Span::of_micros(1);
    for (by, wanted) in [
        (
            CostBy::Agent,
            vec![("auditor", 2, 11, 0), ("free", 1, 0, 0), ("other", 1, 5, 6), ("role:writer", 0, 3, 0)],
        ),
        (CostBy::Workflow, vec![("-", 2, 5, 6), ("check", 2, 14, 0)]),
        (CostBy::Day, vec![("2027-01-15", 2, 11, 0), ("2027-01-16", 2, 8, 6)]),
    ] {
        let lines = record.costs(&org(), by, first_day, end).await.unwrap();
        let shown: Vec<_> =
            lines.iter().map(|l| (l.key.as_str(), l.hops, l.settled_microusd, l.reserved_microusd)).collect();
        assert_eq!(shown, wanted, "{by:?}");
    }
    let lines = record.costs(&org(), CostBy::Task, first_day, next_day).await.unwrap();
    assert_eq!(
        lines.iter().map(|l| (l.key.clone(), l.settled_microusd)).collect::<Vec<_>>(),
        [(task.id.to_string(), 11)]
    );
}
