//! A batch of requests that one call decides, as if they had arrived one after the other.
//!
//! The script reads and writes each bucket once, and equal consecutive requests are one entry with a count. So the
//! cost of a call depends on its buckets and hardly on its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::buckets::{Buckets, RequestedCharge};
use super::reply::{Outcomes, Reply};
use super::slots::{LeaseRequest, SlotBuckets};
use crate::StoreError;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Algorithm, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Granted, Outcome, ReservationId, Turn};
use tidegate_rules::settings::store::KeySecret;

/// The maximum work of a call, in buckets. Redis needs less than a millisecond for 64 buckets, so other calls do not
/// wait long.
pub(crate) const MAX_WORK: usize = 64;

/// The number of log entries that cost as much as a bucket. A charge of many permits may have to read their entries.
const ENTRIES_PER_BUCKET: u32 = 16;

/// The maximum number of requests in a call.
const MAX_REQUESTS: usize = 4_096;

/// A request that waits for its decision.
#[derive(Debug)]
pub(crate) struct PendingDecision {
    charges: Vec<Charge>,
    lease: Option<LeaseRequest>,
    deadline: Instant,
    /// `None` once the request has failed.
    decided: Option<oneshot::Sender<Result<Outcome, StoreError>>>,
}

/// The requests of a call, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: WaitingRequests,
    len: usize,
    buckets: Buckets,
    slots: SlotBuckets,
    runs: Vec<RequestRun>,
    /// The charges of all runs, one run after the other.
    limits: Vec<RequestedCharge>,
    work: usize,
    is_redisson: bool,
    token: Option<InFlightToken>,
}

/// The requests of a call that wait for its reply.
#[derive(Debug, Default)]
pub(crate) struct WaitingRequests(Vec<PendingDecision>);

/// The consequences of a reply other than its outcomes.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    /// The requests that must be sent again.
    pub retries: Vec<PendingDecision>,
    /// Permits that were granted to requests that had failed before.
    pub late: Vec<Granted>,
}

