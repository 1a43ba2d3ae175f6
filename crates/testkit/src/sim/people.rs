//! People: they start tasks, approve, deny, say it twice, never say anything, answer, cancel; and the courier who brings what was pushed.

use exeat_core::approval::Choice;
use exeat_core::id::Ids;
use exeat_core::ledger::data::ApprovalStatus;
use exeat_core::payload::Payload;
use exeat_core::ports::{Archive as _, Find, Page};
use exeat_core::task::advance::{NewTask, start};
use exeat_core::task::decision;
use exeat_core::task::desk::Hindsight;
use exeat_core::task::{HopOwner, HopState, Wants};
use exeat_core::time::Span;
use exeat_core::walk::confirm::{self, Accepted};
use exeat_core::walk::release::{self, Said};
use exeat_core::walk::{Committed, Stopped};
use serde_json::json;

use crate::sim::calls::{Cluster, note};
use crate::sim::faulty::Shared;
use crate::sim::setting::{self, label, name, org, person};
use crate::world::World;

/// A task of a workflow.
#[must_use]
pub fn new_task(flow: &str) -> NewTask {
    NewTask {
        org: org().clone(),
        workflow: Some(name(&format!("{flow}@1"))),
        flow: setting::flow(flow),
        requester: person("boss", &["ops", "legal"]).facts(),
        input: Payload::of_data(json!({ "n": 1 })),
        label: label("internal"),
        tainted: false,
        deadline: None,
        budget_microusd: None,
        continues: None,
    }
}

/// Starts a task of a workflow, until that is known to be durable.
pub async fn begin(shared: Shared, cluster: Cluster, flow: &'static str, budget: Option<u64>) {
    shared.tally.one("tasks");
    for _ in 0..20 {
        let s = shared.clone();
        let begun = cluster.call(move |r| async move {
            let mut hindsight = Hindsight::default();
            for _ in 0..8 {
                let registry = r.ports.store.registry(org()).await?;
                let now = r.ports.store.now().await?;
                let governor = r.ports.governors.of(&registry);
                let deadline =
                    s.chance.permille(150).then(|| Span::of_secs(s.chance.pick(&[5, 15, 40, 100])));
                let new = NewTask { deadline, budget_microusd: budget, ..new_task(flow) };
                let started = r
                    .ports
                    .decide(&registry, governor.as_ref(), now, &hindsight, |c, i: Ids| start(c, i, new));
                match r.ports.commit(started?.1).await? {
                    Committed::Durable(acts) => {
                        r.run_all(acts);
                        return Ok(());
                    }
                    Committed::Moved => {}
                    Committed::Learned(lesson) => hindsight.learn(lesson),
                }
            }
            Err(Stopped::Busy)
        });
        match begun.await {
            Some(Ok(())) => return,
            // A person can't know whether it was taken; without a key for idempotency this one gives up.
            None => return,
            Some(Err(e)) => note(&shared, &e),
        }
        shared.clock.sleep(Span::of_secs(1)).await;
    }
}

/// People who look after what needs them, until it is calm; then those who are left decide whatever is open.
pub async fn look_after(shared: Shared, cluster: Cluster) {
    let quiet = shared.chance.permille(300);
    loop {
        let pause = shared.chance.span(Span::of_secs(12));
        shared.clock.sleep(pause.max(Span::of_millis(100))).await;
        let calm = shared.weather.is_calm();
        match shared.chance.below(10) {
            0..=4 if !(quiet && calm) => approve(&shared, &cluster).await,
            5..=7 => answer(&shared, &cluster).await,
            8 if !calm && shared.chance.permille(80) => cancel(&shared, &cluster).await,
            9 if !calm && shared.chance.permille(200) => setting::change_something(&shared).await,
            _ => {}
        }
    }
}

async fn approve(shared: &Shared, cluster: &Cluster) {
    let page = Page { after: None, limit: 50 };
    let status = if shared.chance.permille(100) { None } else { Some(ApprovalStatus::Pending) };
    let Ok((open, _)) = shared.memory.approvals(org(), status, &page).await else { return };
    if open.is_empty() {
        return;
    }
    let approval = shared.chance.pick(&open);
    let who = shared.chance.pick(&[
        person("ann", &["ops"]),
        person("bob", &["legal"]),
        person("cy", &["legal", "ops"]),
        person("boss", &["ops"]),
    ]);
    let choice = if shared.chance.permille(850) { Choice::Approve } else { Choice::Deny };
    let said = Said { approval: approval.id, who, choice, seen: approval.digest, reason: Some("so".into()) };
    let times = if shared.chance.permille(150) { 2 } else { 1 };
    for _ in 0..times {
        let (s, said) = (shared.clone(), said.clone());
        let _: Option<()> = cluster
            .call(move |r| async move {
                match release::decide(&r.ports, org(), &said).await {
                    Ok(acts) => {
                        s.tally.one("decisions");
                        r.run_all(acts);
                    }
                    Err(e) => note(&s, &e),
                }
            })
            .await;
    }
}

