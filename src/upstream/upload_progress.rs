//! The progress of a request body, shared between the body and the wait for the answer.
//!
//! It says whose fault a silence is, so that a slow upload is not taken for a slow upstream, and it holds a body back
//! until the upstream has asked for it (`Expect: 100-continue`). Requests without a body have none.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::UpstreamError;

/// How long a body is held back for an upstream that says nothing: it may never have heard of 100 (RFC 9110 section
/// 10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Whether the client holds its body back until it is asked for it (RFC 9110 section 10.1.1).
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A request body on its way.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    begin: Instant,
    /// Milliseconds from `begin` to when it last moved.
    moved: AtomicU64,
    /// Whether it is the client that we are waiting for.
    starved: AtomicBool,
    /// Whether the client has been asked for any of it.
    asked_for: AtomicBool,
    /// Whether the body is held back.
    closed: AtomicBool,
    held: Mutex<Option<Waker>>,
}

impl UploadProgress {
    /// A body that has not moved yet; one that is `held` back waits for [`open`](Self::open).
    pub(super) fn new(held: bool) -> Self {
        Self {
            begin: Instant::now(),
            moved: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            asked_for: AtomicBool::new(false),
            closed: AtomicBool::new(held),
            held: Mutex::new(None),
        }
    }

    /// Waits for an answer for as long as `limit` after the request last moved.
    pub(crate) async fn wait<T>(&self, answer: impl Future<Output = T>, limit: Duration) -> Result<T, UpstreamError> {
        tokio::select! {
            biased;
            result = answer => Ok(result),
            failure = self.overdue(limit) => Err(failure),
        }
    }

    async fn overdue(&self, limit: Duration) -> UpstreamError {
        if self.is_held() {
            sleep(CONTINUE_WAIT.min(limit)).await;
            self.open();
        }
        loop {
            let left = (self.last_moved() + limit).saturating_duration_since(Instant::now());
            match left.is_zero() {
                true if self.starved.load(Relaxed) => return UpstreamError::ClientStalled,
                true => return UpstreamError::TimedOut,
                false => sleep(left).await,
            }
        }
    }

    /// The body moved, or ended.
    pub(crate) fn moved(&self) {
        self.asked_for.store(true, Relaxed);
        self.starved.store(false, Relaxed);
        self.moved.store(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// When it last moved.
    pub(crate) fn last_moved(&self) -> Instant {
        self.begin + Duration::from_millis(self.moved.load(Relaxed))
    }

    /// The upstream would take more, and the client has sent none yet.
    pub(crate) fn starved(&self) {
        self.asked_for.store(true, Relaxed);
        self.starved.store(true, Relaxed);
    }

    /// Whether the client has been asked for any of it.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.asked_for.load(Relaxed)
    }

    /// Whether the body is still held back.
    fn is_held(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Lets the body flow.
    pub(crate) fn open(&self) {
        self.closed.store(false, Relaxed);
        if let Some(waker) = self.held.lock().take() {
            waker.wake();
        }
    }

    /// Ready if the body may flow.
    pub(crate) fn poll_gate(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_held() {
            *self.held.lock() = Some(cx.waker().clone());
        }
        // Looked at after the waker is in place, so that no change goes unseen.
        if self.is_held() { Poll::Pending } else { Poll::Ready(()) }
    }
}
