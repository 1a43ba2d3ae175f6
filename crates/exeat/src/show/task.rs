//! A task for people, and the small object that `delegate` and `run` give to programs.

use serde_json::{Value, json};

use super::escape::escaped_line;
use super::table::{Style, cell, fields, money, plain, table, time};
use crate::failure::{Exit, Problem};

/// Has a task of this status ended, and how?
pub(crate) fn ending(status: &str) -> Option<Exit> {
    match status {
        "completed" => Some(Exit::Done),
        "failed" | "denied" | "rejected" | "timed_out" | "canceled" => Some(Exit::EndedBadly),
        _ => None,
    }
}

/// The status of a task.
pub(crate) fn status(task: &Value) -> &str {
    task.get("status").and_then(Value::as_str).unwrap_or_default()
}

/// Its id.
pub(crate) fn id(task: &Value) -> &str {
    task.get("task_id").and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, member: &str) -> &'a [Value] {
    object.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn hops(task: &Value) -> impl Iterator<Item = &Value> {
    list(task, "steps").iter().flat_map(|s| list(s, "hops"))
}

/// The open questions of a task, as `{"question_id","prompt","until"}`.
pub(crate) fn questions(task: &Value) -> Vec<Value> {
    let open = |hop: &&Value| ending(status_of_hop(hop)).is_none();
    hops(task).filter(open).filter_map(|h| h.get("question")).filter(|q| !q.is_null()).cloned().collect()
}

fn status_of_hop(hop: &Value) -> &str {
    match hop.get("state").and_then(Value::as_str).unwrap_or_default() {
        "canceled_by_peer" | "canceled_by_us" => "canceled",
        state => state,
    }
}

/// The answer of `delegate` and `run` with `--json`.
pub(crate) fn summary(task: &Value) -> Value {
    let waiting = list(task, "waiting").iter().filter(|w| w.get("for") == Some(&json!("approval")));
    let named = hops(task).filter_map(|h| h.get("approval_id")).chain(waiting.filter_map(|w| w.get("ref")));
    let mut approvals: Vec<Value> = Vec::new();
    for id in named.filter(|id| id.is_string()) {
        if !approvals.contains(id) {
            approvals.push(id.clone());
        }
    }
    let member = |name: &str| task.get(name).cloned().unwrap_or(Value::Null);
    json!({
        "task_id": member("task_id"),
        "status": member("status"),
        "output": member("output"),
        "cost_microusd": task.get("cost_microusd").cloned().unwrap_or(json!(0)),
        "reason": member("reason"),
        "approval_ids": approvals,
        "question": questions(task).into_iter().next(),
    })
}

/// The output of a task as bare text: its text, or its data if it has none.
pub(crate) fn output_text(task: &Value) -> String {
    let output = task.get("output").unwrap_or(&Value::Null);
    match (output.get("text").and_then(Value::as_str), output.get("data")) {
        (Some(text), _) if !text.is_empty() => text.to_owned(),
        (_, Some(data)) if !data.is_null() => pretty(data),
        _ => match output.get("parts").and_then(Value::as_array) {
            Some(parts) if !parts.is_empty() && output.get("text").is_none_or(Value::is_null) => {
                pretty(&json!(parts))
            }
            _ => String::new(),
        },
    }
}

/// JSON over several lines.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Why a task ended as it did, as a problem.
pub(crate) fn why(task: &Value) -> Problem {
    let reason = task.get("reason").filter(|r| r.is_object()).cloned().unwrap_or(Value::Null);
    let code = reason.get("code").and_then(Value::as_str).unwrap_or_else(|| status(task)).to_owned();
    let message = match reason.get("message").and_then(Value::as_str) {
        Some(m) if !m.is_empty() => m.to_owned(),
        _ => format!("the task ended {}", status(task)),
    };
    let next = match reason.get("next").and_then(Value::as_str) {
        Some(n) if !n.is_empty() => n.replace("task show TASK", &format!("task show {}", id(task))),
        _ => format!("exeat task show {}", id(task)),
    };
    Problem::new(&code, message).next(next).about_task(id(task))
}

