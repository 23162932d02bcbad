//! Requests that are decided in one call, as if they had come one by one.
//!
//! A bucket that many of them ask for is read and written once, and requests in a row that ask for the same are one entry
//! with a count. So what a call costs grows with its buckets, and hardly with its requests.

use super::answers::{Answer, Answers};
use super::buckets::{Buckets, Place};
use super::resp::Command;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// Most work of a call, so that nobody on this Redis waits for long meanwhile: 64 buckets take it less than a millisecond.
const MAX_WORK: usize = 64;

/// Who asks for many permits may have to be told when so many will have returned, which takes reading their entries; so
/// many of them are as much work as a bucket.
const ENTRIES: u32 = 16;

/// Most requests of a call.
const MAX_REQUESTS: usize = 4_096;

/// The requests of a call, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Batch {
    buckets: Buckets,
    kinds: Vec<Kind>,
    /// What all kinds ask for, one after the other.
    limits: Vec<Sought>,
    len: usize,
    work: usize,
}

/// So many requests in a row that ask for the same.
#[derive(Debug)]
struct Kind {
    count: u32,
    limits: usize,
}

/// What a request asks of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sought {
    place: Place,
    pub(super) shadow: bool,
    pub(super) permits: u32,
}

/// When and by what a call decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The moment to decide at; Redis's own if none is given.
    pub(super) now: Option<Timestamp>,
    /// The moment around which limits by the calendar are sent their boundaries.
    pub(super) near: Timestamp,
    /// Tells log entries that are shared with others from all others.
    pub(super) random: u64,
}

// === impl Batch ===

impl Batch {
    /// Can these charges be decided in the same call?
    pub(super) fn has_room_for(&self, charges: &[Charge]) -> bool {
        let work = charges.iter().map(work).sum::<usize>();
        // Those of a bucket that is in the call already are as good as nothing, and seldom as many as there is room for.
        let room = self.len < MAX_REQUESTS && self.work + work <= MAX_WORK;
        self.len == 0 || (room && !self.buckets.contradict(charges))
    }

    /// Adds a request at the end.
    pub(super) fn push(&mut self, charges: &[Charge]) {
        self.len += 1;
        let begin = self.limits.len();
        for charge in charges {
            let known = self.buckets.len();
            let place = self.buckets.place(charge);
            self.work += if self.buckets.len() > known { work(charge) } else { work(charge) - 1 };
            self.limits.push(Sought { place, shadow: charge.shadow, permits: charge.permits });
        }
        let (before, asked) = self.limits.split_at(begin);
        match self.kinds.last_mut() {
            Some(last) if before.len() >= asked.len() && last.limits == asked.len() && before.ends_with(asked) => {
                last.count += 1;
                self.limits.truncate(begin);
            }
            _ => self.kinds.push(Kind { count: 1, limits: asked.len() }),
        }
    }

    /// The algorithms of all limits.
    pub(super) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.buckets.algorithms()
    }

    /// Adds the command that has it all decided, by what is named so.
    pub(super) fn write(&self, command: &str, name: &str, secret: &KeySecret, moment: Moment, unsent: &mut Vec<u8>) {
        let (keys, mut number) = (self.buckets.number_of_keys(), itoa::Buffer::new());
        let foreign = self.algorithms().any(|algorithm| matches!(algorithm, Algorithm::Foreign(_)));
        // Every argument costs Redis as much as a look at a small table: there are none that nobody needs.
        let told = [foreign || moment.now.is_some(), moment.now.is_some()];
        let mut call = Command::begin(unsent, keys + 6 + told.iter().filter(|told| **told).count());
        call.arg(command.as_bytes()).arg(name.as_bytes()).arg(number.format(keys).as_bytes());
        self.buckets.each_key(secret, |key| _ = call.arg(key.as_bytes()));
        call.arg(b"admit").arg(self.buckets.limiters(moment.near).as_bytes());
        call.arg(&self.requests());
        if told[0] {
            call.arg(&moment.random.to_be_bytes());
        }
        if let Some(now) = moment.now {
            call.arg(number.format(now.as_millis()).as_bytes());
        }
    }

    /// How many requests there are of each kind, and what one asks for.
    fn kinds(&self) -> impl Iterator<Item = (u32, &[Sought])> {
        let mut limits = &self.limits[..];
        self.kinds.iter().map(move |kind| {
            let (sought, rest) = limits.split_at(kind.limits);
            limits = rest;
            (kind.count, sought)
        })
    }

    /// The requests as the script takes them.
    fn requests(&self) -> Vec<u8> {
        let (firsts, mut bytes) =
            (self.buckets.firsts(), Vec::with_capacity(7 * (self.kinds.len() + self.limits.len())));
        for (count, sought) in self.kinds() {
            bytes.extend(count.to_le_bytes());
            // A route has at most as many limits as fit here, and a call as many buckets.
            bytes.push(u8::try_from(sought.len()).unwrap_or(u8::MAX));
            for one in sought {
                bytes.extend(u16::try_from(one.place.number(&firsts)).unwrap_or(u16::MAX).to_le_bytes());
                bytes.push(u8::from(one.shadow));
                bytes.extend(one.permits.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what the script returns.
    pub(super) fn answer(&self, bytes: &[u8]) -> Result<Answer, StoreError> {
        Answer::read(bytes, self.kinds()).ok_or(StoreError::Shape)
    }

    /// What was decided of each request, in their order.
    pub(super) fn outcomes(&self, answers: &Answers) -> impl Iterator<Item = Outcome> {
        answers.outcomes(&self.limits)
    }
}

/// How much a charge may have to be read for, in buckets.
fn work(charge: &Charge) -> usize {
    1 + usize::try_from(charge.permits.min(512) / ENTRIES).unwrap_or(0)
}
