//! What tests of the gateway talk to and talk with: raw sockets at both ends.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

pub mod frames;
pub mod raw;
pub mod upstream;

use std::future::Future;
use std::time::Duration;

/// Waits for what must happen soon; longer than any machine needs, and shorter than anybody's patience.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("should have happened long ago")
}

/// Waits until `condition` holds.
pub async fn until(mut condition: impl FnMut() -> bool) {
    soon(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Waits until `condition` holds, for what takes its time.
pub async fn until_within(patience: Duration, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience, holds).await.expect("should have happened long ago");
}
