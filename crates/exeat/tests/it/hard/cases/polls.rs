//! Work that is looked after because nobody pushes.

use std::time::Duration;

use serde_json::{Value, json};

use super::peer::{Agent, shown};
use super::script::{Call, GET, Generation, SEND, Says, Scripted, card};
use super::{NO_LOOKS, came_back_once, hop, taken};
use crate::hard::rig::{Gateway, clock, records, until};

/// A task of the 1.0 generation as a look brings it.
fn looked(state: &str, text: &str) -> Says {
    Says::Result(shown("t1", state, text))
}

/// The same as the answer to a message, in the caller's conversation.
fn accepted(call: &Call, task: &str) -> Says {
    let mut made = shown(task, "WORKING", "");
    made["contextId"] = call.params["message"]["contextId"].clone();
    Says::Result(json!({ "task": made }))
}

/// An agent that takes a message, and then shows what the script says at each look.
fn watched(pushes: bool, script: impl Fn(&Call) -> Says + Send + Sync + 'static) -> Scripted {
    Scripted::start(Generation::V1, pushes, move |call| {
        if call.is(SEND) { accepted(call, "t1") } else { in_place(call, script(call)) }
    })
}

/// The task that was asked for, in whatever conversation it is.
fn in_place(call: &Call, mut said: Says) -> Says {
    if let Says::Result(task) = &mut said {
        task["id"] = call.params["id"].clone();
        if let Some(task) = task.as_object_mut() {
            task.remove("contextId");
        }
    }
    said
}

fn begin(gateway: &Gateway) -> String {
    gateway.begin(&json!({"to": "agent:auditor", "input": "hello"}))
}

#[test]
fn o_poll_01_every_state_that_isnt_progress_counts_at_the_first_look() {
    let patient = &[("EXEAT_HOP_DEADLINE", "1h")][..];
    let with_message = |state: &'static str| {
        move |_: &Call| {
            let mut task = shown("t1", state, "");
            task["artifacts"] = json!([]);
            task["status"]["message"] =
                json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "why" }] });
            Says::Result(task)
        }
    };
    let rejecting = watched(false, with_message("REJECTED"));
    let gateway = Gateway::with_agent(patient, "auditor", &rejecting.url, &[]);
    let ended = gateway.ended(&begin(&gateway));
    assert_eq!(
        (&ended["status"], &ended["reason"]["code"]),
        (&json!("rejected"), &json!("foreign_rejected"))
    );
    assert!(ended["steps"][0]["hops"][0].to_string().contains("why"), "{ended:#}");
    assert_eq!(rejecting.looks(), 1);

    let asking = watched(false, with_message("INPUT_REQUIRED"));
    let gateway = Gateway::with_agent(&[("EXEAT_HOP_POLL_MAX", "1h")], "auditor", &asking.url, &[]);
    let task = begin(&gateway);
    let asked = until("a question", Duration::from_secs(30), || {
        let task = gateway.task(&task);
        (task["status"] == "awaiting_input").then_some(task)
    });
    assert_eq!(asked["steps"][0]["hops"][0]["question"]["prompt"]["text"], "why");
    assert_eq!(asked["waiting"][0]["for"], "input");
    // Looks go on at the slow pace alone.
    until("a look after the question", Duration::from_secs(60), || (asking.looks() >= 3).then_some(()));
    let came: Vec<_> = asking.of(GET).iter().map(|c| c.came).collect();
    assert!(came[2] - came[1] > Duration::from_millis(250), "{came:?}");

    let locked = watched(false, with_message("AUTH_REQUIRED"));
    let gateway = Gateway::with_agent(&[], "auditor", &locked.url, &[]);
    let task = begin(&gateway);
    let waits = until("a wait for a sign-in", Duration::from_secs(30), || {
        let task = gateway.task(&task);
        (task["waiting"][0]["for"] == "auth").then_some(task)
    });
    assert_eq!(waits["status"], "awaiting_input");
    let before = locked.looks();
    until("looks go on", Duration::from_secs(30), || (locked.looks() > before).then_some(()));
}

