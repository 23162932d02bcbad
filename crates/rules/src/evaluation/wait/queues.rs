//! The wait queues as data: the order in which waiting requests retry. There is one queue for each bucket.
//!
//! A waiting request has a [`Place`] in one queue, in the order in which requests joined it, and retries while it is first
//! there. It claims its permits in narrower buckets, which have granted them: so no more requests of a client wait in a queue
//! of all clients than the client's own bucket can grant.
//!
//! Nothing here waits. Times are arguments: durations since a moment that the caller chooses. `wake` is called for each
//! request that has to look at its queue again: it has become the first one, or claims on its bucket were given up.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::charge::{BucketId, Decision};

/// How long after the return of a permit the last decision about a bucket is repeated to requests that a full queue
/// rejects, until the first request has a new one.
const MAX_LATENESS: Duration = Duration::from_secs(1);

/// The queues of all buckets. `W` is what the caller needs to wake a request.
#[derive(Debug)]
pub struct WaitQueues<W> {
    next_number: u64,
    queues: HashMap<BucketId, Queue<W>>,
}

/// The place of a request in at most one queue, and its claims.
#[derive(Debug)]
pub struct Place<W> {
    waker: W,
    joined: Option<(BucketId, u64)>,
    joined_at: Duration,
    claims: Vec<Claim>,
}

/// The permits that a waiting request needs of a narrower bucket than the one that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The index of the bucket's limit, for the caller.
    pub index: usize,
    /// The bucket.
    pub bucket: BucketId,
    /// The permits that the request needs.
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

/// A request in a queue.
#[derive(Debug)]
struct Waiter<W> {
    waker: W,
    joined_at: Duration,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: BTreeMap<u64, Waiter<W>>,
    /// The permits claimed by requests that wait for wider buckets.
    claimed: u64,
    /// The remaining permits of the bucket at its last decision, and when the next one returns.
    last: Option<(u32, Duration)>,
}

// === impl WaitQueues ===

impl<W> Default for WaitQueues<W> {
    fn default() -> Self {
        Self { next_number: 0, queues: HashMap::new() }
    }
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), claimed: 0, last: None }
    }
}

impl<W> WaitQueues<W> {
    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Returns `true` if no request waits.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the number of requests that wait in this queue.
    pub fn count(&self, bucket: &BucketId) -> usize {
        self.queues.get(bucket).map_or(0, |queue| queue.waiting.len())
    }

    /// Returns the waker of the first request of this queue.
    pub fn first(&self, bucket: &BucketId) -> Option<&W> {
        Some(&self.queues.get(bucket)?.waiting.first_key_value()?.1.waker)
    }

    /// Returns `true` if no other request is before this place.
    pub fn is_first(&self, place: &Place<W>) -> bool {
        let Some((bucket, number)) = &place.joined else { return true };
        let first = self.queues.get(bucket).and_then(|queue| queue.waiting.first_key_value());
        first.is_none_or(|(first, _)| first == number)
    }

    /// Returns `true` if the bucket has unclaimed permits for a claim of the request with this place.
    pub(super) fn has_free(&self, claim: &Claim, place: &Place<W>) -> bool {
        let claimed = self.queues.get(&claim.bucket).map_or(0, |queue| queue.claimed);
        let own = place.claims.iter().find(|own| own.bucket == claim.bucket).map_or(0, |own| u64::from(own.permits));
        claimed - own + u64::from(claim.permits) <= u64::from(claim.free)
    }

    /// Returns how much later than the request with this place it and the next ones of its queue joined the queue, in
    /// milliseconds; at most `limit` times.
    pub fn ages(&self, place: &Place<W>, limit: usize) -> Vec<u32> {
        let Some((bucket, number)) = &place.joined else { return Vec::new() };
        let later = |waiter: &Waiter<W>| waiter.joined_at.saturating_sub(place.joined_at).as_millis();
        let waiting = self.queues.get(bucket).into_iter().flat_map(|queue| queue.waiting.range(number..));
        waiting.take(limit).map(|(_, waiter)| u32::try_from(later(waiter)).unwrap_or(u32::MAX)).collect()
    }

