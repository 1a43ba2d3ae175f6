//! The one writer: owns the writing connection and takes its work from a bounded queue.
//!
//! Promises: what arrived while the last transaction committed is the next one (group commit), so a
//! batch costs one sync of the disk; nobody is answered before the commit holds; a set that can't be
//! written takes none of its neighbours with it. Nothing else in this room writes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use exeat_core::change::{ChangeSet, DueKind, Key, Receipt, Refused, Row};
use exeat_core::gate::exeat::Claim;
use exeat_core::id::OrgName;
use exeat_core::ledger::chain::Head;
use exeat_core::ports::{DueRow, Unreadable};
use exeat_core::time::{Span, Timestamp};
use exeat_core::walk::batch::{self, Planned};
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use super::open::primary_code;
use super::read::unavailable;
use super::rows::{Table, int};
use super::{Batch, Cache, Options, Time, claim, ground, open, sheets, sql};

/// Batches between two clearings of changes that nobody will ask about any more.
const CLEAR_EVERY: u64 = 1_024;
/// How long a change without a record can be asked about.
pub(super) const SILENT_FOR: Span = Span::of_secs(86_400);

/// Work for the writer, each with whoever waits for it.
pub(super) enum Job {
    Commit(Box<ChangeSet>, oneshot::Sender<Result<Receipt, Refused>>),
    Claim(Want, oneshot::Sender<Result<Vec<DueRow>, Unreadable>>),
    Checkpoint(u64, String, oneshot::Sender<Result<(), Unreadable>>),
}

/// Which due rows are wanted.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) kind: DueKind,
    pub(super) limit: u32,
    pub(super) hold: Span,
}

pub(super) struct Writer {
    pub(super) db: PathBuf,
    pub(super) org: OrgName,
    pub(super) options: Options,
    pub(super) time: Arc<Time>,
    pub(super) cache: Arc<Cache>,
    pub(super) conn: Option<SqliteConnection>,
    pub(super) batches: u64,
    /// Held as long as this writer lives.
    pub(super) lock: File,
}

/// Where a transaction failed. Only the last leaves anything in doubt.
enum Fault {
    /// Before anything was settled.
    Before(Unreadable),
    /// While it was written: rolled back.
    Writing(Refused, Vec<Result<Planned, Refused>>),
    /// At the commit, and what became of it isn't known.
    Unknown(Vec<Result<Planned, Refused>>),
}

/// What a transaction that holds gives out.
struct Held {
    answers: Vec<Result<Planned, Refused>>,
    claimed: Vec<Vec<DueRow>>,
    rows: u64,
}

type CommitReply = oneshot::Sender<Result<Receipt, Refused>>;

