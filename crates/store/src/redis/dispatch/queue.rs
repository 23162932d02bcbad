//! The requests that wait for a call. Separate queues keep a flood of one limit from delaying the decisions of others.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::{DefaultHashBuilder, HashMap};
use tokio::time::Instant;

use super::super::hash_slots::{hash_slot_of, hash_slot_of_key};
use super::super::script::batch::{Batch, InFlightToken, MAX_WORK, PendingDecision};
use super::super::script::keys::hash_tag;
use tidegate_limit::Algorithm;
use tidegate_rules::charge::Charge;

/// The maximum number of requests that a queue adds to a call while other queues wait.
const MAX_PER_ROUND: usize = 64;

/// The overhead of a call, as a number of buckets. It bounds the calls to several hash slots that leave together, so
/// that a busy node gets few calls, and later calls are larger.
const CALL_OVERHEAD: usize = 4;

/// The number of requests that counts as one more call. Calls this large show that the node is slow, and that
/// another node may have capacity.
const REQUESTS_PER_COUNTED_CALL: usize = 128;

/// The requests that wait for a node.
#[derive(Debug)]
pub(super) struct Queue {
    /// Requests with own limits only, by their [`QueueKey`]. They share calls.
    own: HashMap<QueueKey, VecDeque<PendingDecision>>,
    /// The keys of the queues that are not empty, in round-robin order.
    round_robin: VecDeque<QueueKey>,
    /// Counts the calls in flight of `own`: one reference for each, and this one.
    in_flight: Arc<()>,
    /// Requests with shared limiters, by the names of these. Each queue has its own calls.
    redisson_queues: HashMap<String, SharedQueue>,
    /// The maximum number of calls in flight of `own`.
    depth: usize,
    /// Whether a call concerns the buckets of one hash slot.
    has_slots: bool,
    is_closed: bool,
    /// No waiting request has an earlier deadline. `None` if none waits.
    next_deadline: Option<Instant>,
    /// The task that sends requests, while it waits for one.
    sender: Option<Waker>,
}

/// The hash slot of a request in a cluster, otherwise a hash of its route. Routes with the same hash share a queue.
type QueueKey = u64;

/// Requests with the same shared limiters.
#[derive(Debug, Default)]
struct SharedQueue {
    waiting: VecDeque<PendingDecision>,
    /// Counts the calls in flight: one reference for each, and this one.
    in_flight: Arc<()>,
}

// === impl Queue ===

impl Queue {
    /// Creates an empty queue.
    pub(super) fn new(depth: usize, has_slots: bool) -> Self {
        let (own, round_robin, in_flight, redisson_queues) = Default::default();
        let (is_closed, next_deadline, sender) = Default::default();
        Self { own, round_robin, in_flight, redisson_queues, depth, has_slots, is_closed, next_deadline, sender }
    }

    /// Sets the maximum number of calls in flight.
    pub(super) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Adds a request. Returns the task to wake if the request can be sent, or if it is the first to expire.
    pub(super) fn push(&mut self, request: PendingDecision) -> Option<Waker> {
        if self.is_closed {
            return None;
        }
        let expires_first = self.expect_deadline(request.deadline());
        let (queue, in_flight, depth) = self.queue_of(&request);
        queue.push_back(request);
        if calls_in_flight(in_flight) < depth || expires_first { self.sender.take() } else { None }
    }

    /// Adds requests to the fronts of their queues.
    pub(super) fn push_front(&mut self, again: Vec<PendingDecision>) {
        for request in again.into_iter().rev() {
            self.expect_deadline(request.deadline());
            self.queue_of(&request).0.push_front(request);
        }
    }

    /// Records the deadline of a new request. Returns `true` if it is the earliest.
    fn expect_deadline(&mut self, deadline: Instant) -> bool {
        let is_earliest = self.next_deadline.is_none_or(|next| deadline < next);
        if is_earliest {
            self.next_deadline = Some(deadline);
        }
        is_earliest
    }

