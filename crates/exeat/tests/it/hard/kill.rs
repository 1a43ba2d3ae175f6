//! `kill -9`, again and again, while work goes on: nothing is lost, and nothing is done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::Request;
use super::rig::{Gateway, Process, Stub, clock, records, until};

const KILLS: u32 = 52;
/// Workflows asked for before each kill.
const TASKS: u32 = 4;
const PRICE: u64 = 1_000;

/// Where a server is while it works, and where it hurts: `{}` is the task's number.
const ERRANDS: [&str; 10] = [
    "work {}",
    "!later 300ms\nwork {}",
    "!later 1s; push dup 3\nwork {}",
    "!later 2s; push none\nwork {}",
    "!push early\nwork {}",
    "!drop 1\nwork {}",
    "!later 500ms; push reverse\nwork {}",
    "!status 503 1\nwork {}",
    "!message\nwork {}",
    "!block 400ms; later 800ms\nwork {}",
];

const FLOW: &str = r#"
name: NAME
steps:
  before: { to: role:first, input: "${{ input.text }}" }
  there:
    to: agent:AGENT
    needs: [before]
    input: "${{ steps.before.output.text }}"
  after: { to: role:last, needs: [there], input: "${{ steps.there.output.text }}" }
output: "${{ steps.after.output.text }}"
"#;

/// SplitMix64: a schedule that a seed brings back.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let (start, pause) = (clock(), Duration::from_millis(from_ms + self.roll(to_ms - from_ms)));
        while start.elapsed() < pause {
            std::thread::park_timeout(pause.saturating_sub(start.elapsed()));
        }
    }
}

/// A client that asks with the same Idempotency-Key until it has an answer, and then once more.
fn insist(request: Request, done: mpsc::Sender<String>) {
    let answer = || {
        until("an answer to a start", Duration::from_secs(90), || {
            request.send().ok().filter(|a| !matches!(a.status, 409 | 500..))
        })
    };
    let first = answer();
    let again = answer();
    let id = first.good()["task_id"].as_str().unwrap().to_owned();
    assert_eq!(first.status, 201);
    assert_eq!(again.good()["task_id"], json!(id), "the same key, the same task");
    assert_eq!(again.header("idempotency-replayed"), "true");
    done.send(id).unwrap();
}

struct Scene {
    gateway: Gateway,
    stubs: [Stub; 2],
    workers: [Process; 2],
}

fn scene() -> Scene {
    let bounds =
        [("EXEAT_WORK_LEASE", "3s"), ("EXEAT_WORK_MAX_DELIVERIES", "100"), ("EXEAT_HOP_SEND_ATTEMPTS", "50")];
    let gateway = Gateway::started(&bounds);
    let stubs = [Stub::start(&[]), Stub::start(&["--protocol", "0.3"])];
    let price = PRICE.to_string();
    for (key, stub) in ["new", "old"].into_iter().zip(&stubs) {
        gateway.agent(key, &stub.url, &["--price", &price]);
        let flow = FLOW.replace("AGENT", key).replace("NAME", &format!("by-{key}"));
        gateway.does(&["workflow", "push", &gateway.file(&format!("{key}.yaml"), &flow)]);
    }
    gateway.does(&["egress", "on", "--reason", "a test"]);
    let key = gateway.worker_key(&["first", "last"]);
    let work = |role, run: &[&str]| gateway.worker(&key, role, &["--text", "--concurrency", "2"], run);
    let workers = [work("first", &["cat"]), work("last", &["tr", "a-z", "A-Z"])];
    Scene { gateway, stubs, workers }
}

/// A client that was asked to start a task, and where it tells its id.
type Asked = (std::thread::JoinHandle<()>, mpsc::Receiver<String>);

/// Asks for the next task, as a client of its own.
fn ask(scene: &Scene, dice: &mut Dice, n: usize, errand: &str) -> Asked {
    let agent = ["new", "old"][usize::from(dice.roll(3) == 0)];
    let body = json!({"workflow": format!("by-{agent}"), "input": errand.replace("{}", &n.to_string())});
    let request = scene.gateway.request("POST", "/api/v1/tasks").key(&scene.gateway.admin()).json(&body);
    let request = request.header("idempotency-key", &format!("task-{n}"));
    let (done, id) = mpsc::channel();
    (std::thread::spawn(move || insist(request, done)), id)
}