impl Writer {
    /// Works until nobody can send any more and the queue is empty.
    pub(super) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let most = self.options.batch.max(1);
        let mut batch = Vec::with_capacity(most);
        while jobs.recv_many(&mut batch, most).await > 0 {
            self.serve(std::mem::take(&mut batch)).await;
        }
        if let Some(conn) = self.conn.take()
            && let Err(e) = conn.close().await
        {
            tracing::warn!(error = %e, "the store didn't close cleanly; its log is replayed at the next start");
        }
        drop(self.lock);
    }

    async fn serve(&mut self, jobs: Vec<Job>) {
        let lone = jobs.len() == 1;
        let (mut sets, mut replies, mut wants, mut notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Commit(set, reply) if set.org != self.org => {
                    let why = format!("this store holds the org {}", self.org);
                    let _ = reply.send(Err(Refused::Wrong(why)));
                }
                Job::Commit(set, reply) => {
                    sets.push(*set);
                    replies.push(reply);
                }
                Job::Claim(want, reply) => wants.push((want, reply)),
                Job::Checkpoint(size, note, reply) => notes.push((size, note, reply)),
            }
        }
        let count = sets.len();
        let asked: Vec<Want> = wants.iter().map(|(w, _)| *w).collect();
        let kept: Vec<(u64, &str)> = notes.iter().map(|(s, n, _)| (*s, n.as_str())).collect();
        match self.transact(sets, &asked, &kept).await {
            Ok(held) => {
                if let (Some(seen), true) = (&self.options.on_batch, count > 0) {
                    seen(Batch { sets: count, rows: held.rows });
                }
                for (answer, reply) in held.answers.into_iter().zip(replies) {
                    let _ = reply.send(answer.map(|p| p.receipt()));
                }
                for (claimed, (_, reply)) in held.claimed.into_iter().zip(wants) {
                    let _ = reply.send(Ok(claimed));
                }
                for (_, _, reply) in notes {
                    let _ = reply.send(Ok(()));
                }
            }
            Err(fault) => {
                let why = fault.to_string();
                let again = sort_out(fault, replies, lone);
                for (_, reply) in wants {
                    let _ = reply.send(Err(Unreadable::Unavailable(why.clone())));
                }
                for (_, _, reply) in notes {
                    let _ = reply.send(Err(Unreadable::Unavailable(why.clone())));
                }
                for (set, reply) in again {
                    Box::pin(self.serve(vec![Job::Commit(Box::new(set), reply)])).await;
                }
            }
        }
    }

    /// One transaction over everything that arrived together.
    async fn transact(
        &mut self,
        sets: Vec<ChangeSet>,
        wants: &[Want],
        notes: &[(u64, &str)],
    ) -> Result<Held, Fault> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                open::reopened(&self.db, &self.options).await.map_err(|e| Fault::Before(unavailable(&e)))?
            }
        };
        let done = self.within(&mut conn, sets, wants, notes).await;
        match &done {
            Ok(_) => {}
            Err(Fault::Writing(..)) => {
                // There may be nothing to roll back; the next BEGIN says so if there still is.
                let _ = sqlx::query(sql::ROLLBACK).execute(&mut conn).await;
            }
            // A connection that couldn't begin or didn't end isn't trusted any more: closing it rolls back.
            Err(Fault::Before(_) | Fault::Unknown(_)) => {
                let _ = conn.close().await;
                return done;
            }
        }
        self.conn = Some(conn);
        done
    }

    async fn within(
        &mut self,
        conn: &mut SqliteConnection,
        sets: Vec<ChangeSet>,
        wants: &[Want],
        notes: &[(u64, &str)],
    ) -> Result<Held, Fault> {
        let before = |e: sqlx::Error| Fault::Before(unavailable(&e));
        let now = sets.iter().map(|s| s.at).fold(self.time.now(), Timestamp::max);
        sqlx::query(sql::BEGIN).execute(&mut *conn).await.map_err(before)?;
        let settled = if sets.is_empty() {
            batch::Settled { answers: Vec::new(), ground: batch::Ground::default() }
        } else {
            let ground =
                ground::read(conn, &self.org, &batch::touched(&sets)).await.map_err(Fault::Before)?;
            batch::settle(ground, sets)
        };
        let planned: Vec<&Planned> = settled.answers.iter().flatten().collect();
        let governs = planned.iter().any(|p| p.set.writes.iter().any(|w| Table::of(&w.row.key()).governs()));
        let work = Work { planned, ground: &settled.ground, now };
        let written = match self.write(conn, &work, wants, notes).await {
            Ok(written) => written,
            Err(why) => return Err(Fault::Writing(why, settled.answers)),
        };
        let (rows, claimed) = written;
        if work.planned.is_empty() && notes.is_empty() && claimed.iter().all(Vec::is_empty) {
            sqlx::query(sql::ROLLBACK).execute(conn).await.map_err(before)?;
            return Ok(Held { answers: settled.answers, claimed, rows: 0 });
        }
        match sqlx::query(sql::COMMIT).execute(conn).await {
            Ok(_) => {}
            Err(e) if is_certain(&e) => return Err(Fault::Writing(refused(&e), settled.answers)),
            Err(_) => return Err(Fault::Unknown(settled.answers)),
        }
        self.time.raise(now);
        if governs {
            self.cache.forget();
        }
        Ok(Held { answers: settled.answers, claimed, rows })
    }

    async fn write(
        &mut self,
        conn: &mut SqliteConnection,
        work: &Work<'_>,
        wants: &[Want],
        notes: &[(u64, &str)],
    ) -> Result<(u64, Vec<Vec<DueRow>>), Refused> {
        let (org, mut written) = (&self.org, 0);
        for (statement, sheet) in sheets::all(work).map_err(|e| Refused::Wrong(e.to_string()))? {
            let (rows, heap) = sheet.bound();
            let query = sqlx::query(statement).bind(org.as_str()).bind(rows).bind(heap);
            written += query.execute(&mut *conn).await.map_err(|e| refused(&e))?.rows_affected();
        }
        if !work.planned.is_empty() {
            put_head(conn, org, work.ground.head, work.now).await.map_err(|e| refused(&e))?;
            self.batches += 1;
            if self.batches.is_multiple_of(CLEAR_EVERY) {
                let old = (work.now - SILENT_FOR).micros();
                let query = sqlx::query(sql::FORGET_SILENT).bind(org.as_str()).bind(old);
                query.execute(&mut *conn).await.map_err(|e| refused(&e))?;
            }
        }
        for (size, note) in notes {
            let query = sqlx::query(sql::PUT_CHECKPOINT).bind(org.as_str()).bind(int(*size)).bind(*note);
            query.execute(&mut *conn).await.map_err(|e| refused(&e))?;
        }
        let mut claimed = Vec::with_capacity(wants.len());
        for want in wants {
            let due = claim::take(conn, org, *want, work.now).await;
            claimed.push(due.map_err(|e| Refused::Unavailable(e.to_string()))?);
        }
        Ok((written, claimed))
    }
}

