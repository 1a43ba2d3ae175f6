//! Workers: they take work, do it, delegate, fail, forget, repeat themselves and come too late.

use exeat_core::endpoint::Endpoint;
use exeat_core::id::{LeaseId, RoleName};
use exeat_core::ports::{Find, Store as _};
use exeat_core::principal::ApiKey;
use exeat_core::task::decision;
use exeat_core::task::desk::Refusal;
use exeat_core::task::query::{Suspend, What, Wish};
use exeat_core::task::worker::{self, Call, Retry};
use exeat_core::time::Span;
use exeat_core::walk::Stopped;
use serde_json::{Value, json};

use crate::sim::calls::{Cluster, note};
use crate::sim::faulty::Shared;
use crate::sim::setting::{name, org, person};

/// A worker of one role.
#[derive(Clone)]
pub struct Worker {
    /// Its role.
    pub role: RoleName,
    /// Its name.
    pub name: String,
    /// All there is.
    pub shared: Shared,
    /// Whom it calls.
    pub cluster: Cluster,
}

/// How a call came out, as the worker sees it.
enum Answer {
    Said(Value),
    Refused(Refusal),
    Nothing,
}

impl Worker {
    /// Works for good.
    pub async fn work(self) {
        loop {
            let pause = self.shared.chance.span(Span::of_secs(3));
            self.shared.clock.sleep(pause.max(Span::of_millis(50))).await;
            // As the bell of a bus would tell it: nobody is asked while there is nothing.
            let to = [Endpoint::Role(self.role.clone())];
            if self.shared.memory.ready_envelopes(org(), &to, 1).await.is_ok_and(|r| r.is_empty()) {
                continue;
            }
            if let Some(lease) = self.lease().await {
                self.turn(&lease).await;
            }
        }
    }

    /// The key that it calls with.
    fn key(&self) -> ApiKey {
        person(&self.name, &[])
    }

    async fn lease(&self) -> Option<Value> {
        let (role, me, shared, key) = (self.role.clone(), self.name.clone(), self.shared.clone(), self.key());
        self.cluster
            .call(move |r| async move {
                let to = [Endpoint::Role(role.clone())];
                let ready = r.ports.store.ready_envelopes(org(), &to, 4).await.unwrap_or_default();
                if ready.is_empty() {
                    return None;
                }
                let id = shared.chance.pick(&ready);
                let walked = r.ports.walk(org(), Find::Envelope(id), |c, i, f, s| {
                    worker::lease(c, i, f, s, id, &key, (&me, &role))
                });
                match walked.await {
                    Ok((lease, acts)) => {
                        r.run_all(acts);
                        shared.tally.one("leases");
                        Some(lease)
                    }
                    Err(e) => {
                        note(&shared, &e);
                        None
                    }
                }
            })
            .await
            .flatten()
    }

    async fn turn(&self, lease: &Value) {
        let (c, t) = (&self.shared.chance, &self.shared.tally);
        let id: LeaseId = name(lease["lease_id"].as_str().unwrap_or_default());
        let calm = self.shared.weather.is_calm();
        if lease["kind"] == "REPLY" {
            t.one("replies");
        }
        let long = !calm && c.permille(80);
        let work = c.span(if long { Span::of_secs(25) } else { Span::of_secs(4) });
        if !calm && c.permille(60) {
            return t.one("workers that died");
        }
        if !calm && c.permille(150) {
            let _ = self.extend(id).await;
        }
        self.shared.clock.sleep(work).await;
        let (call, body) = self.decide(lease);
        let mut first = None;
        for _ in 0..4 {
            match self.settle(id, call.clone(), body.clone()).await {
                // Nobody answered: the same call again.
                Answer::Nothing => self.shared.clock.sleep(Span::of_millis(300)).await,
                Answer::Said(v) => {
                    first = Some(v);
                    break;
                }
                Answer::Refused(Refusal::DestinationNotAllowed(_)) => {
                    t.one("destinations refused");
                    let walked = self.refused(id).await;
                    if walked.is_none() {
                        return;
                    }
                    let (done, body) = completion(json!({ "instead": true }));
                    let _ = self.settle(id, done, body).await;
                    return;
                }
                Answer::Refused(Refusal::LeaseLost) => return t.one("leases lost"),
                Answer::Refused(_) => {
                    let (done, body) = completion(json!({ "after": "a refusal" }));
                    let _ = self.settle(id, done, body).await;
                    return;
                }
            }
        }
        let Some(first) = first else { return };
        if !calm && c.permille(200) && !matches!(call, Call::Fail { retry: Retry::Again, .. }) {
            t.one("calls made twice");
            match self.settle(id, call, body).await {
                Answer::Said(v) if v != first => {
                    self.shared.audit.broken(format!("the same call, two answers: {first} and {v}"));
                }
                Answer::Refused(e) => {
                    self.shared.audit.broken(format!("the same call again is refused: {e}"))
                }
                _ => {}
            }
            let (other, body) = completion(json!({ "other": c.number() }));
            if let Answer::Said(v) = self.settle(id, other, body).await {
                self.shared.audit.broken(format!("another call on a settled lease is taken: {v}"));
            }
        }
    }

