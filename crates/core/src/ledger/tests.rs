//! The chain, its verification and its export as a whole: every kind of record, every kind of tampering,
//! and the Python verifier of the documentation beside ours.

mod chain;
mod export;
mod python;

use super::data::{
    Act, ApprovalData, ApprovalStatus, AttemptData, AttemptOutcome, ChangeData, Condition, CostData,
    CostEntry, EdgeData, Effects, Governs, Judged, NoteData, OperatorData, OutcomeData,
};
use super::export::{ListedKey, header, last_line, record_line};
use super::*;
use crate::gate::verdict::{Because, Decision, Verdict};
use crate::id::{ApprovalId, ChangeId, HopId, Ids, MessageId, OrgName, TaskId};
use crate::label::Levels;
use crate::payload::{Sealed, Sha256Digest};
use crate::time::{Span, Timestamp};

fn org() -> OrgName {
    "main".parse().unwrap()
}

fn ledger_key() -> LedgerKey {
    LedgerKey::of_seed(&[1; 32])
}

fn noon() -> Timestamp {
    Timestamp::of_micros(1_700_000_000_123_456)
}

/// Makes the drafts of a role that asks an agent whose third attempt succeeds, and of what may happen
/// around it.
struct Story {
    ids: Ids,
    at: Timestamp,
    change: ChangeId,
    drafts: Vec<Draft>,
}

impl Story {
    fn new(seed: u8) -> Self {
        let mut ids = Ids::new(noon(), [seed; 32]);
        let change = ChangeId::draw(&mut ids);
        Self { ids, at: noon(), change, drafts: Vec::new() }
    }

    fn next_change(&mut self) -> &mut Self {
        self.change = ChangeId::draw(&mut self.ids);
        self
    }

    fn tell(&mut self, draft: Draft) -> &mut Self {
        self.at = self.at + Span::of_micros(1);
        self.drafts.push(draft);
        self
    }

    fn edge(&mut self, key: &EdgeKey, from: &str, to: &str) -> &mut Self {
        let label = Levels::default().parse("internal+eu").unwrap();
        let verdict = Verdict {
            decision: Decision::Allow,
            roles: ["ops".to_owned()].into(),
            policies: vec![Because { id: "p1".into(), reason: Some("free text of a policy".into()) }],
            policy_version: "1.7".into(),
            at: self.at,
        };
        let data = EdgeData {
            dir: Dir::Forward,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            origin: Some(OutsideId::of("https://peer.example")),
            skill: None,
            registry_version: Some(3),
            payload: Some(SaltedDigest::from(&Sealed { bytes: b"{}".to_vec(), salt: [7; 32] })),
            bytes: 2,
            label: (&label).into(),
            tainted: false,
            price_microusd: 100,
            verdict: Judged::from(&verdict),
        };
        let draft = Draft::edge(self.at, self.change, Actor::system("gate"), key.clone(), data);
        self.tell(draft)
    }

    fn child(&mut self, key: &EdgeKey, data: Data) -> &mut Self {
        let draft = Draft::child(self.at, self.change, Actor::worker("w-1"), key.clone(), data);
        self.tell(draft)
    }

    fn apart(&mut self, data: Data) -> &mut Self {
        let draft = Draft::apart(self.at, self.change, Actor::key(&"k1".parse().unwrap()), data);
        self.tell(draft)
    }

    fn cost(&mut self, key: &EdgeKey, entry: CostEntry, amount_microusd: u64) -> &mut Self {
        let data = CostData {
            entry,
            amount_microusd,
            rule: None,
            estimate_microusd: None,
            reported_microusd: None,
            elapsed_ms: None,
        };
        self.child(key, Data::Cost(data))
    }

    fn outcome(&mut self, key: &EdgeKey) -> &mut Self {
        let data = OutcomeData {
            status: Code::of("completed"),
            reason: None,
            foreign_task_id: Some(OutsideId::of("théirs \"1\"")),
            payload: None,
            looks: 4,
            effects: Effects::Known,
        };
        self.child(key, Data::Outcome(data))
    }

    fn attempt(&mut self, key: &EdgeKey, n: u32, outcome: AttemptOutcome) -> &mut Self {
        let message_id = MessageId::draw(&mut self.ids);
        let data = AttemptData {
            n,
            message_id,
            outcome,
            protocol: Some(OutsideId::of("1.0")),
            binding: Some(OutsideId::of("JSONRPC")),
            origin: None,
            card_digest: Some(Sha256Digest::of(b"card")),
            wire: None,
            detail: Some(Code::of("connect_failed")),
        };
        self.child(key, Data::Attempt(data))
    }

