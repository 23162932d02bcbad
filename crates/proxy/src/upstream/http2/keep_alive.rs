//! Detects unresponsive upstreams with PING, and idle connections.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// The silence of an upstream with requests in flight after which the gateway sends a PING. The upstream has the same
/// time to respond.
const PING_AFTER: Duration = Duration::from_secs(20);
/// The least time between two PINGs while the upstream sends nothing else. gRPC servers close a connection with more
/// frequent PINGs (`too_many_pings`).
const PING_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// An idle connection is closed after this many periods of [`PING_AFTER`].
const MAX_IDLE_PERIODS: u32 = 3;

/// The keepalive state of one connection.
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    timer: Pin<Box<Sleep>>,
    /// The value of `received` at the last check.
    last_received: u64,
    last_ping: Option<Instant>,
    awaits_pong: bool,
    idle_periods: u32,
}

/// The reason why a connection is closed.
pub(super) enum CloseReason {
    /// The upstream has not responded to a PING.
    Unresponsive,
    /// The connection has had no requests for a while.
    Idle,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>) -> Self {
        Self {
            pings,
            timer: Box::pin(sleep(PING_AFTER)),
            last_received: 0,
            last_ping: None,
            awaits_pong: false,
            idle_periods: 0,
        }
    }

    /// Returns `Ready` once the connection is to be closed. `streams` is the number of requests in flight; `received`
    /// grows with each event from the upstream.
    pub(super) fn poll(&mut self, streams: usize, received: u64, cx: &mut Context<'_>) -> Poll<CloseReason> {
        loop {
            if self.awaits_pong && self.pings.as_mut().is_none_or(|pings| pings.poll_pong(cx).is_ready()) {
                self.awaits_pong = false;
            }
            ready!(self.timer.as_mut().poll(cx));
            self.timer.as_mut().reset(Instant::now() + PING_AFTER);
            if self.awaits_pong {
                return Poll::Ready(CloseReason::Unresponsive);
            }
            let was_silent = std::mem::replace(&mut self.last_received, received) == received;
            if streams > 0 {
                self.idle_periods = 0;
                self.ping_if(was_silent);
                continue;
            }
            self.idle_periods = if was_silent { self.idle_periods + 1 } else { 0 };
            if self.idle_periods >= MAX_IDLE_PERIODS {
                return Poll::Ready(CloseReason::Idle);
            }
        }
    }

    fn ping_if(&mut self, was_silent: bool) {
        if !was_silent {
            self.last_ping = None;
        } else if self.last_ping.is_none_or(|ping| ping.elapsed() >= PING_INTERVAL)
            && let Some(pings) = &mut self.pings
        {
            self.last_ping = Some(Instant::now());
            self.awaits_pong = pings.send_ping(Ping::opaque()).is_ok();
        }
    }
}
