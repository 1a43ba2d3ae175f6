//! Opening the file: the lock, the connections, the schema, and whose record it is.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use exeat_core::id::OrgName;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::{Options, sql};

/// All migrations, in order. Each is additive and never edited once released.
const MIGRATIONS: [&str; 4] = [
    include_str!("../../migrations/sqlite/0001_record.sql"),
    include_str!("../../migrations/sqlite/0002_foreign_once.sql"),
    include_str!("../../migrations/sqlite/0003_open_bridges.sql"),
    include_str!("../../migrations/sqlite/0004_accounts_of_each_period.sql"),
];

/// Marks a file as ours (`PRAGMA application_id`): "EXEA".
const APPLICATION_ID: i32 = 0x4558_4541;

/// Why a store can't be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this one, has it open.
    #[error("another process has this store open: it holds {}", .lock.display())]
    LockedByOther {
        /// The lock file.
        lock: PathBuf,
    },
    /// A newer version of Exeat has written to it.
    #[error(
        "the store has schema {found}, and this version knows schemas up to {known}: run the newer version"
    )]
    NewerSchema {
        /// What is there.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// It is no database, a damaged one, or another program's.
    #[error("{} is no record of Exeat, or it is damaged: {why}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It is another org's; this kind of store holds one.
    #[error("the store holds the org {found}; an embedded store holds one org")]
    OtherOrg {
        /// Whose it is.
        found: String,
    },
    /// The folder or the file can't be written to.
    #[error("{} can't be written to", .path.display())]
    ReadOnly {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file system failed.
    #[error("{} can't be used", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The database failed.
    #[error("the database can't be opened")]
    Database(#[source] sqlx::Error),
}

/// Who may read and write the files of the record: their owner, whatever the folder and the umask allow.
const PRIVATE: u32 = 0o600;

/// Makes the file if it isn't there, and takes from its neighbours and it what others may do. SQLite gives its own
/// files beside it the mode of the file.
pub(super) fn keep_private(db: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE).open(db);
    made.map_err(|e| file_error(db, e))?;
    let beside = |suffix: &str| {
        let mut name = db.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    for path in [db.to_owned(), beside("-wal"), beside("-shm"), lock_path(db)] {
        match std::fs::metadata(&path) {
            Ok(m) if m.permissions().mode() & 0o077 != 0 => {
                let set = std::fs::set_permissions(&path, Permissions::from_mode(PRIVATE));
                set.map_err(|e| file_error(&path, e))?;
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(file_error(&path, e)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn lock_path(db: &Path) -> PathBuf {
    db.with_file_name("exeat.lock")
}

/// Takes the lock beside the file: `exeat.lock`. It is ours until the file is dropped.
pub(super) fn lock(db: &Path) -> Result<File, OpenError> {
    let path = lock_path(db);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(PRIVATE)
        .open(&path)
        .map_err(|e| file_error(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::LockedByOther { lock: path }),
        Err(TryLockError::Error(e)) => Err(file_error(&path, e)),
    }
}

fn file_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::ReadOnly { path, source }
        }
        _ => OpenError::Io { path, source },
    }
}

fn connect_options(db: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(db)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // With NORMAL a power cut may lose the record of a hop that has already left.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .pragma("journal_size_limit", "67108864")
        .pragma("trusted_schema", "OFF")
        .statement_cache_capacity(256)
        .disable_statement_logging()
}

/// The writing connection.
pub(super) async fn writer(db: &Path, options: &Options) -> Result<SqliteConnection, sqlx::Error> {
    write_with(connect_options(db), options).await
}

/// The writing connection anew, after one was given up. A file that is gone isn't made again.
pub(super) async fn reopened(db: &Path, options: &Options) -> Result<SqliteConnection, sqlx::Error> {
    write_with(connect_options(db).create_if_missing(false), options).await
}

async fn write_with(
    mut connect: SqliteConnectOptions,
    options: &Options,
) -> Result<SqliteConnection, sqlx::Error> {
    if let Some(pages) = options.max_pages {
        connect = connect.pragma("max_page_count", pages.to_string());
    }
    SqliteConnection::connect_with(&connect).await
}

/// The reading connections, none of which can write.
pub(super) fn readers(db: &Path, options: &Options) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(options.readers.max(1))
        .test_before_acquire(false)
        .connect_lazy_with(connect_options(db).create_if_missing(false).pragma("query_only", "ON"))
}

/// Looks at what is there before anything is changed: is it ours to open?
pub(super) async fn examine(db: &Path, org: &OrgName) -> Result<(), OpenError> {
    match std::fs::metadata(db) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(file_error(db, e)),
        Ok(_) => drop(OpenOptions::new().write(true).open(db).map_err(|e| file_error(db, e))?),
    }
    let fail = |e| database_error(db, e);
    let plain = SqliteConnectOptions::new().filename(db).disable_statement_logging();
    let mut conn = SqliteConnection::connect_with(&plain).await.map_err(fail)?;
    let verdict = examine_with(&mut conn, db, org).await;
    let _ = conn.close().await;
    verdict
}

async fn examine_with(conn: &mut SqliteConnection, db: &Path, org: &OrgName) -> Result<(), OpenError> {
    let fail = |e| database_error(db, e);
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found = scalar(conn, sql::SCHEMA_VERSION).await.map_err(fail)?;
    let mark = scalar(conn, sql::APPLICATION).await.map_err(fail)?;
    let tables = scalar(conn, sql::ANY_TABLE).await.map_err(fail)?;
    if mark != i64::from(APPLICATION_ID) && (tables > 0 || found != 0) {
        let why = "it is another program's database".to_owned();
        return Err(OpenError::Corrupt { path: db.to_owned(), why });
    }
    if found > known {
        return Err(OpenError::NewerSchema { found, known });
    }
    if found == 0 {
        return Ok(());
    }
    let holder: Option<String> = sqlx::query_scalar(sql::ORG).fetch_optional(conn).await.map_err(fail)?;
    match holder {
        Some(found) if found != org.as_str() => Err(OpenError::OtherOrg { found }),
        _ => Ok(()),
    }
}

/// Brings the schema up to date, and holds the file to its org.
pub(super) async fn prepare(conn: &mut SqliteConnection, db: &Path, org: &OrgName) -> Result<(), OpenError> {
    let fail = |e| database_error(db, e);
    let found = scalar(conn, sql::SCHEMA_VERSION).await.map_err(fail)?;
    for (n, migration) in (1..).zip(MIGRATIONS) {
        if n > found {
            migrate(conn, n, migration).await.map_err(fail)?;
        }
    }
    sqlx::query(sql::SET_ORG).bind(org.as_str()).execute(conn).await.map_err(fail)?;
    Ok(())
}

async fn scalar(conn: &mut SqliteConnection, query: &'static str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(query).fetch_one(conn).await
}

/// One migration with its number, whole or not at all.
async fn migrate(conn: &mut SqliteConnection, n: i64, migration: &'static str) -> Result<(), sqlx::Error> {
    // The numbers are ours; a pragma takes no parameter.
    let script = format!(
        "BEGIN IMMEDIATE;\n{migration}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {n};\nCOMMIT;"
    );
    let done = sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut *conn).await;
    if done.is_err() {
        // The script may have failed before its transaction began; then there is nothing to roll back.
        let _ = sqlx::raw_sql(sql::ROLLBACK).execute(conn).await;
    }
    done.map(drop)
}

/// Says what a failing database means to whoever opens it.
pub(super) fn database_error(db: &Path, e: sqlx::Error) -> OpenError {
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;
    const READ_ONLY: i32 = 8;
    match primary_code(&e) {
        Some(CORRUPT | NOT_A_DATABASE) => OpenError::Corrupt { path: db.to_owned(), why: e.to_string() },
        Some(READ_ONLY) => OpenError::ReadOnly {
            path: db.to_owned(),
            source: io::Error::new(io::ErrorKind::PermissionDenied, e),
        },
        _ => OpenError::Database(e),
    }
}

/// SQLite's primary result code (<https://www.sqlite.org/rescode.html>).
pub(super) fn primary_code(e: &sqlx::Error) -> Option<i32> {
    let code: i32 = e.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
