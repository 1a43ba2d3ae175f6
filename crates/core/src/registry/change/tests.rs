use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::entry::{Act, Seen, Standing, Written, act, put, sign};
use super::grant::{WrittenKey, create_key, push_workflow, revoke_key};
use super::rule::{ModeWish, Strand, push_policy, put_budget, put_role, set_mode};
use super::*;
use crate::change::PolicyRow;
use crate::cost::{Budget, Period, Scope};
use crate::gate::verdict::{Judgement, PolicyDenial};
use crate::principal::KeyScope;
use crate::registry::{AgentStatus, Bounds, EgressMode, Registry};
use crate::workflow::Workflow;

struct Says(Opinion);

impl Governor for Says {
    fn judge(&self, _: &Question) -> Judgement {
        Judgement { opinion: self.0.clone(), because: Vec::new(), policy_version: "0.1".to_owned() }
    }
}

const YES: Says = Says(Opinion::Allow);
const NO: Says = Says(Opinion::Deny(PolicyDenial::NoPolicyAllows));

fn now() -> Timestamp {
    Timestamp::of_micros(1_767_225_600_000_000)
}

fn key(name: &str, minted_by: Option<&str>) -> ApiKey {
    let levels = Levels::default();
    ApiKey {
        id: name.parse().unwrap(),
        org: "main".parse().unwrap(),
        name: name.to_owned(),
        hash: String::new(),
        scopes: [KeyScope::Admin, KeyScope::Operator].into(),
        approver_roles: BTreeSet::new(),
        worker_roles: BTreeSet::new(),
        clearance: levels.top(),
        minted_by: minted_by.map(|m| m.parse().unwrap()),
        created_at: now(),
        expires_at: None,
        revoked_at: None,
    }
}

fn registry() -> Registry {
    let levels = Levels::default();
    Registry {
        org: "main".parse().unwrap(),
        version: 7,
        default_label: levels.parse("internal").unwrap(),
        levels,
        platform_mode: EgressMode::On,
        org_mode: EgressMode::Off,
        agents: BTreeMap::new(),
        roles: BTreeMap::new(),
        budgets: BTreeMap::new(),
        met: BTreeSet::new(),
        policy: None,
        bounds: Arc::new(Bounds::default()),
    }
}

fn acting<'a>(registry: &'a Registry, by: &'a ApiKey, operators: Operators) -> Acting<'a> {
    Acting { now: now(), registry, by, operators, governor: &YES, ids: Ids::new(now(), [3; 32]) }
}