    /// Records a decision about a bucket, for requests that its full queue rejects.
    pub(super) fn record(&mut self, bucket: &BucketId, decision: &Decision, now: Duration) {
        if let Some(queue) = self.queues.get_mut(bucket) {
            let returns_at = now.saturating_add(Duration::from_millis(decision.reset));
            queue.last = Some((decision.remaining, returns_at));
        }
    }

    /// Returns the remaining permits of a bucket, and the milliseconds until the next one returns, as last recorded. `None`
    /// if a permit should have returned more than a second ago.
    pub(super) fn last_decision(&self, bucket: &BucketId, now: Duration) -> Option<(u32, u64)> {
        let (remaining, returns_at) = self.queues.get(bucket)?.last?;
        let millis = u64::try_from(returns_at.saturating_sub(now).as_millis()).unwrap_or(u64::MAX);
        (now < returns_at.saturating_add(MAX_LATENESS)).then_some((remaining, millis.max(1)))
    }

    /// Joins the queue of a bucket, of at most `limit` requests but at least one, with these claims. Keeps the place in this
    /// queue if the request is there. Otherwise leaves its former queue, unless it cannot join this one.
    ///
    /// # Errors
    /// The queue is full, or a claim cannot be made.
    pub fn join(
        &mut self,
        place: &mut Place<W>,
        bucket: BucketId,
        limit: usize,
        claims: Vec<Claim>,
        now: Duration,
        wake: impl FnMut(&W),
    ) -> Result<(), JoinError>
    where
        W: Clone,
    {
        if place.is_in(&bucket) {
            return Ok(());
        }
        if let Some(claimed) = claims.iter().find(|claim| !self.has_free(claim, place)) {
            return Err(JoinError::Claimed(claimed.clone()));
        }
        if self.count(&bucket) >= limit.max(1) {
            return Err(JoinError::Full);
        }
        self.leave(place, wake);
        self.next_number += 1;
        let waiter = Waiter { waker: place.waker.clone(), joined_at: now };
        self.queues.entry(bucket.clone()).or_default().waiting.insert(self.next_number, waiter);
        for claim in &claims {
            self.queues.entry(claim.bucket.clone()).or_default().claimed += u64::from(claim.permits);
        }
        (place.joined, place.joined_at, place.claims) = (Some((bucket, self.next_number)), now, claims);
        Ok(())
    }

    /// Leaves the queue of a place, and gives up its claims.
    pub fn leave(&mut self, place: &mut Place<W>, mut wake: impl FnMut(&W)) {
        let Some((bucket, number)) = place.joined.take() else { return };
        self.change(&bucket, |queue| _ = queue.waiting.remove(&number), &mut wake);
        for claim in place.claims.drain(..) {
            self.change(&claim.bucket, |queue| queue.claimed -= u64::from(claim.permits), &mut wake);
        }
    }

    /// Changes a queue, wakes its first request, and removes the queue if nothing is left.
    fn change(&mut self, bucket: &BucketId, change: impl FnOnce(&mut Queue<W>), wake: &mut impl FnMut(&W)) {
        let Some(queue) = self.queues.get_mut(bucket) else { return };
        change(queue);
        match queue.waiting.first_key_value() {
            Some((_, first)) => wake(&first.waker),
            None if queue.claimed == 0 => _ = self.queues.remove(bucket),
            None => {}
        }
    }
}

// === impl Place ===

impl<W> Place<W> {
    /// Creates a place in no queue.
    pub fn new(waker: W) -> Self {
        Self { waker, joined: None, joined_at: Duration::ZERO, claims: Vec::new() }
    }