    fn key(&mut self, hop: bool, turn: u32, dir: Dir) -> EdgeKey {
        let task = TaskId::draw(&mut self.ids);
        let hop = hop.then(|| HopId::draw(&mut self.ids));
        EdgeKey { task, step: "draft".parse().unwrap(), hop, turn, dir }
    }

    /// Role A → agent B (three attempts) → coordinator → role C, then one record of each other kind.
    fn whole() -> Self {
        let mut s = Self::new(1);
        let out = s.key(true, 1, Dir::A2aEgress);
        let back = EdgeKey { dir: Dir::A2aIngress, ..out.clone() };
        let work = EdgeKey { hop: None, dir: Dir::Forward, ..out.clone() };
        let reply = EdgeKey { turn: 2, ..work.clone() };
        let approval_id = ApprovalId::draw(&mut s.ids);
        s.edge(&work, "coordinator", "role:a").next_change();
        s.edge(&out, "role:a", "agent:b").cost(&out, CostEntry::Reserve, 100).next_change();
        s.child(
            &out,
            Data::Approval(ApprovalData {
                approval_id,
                status: ApprovalStatus::Approved,
                digest: Sha256Digest::of(b"x"),
                roles: vec![OutsideId::of("ops")],
                by: Some("k2".parse().unwrap()),
                reason: Some(SaltedDigest::of(&[1; 32], b"because")),
            }),
        );
        let Data::Edge(edge) = s.drafts[1].data.clone() else { panic!("an edge") };
        s.child(&out, Data::Verdict(edge.verdict)).next_change();
        s.attempt(&out, 1, AttemptOutcome::NotSent).next_change();
        s.attempt(&out, 2, AttemptOutcome::Refused).next_change();
        s.attempt(&out, 3, AttemptOutcome::Answered).next_change();
        s.edge(&back, "agent:b", "coordinator").outcome(&out);
        s.cost(&out, CostEntry::Settle, 120).cost(&out, CostEntry::Overrun, 20).next_change();
        s.edge(&reply, "coordinator", "role:c").outcome(&work).next_change();
        let note = NoteData { what: Code::of("callback"), why: Code::of("bad_token"), payload: None };
        s.child(&out, Data::Late(note.clone())).apart(Data::Refused(note));
        s.apart(Data::Change(ChangeData {
            what: Governs::Egress,
            name: OutsideId::of("main"),
            version: None,
            before: Some(Condition::Word(Code::of("off"))),
            after: Some(Condition::Digest(Sha256Digest::of(b"on"))),
            digest: None,
            reason: None,
            four_eyes: true,
        }));
        s.apart(Data::Operator(OperatorData { act: Act::Erase, target: OutsideId::of("t"), reason: None }));
        s
    }

    fn append(self) -> (Head, Vec<Appended>) {
        let mut head = Head::EMPTY;
        let all = append_all(&mut head, &org(), self.drafts, |_| None).unwrap();
        (head, all)
    }
}

/// An export as its lines, so that a test can tamper with each.
fn export_from(start: usize, all: &[Appended], key: &LedgerKey) -> Vec<Vec<u8>> {
    let head = |n: usize| match n {
        0 => Head::EMPTY,
        n => Head { size: n as u64, hash: all[n - 1].hash },
    };
    let note = key.sign(&Checkpoint::of(org(), head(all.len()), noon()));
    let mut lines = vec![header(&org(), &head(start))];
    lines.extend(all.iter().skip(start).map(|a| record_line(&a.bytes, &a.hash)));
    lines.push(last_line(&note, vec![ListedKey::of(&key.public(), &org(), Timestamp::EPOCH, None)]));
    lines
}

fn check(lines: &[Vec<u8>]) -> Verification {
    verify_export(lines.concat().as_slice(), &ledger_key().public(), None).unwrap()
}

/// Hashes the chain anew from record `from` on, as somebody with the database in hand would.
fn rehash(lines: &mut [Vec<u8>], from: usize) {
    let stated = |line: &[u8]| -> Hash {
        let hex64 = &line[line.len() - 3 - 64..line.len() - 3];
        hex::decode(hex64).unwrap().try_into().unwrap()
    };
    let last = lines.len() - 1;
    for i in from..last {
        let prev = if i == 1 { [0; 32] } else { stated(&lines[i - 1]) };
        let bytes = lines[i][10..lines[i].len() - 3 - 64 - 9].to_vec();
        lines[i] = record_line(&bytes, &chain::link_of(&prev, &bytes));
    }
}