#[test]
fn o_poll_02_history_is_asked_for_in_bounds_and_what_comes_unasked_is_passed_over() {
    let agent = watched(false, |_| {
        let mut task = shown("t1", "COMPLETED", "the result");
        let message =
            json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x".repeat(50_000) }] });
        task["history"] = json!(vec![message; 100]);
        Says::Result(task)
    });
    let gateway = Gateway::with_agent(&[], "auditor", &agent.url, &[]);
    let task = begin(&gateway);
    came_back_once(&gateway, &task, "the result");
    // A question or a result may stand in the newest messages alone, so that some are asked for; never all of them.
    assert_eq!(agent.of(GET)[0].params["historyLength"], 20);
    assert!(!gateway.task(&task).to_string().contains("xxx"));
    // A listing needs none: zero is really said.
    let lost = Scripted::start(Generation::V1, false, |call| match call.method.as_str() {
        "SendMessage" => Says::HangsUp,
        _ => Says::Result(json!({ "tasks": [] })),
    });
    let gateway = Gateway::with_agent(&[], "auditor", &lost.url, &[]);
    gateway.ended(&begin(&gateway));
    let listings = lost.of(["ListTasks", ""]);
    assert!(!listings.is_empty());
    assert!(listings.iter().all(|l| l.params["historyLength"] == 0), "{listings:?}");
}

#[test]
fn o_poll_04_an_agent_that_promised_to_push_and_never_does_is_looked_at_in_growing_pauses() {
    let agent =
        watched(true, |call| if call.nth < 2 { looked("WORKING", "") } else { looked("COMPLETED", "third") });
    let gateway = Gateway::with_agent(&[("EXEAT_HOP_POLL_MAX", "5s")], "auditor", &agent.url, &[]);
    came_back_once(&gateway, &begin(&gateway), "third");
    let came: Vec<_> = agent.of(GET).iter().map(|c| c.came).collect();
    assert_eq!(came.len(), 3);
    // Each pause is twice the last, shortened by a quarter at most.
    assert!(came[1] - came[0] >= Duration::from_millis(300), "{came:?}");
    assert!(came[2] - came[1] >= Duration::from_millis(600), "{came:?}");
    // Another errand runs its course; this one isn't asked about again.
    let other = watched(false, |_| looked("COMPLETED", "other"));
    gateway.agent("other", &other.url, &[]);
    gateway.ended(&gateway.begin(&json!({"to": "agent:other", "input": "hello"})));
    assert_eq!(agent.looks(), 3);
}

#[test]
fn o_poll_05_a_task_that_its_agent_forgot_is_lost_in_the_end_and_one_that_comes_back_is_not() {
    let flaky =
        watched(false, |call| if call.nth < 2 { Says::Error(-32001) } else { looked("COMPLETED", "back") });
    let gateway = Gateway::with_agent(&[], "auditor", &flaky.url, &[]);
    came_back_once(&gateway, &begin(&gateway), "back");
    let forgetful = watched(false, |_| Says::Error(-32001));
    gateway.agent("forgetful", &forgetful.url, &[]);
    let task = gateway.begin(&json!({"to": "agent:forgetful", "input": "hello"}));
    let ended = gateway.ended(&task);
    assert_eq!((&ended["status"], &ended["reason"]["code"]), (&json!("failed"), &json!("foreign_task_lost")));
    let letters = gateway.get("/dead-letters");
    assert_eq!(letters["items"][0]["kind"], "lost", "{letters}");
}

