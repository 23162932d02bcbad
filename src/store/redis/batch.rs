//! Requests that are decided in one call, as if they had come one by one.
//!
//! A bucket that many of them ask for is read and written once, and requests in a row that ask for the same are one entry
//! with a count. So what a call costs grows with its buckets, and hardly with its requests.

use std::sync::Arc;

use super::buckets::{Buckets, Place};
use super::requests::{Asked, How, Requests};
use super::resp::Command;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, ClientId, Decision, Limiter, Outcome, Wait};
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
struct Sought {
    place: Place,
    shadow: bool,
    permits: u32,
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

/// What a call comes back with.
#[derive(Debug)]
pub(super) enum Answer {
    Decided(Answers),
    /// Nothing was decided and nothing ran: this is the present, and a calendar was sent boundaries of another time.
    BoundariesNeeded(Timestamp),
}

/// The answers to a batch.
#[derive(Debug)]
pub(super) struct Answers {
    now: Timestamp,
    rows: Vec<Row>,
}

/// So many requests in a row that were answered alike, but for what was left after each.
#[derive(Debug)]
struct Row {
    count: u32,
    granted: bool,
    /// Where the kind of request begins among all that is asked.
    first: usize,
    /// As they were after the last of the row.
    decisions: Vec<Decision>,
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
        let mut call = Command::begin(unsent, keys + 5 + told.iter().filter(|told| **told).count());
        call.arg(command.as_bytes()).arg(name.as_bytes()).arg(number.format(keys).as_bytes());
        self.buckets.each_key(secret, |key| _ = call.arg(key.as_bytes()));
        call.arg(self.buckets.limiters(moment.near).as_bytes());
        call.arg(self.requests().bytes());
        if told[0] {
            call.arg(&moment.random.to_be_bytes());
        }
        if let Some(now) = moment.now {
            call.arg(number.format(now.as_millis()).as_bytes());
        }
    }

    /// The requests as the script takes them.
    fn requests(&self) -> Requests {
        let mut requests = Requests::with_capacity(self.kinds.len(), self.limits.len());
        let (firsts, mut limits, mut asked) = (self.buckets.firsts(), &self.limits[..], Vec::new());
        for kind in &self.kinds {
            let (sought, rest) = limits.split_at(kind.limits);
            limits = rest;
            let taken_by = |one: &Sought, count| !one.shadow && self.buckets.is_taken_by(one.place, count);
            let row = sought.iter().all(|one| taken_by(one, kind.count));
            let alone = sought.iter().rposition(|one| taken_by(one, 1));
            asked.clear();
            asked.extend(sought.iter().enumerate().map(|(index, one)| Asked {
                number: u16::try_from(one.place.number(&firsts)).unwrap_or(u16::MAX),
                how: match index {
                    _ if row => How::Row,
                    _ if alone == Some(index) => How::Alone,
                    _ if one.shadow => How::Shadow,
                    _ => How::Live,
                },
                permits: one.permits,
            }));
            requests.push(kind.count, &asked);
        }
        requests
    }

    /// Reads what the script returns: the time, and the answers if it has decided.
    pub(super) fn answer(&self, mut bytes: &[u8]) -> Result<Answer, StoreError> {
        let now = split(&mut bytes).and_then(|now| u64::try_from(i64::from_le_bytes(*now)).ok());
        let now = now.map(Timestamp::from_millis).ok_or(StoreError::Shape)?;
        if bytes.is_empty() && self.len > 0 {
            return Ok(Answer::BoundariesNeeded(now));
        }
        let rows = self.rows(bytes).ok_or(StoreError::Shape)?;
        Ok(Answer::Decided(Answers { now, rows }))
    }

    fn rows(&self, mut bytes: &[u8]) -> Option<Vec<Row>> {
        let (mut rows, mut first) = (Vec::with_capacity(self.kinds.len()), 0);
        for kind in &self.kinds {
            let mut left = kind.count;
            while left > 0 {
                let row = self.row(first, kind.limits, &mut bytes)?;
                left = left.checked_sub(row.count).filter(|_| row.count > 0)?;
                rows.push(row);
            }
            first += kind.limits;
        }
        bytes.is_empty().then_some(rows)
    }

    fn row(&self, first: usize, limits: usize, bytes: &mut &[u8]) -> Option<Row> {
        let count = u32::from_le_bytes(*split(bytes)?);
        let mut decisions = Vec::with_capacity(limits);
        for _ in 0..limits {
            decisions.push(decision(bytes)?);
        }
        let mut asked = self.limits[first..].iter().zip(&decisions);
        let granted = asked.all(|(asked, decision)| asked.shadow || decision.granted);
        Some(Row { count, granted, first, decisions })
    }

    /// What was decided of each request, in their order.
    pub(super) fn outcomes(&self, answers: &Answers) -> impl Iterator<Item = Outcome> {
        let now = answers.now;
        let of_row = move |row: &Row, after: u32| Outcome::decided(now, self.decisions(row, after), row.granted);
        answers.rows.iter().flat_map(move |row| (0..row.count).rev().map(move |after| of_row(row, after)))
    }

    /// Those of the request in a row that so many follow.
    fn decisions(&self, row: &Row, after: u32) -> Vec<Decision> {
        let mut decisions = row.decisions.clone();
        if row.granted && after > 0 {
            for (decision, asked) in decisions.iter_mut().zip(&self.limits[row.first..]).filter(|(one, _)| one.granted)
            {
                decision.remaining += after * asked.permits;
            }
        }
        decisions
    }

    /// Who refused what: limiter, client and permits, and what was said, at which time.
    pub(super) fn refused<'b>(
        &'b self,
        answers: &'b Answers,
    ) -> impl Iterator<Item = (&'b Arc<Limiter>, Option<&'b ClientId>, u32, Decision)> {
        let of_row = |row: &'b Row| self.limits[row.first..].iter().zip(&row.decisions);
        let refused = answers.rows.iter().filter(|row| !row.granted).flat_map(of_row);
        refused.filter(|(asked, decision)| !asked.shadow && !decision.granted).map(|(asked, decision)| {
            let (limiter, client) = self.buckets.at(asked.place);
            (limiter, client, asked.permits, *decision)
        })
    }
}

/// How much a charge may have to be read for, in buckets.
fn work(charge: &Charge) -> usize {
    1 + usize::try_from(charge.permits.min(512) / ENTRIES).unwrap_or(0)
}

impl Answers {
    /// Redis's clock when it decided.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Is anybody told to ask again at once?
    pub(super) fn ask_again(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.decisions).any(|decision| decision.wait == Wait::Millis(0))
    }
}

/// Takes so many bytes from the front.
fn split<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(front)
}

fn decision(bytes: &mut &[u8]) -> Option<Decision> {
    let [said] = *split(bytes)?;
    let remaining = u32::from_le_bytes(*split(bytes)?);
    let [a, b, c, d, e, f] = *split(bytes)?;
    let reset = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let mut millis = || Some(i64::from_le_bytes(*split(bytes)?));
    let (granted, wait, delay) = match said {
        0 => match millis()? {
            -1 => (false, Wait::Never, 0),
            wait => (false, Wait::Millis(u64::try_from(wait).ok()?), 0),
        },
        1 => (true, Wait::Now, 0),
        _ => (true, Wait::Now, u64::try_from(millis()?).ok()?),
    };
    Some(Decision { granted, remaining, wait, reset, delay })
}
