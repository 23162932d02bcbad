//! Drives a connection: polls its protocol, its timer and the drain.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
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

/// How far the end of a connection is: it drains, it finishes, or both. Without a drain, it finishes when it has been
/// idle for too long.
#[derive(Debug, Default)]
struct Ending {
    is_draining: bool,
    /// Whether the connection accepts no more requests.
    is_finishing: bool,
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
        let drain = &self.context.drain;
        let now = Instant::now();
        let first_check = self.next_check().unwrap_or(now);
        let mut timer = pin!(sleep_until(if may_idle { first_check.min(now + IDLE_DELAY) } else { first_check }));
        let mut drain_started = pin!(drain.started());
        let mut ending = Ending::default();
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
                if is_registered && !timer.is_elapsed() && (ending.has_begun() || !drain.has_started()) {
                    return Poll::Pending;
                }
                registered = Some(cx.waker().clone());
                if !ending.has_begun() && drain_started.as_mut().poll(cx).is_ready() {
                    connection.as_mut().begin_drain();
                    ending.is_draining = true;
                    let deadline = timer.deadline().min(Instant::now() + DRAIN_GRACE);
                    timer.as_mut().reset(deadline);
                    registered = None; // the timer must register the waker again
                    continue;
                }
                ready!(timer.as_mut().poll(cx));
                registered = None;
                match self.check(connection.as_mut(), &mut ending, may_idle) {
                    ControlFlow::Continue(next_check) => {
                        next_check.into_iter().for_each(|next_check| timer.as_mut().reset(next_check));
                    }
                    ControlFlow::Break(end) => return Poll::Ready(end),
                }
            }
        })
        .await
    }

    /// Checks the timers of a connection. Returns when to check them again; `None` for as soon as it has been polled.
    fn check(
        &self,
        mut connection: Pin<&mut impl Drainable>,
        ending: &mut Ending,
        may_idle: bool,
    ) -> ControlFlow<End, Option<Instant>> {
        let ServerContext { limits, metrics, .. } = &*self.context;
        if ending.is_draining && !ending.is_finishing && self.has_no_more_requests() {
            connection.as_mut().finish();
            ending.is_finishing = true;
        }
        match self.activity.check_timers(limits) {
            TimerAction::Wait(_) if self.activity.is_busy() && connection.client_has_closed() => {}
            TimerAction::Wait(_) if may_idle && !ending.has_begun() && self.activity.is_idle() => {
                return ControlFlow::Break(End::Idle);
            }
            TimerAction::Wait(until) if ending.is_draining || may_idle && !self.activity.is_upgraded() => {
                return ControlFlow::Continue(Some(until.min(Instant::now() + IDLE_DELAY)));
            }
            TimerAction::Wait(until) => return ControlFlow::Continue(Some(until)),
            TimerAction::Finish if !ending.is_finishing => {
                connection.finish();
                ending.is_finishing = true;
                return ControlFlow::Continue(Some(Instant::now() + limits.header_timeout));
            }
            TimerAction::Finish => {}
            TimerAction::EndUpload => {
                metrics.rejected(SLOW_UPLOAD);
                self.activity.stop_upload_wait();
                connection.end_upload();
                return ControlFlow::Continue(None);
            }
            TimerAction::Close(cause) => {
                metrics.rejected(cause);
                if self.activity.is_busy() {
                    // The client may have half a response, and the kernel may still hold its other half.
                    self.activity.abort_response();
                }
            }
        }
        ControlFlow::Break(End::Closed)
    }

    /// Returns `true` if the grace period for a request that may be on its way has passed.
    fn has_no_more_requests(&self) -> bool {
        self.activity.client_wait().is_some_and(|wait| wait.is_idle_for(DRAIN_GRACE))
    }
}

// === impl Ending ===

impl Ending {
    fn has_begun(&self) -> bool {
        self.is_draining || self.is_finishing
    }
}
