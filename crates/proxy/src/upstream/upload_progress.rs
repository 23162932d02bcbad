//! The progress of a request body, shared by the body and the wait for the response.
//!
//! Distinguishes a slow client from a slow upstream. Holds a body back until the upstream requests it (`Expect:
//! 100-continue`). Requests without a body have no progress.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::UpstreamError;

/// How long a body is held back if the upstream sends no response. The upstream may not support 100 (RFC 9110 section
/// 10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Returns `true` if the client sends its body only after a 100 response (RFC 9110 section 10.1.1).
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The progress of a request body.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    start: Instant,
    /// Milliseconds from `start` to the last progress, or to the release of the body.
    last_progress: AtomicU64,
    /// Whether the upload waits for bytes of the client.
    waits_for_client: AtomicBool,
    /// Whether the rest of the response waits for the client's connection.
    waits_for_reader: AtomicBool,
    /// Whether any of the body was requested from the client.
    was_requested: AtomicBool,
    /// Whether the body is held back.
    is_held: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl UploadProgress {
    /// Creates the progress of a body that was not read yet. If `is_held`, the body waits for
    /// [`release`](Self::release).
    pub(super) fn new(is_held: bool) -> Self {
        Self {
            start: Instant::now(),
            last_progress: AtomicU64::new(0),
            waits_for_client: AtomicBool::new(false),
            waits_for_reader: AtomicBool::new(false),
            was_requested: AtomicBool::new(false),
            is_held: AtomicBool::new(is_held),
            waker: Mutex::new(None),
        }
    }

    /// Awaits a response until `limit` after the last progress of the body, or after its release.
    pub(crate) async fn await_response<T>(
        &self,
        response: impl Future<Output = T>,
        limit: Duration,
    ) -> Result<T, UpstreamError> {
        tokio::select! {
            biased;
            result = response => Ok(result),
            error = self.stalled(limit) => Err(error),
        }
    }

    async fn stalled(&self, limit: Duration) -> UpstreamError {
        if self.is_held() {
            sleep(CONTINUE_WAIT.min(limit)).await;
            self.release();
        }
        loop {
            let remaining = (self.last_progress() + limit).saturating_duration_since(Instant::now());
            match remaining.is_zero() {
                true if self.waits_for_reader.load(Relaxed) => self.restart_response_time(),
                true if self.waits_for_client.load(Relaxed) => return UpstreamError::ClientStalled,
                true => return UpstreamError::TimedOut,
                false => sleep(remaining).await,
            }
        }
    }

    /// Records that the body progressed, or ended.
    pub(crate) fn record_progress(&self) {
        self.was_requested.store(true, Relaxed);
        self.waits_for_client.store(false, Relaxed);
        self.restart_response_time();
    }

    /// Restarts the time until the response.
    fn restart_response_time(&self) {
        self.last_progress.store(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the time of the last progress, or of the release of the body.
    pub(crate) fn last_progress(&self) -> Instant {
        self.start + Duration::from_millis(self.last_progress.load(Relaxed))
    }

    /// Records that the upload waits for bytes of the client.
    pub(crate) fn set_waits_for_client(&self) {
        self.was_requested.store(true, Relaxed);
        self.waits_for_client.store(true, Relaxed);
    }

    /// Records whether the rest of the response waits for the client's connection. The time of the wait does not count.
    pub(super) fn set_waits_for_reader(&self, waits: bool) {
        if self.waits_for_reader.swap(waits, Relaxed) && !waits {
            self.restart_response_time();
        }
    }

    /// Returns `true` if any of the body was requested from the client.
    pub(crate) fn was_requested(&self) -> bool {
        self.was_requested.load(Relaxed)
    }

    /// Returns `true` while the body is held back.
    fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Releases the body. The time until the response counts from here: the client sends its body only now.
    pub(crate) fn release(&self) {
        if !self.is_held() {
            return;
        }
        self.restart_response_time();
        self.is_held.store(false, Relaxed);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Waits until the body is released.
    pub(crate) fn poll_released(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_held() {
            *self.waker.lock() = Some(cx.waker().clone());
        }
        // Checked again after the waker is stored: `release` may have been called in between.
        if self.is_held() { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    async fn error_after(progress: &UploadProgress) -> (UpstreamError, Duration) {
        let start = Instant::now();
        let error = progress.await_response(pending::<()>(), LIMIT).await.unwrap_err();
        (error, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn release_restarts_the_response_time() {
        let progress = UploadProgress::new(true);
        let (error, time) = error_after(&progress).await;
        assert!(error == UpstreamError::TimedOut && time >= 2 * LIMIT, "{time:?}");
        assert!(!progress.was_requested());

        // The upstream requests the body after two thirds of the time.
        let progress = UploadProgress::new(true);
        let release = async {
            advance(LIMIT * 2 / 3).await;
            progress.release();
            progress.set_waits_for_client();
        };
        let ((error, time), ()) = tokio::join!(error_after(&progress), release);
        assert_eq!(error, UpstreamError::ClientStalled);
        assert!((LIMIT * 5 / 3..LIMIT * 2).contains(&time), "{time:?}");
    }
}
