//! The state that a reload replaces in one step for all workers: the rules, the stores and the upstreams.

use crate::ruleset::RuleSet;
use crate::store::Store;

/// One version of the state. Each request uses the version that was active when it arrived.
#[derive(Debug)]
pub(super) struct Active {
    /// The rules, with the upstreams of each route.
    pub(super) rules: RuleSet,
    pub(super) stores: Stores,
}

/// The handles of one store: each worker has its own connections to it.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    main: Store,
    workers: Box<[Store]>,
}

// === impl Stores ===

impl Stores {
    /// Creates handles for this number of workers.
    pub(crate) fn new(main: Store, workers: usize) -> Self {
        let workers = (0..workers).map(|_| main.for_worker()).collect();
        Self { main, workers }
    }

    /// Returns the handle for threads other than workers.
    pub(crate) fn main(&self) -> &Store {
        &self.main
    }

    /// Returns the handle of a worker.
    pub(crate) fn of_worker(&self, worker: Option<usize>) -> &Store {
        worker.and_then(|worker| self.workers.get(worker)).unwrap_or(&self.main)
    }
}
