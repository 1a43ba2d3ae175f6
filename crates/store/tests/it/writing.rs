//! What the one writer does beyond the contract: groups, disk full, orphans, rows that can't be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exeat_core::change::{Refused, Row};
use exeat_core::ports::{Archive as _, Find, Store as _, Unreadable};
use exeat_core::task::Task;
use exeat_store::{Batch, Options, Sqlite};
use exeat_testkit::contract::fixtures::Maker;
use exeat_testkit::contract::{HandClock, defaults, org};
use futures::future::join_all;
use sqlx::{Connection as _, SqliteConnection};

async fn with(dir: &std::path::Path, options: Options) -> (Arc<Sqlite>, Maker) {
    let clock = Arc::new(HandClock::new());
    let store = Sqlite::open(&dir.join("exeat.db"), org(), defaults(), clock, options).await.unwrap();
    let m = Maker::new(store.now().await.unwrap(), 1);
    (store, m)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_that_arrive_together_share_a_transaction_up_to_the_cap() {
    let dir = tempfile::tempdir().unwrap();
    let (batches, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (b, l) = (Arc::clone(&batches), Arc::clone(&most));
    let seen = move |batch: Batch| {
        b.fetch_add(1, Ordering::SeqCst);
        l.fetch_max(batch.sets, Ordering::SeqCst);
    };
    let options = Options { batch: 16, on_batch: Some(Arc::new(seen)), ..Options::default() };
    let (store, mut m) = with(dir.path(), options).await;
    let sets: Vec<_> = (0..200).map(|_| m.task()).map(Row::Task).collect();
    let sets: Vec<_> = sets.into_iter().map(|row| m.writing([row])).collect();
    for answer in join_all(sets.into_iter().map(|s| store.commit(s))).await {
        answer.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 16);
    assert!(batches.load(Ordering::SeqCst) < 100, "{batches:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_parent_is_missing_is_refused_and_its_neighbours_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut m) = with(dir.path(), Options::default()).await;
    let nowhere = m.task().id;
    let sets: Vec<_> = (0..30)
        .map(|n| {
            let row = if n % 10 == 0 { Row::Approval(m.approval(nowhere)) } else { Row::Task(m.task()) };
            let mut set = m.writing([row]);
            set.drafts.push(m.note(&set, None));
            set
        })
        .collect();
    let answers = join_all(sets.into_iter().map(|s| store.commit(s))).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(matches!(answer, Err(Refused::Wrong(_))), n % 10 == 0, "{n}: {answer:?}");
        assert_eq!(answer.is_ok(), n % 10 != 0, "{n}: {answer:?}");
    }
    assert_eq!(store.head(&org()).await.unwrap().size, 27);
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_of_the_set_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut m) = with(dir.path(), Options { max_pages: Some(200), ..Options::default() }).await;
    let small = m.task();
    let set = m.writing([Row::Task(small.clone())]);
    store.commit(set).await.unwrap();
    let task = m.task();
    let (id, payload) = m.payload(task.id, &"x".repeat(1 << 20));
    let set = m.writing([Row::Task(task.clone()), payload]);
    assert!(matches!(store.commit(set).await, Err(Refused::DiskFull)));
    assert!(store.load(&org(), Find::Task(task.id)).await.unwrap().is_none());
    assert!(store.payload(&org(), id).await.unwrap().is_none());
    // What is small still goes: halts, denials and outcomes.
    let set = m.over(1, Row::Task(small));
    store.commit(set).await.unwrap();
}

#[tokio::test]
async fn a_row_that_cannot_be_is_named_by_table_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut m) = with(dir.path(), Options::default()).await;
    let (a, b): (Task, Task) = (m.task(), m.task());
    let set = m.writing([Row::Task(a.clone()), Row::Task(b.clone()), Row::Role(role())]);
    store.commit(set).await.unwrap();
    let url = format!("sqlite://{}", dir.path().join("exeat.db").display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    for (id, doc) in [(&a, "{\"id\":".to_owned()), (&b, serde_json::to_string(&a).unwrap())] {
        let query = sqlx::query("UPDATE task SET doc = ?1 WHERE id = ?2").bind(doc).bind(id.id.to_string());
        query.execute(&mut conn).await.unwrap();
    }
    sqlx::query("UPDATE role SET doc = '[]'").execute(&mut conn).await.unwrap();
    for task in [a, b] {
        match store.load(&org(), Find::Task(task.id)).await {
            Err(Unreadable::Corrupt { table: "task", key, .. }) => assert_eq!(key, task.id.to_string()),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(store.registry(&org()).await, Err(Unreadable::Corrupt { table: "role", .. })));
}

fn role() -> exeat_core::registry::RoleEntry {
    exeat_core::registry::RoleEntry {
        name: "writer".parse().unwrap(),
        clearance: exeat_testkit::contract::fixtures::label(),
        may: std::collections::BTreeSet::new(),
        teams: std::collections::BTreeSet::new(),
    }
}

#[tokio::test]
async fn the_ledger_can_only_grow_whoever_tries() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut m) = with(dir.path(), Options::default()).await;
    let mut set = m.set();
    set.drafts.push(m.note(&set, None));
    store.commit(set).await.unwrap();
    let url = format!("sqlite://{}", dir.path().join("exeat.db").display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    for statement in ["UPDATE ledger SET bytes = x'00'", "DELETE FROM ledger"] {
        let done = sqlx::query(statement).execute(&mut conn).await;
        assert!(done.is_err_and(|e| e.to_string().contains("only grows")), "{statement}");
    }
    assert_eq!(store.records(&org(), 1, 9).await.unwrap().len(), 1);
}
