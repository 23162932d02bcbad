//! What is known of a request body on its way, shared between the body and whoever waits for the answer.
//!
//! It says whose fault a silence is, so that a slow upload is not taken for a slow upstream, and it holds a body back
//! until the upstream has asked for it (`Expect: 100-continue`). Requests without a body have none.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Failure;
use super::body::RequestBody;

/// How long a body is held back for an upstream that says nothing: it may never have heard of 100 (RFC 9110 section
/// 10.1.1).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A request body on its way.
#[derive(Debug)]
pub(crate) struct Transfer {
    begin: Instant,
    /// Milliseconds from `begin` to when it last moved.
    moved: AtomicU64,
    /// Whether it is the client that we are waiting for.
    starved: AtomicBool,
    failed: AtomicBool,
    gate: AtomicU8,
    held: Mutex<Option<Waker>>,
}

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const ABANDONED: u8 = 2;

/// What a body may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Flow.
    Open,
    /// End in an error: the answer came without anybody asking for it.
    Abandoned,
}

impl Transfer {
    /// Begins to watch the body of a request that has one.
    pub(crate) fn attach(request: &mut Request<RequestBody>) -> Option<Arc<Self>> {
        if http_body::Body::is_end_stream(request.body()) {
            return None;
        }
        let held = request
            .headers()
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let transfer = Arc::new(Self {
            begin: Instant::now(),
            moved: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            gate: AtomicU8::new(if held { CLOSED } else { OPEN }),
            held: Mutex::new(None),
        });
        if held {
            let opener = transfer.clone();
            hyper::ext::on_informational(request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    opener.set(OPEN);
                }
            });
        }
        request.body_mut().watch(transfer.clone());
        Some(transfer)
    }

    /// Waits for an answer for as long as `limit` after the request last moved.
    pub(crate) async fn wait<T>(&self, answer: impl Future<Output = T>, limit: Duration) -> Result<T, Failure> {
        tokio::select! {
            biased;
            result = answer => Ok(result),
            failure = self.overdue(limit) => Err(failure),
        }
    }

    async fn overdue(&self, limit: Duration) -> Failure {
        if self.gate.load(Relaxed) == CLOSED {
            sleep(CONTINUE_WAIT.min(limit)).await;
            _ = self.gate.compare_exchange(CLOSED, OPEN, Relaxed, Relaxed);
            self.wake();
        }
        loop {
            let moved = self.begin + Duration::from_millis(self.moved.load(Relaxed));
            let left = (moved + limit).saturating_duration_since(Instant::now());
            match left.is_zero() {
                true if self.starved.load(Relaxed) => return Failure::ClientStalled,
                true => return Failure::TimedOut,
                false => sleep(left).await,
            }
        }
    }

    /// The body moved, or ended.
    pub(crate) fn moved(&self) {
        self.starved.store(false, Relaxed);
        self.moved.store(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The upstream would take more, and the client has sent none yet.
    pub(crate) fn starved(&self) {
        self.starved.store(true, Relaxed);
    }

    /// The client's body broke off.
    pub(crate) fn failed(&self) {
        self.failed.store(true, Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Whether the body is still held back.
    pub(crate) fn is_held(&self) -> bool {
        self.gate.load(Relaxed) == CLOSED
    }

    /// Gives up on a body that nobody asked for.
    pub(crate) fn abandon(&self) {
        self.set(ABANDONED);
    }

    /// Whether the body may flow; pending while it is held back.
    pub(crate) fn poll_gate(&self, cx: &mut Context<'_>) -> Poll<Gate> {
        if self.is_held() {
            *self.held.lock() = Some(cx.waker().clone());
        }
        // Looked at after the waker is in place, so that no change goes unseen.
        match self.gate.load(Relaxed) {
            OPEN => Poll::Ready(Gate::Open),
            ABANDONED => Poll::Ready(Gate::Abandoned),
            _ => Poll::Pending,
        }
    }

    fn set(&self, gate: u8) {
        self.gate.store(gate, Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.held.lock().take() {
            waker.wake();
        }
    }
}
