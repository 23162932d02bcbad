//! One attempt at a time: if many requests need the same connection, one opens it for all.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Mutex;

use super::target_error::TargetError;

/// Serializes the attempts to open a shared value.
#[derive(Debug, Default)]
pub(super) struct SingleFlight {
    lock: Arc<Mutex<()>>,
    failures: AtomicU64,
    last_error: parking_lot::Mutex<Option<TargetError>>,
}

impl SingleFlight {
    /// Returns the existing value, or opens a new one. Callers that waited for a failed attempt share its error:
    /// otherwise each would wait for the attempts of all callers before it.
    pub(super) async fn open<T>(
        &self,
        existing: impl Fn() -> Option<T>,
        opening: impl Future<Output = Result<T, TargetError>>,
    ) -> Result<T, TargetError> {
        let failures = self.failures.load(Relaxed);
        if let Some(value) = existing() {
            return Ok(value);
        }
        let _guard = self.lock.lock().await;
        if let Some(value) = existing() {
            return Ok(value);
        }
        self.share_failure(failures)?;
        opening.await.inspect_err(|error| self.record_failure(error))
    }

    /// Like [`open`](Self::open), in a separate task: it completes for all callers even if its caller is canceled.
    pub(super) async fn open_detached<T, F>(
        self: &Arc<Self>,
        existing: impl Fn() -> Option<T>,
        opening: impl FnOnce() -> F,
    ) -> Result<T, TargetError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, TargetError>> + Send + 'static,
    {
        let failures = self.failures.load(Relaxed);
        if let Some(value) = existing() {
            return Ok(value);
        }
        let guard = Arc::clone(&self.lock).lock_owned().await;
        if let Some(value) = existing() {
            return Ok(value);
        }
        self.share_failure(failures)?;
        let (this, opening) = (Arc::clone(self), opening());
        let task = tokio::spawn(async move {
            let _guard = guard;
            opening.await.inspect_err(|error| this.record_failure(error))
        });
        task.await.unwrap_or_else(|panic| Err(TargetError::connect(&panic.into())))
    }

    /// Returns the last error if an attempt has failed since there were `failures` failures.
    fn share_failure(&self, failures: u64) -> Result<(), TargetError> {
        let has_failed = self.failures.load(Relaxed) != failures;
        self.last_error.lock().clone().filter(|_| has_failed).map_or(Ok(()), Err)
    }

    fn record_failure(&self, error: &TargetError) {
        *self.last_error.lock() = Some(error.clone());
        self.failures.fetch_add(1, Relaxed);
    }
}
