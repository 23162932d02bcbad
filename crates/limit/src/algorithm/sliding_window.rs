//! `sliding_window`: counters of segments.
//!
//! **Guarantee.** Time is divided into segments of `ceil(interval / segments)` milliseconds, aligned to the epoch. The
//! window is the current segment and the segments that ended within the last interval; it has at most `rate` permits.
//! So a permit returns one interval after the end of its segment, which is at most one segment later than an interval
//! after its grant. In any `interval` at most `rate` permits are granted, and the wait of a refused request is exact to
//! the millisecond.
//!
//! If the window were the segments that *began* within the interval, permits granted late in a segment would return
//! early, and up to twice the rate could be granted around its end.
//!
//! **State.** At most `segments + 1` counters, for any rate.
//!
//! **Changes.** A new rate, interval or number of segments immediately applies to the permits in use. Longer segments
//! of an old rule count as ending with the present one. A longer interval does not restore counters that have been
//! dropped.
//!
//! **Debt.** Permits that were charged beyond the rate are owed, and paid as segments return.
//!
//! **Clock jumps.** If the clock went back, counters can end after the present segment. Their permits are moved into
//! the present segment, and return one interval after its end.
//!
//! `lua/sliding_window.lua` is a translation of this file.

use super::counters::{Counter, Counters};
use super::debt::Cycle;
use super::numbers::Numbers;
use super::packed::Packed;
use crate::clock::Timestamp;
use crate::{Algorithm, BucketDecision, Quota, Wait};

/// The number of segments of an interval if the rule file sets none.
pub const DEFAULT_SEGMENTS: u32 = 10;

/// The maximal number of segments of an interval.
pub const MAX_SEGMENTS: u32 = 512;

/// A bucket: its permits in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(Counters);

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if self.0.debt > 0 {
            return self.paid(quota, now).check_paid(quota, permits, now);
        }
        self.check_paid(quota, permits, now)
    }

    fn check_paid(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let horizon = horizon(quota, now);
        let used = self.0.used_after(horizon);
        let available = u64::from(quota.rate()).saturating_sub(used);
        let wait = if permits == 0 || u64::from(permits) <= available {
            Wait::Now
        } else if permits > quota.rate() {
            Wait::Never
        } else if self.0.debt > 0 {
            Wait::Millis(self.millis_until_paid(permits, quota, now))
        } else {
            // After a lowered rate more permits can be in use than it allows, so the missing permits depend on `used`.
            Wait::Millis(self.wait_for(used + u64::from(permits) - u64::from(quota.rate()), quota, now))
        };
        let reset = match self.0.debt {
            0 => self.0.ending_after(horizon).next().map_or(0, |oldest| returns_in(oldest, quota, now)),
            _ => self.millis_until_paid(1, quota, now),
        };
        BucketDecision::new(u32::try_from(available).unwrap_or(u32::MAX), wait, reset)
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.pay(quota, now);
            self.0.forget(horizon(quota, now));
            self.0.add(u64::from(permits), segment_end(quota, now));
        }
        self.check(quota, 0, now)
    }

    /// Charges `permits` at `now` in any case. Those that the bucket lacks are debt.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.pay(quota, now);
            let granted = self.unused(quota, now).min(permits.into());
            self.0.forget(horizon(quota, now));
            self.0.add_with_debt(permits.into(), granted, segment_end(quota, now));
        }
        self.check(quota, 0, now)
    }

    /// Pays debt with the permits that have returned.
    fn pay(&mut self, quota: &Quota, now: Timestamp) {
        if self.0.debt > 0 {
            cycle(quota).pay(&mut self.0.log, &mut self.0.debt, now);
        }
    }

    /// Returns this bucket after the payments until `now`.
    fn paid(&self, quota: &Quota, now: Timestamp) -> Self {
        let mut paid = self.clone();
        paid.pay(quota, now);
        paid.0.redate(segment_end(quota, now));
        paid
    }

    /// Returns the milliseconds from `now` until the debt is paid; 0 without debt.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        let paid = (self.0.debt > 0).then(|| self.paid(quota, now)).filter(|paid| paid.0.debt > 0);
        paid.map_or(0, |paid| paid.millis_until_paid(0, quota, now))
    }

    /// Updates the bucket after a refusal at `now`: only if a counter ends after the present segment.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        let present = segment_end(quota, now);
        if self.0.newest_end().is_some_and(|newest| newest > present) {
            self.pay(quota, now);
            self.0.forget(horizon(quota, now));
            self.0.redate(present);
        }
    }

    /// Removes `permits` that were granted at `granted_at` from their segment, unless they have returned or were moved
    /// to another segment.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        let mut paid = self.clone();
        paid.pay(quota, now);
        if paid.0.remove(u64::from(permits), segment_end(quota, granted_at)) {
            let granted = paid.0.debt.min(paid.unused(quota, now));
            if granted > 0 {
                paid.0.forget(horizon(quota, now));
                paid.0.add(granted, segment_end(quota, now));
                paid.0.debt -= granted;
            }
            *self = paid;
        }
    }

    /// Returns the permits in use at `now`, with the debt.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        let paid = self.paid(quota, now);
        paid.0.used_after(horizon(quota, now)) + paid.0.debt
    }

    /// Returns the permits that can be granted at `now`, after the payments until then.
    fn unused(&self, quota: &Quota, now: Timestamp) -> u64 {
        u64::from(quota.rate()).saturating_sub(self.0.used_after(horizon(quota, now)))
    }

    /// Returns the moment from which the bucket is full and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        let retention = quota.interval().saturating_add(cycle(quota).longest_millis(self.0.debt));
        self.0.newest_end().map_or(Timestamp::default(), |ends| ends.plus_millis(retention))
    }

    /// Returns the packed form; `None` if there is more than one counter.
    pub(super) fn pack(&self) -> Option<Packed> {
        self.0.pack()
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        Self(Counters::unpack(packed))
    }

    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        self.0.to_numbers(now)
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(numbers: Numbers<'_>) -> Option<Self> {
        Counters::from_numbers(numbers).map(Self)
    }

    /// Returns the time until the debt is paid and `permits` are unused, as if the permits were debt, too.
    fn millis_until_paid(&self, permits: u32, quota: &Quota, now: Timestamp) -> u64 {
        cycle(quota).millis_until_paid(self.0.log.clone(), self.0.debt + u64::from(permits), now)
    }

    /// Returns the milliseconds until `missing` permits have returned, oldest segment first.
    fn wait_for(&self, missing: u64, quota: &Quota, now: Timestamp) -> u64 {
        let mut returned = 0;
        let last = self.0.ending_after(horizon(quota, now)).find(|counter| {
            returned += counter.permits;
            returned >= missing
        });
        last.map_or(quota.interval(), |counter| returns_in(counter, quota, now))
    }
}