/// A token of calls that are sent together. They count as one call in flight until the last of them has ended.
#[derive(Clone, Debug)]
pub(crate) struct InFlightToken(#[expect(dead_code, reason = "it counts")] Arc<InFlightGroup>);

/// Counts one group of calls in flight.
#[derive(Debug)]
struct InFlightGroup(#[expect(dead_code, reason = "it counts")] Arc<()>);

/// Equal consecutive requests.
#[derive(Debug)]
struct RequestRun {
    count: u32,
    limits: usize,
}

/// The time of a decision, and a random number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTime {
    /// The decision time; `None` for Redis's own time.
    pub now: Option<Timestamp>,
    /// The time that calendar limits are sent the boundaries for.
    pub near: Timestamp,
    /// Distinguishes log entries of shared limiters from all others.
    pub random: u64,
}

// === impl PendingDecision ===

impl PendingDecision {
    /// The outcome has a decision for each charge, then for each bound of the lease.
    pub(crate) fn new(
        charges: &[Charge],
        lease: Option<&LeaseRequest>,
        deadline: Instant,
        decided: oneshot::Sender<Result<Outcome, StoreError>>,
    ) -> Self {
        Self { charges: charges.to_vec(), lease: lease.cloned(), deadline, decided: Some(decided) }
    }

    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns the name of the slots that the request takes a lease of.
    pub(crate) fn slots(&self) -> Option<&str> {
        self.lease.as_ref().map(LeaseRequest::slots)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns `false` if the client has left or the deadline has passed. Then the request is not charged.
    fn is_waited_for(&self, now: Instant) -> bool {
        now < self.deadline && self.decided.as_ref().is_some_and(|decided| !decided.is_closed())
    }

    fn send(&mut self, result: Result<Outcome, StoreError>) {
        if let Some(decided) = self.decided.take() {
            // A client that left in the meantime stays charged, as if it had left later.
            _ = decided.send(result);
        }
    }

    pub(crate) fn fail(mut self, error: &StoreError) {
        self.send(Err(error.clone()));
    }

    /// Fails the request if its deadline has passed. Returns `false` then.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let is_overdue = self.deadline <= now;
        if is_overdue {
            self.send(Err(StoreError::Timeout));
        }
        !is_overdue
    }
}

// === impl InFlightToken ===

impl InFlightToken {
    /// Creates a token for this counter.
    pub(crate) fn new(in_flight: &Arc<()>) -> Self {
        Self(Arc::new(InFlightGroup(Arc::clone(in_flight))))
    }
}

// === impl Batch ===

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new(token: InFlightToken) -> Self {
        let (requests, buckets, slots, runs, limits) = Default::default();
        Self { requests, len: 0, buckets, slots, runs, limits, work: 0, is_redisson: false, token: Some(token) }
    }

    /// Creates an empty batch for requests with shared limiters.
    pub(crate) fn for_redisson(token: InFlightToken) -> Self {
        Self { is_redisson: true, ..Self::new(token) }
    }

    /// Returns `true` if the batch is for shared limiters.
    pub(crate) fn is_redisson(&self) -> bool {
        self.is_redisson
    }

    /// Returns the charges of the first request.
    pub(crate) fn first(&self) -> &[Charge] {
        self.requests.0.first().map_or(&[], |first| &first.charges)
    }

    /// Creates a batch of a single request.
    pub(crate) fn single(request: PendingDecision) -> Self {
        let mut batch = Self::new(InFlightToken::new(&Arc::default()));
        batch.push(request);
        batch
    }

    /// Returns the buckets, and the charges of all requests.
    pub(super) fn parts(&self) -> (&Buckets, &[RequestedCharge]) {
        (&self.buckets, &self.limits)
    }

    /// Returns the work of the batch, in buckets.
    pub(crate) fn work(&self) -> usize {
        self.work
    }

    /// Takes at most `at_most` requests from a queue. Returns `true` if the batch has no capacity for the next
    /// request.
    pub(crate) fn take_from(&mut self, queue: &mut VecDeque<PendingDecision>, at_most: usize, now: Instant) -> bool {
        for _ in 0..at_most {
            if queue.front().is_some_and(|next| !self.has_capacity_for(next)) {
                return true;
            }
            let Some(next) = queue.pop_front() else { return false };
            if next.is_waited_for(now) {
                self.push(next);
            } else {
                next.fail(&StoreError::Timeout);
            }
        }
        false
    }

    fn has_capacity_for(&self, next: &PendingDecision) -> bool {
        if self.is_empty() {
            return true;
        }
        // Assumes new buckets. Buckets that are already in the call cost almost nothing, but rarely fill it.
        let leases = next.lease.as_ref().map_or(0, LeaseRequest::len);
        let work = self.work + next.charges.iter().map(work).sum::<usize>() + leases;
        let has_capacity = self.len < MAX_REQUESTS && work <= MAX_WORK;
        let conflicts = || next.lease.as_ref().is_some_and(|lease| self.slots.conflict_with(lease));
        has_capacity && !self.buckets.conflicts_with(&next.charges) && !conflicts()
    }

    fn push(&mut self, request: PendingDecision) {
        let begin = self.limits.len();
        for charge in &request.charges {
            let len_before = self.buckets.len();
            let bucket = self.buckets.index(charge);
            self.work += if self.buckets.len() > len_before { work(charge) } else { work(charge) - 1 };
            let Charge { shadow, kind, permits, ref turn, .. } = *charge;
            let turn = turn.clone();
            self.limits.push(RequestedCharge { bucket, is_slot: false, shadow, kind, permits, turn });
        }
        if let Some(lease) = &request.lease {
            let permits = lease.lease.number;
            for bucket in self.slots.index(lease) {
                let (shadow, kind, turn) = (false, ChargeKind::Take, Turn::Any);
                self.limits.push(RequestedCharge { bucket, is_slot: true, shadow, kind, permits, turn });
                self.work += 1; // each lease needs a separate decision
            }
        }
        let (before, charges) = self.limits.split_at(begin);
        match self.runs.last_mut() {
            Some(last)
                if before.len() >= charges.len() && last.limits == charges.len() && before.ends_with(charges) =>
            {
                last.count += 1;
                self.limits.truncate(begin);
            }
            _ => self.runs.push(RequestRun { count: 1, limits: charges.len() }),
        }
        self.requests.0.push(request);
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the token. The call counts as in flight until it is dropped.
    pub(crate) fn take_token(&mut self) -> Option<InFlightToken> {
        self.token.take()
    }

    /// Takes the requests, which wait while the call runs. The call releases ended leases of their worker.
    pub(crate) fn take_requests(&mut self) -> WaitingRequests {
        let leases = || self.requests.0.iter().filter_map(|request| request.lease.as_ref());
        if let Some(first) = leases().next() {
            leases().for_each(|request| request.lease.set_may_exist(true));
            self.slots.take_released(&first.lease);
        }
        std::mem::take(&mut self.requests)
    }

    /// Records that the call has succeeded.
    pub(crate) fn succeeded(&self) {
        self.slots.done();
    }

    /// Lets another call release the ended leases of this call, which may not succeed.
    pub(crate) fn give_up_releases(&self) {
        self.slots.give_up_releases();
    }

    /// Adds the keys and arguments of the script.
    pub(crate) fn write(&self, call: &mut Cmd, secret: &KeySecret, time: DecisionTime) {
        let slots = (!self.slots.is_empty()).then(|| self.slots.encode(secret));
        let slot_keys = slots.as_ref().map_or(&[][..], |slots| &slots.keys);
        call.arg(self.buckets.number_of_keys() + slot_keys.len());
        self.buckets.each_key(secret, |key| _ = call.arg(key));
        slot_keys.iter().for_each(|key| _ = call.arg(key));
        let limiters = self.buckets.limiter_args(time.near) + slots.as_ref().map_or("", |slots| &slots.args.0);
        call.arg("admit").arg(limiters).arg(self.encode_requests(slots.map_or(0, |slots| slots.first)));
        // Every argument costs Redis as much as a table lookup, so unused ones are omitted.
        let is_redisson = |algorithm| matches!(algorithm, Algorithm::Redisson(_));
        if time.now.is_some() || self.buckets.algorithms().any(is_redisson) {
            call.arg(&time.random.to_be_bytes());
        }
        if let Some(now) = time.now {
            call.arg(now.as_millis());
        }
    }

    /// Returns the runs: the number of requests, and the charges of each.
    fn runs(&self) -> impl Iterator<Item = (u32, &[RequestedCharge])> {
        let mut limits = &self.limits[..];
        self.runs.iter().map(move |run| {
            let (charges, rest) = limits.split_at(run.limits);
            limits = rest;
            (run.count, charges)
        })
    }

    /// Encodes the requests for the script. `skipped` buckets are between the buckets of limits and of slots.
    pub(super) fn encode_requests(&self, skipped: usize) -> Vec<u8> {
        let first_numbers = self.buckets.first_numbers();
        let first_of_slots = self.slots.first_numbers(1 + self.buckets.len() + skipped);
        let mut bytes = Vec::with_capacity(7 * (self.runs.len() + self.limits.len()));
        for (count, charges) in self.runs() {
            bytes.extend(count.to_le_bytes());
            // The limits of a route fit into a byte, and the buckets of a call into two.
            bytes.push(u8::try_from(charges.len()).unwrap_or(u8::MAX));
            for charge in charges {
                let number = charge.bucket.number(if charge.is_slot { &first_of_slots } else { &first_numbers });
                bytes.extend(u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes());
                let turn = match &charge.turn {
                    Turn::Any => 0,
                    Turn::Last => 4,
                    Turn::First(_) => 8,
                    Turn::Within { .. } => 32,
                };
                bytes.push(charge.flags() | turn);
                bytes.extend(charge.permits.to_le_bytes());
                match &charge.turn {
                    Turn::First(start) => {
                        let ages = &start.ages[..start.ages.len().min(usize::from(u8::MAX))];
                        bytes.extend(start.queue.to_le_bytes());
                        bytes.extend(&start.millis.to_le_bytes()[..6]);
                        bytes.push(u8::try_from(ages.len()).unwrap_or(u8::MAX));
                        ages.iter().for_each(|age| bytes.extend(age.to_le_bytes()));
                    }
                    Turn::Within { millis } => bytes.extend(&millis.to_le_bytes()[..6]),
                    Turn::Any | Turn::Last => {}
                }
                if let Some(ReservationId { gateway, number }) = charge.kind.reservation() {
                    bytes.extend(gateway.to_be_bytes());
                    bytes.extend(number.to_be_bytes());
                }
            }
        }
        bytes
    }

    /// Parses the reply of the script.
    pub(crate) fn read(&self, reply: &Value) -> Result<Reply, StoreError> {
        let Value::BulkString(bytes) = reply else { return Err(StoreError::UnexpectedReply) };
        Reply::read(bytes, self.runs()).ok_or(StoreError::UnexpectedReply)
    }
}

// === impl WaitingRequests ===

impl WaitingRequests {
    /// Returns the earliest deadline of the requests that have not failed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting = self.0.iter().filter(|request| request.decided.is_some());
        waiting.map(|request| request.deadline).min()
    }

    /// Fails the requests whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|request| _ = request.expire(now));
    }

    /// Sends the outcomes of `batch` to the callers.
    pub(crate) fn send_outcomes(self, batch: &Batch, outcomes: &Outcomes) -> Unsent {
        let mut unsent = Unsent::default();
        for (mut request, outcome) in self.0.into_iter().zip(outcomes.iter(&batch.limits)) {
            if request.decided.is_none() {
                let granted = outcome.granted_charges(&request.charges).into_iter();
                // Unconditional charges are for something that has happened.
                unsent.late.extend(
                    granted.filter(|grant| matches!(grant.charge.kind, ChargeKind::Take | ChargeKind::Reserve(_))),
                );
            } else if must_retry(&outcome) {
                unsent.retries.push(request);
            } else {
                request.send(Ok(outcome));
            }
        }
        unsent
    }

    pub(crate) fn fail(self, error: &StoreError) {
        self.0.into_iter().for_each(|request| request.fail(error));
    }
}

/// Returns `true` if the request was refused although permits are available: a call removes only a limited number of
/// returned entries. A granted request is never sent again, since it has been charged.
pub(super) fn must_retry(outcome: &Outcome) -> bool {
    !outcome.granted() && outcome.decisions.iter().any(|decision| decision.wait == Wait::Millis(0))
}

/// Returns the work of a charge, in buckets.
fn work(charge: &Charge) -> usize {
    1 + usize::try_from(charge.permits.min(512) / ENTRIES_PER_BUCKET).unwrap_or(0)
}
