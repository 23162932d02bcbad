//! Detects clients that no longer respond while they have requests in flight.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use super::shared_counters::SharedCounters;

/// Sends a PING to a client that has been silent for one interval, and gives it another interval to send anything.
#[derive(Debug)]
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// The number of bytes read at the last check.
    last_read: u64,
    ping_sent: bool,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>, interval: Duration) -> Self {
        Self { pings, interval, timer: Box::pin(sleep(interval)), last_read: 0, ping_sent: false }
    }

    /// Returns `Ready` when the client no longer responds. Idle connections are not checked, because `idle_timeout`
    /// closes them.
    pub(super) fn poll(&mut self, counters: &SharedCounters, is_busy: bool, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let read = counters.bytes_read();
            let silent = std::mem::replace(&mut self.last_read, read) == read;
            if silent && self.ping_sent && is_busy {
                return Poll::Ready(());
            }
            self.ping_sent = silent && is_busy && self.send_ping(cx);
            self.timer.as_mut().reset(Instant::now() + self.interval);
        }
    }

    fn send_ping(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pings) = &mut self.pings else { return false };
        // `h2` allows one PING at a time, so the last acknowledgement is taken first. Any received byte proves that
        // the client responds.
        _ = pings.poll_pong(cx);
        pings.send_ping(Ping::opaque()).is_ok()
    }
}
