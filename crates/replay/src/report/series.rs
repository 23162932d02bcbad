//! The requests of a limit over time.

use serde::Serialize;

/// The maximum number of slots. When there are more, slots are joined in pairs.
const MAX_SLOTS: usize = 600;

/// The length of the first slots, in milliseconds.
const FIRST_STEP: u64 = 1_000;

/// The requests of a limit in slots of equal length.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// The start of the first slot, in milliseconds since the Unix epoch.
    pub start: u64,
    /// The length of a slot, in milliseconds.
    pub step: u64,
    /// The requests of each slot.
    pub requests: Vec<u64>,
    /// The rejected requests of each slot.
    pub rejected: Vec<u64>,
    /// The time of the last request, and its slot. Many successive requests have the same time.
    #[serde(skip)]
    pub(crate) last: (u64, usize),
}

impl Series {
    #[inline]
    pub(crate) fn count(&mut self, at: u64, is_rejected: bool) {
        if self.last.0 != at || self.requests.is_empty() {
            self.last = (at, self.add_slot(at));
        }
        let slot = self.last.1;
        self.requests[slot] += 1;
        self.rejected[slot] += u64::from(is_rejected);
    }

    /// Adds the slot of a time, unless it exists. Returns its position.
    fn add_slot(&mut self, at: u64) -> usize {
        if self.step == 0 {
            (self.start, self.step) = (at - at % FIRST_STEP, FIRST_STEP);
        }
        let mut slot = self.slot(at);
        while slot >= MAX_SLOTS {
            self.join_pairs();
            slot = self.slot(at);
        }
        if self.requests.len() <= slot {
            self.requests.resize(slot + 1, 0);
            self.rejected.resize(slot + 1, 0);
        }
        slot
    }

    fn slot(&self, at: u64) -> usize {
        usize::try_from(at.saturating_sub(self.start) / self.step).unwrap_or(usize::MAX)
    }

    fn join_pairs(&mut self) {
        self.step *= 2;
        for counts in [&mut self.requests, &mut self.rejected] {
            *counts = counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_joined_when_there_are_too_many() {
        let mut series = Series::default();
        (0..MAX_SLOTS as u64 * 3).for_each(|second| series.count(5_000_500 + second * 1_000, second % 2 == 0));
        assert_eq!((series.start, series.step, series.requests.len()), (5_000_000, 4_000, 450));
        assert!(series.requests.iter().all(|requests| *requests == 4));
        assert!(series.rejected.iter().all(|rejected| *rejected == 2));
    }
}
