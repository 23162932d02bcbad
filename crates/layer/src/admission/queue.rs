//! Wait queues: the order in which waiting requests retry. There is one queue for each bucket.
//!
//! A waiting request has a [`Place`] in one queue, in the order in which requests joined it, and retries while it is
//! first there. It claims its permits in narrower buckets, which have granted them: so no more requests of a client wait
//! in a queue of all clients than the client's own bucket can grant. A dropped place leaves its queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use tidegate_limit::random::random;
use tidegate_rules::charge::{BucketId, Decision};

/// How long after the return of a permit the last decision about a bucket is repeated to requests that a full queue
/// rejects, until the first request has a new one.
pub const MAX_LATENESS: Duration = Duration::from_secs(1);

/// The most requests of a queue for which a ticket keeps permits.
const MAX_IN_TICKET: usize = 32;

/// The wait queues of one gateway.
#[derive(Debug)]
pub struct WaitQueues {
    /// A random number, by which the store distinguishes the queues of gateways.
    id: u64,
    state: Mutex<Queues>,
    /// The number of queues, so that requests need no lock while none waits.
    len: AtomicUsize,
    closed: watch::Sender<bool>,
}

/// The place of a request in a queue, and its claims. Leaves the queue on drop.
#[derive(Debug)]
pub struct Place<'q> {
    queues: &'q WaitQueues,
    notify: Arc<Notify>,
    joined: Option<(BucketId, u64)>,
    joined_at: Instant,
    claims: Vec<Claim>,
}

/// The permits that a waiting request needs of a narrower bucket than the one that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The index of the bucket's limit, for the caller.
    pub index: usize,
    pub bucket: BucketId,
    pub permits: u32,
    /// The permits that the bucket can grant now.
    pub free: u32,
}

/// Why a request cannot join a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The queue is full, or the gateway shuts down.
    Full,
    /// Waiting requests have claimed the free permits of the bucket of this claim.
    Claimed(Claim),
}

#[derive(Debug, Default)]
struct Queues {
    next_number: u64,
    queues: HashMap<BucketId, Queue>,
}

#[derive(Debug)]
struct WaitingRequest {
    notify: Arc<Notify>,
    joined_at: Instant,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<u64, WaitingRequest>,
    /// The permits claimed by requests that wait for wider buckets.
    claimed: u64,
    /// The remaining permits of the bucket at its last decision, and when the next one returns.
    last: Option<(u32, Instant)>,
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

    /// Waits until the queues are closed.
    pub async fn closed(&self) {
        // `self` owns the sender, so the wait cannot fail.
        _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns `true` if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Wakes the first request of this queue: something was released.
    pub fn wake(&self, bucket: &BucketId) {
        let state = self.state.lock();
        let first = state.queues.get(bucket).and_then(|queue| queue.waiting.first_key_value());
        first.iter().for_each(|(_, first)| first.notify.notify_one());
    }

    /// Returns `true` if a request waits in this queue.
    pub fn is_waited_for(&self, bucket: &BucketId) -> bool {
        self.count(bucket) > 0
    }

    /// Returns the number of requests that wait in this queue.
    pub fn count(&self, bucket: &BucketId) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.state.lock().queues.get(bucket).map_or(0, |queue| queue.waiting.len())
    }

    /// Returns `true` if the bucket has unclaimed permits for a claim.
    pub fn has_free(&self, claim: &Claim) -> bool {
        self.state.lock().has_free(claim, &[])
    }

    /// Creates a place in no queue.
    pub fn place(&self) -> Place<'_> {
        Place { queues: self, notify: Arc::default(), joined: None, joined_at: Instant::now(), claims: Vec::new() }
    }

    /// Records a decision about a bucket, for requests that its full queue rejects.
    pub fn record(&self, bucket: &BucketId, decision: &Decision) {
        if let Some(queue) = self.state.lock().queues.get_mut(bucket) {
            let returns_at = Instant::now().checked_add(Duration::from_millis(decision.reset));
            queue.last = returns_at.map(|returns_at| (decision.remaining, returns_at));
        }
    }

    /// Returns the remaining permits of a bucket, and the milliseconds until the next one returns, as last recorded.
    pub fn last_decision(&self, bucket: &BucketId) -> Option<(u32, u64)> {
        let (remaining, returns_at) = self.state.lock().queues.get(bucket)?.last?;
        let now = Instant::now();
        let millis = returns_at.saturating_duration_since(now).as_millis();
        (now < returns_at + MAX_LATENESS).then_some((remaining, u64::try_from(millis).unwrap_or(u64::MAX).max(1)))
    }
}

// === impl Place ===

