//! Requests that are decided in one call, as if they had come one by one.
//!
//! A bucket that many of them ask for is read and written once, and requests in a row that ask for the same are one entry
//! with a count. So what a call costs grows with its buckets, and hardly with its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::buckets::{Buckets, RequestedCharge};
use super::reply::{Outcomes, Reply};
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// Most work of a call, so that nobody on this Redis waits for long meanwhile: 64 buckets take it less than a millisecond.
pub(crate) const MAX_WORK: usize = 64;

/// To tell when many permits will have returned, Redis may have to read their entries; so many entries are as much work as a
/// bucket.
const ENTRIES_PER_BUCKET: u32 = 16;

/// Most requests of a call.
const MAX_REQUESTS: usize = 4_096;

/// A request that waits to be decided.
#[derive(Debug)]
pub(crate) struct PendingDecision {
    pub(crate) charges: Vec<Charge>,
    /// The time to decide at; Redis's own if none is given.
    pub(crate) now: Option<Timestamp>,
    pub(crate) deadline: Instant,
    pub(crate) decided: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The requests of a call, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: Vec<PendingDecision>,
    buckets: Buckets,
    runs: Vec<RequestRun>,
    /// What all runs ask for, one after the other.
    limits: Vec<RequestedCharge>,
    work: usize,
    is_shared: bool,
    _token: InFlightToken,
}

