//! The record in memory keeps the contract that it is the reference of.

use std::sync::Arc;

use async_trait::async_trait;
use exeat_testkit::contract::{Bench, HandClock, Record, defaults};
use exeat_testkit::memory::Memory;

struct InMemory(Memory);

#[async_trait]
impl Bench for InMemory {
    async fn open(clock: Arc<HandClock>) -> Self {
        Self(Memory::new(clock, defaults()))
    }
    fn record(&self) -> Arc<dyn Record> {
        Arc::new(self.0.clone())
    }
    async fn reopen(&mut self) -> bool {
        false
    }
}

exeat_testkit::store_contract!(InMemory);