/// A page of tasks.
pub(crate) fn tasks(style: Style, items: &[Value]) -> String {
    let rows: Vec<_> = items
        .iter()
        .map(|t| {
            let waits = list(t, "waiting").iter().map(|w| cell(w, "for")).collect::<Vec<_>>().join(", ");
            let what = match cell(t, "workflow") {
                w if w.is_empty() => {
                    list(t, "steps").first().map_or_else(|| cell(t, "to"), |s| cell(s, "to"))
                }
                w => w,
            };
            let cost = money(t.get("cost_microusd").unwrap_or(&Value::Null));
            [cell(t, "task_id"), cell(t, "status"), what, waits, cost, moment(t, "created_at")]
        })
        .collect();
    table(style, ["TASK", "STATUS", "WORKFLOW", "WAITS FOR", "COST", "CREATED"], &rows)
}

/// One task, whole.
pub(crate) fn task(style: Style, t: &Value) -> String {
    let reason = t.get("reason").filter(|r| !r.is_null()).map(|_| why(t).to_string()).unwrap_or_default();
    let money_of = |name: &str| money(t.get(name).unwrap_or(&Value::Null));
    let mut out = fields(
        style,
        &[
            ("task", cell(t, "task_id")),
            ("status", cell(t, "status")),
            ("reason", reason),
            ("workflow", cell(t, "workflow")),
            ("continues", cell(t, "continues")),
            ("requester", cell(t, "requester")),
            ("label", cell(t, "label")),
            ("cost", money_of("cost_microusd")),
            ("reserved", money_of("reserved_microusd")),
            ("created", moment(t, "created_at")),
            ("deadline", moment(t, "deadline")),
            ("ended", moment(t, "ended_at")),
        ],
    );
    for w in list(t, "waiting") {
        let until = match moment(w, "until") {
            u if u.is_empty() => String::new(),
            u => format!(", until {u}"),
        };
        let hint = match cell(w, "hint") {
            h if h.is_empty() => String::new(),
            h => format!(" → {}", escaped_line(&h)),
        };
        out.push_str(&format!(
            "{} {} {}{until}{hint}\n",
            style.heading("waits for"),
            escaped_line(&cell(w, "for")),
            style.aside(&escaped_line(&format!("({})", cell(w, "step")))),
        ));
    }
    let steps: Vec<_> = list(t, "steps").iter().map(step_row).collect();
    if !steps.is_empty() {
        out.push('\n');
        out.push_str(&table(style, ["STEP", "TO", "STATUS", "REASON", "LABEL", "STARTED", "ENDED"], &steps));
        out.push('\n');
    }
    let rows: Vec<_> = hops(t).map(hop_row).collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(style, ["HOP", "TO", "STATE", "TURN", "TRIES", "DUE", "COST"], &rows));
        out.push('\n');
    }
    let tries: Vec<_> = hops(t).flat_map(try_rows).collect();
    if !tries.is_empty() {
        out.push('\n');
        out.push_str(&table(style, ["HOP", "TRY", "AT", "OUTCOME", "DETAIL"], &tries));
        out.push('\n');
    }
    for q in questions(t) {
        let prompt = q.get("prompt").map(|p| output_text(&json!({ "output": p }))).unwrap_or_default();
        out.push_str(&format!("\n{}\n", style.heading("question")));
        out.push_str(&fields(style, &[("id", cell(&q, "question_id")), ("asks", prompt)]));
    }
    match output_text(t) {
        text if text.is_empty() => {}
        text => {
            out.push_str(&format!("\n{}\n", style.heading("output")));
            out.push_str(&super::escape::escaped(&text));
        }
    }
    out
}

fn moment(object: &Value, member: &str) -> String {
    time(object.get(member).unwrap_or(&Value::Null))
}

/// Tries of a hop that are told.
const LAST_TRIES: usize = 5;

