//! Opens stores in this process from code: [`Store::memory`] and its builder.

use std::sync::Arc;

use super::{Backend, Memory, Store};
use tidegate_limit::clock::{Clock, SystemClock};
use tidegate_rules::settings::store::KeySecret;

/// Builds a store in this process; see [`Store::memory_builder`].
#[derive(Debug)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct MemoryStoreBuilder {
    clock: Arc<dyn Clock>,
    key_secret: Option<KeySecret>,
    max_buckets: usize,
}

// === impl Store ===

impl Store {
    /// Opens an empty store in this process. Its clock is the system's; tests can stop it with `tokio::time::pause`
    /// and move it with `tokio::time::advance`.
    pub fn memory() -> Self {
        Self::memory_builder().open()
    }

    /// Returns a builder for a store in this process, whose buckets are lost when it ends.
    pub fn memory_builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { clock: Arc::new(SystemClock::new()), key_secret: None, max_buckets: Memory::MAX_BUCKETS }
    }
}

// === impl MemoryStoreBuilder ===

impl MemoryStoreBuilder {
    /// Sets the clock. A [`ManualClock`](tidegate_limit::clock::ManualClock) changes only when a test sets it.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Sets the secret of the client hashes, of any length. By default the store generates one.
    pub fn key_secret(self, secret: impl AsRef<[u8]>) -> Self {
        Self { key_secret: Some(KeySecret::derive(secret.as_ref())), ..self }
    }

    /// Sets the maximum number of buckets of all limits together, by default two million. New clients of a limit without
    /// capacity share one overflow bucket.
    pub fn max_buckets(self, max_buckets: usize) -> Self {
        Self { max_buckets, ..self }
    }

    /// Opens the store, without buckets. Clones of a store share its buckets.
    pub fn open(self) -> Store {
        Store(Backend::Memory(Arc::new(Memory::bounded(self.clock, self.key_secret, self.max_buckets))))
    }
}
