//! Who waits to be sent: in queues, so that a flood of one limit takes no decision from the others.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hashbrown::{DefaultHashBuilder, HashMap};
use tokio::time::Instant;

use super::super::hash_slots::hash_slot_of;
use super::super::script::batch::{Batch, InFlightToken, MAX_WORK, PendingDecision};
use super::super::script::keys::hash_tag;
use crate::limit::{Algorithm, Charge};
use crate::store::StoreError;

/// Most requests that a queue sends in its turn while others wait for theirs.
const MAX_PER_ROUND: usize = 64;

/// What a call costs a node beside its buckets, in buckets. Calls to several slots that leave together count it, so that few
/// small ones leave a busy node, and who comes meanwhile makes the next ones larger.
const CALL_OVERHEAD: usize = 4;

/// So many requests count as one more departure: where calls are for that many, they wait for the node, and others may have time.
const REQUESTS_PER_DEPARTURE: usize = 128;

/// The queues of those who wait for a node.
#[derive(Debug)]
pub(super) struct Queue {
    /// Those whose limits are all own, by the [`QueueKey`] of these. They share calls.
    own: HashMap<QueueKey, VecDeque<PendingDecision>>,
    /// The queues of these, each of which has somebody, in the order of their round_robin.
    round_robin: VecDeque<QueueKey>,
    /// One for each call that is under way for them, and this.
    in_flight: Arc<()>,
    /// The others, by their shared limiters. Each queue has calls of its own.
    shared: HashMap<String, SharedQueue>,
    /// How many calls may be under way for all of own.
    depth: usize,
    /// Is a call about the buckets of one slot?
    has_slots: bool,
    is_closed: bool,
    /// Sends them, and waits for somebody who can be sent.
    sender: Option<Waker>,
}

/// In a cluster the slot of a request; else a hash of its route. Two routes with the same hash share a queue.
type QueueKey = u64;

/// Requests about the same shared limiters.
#[derive(Debug, Default)]
struct SharedQueue {
    waiting: VecDeque<PendingDecision>,
    /// One for each call that is under way, and this.
    in_flight: Arc<()>,
}

// === impl Queue ===

impl Queue {
    /// An empty one.
    pub(super) fn new(depth: usize, has_slots: bool) -> Self {
        let (own, round_robin, in_flight, shared) = Default::default();
        Self { own, round_robin, in_flight, shared, depth, has_slots, is_closed: false, sender: None }
    }

    /// From now on so many calls may be under way.
    pub(super) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Lets a request wait; returns who is to be woken if one can be sent.
    pub(super) fn push(&mut self, request: PendingDecision) -> Option<Waker> {
        if self.is_closed {
            return None;
        }
        let now = Instant::now();
        let (queue, in_flight, depth) = self.queue_of(&request);
        // While Redis is away nobody takes them out.
        while let Some(overdue) = queue.pop_front_if(|first| first.deadline <= now) {
            overdue.fail(&StoreError::Timeout);
        }
        queue.push_back(request);
        if calls_in_flight(in_flight) < depth { self.sender.take() } else { None }
    }

    /// Lets requests wait before all others of their queues.
    pub(super) fn push_front(&mut self, again: Vec<PendingDecision>) {
        again.into_iter().rev().for_each(|request| self.queue_of(&request).0.push_front(request));
    }

    /// The queue of a request, the in_flight of that queue's calls, and how many of these may be under way.
    fn queue_of(&mut self, request: &PendingDecision) -> (&mut VecDeque<PendingDecision>, &Arc<()>, usize) {
        if let Some(names) = shared_limiters(&request.charges) {
            let depth = self.depth_of_shared();
            let queue = self.shared.entry(names).or_default();
            return (&mut queue.waiting, &queue.in_flight, depth);
        }
        let route = if self.has_slots {
            slot_of_charges(&request.charges)
        } else {
            route_of(&request.charges, self.own.hasher())
        };
        let queue = self.own.entry(route).or_insert_with(|| {
            self.round_robin.push_back(route);
            VecDeque::new()
        });
        (queue, &self.in_flight, self.depth)
    }

    /// How many calls may be under way for each queue of shared limiters: half as many, since all requests of such a queue
    /// ask for the same buckets, so that one large call costs little more than a small one, and leaves more of Redis to
    /// those who share them.
    const fn depth_of_shared(&self) -> usize {
        self.depth.div_ceil(2)
    }

