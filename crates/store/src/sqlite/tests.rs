//! What only the inside can show: that every statement is one, and what the questions read.

use std::sync::Arc;

use exeat_core::ports::Clock;
use exeat_core::registry::{Bounds, EgressMode, OrgDefaults};
use exeat_core::time::{Monotonic, Timestamp};
use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use super::*;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::of_micros(1_800_000_000_000_000)
    }
    fn monotonic(&self) -> Monotonic {
        Monotonic(0)
    }
}

async fn fresh(dir: &Path) -> (Arc<Sqlite>, SqliteConnection) {
    let levels = exeat_core::label::Levels::default();
    let defaults = OrgDefaults {
        default_label: levels.parse("internal").unwrap(),
        levels,
        egress_cap: EgressMode::On,
        bounds: Arc::new(Bounds::default()),
    };
    let (db, org) = (dir.join("exeat.db"), "main".parse().unwrap());
    let store = Sqlite::open(&db, org, defaults, Arc::new(Noon), Options::default()).await.unwrap();
    let conn = open::writer(&db, &Options::default()).await.unwrap();
    (store, conn)
}

/// Every string of `sql.rs`: the file holds nothing else between quotes.
fn statements() -> Vec<&'static str> {
    let code: Vec<&str> = include_str!("sql.rs").split('"').collect();
    code.into_iter().skip(1).step_by(2).collect()
}

#[tokio::test]
async fn every_statement_is_one_against_a_fresh_schema() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, mut conn) = fresh(dir.path()).await;
    let all = statements();
    assert!(all.len() > 80, "{}", all.len());
    for statement in all {
        let prepared = conn.prepare(AssertSqlSafe(statement).into_sql_str()).await;
        assert!(prepared.is_ok(), "{statement}: {prepared:?}");
    }
}

/// Statements that look at a whole table by their nature: an org's few entries, roles, workflows, keys; and every door
/// that was ever opened, once a callback key is rotated; and what gave up, which somebody looks through.
const WHOLE: [&str; 6] =
    [sql::REGISTRY, sql::WORKFLOWS, sql::API_KEYS, sql::ANY_TABLE, sql::LAST_CALLBACK, sql::DEAD_NOW];

#[tokio::test]
async fn among_a_hundred_thousand_rows_every_question_is_an_index_search() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, mut conn) = fresh(dir.path()).await;
    sqlx::raw_sql(MANY).execute(&mut conn).await.unwrap();
    let mut bad = Vec::new();
    // As a store is that nobody ever analysed, and as one is that somebody did.
    for _ in 0..2 {
        for statement in statements().into_iter().filter(|s| !WHOLE.contains(s)) {
            let explain = format!("EXPLAIN QUERY PLAN {statement}");
            for row in conn.fetch_all(AssertSqlSafe(explain)).await.unwrap() {
                let step: String = row.get("detail");
                let sort =
                    step.contains("TEMP B-TREE FOR ORDER BY") && DUE.iter().any(|d| statement.contains(d));
                if is_scan(&step) || is_whole_org(&step) || sort {
                    bad.push(format!("{step}\nin {statement}"));
                }
            }
        }
        sqlx::raw_sql("ANALYZE").execute(&mut conn).await.unwrap();
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

const DUE: [&str; 3] = ["wake_at", "state = 'ready'", "DESC LIMIT"];

/// A walk over a table, other than over the arrays that we bring along or over what a search found.
fn is_scan(step: &str) -> bool {
    let Some(what) = step.strip_prefix("SCAN ") else { return false };
    let ours = ["j ", "json_each", "(", "CONSTANT", "store"];
    !ours.iter().any(|o| what == *o || what.starts_with(o))
}

/// A search by the org alone, which is all rows: fine where an org has one, where the index holds only what
/// waits, or where the first one is all that is asked for.
fn is_whole_org(step: &str) -> bool {
    let few = [
        "SEARCH t USING PRIMARY KEY (org_id=?)",
        "SEARCH registry ",
        "SEARCH egress_mode ",
        "SEARCH ledger_head ",
        "SEARCH checkpoint ",
        "_due (",
        "_claimed (",
        "_open (",
    ];
    step.ends_with("(org_id=?)") && !few.iter().any(|f| step.contains(f))
}

const MANY: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO task (org_id, id, version, status, created_at, due_at, doc)
        SELECT 'main', printf('%036d', i), 1, 'running', i, CASE WHEN i % 1000 = 0 THEN i END, '{}' FROM n;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO envelope (org_id, id, version, task_id, to_endpoint, state, created_at, doc)
        SELECT 'main', printf('%036d', i), 1, printf('%036d', i), 'role:r' || i % 7,
               CASE WHEN i % 50 = 0 THEN 'ready' ELSE 'settled' END, i, '{}' FROM n;";
