//! One at a time: many requests need the same thing at once, and one of them opens it for all.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Mutex;

/// Whose turn it is to open something.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: Mutex<()>,
    failures: AtomicU64,
}

impl Turn {
    /// What is there, else what is opened. Those who waited for an attempt that failed fail with it, or each would wait for all
    /// before it.
    pub(super) async fn open<T>(
        &self,
        there: impl Fn() -> Option<T>,
        opening: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let failures = self.failures.load(Relaxed);
        if let Some(there) = there() {
            return Ok(there);
        }
        let _turn = self.taken.lock().await;
        if let Some(opened) = there() {
            return Ok(opened);
        }
        if self.failures.load(Relaxed) != failures {
            return Err(io::ErrorKind::NotConnected.into());
        }
        opening.await.inspect_err(|_| _ = self.failures.fetch_add(1, Relaxed))
    }
}