    fn decide(&self, lease: &Value) -> (Call, Value) {
        let (c, calm) = (&self.shared.chance, self.shared.weather.is_calm());
        let replies = lease["replies"].as_array().cloned().unwrap_or_default();
        let asked: Vec<&Value> = replies.iter().map(|r| &r["question"]).filter(|q| !q.is_null()).collect();
        let hops_left = lease["hops_left"].as_u64().unwrap_or(0);
        let may: Vec<String> = lease["may"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|m| m.as_str().map(str::to_owned))
            .collect();
        if !calm && c.permille(60) {
            let retry = c.pick(&[Retry::Again, Retry::Again, Retry::Never]);
            return (Call::Fail { reason: "no".into(), retry }, json!({ "reason": "no", "n": c.number() }));
        }
        let mut wishes = Vec::new();
        if !calm {
            for q in asked {
                if c.permille(700) {
                    let question = name(q["question_id"].as_str().unwrap_or_default());
                    let what = What::Answer { question, input: json!("because") };
                    wishes.push(Wish { id: format!("a{}", wishes.len()), what });
                }
            }
            let first = replies.is_empty();
            if !may.is_empty() && hops_left > 0 && c.permille(if first { 450 } else { 100 }) {
                for _ in 0..=c.below(3) {
                    let to = if c.permille(20) { "agent:gamma".to_owned() } else { c.pick(&may) };
                    let what = What::Delegate {
                        to: name(&to),
                        input: json!({ "please": c.below(100) }),
                        skill: None,
                        label: c.permille(100).then(|| "confidential".to_owned()),
                        deadline: c.permille(200).then(|| c.span(Span::of_secs(60))),
                    };
                    wishes.push(Wish { id: format!("d{}", wishes.len()), what });
                }
            }
        }
        if wishes.is_empty() {
            let cost = c.permille(200).then(|| c.below(9));
            let output = json!({ "done": c.below(1_000), "ok": c.permille(500) });
            let body = json!({ "output": output, "cost": cost });
            return (Call::Complete { output, cost_microusd: cost }, body);
        }
        self.shared.tally.one("suspensions");
        let continuation = json!({ "at": c.below(1_000) });
        let body = json!({ "suspend": continuation, "n": wishes.len() });
        (Call::Suspend(Suspend { continuation, delegations: wishes }), body)
    }

    async fn settle(&self, id: LeaseId, call: Call, body: Value) -> Answer {
        let (shared, key) = (self.shared.clone(), self.key());
        let answer = self.cluster.call(move |r| async move {
            let walked = r.ports.walk(org(), Find::Lease(id), |c, i, f, s| {
                worker::settle(c, i, f, s, (id, &key), call.clone(), &body)
            });
            match walked.await {
                Ok((v, acts)) => {
                    r.run_all(acts);
                    Answer::Said(v)
                }
                Err(Stopped::Refused(Refusal::Answered(v))) => Answer::Said(v),
                Err(Stopped::Refused(e @ (Refusal::Wrong(_) | Refusal::NotFound(_)))) => {
                    note(&shared, &Stopped::Refused(e));
                    Answer::Nothing
                }
                Err(Stopped::Refused(e)) => Answer::Refused(e),
                Err(e) => {
                    note(&shared, &e);
                    Answer::Nothing
                }
            }
        });
        answer.await.unwrap_or(Answer::Nothing)
    }

    async fn extend(&self, id: LeaseId) -> Option<()> {
        let (shared, key) = (self.shared.clone(), self.key());
        let extended = self.cluster.call(move |r| async move {
            let by = Span::of_secs(20);
            let walked =
                r.ports.walk(org(), Find::Lease(id), |c, i, f, s| worker::extend(c, i, f, s, (id, &key), by));
            match walked.await {
                Ok(_) => shared.tally.one("leases extended"),
                Err(e) => note(&shared, &e),
            }
        });
        extended.await
    }

    async fn refused(&self, id: LeaseId) -> Option<()> {
        let shared = self.shared.clone();
        let refused = self.cluster.call(move |r| async move {
            let walked = r.ports.walk(org(), Find::Lease(id), |c, i, f, s| {
                decision::refuse_destination(c, i, f, s, id).map(|set| ((), set))
            });
            if let Err(e) = walked.await {
                note(&shared, &e);
            }
        });
        refused.await
    }
}

fn completion(output: Value) -> (Call, Value) {
    (Call::Complete { output: output.clone(), cost_microusd: None }, output)
}

/// The workers of a run.
#[must_use]
pub fn all(shared: &Shared, cluster: &Cluster) -> Vec<Worker> {
    ["writer", "writer", "publisher", "helper"]
        .iter()
        .enumerate()
        .map(|(n, role)| Worker {
            role: name(role),
            name: format!("{role}-{n}"),
            shared: shared.clone(),
            cluster: cluster.clone(),
        })
        .collect()
}