fn step_row(s: &Value) -> [String; 7] {
    let reason = s.get("reason").map(|r| cell(r, "code")).unwrap_or_default();
    let label = match s.get("tainted") {
        Some(Value::Bool(true)) => format!("{} tainted", cell(s, "label")),
        _ => cell(s, "label"),
    };
    let (started, ended) = (moment(s, "started_at"), moment(s, "ended_at"));
    [cell(s, "name"), cell(s, "to"), cell(s, "status"), reason, label, started, ended]
}

fn hop_row(h: &Value) -> [String; 7] {
    let tries = list(h, "attempts").iter().map(|a| cell(a, "outcome")).collect::<Vec<_>>().join(", ");
    let cost = h.get("cost").and_then(|c| c.get("settled_microusd")).map(money).unwrap_or_default();
    [cell(h, "hop_id"), cell(h, "to"), cell(h, "state"), cell(h, "turn"), tries, moment(h, "due_at"), cost]
}

/// The last tries of a hop of which there is something to tell.
fn try_rows(h: &Value) -> Vec<[String; 5]> {
    let all = list(h, "attempts");
    let told = all.iter().filter(|a| cell(a, "outcome") != "answered" && !cell(a, "detail").is_empty());
    let rows = told
        .map(|a| [cell(h, "hop_id"), cell(a, "n"), moment(a, "at"), cell(a, "outcome"), cell(a, "detail")]);
    let mut rows: Vec<_> = rows.collect();
    rows.split_off(rows.len().saturating_sub(LAST_TRIES))
}

