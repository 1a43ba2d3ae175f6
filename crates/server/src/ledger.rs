//! The ledger at the doors: its records, its export, its verification, its public key.

use std::io;
use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use exeat_core::id::{OrgName, TaskId};
use exeat_core::ledger::checkpoint::Checkpoint;
use exeat_core::ledger::export::{self, ListedKey};
use exeat_core::ledger::verify::CheckpointSeen;
use exeat_core::ledger::{FirstBad, Flaw, Head, Kind, Record, Verification, Verifier};
use exeat_core::ports::StoredRecord;
use exeat_core::time::Timestamp;
use futures::stream;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Viewer;
use crate::body::Asked;
use crate::checkpoints::newest_in;
use crate::page::{Paged, page};
use crate::problem::{Code, Problem};

/// Records read in one go.
const CHUNK: u32 = 500;
/// Records looked through for one page, at most; the next one goes on there.
const LOOKED_THROUGH: u64 = 20_000;

/// Its doors.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/v1/ledger", get(list))
        .route("/api/v1/ledger/export", get(export_all))
        .route("/api/v1/ledger/verify", get(verify))
        .route("/api/v1/ledger/key", get(public_key))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    from: Option<u64>,
    kind: Option<Kind>,
    task: Option<TaskId>,
    /// `newest`: the last ones first.
    order: Option<Order>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Newest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    from: Option<u64>,
}

fn is_of(record: &StoredRecord, kind: Option<Kind>) -> bool {
    #[derive(Deserialize)]
    struct Seen {
        kind: Kind,
    }
    kind.is_none_or(|wanted| {
        serde_json::from_slice::<Seen>(&record.bytes).is_ok_and(|seen| seen.kind == wanted)
    })
}

/// A record as its bytes stand.
fn raw(record: StoredRecord) -> Result<Box<RawValue>, Problem> {
    let text = String::from_utf8(record.bytes).map_err(|e| Problem::internal(&e))?;
    RawValue::from_string(text).map_err(|e| Problem::internal(&e))
}

async fn list(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Asked(asked): Asked<Wanted>,
) -> Result<Json<Paged<Box<RawValue>>>, Problem> {
    let page = page(asked.limit, asked.cursor.as_deref())?;
    let bad_cursor = || Problem::new(Code::BadCursor, "The cursor isn't one that a page ended with.");
    let after = page.after.as_deref().map(str::parse::<u64>).transpose().map_err(|_| bad_cursor())?;
    if asked.order == Some(Order::Newest) {
        return newest(&app, caller.org(), &asked, after, page.limit).await;
    }
    let mut next = after.map_or(1, |n| n.saturating_add(1)).max(asked.from.unwrap_or(1)).max(1);
    let most = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let mut items = Vec::new();
    if let Some(task) = asked.task {
        let all = app.archive.records_of(caller.org(), task).await?;
        let mut rest = all.into_iter().filter(|r| r.seq >= next && is_of(r, asked.kind)).peekable();
        let mut last = None;
        while items.len() < most
            && let Some(record) = rest.next()
        {
            last = Some(record.seq.to_string());
            items.push(raw(record)?);
        }
        return Ok(Json(Paged::of(items, last.filter(|_| rest.peek().is_some()))));
    }
    let stop = next.saturating_add(LOOKED_THROUGH);
    while next < stop {
        let records = app.archive.records(caller.org(), next, CHUNK).await?;
        if records.is_empty() {
            return Ok(Json(Paged::of(items, None)));
        }
        for record in records {
            if items.len() == most {
                return Ok(Json(Paged::of(items, Some((next - 1).to_string()))));
            }
            next = record.seq + 1;
            if is_of(&record, asked.kind) {
                items.push(raw(record)?);
            }
        }
    }
    Ok(Json(Paged::of(items, Some((next - 1).to_string()))))
}

/// The last records first, those below `before`.
async fn newest(
    app: &App,
    org: &OrgName,
    asked: &Wanted,
    before: Option<u64>,
    limit: u32,
) -> Result<Json<Paged<Box<RawValue>>>, Problem> {
    let first = asked.from.unwrap_or(1).max(1);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut next = match before {
        Some(seq) => seq,
        None => app.archive.head(org).await?.size.saturating_add(1),
    };
    let stop = next.saturating_sub(LOOKED_THROUGH).max(first);
    let mut items = Vec::new();
    while next > stop {
        let from = next.saturating_sub(u64::from(CHUNK)).max(stop);
        let records = match asked.task {
            Some(task) => app.archive.records_of(org, task).await?,
            None => {
                let wanted = u32::try_from(next - from).unwrap_or(CHUNK);
                app.archive.records(org, from, wanted).await?
            }
        };
        let upto = next;
        for record in records.into_iter().rev().filter(|r| (first..upto).contains(&r.seq)) {
            if !is_of(&record, asked.kind) {
                continue;
            }
            if items.len() == most {
                return Ok(Json(Paged::of(items, Some(next.to_string()))));
            }
            next = record.seq;
            items.push(raw(record)?);
        }
        if asked.task.is_some() {
            return Ok(Json(Paged::of(items, None)));
        }
        next = from;
    }
    Ok(Json(Paged::of(items, (next > first).then(|| next.to_string()))))
}