fn written(change: Value) -> Written {
    let mut all = json!({ "url": "https://peer.example", "ceiling": "internal" });
    all.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn origin() -> String {
    "https://peer.example".to_owned()
}

fn made<T>(change: Result<Change<T>, NotChanged>) -> (T, ChangeSet) {
    match change {
        Ok(Change::Made(value, set)) => (value, *set),
        Ok(Change::Same(_)) => panic!("nothing changes"),
        Ok(Change::Asked(_)) => panic!("a second person is wanted"),
        Err(e) => panic!("{e:?}"),
    }
}

fn data(set: &ChangeSet) -> &ChangeData {
    match set.drafts.as_slice() {
        [Draft { data: Data::Change(data), .. }] => data,
        other => panic!("{other:?}"),
    }
}

/// Takes an entry over into the registry, as its commit does.
fn take(registry: &mut Registry, agent: &AgentEntry) {
    registry.version += 1;
    let versions = registry.agents.entry(agent.key.clone()).or_default();
    versions.insert(agent.version, Arc::new(agent.clone()));
}

fn active(by: &ApiKey, signer: &ApiKey) -> (Registry, AgentEntry) {
    let mut r = registry();
    let seen = Seen::New;
    let peer = "peer".parse().unwrap();
    let (agent, _) =
        made(put(acting(&r, by, Operators::Several), &peer, &written(json!({})), origin(), seen));
    take(&mut r, &agent);
    let standing = Standing { row: 1, writer: Some(by.clone()) };
    let digest = agent.posture_digest();
    let (agent, _) = made(sign(acting(&r, signer, Operators::Several), &peer, 1, digest, &standing));
    take(&mut r, &agent);
    (r, agent)
}

#[test]
fn a_new_entry_is_unsigned_has_its_defaults_and_raises_the_registrys_version() {
    let (r, by) = (registry(), key("a", None));
    let key = "peer".parse().unwrap();
    let (agent, set) =
        made(put(acting(&r, &by, Operators::Single), &key, &written(json!({})), origin(), Seen::New));
    assert_eq!((agent.version, agent.status), (1, AgentStatus::PendingReview));
    assert_eq!(agent.posture.output_label, r.default_label);
    assert_eq!(agent.terms.max_in_flight, 16);
    assert!(agent.signed_by.is_empty() && !agent.halted);
    assert_eq!(set.writes[0], Write { expected: 7, row: Row::Registry });
    assert_eq!(set.writes[1], Write { expected: 0, row: Row::Agent(agent.clone()) });
    assert_eq!(data(&set).digest, Some(agent.posture_digest()));
}

#[test]
fn what_is_written_must_fit_what_was_seen() {
    let (a, b) = (key("a", None), key("b", None));
    let (r, agent) = active(&a, &b);
    let other = written(json!({ "plaintext": true }));
    let peer = agent.key.clone();
    let try_put = |key: &crate::id::AgentKey, w: &Written, seen| {
        put(acting(&r, &a, Operators::Several), key, w, origin(), seen).map(|_| ())
    };
    assert_eq!(try_put(&peer, &other, Seen::New), Err(NotChanged::Exists));
    assert_eq!(try_put(&peer, &other, Seen::Version(2)), Err(NotChanged::Moved { now: 1 }));
    let missing = "none".parse().unwrap();
    assert_eq!(try_put(&missing, &other, Seen::Version(1)), Err(NotChanged::NotFound("agent")));
    let same =
        put(acting(&r, &a, Operators::Several), &peer, &written(json!({})), origin(), Seen::Version(1));
    assert!(matches!(same, Ok(Change::Same(_))));
}

#[test]
fn another_posture_unsigns_and_other_terms_do_not() {
    let (a, b) = (key("a", None), key("b", None));
    let posture = [
        json!({ "plaintext": true }),
        json!({ "ceiling": "confidential" }),
        json!({ "ceiling": { "level": "internal", "tags": ["eu"] } }),
        json!({ "output_label": "public" }),
        json!({ "skills": ["audit"] }),
        json!({ "protocol": "0.3" }),
        json!({ "provider": "google_adk" }),
        json!({ "allow_origins": ["https://x.example"] }),
        json!({ "allow_cidrs": ["10.0.0.0/8"] }),
        json!({ "region": "eu" }),
        json!({ "callback_trust": "body" }),
        json!({ "token_in_query": true }),
        json!({ "credential": { "kind": "bearer", "from": "env:K" } }),
    ];
    let terms = [
        json!({ "price": { "estimate_microusd": 5 } }),
        json!({ "deadline": "2h" }),
        json!({ "max_in_flight": 1 }),
        json!({ "push": "off" }),
        json!({ "context": "theirs" }),
        json!({ "dedup": "message_id" }),
    ];
    let all = posture.iter().map(|c| (c, false)).chain(terms.iter().map(|c| (c, true)));
    for (change, stays) in all {
        let (r, agent) = active(&a, &b);
        let w = written(change.clone());
        let (next, _) =
            made(put(acting(&r, &b, Operators::Several), &agent.key, &w, origin(), Seen::Version(1)));
        assert_eq!(next.version, 2, "{change}");
        assert_eq!(next.status == AgentStatus::Active, stays, "{change}");
        assert_eq!(next.signed_by.is_empty(), !stays, "{change}");
        assert_eq!(next.written_by == a.id, stays, "{change}: the writer of the posture");
    }
}

#[test]
fn what_cant_be_is_named_by_its_pointer() {
    let (r, by) = (registry(), key("a", None));
    let key = "peer".parse().unwrap();
    for (change, at) in [
        (json!({ "region": "E U" }), "/region"),
        (json!({ "max_in_flight": 0 }), "/max_in_flight"),
        (json!({ "deadline": "0s" }), "/deadline"),
        (json!({ "skills": ["a\nb"] }), "/skills"),
        (json!({ "skills": vec!["x"; 101] }), "/skills"),
        (json!({ "ceiling": "secret" }), "/ceiling"),
        (json!({ "output_label": "internal+E" }), "/output_label"),
    ] {
        let refused =
            put(acting(&r, &by, Operators::Single), &key, &written(change.clone()), origin(), Seen::New);
        match refused.map(|_| ()) {
            Err(NotChanged::Invalid { pointer, .. } | NotChanged::BadLabel { pointer, .. }) => {
                assert_eq!(pointer, at, "{change}");
            }
            other => panic!("{change}: {other:?}"),
        }
    }
    for bad in [
        json!({ "url": "https://x", "ceiling": "internal", "redaction": "block" }),
        json!({ "url": "https://x", "ceiling": "internal", "provider": "claude" }),
        json!({ "url": "https://x", "ceiling": "internal", "status": "active" }),
        json!({ "url": "https://x" }),
        json!({ "ceiling": "internal" }),
    ] {
        assert!(serde_json::from_value::<Written>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn a_posture_is_signed_by_a_second_person_unless_one_counts_as_two() {
    use Operators::{Several, Single};
    let (a, b) = (key("a", None), key("b", None));
    let (child, parent) = (key("child", Some("a")), key("a", Some("parent")));
    let maker = key("parent", None);
    for (writer, signer, operators, goes, four_eyes) in [
        (Some(&a), &b, Several, true, true),
        (Some(&a), &a, Several, false, false),
        (Some(&a), &child, Several, false, false),
        (Some(&child), &a, Several, false, false),
        (Some(&parent), &maker, Several, false, false),
        (None, &b, Several, false, false),
        (Some(&a), &a, Single, true, false),
        (Some(&a), &child, Single, true, false),
        (Some(&a), &b, Single, true, true),
    ] {
        let mut r = registry();
        let peer = "peer".parse().unwrap();
        let (agent, _) = made(put(acting(&r, &a, Several), &peer, &written(json!({})), origin(), Seen::New));
        take(&mut r, &agent);
        let standing = Standing { row: 1, writer: writer.cloned() };
        let signed = sign(acting(&r, signer, operators), &peer, 1, agent.posture_digest(), &standing);
        if !goes {
            assert!(matches!(signed, Err(NotChanged::FourEyes(_))), "{:?} {:?}", writer, signer.id);
            continue;
        }
        let (next, set) = made(signed);
        assert_eq!(next.status, AgentStatus::Active);
        assert_eq!(next.signed_by.as_slice(), std::slice::from_ref(&signer.id));
        assert_eq!(data(&set).four_eyes, four_eyes);
        assert!(set.writes.contains(&Write { expected: 1, row: Row::Agent(next) }));
        assert!(set.writes.contains(&Write { expected: 8, row: Row::Registry }));
    }
}

#[test]
fn only_what_was_seen_is_signed_and_policy_is_asked() {
    let (a, b) = (key("a", None), key("b", None));
    let mut r = registry();
    let peer = "peer".parse().unwrap();
    let (agent, _) =
        made(put(acting(&r, &a, Operators::Several), &peer, &written(json!({})), origin(), Seen::New));
    take(&mut r, &agent);
    let standing = Standing { row: 1, writer: Some(a.clone()) };
    let (seen, other) = (agent.posture_digest(), Sha256Digest::of(b"other"));
    for (version, digest) in [(2, seen), (1, other)] {
        let refused = sign(acting(&r, &b, Operators::Several), &peer, version, digest, &standing);
        assert_eq!(refused.map(|_| ()), Err(NotChanged::PostureChanged { now: 1 }));
    }
    let denied = Acting { governor: &NO, ..acting(&r, &b, Operators::Several) };
    let refused = sign(denied, &peer, 1, seen, &standing).map(|_| ());
    assert_eq!(refused, Err(NotChanged::Policy(vec!["no_policy_allows".to_owned()])));
}

#[test]
fn each_act_on_each_standing_does_what_it_says_and_revoked_is_for_good() {
    use AgentStatus as S;
    let (a, b) = (key("a", None), key("b", None));
    let standing = Standing { row: 2, writer: Some(a.clone()) };
    for status in [S::PendingReview, S::Active, S::Disabled, S::Revoked] {
        for signed in [true, false] {
            for it in Act::ALL {
                let (mut r, mut agent) = active(&a, &b);
                agent.status = status;
                if !signed {
                    agent.signed_by.clear();
                }
                take(&mut r, &agent);
                let done = act(acting(&r, &a, Operators::Several), &agent.key, it, Some("why"), &standing);
                let expected = match (it, status) {
                    (Act::Revoke, _) => Some((S::Revoked, false)),
                    (_, S::Revoked) => None,
                    (Act::Disable, _) => Some((S::Disabled, false)),
                    (Act::Enable, S::Disabled) if signed => Some((S::Active, false)),
                    (Act::Enable, S::Disabled) => Some((S::PendingReview, false)),
                    (Act::Enable | Act::Resume, s) => Some((s, false)),
                    (Act::Halt, s) => Some((s, true)),
                };
                let got = match done {
                    Ok(Change::Made(next, set)) => {
                        assert!(data(&set).reason.is_some());
                        assert!(set.writes.iter().any(|w| matches!(w.row, Row::Note(..))));
                        Some((next.status, next.halted))
                    }
                    Ok(Change::Same(next)) => Some((next.status, next.halted)),
                    Ok(Change::Asked(_)) => panic!("one person does"),
                    Err(NotChanged::Invalid { .. }) => None,
                    Err(e) => panic!("{e:?}"),
                };
                assert_eq!(got, expected, "{it:?} of {status:?}");
            }
        }
    }
}

fn wish(mode: EgressMode) -> ModeWish<'static> {
    ModeWish { mode, reason: Some("why"), hops_out: 0, strand: Strand::Refused }
}

#[test]
fn letting_more_leave_takes_two_and_letting_less_leave_takes_one() {
    use EgressMode::{Drain, Halt, Off, On};
    let by = key("a", None);
    for before in [Off, Halt, Drain, On] {
        for mode in [Off, Halt, Drain, On] {
            let mut r = registry();
            r.org_mode = before;
            let done = set_mode(acting(&r, &by, Operators::Several), wish(mode), 3, &Earlier::default());
            let two = mode == On || (mode == Drain && before != On);
            match done.unwrap() {
                Change::Same(_) => assert_eq!(before, mode),
                Change::Asked(set) => {
                    assert!(two, "{before:?} → {mode:?}");
                    assert!(!set.writes.iter().any(|w| matches!(w.row, Row::Mode(_) | Row::Registry)));
                }
                Change::Made(..) => assert!(!two, "{before:?} → {mode:?}"),
            }
            let single = set_mode(acting(&r, &by, Operators::Single), wish(mode), 3, &Earlier::default());
            assert!(!matches!(single, Ok(Change::Asked(_))));
        }
    }
}

#[test]
fn a_second_person_must_ask_for_the_same_in_time() {
    let (a, b, child) = (key("a", None), key("b", None), key("child", Some("a")));
    let r = registry();
    let digest = |mode: &str| Sha256Digest::of(mode.as_bytes());
    let earlier = |by: &ApiKey, digest, ago: Span| Earlier {
        asked: Some(AskedBefore { by: by.id.clone(), digest, at: now() - ago }),
        version: 4,
        key: Some(by.clone()),
    };
    let minute = Span::of_secs(60);
    for (before, by, counts) in [
        (earlier(&a, digest("on"), minute), &b, true),
        (earlier(&a, digest("on"), minute), &a, false),
        (earlier(&a, digest("on"), minute), &child, false),
        (earlier(&a, digest("drain"), minute), &b, false),
        (earlier(&a, digest("on"), ASKED_FOR), &b, false),
        (Earlier { key: None, ..earlier(&a, digest("on"), minute) }, &b, false),
    ] {
        match set_mode(acting(&r, by, Operators::Several), wish(EgressMode::On), 0, &before).unwrap() {
            Change::Made(_, set) => {
                assert!(counts);
                assert!(data(&set).four_eyes);
                let forgotten = Row::Setting("asked_egress".to_owned(), Value::Null);
                assert!(set.writes.contains(&Write { expected: 4, row: forgotten }));
            }
            Change::Asked(set) => {
                assert!(!counts);
                assert!(set.writes.iter().any(|w| w.expected == 4));
                assert!(!data(&set).four_eyes);
            }
            Change::Same(_) => panic!("it is off"),
        }
    }
}

#[test]
fn hops_that_are_out_are_stranded_by_name_only() {
    let (mut r, by) = (registry(), key("a", None));
    r.org_mode = EgressMode::On;
    let off = |strand| ModeWish { hops_out: 2, strand, ..wish(EgressMode::Off) };
    let set = |w| set_mode(acting(&r, &by, Operators::Several), w, 1, &Earlier::default()).map(|_| ());
    assert!(matches!(set(off(Strand::Refused)), Err(NotChanged::Invalid { pointer: "/strand", .. })));
    assert_eq!(set(off(Strand::Accepted)), Ok(()));
    assert_eq!(set(ModeWish { hops_out: 2, ..wish(EgressMode::Halt) }), Ok(()));
}

#[test]
fn a_policy_counts_once_two_have_pushed_the_same_text() {
    let (a, b) = (key("a", None), key("b", None));
    let mut r = registry();
    let source = "permit (principal, action, resource);";
    let first = push_policy(acting(&r, &a, Operators::Several), source, &Earlier::default()).unwrap();
    let Change::Asked(set) = first else { panic!("two are wanted") };
    let word = set.writes.iter().find_map(|w| match &w.row {
        Row::Setting(name, value) if name == "asked_policy" => Some(value.clone()),
        _ => None,
    });
    let asked: AskedBefore = serde_json::from_value(word.unwrap()).unwrap();
    let earlier = Earlier { asked: Some(asked), version: 1, key: Some(a.clone()) };
    let other = push_policy(acting(&r, &b, Operators::Several), "", &earlier).unwrap();
    assert!(matches!(other, Change::Asked(_)), "another text is another wish");
    let (version, set) = made(push_policy(acting(&r, &b, Operators::Several), source, &earlier));
    assert_eq!((version, data(&set).four_eyes), (1, true));
    r.policy = Some(Arc::new(PolicyRow { version: 4, source: source.to_owned(), at: now(), by: None }));
    let same = push_policy(acting(&r, &a, Operators::Several), source, &Earlier::default()).unwrap();
    assert!(matches!(same, Change::Same(4)));
    let (version, set) = made(push_policy(acting(&r, &a, Operators::Single), "", &Earlier::default()));
    assert_eq!((version, data(&set).four_eyes), (5, false));
}

#[test]
fn roles_and_budgets_are_set_whole_and_a_second_time_changes_nothing() {
    let (mut r, by) = (registry(), key("a", None));
    let role = serde_json::from_value(json!({ "may": ["agent:peer"], "teams": ["ops"] })).unwrap();
    let name = "writer".parse().unwrap();
    let (entry, set) = made(put_role(acting(&r, &by, Operators::Several), &name, &role, 0));
    assert_eq!(entry.clearance, r.default_label);
    assert!(set.writes.contains(&Write { expected: 7, row: Row::Registry }));
    r.roles.insert(name.clone(), entry);
    let again = put_role(acting(&r, &by, Operators::Several), &name, &role, 1);
    assert!(matches!(again, Ok(Change::Same(_))));
    let budget = Budget { limit_microusd: 5, period: Period::Day };
    let (_, set) = made(put_budget(acting(&r, &by, Operators::Several), &Scope::Org, budget, 0));
    assert!(set.writes.contains(&Write { expected: 0, row: Row::Budget(Scope::Org, budget) }));
    r.budgets.insert(Scope::Org, budget);
    let again = put_budget(acting(&r, &by, Operators::Several), &Scope::Org, budget, 1);
    assert!(matches!(again, Ok(Change::Same(_))));
}

#[test]
fn a_key_is_made_by_a_key_and_the_last_that_administers_stays() {
    let (r, by) = (registry(), key("a", None));
    let wanted = |scopes: &[&str]| -> WrittenKey {
        serde_json::from_value(json!({ "name": "n", "scopes": scopes })).unwrap()
    };
    let create = |w: &WrittenKey| {
        create_key(acting(&r, &by, Operators::Several), w, "k1".parse().unwrap(), "00".to_owned())
    };
    let (made_key, set) = made(create(&wanted(&["worker"])));
    assert_eq!(made_key.minted_by, Some(by.id.clone()));
    assert!(!format!("{:?}", set.drafts).contains("hash"));
    assert_eq!(create(&wanted(&["platform"])).map(|_| ()), Err(NotChanged::ScopeMissing));
    assert!(matches!(create(&wanted(&[])), Err(NotChanged::Invalid { pointer: "/scopes", .. })));
    let revoke = |id: &str, all: &[(ApiKey, u64)]| {
        revoke_key(acting(&r, &by, Operators::Several), &id.parse().unwrap(), all).map(|_| ())
    };
    let one = [(by.clone(), 1), (made_key.clone(), 1)];
    assert!(matches!(revoke("a", &one), Err(NotChanged::Invalid { .. })), "the last that administers");
    assert_eq!(revoke("k1", &one), Ok(()));
    assert_eq!(revoke("none", &one), Err(NotChanged::NotFound("key")));
    assert_eq!(revoke("a", &[(by.clone(), 1), (key("b", None), 1)]), Ok(()));
}

#[test]
fn a_key_gives_no_clearance_beyond_its_own() {
    let r = registry();
    let label = |text: &str| r.levels.parse(text).unwrap();
    let create = |by: &ApiKey, clearance: Option<&str>| {
        let wanted = json!({ "name": "n", "scopes": ["viewer"], "clearance": clearance });
        let wanted: WrittenKey = serde_json::from_value(wanted).unwrap();
        create_key(acting(&r, by, Operators::Several), &wanted, "k1".parse().unwrap(), "00".to_owned())
    };
    let given = |by: &ApiKey, clearance| made(create(by, clearance)).0.clearance;
    // A key of the first start holds the top: whatever level, whatever tag.
    let first = key("a", None);
    assert_eq!(given(&first, Some("restricted+eu")), label("restricted+eu"));
    let mut low = key("b", Some("a"));
    low.clearance = label("confidential+eu");
    for fine in ["confidential+eu", "internal", "public+eu"] {
        assert_eq!(given(&low, Some(fine)), label(fine));
    }
    for beyond in ["restricted", "confidential+us", "public+eu+us"] {
        let refused = create(&low, Some(beyond)).map(|_| ());
        assert_eq!(refused, Err(NotChanged::ClearanceTooLow(low.clearance.clone())), "{beyond}");
    }
    assert_eq!(given(&low, None), label("internal"));
    low.clearance = label("public");
    assert_eq!(given(&low, None), label("public"), "what isn't said isn't more than the maker's either");
}

#[test]
fn a_workflow_that_means_the_same_makes_no_version() {
    let (r, by) = (registry(), key("a", None));
    let read = |text: &str| Workflow::parse(text, &r.levels).unwrap();
    let text = "name: w\nsteps:\n  one: { to: role:writer }\n";
    let push = |flow: &Workflow, newest: Option<&crate::change::WorkflowRow>| {
        push_workflow(acting(&r, &by, Operators::Several), flow, newest)
    };
    let flow = read(text);
    let (row, _) = made(push(&flow, None));
    assert_eq!((row.version, row.source.as_str()), (1, text));
    let same = read(&format!("# a comment\n{text}"));
    assert!(matches!(push(&same, Some(&row)), Ok(Change::Same(_))));
    let (next, _) = made(push(&read(&text.replace("writer", "editor")), Some(&row)));
    assert_eq!(next.version, 2);
}
