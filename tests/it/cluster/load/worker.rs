//! The workers of a gateway, which ask for decisions without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate::Store;
use tidegate::internals::StoreInternals;
use tidegate::internals::limit::Charge;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Some of them: each is a thread with connections of its own.
pub struct Workers {
    workers: Vec<(Runtime, Store)>,
    decisions: Arc<AtomicU64>,
}

impl Workers {
    /// So many workers of one gateway.
    pub fn new(count: usize, store: &Store) -> Self {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let workers = (0..count).map(|_| (runtime(), store.for_worker())).collect();
        Self { workers, decisions: Arc::default() }
    }

    /// How many decisions were made so far.
    pub fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }

    /// Has these charges made, so many requests at a time, as long as `meanwhile` runs.
    pub fn ask<T>(
        &self,
        at_a_time: usize,
        charges: impl Fn(usize) -> Vec<Charge> + Send + Sync + 'static,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let (charges, is_over, mut asking) = (Arc::new(charges), Arc::new(AtomicBool::new(false)), JoinSet::new());
        for first in 0..at_a_time {
            let (runtime, store) = &self.workers[first % self.workers.len()];
            let (store, decisions) = (store.clone(), Arc::clone(&self.decisions));
            let (charges, is_over) = (Arc::clone(&charges), Arc::clone(&is_over));
            let ask = async move {
                for request in (first..).step_by(at_a_time) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    store.take(&charges(request)).await.expect("a decision");
                    decisions.fetch_add(1, Ordering::Relaxed);
                }
            };
            asking.spawn_on(ask, runtime.handle());
        }
        let told = meanwhile();
        is_over.store(true, Ordering::Relaxed);
        self.workers[0].0.block_on(asking.join_all());
        told
    }
}
