//! `fixed_window`: at most `rate` permits in each window of a calendar.
//!
//! **Guarantee.** At most `rate` permits are granted from one boundary of the
//! [`Calendar`](crate::calendar::Calendar) to the next. A refused request can pass when the next window begins.
//!
//! **State.** The counters of the present and of the previous window; the previous counter counts again if the clock is
//! set back over the boundary. After a change to a longer unit, the counters of up to two shorter windows.
//!
//! **Changes.** A new rate applies immediately. After a change of the unit or the time zone, every counter that ends
//! after the start of the present window counts fully in the present window, and expires with it. No counted permit is
//! forgiven, but the counter of an hour does not include earlier grants of the month.
//!
//! **Debt.** Permits that were charged beyond the rate are owed, and each later window pays up to its rate. All
//! counters of the window in which the debt arose become one, so that the newest counter has all permits of its window.
//! The number of windows between two boundaries is their distance divided by the mean length of a window, rounded to
//! the nearest.
//!
//! **Clock jumps.** If the clock went back, counters can end after the present window. Their permits are moved into the
//! present window, and expire with it.
//!
//! `lua/fixed_window.lua` is a translation of this file.

use super::counters::Counters;
use super::debt;
use super::numbers::{CALENDAR, Numbers};
use super::packed::Packed;
use crate::calendar::Window;
use crate::clock::Timestamp;
use crate::{Algorithm, BucketDecision, MAX_WAIT, Quota, Wait};

/// A bucket: its permits in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(Counters);

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let window = window(quota, now);
        if self.0.debt > 0 {
            return self.paid(&window, quota).check_in(&window, quota, permits, now);
        }
        self.check_in(&window, quota, permits, now)
    }

    fn check_in(&self, window: &Window, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let used = self.0.used_after(window.start);
        let available = u64::from(quota.rate()).saturating_sub(used);
        let rest = |permits: u32| self.end_before(window, quota, permits).millis_since(now).min(MAX_WAIT);
        let wait = match permits {
            0 => Wait::Now,
            permits if u64::from(permits) <= available => Wait::Now,
            permits if permits > quota.rate() => Wait::Never,
            _ => Wait::Millis(rest(permits)),
        };
        BucketDecision::new(u32::try_from(available).unwrap_or(u32::MAX), wait, if used > 0 { rest(1) } else { 0 })
    }

    /// Returns the end of the window before the first that grants `permits`, which are at most the rate. For 0 permits, the
    /// end of the window before the first in which the debt is paid.
    fn end_before(&self, window: &Window, quota: &Quota, permits: u32) -> Timestamp {
        let windows = (self.0.debt + u64::from(permits)).div_ceil(quota.rate().into()).max(1) - 1;
        if windows == 0 {
            return window.end;
        }
        quota.boundary_near(window.end.plus_millis(windows.saturating_mul(quota.mean_window()).min(MAX_WAIT)))
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let window = window(quota, now);
        if permits > 0 {
            self.pay(&window, quota);
            self.0.forget(window.previous);
            self.0.add(u64::from(permits), window.end);
        }
        self.check(quota, 0, now)
    }

    /// Charges `permits` at `now` in any case. Those that the bucket lacks are debt.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let window = window(quota, now);
        if permits > 0 {
            self.pay(&window, quota);
            let unused = u64::from(quota.rate()).saturating_sub(self.0.used_after(window.start));
            self.0.forget(window.previous);
            if u64::from(permits) > unused {
                self.0.merge_after(window.start, window.end);
            }
            self.0.add_with_debt(permits.into(), unused.min(permits.into()), window.end);
        }
        self.check(quota, 0, now)
    }

    /// Pays debt with the permits of the windows since the last charge.
    fn pay(&mut self, window: &Window, quota: &Quota) {
        let Some(newest) = self.0.newest_end().filter(|_| self.0.debt > 0) else { return };
        let rate = u64::from(quota.rate());
        // Permits that a raised rate has added pay in the newest window. If it is the present window, it can contain
        // counters of another unit.
        let used = self.0.used_after(window.start.min(Timestamp::from_millis(newest.as_millis() - 1)));
        self.pay_in(newest, rate.saturating_sub(used));
        if newest <= window.start && self.0.debt > 0 {
            let (length, passed) = (quota.mean_window(), window.start.millis_since(newest));
            let passed = (passed + length / 2) / length;
            self.0.debt = self.0.debt.saturating_sub(passed.saturating_mul(rate));
            self.pay_in(window.end, rate);
        }
    }

    /// Pays debt with up to `unused` permits of the window that ends at `end`.
    fn pay_in(&mut self, end: Timestamp, unused: u64) {
        let paid = unused.min(self.0.debt);
        if paid > 0 {
            self.0.add(paid, end);
            self.0.debt -= paid;
        }
    }

    /// Returns this bucket after the payments until this window.
    fn paid(&self, window: &Window, quota: &Quota) -> Self {
        let mut paid = self.clone();
        paid.pay(window, quota);
        paid
    }

    /// Returns the milliseconds from `now` until the debt is paid; 0 without debt.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        if self.0.debt == 0 {
            return 0;
        }
        let window = window(quota, now);
        let paid = self.paid(&window, quota);
        if paid.0.debt == 0 { 0 } else { paid.end_before(&window, quota, 0).millis_since(now).min(MAX_WAIT) }
    }

    /// Updates the bucket after a refusal at `now`: only if a counter ends after the present window.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        let window = window(quota, now);
        if self.0.newest_end().is_some_and(|newest| newest > window.end) {
            self.pay(&window, quota);
            self.0.forget(window.previous);
            self.0.redate(window.end);
        }
    }

    /// Removes `permits` that were granted at `granted_at` from their window, unless they have expired or were moved to
    /// another window. In the newest window, they pay debt first.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, _now: Timestamp) {
        let (permits, end) = (u64::from(permits), window(quota, granted_at).end);
        let debt = if self.0.newest_end() == Some(end) { self.0.debt } else { 0 };
        if self.0.remove(permits, end) {
            self.pay_in(end, permits.min(debt));
        }
    }

    /// Returns the permits in use at `now`, with the debt.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        let window = window(quota, now);
        let paid = self.paid(&window, quota);
        paid.0.used_after(window.start) + paid.0.debt
    }

    /// Returns the moment from which the bucket is full and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        let debt = debt::longest_millis(self.0.debt, quota.rate().into(), quota.mean_window());
        self.0.newest_end().unwrap_or_default().plus_millis(debt)
    }

    /// Returns the packed form; `None` if there is more than one counter.
    pub(super) fn pack(&self) -> Option<Packed> {
        self.0.pack()
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        Self(Counters::unpack(packed))
    }

    /// Returns this bucket as numbers. Windows end at the same moment in every process.
    pub(super) fn to_numbers(&self, _now: Timestamp) -> Vec<i64> {
        self.0.to_numbers(CALENDAR)
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(numbers: Numbers<'_>) -> Option<Self> {
        Counters::from_numbers(numbers.relative_to(CALENDAR)).map(Self)
    }
}