/// Asks for a task whose agent holds its answer back, and waits until that send is out.
fn ask_until_sending(scene: &Scene, dice: &mut Dice, n: usize) -> Asked {
    let (client, told) = ask(scene, dice, n, "!block 5s; later 500ms\nwork {}");
    let id = told.recv_timeout(Duration::from_secs(60)).unwrap();
    until("a send that is out", Duration::from_secs(60), || {
        let task = scene.gateway.get(&format!("/tasks/{id}"));
        (task["steps"][1]["hops"][0]["state"] == "sending").then_some(())
    });
    let (done, told) = mpsc::channel();
    done.send(id).unwrap();
    (client, told)
}

/// Kills the server again and again while clients go on, and gives the tasks by number, and how often it was killed
/// with a send that was seen to be out.
fn killed_again_and_again(scene: &mut Scene, dice: &mut Dice) -> (Vec<String>, u32) {
    let mut asked = Vec::new();
    let mut sending = 0;
    for kill in 0..KILLS {
        for _ in 1..TASKS {
            let errand = ERRANDS[usize::try_from(dice.roll(ERRANDS.len() as u64)).unwrap()];
            asked.push(ask(scene, dice, asked.len(), errand));
        }
        if kill % 4 == 0 {
            asked.push(ask_until_sending(scene, dice, asked.len()));
            sending += 1;
        } else {
            asked.push(ask(scene, dice, asked.len(), ERRANDS[0]));
            dice.pause(20, 700);
        }
        scene.gateway.kill();
        if dice.roll(4) == 0 {
            // It is killed while it starts, too.
            scene.gateway.start_unready();
            dice.pause(0, 300);
            scene.gateway.kill();
        }
        scene.gateway.start();
        eprintln!("kill {kill}: {} tasks asked for", asked.len());
    }
    let told = asked.into_iter().map(|(client, id)| {
        client.join().unwrap();
        id.recv().unwrap()
    });
    (told.collect(), sending)
}

