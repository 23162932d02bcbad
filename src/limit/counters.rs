//! Permit counters: one counter for each segment or window, identified by the moment at which the segment or window
//! ends.
//!
//! Every permit in a counter was granted before this moment, even if the limit has other segments or windows today. So
//! changing them never frees a permit too early. A counter that ends after the present segment shows that the clock
//! went back or that segments were longer before; its permits are moved to the present segment.
//!
//! In Redis, `lua/shared.lua` stores the counters as a log.

use super::entries::Entries;
#[cfg(feature = "gateway")]
use super::numbers::{self, Numbers};
use super::packed::Packed;
use crate::clock::Timestamp;

/// The counters of a bucket, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters(Entries<Counter>);

/// Permits that were all granted before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) ends: Timestamp,
    pub(super) permits: u64,
}

impl Counters {
    /// Returns the counters that end after `horizon`, oldest first.
    pub(super) fn ending_after(&self, horizon: Timestamp) -> impl Iterator<Item = &Counter> {
        self.0.iter().skip_while(move |counter| counter.ends <= horizon)
    }

    /// Returns the permits of all counters that end after `horizon`.
    pub(super) fn used_after(&self, horizon: Timestamp) -> u64 {
        self.ending_after(horizon).map(|counter| counter.permits).sum()
    }

    /// Returns the end of the newest counter.
    pub(super) fn newest_end(&self) -> Option<Timestamp> {
        self.0.back().map(|counter| counter.ends)
    }

    /// Adds `permits` to the counter that ends at `present`, and merges later counters into it.
    pub(super) fn add(&mut self, permits: u64, present: Timestamp) {
        match self.0.back_mut() {
            Some(newest) if newest.ends == present => newest.permits += permits,
            Some(newest) if newest.ends > present => self.merge(permits, present),
            _ => self.0.push_back(Counter { ends: present, permits }),
        }
    }

    /// Adds `permits` to the counter that ends at `present`, with all later counters.
    #[cold]
    fn merge(&mut self, permits: u64, present: Timestamp) {
        let earlier = self.0.partition_point(|counter| counter.ends < present);
        let folded: u64 = self.0.split_off(earlier).map(|counter| counter.permits).sum();
        self.0.push_back(Counter { ends: present, permits: folded + permits });
    }

    /// Removes the counters that end at `horizon` or before.
    pub(super) fn forget(&mut self, horizon: Timestamp) {
        while self.0.front().is_some_and(|oldest| oldest.ends <= horizon) {
            self.0.pop_front();
        }
    }

    /// Removes `permits` from the counter that ends at `ends`. If it is missing or has fewer permits, they have
    /// returned or were moved to another counter, and nothing changes.
    pub(super) fn remove(&mut self, permits: u64, ends: Timestamp) {
        let position = self.0.partition_point(|counter| counter.ends < ends);
        let Some(counter) = self.0.get_mut(position).filter(|found| found.ends == ends && found.permits >= permits)
        else {
            return;
        };
        counter.permits -= permits;
        if counter.permits == 0 {
            self.0.remove(position);
        }
    }

    /// Returns the packed form; `None` if there is more than one counter.
    pub(super) fn pack(&self) -> Option<Packed> {
        match &self.0 {
            Entries::Few(None) => Some(Packed::Unused),
            Entries::Few(Some(counter)) => Some(Packed::Once { at: counter.ends, amount: counter.permits, number: 0 }),
            Entries::Many(_) => None,
        }
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        match packed {
            Packed::Unused => Self::default(),
            Packed::Once { at, amount, .. } => Self(Entries::Few(Some(Counter { ends: at, permits: amount }))),
        }
    }

    /// Returns these counters as numbers, with their ends relative to `now`.
    #[cfg(feature = "gateway")]
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        self.0.iter().flat_map(|one| [numbers::time(one.ends, now), numbers::amount(one.permits)]).collect()
    }

    /// Returns the counters that these numbers describe, or `None` if the numbers are invalid.
    #[cfg(feature = "gateway")]
    pub(super) fn from_numbers(numbers: Numbers<'_>) -> Option<Self> {
        numbers.entries(|ends, permits| Counter { ends, permits }).map(Self)
    }

    /// Returns the number of counters.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
