//! A request that may wait: what it does next, given the queues and the decisions about its charges.
//!
//! It waits only in the queue of the narrowest limit that refuses it, and asks the store for permits only if no request
//! waits for a limit after that one. Otherwise it only reads its limits, so that it does not wait for a limit of all
//! clients while another limit refuses it.

use std::time::Duration;

use super::order::narrowest_first;
use super::queues::{Claim, JoinError, Place, WaitQueues};
use crate::charge::{BucketId, Decision};
use crate::rules::{Charges, LimitCharge, Positions};
use tidegate_limit::Wait;

/// A request that may wait. While it is first in its queue, or in none, it makes the next [`WaitStep`]. If limits refuse it, it
/// [joins](Self::join) a queue until a [`Hold`] ends. At [`ends_at`](Self::ends_at) its caller rejects it. Limits are given by
/// their indices in the order of the request.
#[derive(Debug)]
pub struct WaitingRequest {
    /// The positions of the live charges, the narrowest limit first.
    order: Positions,
    /// The bounds of the wait.
    pub bounds: WaitBounds,
    /// The limit that the request waits for.
    joined: Option<usize>,
    /// The limit that refused the request because others wait for it.
    behind: Option<usize>,
}

/// The bounds of a request's wait.
#[derive(Clone, Copy, Debug)]
pub struct WaitBounds {
    /// When the request arrived.
    pub arrived_at: Duration,
    /// The end of the request's timeout. A request whose wait would end later is rejected at once, because it could not be
    /// forwarded.
    pub deadline: Option<Duration>,
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStep {
    /// It asks the store for its permits.
    Take,
    /// Others wait for this limit: it reads its limits, and then this one [refuses](WaitingRequest::refuse_behind) it.
    Read(usize),
    /// The queue of this limit is full: the request is rejected.
    Reject(usize),
}

/// The reason why a request waits in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Its permits return.
    Permits {
        /// The time until then.
        wait: Duration,
        /// Whether the store, and not the queue, has put the request at the front of its queue.
        is_new_first: bool,
    },
    /// Other requests are before it.
    Others,
    /// Other requests have claimed the free permits. More permits return after this time, if any are in use.
    Claims(Option<Duration>),
}

impl WaitingRequest {
    /// Creates a request in no queue.
    pub fn new(charges: &Charges<'_>, bounds: WaitBounds) -> Self {
        Self { order: narrowest_first(charges), bounds, joined: None, behind: None }
    }

    /// Returns the limit that the request waits for.
    pub fn joined(&self) -> Option<usize> {
        self.joined
    }

    /// Returns `true` if the request has several live limits.
    pub fn has_other_limits(&self) -> bool {
        self.order.len() > 1
    }

    /// Returns the position of the charge of a limit.
    pub fn position(&self, index: usize) -> usize {
        self.order[index].into()
    }

    /// Returns a limit.
    pub fn limit<'c>(&self, index: usize, charges: &'c Charges<'_>) -> LimitCharge<'c> {
        charges.at(self.position(index))
    }

    /// Returns what the request does next.
    pub fn next<W>(&self, charges: &Charges<'_>, queues: &WaitQueues<W>) -> WaitStep {
        let first = self.joined.map_or(0, |joined| joined + 1);
        for index in first..self.order.len() {
            let entry = self.limit(index, charges);
            let Some(wait_policy) = entry.limit.wait_policy else { continue };
            match queues.count(&entry.charge.bucket_id()) {
                0 => {}
                waiting if waiting >= wait_policy.queue.max(1) => return WaitStep::Reject(index),
                _ => return WaitStep::Read(index),
            }
        }
        WaitStep::Take
    }

    /// Refuses the request because others wait for a limit.
    pub fn refuse_behind<W>(&mut self, index: usize, charges: &mut Charges<'_>, queues: &WaitQueues<W>, now: Duration) {
        let charge = self.limit(index, charges).charge;
        let last = queues.last_decision(&charge.bucket_id(), now);
        let (remaining, wait) = last.filter(|(remaining, _)| *remaining < charge.permits).unwrap_or((0, 0));
        charges.refuse(self.position(index), remaining, wait);
        self.behind = Some(index);
    }

    /// Rejects the request by the last decision about a limit; the others are unknown. Returns `false` if that decision is
    /// unknown or too old.
    pub fn reject_as_decided<W>(
        &self,
        index: usize,
        charges: &mut Charges<'_>,
        queues: &WaitQueues<W>,
        now: Duration,
    ) -> bool {
        let last = queues.last_decision(&self.limit(index, charges).charge.bucket_id(), now);
        if let Some((remaining, wait)) = last {
            charges.forget_decisions();
            charges.refuse(self.position(index), remaining, wait);
        }
        last.is_some()
    }

