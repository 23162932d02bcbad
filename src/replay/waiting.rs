//! Requests that wait for permits (`max_wait`), in virtual time: the same steps as in the gateway, without tasks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::time::Duration;

use super::decided::{Decided, Origin};
use super::decider::{Decider, Refused};
use crate::admission::LimitStatus;
use crate::limit::{BucketId, Decision, Wait};
use crate::rules::{Charges, LimitCharge};

/// The waiting requests, and their queues: one for each bucket, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting<'r> {
    queues: HashMap<BucketId, BTreeSet<u64>>,
    requests: HashMap<u64, WaitingRequest<'r>>,
    /// When requests continue: the time, the order among equal times, and the ticket.
    events: BinaryHeap<Reverse<(u64, u64, u64)>>,
    next_event: u64,
    next_ticket: u64,
}

#[derive(Debug)]
struct WaitingRequest<'r> {
    origin: Origin<'r>,
    charges: Charges<'r>,
    arrived_at: u64,
    /// The queues of the request.
    buckets: Vec<BucketId>,
    /// The request sleeps until this time, and then waits until it is the first in its queues.
    asleep_until: u64,
}

/// The queue is full.
struct QueueFull;

impl<'r> Waiting<'r> {
    /// Decides a new request, or lets it wait. [`advance`](Self::advance) must have handled all earlier events.
    pub(super) fn arrive(
        &mut self,
        origin: Origin<'r>,
        charges: Charges<'r>,
        decider: &Decider,
        decided: &mut Vec<Decided<'r>>,
    ) {
        let at = decider.now();
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let mut request = WaitingRequest { origin, charges, arrived_at: at, buckets: Vec::new(), asleep_until: at };
        let queued = |one: &LimitCharge<'_>| allows_waiting(one) && self.queues.contains_key(&one.charge.bucket_id());
        let queued = positions(&request.charges, queued);
        match self.join(ticket, &mut request, &queued) {
            Err(QueueFull) => self.reject_from_queue(ticket, request, &queued, decider, decided),
            Ok(()) if queued.is_empty() => self.decide(ticket, request, decider, decided),
            Ok(()) => self.wait_until_first(ticket, request),
        }
    }

    /// Continues the requests whose events are due at this time or before.
    pub(super) fn advance(&mut self, to: u64, decider: &Decider, decided: &mut Vec<Decided<'r>>) {
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at <= to
        {
            let Some(Reverse((at, _, ticket))) = self.events.pop() else { return };
            let Some(request) = self.requests.remove(&ticket) else { continue };
            decider.set_time(at);
            let now = decider.now();
            if request.asleep_until > now {
                self.requests.insert(ticket, request);
            } else if self.is_first(ticket, &request) {
                self.decide(ticket, request, decider, decided);
            } else if now >= request.deadline() {
                let joined = |one: &LimitCharge<'_>| request.buckets.contains(&one.charge.bucket_id());
                let joined = positions(&request.charges, joined);
                self.reject_from_queue(ticket, request, &joined, decider, decided);
            } else {
                self.wait_until_first(ticket, request);
            }
        }
    }

    fn decide(
        &mut self,
        ticket: u64,
        mut request: WaitingRequest<'r>,
        decider: &Decider,
        decided: &mut Vec<Decided<'r>>,
    ) {
        let at = decider.now();
        let Refused { status, wait } = match decider.admit(&request.charges) {
            Ok(status) => return self.finish(ticket, request, status, at, decided, true),
            Err(refused) => refused,
        };
        let refused = |one: &LimitCharge<'_>| !one.limit.shadow && status.refused(one);
        let refused = positions(&request.charges, refused);
        let all_may = refused.iter().all(|one| request.may_wait(&request.charges.at(*one), &status, at));
        let Wait::Millis(millis) = wait else { return self.finish(ticket, request, status, at, decided, false) };
        if !all_may || self.join(ticket, &mut request, &refused).is_err() {
            return self.finish(ticket, request, status, at, decided, false);
        }
        request.asleep_until = at.saturating_add(millis);
        self.schedule(request.asleep_until, ticket);
        self.requests.insert(ticket, request);
    }

