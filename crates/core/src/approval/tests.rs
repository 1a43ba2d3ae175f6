use super::*;
use crate::gate::exeat::Interface;
use crate::id::{Ids, PayloadId};
use crate::label::Levels;
use crate::ledger::SaltedDigest;

fn label(text: &str) -> Label {
    Levels::default().parse(text).unwrap()
}

fn at(secs: i64) -> Timestamp {
    Timestamp::of_micros(secs * 1_000_000)
}

fn key(id: &str, roles: &[&str]) -> ApiKey {
    ApiKey {
        id: id.parse().unwrap(),
        org: "main".parse().unwrap(),
        name: id.to_owned(),
        hash: String::new(),
        scopes: [KeyScope::Approver].into(),
        approver_roles: roles.iter().map(|r| (*r).to_owned()).collect(),
        worker_roles: BTreeSet::new(),
        clearance: label("restricted+eu"),
        minted_by: None,
        created_at: Timestamp::EPOCH,
        expires_at: None,
        revoked_at: None,
    }
}

fn approval(roles: &[&str]) -> Approval {
    let mut ids = Ids::new(Timestamp::EPOCH, [5; 32]);
    let payload = Held {
        id: PayloadId::draw(&mut ids),
        digest: SaltedDigest::of(&[0; 32], b"x"),
        plain: Sha256Digest::of(b"x"),
        bytes: 1,
        label: label("confidential"),
        tainted: false,
        artifacts: Vec::new(),
    };
    Approval {
        id: ApprovalId::draw(&mut ids),
        org: "main".parse().unwrap(),
        status: ApprovalStatus::Pending,
        dir: Dir::A2aEgress,
        task: TaskId::draw(&mut ids),
        step: "hop".parse().unwrap(),
        hop: HopId::draw(&mut ids),
        turn: 1,
        requester: "asker".parse().unwrap(),
        to: "agent:alpha".into(),
        origin: None,
        skill: None,
        registry_version: Some(1),
        label: label("confidential"),
        tainted: false,
        payload,
        digest: Sha256Digest::of(b"what is asked"),
        bound: None,
        foreign: None,
        price_microusd: 0,
        because: Vec::new(),
        roles: roles.iter().map(|r| (*r).to_owned()).collect(),
        decisions: Vec::new(),
        created_at: at(0),
        expires_at: at(100),
        supersedes: None,
    }
}

fn yes(a: &Approval, who: &ApiKey) -> Result<Counted, NotDecided> {
    a.decide(who, Choice::Approve, a.digest, None, at(10))
}

#[test]
fn each_reason_not_to_take_a_decision_is_told_apart_and_changes_nothing() {
    let a = approval(&["ops"]);
    let ann = key("ann", &["ops"]);
    let with = |f: &dyn Fn(&mut ApiKey)| {
        let mut k = ann.clone();
        f(&mut k);
        k
    };
    let status = |s| Approval { status: s, ..a.clone() };
    let other = Sha256Digest::of(b"something else");
    let approve = Choice::Approve;
    let table: Vec<(NotDecided, Result<Counted, NotDecided>)> = vec![
        (NotDecided::ScopeMissing, yes(&a, &with(&|k| k.scopes = [KeyScope::Admin].into()))),
        (NotDecided::RoleMissing, yes(&a, &key("ann", &["legal"]))),
        (NotDecided::RoleMissing, yes(&a, &key("ann", &[]))),
        (NotDecided::OwnRequest, yes(&a, &key("asker", &["ops"]))),
        (NotDecided::ClearanceTooLow, yes(&a, &with(&|k| k.clearance = label("internal+eu")))),
        (NotDecided::DigestMismatch, a.decide(&ann, approve, other, None, at(10))),
        (NotDecided::Expired, a.decide(&ann, approve, a.digest, None, at(100))),
        (NotDecided::Expired, yes(&status(ApprovalStatus::Expired), &ann)),
        (NotDecided::AlreadyDecided, yes(&status(ApprovalStatus::Approved), &ann)),
        (NotDecided::AlreadyDecided, yes(&status(ApprovalStatus::Denied), &ann)),
        (NotDecided::AlreadyDecided, yes(&status(ApprovalStatus::Superseded), &ann)),
        (NotDecided::AlreadyDecided, yes(&status(ApprovalStatus::Canceled), &ann)),
        (NotDecided::ReasonMissing, a.decide(&ann, Choice::Deny, a.digest, None, at(10))),
        (NotDecided::ReasonMissing, a.decide(&ann, Choice::Deny, a.digest, Some("  "), at(10))),
    ];
    for (n, (expected, got)) in table.into_iter().enumerate() {
        assert_eq!(got, Err(expected), "line {n}");
    }
}

#[test]
fn one_holder_of_each_role_must_say_yes_and_the_last_one_releases() {
    let a = approval(&["legal", "ops"]);
    let Ok(Counted::Pending(half)) = yes(&a, &key("ann", &["ops"])) else { panic!("one of two") };
    assert_eq!(half.missing_roles(), ["legal".to_owned()].into());
    assert_eq!(half.status, ApprovalStatus::Pending);
    // Another holder of the same role adds nothing.
    assert_eq!(yes(&half, &key("amy", &["ops"])), Err(NotDecided::RoleMissing));
    let Ok(Counted::Approved(whole)) = yes(&half, &key("bob", &["legal", "hr"])) else { panic!("both") };
    assert_eq!(whole.status, ApprovalStatus::Approved);
    assert_eq!(whole.granted_roles(), a.roles);
}

