//! A connection and the calls under way on it, which are answered in their order.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::call::{Again, Call, Next, Way};
use super::lane::Shared;
use super::link::Live;
use super::load::{Load, Waiting};
use super::wire::Wire;
use crate::store::StoreError;

/// Calls that are sent without waiting for the answers to those before.
pub(super) struct Pipeline {
    wire: Wire,
    pub(super) live: Live,
    calls: VecDeque<Call>,
    /// How this Redis is asked, as far as is known.
    way: Way,
}

impl Pipeline {
    pub(super) fn new(wire: Wire, live: Live) -> Self {
        let way = if live.keeps_functions { Way::Function } else { Way::Digest };
        Self { wire, live, calls: VecDeque::new(), way }
    }

    /// How many calls about limits of ours are under way that somebody waits for.
    pub(super) fn calls_of_ours(&self) -> usize {
        self.calls.iter().filter(|call| call.load.is_ours() && !call.load.is_empty()).count()
    }

    /// Does anybody wait for it?
    pub(super) fn is_waited_for(&self) -> bool {
        self.calls.iter().any(|call| !call.load.is_empty())
    }

    /// Since when the one has waited that has waited longest.
    pub(super) fn since(&self) -> Option<Instant> {
        self.calls.iter().filter_map(|call| call.load.since()).min()
    }

    /// Sends a call, with the next look for replies.
    pub(super) fn send(&mut self, load: Load, shared: &Shared) {
        self.ask(Call::new(load, self.way, shared), shared);
    }

    fn ask(&mut self, mut call: Call, shared: &Shared) {
        call.write(&self.live.secret, shared, self.wire.unsent());
        self.calls.push_back(call);
    }

    /// Waits for a reply, or for the end of the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let flushed = self.wire.poll_flush(cx);
        match (self.wire.poll_reply(cx), flushed) {
            // What has come is an answer, whatever becomes of what was sent since.
            (Poll::Ready(Ok(())), _) => Poll::Ready(Ok(())),
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(Err(StoreError::Broken)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }

    /// Takes the reply that has come, and tells who waits for it. Returns how long Redis took, and who asks again at once.
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(super) fn settle(&mut self, shared: &Shared) -> Result<Option<(Duration, Vec<Waiting>)>, StoreError> {
        let (Some(reply), Some(mut call)) = (self.wire.take_reply(), self.calls.pop_front()) else {
            return Err(StoreError::Shape);
        };
        if call.replies_before > 0 {
            call.replies_before -= 1;
            self.calls.push_front(call);
            return Ok(None);
        }
        let (took, mut again) = (call.sent.elapsed(), Vec::new());
        match call.next(reply, shared) {
            Next::Tell(answers) => again = call.load.tell(&answers),
            Next::Ask(way) if !call.load.is_empty() => {
                call.way = self.way_for(way);
                self.ask(call, shared);
            }
            Next::Ask(_) => {}
            Next::Fail(error) => {
                call.load.fail(&error);
                if error.condemns_connection() {
                    return Err(error);
                }
            }
        }
        Ok(Some((took, again)))
    }

    fn way_for(&mut self, again: Again) -> Way {
        match again {
            Again::AsUsual => self.way,
            Again::By(way) => way,
            Again::WithoutFunctions => {
                self.way = Way::Digest;
                self.way
            }
        }
    }

    /// Tells everybody that nothing more will come.
    pub(super) fn fail(self, error: &StoreError) {
        self.calls.into_iter().for_each(|call| call.load.fail(error));
    }

    /// Tells those whose time is over. Does nobody wait for a call any more that has been under way for most of that time?
    pub(super) fn give_up_overdue(&mut self, now: Instant, timeout: Duration) -> bool {
        self.calls.iter_mut().for_each(|call| call.load.give_up_overdue(now, timeout));
        self.calls.iter().any(|call| call.load.is_empty() && call.sent + timeout / 2 <= now)
    }
}
