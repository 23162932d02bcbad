//! Whether a client is still there while it is being answered and says nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

use super::ledger::Ledger;

/// Asks a client that has been silent for a while, and gives it as long again to say anything.
#[derive(Debug)]
pub(super) struct KeepAlive {
    pings: Option<PingPong>,
    while_silent: Duration,
    timer: Pin<Box<Sleep>>,
    /// What had been read when it was looked at last.
    read: u64,
    asked: bool,
}

impl KeepAlive {
    pub(super) fn new(pings: Option<PingPong>, while_silent: Duration) -> Self {
        Self { pings, while_silent, timer: Box::pin(sleep(while_silent)), read: 0, asked: false }
    }

    /// Ready when the client is gone. One that has asked for nothing is left alone: it is idle, and that has a limit.
    pub(super) fn poll(&mut self, ledger: &Ledger, is_answering: bool, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let read = ledger.total_read();
            let silent = std::mem::replace(&mut self.read, read) == read;
            if silent && self.asked && is_answering {
                return Poll::Ready(());
            }
            self.asked = silent && is_answering && self.ask(cx);
            self.timer.as_mut().reset(Instant::now() + self.while_silent);
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(pings) = &mut self.pings else { return false };
        // The answer to the last one makes room for the next. Anything that was read is answer enough.
        _ = pings.poll_pong(cx);
        pings.send_ping(Ping::opaque()).is_ok()
    }
}
