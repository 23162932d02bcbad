//! Catches panics of a future.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    /// A future whose panics are caught. After a panic it is not polled again, so its state does not matter.
    pub(super) struct CatchPanic<F> {
        #[pin]
        future: F,
    }
}

/// The future panicked. The panic hook has logged the cause.
#[derive(Debug)]
pub(super) struct Panicked;

/// Catches the panics of a future.
pub(super) fn catch_panics<F>(future: F) -> CatchPanic<F> {
    CatchPanic { future }
}

/// Runs `call`, and catches its panics.
pub(super) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panicked)
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch_panic(|| future.poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}
