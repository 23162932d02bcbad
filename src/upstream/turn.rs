//! One at a time: many requests need the same thing at once, and one of them opens it for all.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Mutex;

/// Whose turn it is to open something.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: Arc<Mutex<()>>,
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
        self.follow(failures)?;
        opening.await.inspect_err(|_| self.fail())
    }

    /// The same, by a task of its own: it is opened for all, also where who asked for it has left.
    pub(super) async fn open_for_all<T, F>(
        self: &Arc<Self>,
        there: impl Fn() -> Option<T>,
        opening: impl FnOnce() -> F,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = io::Result<T>> + Send + 'static,
    {
        let failures = self.failures.load(Relaxed);
        if let Some(there) = there() {
            return Ok(there);
        }
        let turn = Arc::clone(&self.taken).lock_owned().await;
        if let Some(opened) = there() {
            return Ok(opened);
        }
        self.follow(failures)?;
        let (this, opening) = (Arc::clone(self), opening());
        let opened = tokio::spawn(async move {
            let _turn = turn;
            opening.await.inspect_err(|_| this.fail())
        });
        opened.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }

    /// Fails with an attempt that was under way.
    fn follow(&self, failures: u64) -> io::Result<()> {
        let has_failed = self.failures.load(Relaxed) != failures;
        if has_failed { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    fn fail(&self) {
        self.failures.fetch_add(1, Relaxed);
    }
}