    /// Returns a time before which no waiting request expires. Returns `None` if none waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    /// Fails the requests whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        let mut next = None;
        for queue in self.own.values_mut().chain(self.redisson_queues.values_mut().map(|queue| &mut queue.waiting)) {
            queue.retain_mut(|request| request.expire(now));
            next = queue.iter().map(PendingDecision::deadline).chain(next).min();
        }
        self.next_deadline = next;
        self.round_robin.retain(|key| self.own.get(key).is_some_and(|queue| !queue.is_empty()));
        self.own.retain(|_, queue| !queue.is_empty());
    }

    /// Returns the queue of a request, the counter of its calls in flight, and the maximum of this counter.
    fn queue_of(&mut self, request: &PendingDecision) -> (&mut VecDeque<PendingDecision>, &Arc<()>, usize) {
        if let Some(names) = shared_limiters(request.charges()) {
            let depth = self.depth_of_shared();
            let queue = self.redisson_queues.entry(names).or_default();
            return (&mut queue.waiting, &queue.in_flight, depth);
        }
        let route = if self.has_slots { hash_slot_of_request(request) } else { route_of(request, self.own.hasher()) };
        let queue = self.own.entry(route).or_insert_with(|| {
            self.round_robin.push_back(route);
            VecDeque::new()
        });
        (queue, &self.in_flight, self.depth)
    }

    /// Returns the maximum number of calls in flight for shared limiters: half of `depth`. All requests of such a
    /// queue use the same buckets, so that one large call costs little more than a small one and leaves more of Redis
    /// to other programs.
    const fn depth_of_shared(&self) -> usize {
        self.depth.div_ceil(2)
    }

    /// Returns `Ready` if a request can be sent. Otherwise wakes this task when a request can be sent.
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_ready() {
            return Poll::Ready(());
        }
        self.set_sender(cx);
        Poll::Pending
    }

    /// Sets the task to wake at the next [`push`](Self::push).
    pub(super) fn set_sender(&mut self, cx: &Context<'_>) {
        match &mut self.sender {
            Some(sender) => sender.clone_from(cx.waker()),
            None => self.sender = Some(cx.waker().clone()),
        }
    }

    fn is_ready(&self) -> bool {
        let own = !self.round_robin.is_empty() && calls_in_flight(&self.in_flight) < self.depth;
        let depth = self.depth_of_shared();
        own || self
            .redisson_queues
            .values()
            .any(|queue| !queue.waiting.is_empty() && calls_in_flight(&queue.in_flight) < depth)
    }

    /// Returns the calls to send now. Their order in Redis is fair: no request waits for more than the calls in
    /// flight.
    pub(super) fn batches(&mut self) -> Vec<Batch> {
        self.remove_idle();
        let (now, depth) = (Instant::now(), self.depth_of_shared());
        let queues = self.redisson_queues.values_mut().filter(|queue| calls_in_flight(&queue.in_flight) < depth);
        let mut batches: Vec<Batch> = queues.map(|queue| queue.batch(now)).collect();
        if calls_in_flight(&self.in_flight) < self.depth {
            match self.has_slots {
                true => self.batches_by_slot(now, &mut batches),
                false => batches.push(self.batch_of_own(now)),
            }
        }
        batches.retain(|batch| !batch.is_empty());
        batches
    }

    /// Adds a call for each hash slot, until they are as much work as one full call.
    fn batches_by_slot(&mut self, now: Instant, batches: &mut Vec<Batch>) {
        let (token, mut work) = (InFlightToken::new(&self.in_flight), 0);
        for _ in 0..self.round_robin.len() {
            let Some(hash_slot) = self.round_robin.pop_front() else { return };
            let Some(queue) = self.own.get_mut(&hash_slot) else { continue };
            let mut batch = Batch::new(token.clone());
            batch.take_from(queue, usize::MAX, now);
            if queue.is_empty() {
                self.own.remove(&hash_slot);
            } else {
                self.round_robin.push_back(hash_slot);
            }
            work += CALL_OVERHEAD + batch.work();
            batches.push(batch);
            if work >= MAX_WORK {
                return;
            }
        }
    }

    /// Returns a call for as many requests as fit, round robin.
    fn batch_of_own(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::new(InFlightToken::new(&self.in_flight));
        while let Some(route) = self.round_robin.pop_front() {
            let Some(queue) = self.own.get_mut(&route) else { continue };
            let (before, at_most) = (queue.len(), if self.round_robin.is_empty() { usize::MAX } else { MAX_PER_ROUND });
            let is_full = batch.take_from(queue, at_most, now);
            if queue.is_empty() {
                self.own.remove(&route);
            } else if queue.len() < before {
                self.round_robin.push_back(route);
            } else {
                self.round_robin.push_front(route);
            }
            if is_full {
                break;
            }
        }
        batch
    }

    /// Adds requests to a call about shared limiters that arrived after it was created.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        let queue = shared_limiters(batch.first()).and_then(|names| self.redisson_queues.get_mut(&names));
        if let Some(queue) = queue {
            batch.take_from(&mut queue.waiting, usize::MAX, Instant::now());
        }
    }

    /// Removes all requests.
    pub(super) fn take_all(&mut self) -> Vec<PendingDecision> {
        let redisson_queues = self.redisson_queues.values_mut().map(|queue| &mut queue.waiting);
        let all = self.own.values_mut().chain(redisson_queues).flat_map(std::mem::take).collect();
        self.own.clear();
        self.round_robin.clear();
        self.next_deadline = None;
        self.remove_idle();
        all
    }

    /// Removes all requests, and accepts no more.
    pub(super) fn close(&mut self) -> Vec<PendingDecision> {
        self.is_closed = true;
        self.take_all()
    }

    fn remove_idle(&mut self) {
        self.redisson_queues.retain(|_, queue| !queue.waiting.is_empty() || calls_in_flight(&queue.in_flight) > 0);
    }
}

