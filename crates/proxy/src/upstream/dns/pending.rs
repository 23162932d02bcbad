//! Counts the names whose first resolution has not ended, so that the start of the gateway and a reload can wait for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The number of names whose first resolution has not ended. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingNames(Arc<(Mutex<usize>, Condvar)>);

/// A name whose first resolution has not ended. Its owner drops this at the end of the resolution.
#[derive(Debug)]
pub(super) struct PendingName(PendingNames);

impl PendingNames {
    pub(super) fn add(&self) -> PendingName {
        *self.0.0.lock() += 1;
        PendingName(self.clone())
    }

    /// Blocks until all first resolutions have ended, at most for `limit`. Returns the number of those that have not.
    pub(super) fn wait(&self, limit: Duration) -> usize {
        let (number, changed) = &*self.0;
        let mut number = number.lock();
        changed.wait_while_for(&mut number, |number| *number > 0, limit);
        *number
    }
}

impl Drop for PendingName {
    fn drop(&mut self) {
        let (number, changed) = &*self.0.0;
        *number.lock() -= 1;
        changed.notify_all();
    }
}
