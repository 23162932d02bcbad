//! Finds out whether an upstream is still there, and whether anybody needs it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// An upstream that is silent for so long while it has requests is asked whether it is still there, and is given as long
/// again to say so.
const SILENCE: Duration = Duration::from_secs(20);
/// How long until it is asked again, unless it said something else. Servers of gRPC close a connection whose client asks
/// more often (`too_many_pings`).
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// A connection without requests is closed after so many times [`SILENCE`].
const IDLE: u32 = 3;

/// What watches over one connection.
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    timer: Pin<Box<Sleep>>,
    /// What had been heard when it was looked at last.
    heard: u64,
    asked: Option<Instant>,
    is_asking: bool,
    idle: u32,
}

/// What becomes of a connection.
pub(super) enum CloseReason {
    /// The upstream does not answer.
    Unresponsive,
    /// Nobody has used it for long.
    Idle,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>) -> Self {
        Self { pings, timer: Box::pin(sleep(SILENCE)), heard: 0, asked: None, is_asking: false, idle: 0 }
    }

    /// Ready with a verdict on a connection on which there are so many requests, and so much has been heard.
    pub(super) fn poll(&mut self, streams: usize, heard: u64, cx: &mut Context<'_>) -> Poll<CloseReason> {
        loop {
            if self.is_asking && self.pings.as_mut().is_none_or(|pings| pings.poll_pong(cx).is_ready()) {
                self.is_asking = false;
            }
            ready!(self.timer.as_mut().poll(cx));
            self.timer.as_mut().reset(Instant::now() + SILENCE);
            if self.is_asking {
                return Poll::Ready(CloseReason::Unresponsive);
            }
            let was_silent = std::mem::replace(&mut self.heard, heard) == heard;
            if streams > 0 {
                self.idle = 0;
                self.ask_if(was_silent);
                continue;
            }
            self.idle = if was_silent { self.idle + 1 } else { 0 };
            if self.idle >= IDLE {
                return Poll::Ready(CloseReason::Idle);
            }
        }
    }

    fn ask_if(&mut self, was_silent: bool) {
        if !was_silent {
            self.asked = None;
        } else if self.asked.is_none_or(|asked| asked.elapsed() >= PATIENCE)
            && let Some(pings) = &mut self.pings
        {
            self.asked = Some(Instant::now());
            self.is_asking = pings.send_ping(Ping::opaque()).is_ok();
        }
    }
}
