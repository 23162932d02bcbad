//! The counts of the last minutes.

use std::collections::VecDeque;

use super::counts::Counts;
use tidegate_layer::rejected::{MAX_MINUTES, minute_of};
use tidegate_limit::clock::Timestamp;

/// The counts of the current minute and the 15 before.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Minute>);

#[derive(Debug)]
struct Minute {
    /// The number of the minute since 1970.
    number: u64,
    counts: Counts,
}

impl History {
    /// Adds counts that were collected now.
    pub(super) fn add(&mut self, now: Timestamp, counts: &Counts) {
        let number = minute_of(now);
        let first = number.saturating_sub(MAX_MINUTES as u64 - 1);
        // Later minutes are of a clock that was ahead and has been set back.
        self.0.retain(|minute| (first..=number).contains(&minute.number));
        if self.0.back().is_none_or(|minute| minute.number < number) {
            self.0.push_back(Minute { number, counts: Counts::new() });
        }
        if let Some(minute) = self.0.back_mut() {
            minute.counts.merge(counts);
        }
    }

    /// Merges the counts of the current minute and the `minutes` before.
    pub(super) fn merged(&self, now: Timestamp, minutes: u64) -> Counts {
        let number = minute_of(now);
        let window = number.saturating_sub(minutes)..=number;
        let mut merged = Counts::new();
        let minutes = self.0.iter().filter(|minute| window.contains(&minute.number));
        minutes.for_each(|minute| merged.merge(&minute.counts));
        merged
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|minute| minute.counts.size()).sum()
    }
}