/// Answers whoever can be answered after a fault, and returns the sets that are to be tried alone.
fn sort_out(fault: Fault, replies: Vec<CommitReply>, lone: bool) -> Vec<(ChangeSet, CommitReply)> {
    tracing::warn!(error = %fault, sets = replies.len(), "a batch was not committed");
    let mut again = Vec::new();
    match fault {
        Fault::Before(e) => {
            for reply in replies {
                let _ = reply.send(Err(Refused::Unavailable(e.to_string())));
            }
        }
        Fault::Writing(why, answers) => {
            let mut why = Some(why);
            for (answer, reply) in answers.into_iter().zip(replies) {
                match (answer, &why) {
                    (Ok(_), Some(Refused::DiskFull)) => drop(reply.send(Err(Refused::DiskFull))),
                    (Ok(_), _) if lone => drop(reply.send(Err(why.take().unwrap_or(Refused::DiskFull)))),
                    (Ok(planned), _) => again.push((planned.set, reply)),
                    (Err(refused), _) => drop(reply.send(Err(relative(refused)))),
                }
            }
        }
        Fault::Unknown(answers) => {
            for (answer, reply) in answers.into_iter().zip(replies) {
                let refused = match answer {
                    Ok(planned) => Refused::Unknown(planned.set.id),
                    Err(refused) => relative(refused),
                };
                let _ = reply.send(Err(refused));
            }
        }
    }
    again
}

/// What one transaction is about.
pub(super) struct Work<'a> {
    pub(super) planned: Vec<&'a Planned>,
    pub(super) ground: &'a batch::Ground,
    pub(super) now: Timestamp,
}

impl<'a> Work<'a> {
    /// The rows as they shall stand, each once: of two versions in one batch the later.
    pub(super) fn rows(&self) -> BTreeMap<Key, (u64, &'a Row, Timestamp)> {
        let writes = self.planned.iter().flat_map(|p| p.set.writes.iter().map(move |w| (w, p.set.at)));
        writes.map(|(w, at)| (w.row.key(), (w.expected + 1, &w.row, at))).collect()
    }
}

async fn put_head(
    conn: &mut SqliteConnection,
    org: &OrgName,
    head: Head,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let query = sqlx::query(sql::PUT_HEAD).bind(org.as_str()).bind(int(head.size));
    query.bind(head.hash.to_vec()).bind(now.micros()).execute(conn).await.map(drop)
}

/// A row's claim, once its transaction holds it.
pub(super) fn receipt(org: &OrgName, fence: u64) -> Claim {
    Claim::receipted(org.clone(), fence)
}

/// A refusal that may have rested on a neighbour that isn't durable after all. A conflict is decided anew
/// in any case; anything else must not be taken for the last word.
fn relative(refused: Refused) -> Refused {
    match refused {
        Refused::OverBudget(_) | Refused::Taken(_) | Refused::Duplicate(_) => {
            Refused::Unavailable("the batch it was settled in wasn't committed".to_owned())
        }
        other => other,
    }
}

/// What a failed statement means for the sets that it was to write.
fn refused(e: &sqlx::Error) -> Refused {
    const FULL: i32 = 13;
    const CONSTRAINT: i32 = 19;
    match primary_code(e) {
        Some(FULL) => Refused::DiskFull,
        Some(CONSTRAINT) => Refused::Wrong(e.to_string()),
        _ => Refused::Unavailable(e.to_string()),
    }
}

/// After this failure of a COMMIT nothing of it is durable, for certain
/// (<https://www.sqlite.org/lang_transaction.html>): busy, full, constraint.
fn is_certain(e: &sqlx::Error) -> bool {
    matches!(primary_code(e), Some(5 | 13 | 19))
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Before(e) => e.fmt(f),
            Self::Writing(e, _) => e.fmt(f),
            Self::Unknown(_) => f.write_str("the commit's outcome is unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_rests_on_an_undone_neighbour_is_not_the_last_word() {
        assert!(matches!(relative(Refused::Duplicate("edge")), Refused::Unavailable(_)));
        assert!(matches!(relative(Refused::Conflict(Key::Registry)), Refused::Conflict(_)));
    }

    #[test]
    fn a_failure_that_sqlite_does_not_explain_leaves_the_outcome_unknown() {
        assert!(!is_certain(&sqlx::Error::WorkerCrashed));
        assert!(!is_certain(&sqlx::Error::Io(std::io::Error::other("gone"))));
    }
}
