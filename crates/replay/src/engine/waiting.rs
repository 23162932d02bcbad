//! Requests that wait for permits (`max_wait`), in virtual time: the same steps as in the gateway, without tasks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use crate::engine::decider::Decider;
use crate::report::decided::{Decided, Origin};
use tidegate_layer::admission::{MAX_LATENESS, narrowest_first};
use tidegate_limit::Wait;
use tidegate_rules::charge::BucketId;
use tidegate_rules::rules::{Charges, LimitCharge, Positions};

/// The waiting requests, and their queues: one for each bucket, in the order of joining.
#[derive(Debug, Default)]
pub(crate) struct Waiting<'r> {
    queues: HashMap<BucketId, Queue>,
    requests: HashMap<u64, WaitingRequest<'r>>,
    /// When requests continue: the time, the order among equal times, and the ticket.
    events: BinaryHeap<Reverse<(u64, u64, u64)>>,
    next_event: u64,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<u64>,
    /// The permits claimed by requests that wait for wider buckets.
    claimed: u64,
    /// The remaining permits of the bucket at its last decision, and when the next one returns.
    last: Option<(u32, u64)>,
}

#[derive(Debug)]
struct WaitingRequest<'r> {
    ticket: u64,
    origin: Origin,
    charges: Charges<'r>,
    arrived_at: u64,
    /// The positions of the live charges, the narrowest limit first.
    order: Positions,
    /// The limit that the request waits for, by its index in `order`.
    joined: Option<usize>,
    claims: Vec<Claim>,
    /// The request sleeps until this time, and then waits until it is the first in its queue.
    asleep_until: u64,
    /// Whether the request wakes if claims on its bucket are given up.
    waits_for_claims: bool,
}

/// The permits that a request needs of a narrower bucket: the index of the limit, the permits, and those that are free.
#[derive(Clone, Debug)]
struct Claim {
    index: usize,
    bucket: BucketId,
    permits: u64,
    free: u64,
}

/// Why a request cannot join a queue.
enum JoinError {
    Full,
    Claimed(Claim),
}

impl<'r> Waiting<'r> {
    /// Decides a new request, or lets it wait. [`advance`](Self::advance) must have handled all earlier events.
    pub(crate) fn arrive(
        &mut self,
        origin: Origin,
        charges: Charges<'r>,
        decider: &Decider,
        decided: &mut Vec<Decided<'r>>,
    ) {
        self.next_ticket += 1;
        let request = WaitingRequest {
            ticket: self.next_ticket,
            origin,
            arrived_at: decider.now(),
            order: narrowest_first(&charges),
            charges,
            joined: None,
            claims: Vec::new(),
            asleep_until: decider.now(),
            waits_for_claims: false,
        };
        self.decide(request, decider, decided);
    }

    /// Continues the requests whose events are due at this time or before.
    pub(crate) fn advance(&mut self, to: u64, decider: &Decider, decided: &mut Vec<Decided<'r>>) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= to
        {
            let Some(Reverse((at, _, ticket))) = self.events.pop() else { return };
            let Some(mut request) = self.requests.remove(&ticket) else { continue };
            decider.set_time(at);
            let now = decider.now();
            if request.waits_for_claims && now < request.deadline() {
                self.decide(request, decider, decided);
            } else if request.asleep_until > now && now < request.deadline() {
                self.requests.insert(ticket, request);
            } else if self.is_first(&request) && !request.waits_for_claims {
                self.decide(request, decider, decided);
            } else if now >= request.deadline() {
                let joined = request.joined;
                self.refuse(&mut request, joined, decider);
                self.finish(request, now, decided, false);
            } else {
                self.schedule(request.deadline(), ticket);
                self.requests.insert(ticket, request);
            }
        }
    }

    /// Makes the charges of a request, or lets it wait. While others wait for one of its limits, only reads them.
    fn decide(&mut self, mut request: WaitingRequest<'r>, decider: &Decider, decided: &mut Vec<Decided<'r>>) {
        loop {
            let at = decider.now();
            let behind = self.queue_ahead(&request);
            match behind {
                Some(behind) if self.is_full(&request, behind) => {
                    self.refuse(&mut request, Some(behind), decider);
                    return self.finish(request, at, decided, false);
                }
                Some(behind) => self.read(&mut request, behind, decider),
                None if decider.admit(&mut request.charges) => return self.finish(request, at, decided, true),
                None => {}
            }
            let Some(asleep_until) = self.wait(&mut request, behind, at) else {
                return self.finish(request, at, decided, false);
            };
            request.asleep_until = asleep_until;
            let is_asleep = asleep_until > at || !self.is_first(&request);
            if is_asleep {
                let until = if asleep_until > at { asleep_until } else { u64::MAX };
                self.schedule(until.min(request.deadline()), request.ticket);
                self.requests.insert(request.ticket, request);
                return;
            }
        }
    }

