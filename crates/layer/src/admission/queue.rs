//! The wait queues of one gateway: [the queues as data](tidegate_rules::evaluation::wait), and the tasks that wait in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use tidegate_limit::random::random;
use tidegate_rules::charge::BucketId;
use tidegate_rules::evaluation::wait::{self, Claim, JoinError};

/// The most requests of a queue for which a ticket keeps permits.
const MAX_IN_TICKET: usize = 32;

/// The wait queues of one gateway.
#[derive(Debug)]
pub struct WaitQueues {
    /// A random number, by which the store distinguishes the queues of gateways.
    id: u64,
    /// The moment from which the times of the queues are counted.
    start: Instant,
    state: Mutex<Queues>,
    /// The number of queues, so that requests need no lock while none waits.
    len: AtomicUsize,
    closed: watch::Sender<bool>,
}

/// The queues as data, with the tasks to wake.
pub(super) type Queues = wait::WaitQueues<Arc<Notify>>;

/// The place of a request in a queue, and its claims. Leaves the queue on drop.
#[derive(Debug)]
pub struct Place<'q> {
    queues: &'q WaitQueues,
    place: wait::Place<Arc<Notify>>,
}

// === impl WaitQueues ===

impl Default for WaitQueues {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueues {
    /// Creates queues without waiting requests.
    pub fn new() -> Self {
        Self {
            id: u64::from_le_bytes(random()),
            start: Instant::now(),
            state: Mutex::default(),
            len: AtomicUsize::new(0),
            closed: watch::Sender::new(false),
        }
    }

    /// Returns the random number of these queues.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends all waits and accepts no further requests.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns `true` if the queues accept no further requests.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the queues are closed.
    pub async fn closed(&self) {
        // `self` owns the sender, so the wait cannot fail.
        _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns the time of the queues at this moment.
    pub fn time_of(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }

    /// Returns the time of the queues.
    pub fn now(&self) -> Duration {
        self.time_of(Instant::now())
    }

    /// Returns `true` if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Wakes the first request of this queue: something was released.
    pub fn wake(&self, bucket: &BucketId) {
        self.state.lock().first(bucket).into_iter().for_each(wake);
    }

    /// Returns `true` if a request waits in this queue.
    pub fn is_waited_for(&self, bucket: &BucketId) -> bool {
        !self.is_empty() && self.state.lock().count(bucket) > 0
    }

    /// Creates a place in no queue.
    pub fn place(&self) -> Place<'_> {
        Place { queues: self, place: wait::Place::new(Arc::default()) }
    }

    /// Reads or changes the queues.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Queues) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.len.store(state.len(), Ordering::Relaxed);
        result
    }
}

/// Wakes the task of a waiting request.
pub(super) fn wake(task: &Arc<Notify>) {
    task.notify_one();
}

// === impl Place ===

impl Place<'_> {
    /// Joins the queue of a bucket, of at most `limit` requests, with these claims. Keeps the place in this queue if the
    /// request is there. Otherwise leaves its former queue, unless it cannot join this one.
    ///
    /// # Errors
    /// The queue is full, or a claim cannot be made. After [`close`](WaitQueues::close), every queue is full.
    pub fn join(&mut self, bucket: BucketId, limit: usize, claims: Vec<Claim>) -> Result<(), JoinError> {
        let now = self.queues.now();
        self.change(|queues, place| queues.join(place, bucket, limit, claims, now, wake))
            .unwrap_or(Err(JoinError::Full))
    }

    /// Changes the queues and this place. Returns `None` if the queues are closed.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Queues, &mut wait::Place<Arc<Notify>>) -> T,
    ) -> Option<T> {
        let Self { queues, place } = self;
        (!queues.is_closed()).then(|| queues.with(|queues| change(queues, place)))
    }

    /// Returns how long the request has been in its queue.
    pub fn age(&self) -> Duration {
        self.queues.now().saturating_sub(self.place.joined_at())
    }

    /// Returns for this request and the next ones of the queue how much later than this one they joined it, in milliseconds.
    pub fn ages(&self) -> Vec<u32> {
        self.queues.state.lock().ages(&self.place, MAX_IN_TICKET)
    }

    /// Leaves the queue, and gives up the claims.
    pub fn leave(&mut self) {
        if self.place.is_joined() {
            self.queues.with(|queues| queues.leave(&mut self.place, wake));
        }
    }

    /// Waits until this is the first place in its queue.
    pub async fn wait_until_first(&self) {
        while !self.is_first() {
            self.changed().await;
        }
    }

    /// Waits until this has become the first place, or claims on its bucket were given up.
    pub async fn changed(&self) {
        self.place.waker().notified().await;
    }

    /// Returns `true` if no other request is before this one.
    pub fn is_first(&self) -> bool {
        !self.place.is_joined() || self.queues.state.lock().is_first(&self.place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn bucket(name: &str) -> BucketId {
        (name.to_owned(), None)
    }

    fn claim(name: &str, free: u32) -> Claim {
        Claim { index: 0, bucket: bucket(name), permits: 1, free }
    }

    fn place<'q>(queues: &'q WaitQueues, name: &str) -> Place<'q> {
        let mut place = queues.place();
        place.join(bucket(name), 10, Vec::new()).expect("a place");
        place
    }

    fn is_ready(wait: impl Future<Output = ()>) -> bool {
        pin!(wait).as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn requests_retry_in_the_order_of_joining() {
        let queues = WaitQueues::new();
        let (first, mut moving, last) = (place(&queues, "a"), place(&queues, "b"), place(&queues, "a"));
        moving.join(bucket("a"), 10, Vec::new()).expect("a place");
        assert!(!queues.is_waited_for(&bucket("b")), "it left its former queue");
        assert_eq!([&first, &last, &moving].map(|place| is_ready(place.wait_until_first())), [true, false, false]);
        drop(first);
        assert_eq!([&last, &moving].map(|place| is_ready(place.wait_until_first())), [true, false]);
        drop(last);
        assert!(is_ready(moving.wait_until_first()));
        drop(moving);
        assert!(queues.is_empty(), "an empty queue was not removed");
    }

    #[test]
    fn claims_bound_the_requests_in_a_wider_queue() {
        let queues = WaitQueues::new();
        let (mut first, mut second) = (queues.place(), place(&queues, "own"));
        first.join(bucket("all"), 10, vec![claim("own", 1)]).expect("a place");
        assert_eq!(
            queues.place().join(bucket("all"), 10, vec![claim("own", 1)]),
            Err(JoinError::Claimed(claim("own", 1)))
        );
        queues.place().join(bucket("all"), 10, vec![claim("own", 2)]).expect("another permit is free");
        while is_ready(second.changed()) {}
        drop(first);
        assert!(is_ready(second.changed()), "the claim was given up");
        assert_eq!(second.join(bucket("all"), 10, vec![claim("own", 1)]), Ok(()));
    }

    #[test]
    fn full_or_closed_queue_accepts_no_request() {
        let queues = WaitQueues::new();
        let _first = place(&queues, "a");
        assert_eq!(queues.place().join(bucket("a"), 1, Vec::new()), Err(JoinError::Full));
        assert_eq!(queues.place().join(bucket("b"), 1, Vec::new()), Ok(()));
        queues.close();
        assert_eq!(queues.place().join(bucket("b"), 1, Vec::new()), Err(JoinError::Full));
    }
}
