//! Who may open the file, and what is refused by name.

use std::path::Path;
use std::sync::Arc;

use exeat_core::change::{Refused, Row};
use exeat_core::ports::{Archive as _, Find, Store as _, Unreadable};
use exeat_store::{OpenError, Options, Sqlite};
use exeat_testkit::contract::fixtures::Maker;
use exeat_testkit::contract::{HandClock, defaults, org};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

async fn try_open(dir: &Path, name: &str) -> Result<Arc<Sqlite>, OpenError> {
    let clock = Arc::new(HandClock::new());
    let org = name.parse().unwrap();
    Sqlite::open(&dir.join("exeat.db"), org, defaults(), clock, Options::default()).await
}

async fn sqlite(path: &Path, script: &'static str) {
    let url = format!("sqlite://{}?mode=rwc", path.display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_has_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let first = try_open(dir.path(), "main").await.unwrap();
    let refused = try_open(dir.path(), "main").await.err().unwrap();
    assert!(
        matches!(&refused, OpenError::LockedByOther { .. }) && refused.to_string().contains("exeat.lock")
    );
    first.shutdown().await;
    try_open(dir.path(), "main").await.unwrap();
}

#[tokio::test]
async fn the_files_of_the_record_are_their_owners_alone_whatever_the_folder_allows() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let set =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(dir.path(), 0o755);
    let all_private = || {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap());
        let modes: Vec<_> =
            files.map(|f| (f.file_name(), f.metadata().unwrap().permissions().mode() & 0o777)).collect();
        assert!(modes.len() >= 4 && modes.iter().all(|(_, mode)| *mode == 0o600), "{modes:?}");
    };
    let store = try_open(dir.path(), "main").await.unwrap();
    all_private();
    store.shutdown().await;
    // What an earlier version left open is closed.
    for name in ["exeat.db", "exeat.lock"] {
        set(&dir.path().join(name), 0o644);
    }
    let store = try_open(dir.path(), "main").await.unwrap();
    all_private();
    store.shutdown().await;
}

#[tokio::test]
async fn each_opening_is_another_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=3 {
        let store = try_open(dir.path(), "main").await.unwrap();
        assert_eq!(store.incarnation(), n);
        let kept = store.setting(&org(), "incarnation").await.unwrap();
        assert_eq!(kept, Some((serde_json::json!(n), n)));
        store.shutdown().await;
    }
}

#[tokio::test]
async fn another_orgs_store_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    try_open(dir.path(), "main").await.unwrap().shutdown().await;
    let refused = try_open(dir.path(), "other").await.err().unwrap();
    assert!(matches!(refused, OpenError::OtherOrg { found } if found == "main"));
    try_open(dir.path(), "main").await.unwrap();
}

