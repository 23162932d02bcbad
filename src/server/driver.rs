//! Drives a connection: polls its protocol, its timer and the drain.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::ServerContext;
use super::activity::{Activity, IDLE_DELAY, SLOW_UPLOAD, TimerAction};
use super::drain::Drain;
use tidegate_limit::clock::share_poll_time;

/// How long a client may take for its first byte or its next request after a drain has started. The request may
/// already be on its way, and for the client a close without a response is a failure.
const DRAIN_GRACE: Duration = IDLE_DELAY;

/// Waits until the drain has started and its grace period has passed.
pub(crate) async fn wait_for_drain_grace(drain: &Drain) {
    drain.started().await;
    sleep(DRAIN_GRACE).await;
}

/// A connection that can be drained.
pub(crate) trait Drainable: Future {
    /// Finishes the requests in flight, and serves one more that may be on its way.
    fn begin_drain(self: Pin<&mut Self>);

    /// Finishes the requests in flight, and accepts no more.
    fn finish(self: Pin<&mut Self>);

    /// Ends the request body that is being read, because the client is too slow.
    fn end_upload(self: Pin<&mut Self>) {}

    /// Returns `true` if the client has closed the connection behind unread bytes.
    fn client_has_closed(&self) -> bool {
        false
    }
}

/// Drives one connection.
#[derive(Debug)]
pub(crate) struct ConnectionDriver {
    pub(crate) activity: Arc<Activity>,
    pub(crate) context: Arc<ServerContext>,
}

/// Why [`ConnectionDriver::drive`] returned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Closed,
    /// The connection is open and idle.
    Idle,
}

// === impl ConnectionDriver ===

impl ConnectionDriver {
    /// Returns when to check an idle connection again. Returns `None` if it has timed out.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        match self.activity.check_timers(&self.context.limits) {
            TimerAction::Wait(until) => Some(until),
            TimerAction::Finish | TimerAction::EndUpload | TimerAction::Close(_) => None,
        }
    }

    /// Polls the connection, its timer and the drain. If `may_idle`, returns when the connection becomes idle.
    pub(crate) async fn drive(&self, mut connection: Pin<&mut impl Drainable>, may_idle: bool) -> End {
        let ServerContext { limits, drain, metrics, .. } = &*self.context;
        let now = Instant::now();
        let first_check = self.next_check().unwrap_or(now);
        let mut timer = pin!(sleep_until(if may_idle { first_check.min(now + IDLE_DELAY) } else { first_check }));
        let mut drain_started = pin!(drain.started());
        let (mut is_draining, mut is_finishing) = (false, false);
        // The waker that the timer and the drain wake. They are polled only after they fired or if the waker changed,
        // not for every request.
        let mut registered: Option<Waker> = None;
        poll_fn(|cx| {
            loop {
                // Errors are the client's fault, and were answered if possible.
                if share_poll_time(|| connection.as_mut().poll(cx)).is_ready() {
                    return Poll::Ready(End::Closed);
                }
                let is_registered = registered.as_ref().is_some_and(|registered| registered.will_wake(cx.waker()));
                if is_registered && !timer.is_elapsed() && (is_draining || is_finishing || !drain.has_started()) {
                    return Poll::Pending;
                }
                registered = Some(cx.waker().clone());
                if !is_draining && !is_finishing && drain_started.as_mut().poll(cx).is_ready() {
                    connection.as_mut().begin_drain();
                    is_draining = true;
                    let deadline = timer.deadline().min(Instant::now() + DRAIN_GRACE);
                    timer.as_mut().reset(deadline);
                    registered = None; // the timer must register the waker again
                    continue;
                }
                ready!(timer.as_mut().poll(cx));
                registered = None;
                if is_draining
                    && !is_finishing
                    && self.activity.client_wait().is_some_and(|wait| wait.is_idle_for(DRAIN_GRACE))
                {
                    connection.as_mut().finish();
                    is_finishing = true;
                }
                match self.activity.check_timers(limits) {
                    TimerAction::Wait(_) if self.activity.is_busy() && connection.client_has_closed() => {
                        return Poll::Ready(End::Closed);
                    }
                    TimerAction::Wait(_) if may_idle && !is_draining && !is_finishing && self.activity.is_idle() => {
                        return Poll::Ready(End::Idle);
                    }
                    TimerAction::Wait(until) if is_draining || may_idle && !self.activity.is_upgraded() => {
                        timer.as_mut().reset(until.min(Instant::now() + IDLE_DELAY));
                    }
                    TimerAction::Wait(until) => timer.as_mut().reset(until),
                    TimerAction::Finish if !is_finishing => {
                        connection.as_mut().finish();
                        is_finishing = true;
                        timer.as_mut().reset(Instant::now() + limits.header_timeout);
                    }
                    TimerAction::Finish => return Poll::Ready(End::Closed),
                    TimerAction::EndUpload => {
                        metrics.rejected(SLOW_UPLOAD);
                        self.activity.stop_upload_wait();
                        connection.as_mut().end_upload();
                    }
                    TimerAction::Close(cause) => {
                        metrics.rejected(cause);
                        if self.activity.is_busy() {
                            // The client may have half a response, and the kernel may still hold its other half.
                            self.activity.abort_response();
                        }
                        return Poll::Ready(End::Closed);
                    }
                }
            }
        })
        .await
    }
}
