//! Permits that are counted together: one counter for each segment or window, known by the moment at which it ends.
//!
//! Every permit in a counter was granted before that moment, whatever segments or windows the limit has today. So no
//! change of them sets a permit free too early, and a counter that ends later than the present one is a sign that the
//! clock went back or that they were longer once: its permits belong to the present one at the latest.
//!
//! `lua/shared.lua` has the same as a log.

use super::entries::Entries;
#[cfg(feature = "gateway")]
use super::numbers::{self, Numbers};
use super::packed::Packed;
use crate::clock::Timestamp;

/// The counters of a bucket, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters(Entries<Counter>);

/// Permits, all of them granted before the moment at which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) ends: Timestamp,
    pub(super) permits: u64,
}

impl Counters {
    /// Those that end after `horizon`, oldest first.
    pub(super) fn ending_after(&self, horizon: Timestamp) -> impl Iterator<Item = &Counter> {
        self.0.iter().skip_while(move |counter| counter.ends <= horizon)
    }

    /// The permits of those that end after `horizon`.
    pub(super) fn used_after(&self, horizon: Timestamp) -> u64 {
        self.ending_after(horizon).map(|counter| counter.permits).sum()
    }

    /// When the newest ends.
    pub(super) fn newest_end(&self) -> Option<Timestamp> {
        self.0.back().map(|counter| counter.ends)
    }

    /// Counts `permits` in the counter that ends at `present`, with all that are in those that end later.
    pub(super) fn add(&mut self, permits: u64, present: Timestamp) {
        let earlier = self.0.partition_point(|counter| counter.ends < present);
        let folded: u64 = self.0.split_off(earlier).map(|counter| counter.permits).sum();
        self.0.push_back(Counter { ends: present, permits: folded + permits });
    }

    /// Forgets those that end at `horizon` or before.
    pub(super) fn forget(&mut self, horizon: Timestamp) {
        while self.0.front().is_some_and(|oldest| oldest.ends <= horizon) {
            self.0.pop_front();
        }
    }

    /// Takes `permits` out of the counter that ends at `ends`. One that is not there, or holds fewer, has returned them
    /// or passed them on.
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

    /// One counter at most.
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

    /// These counters as numbers, with their ends relative to `now`.
    #[cfg(feature = "gateway")]
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        self.0.iter().flat_map(|one| [numbers::time(one.ends, now), numbers::amount(one.permits)]).collect()
    }

    /// The counters that these numbers describe; `None` if they describe none.
    #[cfg(feature = "gateway")]
    pub(super) fn from_numbers(numbers: Numbers<'_>) -> Option<Self> {
        numbers.entries(|ends, permits| Counter { ends, permits }).map(Self)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