    /// Returns the waker of the request.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// Returns `true` if the request is in a queue.
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Returns when the request joined its queue.
    pub fn joined_at(&self) -> Duration {
        self.joined_at
    }

    fn is_in(&self, bucket: &BucketId) -> bool {
        self.joined.as_ref().is_some_and(|(joined, _)| joined == bucket)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    /// A request joins a queue of a bounded length, with claims by their buckets; or it leaves.
    #[derive(Clone, Debug)]
    enum Op {
        Join { bucket: u8, limit: usize, claims: Vec<Claim> },
        Leave,
    }

    /// The laws, without any data structure: who joined which queue, in the order of joining, with which claims.
    #[derive(Debug, Default)]
    struct Model(Vec<(usize, BucketId, Vec<Claim>)>);

    impl Model {
        fn of(&self, request: usize) -> Option<&(usize, BucketId, Vec<Claim>)> {
            self.0.iter().find(|(other, ..)| *other == request)
        }

        fn queue(&self, bucket: &BucketId) -> Vec<usize> {
            self.0.iter().filter(|(_, joined, _)| joined == bucket).map(|(request, ..)| *request).collect()
        }

        /// Returns the permits that requests claim in a bucket, without this request.
        fn claimed(&self, bucket: &BucketId, without: Option<usize>) -> u64 {
            let others = self.0.iter().filter(|(request, ..)| Some(*request) != without);
            let claims = others.flat_map(|(_, _, claims)| claims).filter(|claim| claim.bucket == *bucket);
            claims.map(|claim| u64::from(claim.permits)).sum()
        }

        /// Returns the first request of each queue, and the claimed permits of its bucket.
        fn firsts(&self) -> Vec<(BucketId, usize, u64)> {
            let first =
                |bucket: &BucketId| Some((bucket.clone(), *self.queue(bucket).first()?, self.claimed(bucket, None)));
            (0..BUCKETS).filter_map(|number| first(&bucket(number))).collect()
        }

        fn join(&mut self, request: usize, bucket: BucketId, limit: usize, claims: &[Claim]) -> Result<(), JoinError> {
            if self.of(request).is_some_and(|(_, joined, _)| *joined == bucket) {
                return Ok(());
            }
            let is_taken = |claim: &&Claim| {
                self.claimed(&claim.bucket, Some(request)) + u64::from(claim.permits) > u64::from(claim.free)
            };
            if let Some(claimed) = claims.iter().find(is_taken) {
                return Err(JoinError::Claimed(claimed.clone()));
            }
            if self.queue(&bucket).len() >= limit {
                return Err(JoinError::Full);
            }
            self.leave(request);
            self.0.push((request, bucket, claims.to_vec()));
            Ok(())
        }

        fn leave(&mut self, request: usize) {
            self.0.retain(|(other, ..)| *other != request);
        }
    }

    const REQUESTS: usize = 6;
    const BUCKETS: u8 = 3;

    fn bucket(number: u8) -> BucketId {
        (number.to_string(), None)
    }

    fn claim(number: u8, permits: u32, free: u32) -> Claim {
        Claim { index: number.into(), bucket: bucket(number), permits, free }
    }

    fn op() -> impl Strategy<Value = (usize, Op)> {
        let claims = btree_map(0..BUCKETS, (1..3_u32, 0..6_u32), 0..3).prop_map(|claims| {
            claims.into_iter().map(|(number, (permits, free))| claim(number, permits, free)).collect()
        });
        let join =
            (0..BUCKETS, 1..5_usize, claims).prop_map(|(bucket, limit, claims)| Op::Join { bucket, limit, claims });
        (0..REQUESTS, prop_oneof![4 => join, 1 => Just(Op::Leave)])
    }

    proptest! {
        /// Each request is in at most one queue, which is in the order of joining and not longer than its bound. Its claims
        /// are covered by free permits. A request is woken if it becomes first, or claims on its bucket are given up.
        #[test]
        fn queues_follow_their_laws(ops in vec(op(), 1..60)) {
            let (mut queues, mut model) = (WaitQueues::default(), Model::default());
            let mut places: Vec<Place<usize>> = (0..REQUESTS).map(Place::new).collect();
            for (time, (request, op)) in (0..).zip(ops) {
                let (before, mut woken, now) = (model.firsts(), Vec::new(), Duration::from_millis(time));
                match op {
                    Op::Join { bucket: number, limit, claims } => {
                        let expected = model.join(request, bucket(number), limit, &claims);
                        let joined = queues.join(&mut places[request], bucket(number), limit, claims, now, |woke| woken.push(*woke));
                        prop_assert_eq!(joined, expected);
                    }
                    Op::Leave => {
                        model.leave(request);
                        queues.leave(&mut places[request], |woke| woken.push(*woke));
                    }
                }
                for place in &places {
                    let is_first = match model.of(place.waker) {
                        Some((request, bucket, _)) => model.queue(bucket)[0] == *request,
                        None => true,
                    };
                    prop_assert_eq!(queues.is_first(place), is_first);
                }
                for bucket in (0..BUCKETS).map(bucket) {
                    prop_assert_eq!(queues.count(&bucket), model.queue(&bucket).len());
                    prop_assert_eq!(queues.first(&bucket).copied(), model.queue(&bucket).first().copied());
                    let claimed = u32::try_from(model.claimed(&bucket, None)).expect("few permits");
                    let has_free = |free| queues.has_free(&Claim { free, bucket: bucket.clone(), ..claim(0, 1, 0) }, &Place::new(0));
                    prop_assert_eq!([claimed, claimed + 1].map(has_free), [false, true]);
                }
                for (bucket, first, claimed) in model.firsts() {
                    let was = before.iter().find(|(other, ..)| *other == bucket);
                    let is_new = was.is_none_or(|(_, was_first, was_claimed)| *was_first != first || claimed < *was_claimed);
                    prop_assert!(!is_new || first == request || woken.contains(&first), "{first} was not woken");
                }
            }
            places.iter_mut().for_each(|place| queues.leave(place, |_| {}));
            prop_assert!(queues.is_empty(), "{queues:?}");
        }
    }

    #[test]
    fn last_decision_holds_until_a_permit_is_late() {
        let (mut queues, mut place) = (WaitQueues::default(), Place::new(()));
        let millis = Duration::from_millis;
        let decision = Decision { remaining: 2, reset: 500, ..Decision::new(0, tidegate_limit::Wait::Millis(700), 0) };
        queues.record(&bucket(0), &decision, millis(100));
        assert_eq!(queues.last_decision(&bucket(0), millis(100)), None, "no request waits");
        queues.join(&mut place, bucket(0), 1, Vec::new(), millis(100), |()| {}).expect("a place");
        queues.record(&bucket(0), &decision, millis(100));
        let last = [100, 599, 600, 1_599, 1_600].map(|now| queues.last_decision(&bucket(0), millis(now)));
        assert_eq!(last, [Some((2, 500)), Some((2, 1)), Some((2, 1)), Some((2, 1)), None]);
    }

    #[test]
    fn ages_are_counted_from_the_place() {
        let (mut queues, mut places) = (WaitQueues::default(), [Place::new(()), Place::new(()), Place::new(())]);
        for (place, now) in places.iter_mut().zip([5, 7, 12]) {
            queues.join(place, bucket(0), 9, Vec::new(), Duration::from_millis(now), |()| {}).expect("a place");
        }
        assert_eq!(queues.ages(&places[0], 9), [0, 2, 7]);
        assert_eq!((queues.ages(&places[1], 9), queues.ages(&places[0], 2)), (vec![0, 5], vec![0, 2]));
        assert_eq!(queues.ages(&Place::new(()), 9), Vec::<u32>::new());
    }
}
