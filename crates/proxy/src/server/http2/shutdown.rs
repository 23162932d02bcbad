//! Graceful shutdown of a connection, bounded in time and in streams.
//!
//! `h2` announces a shutdown by a GOAWAY with the highest stream identifier and a PING. When the client acknowledges
//! the PING, `h2` sends the final GOAWAY with the last stream that it has read, and closes the connection after its last
//! stream. A client that does not acknowledge the PING could open streams for ever. Therefore, [`GRACE`] after the
//! announcement, the gateway refuses new streams, and closes the connection after the last of the others.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::server::activity::IDLE_DELAY;

/// How long requests may arrive that the client sent before it read the announcement. HTTP/1 clients have the same
/// time.
const GRACE: Duration = IDLE_DELAY;

/// The shutdown of one connection.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// Runs from the announcement to the deadline.
    timer: Option<Pin<Box<Sleep>>>,
    is_announced: bool,
    /// Streams that were refused since the announcement.
    refused: u32,
}

impl Shutdown {
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// Records the announcement, and starts the timer.
    pub(super) fn announce(&mut self) {
        if !self.is_announced {
            self.is_announced = true;
            self.timer = Some(Box::pin(sleep(GRACE)));
        }
    }

    /// Counts a refused stream. Returns `true` if the client has opened more streams than it could before reading the
    /// announcement.
    pub(super) fn count_refused(&mut self, max_streams: u32) -> bool {
        self.refused += 1;
        self.refused > max_streams
    }

    /// Returns `Ready` once, at the deadline.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }
}

/// Returns how many requests before the last one a shutdown is announced: as many as may be in flight then, but at
/// most a tenth of the connection's requests.
pub(super) fn announced_ahead(max_requests: u32, max_streams: u32) -> u32 {
    max_streams.min(max_requests / 10)
}