impl Quota {
    /// Returns the mean length of the windows, in milliseconds.
    fn mean_window(&self) -> u64 {
        self.algorithm().calendar().map_or(self.interval(), |calendar| calendar.unit().mean_millis())
    }

    /// Returns the boundary of windows that is nearest to a moment. Other algorithms have no boundaries: returns the
    /// moment.
    pub fn boundary_near(&self, at: Timestamp) -> Timestamp {
        let Some(window) = self.algorithm().calendar().map(|calendar| calendar.window(at)) else { return at };
        let is_near_start = at.millis_since(window.start) < window.end.millis_since(at);
        if is_near_start { window.start } else { window.end }
    }
}

fn window(quota: &Quota, at: Timestamp) -> Window {
    match quota.algorithm() {
        Algorithm::FixedWindow(calendar) => calendar.window(at),
        // The quota of another algorithm has no calendar, so all of its windows have equal lengths.
        _ => Window::regular(quota.interval(), at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{Calendar, Unit};

    const DAY: u64 = 86_400_000;
    const HOUR: u64 = 3_600_000;
    /// 2026-03-28T23:00:00Z: midnight in Rome, before the day on which its clocks are set forward.
    const SUNDAY: u64 = 1_774_738_800_000;

    fn quota(rate: u64, unit: Unit, zone: &str) -> Quota {
        let calendar = Calendar::new(unit, zone).expect("a calendar");
        Quota::new(rate, unit.millis(), Algorithm::FixedWindow(calendar)).expect("a quota")
    }

    crate::testing::define_take!();

    #[test]
    fn day_in_rome_can_end_after_23_hours() {
        let (mut state, quota) = (State::default(), quota(3, Unit::Day, "Europe/Rome"));
        let granted =
            [SUNDAY - 1, SUNDAY, SUNDAY, SUNDAY + 22 * HOUR].map(|now| take(&mut state, &quota, 1, now).granted);
        assert_eq!(granted, [true; 4]);
        let refused = take(&mut state, &quota, 1, SUNDAY + 22 * HOUR + 1);
        assert_eq!((refused.wait, refused.reset, refused.remaining), (Wait::Millis(HOUR - 1), HOUR - 1, 0));
        assert!(!take(&mut state, &quota, 1, SUNDAY + 23 * HOUR - 1).granted);
        assert_eq!(take(&mut state, &quota, 3, SUNDAY + 23 * HOUR).reset, 24 * HOUR);
    }

    #[test]
    fn more_than_the_rate_is_never_granted() {
        let (mut state, quota) = (State::default(), quota(5, Unit::Second, "UTC"));
        assert_eq!(take(&mut state, &quota, 6, 0).wait, Wait::Never);
        let unused = take(&mut state, &quota, 0, 0);
        assert_eq!((unused.granted, unused.remaining, unused.reset), (true, 5, 0));
        assert_eq!(state, State::default());
    }

    #[test]
    fn bucket_has_at_most_two_counters() {
        let (mut state, quota) = (State::default(), quota(5, Unit::Second, "UTC"));
        for now in (0..100_000).step_by(100).chain((0..90_000).rev().step_by(300)) {
            take(&mut state, &quota, 1, now);
            assert!(state.0.len() <= 2, "{state:?}");
        }
    }

    #[test]
    fn clock_set_back_over_a_boundary_finds_the_previous_window() {
        let (mut state, quota) = (State::default(), quota(3, Unit::Day, "UTC"));
        take(&mut state, &quota, 3, 10 * DAY - 1);
        take(&mut state, &quota, 1, 10 * DAY + 1);
        assert_eq!(take(&mut state, &quota, 1, 10 * DAY - 5).wait, Wait::Millis(5));
        assert!(take(&mut state, &quota, 3, 10 * DAY).granted);
    }

    #[test]
    fn clock_set_back_blocks_requests_for_at_most_one_window() {
        let (mut state, quota) = (State::default(), quota(2, Unit::Minute, "UTC"));
        take(&mut state, &quota, 2, 2 * HOUR);
        assert_eq!(take(&mut state, &quota, 1, HOUR + 10).wait, Wait::Millis(59_990));
        assert!(!take(&mut state, &quota, 1, HOUR + 59_999).granted);
        assert!(take(&mut state, &quota, 2, HOUR + 60_000).granted);

        let mut state = State::default();
        take(&mut state, &quota, 1, 2 * HOUR);
        assert_eq!(take(&mut state, &quota, 1, HOUR).remaining, 0, "a grant also moves future counters");
        assert!(take(&mut state, &quota, 2, HOUR + 60_000).granted);
    }

    #[test]
    fn clock_that_jumps_ahead_grants_one_extra_rate() {
        let (mut state, quota) = (State::default(), quota(2, Unit::Hour, "UTC"));
        assert!(take(&mut state, &quota, 2, 10 * HOUR).granted);
        assert!(take(&mut state, &quota, 2, 1_000 * HOUR).granted);
        assert!(!take(&mut state, &quota, 1, 1_000 * HOUR + 1).granted);
        assert!(!take(&mut state, &quota, 1, 10 * HOUR + 1).granted, "nothing extra after the clock is corrected");
    }

    #[test]
    fn changed_rate_applies_immediately() {
        let mut state = State::default();
        take(&mut state, &quota(10, Unit::Hour, "UTC"), 8, 0);
        let refused = take(&mut state, &quota(3, Unit::Hour, "UTC"), 1, 1);
        assert_eq!((refused.remaining, refused.wait), (0, Wait::Millis(HOUR - 1)));
        assert_eq!(take(&mut state, &quota(12, Unit::Hour, "UTC"), 1, 2).remaining, 3);
    }

    #[test]
    fn counters_of_another_unit_or_zone_still_count() {
        let (hour, day) = (quota(5, Unit::Hour, "UTC"), quota(5, Unit::Day, "UTC"));
        let mut state = State::default();
        take(&mut state, &hour, 2, 9 * HOUR);
        take(&mut state, &hour, 2, 10 * HOUR);
        assert_eq!(take(&mut state, &day, 1, 11 * HOUR).remaining, 0, "both hours belong to this day");

        let mut state = State::default();
        take(&mut state, &day, 5, 9 * HOUR);
        assert_eq!(take(&mut state, &hour, 1, 12 * HOUR).wait, Wait::Millis(HOUR), "the day counts in this hour");
        assert!(take(&mut state, &hour, 5, 13 * HOUR).granted, "and expires with it");

        let mut state = State::default();
        take(&mut state, &day, 5, 9 * HOUR);
        let tokyo = quota(5, Unit::Day, "Asia/Tokyo");
        assert_eq!(take(&mut state, &tokyo, 1, 10 * HOUR).wait, Wait::Millis(5 * HOUR));
        assert!(take(&mut state, &tokyo, 5, 15 * HOUR).granted);
    }

    #[test]
    fn given_back_permits_leave_their_window_once() {
        let (mut state, quota) = (State::default(), quota(4, Unit::Second, "UTC"));
        let give_back = |state: &mut State, permits, at| {
            state.give_back(&quota, permits, Timestamp::from_millis(at), Timestamp::default());
        };
        take(&mut state, &quota, 1, 0);
        take(&mut state, &quota, 2, 150);
        give_back(&mut state, 2, 150);
        assert_eq!(take(&mut state, &quota, 0, 200).remaining, 3);
        give_back(&mut state, 2, 150);
        assert_eq!(take(&mut state, &quota, 0, 200).remaining, 3, "gave back more than was charged");
        take(&mut state, &quota, 1, 1_150);
        give_back(&mut state, 1, 0);
        assert_eq!(take(&mut state, &quota, 0, 1_200).remaining, 3);
    }
}