    /// Rejects the request by its decisions, which it has just read, until the next permit of a limit returns.
    pub fn reject_as_read<W>(
        &self,
        index: usize,
        charges: &mut Charges<'_>,
        queues: &mut WaitQueues<W>,
        now: Duration,
    ) {
        let entry = self.limit(index, charges);
        let decision = entry.decision.copied().unwrap_or(Decision::UNKNOWN);
        queues.record(&entry.charge.bucket_id(), &decision, now);
        charges.refuse(self.position(index), decision.remaining, decision.reset);
    }

    /// Joins the queue of the narrowest limit that refused the request. Returns `None` if the request may not wait for all
    /// limits that did.
    pub fn join<W: Clone>(
        &mut self,
        charges: &mut Charges<'_>,
        queues: &mut WaitQueues<W>,
        place: &mut Place<W>,
        now: Duration,
        wake: impl FnMut(&W),
    ) -> Option<Hold> {
        let (behind, before) = (self.behind.take(), self.joined);
        let (joined, claimed) = self.join_narrowest(charges, queues, place, now, wake)?;
        self.joined = Some(joined);
        let entry = self.limit(joined, charges);
        let decision = entry.decision?;
        match (claimed, decision.wait) {
            (Some(claim), _) if queues.is_first(place) && !queues.has_free(&claim, place) => {
                Some(Hold::Claims((decision.reset > 0).then_some(Duration::from_millis(decision.reset))))
            }
            (None, Wait::Millis(wait)) if behind != Some(joined) => {
                queues.record(&bucket_of(&entry), decision, now);
                let is_new_first = behind.is_none() && before != Some(joined) && queues.is_first(place);
                Some(Hold::Permits { wait: Duration::from_millis(wait), is_new_first })
            }
            _ => Some(Hold::Others),
        }
    }

    /// Joins the queue of the narrowest limit that refuses the request. Returns the index of the limit and, if others
    /// have claimed its free permits, the claim of this request. Returns `None` if the request may not wait for all
    /// limits that refuse it, or the queue is full.
    fn join_narrowest<W: Clone>(
        &self,
        charges: &mut Charges<'_>,
        queues: &mut WaitQueues<W>,
        place: &mut Place<W>,
        now: Duration,
        mut wake: impl FnMut(&W),
    ) -> Option<(usize, Option<Claim>)> {
        let refused = |index: &usize| self.limit(*index, charges).is_refused();
        let mut index = (0..self.order.len()).find(refused)?;
        let mut refusing = (index..self.order.len()).filter(refused);
        if !refusing.all(|index| self.bounds.allow(&self.limit(index, charges), now)) {
            return None;
        }
        let mut claimed = None;
        loop {
            let (queue, claims) = (self.limit(index, charges), self.claims(index, charges));
            let length = queue.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue);
            match queues.join(place, bucket_of(&queue), length, claims, now, &mut wake) {
                Ok(()) => return Some((index, claimed)),
                Err(JoinError::Full) => return None,
                Err(JoinError::Claimed(claim)) => {
                    // A narrower limit refuses the request, too.
                    index = claim.index;
                    let reset = self.limit(index, charges).decision?.reset;
                    charges.refuse(self.position(index), 0, reset);
                    if !self.bounds.allow(&self.limit(index, charges), now) {
                        return None;
                    }
                    claimed = Some(claim);
                }
            }
        }
    }

    /// Records the decision that admitted the request, for requests that its queue rejects.
    pub fn record<W>(&self, charges: &Charges<'_>, queues: &mut WaitQueues<W>, now: Duration) {
        if let Some(entry) = self.joined.map(|joined| self.limit(joined, charges))
            && let Some(decision) = entry.decision
        {
            queues.record(&bucket_of(&entry), decision, now);
        }
    }

    /// Returns the time until which the request may wait in its queue.
    pub fn ends_at(&self, charges: &Charges<'_>) -> Duration {
        let wait_policy = self.joined.and_then(|joined| self.limit(joined, charges).limit.wait_policy);
        let ends_at =
            self.bounds.arrived_at.saturating_add(wait_policy.map_or(Duration::ZERO, |policy| policy.max_wait));
        self.bounds.deadline.map_or(ends_at, |deadline| ends_at.min(deadline))
    }

    /// Returns the claims of a request that waits for this limit: its permits of all narrower limits.
    fn claims(&self, index: usize, charges: &Charges<'_>) -> Vec<Claim> {
        let claim = |index: usize| {
            let entry = self.limit(index, charges);
            let granted = entry.decision.filter(|_| entry.charge.limiter.shards().is_empty())?;
            let (bucket, permits) = (bucket_of(&entry), entry.charge.permits);
            Some(Claim { index, bucket, permits, free: granted.remaining })
        };
        (0..index).filter_map(claim).collect()
    }
}