#[test]
fn one_person_may_stand_for_every_role_they_hold() {
    let a = approval(&["legal", "ops"]);
    assert!(matches!(yes(&a, &key("cy", &["hr", "legal", "ops"])), Ok(Counted::Approved(_))));
}

#[test]
fn one_no_is_enough_and_grants_nothing() {
    let a = approval(&["legal", "ops"]);
    let no = a.decide(&key("bob", &["legal"]), Choice::Deny, a.digest, Some(" too much "), at(10));
    let Ok(Counted::Denied(denied)) = no else { panic!("a no") };
    assert_eq!(denied.status, ApprovalStatus::Denied);
    assert_eq!(denied.decisions.first().and_then(|d| d.reason.as_deref()), Some("too much"));
    assert!(denied.granted_roles().is_empty());
    assert_eq!(yes(&denied, &key("ann", &["ops"])), Err(NotDecided::AlreadyDecided));
}

#[test]
fn the_same_decision_by_the_same_key_again_changes_nothing_and_another_is_refused() {
    let (a, ann) = (approval(&["ops"]), key("ann", &["ops"]));
    let Ok(Counted::Approved(done)) = yes(&a, &ann) else { panic!("a yes") };
    assert_eq!(yes(&done, &ann), Ok(Counted::Again));
    // Also after it would have expired: it was decided in time.
    assert_eq!(done.decide(&ann, Choice::Approve, a.digest, None, at(999)), Ok(Counted::Again));
    let other = done.decide(&ann, Choice::Deny, a.digest, Some("no"), at(11));
    assert_eq!(other, Err(NotDecided::AlreadyDecided));
    let unseen = done.decide(&ann, Choice::Approve, Sha256Digest::of(b"else"), None, at(11));
    assert_eq!(unseen, Err(NotDecided::AlreadyDecided));
}

#[test]
fn a_reason_is_bounded() {
    let a = approval(&["ops"]);
    let long = "é".repeat(5_000);
    let no = a.decide(&key("ann", &["ops"]), Choice::Deny, a.digest, Some(&long), at(10));
    let Ok(Counted::Denied(denied)) = no else { panic!("a no") };
    assert_eq!(
        denied.decisions.first().and_then(|d| d.reason.as_ref()).map(|r| r.chars().count()),
        Some(2_000)
    );
}

#[test]
fn every_member_of_the_subject_moves_the_digest() {
    let mut ids = Ids::new(Timestamp::EPOCH, [6; 32]);
    let (hop, other_hop) = (HopId::draw(&mut ids), HopId::draw(&mut ids));
    let (low, high) = (label("internal"), label("internal+eu"));
    let interface = |f: &dyn Fn(&mut Interface)| {
        let mut i = Interface {
            url: "https://a.example/x".into(),
            binding: "JSONRPC".into(),
            version: "1.0".into(),
            tenant: None,
        };
        f(&mut i);
        Bound::Interface(i)
    };
    let bounds = [
        interface(&|_| ()),
        interface(&|i| i.url.push('y')),
        interface(&|i| i.binding = "HTTP+JSON".into()),
        interface(&|i| i.version = "0.3".into()),
        interface(&|i| i.tenant = Some("t".into())),
        Bound::Origin("https://a.example".into()),
        Bound::Origin("https://b.example".into()),
    ];
    let foreign = |task: &str, context: Option<&str>| ForeignIds {
        task: task.into(),
        context: context.map(Into::into),
    };
    let ids = [foreign("t", None), foreign("u", None), foreign("t", Some("c"))];
    let base = Subject {
        hop,
        turn: 1,
        dir: Dir::A2aEgress,
        to: "agent:alpha",
        registry_version: Some(1),
        bound: None,
        skill: None,
        label: &low,
        foreign: None,
        payload: Sha256Digest::of(b"x"),
    };
    let mut all = vec![
        base.clone(),
        Subject { hop: other_hop, ..base.clone() },
        Subject { turn: 2, ..base.clone() },
        Subject { dir: Dir::Forward, ..base.clone() },
        Subject { to: "agent:beta", ..base.clone() },
        Subject { registry_version: Some(2), ..base.clone() },
        Subject { registry_version: None, ..base.clone() },
        Subject { skill: Some("s"), ..base.clone() },
        Subject { label: &high, ..base.clone() },
        Subject { payload: Sha256Digest::of(b"y"), ..base.clone() },
    ];
    all.extend(bounds.iter().map(|b| Subject { bound: Some(b), ..base.clone() }));
    all.extend(ids.iter().map(|f| Subject { foreign: Some(f), ..base.clone() }));
    let digests: BTreeSet<_> = all.iter().map(Subject::digest).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(base.digest(), base.clone().digest());
}
