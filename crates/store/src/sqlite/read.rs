//! Rows back into domain values. A row that can't be is named, never guessed around.

use exeat_core::ledger::chain::Head;
use exeat_core::payload::Sealed;
use exeat_core::ports::{StoredRecord, Unreadable};
use serde::de::DeserializeOwned;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Decode, Row as _, Sqlite, Type};

/// A store that doesn't answer.
pub(super) fn unavailable(e: &sqlx::Error) -> Unreadable {
    Unreadable::Unavailable(e.to_string())
}

/// An impossible row.
pub(super) fn corrupt(table: &'static str, key: impl Into<String>, why: impl ToString) -> Unreadable {
    Unreadable::Corrupt { table, key: key.into(), why: why.to_string() }
}

/// One column.
pub(super) fn get<'r, T>(
    row: &'r SqliteRow,
    table: &'static str,
    key: &str,
    column: usize,
) -> Result<T, Unreadable>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
    usize: ColumnIndex<SqliteRow>,
{
    row.try_get(column).map_err(|e| corrupt(table, key, e))
}

/// A count, a version or an amount: never negative.
pub(super) fn count(
    row: &SqliteRow,
    table: &'static str,
    key: &str,
    column: usize,
) -> Result<u64, Unreadable> {
    let n: i64 = get(row, table, key, column)?;
    u64::try_from(n).map_err(|e| corrupt(table, key, e))
}

/// A domain value from its JSON.
pub(super) fn doc<T: DeserializeOwned>(table: &'static str, key: &str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|e| corrupt(table, key, e))
}

/// A row whose document must be of the key that the column says.
pub(super) fn keyed<T: DeserializeOwned>(
    table: &'static str,
    key: &str,
    text: &str,
    own: impl Fn(&T) -> String,
) -> Result<T, Unreadable> {
    let value: T = doc(table, key, text)?;
    let inner = own(&value);
    if inner == key { Ok(value) } else { Err(corrupt(table, key, format!("its document is of {inner}"))) }
}

/// 32 bytes.
pub(super) fn bytes32(table: &'static str, key: &str, bytes: &[u8]) -> Result<[u8; 32], Unreadable> {
    bytes.try_into().map_err(|_| corrupt(table, key, format!("{} bytes where 32 must be", bytes.len())))
}

/// A payload from its salt and its bytes, in these columns.
pub(super) fn sealed(row: &SqliteRow, key: &str, salt: usize, bytes: usize) -> Result<Sealed, Unreadable> {
    let salt = bytes32("payload", key, get(row, "payload", key, salt)?)?;
    Ok(Sealed { salt, bytes: get(row, "payload", key, bytes)? })
}

/// A ledger record from `seq`, `bytes`, `hash`.
pub(super) fn record(row: &SqliteRow) -> Result<StoredRecord, Unreadable> {
    let seq = count(row, "ledger", "?", 0)?;
    let key = seq.to_string();
    let hash = bytes32("ledger", &key, get(row, "ledger", &key, 2)?)?;
    Ok(StoredRecord { seq, bytes: get(row, "ledger", &key, 1)?, hash })
}

/// A head from its size and its hash.
pub(super) fn head(row: &SqliteRow, size: usize, hash: usize) -> Result<Head, Unreadable> {
    let size = count(row, "ledger_head", "size", size)?;
    let hash = bytes32("ledger_head", "hash", get(row, "ledger_head", "hash", hash)?)?;
    Ok(Head { size, hash })
}
