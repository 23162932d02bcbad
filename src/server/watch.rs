//! Timeouts and the drain of a connection.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Terms;
use super::activity::{Activity, REST, SLOW_UPLOAD, Verdict};
use super::drain::Drain;

/// How long during a drain a client may take for its first byte, or for its next request after the last one: that may be on
/// its way already, and an end without an answer is a failure to its client.
const LAST_WORD: Duration = REST;

/// Returns when a client that has sent nothing until then is not waited for any longer.
pub(crate) async fn last_word(drain: &Drain) {
    drain.started().await;
    sleep(LAST_WORD).await;
}

/// A protocol's connection.
pub(crate) trait Connection: Future {
    /// Finishes the requests under way, and takes the one that may be on its way.
    fn wind_down(self: Pin<&mut Self>);

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
        // Told of the drain; and of that nothing follows.
        let (mut told, mut retired) = (false, false);
        // Whom the timer and the drain wake. They are asked when they did, and not at every request.
        let mut watcher: Option<Waker> = None;
        poll_fn(|cx| {
            loop {
                // What goes wrong is the client's doing, and has been answered if it could be.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(End::Over);
                }
                let watched = watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker()));
                if watched && !timer.is_elapsed() && (told || retired || !drain.has_started()) {
                    return Poll::Pending;
                }
                watcher = Some(cx.waker().clone());
                if !told && !retired && drained.as_mut().poll(cx).is_ready() {
                    connection.as_mut().wind_down();
                    told = true;
                    let deadline = timer.deadline().min(Instant::now() + LAST_WORD);
                    timer.as_mut().reset(deadline);
                    watcher = None; // the timer does not know yet whom to wake
                    continue;
                }
                ready!(timer.as_mut().poll(cx));
                watcher = None;
                if told && !retired && self.activity.wait().is_some_and(|wait| wait.is_for_a_request(LAST_WORD)) {
                    connection.as_mut().retire();
                    retired = true;
                }
                match self.activity.judge(limits) {
                    Verdict::Wait(_) if self.activity.is_busy() && connection.is_left() => {
                        return Poll::Ready(End::Over);
                    }
                    Verdict::Wait(_) if may_rest && !told && !retired && self.activity.rests() => {
                        return Poll::Ready(End::Resting);
                    }
                    Verdict::Wait(until) if told || may_rest && !self.activity.is_switched() => {
                        timer.as_mut().reset(until.min(Instant::now() + REST));
                    }
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
