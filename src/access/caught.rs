//! Catches panics of a future.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    /// The future. After a panic it is not polled again, so its state does not matter.
    pub(super) struct Caught<F> {
        #[pin]
        future: F,
    }
}

/// The future panicked; the panic hook has logged why.
#[derive(Debug)]
pub(super) struct Panicked;

/// A future that is watched.
pub(super) fn caught<F>(future: F) -> Caught<F> {
    Caught { future }
}

/// What `call` returns.
pub(super) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| Panicked)
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch(|| future.poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}