impl WaitBounds {
    /// Returns `true` if the request may wait until the limit grants it.
    pub fn allow(&self, entry: &LimitCharge<'_>, now: Duration) -> bool {
        let wait = entry.decision.map(|decision| decision.wait);
        let (Some(wait_policy), Some(Wait::Millis(wait))) = (&entry.limit.wait_policy, wait) else { return false };
        let granted_at = now.saturating_add(Duration::from_millis(wait));
        granted_at.saturating_sub(self.arrived_at) <= wait_policy.max_wait
            && self.deadline.is_none_or(|deadline| granted_at < deadline)
    }
}

/// Returns the bucket that decided. One bucket for all clients beyond the store's capacity: otherwise each client of a
/// flood would wait in its own queue.
pub fn bucket_of(entry: &LimitCharge<'_>) -> BucketId {
    match entry.decision {
        Some(decision) if decision.overflow => (entry.charge.limiter.name.clone(), None),
        _ => entry.charge.bucket_id(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::charge::{Charge, Limiter, Outcome};
    use crate::limits::rule::{Limit, WaitPolicy};
    use tidegate_limit::clock::Timestamp;
    use tidegate_limit::{Algorithm, Mode, Quota};

    /// The indices of a limit for each client and of a limit for all clients.
    const OWN: usize = 0;
    const ALL: usize = 1;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns a limit for all clients and one for each client, with waits of a second in queues of two.
    fn limits() -> [Limit; 2] {
        let quota = Quota::new(2, 1_000, Algorithm::TokenBucket).expect("a quota");
        let wait_policy = Some(WaitPolicy { max_wait: millis(1_000), queue: 2 });
        [("all", Mode::Overall), ("own", Mode::PerClient)].map(|(name, mode)| {
            let limiter = Arc::new(Limiter::new(name.to_owned(), mode, quota));
            Limit { wait_policy, ..Limit::new(name.to_owned(), limiter) }
        })
    }

    fn charges(limits: &[Limit; 2]) -> Charges<'_> {
        let mut charges = Charges::new(limits);
        for (index, limit) in limits.iter().enumerate() {
            charges.push(index, Charge::new(Arc::clone(&limit.limiter), None, 1));
        }
        charges
    }

    fn request(charges: &Charges<'_>) -> WaitingRequest {
        WaitingRequest::new(charges, WaitBounds { arrived_at: Duration::ZERO, deadline: None })
    }

    const GRANTED: Decision = Decision::new(1, Wait::Now, 900);

    fn refused(wait: u64) -> Decision {
        Decision::new(0, Wait::Millis(wait), wait)
    }

    /// A new request that joins the queue of a limit that refuses it.
    struct Joined<'c> {
        charges: Charges<'c>,
        request: WaitingRequest,
        place: Place<u32>,
        hold: Option<Hold>,
    }

    impl<'c> Joined<'c> {
        /// Decides with these decisions, of the limit of all clients and of the limit of each.
        fn new(limits: &'c [Limit; 2], queues: &mut WaitQueues<u32>, decisions: [Decision; 2]) -> Self {
            let charges = charges(limits);
            let (request, place) = (request(&charges), Place::new(0));
            let mut joined = Self { request, charges, place, hold: None };
            joined.retry(queues, decisions, Duration::ZERO);
            joined
        }

        fn retry(&mut self, queues: &mut WaitQueues<u32>, decisions: [Decision; 2], now: Duration) {
            let Self { charges, request, place, hold } = self;
            charges.decide(Outcome::new(Timestamp::default(), decisions.to_vec(), charges.as_slice()));
            *hold = request.join(charges, queues, place, now, |_| {});
        }
    }

    fn permits(wait: u64, is_new_first: bool) -> Option<Hold> {
        Some(Hold::Permits { wait: millis(wait), is_new_first })
    }

    #[test]
    fn new_request_asks_only_if_no_other_waits() {
        let (limits, mut queues) = (limits(), WaitQueues::default());
        let new = charges(&limits);
        assert_eq!(request(&new).next(&new, &queues), WaitStep::Take);
        let first = Joined::new(&limits, &mut queues, [refused(300), GRANTED]);
        assert_eq!((first.hold, first.request.joined()), (permits(300, true), Some(ALL)));
        assert_eq!(first.request.next(&first.charges, &queues), WaitStep::Take);
        let mut behind = Joined::new(&limits, &mut queues, [GRANTED, refused(400)]);
        assert_eq!(behind.request.next(&behind.charges, &queues), WaitStep::Read(ALL), "of its wider limit");
        behind.request.refuse_behind(ALL, &mut behind.charges, &queues, millis(100));
        assert_eq!(behind.request.limit(ALL, &behind.charges).decision, Some(&refused(200)));
        queues.leave(&mut behind.place, |_| {});
        let second = Joined::new(&limits, &mut queues, [refused(300), Decision { remaining: 2, ..GRANTED }]);
        assert_eq!(second.hold, permits(300, false));
        assert_eq!(request(&new).next(&new, &queues), WaitStep::Reject(ALL), "two requests wait");
    }

    #[test]
    fn request_waits_for_the_narrowest_limit_that_refuses() {
        let (limits, mut queues) = (limits(), WaitQueues::default());
        let mut both = Joined::new(&limits, &mut queues, [refused(300), refused(200)]);
        assert_eq!((both.hold, both.request.joined()), (permits(200, true), Some(OWN)));
        both.retry(&mut queues, [refused(100), GRANTED], millis(200));
        assert_eq!((both.hold, both.request.joined()), (permits(100, true), Some(ALL)));
        assert_eq!(queues.len(), 2, "the queue of the limit of all, and the claim in the queue of the client");
    }

    #[test]
    fn claims_hold_requests_in_the_narrower_queue() {
        let (limits, mut queues) = (limits(), WaitQueues::default());
        let mut first = Joined::new(&limits, &mut queues, [refused(300), GRANTED]);
        let mut second = Joined::new(&limits, &mut queues, [refused(300), GRANTED]);
        assert_eq!((second.hold, second.request.joined()), (Some(Hold::Claims(Some(millis(900)))), Some(OWN)));
        assert_eq!(second.charges.wait(), Wait::Millis(900));
        let third = Joined::new(&limits, &mut queues, [refused(300), GRANTED]);
        assert_eq!(third.hold, Some(Hold::Others));
        queues.leave(&mut first.place, |_| {});
        second.retry(&mut queues, [refused(100), GRANTED], millis(200));
        assert_eq!((second.hold, second.request.joined()), (permits(100, true), Some(ALL)));
    }

    #[test]
    fn wait_ends_with_its_bounds() {
        let (limits, mut queues) = (limits(), WaitQueues::default());
        assert_eq!(Joined::new(&limits, &mut queues, [refused(1_001), GRANTED]).hold, None, "beyond max_wait");
        assert_eq!(Joined::new(&limits, &mut queues, [refused(1_001), refused(10)]).hold, None, "of one of two limits");
        let mut waiting = Joined::new(&limits, &mut queues, [refused(1_000), GRANTED]);
        assert_eq!(waiting.request.ends_at(&waiting.charges), millis(1_000));
        waiting.request.bounds.deadline = Some(millis(700));
        assert_eq!(waiting.request.ends_at(&waiting.charges), millis(700));
        waiting.retry(&mut queues, [refused(500), GRANTED], millis(200));
        assert_eq!(waiting.hold, None, "it would end at the deadline");
        waiting.retry(&mut queues, [refused(499), GRANTED], millis(200));
        assert_eq!(waiting.hold, permits(499, false), "not new in its queue");
    }

    #[test]
    fn rejected_request_has_the_time_until_a_permit_returns() {
        let (limits, mut queues) = (limits(), WaitQueues::default());
        let waiting = Joined::new(&limits, &mut queues, [refused(500), GRANTED]);
        let mut new = charges(&limits);
        assert!(request(&new).reject_as_decided(ALL, &mut new, &queues, millis(200)));
        assert_eq!(new.wait(), Wait::Millis(300));
        assert!(!request(&new).reject_as_decided(ALL, &mut new, &queues, millis(1_500)), "the permit is late");
        let read = [Decision { remaining: 0, reset: 40, ..GRANTED }, GRANTED];
        new.decide(Outcome::new(Timestamp::default(), read.to_vec(), new.as_slice()));
        request(&new).reject_as_read(ALL, &mut new, &mut queues, millis(1_500));
        assert_eq!((new.wait(), waiting.request.joined()), (Wait::Millis(40), Some(ALL)));
        assert!(
            request(&new).reject_as_decided(ALL, &mut new, &queues, millis(1_500)),
            "recorded for the next request"
        );
    }
}