#[tokio::test]
async fn what_is_no_record_of_ours_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exeat.db");
    let garbage = b"this is no database, and long enough to be taken for one. ".repeat(100);
    std::fs::write(&path, &garbage).unwrap();
    assert!(matches!(try_open(dir.path(), "main").await, Err(OpenError::Corrupt { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
    std::fs::remove_file(&path).unwrap();
    sqlite(&path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").await;
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(try_open(dir.path(), "main").await, Err(OpenError::Corrupt { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    try_open(dir.path(), "main").await.unwrap().shutdown().await;
    sqlite(&dir.path().join("exeat.db"), "PRAGMA user_version = 99").await;
    let refused = try_open(dir.path(), "main").await.err().unwrap();
    assert!(matches!(refused, OpenError::NewerSchema { found: 99, .. }));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_to_is_refused() {
    // Nobody may make a file there, root included.
    let refused = try_open(Path::new("/sys/kernel"), "main").await.err().unwrap();
    assert!(matches!(refused, OpenError::ReadOnly { .. }), "{refused:?}");
    let refused = try_open(Path::new("/no/such/folder"), "main").await.err().unwrap();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
}

#[tokio::test]
async fn after_shutdown_everything_is_refused_and_nothing_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let store = try_open(dir.path(), "main").await.unwrap();
    let mut m = Maker::new(store.now().await.unwrap(), 1);
    store.shutdown().await;
    store.shutdown().await;
    assert!(matches!(store.commit(m.set()).await, Err(Refused::Unavailable(_))));
    assert!(matches!(store.head(&org()).await, Err(Unreadable::Unavailable(_))));
}

#[tokio::test]
async fn a_store_that_was_dropped_under_load_has_all_that_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let store = try_open(dir.path(), "main").await.unwrap();
    let mut m = Maker::new(store.now().await.unwrap(), 1);
    let sets: Vec<_> = (0..300)
        .map(|_| {
            let mut set = m.set();
            set.drafts.push(m.note(&set, None));
            set
        })
        .collect();
    let ids: Vec<_> = sets.iter().map(|s| s.id).collect();
    let (told, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for set in sets {
        let (store, told) = (Arc::clone(&store), told.clone());
        tasks.spawn(async move {
            let id = set.id;
            if store.commit(set).await.is_ok() {
                told.send(id).unwrap();
            }
        });
    }
    drop((store, told));
    let first = acknowledged.recv().await.unwrap();
    // Whoever waits for an answer goes away, and the store with them.
    tasks.shutdown().await;
    let mut sure = vec![first];
    while let Some(id) = acknowledged.recv().await {
        sure.push(id);
    }
    let store = loop {
        match try_open(dir.path(), "main").await {
            Ok(store) => break store,
            Err(OpenError::LockedByOther { .. }) => tokio::task::yield_now().await,
            Err(e) => panic!("{e}"),
        }
    };
    for id in sure {
        assert!(store.settled(&org(), id).await.unwrap(), "an acknowledged change is gone");
    }
    let mut durable = 0;
    for id in ids {
        durable += u64::from(store.settled(&org(), id).await.unwrap());
    }
    assert_eq!(store.head(&org()).await.unwrap().size, durable, "a change is half there");
}

#[tokio::test]
async fn of_hops_that_share_a_foreign_task_in_an_older_record_the_first_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = try_open(dir.path(), "main").await.unwrap();
    let mut m = Maker::new(store.now().await.unwrap(), 1);
    let task = m.task();
    let bridges = [m.bridge(task.id), m.bridge(task.id)];
    let rows = [Row::Agent(m.agent(1)), Row::Task(task.clone())];
    let set = m.writing(rows.into_iter().chain(bridges.clone().map(Row::Bridge)));
    store.commit(set).await.unwrap();
    store.shutdown().await;
    let older = "DROP INDEX a2a_bridge_open; DROP INDEX a2a_bridge_foreign;
        CREATE INDEX a2a_bridge_foreign ON a2a_bridge (org_id, foreign_agent_key, foreign_task_id)
            WHERE foreign_task_id IS NOT NULL;
        UPDATE a2a_bridge SET foreign_task_id = 'one', doc = json_set(doc, '$.foreign.task', 'one');
        PRAGMA user_version = 1";
    sqlite(&dir.path().join("exeat.db"), older).await;
    let store = try_open(dir.path(), "main").await.unwrap();
    let found = store.load(&org(), Find::Task(task.id)).await.unwrap().unwrap();
    let shown: Vec<_> =
        found.bridges.iter().map(|(b, v)| (b.hop, b.foreign.as_ref().map(|f| &*f.task), *v)).collect();
    assert_eq!(shown, [(bridges[0].hop, Some("one"), 1), (bridges[1].hop, None, 1)]);
}

#[tokio::test]
async fn what_an_older_record_spent_stands_on_the_accounts_of_every_period() {
    use exeat_core::cost::{Account, Balance, Period, Scope};
    let dir = tempfile::tempdir().unwrap();
    let store = try_open(dir.path(), "main").await.unwrap();
    let mut m = Maker::new(store.now().await.unwrap(), 1);
    let task = m.task();
    let bridge = m.bridge(task.id);
    let set = m.writing([Row::Agent(m.agent(1)), Row::Task(task), Row::Bridge(bridge)]);
    store.commit(set).await.unwrap();
    store.shutdown().await;
    // 2026-03-17T13:45:00Z; the settlement came after midnight.
    let older = "INSERT INTO cost_entry
            (org_id, at, change_id, hop_id, turn, entry, amount_microusd, reserved_delta, settled_delta)
            SELECT 'main', 1773755100000000, 'c', id, 1, 'reserve', 5, 5, 0 FROM a2a_bridge
            UNION ALL SELECT 'main', 1773841500000000, 'd', id, 1, 'settle', 5, -5, 5 FROM a2a_bridge
            UNION ALL SELECT 'main', 1773841500000000, 'e', id, 2, 'reserve', 7, 7, 0 FROM a2a_bridge;
        INSERT INTO account (org_id, scope, since, reserved_microusd, settled_microusd) VALUES ('main', 'org', 0, 7, 5);
        PRAGMA user_version = 3";
    sqlite(&dir.path().join("exeat.db"), older).await;
    let store = try_open(dir.path(), "main").await.unwrap();
    let at = "2026-03-17T13:45:00Z".parse().unwrap();
    for scope in [Scope::Org, Scope::Agent("auditor".parse().unwrap())] {
        for period in Period::ALL {
            let account = Account { scope: scope.clone(), since: period.start(at) };
            let was_kept = scope == Scope::Org && period == Period::None;
            let kept = Balance { reserved_microusd: if was_kept { 7 } else { 0 }, settled_microusd: 5 };
            assert_eq!(store.balance(&org(), &account).await.unwrap(), kept, "{account:?}");
        }
    }
}
