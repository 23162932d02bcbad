//! Wait queues: the order in which waiting requests retry. There is one queue for each bucket.
//!
//! A waiting request has a [`Ticket`], numbered in the order of arrival, in the queues of all buckets that refused it.
//! It retries when its ticket is the oldest in each of these queues. So requests are served first come, first served on
//! every bucket, without deadlocks. A dropped ticket leaves its queues.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::limit::{BucketId, Charge};

/// The wait queues of one gateway.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    state: Mutex<Queues>,
    closed: watch::Sender<bool>,
}

/// The position of a request in its queues. Leaves them on drop.
#[derive(Debug)]
pub(crate) struct Ticket<'l> {
    queues: &'l WaitQueues,
    number: u64,
    notify: Arc<Notify>,
    buckets: Vec<BucketId>,
}

/// The kind of a queue: of the client's own bucket, or of the overflow bucket, which clients beyond the store's
/// capacity share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    Own,
    Overflow,
}

/// The error of a queue that accepts no requests: it is full, or the gateway shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Debug, Default)]
struct Queues {
    next_number: u64,
    queues: HashMap<BucketId, BTreeMap<u64, Arc<Notify>>>,
}

// === impl WaitQueues ===

impl WaitQueues {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), closed: watch::Sender::new(false) }
    }

    /// Ends all waits and accepts no further requests.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Waits until the queues are closed.
    pub(crate) async fn closed(&self) {
        // `self` owns the sender, so the wait cannot fail.
        _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns `true` if a request waits for this bucket.
    pub(crate) fn is_waited_for(&self, charge: &Charge) -> bool {
        let state = self.state.lock();
        !state.queues.is_empty() && state.queues.contains_key(&charge.bucket_id())
    }

    /// Returns `true` if a request waits in this queue.
    pub(crate) fn is_queued(&self, bucket: &BucketId) -> bool {
        self.state.lock().queues.contains_key(bucket)
    }

    /// Creates a ticket that is in no queue yet.
    pub(crate) fn ticket(&self) -> Ticket<'_> {
        let mut state = self.state.lock();
        state.next_number += 1;
        Ticket { queues: self, number: state.next_number, notify: Arc::default(), buckets: Vec::new() }
    }
}

// === impl Ticket ===

impl Ticket<'_> {
    /// Joins a queue of at most `limit` requests, in the order of ticket numbers.
    pub(crate) fn join(&mut self, charge: &Charge, kind: QueueKind, limit: usize) -> Result<(), QueueFull> {
        let bucket = match kind {
            QueueKind::Own => charge.bucket_id(),
            QueueKind::Overflow => overflow_bucket(charge),
        };
        self.join_queue(bucket, limit)
    }

    /// Joins the queue of a bucket, of at most `limit` requests, in the order of ticket numbers.
    pub(crate) fn join_queue(&mut self, bucket: BucketId, limit: usize) -> Result<(), QueueFull> {
        if self.buckets.contains(&bucket) {
            return Ok(());
        }
        if *self.queues.closed.borrow() {
            return Err(QueueFull);
        }
        let mut state = self.queues.state.lock();
        let queue = state.queues.entry(bucket.clone()).or_default();
        if queue.len() >= limit.max(1) {
            return Err(QueueFull);
        }
        queue.insert(self.number, Arc::clone(&self.notify));
        self.buckets.push(bucket);
        Ok(())
    }

    /// Leaves the queue of a bucket.
    pub(crate) fn leave_queue(&mut self, bucket: &BucketId) {
        if let Some(position) = self.buckets.iter().position(|joined| joined == bucket) {
            self.queues.state.lock().leave(bucket, self.number);
            self.buckets.swap_remove(position);
        }
    }

    /// Returns `true` if the ticket is in a queue for this charge.
    pub(crate) fn waits_for(&self, charge: &Charge) -> bool {
        self.buckets.contains(&charge.bucket_id()) || self.buckets.contains(&overflow_bucket(charge))
    }

    /// Waits until this is the oldest ticket in each of its queues.
    pub(crate) async fn wait_until_first(&self) {
        while !self.is_first() {
            self.notify.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        let state = self.queues.state.lock();
        let first = |bucket| state.queues.get(bucket).and_then(|queue| queue.first_key_value());
        self.buckets.iter().all(|bucket| first(bucket).is_none_or(|(ticket, _)| *ticket == self.number))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        self.buckets.iter().for_each(|bucket| state.leave(bucket, self.number));
    }
}

impl Queues {
    /// Removes a ticket from a queue, and wakes the next one.
    fn leave(&mut self, bucket: &BucketId, number: u64) {
        let Some(queue) = self.queues.get_mut(bucket) else { return };
        queue.remove(&number);
        match queue.first_key_value() {
            Some((_, next)) => next.notify_one(),
            None => _ = self.queues.remove(bucket),
        }
    }
}

fn overflow_bucket(charge: &Charge) -> BucketId {
    (charge.limiter.name.clone(), None)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::limit::{Algorithm, Limiter, Mode, Quota};

    fn charge(name: &str) -> Charge {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.into(), Mode::Overall, quota));
        Charge::new(limiter, None, 1)
    }

    fn ticket<'l>(queues: &'l WaitQueues, buckets: &[&str]) -> Ticket<'l> {
        let mut ticket = queues.ticket();
        for bucket in buckets {
            ticket.join(&charge(bucket), QueueKind::Own, 10).expect("a ticket");
        }
        ticket
    }

    fn is_first_now(ticket: &Ticket<'_>) -> bool {
        pin!(ticket.wait_until_first()).as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn requests_retry_in_arrival_order_on_every_bucket() {
        let queues = WaitQueues::new();
        let (one, both, other) = (ticket(&queues, &["a"]), ticket(&queues, &["a", "b"]), ticket(&queues, &["b"]));
        assert_eq!([&one, &both, &other].map(is_first_now), [true, false, false]);
        drop(one);
        assert_eq!([&both, &other].map(is_first_now), [true, false]);
        drop(both);
        assert!(is_first_now(&other));
    }

    #[test]
    fn dropped_ticket_leaves_its_queues() {
        let queues = WaitQueues::new();
        let (first, second, third) = (ticket(&queues, &["a"]), ticket(&queues, &["a"]), ticket(&queues, &["a"]));
        drop(second);
        drop(first);
        assert!(is_first_now(&third));
        drop(third);
        assert!(!queues.is_waited_for(&charge("a")), "an empty queue was not removed");
    }

    #[test]
    fn full_or_closed_queue_accepts_no_request() {
        let queues = WaitQueues::new();
        let _first = ticket(&queues, &["a"]);
        assert_eq!(queues.ticket().join(&charge("a"), QueueKind::Own, 1), Err(QueueFull));
        assert_eq!(queues.ticket().join(&charge("b"), QueueKind::Own, 1), Ok(()));
        queues.close();
        assert_eq!(queues.ticket().join(&charge("b"), QueueKind::Own, 1), Err(QueueFull));
    }
}