impl Place<'_> {
    /// Joins the queue of a bucket, of at most `limit` requests, with these claims. Keeps the place in this queue if the
    /// request is there. Otherwise leaves its former queue, unless it cannot join this one.
    pub fn join(&mut self, bucket: BucketId, limit: usize, claims: Vec<Claim>) -> Result<(), JoinError> {
        if self.joined.as_ref().is_some_and(|(joined, _)| *joined == bucket) {
            return Ok(());
        }
        if *self.queues.closed.borrow() {
            return Err(JoinError::Full);
        }
        let mut state = self.queues.state.lock();
        if let Some(claimed) = claims.iter().find(|claim| !state.has_free(claim, &self.claims)) {
            return Err(JoinError::Claimed(claimed.clone()));
        }
        if state.queues.get(&bucket).is_some_and(|queue| queue.waiting.len() >= limit.max(1)) {
            return Err(JoinError::Full);
        }
        self.leave_queues(&mut state);
        state.next_number += 1;
        let (number, joined_at) = (state.next_number, Instant::now());
        let waiting = WaitingRequest { notify: Arc::clone(&self.notify), joined_at };
        state.queues.entry(bucket.clone()).or_default().waiting.insert(number, waiting);
        for claim in &claims {
            state.queues.entry(claim.bucket.clone()).or_default().claimed += u64::from(claim.permits);
        }
        self.queues.len.store(state.queues.len(), Ordering::Relaxed);
        (self.joined, self.joined_at, self.claims) = (Some((bucket, number)), joined_at, claims);
        Ok(())
    }

    /// Returns how long the request has been in its queue.
    pub fn age(&self) -> Duration {
        self.joined_at.elapsed()
    }

    /// Returns for this request and the next ones of the queue how much later than this one they joined it, in milliseconds.
    pub fn ages(&self) -> Vec<u32> {
        let Some((bucket, number)) = &self.joined else { return Vec::new() };
        let state = self.queues.state.lock();
        let later = |one: &WaitingRequest| one.joined_at.saturating_duration_since(self.joined_at).as_millis();
        let waiting = state.queues.get(bucket).into_iter().flat_map(|queue| queue.waiting.range(number..));
        waiting.take(MAX_IN_TICKET).map(|(_, one)| u32::try_from(later(one)).unwrap_or(u32::MAX)).collect()
    }

    /// Leaves the queue, and gives up the claims.
    pub fn leave(&mut self) {
        if self.joined.is_some() {
            self.leave_queues(&mut self.queues.state.lock());
        }
    }

    fn leave_queues(&mut self, state: &mut Queues) {
        let Some((bucket, number)) = self.joined.take() else { return };
        state.change(&bucket, |queue| _ = queue.waiting.remove(&number));
        for claim in self.claims.drain(..) {
            state.change(&claim.bucket, |queue| queue.claimed -= u64::from(claim.permits));
        }
        self.queues.len.store(state.queues.len(), Ordering::Relaxed);
    }

    /// Waits until this is the first place in its queue.
    pub async fn wait_until_first(&self) {
        while !self.is_first() {
            self.notify.notified().await;
        }
    }

    /// Waits until this has become the first place, or claims on its bucket were given up.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Returns `true` if no other request is before this one.
    pub fn is_first(&self) -> bool {
        let Some((bucket, number)) = &self.joined else { return true };
        let state = self.queues.state.lock();
        let first = state.queues.get(bucket).and_then(|queue| queue.waiting.first_key_value());
        first.is_none_or(|(first, _)| first == number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

// === impl Queues ===

impl Queues {
    /// Returns `true` if the bucket has unclaimed permits for a claim of a request with these claims.
    fn has_free(&self, claim: &Claim, own: &[Claim]) -> bool {
        let claimed = self.queues.get(&claim.bucket).map_or(0, |queue| queue.claimed);
        let own = own.iter().find(|own| own.bucket == claim.bucket).map_or(0, |own| u64::from(own.permits));
        claimed - own + u64::from(claim.permits) <= u64::from(claim.free)
    }

    /// Changes a queue, wakes its first request, and removes the queue if nothing is left.
    fn change(&mut self, bucket: &BucketId, change: impl FnOnce(&mut Queue)) {
        let Some(queue) = self.queues.get_mut(bucket) else { return };
        change(queue);
        match queue.waiting.first_key_value() {
            Some((_, first)) => first.notify.notify_one(),
            None if queue.claimed == 0 => _ = self.queues.remove(bucket),
            None => {}
        }
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
        let (mut one, mut two) = (queues.place(), place(&queues, "own"));
        one.join(bucket("all"), 10, vec![claim("own", 1)]).expect("a place");
        assert_eq!(
            queues.place().join(bucket("all"), 10, vec![claim("own", 1)]),
            Err(JoinError::Claimed(claim("own", 1)))
        );
        queues.place().join(bucket("all"), 10, vec![claim("own", 2)]).expect("another permit is free");
        while is_ready(two.changed()) {}
        drop(one);
        assert!(is_ready(two.changed()), "the claim was given up");
        assert_eq!(two.join(bucket("all"), 10, vec![claim("own", 1)]), Ok(()));
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