    /// Joins the queue of the narrowest limit that refused the request. Returns when the request wakes; `None` if it may not
    /// wait.
    fn wait(&mut self, request: &mut WaitingRequest<'r>, behind: Option<usize>, at: u64) -> Option<u64> {
        let limits = 0..request.order.len();
        let refused: Vec<usize> = limits.filter(|index| request.limit(*index).is_refused()).collect();
        let mut index = *refused.first()?;
        if !refused.iter().all(|index| request.may_wait(&request.limit(*index), at)) {
            return None;
        }
        let mut claimed = None;
        while let Err(error) = self.join(request, index, at) {
            let JoinError::Claimed(claim) = error else { return None };
            index = claim.index;
            let reset = request.limit(index).decision?.reset;
            request.charges.refuse(request.position(index), 0, reset);
            if !request.may_wait(&request.limit(index), at) {
                return None;
            }
            claimed = Some(claim);
        }
        request.joined = Some(index);
        let decision = *request.limit(index).decision?;
        let waits_for_claims = |claim: &Claim| self.is_first(request) && !self.has_free(claim, request);
        let waits_for_claims = claimed.as_ref().is_some_and(waits_for_claims);
        request.waits_for_claims = waits_for_claims;
        if waits_for_claims {
            return Some(if decision.reset > 0 { at.saturating_add(decision.reset) } else { u64::MAX });
        }
        let Wait::Millis(wait) = decision.wait else { return None };
        if claimed.is_some() || behind == Some(index) {
            return Some(at);
        }
        self.record(&request.limit(index).charge.bucket_id(), decision.remaining, at + decision.reset);
        Some(at.saturating_add(wait))
    }

    /// Joins the queue of a limit, unless the request is there.
    fn join(&mut self, request: &mut WaitingRequest<'r>, index: usize, at: u64) -> Result<(), JoinError> {
        if request.joined == Some(index) {
            return Ok(());
        }
        let claims: Vec<Claim> = (0..index).filter_map(|index| request.claim(index)).collect();
        if let Some(claimed) = claims.iter().find(|claim| !self.has_free(claim, request)) {
            return Err(JoinError::Claimed(claimed.clone()));
        }
        if self.is_full(request, index) {
            return Err(JoinError::Full);
        }
        self.leave(request, at);
        let bucket = request.limit(index).charge.bucket_id();
        self.queues.entry(bucket).or_default().waiting.push_back(request.ticket);
        for claim in &claims {
            self.queues.entry(claim.bucket.clone()).or_default().claimed += claim.permits;
        }
        request.claims = claims;
        Ok(())
    }

    /// Leaves the queue, gives up the claims, and wakes the first requests of these queues.
    fn leave(&mut self, request: &mut WaitingRequest<'r>, at: u64) {
        let Some(joined) = request.joined.take() else { return };
        let ticket = request.ticket;
        self.change(&request.limit(joined).charge.bucket_id(), at, |queue| queue.waiting.retain(|one| *one != ticket));
        for claim in std::mem::take(&mut request.claims) {
            self.change(&claim.bucket, at, |queue| queue.claimed -= claim.permits);
        }
    }

    fn change(&mut self, bucket: &BucketId, at: u64, change: impl FnOnce(&mut Queue)) {
        let Some(queue) = self.queues.get_mut(bucket) else { return };
        change(queue);
        match queue.waiting.front().copied() {
            Some(first) => self.schedule(at, first),
            None if queue.claimed == 0 => _ = self.queues.remove(bucket),
            None => {}
        }
    }

    /// Returns the first limit after the one that the request waits for that other requests wait for.
    fn queue_ahead(&self, request: &WaitingRequest<'r>) -> Option<usize> {
        let is_waited_for = |index: &usize| {
            let one = request.limit(*index);
            let queue = self.queues.get(&one.charge.bucket_id());
            one.limit.wait_policy.is_some() && queue.is_some_and(|queue| !queue.waiting.is_empty())
        };
        (request.joined.map_or(0, |joined| joined + 1)..request.order.len()).find(is_waited_for)
    }

    fn is_full(&self, request: &WaitingRequest<'r>, index: usize) -> bool {
        let one = request.limit(index);
        let max = one.limit.wait_policy.map_or(0, |wait_policy| wait_policy.queue.max(1));
        self.queues.get(&one.charge.bucket_id()).is_some_and(|queue| queue.waiting.len() >= max)
    }