/// An event of a task as one line of progress.
pub(crate) fn event_line(kind: &str, data: &Value) -> String {
    let reason = match data.get("reason").unwrap_or(&Value::Null) {
        Value::Null => String::new(),
        r @ Value::Object(_) => format!(" ({})", cell(r, "code")),
        other => format!(" ({})", plain(other)),
    };
    let said = match kind {
        "task" => format!("task {}{reason}", cell(data, "status")),
        "step" => {
            format!("step {} → {}: {}{reason}", cell(data, "step"), cell(data, "to"), cell(data, "status"))
        }
        "hop" => {
            let attempt = match cell(data, "attempt") {
                a if a.is_empty() || a == "0" => String::new(),
                a => format!(", attempt {a}"),
            };
            // A delegated task's only step is called so.
            let of = match cell(data, "step") {
                step if step == "hop" => String::new(),
                step => format!(" of {step}"),
            };
            format!("hop{of}: {}{attempt}{reason}", cell(data, "state"))
        }
        "approval" => {
            let id = cell(data, "approval_id");
            match cell(data, "status").as_str() {
                "pending" => format!(
                    "approval {id} is needed from {}: exeat approval approve {id}",
                    cell(data, "roles")
                ),
                status => format!("approval {id}: {status} {}", cell(data, "by")),
            }
        }
        "question" => {
            let prompt = data.get("prompt").map(|p| output_text(&json!({ "output": p }))).unwrap_or_default();
            let task = cell(data, "task_id");
            format!("{} asks: {prompt} — exeat task answer {task} TEXT", cell(data, "step"))
        }
        "cost" => {
            let amount = data.get("amount_microusd").map(money).unwrap_or_default();
            let total = data.get("task_microusd").map(money).unwrap_or_default();
            format!("cost {} {amount}, task {total}", cell(data, "entry"))
        }
        other => format!("{other} {data}"),
    };
    let at = cell(data, "at");
    let clock = at.split_once('T').and_then(|(_, t)| t.get(..8)).unwrap_or("--:--:--");
    format!("{clock} {}", escaped_line(said.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked() -> Value {
        json!({
            "task_id": "0190", "status": "awaiting_approval", "cost_microusd": 0, "output": null, "reason": null,
            "waiting": [{"step": "hop", "for": "approval", "ref": "a2", "hint": "exeat approval approve a2"}],
            "steps": [{"name": "hop", "to": "agent:a", "status": "awaiting_approval", "hops": [
                {"hop_id": "h1", "state": "completed", "approval_id": "a1",
                 "question": {"question_id": "old"}},
                {"hop_id": "h2", "state": "input_required", "approval_id": "a2",
                 "question": {"question_id": "q1", "prompt": {"text": "which?"}}}]}]
        })
    }

    #[test]
    fn the_summary_names_each_approval_once_and_the_open_question() {
        assert_eq!(
            summary(&parked()),
            json!({"task_id": "0190", "status": "awaiting_approval", "output": null, "cost_microusd": 0,
                "reason": null, "approval_ids": ["a1", "a2"],
                "question": {"question_id": "q1", "prompt": {"text": "which?"}}})
        );
    }

    #[test]
    fn output_is_its_text_or_else_its_data() {
        for (output, text) in [
            (json!({"text": "hi", "data": {"a": 1}}), "hi"),
            (json!({"text": "", "data": {"a": 1}}), "{\n  \"a\": 1\n}"),
            (json!({"text": "", "data": null, "parts": []}), ""),
            (Value::Null, ""),
        ] {
            assert_eq!(output_text(&json!({ "output": output })), text);
        }
    }

    #[test]
    fn each_ending_has_its_exit_code_and_an_unknown_status_is_no_ending() {
        assert_eq!(ending("completed"), Some(Exit::Done));
        for bad in ["failed", "denied", "rejected", "timed_out", "canceled"] {
            assert_eq!(ending(bad), Some(Exit::EndedBadly), "{bad}");
        }
        for open in ["running", "awaiting_approval", "awaiting_input", "new_word", ""] {
            assert_eq!(ending(open), None, "{open}");
        }
    }

    #[test]
    fn a_bad_ending_says_why_and_what_to_do() {
        let t = json!({"task_id": "0190", "status": "denied",
            "reason": {"code": "egress_off", "message": "Egress is off.", "next": "exeat egress on"}});
        assert_eq!(why(&t).to_string(), "egress_off: Egress is off; exeat egress on");
        let t = json!({"task_id": "0190", "status": "failed", "reason": null});
        assert_eq!(why(&t).to_string(), "failed: the task ended failed; exeat task show 0190");
    }

    #[test]
    fn an_event_is_one_line_whatever_it_holds() {
        let at = "2026-01-02T03:04:05.000000Z";
        for (kind, data, line) in [
            ("task", json!({"at": at, "status": "completed", "reason": null}), "03:04:05 task completed"),
            (
                "step",
                json!({"at": at, "step": "audit", "to": "agent:a", "status": "denied",
                    "reason": {"code": "egress_off"}}),
                "03:04:05 step audit → agent:a: denied (egress_off)",
            ),
            (
                "approval",
                json!({"at": at, "approval_id": "a1", "status": "pending", "roles": ["ops"]}),
                "03:04:05 approval a1 is needed from ops: exeat approval approve a1",
            ),
            (
                "question",
                json!({"at": at, "task_id": "t", "step": "s", "prompt": {"text": "a\n\u{1b}[2Jb"}}),
                "03:04:05 s asks: a\\n\\u{001B}[2Jb — exeat task answer t TEXT",
            ),
            (
                "cost",
                json!({"at": at, "entry": "settle", "amount_microusd": 1000, "task_microusd": 2000}),
                "03:04:05 cost settle $0.001, task $0.002",
            ),
            (
                "hop",
                json!({"at": at, "step": "hop", "state": "sending", "attempt": 2}),
                "03:04:05 hop: sending, attempt 2",
            ),
            ("hop", json!({"at": at, "step": "audit", "state": "parked"}), "03:04:05 hop of audit: parked"),
            ("new", json!({}), "--:--:-- new {}"),
        ] {
            assert_eq!(event_line(kind, &data), line);
        }
    }

    #[test]
    fn a_task_for_people_reads_whole() {
        let text = task(Style::Plain, &parked());
        for shown in
            ["0190", "awaiting_approval", "waits for approval", "exeat approval approve a2", "which?"]
        {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }
}
