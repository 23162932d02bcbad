//! Bounds the bytes that all requests of one client connection keep to send them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bound of a connection. A single request may keep more.
const MAX_KEPT: usize = 512 * 1024;

/// The kept bytes of one client connection.
#[derive(Debug, Default)]
pub(crate) struct ReplayBudget(AtomicUsize);

/// The kept bytes of one request. They count until this is dropped.
#[derive(Debug, Default)]
pub(super) struct KeptBytes {
    /// `None` if the client connection has one request at a time.
    budget: Option<Arc<ReplayBudget>>,
    bytes: usize,
}

impl KeptBytes {
    pub(super) fn new(budget: Option<Arc<ReplayBudget>>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Adds bytes. Returns `false` if the connection has no room for them.
    pub(super) fn try_add(&mut self, count: usize) -> bool {
        let Some(ReplayBudget(kept)) = self.budget.as_deref() else { return true };
        let own = self.bytes;
        let has_room = |kept: usize| (kept == own || kept + count <= MAX_KEPT).then_some(kept + count);
        let is_added = kept.fetch_update(Relaxed, Relaxed, has_room).is_ok();
        self.bytes += if is_added { count } else { 0 };
        is_added
    }

    /// Removes all bytes but `rest`.
    pub(super) fn shrink(&mut self, rest: usize) {
        if let Some(ReplayBudget(kept)) = self.budget.as_deref() {
            let removed = self.bytes.saturating_sub(rest);
            kept.fetch_sub(removed, Relaxed);
            self.bytes -= removed;
        }
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.shrink(0);
    }
}
