//! Permit counters: one counter for each segment or window, identified by the moment at which the segment or window
//! ends.
//!
//! Every permit in a counter was granted before this moment, even if the limit has other segments or windows today. So
//! changing them never frees a permit too early. A counter that ends after the present segment shows that the clock
//! went back or that segments were longer before; its permits are moved to the present segment.
//!
//! Counters may have debt: permits that were charged although the bucket lacked them (`debt.rs`).
//!
//! In Redis, `lua/shared.lua` stores the counters as a log.

use super::debt::Dated;
use super::entries::Entries;
use super::numbers::{self, Numbers};
use super::packed::Packed;
use crate::MAX_DEBT;
use crate::clock::Timestamp;

/// The counters of a bucket, oldest first, and its debt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) log: Entries<Counter>,
    pub(crate) debt: u64,
}

/// Permits that were all granted before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) ends: Timestamp,
    pub(crate) permits: u64,
}

impl Counters {
    /// Returns the counters that end after `horizon`, oldest first.
    pub(super) fn ending_after(&self, horizon: Timestamp) -> impl Iterator<Item = &Counter> {
        self.log.iter().skip_while(move |counter| counter.ends <= horizon)
    }

    /// Returns the permits of all counters that end after `horizon`.
    pub(super) fn used_after(&self, horizon: Timestamp) -> u64 {
        self.ending_after(horizon).map(|counter| counter.permits).sum()
    }

    pub(super) fn newest_end(&self) -> Option<Timestamp> {
        self.log.back().map(|counter| counter.ends)
    }

    /// Charges `permits` in any case: `granted` of them to the counter that ends at `present`, and the others as debt.
    pub(super) fn add_with_debt(&mut self, permits: u64, granted: u64, present: Timestamp) {
        if granted > 0 {
            self.add(granted, present);
        }
        self.redate(present);
        self.debt = (self.debt + permits - granted).min(MAX_DEBT);
    }

    /// Merges counters that end after `present` into the counter that ends then.
    pub(super) fn redate(&mut self, present: Timestamp) {
        if self.newest_end().is_some_and(|newest| newest > present) {
            self.merge(0, self.log.partition_point(|counter| counter.ends < present), present);
        }
    }

    /// Merges counters that end after `horizon` into the counter that ends at `present`.
    pub(super) fn merge_after(&mut self, horizon: Timestamp, present: Timestamp) {
        self.merge(0, self.log.partition_point(|counter| counter.ends <= horizon), present);
    }

    /// Adds `permits` to the counter that ends at `present`, and merges later counters into it.
    pub(super) fn add(&mut self, permits: u64, present: Timestamp) {
        match self.log.back_mut() {
            Some(newest) if newest.ends == present => newest.permits += permits,
            Some(newest) if newest.ends > present => {
                self.merge(permits, self.log.partition_point(|counter| counter.ends < present), present);
            }
            _ => self.log.push_back(Counter { ends: present, permits }),
        }
    }

    /// Replaces all but the first `earlier` counters by one that ends at `present`, with additional `permits`.
    #[cold]
    fn merge(&mut self, permits: u64, earlier: usize, present: Timestamp) {
        let folded: u64 = self.log.split_off(earlier).map(|counter| counter.permits).sum();
        self.log.push_back(Counter { ends: present, permits: folded + permits });
    }

    /// Removes the counters that end at `horizon` or before.
    pub(super) fn forget(&mut self, horizon: Timestamp) {
        while self.log.front().is_some_and(|oldest| oldest.ends <= horizon) {
            self.log.pop_front();
        }
    }

    /// Removes `permits` from the counter that ends at `ends`. If it is missing or has fewer permits, they have
    /// returned or were moved to another counter, and nothing changes.
    /// Returns `false` then.
    pub(super) fn remove(&mut self, permits: u64, ends: Timestamp) -> bool {
        let position = self.log.partition_point(|counter| counter.ends < ends);
        let Some(counter) = self.log.get_mut(position).filter(|found| found.ends == ends && found.permits >= permits)
        else {
            return false;
        };
        counter.permits -= permits;
        if counter.permits == 0 {
            self.log.remove(position);
        }
        true
    }

    /// Returns the packed form; `None` if there is debt or more than one counter.
    pub(super) fn pack(&self) -> Option<Packed> {
        match &self.log {
            _ if self.debt > 0 => None,
            Entries::Few(None) => Some(Packed::Unused),
            Entries::Few(Some(counter)) => Some(Packed::Once { at: counter.ends, amount: counter.permits, number: 0 }),
            Entries::Many(_) => None,
        }
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        match packed {
            Packed::Unused => Self::default(),
            Packed::Once { at, amount, .. } => {
                Self { log: Entries::Few(Some(Counter { ends: at, permits: amount })), debt: 0 }
            }
        }
    }

    /// Returns these counters and their debt as numbers, with their ends relative to `now`.
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        let counter = |entry: &Counter| [numbers::time(entry.ends, now), numbers::amount(entry.permits)];
        self.log.iter().flat_map(counter).chain(numbers::debt(self.debt)).collect()
    }

    /// Returns the counters that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(mut numbers: Numbers<'_>) -> Option<Self> {
        let debt = numbers.take_debt()?;
        Some(Self { log: numbers.entries(|ends, permits| Counter { ends, permits })?, debt })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }
}

impl Dated for Counter {
    fn new(date: Timestamp, permits: u64) -> Self {
        Self { ends: date, permits }
    }

    fn date(&self) -> Timestamp {
        self.ends
    }

    fn permits(&self) -> u64 {
        self.permits
    }
}
