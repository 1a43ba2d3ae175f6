//! Reading what a batch is settled against: one statement, inside the writing transaction.

use std::collections::{BTreeMap, BTreeSet};

use exeat_core::change::Key;
use exeat_core::cost::Balance;
use exeat_core::id::OrgName;
use exeat_core::ports::Unreadable;
use exeat_core::walk::batch::{Ground, Touched};
use serde_json::{Value, json};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::read::{corrupt, count, get, head, unavailable};
use super::rows::{Table, edge_columns, key_columns, scope_column, time};
use super::sql;

const ACCOUNTS: usize = Table::ALL.len();
const EDGES: usize = ACCOUNTS + 1;
const EVENTS: usize = ACCOUNTS + 2;
const PUSHED: usize = ACCOUNTS + 3;
const FOREIGN: usize = ACCOUNTS + 4;
const HEAD: usize = ACCOUNTS + 5;

/// Reads the ground of all that is touched.
pub(super) async fn read(
    conn: &mut SqliteConnection,
    org: &OrgName,
    touched: &Touched,
) -> Result<Ground, Unreadable> {
    let mut by_table: BTreeMap<Table, Vec<&Key>> = BTreeMap::new();
    for key in &touched.keys {
        by_table.entry(Table::of(key)).or_default().push(key);
    }
    let accounts: Vec<_> = touched.accounts.iter().collect();
    let edges: Vec<_> = touched.edges.iter().collect();
    let tasks: Vec<_> = touched.tasks.iter().collect();
    let pushed: Vec<_> = touched.pushed.iter().collect();
    let foreign: Vec<_> = touched.foreign.iter().collect();

    let mut query = sqlx::query(sql::GROUND).bind(org.as_str());
    for table in Table::ALL {
        query = query.bind(array(by_table.get(&table).into_iter().flatten().map(|k| key_columns(k))));
    }
    let query = query
        .bind(array(accounts.iter().map(|a| json!([scope_column(&a.scope), time(a.since)]))))
        .bind(array(edges.iter().map(|e| Value::Array(edge_columns(e)))))
        .bind(array(tasks.iter().map(|t| json!([t]))))
        .bind(array(pushed.iter().map(|(hop, digest)| json!([hop, digest]))))
        .bind(array(foreign.iter().map(|k| json!([k.agent, k.task]))));

    let mut ground = Ground::default();
    for row in &query.fetch_all(conn).await.map_err(|e| unavailable(&e))? {
        let (part, i) = (place(row, 0)?, place(row, 1)?);
        match part {
            ACCOUNTS => {
                if let Some(a) = accounts.get(i) {
                    let balance = Balance {
                        reserved_microusd: count(row, "account", "reserved", 2)?,
                        settled_microusd: count(row, "account", "settled", 3)?,
                    };
                    ground.balances.insert((*a).clone(), balance);
                }
            }
            EDGES => {
                let seq = count(row, "edge", "seq", 2)?;
                ground.edges.extend(edges.get(i).map(|e| ((*e).clone(), seq)));
            }
            EVENTS => {
                let last: Option<i64> = get(row, "task_event", "id", 2)?;
                let last = last.and_then(|n| u64::try_from(n).ok());
                ground.events.extend(tasks.get(i).zip(last).map(|(t, n)| (**t, n)));
            }
            PUSHED => ground.pushed.extend(pushed.get(i).map(|p| **p)),
            FOREIGN => {
                let id: &str = get(row, "a2a_bridge", "?", 4)?;
                let hop = id.parse().map_err(|e| corrupt("a2a_bridge", id, e))?;
                ground.foreign.extend(foreign.get(i).map(|k| ((*k).clone(), hop)));
            }
            HEAD => ground.head = head(row, 2, 4)?,
            table => {
                let keys = Table::ALL.get(table).and_then(|t| by_table.get(t));
                if let Some(key) = keys.and_then(|k| k.get(i)) {
                    ground.versions.insert((*key).clone(), count(row, "version", "?", 2)?);
                }
            }
        }
    }
    Ok(ground)
}

/// The version of one row; 0 if it isn't there.
pub(super) async fn version(
    conn: &mut SqliteConnection,
    org: &OrgName,
    key: &Key,
) -> Result<u64, Unreadable> {
    let touched = Touched { keys: BTreeSet::from([key.clone()]), ..Touched::default() };
    Ok(read(conn, org, &touched).await?.versions.get(key).copied().unwrap_or(0))
}

fn array(items: impl Iterator<Item = Value>) -> String {
    Value::Array(items.collect()).to_string()
}

fn place(row: &SqliteRow, column: usize) -> Result<usize, Unreadable> {
    let n = count(row, "ground", "?", column)?;
    Ok(usize::try_from(n).unwrap_or(usize::MAX))
}