#[test]
fn a_server_killed_at_any_moment_loses_nothing_and_does_nothing_twice() {
    let seed = std::env::var("EXEAT_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x00e7_ea70);
    eprintln!("EXEAT_TEST_SEED={seed}");
    let mut scene = scene();
    let (ids, sending) = killed_again_and_again(&mut scene, &mut Dice(seed));
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each request its own task");
    assert!(ids.len() >= 200 && sending >= 10, "{} tasks, {sending} kills amid a send", ids.len());
    let tasks: Vec<Value> = ids.iter().map(|id| scene.gateway.ended(id)).collect();
    for worker in &mut scene.workers {
        assert!(worker.is_alive(), "a worker outlives its server");
    }
    let works: BTreeMap<String, u64> = scene.stubs.iter().flat_map(|s| works(&s.seen())).collect();
    let mut tally: BTreeMap<String, u32> = BTreeMap::new();
    for (n, task) in tasks.iter().enumerate() {
        *tally.entry(ending(n, task, &works)).or_default() += 1;
    }
    let listed = scene.gateway.all("/tasks");
    assert_eq!(listed.len(), tasks.len(), "no task but those asked for");
    let export = scene.gateway.export();
    let records = records(&export.0);
    edges_are_once(&records, &tasks);
    let total = money(&records, &tasks);
    assert_eq!(scene.gateway.get("/costs?by=agent")["total_microusd"], json!(total));
    let verified = scene.gateway.does(&["audit", "verify"]);
    assert_eq!((&verified["verified"], &verified["costs_balanced"]), (&json!(true), &json!(true)));
    let (file, pem) = (export.1.display().to_string(), export.2.display().to_string());
    assert_eq!(scene.gateway.cli(&["audit", "verify", "--file", &file, "--key", &pem]).code, 0);
    scene.gateway.is_well();
    eprintln!(
        "{KILLS} kills, {sending} of them amid a send, {} tasks, endings {tally:?}, {} pieces of work, {} records, {total} µ$",
        tasks.len(),
        works.len(),
        records.len()
    );
    assert!(
        tally.get("completed").is_some_and(|n| *n * 2 > u32::try_from(tasks.len()).unwrap()),
        "{tally:?}"
    );
}

#[test]
fn what_was_out_when_the_server_was_killed_is_found_again_and_not_sent_again() {
    let stub = Stub::start(&[]);
    let bounds = [("EXEAT_HOP_SEND_TIMEOUT", "1s"), ("EXEAT_HOP_UNKNOWN_GRACE", "20s")];
    let mut gateway = Gateway::with_agent(&bounds, "old", &stub.url, &[]);
    let id = gateway.begin(&json!({"to": "agent:old", "input": "!block 1h; push none\nhello"}));
    until("the agent has it", Duration::from_secs(30), || (works(&stub.seen()).len() == 1).then_some(()));
    gateway.kill();
    gateway.start();
    let task = gateway.ended(&id);
    assert_eq!(
        (&task["status"], &task["output"]["text"]),
        (&json!("completed"), &json!("hello")),
        "{task:#}"
    );
    assert_eq!(stub.seen()["sends"], 1);
    gateway.is_well();
}

/// The pieces of work that an agent began, by message id.
fn works(seen: &Value) -> BTreeMap<String, u64> {
    let ids = seen["message_ids"].as_object().unwrap();
    ids.iter().map(|(id, n)| (id.clone(), n.as_u64().unwrap())).collect()
}

/// How a task ended, which must be one of the two ways that a kill allows.
fn ending(n: usize, task: &Value, works: &BTreeMap<String, u64>) -> String {
    let about = || format!("task {n}: {task:#}");
    let there = &task["steps"][1];
    let ids: Vec<&str> = there["hops"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|h| h["message_ids"].as_array().unwrap())
        .map(|i| i.as_str().unwrap())
        .collect();
    let begun: u64 = ids.iter().filter_map(|id| works.get(*id)).sum();
    match (task["status"].as_str().unwrap(), task["reason"]["code"].as_str()) {
        ("completed", None) => {
            assert_eq!(task["output"]["text"], json!(format!("WORK {n}")), "{}", about());
            assert_eq!(begun, 1, "one piece of work: {}", about());
            "completed".to_owned()
        }
        ("failed", Some(code @ ("outcome_unknown" | "unconfirmed"))) => {
            assert!(begun <= 1, "at most one piece of work: {}", about());
            let attempts = there["hops"][0]["attempts"].as_array().unwrap();
            let last = attempts.last().map(|a| a["outcome"].clone());
            assert_eq!(last, Some(json!("ambiguous")), "{}", about());
            code.to_owned()
        }
        _ => panic!("{}", about()),
    }
}

/// Each edge has one record and one outcome; a completed task has its four.
fn edges_are_once(records: &[Value], tasks: &[Value]) {
    let mut edges = BTreeMap::new();
    let mut by_task: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for r in records.iter().filter(|r| r["kind"] == "edge") {
        let key = json!([r["task"], r["step"], r["hop"], r["turn"], r["data"]["dir"]]).to_string();
        let is_out = r["data"]["dir"] != "a2a_ingress";
        assert!(edges.insert(key, (r["seq"].as_u64().unwrap(), is_out)).is_none(), "an edge twice: {r}");
        let dir = format!("{} {}", r["step"].as_str().unwrap(), r["data"]["dir"].as_str().unwrap());
        by_task.entry(r["task"].as_str().unwrap().to_owned()).or_default().push(dir);
    }
    let mut outcomes = BTreeSet::new();
    for r in records.iter().filter(|r| r["kind"] == "outcome") {
        assert!(outcomes.insert(r["edge"].as_u64().unwrap()), "an outcome twice: {r}");
    }
    for task in tasks.iter().filter(|t| t["status"] == "completed") {
        let dirs = &by_task[task["task_id"].as_str().unwrap()];
        assert_eq!(
            *dirs,
            ["before forward", "there a2a_egress", "there a2a_ingress", "after forward"],
            "{task:#}"
        );
        for step in task["steps"].as_array().unwrap() {
            assert_eq!(step["status"], "completed", "{task:#}");
        }
    }
    // What comes in ends the edge that went out; it has no outcome of its own.
    let out: BTreeSet<u64> = edges.values().filter(|(_, is_out)| *is_out).map(|(seq, _)| *seq).collect();
    let open: Vec<u64> = out.difference(&outcomes).copied().collect();
    assert!(open.is_empty(), "edges without an outcome: {open:?}");
}

/// What was reserved was settled or released, and what was settled is what the tasks cost.
fn money(records: &[Value], tasks: &[Value]) -> u64 {
    let sum = |entry: &str| -> u64 {
        let costs = records.iter().filter(|r| r["kind"] == "cost" && r["data"]["entry"] == entry);
        costs.map(|r| r["data"]["amount_microusd"].as_u64().unwrap()).sum()
    };
    assert_eq!(sum("reserve") + sum("overrun"), sum("settle") + sum("release"));
    let tasked: u64 = tasks.iter().map(|t| t["cost_microusd"].as_u64().unwrap()).sum();
    assert_eq!(tasked, sum("settle"));
    for task in tasks {
        assert_eq!(task["reserved_microusd"], 0, "{task:#}");
        assert_eq!(task["cost_microusd"], PRICE, "sent once, or maybe: {task:#}");
    }
    tasked
}
