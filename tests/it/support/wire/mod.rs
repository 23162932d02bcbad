//! Raw sockets for tests: clients and origins that control every byte.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user needs only some of the items")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

pub mod frames;
pub mod raw;
pub mod upstream;

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

/// Longer than a busy machine needs for one step of a test, and shorter than the timeouts of the gateway by default.
const PATIENCE: Duration = Duration::from_secs(25);

/// Completes with `future`, or panics after 25 s with the place of the call.
#[track_caller]
pub fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    within(PATIENCE, "the awaited step", Location::caller(), future)
}

/// Waits until `condition` holds, or panics after 25 s with the place of the call.
#[track_caller]
pub fn until(condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(PATIENCE, "the condition", Location::caller(), poll(Duration::from_millis(1), condition))
}

/// Waits until `condition` returns `true`, or panics after 25 s with the place of the call. Pauses between two attempts, which
/// would take the cores from the gateway.
#[track_caller]
pub fn eventually(mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let attempts = async move {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    within(PATIENCE, "the condition", Location::caller(), attempts)
}

/// Waits until `condition` holds, or panics after `patience` with the place of the call.
#[track_caller]
pub fn until_within(patience: Duration, condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(patience, "the condition", Location::caller(), poll(Duration::from_millis(20), condition))
}

async fn within<T>(
    patience: Duration,
    what: &'static str,
    caller: &'static Location<'static>,
    future: impl Future<Output = T>,
) -> T {
    let Ok(output) = tokio::time::timeout(patience, future).await else {
        panic!("waited {patience:?} for {what} at {caller}");
    };
    output
}

async fn poll(pause: Duration, mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(pause).await;
    }
}