#[test]
fn o_poll_06_whichever_of_a_deadline_and_a_result_comes_first_ends_the_hop_alone() {
    const LANES: usize = 40;
    let agent = Agent::start();
    let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &["--price", "100"]);
    let lane = |n: usize| -> Vec<String> { (0..5).map(|run| race(&gateway, &agent, n * 5 + run)).collect() };
    let tasks: Vec<String> = std::thread::scope(|s| {
        let lanes: Vec<_> = (0..LANES)
            .map(|n| {
                s.spawn({
                    let lane = &lane;
                    move || lane(n)
                })
            })
            .collect();
        lanes.into_iter().flat_map(|l| l.join().unwrap()).collect()
    });
    let ended: Vec<Value> = tasks.iter().map(|t| gateway.ended(t)).collect();
    let mut in_time = 0;
    let all = records(&gateway.export().0);
    for (task, ended) in tasks.iter().zip(&ended) {
        let of_task =
            |kind: &'static str| all.iter().filter(move |r| r["task"] == *task && r["kind"] == kind);
        let came_in = of_task("edge").filter(|r| r["data"]["dir"] == "a2a_ingress").count();
        let hop = hop(&gateway, task);
        let told = (ended["status"].as_str().unwrap(), hop["state"].as_str().unwrap(), came_in);
        assert!(matches!(told, ("completed", "completed", 1) | ("timed_out", "timed_out", 0)), "{told:?}");
        assert_eq!(of_task("outcome").count(), 1, "{ended:#}");
        assert_eq!(of_task("cost").filter(|r| r["data"]["entry"] == "settle").count(), 1, "{ended:#}");
        assert_eq!((&ended["cost_microusd"], &ended["reserved_microusd"]), (&json!(100), &json!(0)));
        if told.0 == "completed" {
            in_time += 1;
        } else {
            until("what came too late is on record", Duration::from_secs(30), || {
                let late = gateway.all(&format!("/ledger?kind=late&task={task}"));
                (late.len() == 1).then_some(())
            });
            // What came is kept, for people to take in.
            let letters = gateway.all("/dead-letters");
            let adoptable = |l: &&Value| {
                l["task_id"] == **task && l["actions"].as_array().unwrap().contains(&json!("adopt"))
            };
            assert_eq!(letters.iter().filter(adoptable).count(), 1, "{task}: {letters:#?}");
        }
    }
    println!("{in_time} of {} ended in time", tasks.len());
    gateway.is_well();
}

#[test]
fn a_result_that_comes_after_the_deadline_is_kept_and_a_person_can_take_it_in() {
    let agent = Agent::start();
    let gateway = Gateway::with_agent(NO_LOOKS, "auditor", &agent.url, &[]);
    let task = gateway.begin(&json!({"to": "agent:auditor", "input": "hello", "deadline": "1s"}));
    assert_eq!(gateway.ended(&task)["status"], "timed_out");
    let t = agent.task(1);
    agent.shows(&t, "COMPLETED", "late but good");
    taken(&agent.pushes(&t, "COMPLETED", "late but good"));
    let letter = until("a letter that keeps it", Duration::from_secs(30), || {
        gateway.all("/dead-letters").into_iter().find(|l| l["kind"] == "late")
    });
    let path = format!("/dead-letters/{}/retry", letter["id"].as_str().unwrap());
    let adopted = gateway.post(&path, &json!({"mode": "adopt"})).good();
    let ended = gateway.ended(adopted["task_id"].as_str().unwrap());
    assert_eq!((&ended["status"], &ended["output"]["text"]), (&json!("completed"), &json!("late but good")));
    assert_eq!(gateway.task(&task)["status"], "timed_out", "what has ended stays so");
}

/// Pushes the end of a task as near to its deadline as a thread can come, up to 5 ms before or after.
fn race(gateway: &Gateway, agent: &Agent, n: usize) -> String {
    let began = clock();
    let task = gateway.begin(&json!({"to": "agent:auditor", "input": "hello", "deadline": "3s"}));
    let t = until("a hop with its foreign task", Duration::from_secs(3), || {
        hop(gateway, &task)["foreign_task_id"].as_str().map(str::to_owned)
    });
    let at = began + Duration::from_millis(2_995 + u64::try_from(n % 11).unwrap());
    while let Some(left) = at.checked_duration_since(clock()).filter(|l| !l.is_zero()) {
        std::thread::park_timeout(left);
    }
    // An agent may push before it stores.
    if n.is_multiple_of(2) {
        agent.shows(&t, "COMPLETED", "just so");
    }
    taken(&agent.pushes(&t, "COMPLETED", "just so"));
    task
}

#[test]
fn o_poll_08_an_agent_with_no_interface_that_we_speak_is_sent_nothing() {
    for version in ["1.0", "0.3"] {
        let rest = move |url: &str| {
            let mut shown = card(url, Generation::V1, false);
            let interface = json!({ "url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": version });
            shown["supportedInterfaces"] = json!([interface]);
            shown
        };
        let agent = Scripted::with_card(rest, |_| Says::Status(404));
        let gateway = Gateway::with_agent(&[], "auditor", &agent.url, &[]);
        let ended = gateway.ended(&begin(&gateway));
        assert_eq!(ended["reason"]["code"], "no_common_interface", "{ended:#}");
        assert_eq!(agent.calls().len(), 0);
    }
}
