//! Timeouts and the drain of a connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use tokio::time::{Instant, sleep_until};

use super::Terms;
use super::activity::{Activity, REST, SLOW_UPLOAD, Verdict};

/// A protocol's connection.
pub(crate) trait Connection: Future {
    /// Finishes the requests under way, and takes no more.
    fn retire(self: Pin<&mut Self>);

    /// Ends the request body that is being read, since its client is too slow.
    fn end_upload(self: Pin<&mut Self>) {}

    /// Whether the client has closed behind bytes that are still unread.
    fn is_left(&self) -> bool {
        false
    }
}

/// What a connection is watched by.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) activity: Arc<Activity>,
    pub(crate) terms: Arc<Terms>,
}

/// How driving a connection came to an end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Over,
    /// It is open and idle.
    Resting,
}

// === impl Watch ===

impl Watch {
    /// When to look again at a connection that rests; nothing if its time is over.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.activity.judge(&self.terms.limits) {
            Verdict::Wait(until) => Some(until),
            Verdict::Retire | Verdict::EndUpload | Verdict::Close(_) => None,
        }
    }

    /// Polls a connection, its timer and the drain.
    pub(crate) async fn drive(&self, mut connection: Pin<&mut impl Connection>, may_rest: bool) -> End {
        let Terms { limits, drain, metrics, .. } = &*self.terms;
        let now = Instant::now();
        let first_look = self.until().unwrap_or(now);
        let mut timer = pin!(sleep_until(if may_rest { first_look.min(now + REST) } else { first_look }));
        let mut drained = pin!(drain.started());
        let mut retired = false;
        // Whom the timer and the drain wake. They are asked when they did, and not at every request.
        let mut watcher: Option<Waker> = None;
        poll_fn(|cx| {
            loop {
                // What goes wrong is the client's doing, and has been answered if it could be.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(End::Over);
                }
                let watched = watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker()));
                if watched && !timer.is_elapsed() && (retired || !drain.has_started()) {
                    return Poll::Pending;
                }
                watcher = Some(cx.waker().clone());
                if !retired && drained.as_mut().poll(cx).is_ready() {
                    connection.as_mut().retire();
                    retired = true;
                    continue;
                }
                ready!(timer.as_mut().poll(cx));
                watcher = None;
                match self.activity.judge(limits) {
                    Verdict::Wait(_) if self.activity.is_busy() && connection.is_left() => {
                        return Poll::Ready(End::Over);
                    }
                    Verdict::Wait(_) if may_rest && !retired && self.activity.rests() => {
                        return Poll::Ready(End::Resting);
                    }
                    Verdict::Wait(until) if may_rest => timer.as_mut().reset(until.min(Instant::now() + REST)),
                    Verdict::Wait(until) => timer.as_mut().reset(until),
                    Verdict::Retire if !retired => {
                        connection.as_mut().retire();
                        retired = true;
                        timer.as_mut().reset(Instant::now() + limits.header_timeout);
                    }
                    Verdict::Retire => return Poll::Ready(End::Over),
                    Verdict::EndUpload => {
                        metrics.rejected(SLOW_UPLOAD);
                        self.activity.leave_upload();
                        connection.as_mut().end_upload();
                    }
                    Verdict::Close(cause) => {
                        metrics.rejected(cause);
                        if self.activity.is_busy() {
                            // Half an answer may be in the client's hands, and the rest of it in the kernel's.
                            self.activity.break_off();
                        }
                        return Poll::Ready(End::Over);
                    }
                }
            }
        })
        .await
    }
}