// === impl SharedQueue ===

impl SharedQueue {
    fn batch(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::for_redisson(InFlightToken::new(&self.in_flight));
        batch.take_from(&mut self.waiting, usize::MAX, now);
        batch
    }
}

/// Returns the number of calls that these batches count as.
pub(super) fn call_count(calls: &[Batch]) -> u64 {
    let requests: usize = calls.iter().map(Batch::len).sum();
    u64::try_from(requests / REQUESTS_PER_COUNTED_CALL).unwrap_or_default() + 1
}

fn calls_in_flight(in_flight: &Arc<()>) -> usize {
    Arc::strong_count(in_flight) - 1
}

/// Returns the names of the shared limiters of these charges; `None` if all are own. Requests with shared limiters
/// have their own queues, so that an error or a flood of one limiter does not affect others.
fn shared_limiters(charges: &[Charge]) -> Option<String> {
    let is_redisson = |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Redisson(_));
    let names: Vec<&str> = charges.iter().filter(is_redisson).map(|charge| charge.limiter.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join("\n"))
}

fn hash_slot_of_request(request: &PendingDecision) -> QueueKey {
    let of_slots = || request.slots().map_or(0, hash_slot_of_key);
    request.charges().first().map_or_else(of_slots, |first| hash_slot_of(&first.limiter, first.client.as_ref())).into()
}