/// The head before a place in the chain.
async fn head_before(app: &App, org: &OrgName, from: u64) -> Result<Head, Problem> {
    if from <= 1 {
        return Ok(Head::EMPTY);
    }
    let before = app.archive.records(org, from - 1, 1).await?.into_iter().next();
    match before.filter(|r| r.seq == from - 1) {
        Some(r) => Ok(Head { size: r.seq, hash: r.hash }),
        None => Err(Problem::new(Code::Invalid, format!("The ledger has no record {}.", from - 1))),
    }
}

/// The one key so far, and since when it may have signed: the first record.
async fn listed_keys(app: &App, org: &OrgName) -> Result<Vec<ListedKey>, Problem> {
    let first = app.archive.records(org, 1, 1).await?.into_iter().next();
    let at = first
        .and_then(|r| serde_json::from_slice::<Record>(&r.bytes).ok())
        .map_or(Timestamp::EPOCH, |r| r.at);
    Ok(vec![ListedKey::of(&app.ledger_key.public(), org, at, None)])
}

struct Export {
    app: Arc<App>,
    org: OrgName,
    /// What has been written last.
    done: Head,
    /// Where to end.
    end: u64,
    step: Step,
}

enum Step {
    Header,
    Records,
    Over,
}

impl Export {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        match self.step {
            Step::Over => Ok(None),
            Step::Header => {
                self.step = Step::Records;
                Ok(Some((Bytes::from(export::header(&self.org, &self.done)), self)))
            }
            Step::Records if self.done.size < self.end => {
                let left = u32::try_from(self.end - self.done.size).unwrap_or(CHUNK).min(CHUNK);
                let records = self.app.archive.records(&self.org, self.done.size + 1, left).await;
                let records = records.map_err(|e| cut_off(&e))?;
                let mut lines = Vec::new();
                for r in &records {
                    lines.extend(export::record_line(&r.bytes, &r.hash));
                    self.done = Head { size: r.seq, hash: r.hash };
                }
                if records.is_empty() {
                    return Err(cut_off(&"a record is missing"));
                }
                Ok(Some((Bytes::from(lines), self)))
            }
            Step::Records => {
                self.step = Step::Over;
                let now = self.app.ports.store.now().await.map_err(|e| cut_off(&e))?;
                let note = self.app.ledger_key.sign(&Checkpoint::of(self.org.clone(), self.done, now));
                let keys = listed_keys(&self.app, &self.org).await;
                let keys = keys.map_err(|_| io::Error::other("the export was cut off"))?;
                Ok(Some((Bytes::from(export::last_line(&note, keys)), self)))
            }
        }
    }
}

/// An export that can't go on ends without its last line, which no verifier takes.
fn cut_off(why: &dyn std::fmt::Display) -> io::Error {
    tracing::error!(cause = %why, "an export was cut off");
    io::Error::other("the export was cut off")
}

async fn export_all(
    State(app): State<Arc<App>>,
    Viewer(caller): Viewer,
    Asked(asked): Asked<From>,
) -> Result<Response, Problem> {
    let org = caller.org().clone();
    let done = head_before(&app, &org, asked.from.unwrap_or(1)).await?;
    let end = app.archive.head(&org).await?.size;
    let export = Export { app, org, done, end, step: Step::Header };
    let body = HttpBody::from_stream(stream::try_unfold(export, Export::next));
    Ok(([(CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// Verifies the whole chain as the store has it, against the newest checkpoint.
///
/// # Errors
/// If the record can't be read.
pub async fn verification(app: &App, org: &OrgName) -> Result<Verification, Problem> {
    let key = app.ledger_key.public();
    let mut verifier = Verifier::new(org.clone());
    // The checkpoint first: the chain only grows, so it covers what was signed before.
    let note = app.archive.checkpoint(org).await?;
    let held = note.as_deref().map(|note| Checkpoint::open(note, &key));
    if let Some(Ok(held)) = &held {
        verifier.hold(held.as_head());
    }
    // The one outside the store shows what the store itself can't: that an older copy of it was put back.
    let (path, public) = (app.settings.checkpoint_file.clone(), key.clone());
    let outside = tokio::task::spawn_blocking(move || newest_in(&path, &public)).await;
    if let Ok(Ok(Some(outside))) = outside
        && outside.org == *org
    {
        verifier.hold(outside.as_head());
    }
    let end = app.archive.head(org).await?.size;
    while verifier.head().size < end {
        let left = u32::try_from(end - verifier.head().size).unwrap_or(CHUNK).min(CHUNK);
        let records = app.archive.records(org, verifier.head().size + 1, left).await?;
        if records.is_empty() || records.iter().any(|r| verifier.record(&r.bytes, &r.hash).is_err()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let reached = verifier.head().size;
    let mut found = verifier.finish();
    let mut wrong = |seq: u64, why: Flaw| {
        found.verified = false;
        found.first_bad.get_or_insert(FirstBad { seq, why });
    };
    if reached < end {
        wrong(reached + 1, Flaw::CutTail);
    }
    match held {
        Some(Ok(held)) if held.org == *org => {
            found.checkpoint = Some(CheckpointSeen::of(&held, &key));
        }
        Some(_) => wrong(reached, Flaw::NoCheckpoint),
        None => {}
    }
    Ok(found)
}

async fn verify(State(app): State<Arc<App>>, Viewer(caller): Viewer) -> Result<Json<Value>, Problem> {
    let found = verification(&app, caller.org()).await?;
    serde_json::to_value(found).map(Json).map_err(|e| Problem::internal(&e))
}

async fn public_key(State(app): State<Arc<App>>, _: Viewer) -> Response {
    ([(CONTENT_TYPE, "application/x-pem-file")], app.ledger_key.public().to_pem()).into_response()
}