    fn has_free(&self, claim: &Claim, request: &WaitingRequest<'r>) -> bool {
        let claimed = self.queues.get(&claim.bucket).map_or(0, |queue| queue.claimed);
        let own = request.claims.iter().find(|own| own.bucket == claim.bucket).map_or(0, |own| own.permits);
        claimed - own + claim.permits <= claim.free
    }

    fn record(&mut self, bucket: &BucketId, remaining: u32, returns_at: u64) {
        if let Some(queue) = self.queues.get_mut(bucket) {
            queue.last = Some((remaining, returns_at));
        }
    }

    /// Returns the last decision about the bucket of a limit: the remaining permits, and the time until one returns.
    fn last_decision(&self, one: &LimitCharge<'_>, now: u64) -> Option<(u32, u64)> {
        let (remaining, returns_at) = self.queues.get(&one.charge.bucket_id())?.last?;
        (now < returns_at + millis(MAX_LATENESS)).then_some((remaining, returns_at.saturating_sub(now).max(1)))
    }

    /// Reads the limits of a request that waits behind others.
    fn read(&self, request: &mut WaitingRequest<'r>, behind: usize, decider: &Decider) {
        match request.order.len() {
            ..=1 => request.charges.forget_decisions(),
            _ => decider.read(&mut request.charges),
        }
        let entry = request.limit(behind);
        let known = self.last_decision(&entry, decider.now());
        let (remaining, wait) = known.filter(|(remaining, _)| *remaining < entry.charge.permits).unwrap_or((0, 0));
        request.charges.refuse(request.position(behind), remaining, wait);
    }

    /// Adds the refusal of a request that may not wait for a limit.
    fn refuse(&mut self, request: &mut WaitingRequest<'r>, index: Option<usize>, decider: &Decider) {
        request.charges.forget_decisions();
        let Some(index) = index else { return };
        let (remaining, wait) = match self.last_decision(&request.limit(index), decider.now()) {
            Some(last) => last,
            None => {
                decider.read(&mut request.charges);
                let entry = request.limit(index);
                let (remaining, reset) = entry.decision.map_or((0, 0), |decision| (decision.remaining, decision.reset));
                self.record(&entry.charge.bucket_id(), remaining, decider.now() + reset);
                (remaining, reset)
            }
        };
        request.charges.refuse(request.position(index), remaining, wait);
    }

    fn finish(&mut self, mut request: WaitingRequest<'r>, at: u64, decided: &mut Vec<Decided<'r>>, admitted: bool) {
        if let Some(entry) = request.joined.filter(|_| admitted).map(|joined| request.limit(joined))
            && let Some(decision) = entry.decision
        {
            self.record(&entry.charge.bucket_id(), decision.remaining, at + decision.reset);
        }
        self.leave(&mut request, at);
        let WaitingRequest { origin, charges, .. } = request;
        decided.push(Decided { origin, charges, admitted, at });
    }

    fn schedule(&mut self, at: u64, ticket: u64) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, ticket)));
    }

    fn is_first(&self, request: &WaitingRequest<'r>) -> bool {
        let Some(one) = request.joined.map(|joined| request.limit(joined)) else { return true };
        let queue = self.queues.get(&one.charge.bucket_id());
        queue.and_then(|queue| queue.waiting.front()).is_none_or(|first| *first == request.ticket)
    }
}

impl WaitingRequest<'_> {
    /// Returns the position of the charge with this index in the order.
    fn position(&self, index: usize) -> usize {
        self.order[index].into()
    }

    /// Returns the limit with this index in the order.
    fn limit(&self, index: usize) -> LimitCharge<'_> {
        self.charges.at(self.position(index))
    }

    fn claim(&self, index: usize) -> Option<Claim> {
        let entry = self.limit(index);
        let decision = entry.decision.filter(|_| entry.charge.limiter.shards().is_empty())?;
        let (permits, free) = (entry.charge.permits.into(), decision.remaining.into());
        Some(Claim { index, bucket: entry.charge.bucket_id(), permits, free })
    }

    /// Returns the time until which the request may wait in its queue.
    fn deadline(&self) -> u64 {
        let wait_policy = self.joined.and_then(|joined| self.limit(joined).limit.wait_policy);
        self.arrived_at.saturating_add(millis(wait_policy.map_or(Duration::ZERO, |wait_policy| wait_policy.max_wait)))
    }

    fn may_wait(&self, entry: &LimitCharge<'_>, now: u64) -> bool {
        let wait = entry.decision.map(|decision| decision.wait);
        let (Some(wait_policy), Some(Wait::Millis(wait))) = (&entry.limit.wait_policy, wait) else { return false };
        now.saturating_sub(self.arrived_at).saturating_add(wait) <= millis(wait_policy.max_wait)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
