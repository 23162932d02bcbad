//! Requests that are decided in one call, as if they had come one by one.
//!
//! A bucket that many of them ask for is read and written once, and requests in a row that ask for the same are one entry
//! with a count. So what a call costs grows with its buckets, and hardly with its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answers::{Answers, Reply};
use super::buckets::{AskedLimit, Buckets};
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// Most work of a call, so that nobody on this Redis waits for long meanwhile: 64 buckets take it less than a millisecond.
pub(crate) const MAX_WORK: usize = 64;

/// To tell when many permits will have returned, Redis may have to read their entries; so many entries are as much work as a
/// bucket.
const ENTRIES: u32 = 16;

/// Most requests of a call.
const MAX_REQUESTS: usize = 4_096;

/// A request that waits to be decided.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) charges: Vec<Charge>,
    /// The moment to decide at; Redis's own if none is given.
    pub(crate) now: Option<Timestamp>,
    pub(crate) deadline: Instant,
    pub(crate) decided: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The requests of a call, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Batch {
    requests: Vec<Request>,
    buckets: Buckets,
    kinds: Vec<Kind>,
    /// What all kinds ask for, one after the other.
    limits: Vec<AskedLimit>,
    work: usize,
    is_shared: bool,
    _ticket: Ticket,
}

/// Of calls that are sent together: they count as one until the last of them is over.
#[derive(Clone, Debug)]
pub(crate) struct Ticket(#[expect(dead_code, reason = "it counts")] Arc<Flight>);

/// Counts the flights that are under way for a line.
#[derive(Debug)]
struct Flight(#[expect(dead_code, reason = "it counts")] Arc<()>);

/// So many requests in a row that ask for the same.
#[derive(Debug)]
struct Kind {
    count: u32,
    limits: usize,
}

/// When and by what a call decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The moment to decide at; Redis's own if none is given.
    pub(crate) now: Option<Timestamp>,
    /// The moment around which limits by the calendar are sent their boundaries.
    pub(crate) near: Timestamp,
    /// Tells log entries that are shared with others from all others.
    pub(crate) random: u64,
}

// === impl Request ===

impl Request {
    /// False if the client has left or the deadline has passed: it is not charged then.
    fn is_waited_for(&self, now: Instant) -> bool {
        now < self.deadline && !self.decided.is_closed()
    }

    pub(crate) fn fail(self, error: &StoreError) {
        _ = self.decided.send(Err(error.clone()));
    }
}

// === impl Ticket ===

impl Ticket {
    /// Another one of these.
    pub(crate) fn of(tickets: &Arc<()>) -> Self {
        Self(Arc::new(Flight(Arc::clone(tickets))))
    }
}

// === impl Batch ===

impl Batch {
    /// An empty one.
    pub(crate) fn new(ticket: Ticket) -> Self {
        let (requests, kinds, limits) = (Vec::new(), Vec::new(), Vec::new());
        Self { requests, buckets: Buckets::default(), kinds, limits, work: 0, is_shared: false, _ticket: ticket }
    }

    /// An empty one for requests about shared limiters.
    pub(crate) fn shared(ticket: Ticket) -> Self {
        Self { is_shared: true, ..Self::new(ticket) }
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
    pub(crate) fn of(request: Request) -> Self {
        let mut batch = Self::new(Ticket::of(&Arc::default()));
        batch.push(request);
        batch
    }

    /// How much of a call's work it is, in buckets.
    pub(crate) fn work(&self) -> usize {
        self.work
    }

    /// Takes so many of a line at most, as far as there is room; returns whether there is none for the next.
    pub(crate) fn take(&mut self, line: &mut VecDeque<Request>, at_most: usize, now: Instant) -> bool {
        for _ in 0..at_most {
            let Some(next) = line.pop_front_if(|next| self.has_room_for(next)) else { return !line.is_empty() };
            if next.is_waited_for(now) {
                self.push(next);
            } else {
                next.fail(&StoreError::Timeout);
            }
        }
        false
    }

    fn has_room_for(&self, next: &Request) -> bool {
        let Some(first) = self.requests.first() else { return true };
        // Those of a bucket that is in the call already are as good as nothing, and seldom as many as there is room for.
        let work = self.work + next.charges.iter().map(work).sum::<usize>();
        let has_room = self.requests.len() < MAX_REQUESTS && work <= MAX_WORK;
        has_room && first.now == next.now && !self.buckets.contradict(&next.charges)
    }

    fn push(&mut self, request: Request) {
        let begin = self.limits.len();
        for charge in &request.charges {
            let known = self.buckets.len();
            let bucket = self.buckets.index(charge);
            self.work += if self.buckets.len() > known { work(charge) } else { work(charge) - 1 };
            self.limits.push(AskedLimit { bucket, shadow: charge.shadow, permits: charge.permits });
        }
        let (before, asked) = self.limits.split_at(begin);
        match self.kinds.last_mut() {
            Some(last) if before.len() >= asked.len() && last.limits == asked.len() && before.ends_with(asked) => {
                last.count += 1;
                self.limits.truncate(begin);
            }
            _ => self.kinds.push(Kind { count: 1, limits: asked.len() }),
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

    /// The moment to decide at; Redis's own if none is given.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.requests.first().and_then(|first| first.now)
    }

    /// The latest of their deadlines.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.deadline).max()
    }

    /// Adds the keys and arguments by which the script decides all of it.
    pub(crate) fn write(&self, call: &mut Cmd, secret: &KeySecret, moment: Moment) {
        call.arg(self.buckets.number_of_keys());
        self.buckets.each_key(secret, |key| _ = call.arg(key));
        call.arg("admit").arg(self.buckets.limiters(moment.near)).arg(self.asked());
        // Every argument costs Redis as much as a look at a small table: there are none that nobody needs.
        let is_shared = |algorithm| matches!(algorithm, Algorithm::Redisson(_));
        if moment.now.is_some() || self.buckets.algorithms().any(is_shared) {
            call.arg(&moment.random.to_be_bytes());
        }
        if let Some(now) = moment.now {
            call.arg(now.as_millis());
        }
    }

    /// How many requests there are of each kind, and what one asks for.
    fn kinds(&self) -> impl Iterator<Item = (u32, &[AskedLimit])> {
        let mut limits = &self.limits[..];
        self.kinds.iter().map(move |kind| {
            let (asked, rest) = limits.split_at(kind.limits);
            limits = rest;
            (kind.count, asked)
        })
    }

    /// The requests as the script takes them.
    fn asked(&self) -> Vec<u8> {
        let (firsts, mut bytes) =
            (self.buckets.firsts(), Vec::with_capacity(7 * (self.kinds.len() + self.limits.len())));
        for (count, asked) in self.kinds() {
            bytes.extend(count.to_le_bytes());
            // A route has at most as many limits as fit here, and a call as many buckets.
            bytes.push(u8::try_from(asked.len()).unwrap_or(u8::MAX));
            for one in asked {
                bytes.extend(u16::try_from(one.bucket.number(&firsts)).unwrap_or(u16::MAX).to_le_bytes());
                bytes.push(u8::from(one.shadow));
                bytes.extend(one.permits.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what the script returns.
    pub(crate) fn read(&self, reply: &Value) -> Result<Reply, StoreError> {
        let Value::BulkString(bytes) = reply else { return Err(StoreError::Shape) };
        Reply::read(bytes, self.kinds()).ok_or(StoreError::Shape)
    }

    /// Tells everybody what was decided, but those who are to ask again at once; these are returned.
    pub(crate) fn tell(self, answers: &Answers) -> Vec<Request> {
        let mut again = Vec::new();
        for (request, outcome) in self.requests.into_iter().zip(answers.outcomes(&self.limits)) {
            if asks_again(&outcome) {
                again.push(request);
            } else {
                // A client that left meanwhile stays charged, as if it had left a moment later.
                _ = request.decided.send(Ok(outcome));
            }
        }
        again
    }

    pub(crate) fn fail(self, error: &StoreError) {
        self.requests.into_iter().for_each(|request| request.fail(error));
    }
}

/// Was it refused although permits have returned, since a call removes only so many entries? A granted request never asks again:
/// it has been charged.
fn asks_again(outcome: &Outcome) -> bool {
    !outcome.granted() && outcome.decisions.iter().any(|decision| decision.wait == Wait::Millis(0))
}

/// How much a charge may have to be read for, in buckets.
fn work(charge: &Charge) -> usize {
    1 + usize::try_from(charge.permits.min(512) / ENTRIES).unwrap_or(0)
}
