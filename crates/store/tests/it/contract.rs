//! Every promise of the ports, over a real file.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use exeat_store::{Options, Sqlite};
use exeat_testkit::contract::{Bench, HandClock, Record, defaults, org};
use tempfile::TempDir;

pub(crate) struct OnDisk {
    pub(crate) dir: TempDir,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) store: Arc<Sqlite>,
}

pub(crate) async fn open(dir: &Path, clock: &Arc<HandClock>) -> Arc<Sqlite> {
    let clock = Arc::clone(clock);
    Sqlite::open(&dir.join("exeat.db"), org(), defaults(), clock, Options::default()).await.unwrap()
}

#[async_trait]
impl Bench for OnDisk {
    async fn open(clock: Arc<HandClock>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &clock).await;
        Self { dir, clock, store }
    }
    fn record(&self) -> Arc<dyn Record> {
        Arc::<Sqlite>::clone(&self.store)
    }
    async fn reopen(&mut self) -> bool {
        self.store.shutdown().await;
        self.store = open(self.dir.path(), &self.clock).await;
        true
    }
}

exeat_testkit::store_contract!(OnDisk);
