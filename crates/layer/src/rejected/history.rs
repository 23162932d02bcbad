//! The rejections of the last minutes: a sketch for each minute, and times for the clients that are rejected most.

use std::collections::{HashMap, HashSet, VecDeque};

use datasketches::frequencies::ErrorType;

use super::key::Key;
use super::recorder::{Batch, Counts, new_counts};
use tidegate_limit::clock::Timestamp;

/// The number of sketches: the current minute, and the 15 before.
pub const MAX_MINUTES: usize = 16;

/// The maximum number of clients with times. The half of them that is rejected most stays at the end of a minute.
const MAX_SEEN: usize = 2_048;

const MINUTE_MILLIS: u64 = 60_000;

/// The rejections of the last minutes.
#[derive(Debug, Default)]
pub(super) struct History {
    minutes: VecDeque<Minute>,
    seen: HashMap<Key, Seen>,
}

/// The rejections of a minute.
#[derive(Debug)]
struct Minute {
    /// The number of the minute since 1970.
    number: u64,
    counts: Counts,
}

/// When a client was rejected.
#[derive(Clone, Debug)]
struct Seen {
    since: Timestamp,
    last: Timestamp,
    value: Option<Box<str>>,
}

/// A rejected client.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) since: Timestamp,
    pub(super) last: Timestamp,
    pub(super) value: Option<Box<str>>,
}

/// Returns the number of the minute since 1970.
pub fn minute_of(now: Timestamp) -> u64 {
    now.as_millis() / MINUTE_MILLIS
}

impl History {
    /// Adds rejections that were collected now.
    pub(super) fn add(&mut self, now: Timestamp, batch: Batch) {
        let number = minute_of(now);
        self.forget_after(number + 1);
        if self.minutes.back().is_none_or(|minute| minute.number < number) {
            self.start_minute(number);
        }
        // If the clock was set back by less than two minutes, the last minute gets the rejections.
        if let Some(minute) = self.minutes.back_mut() {
            minute.counts.merge(&batch.counts);
        }
        for row in batch.counts.frequent_items(ErrorType::NoFalseNegatives) {
            if let Some(seen) = self.seen.get_mut(row.item()) {
                seen.last = now;
            } else if self.seen.len() < MAX_SEEN {
                let mut before = self.minutes.iter().take(self.minutes.len().saturating_sub(1));
                let earlier = before.find(|minute| minute.has(row.item()));
                let since = earlier.map_or(now, Minute::start);
                self.seen.insert(*row.item(), Seen { since, last: now, value: None });
            }
        }
        for (key, value) in batch.values {
            if let Some(seen) = self.seen.get_mut(&key) {
                seen.value.get_or_insert(value);
            }
        }
    }

    /// Starts a minute, and forgets those that are too old.
    fn start_minute(&mut self, number: u64) {
        self.expire(number);
        if self.seen.len() > MAX_SEEN / 2 {
            let merged = self.merged(0);
            let top = merged.frequent_items(ErrorType::NoFalseNegatives);
            let top: HashSet<Key> = top.iter().take(MAX_SEEN / 2).map(|row| *row.item()).collect();
            self.seen.retain(|key, _| top.contains(key));
        }
        if self.minutes.len() >= MAX_MINUTES {
            self.minutes.pop_front();
        }
        self.minutes.push_back(Minute { number, counts: new_counts() });
    }

    /// Forgets what is too old.
    fn expire(&mut self, number: u64) {
        let first = number.saturating_sub(MAX_MINUTES as u64 - 1);
        while self.minutes.front().is_some_and(|minute| minute.number < first) {
            self.minutes.pop_front();
        }
        let first = Timestamp::from_millis(first * MINUTE_MILLIS);
        self.seen.retain(|_, seen| seen.last >= first);
    }

    /// Forgets what is after this minute: the clock was ahead, and has been set back.
    fn forget_after(&mut self, last: u64) {
        let minutes = self.minutes.len();
        while self.minutes.back().is_some_and(|minute| minute.number > last) {
            self.minutes.pop_back();
        }
        if self.minutes.len() < minutes {
            self.seen.retain(|_, seen| minute_of(seen.last) <= last);
        }
    }

    pub(super) fn forget_values(&mut self) {
        self.seen.values_mut().for_each(|seen| seen.value = None);
    }

    /// Returns the clients that were rejected in the current minute and the `minutes` before, the most rejected first.
    pub(super) fn entries(&mut self, now: Timestamp, minutes: u64) -> Vec<Entry> {
        let number = minute_of(now);
        self.expire(number);
        self.rows(&self.merged(number.saturating_sub(minutes)), now)
    }

    /// Returns the entries of each minute from this number on, and the highest count of other clients.
    pub(super) fn minutes(&self, first: u64, now: Timestamp) -> Vec<(u64, Vec<Entry>, u64)> {
        let minutes = self.minutes.iter().filter(|minute| minute.number >= first);
        minutes.map(|minute| (minute.number, self.rows(&minute.counts, now), minute.counts.maximum_error())).collect()
    }

    /// Returns the entries of a sketch, the most rejected first.
    fn rows(&self, counts: &Counts, now: Timestamp) -> Vec<Entry> {
        let rows = counts.frequent_items(ErrorType::NoFalseNegatives);
        let entry = |key: Key, count, error| {
            let seen = self.seen.get(&key).cloned().unwrap_or_else(|| self.seen_in_minutes(&key, now));
            let Seen { since, last, value } = seen;
            Entry { key, count, error, since, last, value }
        };
        rows.iter().map(|row| entry(*row.item(), row.estimate(), row.estimate() - row.lower_bound())).collect()
    }

    /// Merges the sketches of the minutes from this number on.
    fn merged(&self, first: u64) -> Counts {
        let mut merged = new_counts();
        self.minutes.iter().filter(|minute| minute.number >= first).for_each(|minute| merged.merge(&minute.counts));
        merged
    }

    /// Returns the times of a client that has none, by the minutes.
    fn seen_in_minutes(&self, key: &Key, now: Timestamp) -> Seen {
        let mut with = self.minutes.iter().filter(|minute| minute.has(key)).map(Minute::start);
        let since = with.next().unwrap_or(now);
        Seen { since, last: with.next_back().unwrap_or(since), value: None }
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> usize {
        self.seen.values().filter(|seen| seen.value.is_some()).count()
    }

    /// Returns the number of bytes without the values.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let sketches: usize = self.minutes.iter().map(|minute| minute.counts.estimated_size()).sum();
        sketches + self.seen.capacity() * (size_of::<(Key, Seen)>() + 1)
    }
}

impl Minute {
    fn start(&self) -> Timestamp {
        Timestamp::from_millis(self.number * MINUTE_MILLIS)
    }

    fn has(&self, key: &Key) -> bool {
        self.counts.lower_bound(key) > 0
    }
}
