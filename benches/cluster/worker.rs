//! Workers of a gateway that request decisions without pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate::Store;
use tidegate_rules::charge::Charge;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Worker threads, each with separate connections.
pub struct Workers {
    workers: Vec<(Runtime, Store)>,
    decisions: Arc<AtomicU64>,
}

impl Workers {
    /// Creates `count` workers of one gateway.
    pub fn new(count: usize, store: &Store) -> Self {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let workers = (0..count).map(|_| (runtime(), store.for_worker())).collect();
        Self { workers, decisions: Arc::default() }
    }

    /// Returns the number of decisions so far.
    pub fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }

    /// Makes these charges with `concurrency` concurrent requests while `measure` runs. Returns its result.
    pub fn run<T>(
        &self,
        concurrency: usize,
        charges: impl Fn(usize) -> Vec<Charge> + Send + Sync + 'static,
        measure: impl FnOnce() -> T,
    ) -> T {
        let (charges, is_over, mut asking) = (Arc::new(charges), Arc::new(AtomicBool::new(false)), JoinSet::new());
        for first in 0..concurrency {
            let (runtime, store) = &self.workers[first % self.workers.len()];
            let (store, decisions) = (store.clone(), Arc::clone(&self.decisions));
            let (charges, is_over) = (Arc::clone(&charges), Arc::clone(&is_over));
            let ask = async move {
                for request in (first..).step_by(concurrency) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    store.take(&charges(request)).await.expect("a decision");
                    decisions.fetch_add(1, Ordering::Relaxed);
                }
            };
            asking.spawn_on(ask, runtime.handle());
        }
        let result = measure();
        is_over.store(true, Ordering::Relaxed);
        self.workers[0].0.block_on(asking.join_all());
        result
    }
}