/// Of calls that are sent together: they count as one until the last of them is over.
#[derive(Clone, Debug)]
pub(crate) struct InFlightToken(#[expect(dead_code, reason = "it counts")] Arc<InFlightGroup>);

/// Counts the flights that are under way for a queue.
#[derive(Debug)]
struct InFlightGroup(#[expect(dead_code, reason = "it counts")] Arc<()>);

/// So many requests in a row that ask for the same.
#[derive(Debug)]
struct RequestRun {
    count: u32,
    limits: usize,
}

/// When and by what a call decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTime {
    /// The time to decide at; Redis's own if none is given.
    pub(crate) now: Option<Timestamp>,
    /// The time around which limits by the calendar are sent their boundaries.
    pub(crate) near: Timestamp,
    /// Tells log entries that are shared with others from all others.
    pub(crate) random: u64,
}

// === impl PendingDecision ===

impl PendingDecision {
    /// False if the client has left or the deadline has passed: it is not charged then.
    fn is_waited_for(&self, now: Instant) -> bool {
        now < self.deadline && !self.decided.is_closed()
    }

    pub(crate) fn fail(self, error: &StoreError) {
        _ = self.decided.send(Err(error.clone()));
    }
}

// === impl InFlightToken ===

impl InFlightToken {
    /// Another one of these.
    pub(crate) fn new(in_flight: &Arc<()>) -> Self {
        Self(Arc::new(InFlightGroup(Arc::clone(in_flight))))
    }
}

// === impl Batch ===

impl Batch {
    /// An empty one.
    pub(crate) fn new(token: InFlightToken) -> Self {
        let (requests, runs, limits) = (Vec::new(), Vec::new(), Vec::new());
        Self { requests, buckets: Buckets::default(), runs, limits, work: 0, is_shared: false, _token: token }
    }

    /// An empty one for requests about shared limiters.
    pub(crate) fn shared(token: InFlightToken) -> Self {
        Self { is_shared: true, ..Self::new(token) }
    }

    /// Whether it is about shared limiters.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// What its first request asks for.
    pub(crate) fn first(&self) -> &[Charge] {
        self.requests.first().map_or(&[], |first| &first.charges)
    }

    /// That of one request.
    pub(crate) fn single(request: PendingDecision) -> Self {
        let mut batch = Self::new(InFlightToken::new(&Arc::default()));
        batch.push(request);
        batch
    }

    /// How much of a call's work it is, in buckets.
    pub(crate) fn work(&self) -> usize {
        self.work
    }

    /// Takes so many of a queue at most, as far as there is room; returns whether there is none for the next.
    pub(crate) fn take_from(&mut self, queue: &mut VecDeque<PendingDecision>, at_most: usize, now: Instant) -> bool {
        for _ in 0..at_most {
            let Some(next) = queue.pop_front_if(|next| self.has_capacity_for(next)) else { return !queue.is_empty() };
            if next.is_waited_for(now) {
                self.push(next);
            } else {
                next.fail(&StoreError::Timeout);
            }
        }
        false
    }

    fn has_capacity_for(&self, next: &PendingDecision) -> bool {
        let Some(first) = self.requests.first() else { return true };
        // Those of a bucket that is in the call already are as good as nothing, and seldom as many as there is room for.
        let work = self.work + next.charges.iter().map(work).sum::<usize>();
        let has_capacity = self.requests.len() < MAX_REQUESTS && work <= MAX_WORK;
        has_capacity && first.now == next.now && !self.buckets.conflicts_with(&next.charges)
    }

    fn push(&mut self, request: PendingDecision) {
        let begin = self.limits.len();
        for charge in &request.charges {
            let known = self.buckets.len();
            let bucket = self.buckets.index(charge);
            self.work += if self.buckets.len() > known { work(charge) } else { work(charge) - 1 };
            self.limits.push(RequestedCharge { bucket, shadow: charge.shadow, permits: charge.permits });
        }
        let (before, asked) = self.limits.split_at(begin);
        match self.runs.last_mut() {
            Some(last) if before.len() >= asked.len() && last.limits == asked.len() && before.ends_with(asked) => {
                last.count += 1;
                self.limits.truncate(begin);
            }
            _ => self.runs.push(RequestRun { count: 1, limits: asked.len() }),
        }
        self.requests.push(request);
    }

    /// How many requests are in it.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The time to decide at; Redis's own if none is given.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.requests.first().and_then(|first| first.now)
    }

    /// The latest of their deadlines.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.deadline).max()
    }

    /// Adds the keys and arguments by which the script decides all of it.
    pub(crate) fn write(&self, call: &mut Cmd, secret: &KeySecret, time: DecisionTime) {
        call.arg(self.buckets.number_of_keys());
        self.buckets.each_key(secret, |key| _ = call.arg(key));
        call.arg("admit").arg(self.buckets.limiter_args(time.near)).arg(self.encode_requests());
        // Every argument costs Redis as much as a look at a small table: there are none that nobody needs.
        let is_shared = |algorithm| matches!(algorithm, Algorithm::Redisson(_));
        if time.now.is_some() || self.buckets.algorithms().any(is_shared) {
            call.arg(&time.random.to_be_bytes());
        }
        if let Some(now) = time.now {
            call.arg(now.as_millis());
        }
    }

    /// How many requests there are of each run, and what one asks for.
    fn runs(&self) -> impl Iterator<Item = (u32, &[RequestedCharge])> {
        let mut limits = &self.limits[..];
        self.runs.iter().map(move |run| {
            let (asked, rest) = limits.split_at(run.limits);
            limits = rest;
            (run.count, asked)
        })
    }

    /// The requests as the script takes them.
    fn encode_requests(&self) -> Vec<u8> {
        let (first_numbers, mut bytes) =
            (self.buckets.first_numbers(), Vec::with_capacity(7 * (self.runs.len() + self.limits.len())));
        for (count, asked) in self.runs() {
            bytes.extend(count.to_le_bytes());
            // A route has at most as many limits as fit here, and a call as many buckets.
            bytes.push(u8::try_from(asked.len()).unwrap_or(u8::MAX));
            for one in asked {
                bytes.extend(u16::try_from(one.bucket.number(&first_numbers)).unwrap_or(u16::MAX).to_le_bytes());
                bytes.push(u8::from(one.shadow));
                bytes.extend(one.permits.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what the script returns.
    pub(crate) fn read(&self, reply: &Value) -> Result<Reply, StoreError> {
        let Value::BulkString(bytes) = reply else { return Err(StoreError::UnexpectedReply) };
        Reply::read(bytes, self.runs()).ok_or(StoreError::UnexpectedReply)
    }

    /// Tells everybody what was decided, but those who are to ask retries at once; these are returned.
    pub(crate) fn send_outcomes(self, outcomes: &Outcomes) -> Vec<PendingDecision> {
        let mut retries = Vec::new();
        for (request, outcome) in self.requests.into_iter().zip(outcomes.iter(&self.limits)) {
            if must_retry(&outcome) {
                retries.push(request);
            } else {
                // A client that left meanwhile stays charged, as if it had left a time later.
                _ = request.decided.send(Ok(outcome));
            }
        }
        retries
    }

    pub(crate) fn fail(self, error: &StoreError) {
        self.requests.into_iter().for_each(|request| request.fail(error));
    }
}

/// Was it refused although permits have returned, since a call removes only so many entries? A granted request never asks retries:
/// it has been charged.
fn must_retry(outcome: &Outcome) -> bool {
    !outcome.granted() && outcome.decisions.iter().any(|decision| decision.wait == Wait::Millis(0))
}

/// How much a charge may have to be read for, in buckets.
fn work(charge: &Charge) -> usize {
    1 + usize::try_from(charge.permits.min(512) / ENTRIES_PER_BUCKET).unwrap_or(0)
}