/// One way to tamper with an export, and the record that must be named. Line 0 is the header, line `n`
/// record `n`.
struct Tampering {
    name: String,
    lines: Vec<Vec<u8>>,
    first_bad: u64,
}

fn replaced(line: &[u8], what: &str, with: &str) -> Vec<u8> {
    let text = String::from_utf8(line.to_vec()).unwrap();
    assert!(text.contains(what), "{what} in {text}");
    text.replacen(what, with, 1).into_bytes()
}

/// Every kind of tampering with record `k` of a good export.
fn tamperings(good: &[Vec<u8>], k: usize) -> Vec<Tampering> {
    let (n, seq) = (good.len() - 2, k as u64);
    let mut all = Vec::new();
    let mut push = |name: &str, first_bad: u64, f: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut lines = good.to_vec();
        f(&mut lines);
        all.push(Tampering { name: format!("{name} at {k}"), lines, first_bad });
    };
    push("change the time by a microsecond", seq, &|l| l[k] = replaced(&l[k], ".1234", ".1235"));
    push("change the kind", seq, &|l| l[k] = replaced(&l[k], "\"kind\":\"", "\"kind\":\"x"));
    push("change the org", seq, &|l| l[k] = replaced(&l[k], "\"org\":\"main\"", "\"org\":\"evil\""));
    push("add a member", seq, &|l| l[k] = replaced(&l[k], ",\"v\":1", ",\"v\":1,\"w\":1"));
    push("add white space", seq, &|l| l[k] = replaced(&l[k], "{\"actor\":", "{ \"actor\":"));
    push("repeat a member", seq, &|l| l[k] = replaced(&l[k], ",\"v\":1", ",\"v\":1,\"v\":1"));
    push("delete", if k == n { n as u64 } else { seq }, &|l| drop(l.remove(k)));
    push("insert a copy after", seq + 1, &|l| l.insert(k + 1, l[k].clone()));
    push("insert a blank line", seq, &|l| l.insert(k, b"\n".to_vec()));
    push("cut the tail before", seq, &|l| drop(l.drain(k..=n)));
    push("cut everything before", seq, &|l| l.truncate(k));
    push("carriage return", seq, &|l| {
        let at = l[k].len() - 1;
        l[k].insert(at, b'\r');
    });
    push("cut within the line", seq, &|l| {
        l.truncate(k + 1);
        l[k].truncate(50);
    });
    if k < n {
        push("swap with the next", seq, &|l| l.swap(k, k + 1));
    }
    push("another hash", seq, &|l| {
        let at = l[k].len() - 10;
        l[k][at] = if l[k][at] == b'0' { b'1' } else { b'0' };
    });
    push("change and hash anew to the end", n as u64, &|l| {
        l[k] = replaced(&l[k], ".1234", ".1235");
        rehash(l, k);
    });
    push("change and hash this one anew", if k == n { n as u64 } else { seq + 1 }, &|l| {
        let next = l[k + 1].clone();
        l[k] = replaced(&l[k], ".1234", ".1235");
        let last = l.pop().unwrap();
        rehash(l, k);
        l.push(last);
        if k < n {
            l[k + 1] = next;
        }
    });
    push("wrong number, hashed anew", seq, &|l| {
        l[k] = replaced(&l[k], "\"seq\":", "\"seq\":9");
        rehash(l, k);
    });
    push("white space, hashed anew", seq, &|l| {
        l[k] = replaced(&l[k], "{\"actor\":", "{ \"actor\":");
        rehash(l, k);
    });
    push("a member twice, hashed anew", seq, &|l| {
        l[k] = replaced(&l[k], ",\"v\":1", ",\"v\":1,\"v\":1");
        rehash(l, k);
    });
    push("a fraction, hashed anew", seq, &|l| {
        l[k] = replaced(&l[k], ",\"v\":1", ",\"v\":1,\"w\":0.5");
        rehash(l, k);
    });
    for (name, after) in [
        ("a record", good[k].clone()),
        ("the last line", good[n + 1].clone()),
        ("a blank line", b"\n".to_vec()),
    ] {
        push(&format!("{name} after the end"), n as u64 + 1, &|l| l.push(after.clone()));
    }
    push("another org, hashed anew", seq, &|l| {
        l[k] = replaced(&l[k], "\"org\":\"main\"", "\"org\":\"evil\"");
        rehash(l, k);
    });
    all
}