fn route_of(request: &PendingDecision, hasher: &DefaultHashBuilder) -> QueueKey {
    let first = request.charges().first().map(|charge| charge.limiter.name.as_str());
    hasher.hash_one(first.or(request.slots()).map_or("", hash_tag))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::StoreError;
    use tidegate_limit::redisson::Sharing;
    use tidegate_limit::{Mode, Quota};
    use tidegate_rules::charge::{Limiter, Outcome};

    type Decision = oneshot::Receiver<Result<Outcome, StoreError>>;

    /// Creates a request about an OVERALL limit, and the receiver of its decision.
    fn request(name: &str, algorithm: Algorithm) -> (PendingDecision, Decision) {
        request_until(Instant::now() + Duration::from_secs(1), name, algorithm)
    }

    fn request_until(deadline: Instant, name: &str, algorithm: Algorithm) -> (PendingDecision, Decision) {
        let quota = Quota::new(1, 1_000, algorithm).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        let (decided, decision) = oneshot::channel();
        let charges = [Charge::new(limiter, None, 1)];
        (PendingDecision::new(&charges, None, deadline, decided), decision)
    }

    fn sizes(calls: &[Batch]) -> Vec<usize> {
        calls.iter().map(Batch::len).collect()
    }

    #[tokio::test]
    async fn each_request_fails_at_its_deadline() {
        let (mut queue, early) = (Queue::new(2, false), Instant::now());
        let late = early + Duration::from_secs(1);
        let (second, mut second_decision) = request_until(late, "shared", Algorithm::Redisson(Sharing::Configure));
        let (first, mut first_decision) = request_until(early, "own", Algorithm::TokenBucket);
        queue.push(second);
        queue.push(first);
        assert_eq!(queue.next_deadline(), Some(early));
        queue.expire(early);
        assert!(matches!(first_decision.try_recv(), Ok(Err(StoreError::Timeout))));
        assert!(second_decision.try_recv().is_err(), "its deadline has not passed");
        assert_eq!(queue.next_deadline(), Some(late));
        queue.expire(late);
        assert!(matches!(second_decision.try_recv(), Ok(Err(StoreError::Timeout))));
        assert_eq!((queue.next_deadline(), queue.batches().len()), (None, 0));
    }

    #[tokio::test]
    async fn calls_to_several_hash_slots_are_bounded_together() {
        let mut queue = Queue::new(2, true);
        let of_slot = |hash_slot: u32| request(&format!("{{{hash_slot}}}"), Algorithm::TokenBucket);
        let (requests, _waiting): (Vec<_>, Vec<_>) = (0..64).map(of_slot).unzip();
        requests.into_iter().for_each(|request| _ = queue.push(request));
        let (calls, more) = (queue.batches(), queue.batches());
        assert_eq!([sizes(&calls), sizes(&more)], [const { [1; MAX_WORK.div_ceil(CALL_OVERHEAD + 1)] }; 2]);
        assert!(queue.batches().is_empty(), "two groups are in flight");
    }

    #[tokio::test]
    async fn large_batch_counts_as_several_calls() {
        let mut queue = Queue::new(1, true);
        let of_one_limit = |_| request("{one}", Algorithm::TokenBucket);
        for (requests, counted) in
            [(REQUESTS_PER_COUNTED_CALL - 1, 1), (REQUESTS_PER_COUNTED_CALL, 2), (3 * REQUESTS_PER_COUNTED_CALL + 1, 4)]
        {
            let (requests, _waiting): (Vec<_>, Vec<_>) = (0..requests).map(of_one_limit).unzip();
            requests.into_iter().for_each(|request| _ = queue.push(request));
            assert_eq!(call_count(&queue.batches()), counted);
        }
    }

    #[tokio::test]
    async fn waiting_shared_call_takes_later_requests() {
        let (mut queue, mut waiting) = (Queue::new(2, false), Vec::new());
        let mut push = |queue: &mut Queue, name| {
            let (request, decision) = request(name, Algorithm::Redisson(Sharing::Configure));
            queue.push(request);
            waiting.push(decision);
        };
        push(&mut queue, "mine");
        let mut calls = queue.batches();
        push(&mut queue, "mine");
        push(&mut queue, "others");
        queue.fill(&mut calls[0]);
        assert_eq!(sizes(&calls), [2]);
        let others = queue.batches();
        assert_eq!(sizes(&others), [1]);
        assert_eq!(others[0].first()[0].limiter.name, "others");
    }
}
