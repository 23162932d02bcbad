//! Whether a client is still there while it is being answered and says nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use super::shared_counters::SharedCounters;

/// Asks a client that has been silent for a while, and gives it as long again to say anything.
#[derive(Debug)]
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// What had been read when it was looked at last.
    last_read: u64,
    ping_sent: bool,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>, interval: Duration) -> Self {
        Self { pings, interval, timer: Box::pin(sleep(interval)), last_read: 0, ping_sent: false }
    }

    /// Ready when the client is gone. One that has asked for nothing is left alone: it is idle, and that has a limit.
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
        // The answer to the last one makes room for the next. Anything that was read is answer enough.
        _ = pings.poll_pong(cx);
        pings.send_ping(Ping::opaque()).is_ok()
    }
}