    /// Can anybody be sent? If not, wakes this task as soon as somebody can be who comes.
    pub(super) fn poll_ready(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_ready() {
            return Poll::Ready(());
        }
        match &mut self.sender {
            Some(sender) => sender.clone_from(cx.waker()),
            None => self.sender = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn is_ready(&self) -> bool {
        let own = !self.round_robin.is_empty() && calls_in_flight(&self.in_flight) < self.depth;
        let depth = self.depth_of_shared();
        own || self.shared.values().any(|queue| !queue.waiting.is_empty() && calls_in_flight(&queue.in_flight) < depth)
    }

    /// What can be sent now, call by call. Calls take round_robin in Redis: nobody waits for longer than those that are under way.
    pub(super) fn batches(&mut self) -> Vec<Batch> {
        self.remove_idle();
        let (now, depth) = (Instant::now(), self.depth_of_shared());
        let queues = self.shared.values_mut().filter(|queue| calls_in_flight(&queue.in_flight) < depth);
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

    /// A call for each slot, as many as are the work of one together.
    fn batches_by_slot(&mut self, now: Instant, batches: &mut Vec<Batch>) {
        let (token, mut work) = (InFlightToken::new(&self.in_flight), 0);
        for _ in 0..self.round_robin.len() {
            let Some(slot) = self.round_robin.pop_front() else { return };
            let Some(queue) = self.own.get_mut(&slot) else { continue };
            let mut batch = Batch::new(token.clone());
            batch.take_from(queue, usize::MAX, now);
            if queue.is_empty() {
                self.own.remove(&slot);
            } else {
                self.round_robin.push_back(slot);
            }
            work += CALL_OVERHEAD + batch.work();
            batches.push(batch);
            if work >= MAX_WORK {
                return;
            }
        }
    }

    /// As much of the queues as goes into one call, each in its turn.
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

    /// Whoever has come since to the queue of a call about shared limiters leaves with it.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        let queue = shared_limiters(batch.first()).and_then(|names| self.shared.get_mut(&names));
        if let Some(queue) = queue {
            batch.take_from(&mut queue.waiting, usize::MAX, Instant::now());
        }
    }

    /// Everybody leaves.
    pub(super) fn take_all(&mut self) -> Vec<PendingDecision> {
        let shared = self.shared.values_mut().map(|queue| &mut queue.waiting);
        let all = self.own.values_mut().chain(shared).flat_map(std::mem::take).collect();
        self.own.clear();
        self.round_robin.clear();
        self.remove_idle();
        all
    }

    /// Everybody leaves, and nobody may come any more.
    pub(super) fn close(&mut self) -> Vec<PendingDecision> {
        self.is_closed = true;
        self.take_all()
    }

    fn remove_idle(&mut self) {
        self.shared.retain(|_, queue| !queue.waiting.is_empty() || calls_in_flight(&queue.in_flight) > 0);
    }
}

// === impl SharedQueue ===

impl SharedQueue {
    fn batch(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::shared(InFlightToken::new(&self.in_flight));
        batch.take_from(&mut self.waiting, usize::MAX, now);
        batch
    }
}

/// As how many departures it counts that these calls leave.
pub(super) fn departures(calls: &[Batch]) -> u64 {
    let requests: usize = calls.iter().map(Batch::len).sum();
    u64::try_from(requests / REQUESTS_PER_DEPARTURE).unwrap_or_default() + 1
}

/// How many calls have one of these in_flight.
fn calls_in_flight(in_flight: &Arc<()>) -> usize {
    Arc::strong_count(in_flight) - 1
}

/// The shared limiters among those that are asked; nothing if all are own. What is wrong with a shared limiter is nobody
/// else's error, and a flood of one takes no call from the others.
fn shared_limiters(charges: &[Charge]) -> Option<String> {
    let shared = |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Redisson(_));
    let names: Vec<&str> = charges.iter().filter(shared).map(|charge| charge.limiter.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join("\n"))
}

fn slot_of_charges(charges: &[Charge]) -> QueueKey {
    charges.first().map_or(0, |first| hash_slot_of(&first.limiter, first.client.as_ref()).into())
}

fn route_of(charges: &[Charge], hasher: &DefaultHashBuilder) -> QueueKey {
    hasher.hash_one(charges.first().map_or("", |charge| hash_tag(&charge.limiter.name)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::limit::redisson::Sharing;
    use crate::limit::{Limiter, Mode, Outcome, Quota};

    type Decision = oneshot::Receiver<Result<Outcome, StoreError>>;

    /// A request about an OVERALL limit with this name, and where it is told what was decided.
    fn request(name: &str, algorithm: Algorithm) -> (PendingDecision, Decision) {
        let quota = Quota::new(1, 1_000, algorithm).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        let (decided, decision) = oneshot::channel();
        let charges = vec![Charge { limiter, client: None, permits: 1, shadow: false }];
        (PendingDecision { charges, now: None, deadline: Instant::now() + Duration::from_secs(1), decided }, decision)
    }

    fn sizes(calls: &[Batch]) -> Vec<usize> {
        calls.iter().map(Batch::len).collect()
    }

    #[tokio::test]
    async fn calls_to_several_slots_leave_together_as_far_as_they_are_the_work_of_one() {
        let mut queue = Queue::new(2, true);
        let of_slot = |slot: u32| request(&format!("{{{slot}}}"), Algorithm::TokenBucket);
        let (requests, _waiting): (Vec<_>, Vec<_>) = (0..64).map(of_slot).unzip();
        requests.into_iter().for_each(|request| _ = queue.push(request));
        let (calls, more) = (queue.batches(), queue.batches());
        assert_eq!([sizes(&calls), sizes(&more)], [const { [1; MAX_WORK.div_ceil(CALL_OVERHEAD + 1)] }; 2]);
        assert!(queue.batches().is_empty(), "two flights are under way");
    }

    #[tokio::test]
    async fn many_requests_that_leave_together_count_as_several_departures() {
        let mut queue = Queue::new(1, true);
        let of_one_limit = |_| request("{one}", Algorithm::TokenBucket);
        for (requests, counted) in
            [(REQUESTS_PER_DEPARTURE - 1, 1), (REQUESTS_PER_DEPARTURE, 2), (3 * REQUESTS_PER_DEPARTURE + 1, 4)]
        {
            let (requests, _waiting): (Vec<_>, Vec<_>) = (0..requests).map(of_one_limit).unzip();
            requests.into_iter().for_each(|request| _ = queue.push(request));
            assert_eq!(departures(&queue.batches()), counted);
        }
    }

    #[tokio::test]
    async fn who_comes_while_a_shared_call_waits_for_its_turn_leaves_with_it() {
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