    /// Lets a request wait until it is the first in its queues, or until its deadline.
    fn wait_until_first(&mut self, ticket: u64, request: WaitingRequest<'r>) {
        self.schedule(request.deadline(), ticket);
        self.requests.insert(ticket, request);
    }

    /// Rejects a request because of these queues: one is full, or the wait was too long.
    fn reject_from_queue(
        &mut self,
        ticket: u64,
        request: WaitingRequest<'r>,
        queues: &[usize],
        decider: &Decider,
        decided: &mut Vec<Decided<'r>>,
    ) {
        let mut decisions = decider.read(&request.charges);
        for position in queues {
            let Some(decision) = decisions.get_mut(*position) else { continue };
            *decision = Decision { granted: false, wait: Wait::Millis(decision.reset), ..*decision };
        }
        let indices = request.charges.positions().iter().copied();
        let status = indices.zip(decisions).collect();
        self.finish(ticket, request, status, decider.now(), decided, false);
    }

    fn finish(
        &mut self,
        ticket: u64,
        request: WaitingRequest<'r>,
        status: LimitStatus,
        at: u64,
        decided: &mut Vec<Decided<'r>>,
        admitted: bool,
    ) {
        let WaitingRequest { origin, charges, buckets, .. } = request;
        for bucket in buckets {
            let Some(queue) = self.queues.get_mut(&bucket) else { continue };
            queue.remove(&ticket);
            match queue.first().copied() {
                Some(next) => self.schedule(at, next),
                None => _ = self.queues.remove(&bucket),
            }
        }
        decided.push(Decided { origin, charges, status, admitted, at });
    }

    fn schedule(&mut self, at: u64, ticket: u64) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, ticket)));
    }

    fn join(&mut self, ticket: u64, request: &mut WaitingRequest<'r>, positions: &[usize]) -> Result<(), QueueFull> {
        for position in positions {
            let one = request.charges.at(*position);
            let max = one.limit.wait_policy.as_ref().map_or(0, |wait_policy| wait_policy.queue);
            let bucket = one.charge.bucket_id();
            if request.buckets.contains(&bucket) {
                continue;
            }
            let queue = self.queues.entry(bucket.clone()).or_default();
            if queue.len() >= max.max(1) {
                return Err(QueueFull);
            }
            queue.insert(ticket);
            request.buckets.push(bucket);
        }
        Ok(())
    }

    fn is_first(&self, ticket: u64, request: &WaitingRequest<'r>) -> bool {
        let first = |bucket| self.queues.get(bucket).and_then(|queue| queue.first());
        request.buckets.iter().all(|bucket| first(bucket).is_none_or(|first| *first == ticket))
    }
}

impl WaitingRequest<'_> {
    /// Returns the time until which the request may wait in its queues.
    fn deadline(&self) -> u64 {
        let joined = self.charges.iter().filter(|one| self.buckets.contains(&one.charge.bucket_id()));
        let max_wait = joined.filter_map(|one| Some(one.limit.wait_policy.as_ref()?.max_wait)).min();
        self.arrived_at.saturating_add(millis(max_wait.unwrap_or_default()))
    }

    fn may_wait(&self, one: &LimitCharge<'_>, status: &LimitStatus, now: u64) -> bool {
        let wait = status.decision(one.index).map(|decision| decision.wait);
        let (Some(wait_policy), Some(Wait::Millis(wait))) = (&one.limit.wait_policy, wait) else { return false };
        now.saturating_sub(self.arrived_at).saturating_add(wait) <= millis(wait_policy.max_wait)
    }
}

fn allows_waiting(one: &LimitCharge<'_>) -> bool {
    !one.limit.shadow && one.limit.wait_policy.is_some()
}

fn positions(charges: &Charges<'_>, which: impl Fn(&LimitCharge<'_>) -> bool) -> Vec<usize> {
    charges.iter().enumerate().filter(|(_, one)| which(one)).map(|(position, _)| position).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
