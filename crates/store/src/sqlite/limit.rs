//! What the database does on its own: the baseline that a benchmark of the record is held against. It knows nothing of
//! the record but its connection and its pragmas.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, SqliteConnection};

use super::{Options, open, sql};

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
    sqlx::raw_sql(sql::LIMIT_TABLE).execute(&mut conn).await?;
    let content = vec![b'x'; load.bytes];
    let (began, mut written) = (started(), 0_i64);
    while began.elapsed() < load.span {
        sqlx::query(sql::BEGIN).execute(&mut conn).await?;
        let put = sqlx::query(sql::LIMIT_PUT).bind(written).bind(i64::from(load.rows)).bind(&content);
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
    for (name, question) in sql::PRAGMAS {
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
