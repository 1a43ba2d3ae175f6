//! What the database does on its own: the baseline that a benchmark of the record is held against. It knows nothing of
//! the record but its connection and its pragmas.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, SqliteConnection};

use super::{Options, open, sql};

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS baseline (org_id TEXT NOT NULL, id INTEGER NOT NULL, due_at INTEGER, doc BLOB NOT NULL,
        PRIMARY KEY (org_id, id));
    CREATE INDEX IF NOT EXISTS baseline_due ON baseline (org_id, due_at)";
/// `?2` rows from number `?1` on, each with the content `?3`: every second one is there since the last time. Keys are
/// no sequence.
const PUT: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
    INSERT INTO baseline (org_id, id, due_at, doc)
    SELECT 'main', ((?1 + i - iif(i % 2 = 1, ?2, 0)) * 2654435761) % 1000000007, ?1 + i, ?3 FROM n WHERE true
    ON CONFLICT (org_id, id) DO UPDATE SET due_at = excluded.due_at, doc = excluded.doc";
const PRAGMAS: [(&str, &str); 5] = [
    ("journal_mode", "SELECT journal_mode FROM pragma_journal_mode"),
    ("synchronous", "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous"),
    ("page_size", "SELECT CAST(page_size AS TEXT) FROM pragma_page_size"),
    ("cache_size", "SELECT CAST(cache_size AS TEXT) FROM pragma_cache_size"),
    ("journal_size_limit", "SELECT CAST(journal_size_limit AS TEXT) FROM pragma_journal_size_limit"),
];

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Rows in one transaction.
    pub rows: u32,
    /// Bytes of content in each.
    pub bytes: usize,
    /// How long.
    pub span: Duration,
}

/// Rows a second that one connection writes and syncs, as the record's writer is opened: upserts into a table with a
/// primary key and one index, half of them of rows that are there.
///
/// # Errors
/// If the database fails.
pub async fn rows_per_second(file: &Path, load: Load) -> Result<f64, sqlx::Error> {
    let mut conn = open::writer(file, &Options::default()).await?;
    sqlx::raw_sql(TABLE).execute(&mut conn).await?;
    let content = vec![b'x'; load.bytes];
    let (began, mut written) = (started(), 0_i64);
    while began.elapsed() < load.span {
        sqlx::query(sql::BEGIN).execute(&mut conn).await?;
        let put = sqlx::query(PUT).bind(written).bind(i64::from(load.rows)).bind(&content);
        put.execute(&mut conn).await?;
        sqlx::query(sql::COMMIT).execute(&mut conn).await?;
        written += i64::from(load.rows);
    }
    let took = began.elapsed();
    conn.close().await?;
    Ok(u32::try_from(written).map_or(f64::MAX, f64::from) / took.as_secs_f64())
}

/// The pragmas of the record's writer, as the database tells them.
///
/// # Errors
/// If the database fails.
pub async fn pragmas(file: &Path) -> Result<Vec<(&'static str, String)>, sqlx::Error> {
    let mut conn: SqliteConnection = open::writer(file, &Options::default()).await?;
    let mut told = Vec::new();
    for (name, question) in PRAGMAS {
        let value: String = sqlx::query_scalar(question).fetch_one(&mut conn).await?;
        told.push((name, value));
    }
    conn.close().await?;
    Ok(told)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn started() -> Instant {
    Instant::now()
}