async fn answer(shared: &Shared, cluster: &Cluster) {
    let open = shared.audit.of_tasks(|t| {
        let asking = t.hops.iter().filter(|h| matches!(h.owner, HopOwner::Step { .. })).filter_map(|h| {
            match &h.state {
                HopState::Asking(q) if q.wants == Wants::Input => Some((h.id, q.id)),
                _ => None,
            }
        });
        asking.collect()
    });
    if open.is_empty() {
        return;
    }
    let (hop, question) = shared.chance.pick(&open);
    let s = shared.clone();
    let _: Option<()> = cluster
        .call(move |r| async move {
            let walked = r.ports.walk(org(), Find::Hop(hop), |c, i, f, snap| {
                decision::answer(c, i, f, snap, question, &json!("yes"), &person("boss", &[]))
                    .map(|set| ((), set))
            });
            match walked.await {
                Ok(((), acts)) => {
                    s.tally.one("answers");
                    r.run_all(acts);
                }
                Err(e) => note(&s, &e),
            }
        })
        .await;
}

async fn cancel(shared: &Shared, cluster: &Cluster) {
    let open = shared.audit.of_tasks(|t| if t.status.is_ended() { Vec::new() } else { vec![t.id] });
    if open.is_empty() {
        return;
    }
    let task = shared.chance.pick(&open);
    let s = shared.clone();
    let _: Option<()> = cluster
        .call(move |r| async move {
            let walked = r.ports.walk(org(), Find::Task(task), |c, i, f, snap| {
                decision::cancel(c, i, f, snap, &name("boss"), Some("enough")).map(|set| ((), set))
            });
            match walked.await {
                Ok(((), acts)) => {
                    s.tally.one("cancel requests");
                    r.run_all(acts);
                }
                Err(e) => note(&s, &e),
            }
        })
        .await;
}

/// Brings pushed events to the door.
pub async fn carry(shared: Shared, cluster: Cluster, world: World) {
    loop {
        for mail in world.take_mail() {
            let (m, s) = (mail.clone(), shared.clone());
            let taken = cluster.call(move |r| async move {
                let door = r.ports.store.route(&m.callback).await.ok()?;
                let Some(door) = door else {
                    s.audit.broken("a door that was never opened is known to the world");
                    return Some(());
                };
                let (key, version) = &door.agent;
                let registry = r.ports.store.registry(setting::org()).await.ok()?;
                let trust = registry.agent_at(key, *version)?.posture.callback_trust;
                match confirm::accept(&r.ports, &door, trust, m.pushed.clone()).await {
                    Ok(Accepted::Stored(acts)) => {
                        s.tally.one("pushes");
                        if !s.memory.has_event(org(), door.route.hop, m.pushed.digest) {
                            s.audit.broken("an event is acknowledged and not stored");
                        }
                        r.run_all(acts);
                        Some(())
                    }
                    Ok(Accepted::Full) => {
                        s.tally.one("pushes held back");
                        None
                    }
                    Ok(Accepted::OtherTask) => {
                        if door.foreign_task.is_none() {
                            s.audit.broken("an event is turned away before its task is known");
                        }
                        s.tally.one("pushes turned away");
                        Some(())
                    }
                    Err(e) => {
                        note(&s, &e);
                        None
                    }
                }
            });
            if taken.await.flatten().is_none() && mail.again {
                world.post(crate::world::OnTheWay { at: mail.at + Span::of_secs(5), again: false, ..mail });
            }
        }
        shared.clock.sleep(Span::of_millis(700)).await;
    }
}

/// What a run's tasks are.
pub fn some_tasks(shared: &Shared) -> Vec<(&'static str, Option<u64>)> {
    let flows = setting::flow_names();
    let c = &shared.chance;
    (0..2 + c.below(4)).map(|_| (c.pick(&flows), c.permille(150).then(|| c.below(60)))).collect()
}