/// Returns the horizon: the permits of segments that ended at this moment or before have returned.
fn horizon(quota: &Quota, now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(quota.interval()))
}

/// Returns the end of the segment that contains a moment.
fn segment_end(quota: &Quota, at: Timestamp) -> Timestamp {
    let length = segment_length(quota);
    Timestamp::from_millis(at.as_millis() / length * length).plus_millis(length)
}

fn cycle(quota: &Quota) -> Cycle {
    Cycle::new(quota, Some(segment_length(quota)))
}

fn segment_length(quota: &Quota) -> u64 {
    let segments = match quota.algorithm() {
        Algorithm::SlidingWindow { segments } => u64::from(segments),
        _ => u64::from(DEFAULT_SEGMENTS),
    };
    quota.interval().div_ceil(segments)
}

/// Returns the milliseconds until a segment returns. A segment in the future counts as the present one.
fn returns_in(counter: &Counter, quota: &Quota, now: Timestamp) -> u64 {
    counter.ends.min(segment_end(quota, now)).plus_millis(quota.interval()).millis_since(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(rate: u64, interval: u64, segments: u32) -> Quota {
        Quota::new(rate, interval, Algorithm::SlidingWindow { segments }).expect("a quota")
    }

    crate::testing::define_take!();

    #[test]
    fn permit_returns_one_interval_after_its_segment() {
        let (mut state, quota) = (State::default(), quota(3, 10_000, 10));
        let granted = [0, 999, 1_000, 2_000, 10_999, 11_000].map(|now| take(&mut state, &quota, 1, now).granted);
        assert_eq!(granted, [true, true, true, false, false, true]);
        assert!(take(&mut state, &quota, 1, 11_001).granted);
        assert_eq!(take(&mut state, &quota, 1, 11_002).wait, Wait::Millis(998));
    }

    #[test]
    fn wait_ends_when_enough_permits_have_returned() {
        let (mut state, quota) = (State::default(), quota(100, 1_000, 10));
        take(&mut state, &quota, 5, 10_000);
        let decision = take(&mut state, &quota, 30, 10_150);
        assert_eq!((decision.remaining, decision.reset), (65, 950));
        assert_eq!(take(&mut state, &quota, 100, 10_200).wait, Wait::Millis(1_000));
        assert!(!take(&mut state, &quota, 100, 11_199).granted);
        assert!(take(&mut state, &quota, 100, 11_200).granted);
    }

    #[test]
    fn rate_is_kept_across_the_end_of_a_segment() {
        let (mut state, quota) = (State::default(), quota(5, 1_000, 1));
        assert!(take(&mut state, &quota, 5, 999).granted);
        let waits = [1_000, 1_998].map(|now| take(&mut state, &quota, 1, now).wait);
        assert_eq!(waits, [Wait::Millis(1_000), Wait::Millis(2)]);
        assert!(take(&mut state, &quota, 5, 2_000).granted);
    }

    #[test]
    fn more_than_the_rate_is_never_granted() {
        let (mut state, quota) = (State::default(), quota(5, 1_000, 10));
        assert_eq!(take(&mut state, &quota, 6, 0).wait, Wait::Never);
        let unused = take(&mut state, &quota, 0, 0);
        assert_eq!((unused.granted, unused.remaining, unused.reset), (true, 5, 0));
        assert_eq!(state, State::default());
    }

    #[test]
    fn bucket_has_at_most_one_counter_more_than_segments() {
        for (interval, segments) in [(60_000, 512), (1_000, 10), (997, 10), (7, 512), (1, 1)] {
            let (mut state, quota) = (State::default(), quota(1_000_000, interval, segments));
            for now in 0..100_000 {
                take(&mut state, &quota, 1, now);
                assert!(state.0.len() <= segments as usize + 1, "{} counters of {segments} at {now}", state.0.len());
            }
        }
    }

    #[test]
    fn clock_set_back_blocks_for_an_interval_and_a_segment() {
        let (mut state, quota) = (State::default(), quota(2, 1_000, 10));
        take(&mut state, &quota, 1, 3_600_000);
        take(&mut state, &quota, 1, 3_600_500);
        assert_eq!(take(&mut state, &quota, 1, 5).wait, Wait::Millis(1_095));
        assert!(!take(&mut state, &quota, 1, 1_099).granted);
        assert!(take(&mut state, &quota, 2, 1_100).granted);
    }

    #[test]
    fn grant_after_the_clock_went_back_moves_future_counters() {
        let (mut state, quota) = (State::default(), quota(3, 1_000, 10));
        take(&mut state, &quota, 2, 3_600_000);
        assert_eq!(take(&mut state, &quota, 1, 5).remaining, 0);
        assert!(!take(&mut state, &quota, 1, 1_099).granted);
        assert!(take(&mut state, &quota, 3, 1_100).granted);
    }

    #[test]
    fn clock_that_jumps_ahead_grants_one_extra_rate() {
        let (mut state, quota) = (State::default(), quota(2, 1_000, 10));
        assert!(take(&mut state, &quota, 2, 0).granted);
        assert!(take(&mut state, &quota, 2, 3_600_000).granted);
        assert!(!take(&mut state, &quota, 1, 3_600_001).granted);
        assert!(!take(&mut state, &quota, 1, 1).granted, "nothing extra after the clock is corrected");
    }

    #[test]
    fn lowered_rate_applies_immediately() {
        let mut state = State::default();
        take(&mut state, &quota(10, 1_000, 10), 8, 0);
        take(&mut state, &quota(10, 1_000, 10), 2, 100);
        let refused = take(&mut state, &quota(3, 1_000, 10), 1, 200);
        assert_eq!((refused.remaining, refused.wait), (0, Wait::Millis(900)));
        assert_eq!(take(&mut state, &quota(3, 1_000, 10), 2, 1_100).wait, Wait::Millis(100));
    }

    #[test]
    fn changed_segments_free_no_permits() {
        for (before, after) in [(1, 512), (512, 1), (10, 7), (7, 10)] {
            let (before, after) = (quota(4, 1_000, before), quota(4, 1_000, after));
            let mut state = State::default();
            take(&mut state, &before, 2, 0);
            take(&mut state, &before, 2, 999);
            assert_eq!(take(&mut state, &after, 1, 1_000).remaining, 0);
            for now in 1_001..1_999 {
                assert!(take(&mut state, &after, 3, now).remaining <= 2, "{before:?} {after:?} {now}");
            }
            assert!(take(&mut state, &after, 4, 4_000).granted);
        }
    }

    #[test]
    fn changed_interval_applies_to_permits_in_use() {
        let (short, long) = (quota(2, 1_000, 10), quota(2, 10_000, 10));
        let mut state = State::default();
        take(&mut state, &short, 2, 50);
        assert_eq!(take(&mut state, &long, 1, 500).wait, Wait::Millis(9_600));
        assert!(take(&mut state, &short, 2, 1_100).granted);
    }

    #[test]
    fn given_back_permits_leave_their_segment_once() {
        let (mut state, quota) = (State::default(), quota(4, 1_000, 10));
        let give_back = |state: &mut State, permits, at| {
            state.give_back(&quota, permits, Timestamp::from_millis(at), Timestamp::default());
        };
        take(&mut state, &quota, 1, 0);
        take(&mut state, &quota, 2, 150);
        give_back(&mut state, 2, 150);
        assert_eq!(take(&mut state, &quota, 0, 200).remaining, 3);
        give_back(&mut state, 2, 150);
        give_back(&mut state, 2, 0);
        assert_eq!(take(&mut state, &quota, 0, 200).remaining, 3, "gave back more than was charged");
        take(&mut state, &quota, 1, 1_150);
        give_back(&mut state, 1, 0);
        assert_eq!(take(&mut state, &quota, 0, 1_200).remaining, 3);
    }
}
