//! One at a time: many requests need the same thing at once, and one of them opens it for all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Mutex;

use super::target_error::TargetError;

/// Whose turn it is to open something.
#[derive(Debug, Default)]
pub(super) struct SingleFlight {
    taken: Arc<Mutex<()>>,
    failures: AtomicU64,
    last: parking_lot::Mutex<Option<TargetError>>,
}

impl SingleFlight {
    /// What is there, else what is opened. Those who waited for an attempt that failed fail with it, or each would wait for all
    /// before it.
    pub(super) async fn open<T>(
        &self,
        there: impl Fn() -> Option<T>,
        opening: impl Future<Output = Result<T, TargetError>>,
    ) -> Result<T, TargetError> {
        let failures = self.failures.load(Relaxed);
        if let Some(there) = there() {
            return Ok(there);
        }
        let _turn = self.taken.lock().await;
        if let Some(opened) = there() {
            return Ok(opened);
        }
        self.follow(failures)?;
        opening.await.inspect_err(|fault| self.fail(fault))
    }

    /// The same, by a task of its own: it is opened for all, also where who asked for it has left.
    pub(super) async fn open_detached<T, F>(
        self: &Arc<Self>,
        there: impl Fn() -> Option<T>,
        opening: impl FnOnce() -> F,
    ) -> Result<T, TargetError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, TargetError>> + Send + 'static,
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
            opening.await.inspect_err(|fault| this.fail(fault))
        });
        opened.await.unwrap_or_else(|panic| Err(TargetError::connect(&panic.into())))
    }

    /// Fails with an attempt that was under way.
    fn follow(&self, failures: u64) -> Result<(), TargetError> {
        let has_failed = self.failures.load(Relaxed) != failures;
        self.last.lock().clone().filter(|_| has_failed).map_or(Ok(()), Err)
    }

    fn fail(&self, fault: &TargetError) {
        *self.last.lock() = Some(fault.clone());
        self.failures.fetch_add(1, Relaxed);
    }
}
