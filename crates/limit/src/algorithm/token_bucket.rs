//! `token_bucket`: Redisson's RRateLimiter.
//!
//! **Guarantee.** A permit becomes available again exactly one `interval` after it was granted. So in any window of
//! this length at most `rate` permits are granted. The wait of a refused request is exact to the millisecond: without
//! other requests, it is refused at `now + wait - 1` and granted at `now + wait`.
//!
//! **State.** A log of grants, oldest first, with at most about 512 entries for any rate. Grants of the same
//! millisecond share an entry. Above a rate of [`MAX_ENTRIES`], grants within one merge step share an entry, dated at
//! the latest grant. So permits may return up to one merge step late, and never early.
//!
//! **Debt.** Permits that were charged beyond the rate are owed, and paid as permits return.
//!
//! **Clock jumps.** If the clock went back, grants can be dated in the future. They are redated to now, so they stay in
//! use for one more interval.
//!
//! `lua/token_bucket.lua` is a translation of this file.

use super::debt::{Cycle, Grant};
use super::entries::Entries;
use super::numbers::{self, Numbers};
use super::packed::Packed;
use crate::clock::Timestamp;
use crate::{BucketDecision, MAX_DEBT, Quota, Wait};

/// Above this rate, grants share log entries.
pub const MAX_ENTRIES: u32 = 512;

/// The longest interval of another rule for which entries are kept, as a multiple of this rule's interval. It bounds
/// the log.
const MOST_LONGER: u64 = 64;

/// A bucket: its permits in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    log: Entries<Grant>,
    /// The permits of all entries, including returned ones.
    stored: u64,
    /// The longest interval that any rule has used recently, and until when it is respected.
    longest: u64,
    longest_until: Timestamp,
    /// The permits that were charged and that the bucket lacked, when it was charged last.
    debt: u64,
}

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    #[inline]
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if self.debt > 0 {
            return self.paid(quota, now).check_paid(quota, permits, now);
        }
        self.check_paid(quota, permits, now)
    }

    #[inline]
    fn check_paid(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let present = self.at_present(quota, now);
        if permits <= present.remaining {
            return present;
        }
        BucketDecision { granted: false, wait: self.wait_for(permits, quota, now), ..present }
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.pay(quota, now);
            self.add(quota, u64::from(permits), now);
        }
        self.check(quota, 0, now)
    }

    /// Charges `permits` at `now` in any case. Those that the bucket lacks are debt.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.pay(quota, now);
            let granted = self.unused(quota, now).min(permits.into());
            self.add(quota, granted, now);
            self.debt = (self.debt + u64::from(permits) - granted).min(MAX_DEBT);
        }
        self.check(quota, 0, now)
    }

    /// Adds granted permits, dated `now`, and drops or redates others as needed.
    fn add(&mut self, quota: &Quota, permits: u64, now: Timestamp) {
        let (horizon, until) = self.longest(quota, now);
        self.forget(horizon, now);
        self.redate(now);
        if permits > 0 {
            self.push(quota, horizon, permits, now);
        }
        (self.longest, self.longest_until) = (horizon, until);
    }

    /// Pays debt with the permits that have returned.
    fn pay(&mut self, quota: &Quota, now: Timestamp) {
        if self.debt > 0 {
            Cycle::new(quota, None).pay(&mut self.log, &mut self.debt, now);
            self.stored = self.log.iter().map(|grant| grant.permits).sum();
        }
    }

    /// Returns this bucket after the payments until `now`.
    #[cold]
    fn paid(&self, quota: &Quota, now: Timestamp) -> Self {
        let mut paid = self.clone();
        paid.pay(quota, now);
        paid.redate(now);
        paid
    }

    /// Returns the milliseconds from `now` until the debt is paid; 0 without debt.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        let paid = (self.debt > 0).then(|| self.paid(quota, now)).filter(|paid| paid.debt > 0);
        paid.map_or(0, |paid| paid.millis_until_paid(0, quota, now))
    }

    /// Updates the bucket after a refusal at `now`: only if the clock went back, or if rules with a shorter interval
    /// would soon drop entries that this rule counts, and then grant too much. The latter happens at most once per
    /// interval.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        let (horizon, until) = self.longest(quota, now);
        let is_ahead = self.log.back().is_some_and(|newest| newest.at > now);
        let remembers = horizon <= self.longest && until.millis_since(self.longest_until) <= horizon;
        if is_ahead || (self.longest > 0 && !remembers) {
            self.pay(quota, now);
            self.forget(horizon, now);
            self.redate(now);
            (self.longest, self.longest_until) = (horizon, until);
        }
    }

    /// Removes `permits` that were granted at `granted_at` from the log, unless they have returned or were redated. If
    /// grants share entries, removes them from an entry of their merge step.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        if self.debt == 0 {
            self.remove(quota, permits.into(), granted_at, now);
            return;
        }
        let mut paid = self.clone();
        paid.pay(quota, now);
        if paid.remove(quota, permits.into(), granted_at, now) {
            let granted = paid.debt.min(paid.unused(quota, now));
            if granted > 0 {
                paid.add(quota, granted, now);
                paid.debt -= granted;
            }
            *self = paid;
        }
    }

    /// Removes permits for [`give_back`](Self::give_back). Returns `false` if it removed none.
    fn remove(&mut self, quota: &Quota, permits: u64, granted_at: Timestamp, now: Timestamp) -> bool {
        let (first, last) = merge_step_of(quota, self.longest(quota, now).0, granted_at);
        let (start, end) = (
            self.log.partition_point(|grant| grant.at < first).max(self.live_from(quota, now)),
            self.log.partition_point(|grant| grant.at <= last),
        );
        let holds = |exact: bool| {
            let mut candidates = self.log.iter().enumerate().take(end).skip(start);
            candidates.find(|(_, grant)| grant.permits == permits || (!exact && grant.permits > permits))
        };
        let Some((position, _)) = holds(true).or_else(|| holds(false)) else { return false };
        self.stored -= permits;
        let emptied = self.log.get_mut(position).is_some_and(|grant| {
            grant.permits -= permits;
            grant.permits == 0
        });
        if emptied {
            self.log.remove(position);
        }
        true
    }

    /// Releases up to `permits` of the newest permits, as if they had never been granted. Returns the number released.
    pub fn release(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> u32 {
        self.pay(quota, now);
        self.forget(self.longest(quota, now).0, now);
        let mut remaining = u64::from(permits);
        while let Some(newest) = self.log.back_mut().filter(|_| remaining > 0) {
            let taken = newest.permits.min(remaining);
            newest.permits -= taken;
            self.stored -= taken;
            remaining -= taken;
            if newest.permits == 0 {
                self.log.pop_back();
            }
        }
        permits - u32::try_from(remaining).unwrap_or(permits)
    }

    /// Returns the permits in use at `now`, with the debt.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        let paid = self.paid(quota, now);
        paid.used_from(paid.live_from(quota, now)) + paid.debt
    }

    /// Returns the permits that can be granted at `now`, after the payments until then.
    fn unused(&self, quota: &Quota, now: Timestamp) -> u64 {
        u64::from(quota.rate()).saturating_sub(self.used_from(self.live_from(quota, now)))
    }

    /// Returns the moment from which the bucket is full and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        let debt = Cycle::new(quota, None).longest_millis(self.debt);
        let retention = |newest: &Grant| self.longest(quota, newest.at).0.saturating_add(debt);
        self.log.back().map_or(Timestamp::default(), |newest| newest.at.plus_millis(retention(newest)))
    }

    /// Returns the packed form; `None` if there is debt or more than one grant to remember.
    pub(super) fn pack(&self) -> Option<Packed> {
        match &self.log {
            _ if self.debt > 0 => None,
            Entries::Few(None) if self.longest == 0 => Some(Packed::Unused),
            Entries::Few(Some(grant)) if self.longest_until == remembered_until(grant.at, self.longest) => {
                let permits = u32::try_from(grant.permits).ok()?;
                Some(Packed::Once { at: grant.at, amount: self.longest, number: permits })
            }
            _ => None,
        }
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        match packed {
            Packed::Unused => Self::default(),
            Packed::Once { at, amount: longest, number } => {
                let grant = Grant { at, permits: number.into() };
                let longest_until = remembered_until(at, longest);
                Self { log: Entries::Few(Some(grant)), stored: grant.permits, longest, longest_until, debt: 0 }
            }
        }
    }

    /// Returns this bucket as numbers: the longest interval, the end of its use, the grants, and the debt if there is
    /// one.
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        let remembered = [numbers::amount(self.longest), numbers::time(self.longest_until, now)];
        let grants = self.log.iter().flat_map(|grant| [numbers::time(grant.at, now), numbers::amount(grant.permits)]);
        remembered.into_iter().chain(grants).chain(numbers::debt(self.debt)).collect()
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(mut numbers: Numbers<'_>) -> Option<Self> {
        let (longest, longest_until) = (numbers.amount()?, numbers.time()?);
        let debt = numbers.take_debt()?;
        let log = numbers.entries(|at, permits| Grant { at, permits })?;
        let stored = log.iter().map(|grant| grant.permits).sum();
        Some(Self { log, stored, longest, longest_until, debt })
    }

    /// Returns the decision about a request for no permits.
    #[inline]
    fn at_present(&self, quota: &Quota, now: Timestamp) -> BucketDecision {
        let live = self.live_from(quota, now);
        let available = u64::from(quota.rate()).saturating_sub(self.used_from(live));
        let reset = match self.debt {
            0 => self.log.get(live).map_or(0, |oldest| returns_in(oldest, quota, now)),
            _ => self.millis_until_paid(1, quota, now),
        };
        BucketDecision::new(u32::try_from(available).unwrap_or(u32::MAX), Wait::Now, reset)
    }

    /// Returns the position of the oldest grant that has not returned.
    #[inline]
    fn live_from(&self, quota: &Quota, now: Timestamp) -> usize {
        let none_has = self.log.front().is_none_or(|oldest| oldest.at.plus_millis(quota.interval()) > now);
        if none_has { 0 } else { self.returned(quota, now) }
    }

    /// Returns the number of returned grants. It is usually zero, since the last grant dropped the returned ones.
    #[cold]
    fn returned(&self, quota: &Quota, now: Timestamp) -> usize {
        self.log.partition_point(|grant| grant.at.plus_millis(quota.interval()) <= now)
    }

    /// Returns the permits in use; `live` is the position of the oldest grant that has not returned.
    #[inline]
    fn used_from(&self, live: usize) -> u64 {
        if live == 0 { self.stored } else { self.stored - self.permits_before(live) }
    }

    #[cold]
    fn permits_before(&self, live: usize) -> u64 {
        self.log.iter().take(live).map(|grant| grant.permits).sum()
    }

    /// Returns how long entries are kept, and until when that is respected. It is the longest interval that any rule
    /// has used recently: while gateways with an old and a new rule run side by side, the shorter interval must not
    /// drop entries that the longer one still counts.
    fn longest(&self, quota: &Quota, now: Timestamp) -> (u64, Timestamp) {
        let interval = quota.interval();
        let longest = self.longest.min(MOST_LONGER * interval);
        if longest > interval && self.longest_until > now {
            return (longest, self.longest_until);
        }
        (interval, remembered_until(now, interval))
    }

    /// Drops entries that no rule counts any more.
    fn forget(&mut self, horizon: u64, now: Timestamp) {
        while let Some(oldest) = self.log.front().filter(|oldest| oldest.at.plus_millis(horizon) <= now) {
            self.stored -= oldest.permits;
            self.log.pop_front();
        }
    }

    fn push(&mut self, quota: &Quota, horizon: u64, permits: u64, now: Timestamp) {
        let in_slot = |at: Timestamp| {
            let (first, last) = merge_step_of(quota, horizon, now);
            (first..=last).contains(&at)
        };
        match self.log.back_mut() {
            Some(newest) if in_slot(newest.at) => {
                newest.at = now;
                newest.permits += permits;
            }
            _ => self.log.push_back(Grant { at: now, permits }),
        }
        self.stored += permits;
    }

    /// Merges grants dated in the future into one grant dated `now`. There are such grants only if the clock went back.
    #[inline]
    fn redate(&mut self, now: Timestamp) {
        if self.log.back().is_some_and(|newest| newest.at > now) {
            self.redate_those_ahead(now);
        }
    }

    #[cold]
    fn redate_those_ahead(&mut self, now: Timestamp) {
        let ahead = self.log.partition_point(|grant| grant.at <= now);
        let permits = self.log.split_off(ahead).map(|grant| grant.permits).sum();
        if permits > 0 {
            self.log.push_back(Grant { at: now, permits });
        }
    }

    /// Returns the time until the debt is paid and `permits` are unused, as if the permits were debt, too.
    fn millis_until_paid(&self, permits: u32, quota: &Quota, now: Timestamp) -> u64 {
        Cycle::new(quota, None).millis_until_paid(self.log.clone(), self.debt + u64::from(permits), now)
    }

    /// Returns the wait of a request for more permits than remain: until enough permits have returned, oldest first.
    fn wait_for(&self, permits: u32, quota: &Quota, now: Timestamp) -> Wait {
        if permits > quota.rate() {
            return Wait::Never;
        }
        if self.debt > 0 {
            return Wait::Millis(self.millis_until_paid(permits, quota, now));
        }
        let live = self.live_from(quota, now);
        // After a lowered rate more permits can be in use than it allows, so the missing permits depend on the used
        // ones.
        let missing = self.used_from(live) + u64::from(permits) - u64::from(quota.rate());
        let mut returned = 0;
        let last = self.log.iter().skip(live).find(|grant| {
            returned += grant.permits;
            returned >= missing
        });
        Wait::Millis(last.map_or(quota.interval(), |grant| returns_in(grant, quota, now)))
    }
}

/// Returns until when an interval is respected that a rule has used at `at`.
fn remembered_until(at: Timestamp, interval: u64) -> Timestamp {
    at.plus_millis(3 * interval)
}

/// Returns the milliseconds until a grant returns. A grant dated in the future counts as made now.
fn returns_in(grant: &Grant, quota: &Quota, now: Timestamp) -> u64 {
    grant.at.min(now).plus_millis(quota.interval()).millis_since(now)
}

/// Returns `true` if the log could get so large that grants must share entries.
fn shares_entries(quota: &Quota, horizon: u64) -> bool {
    u64::from(quota.rate()) * horizon.div_ceil(quota.interval()) > u64::from(MAX_ENTRIES)
}

/// Returns the first and the last moment of a grant's merge step, which is one millisecond if grants share no entries.
fn merge_step_of(quota: &Quota, horizon: u64, at: Timestamp) -> (Timestamp, Timestamp) {
    if !shares_entries(quota, horizon) {
        return (at, at);
    }
    let step = horizon.div_ceil(u64::from(MAX_ENTRIES) - 1);
    let first = Timestamp::from_millis(at.as_millis() / step * step);
    (first, first.plus_millis(step - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn quota(rate: u64, interval: u64) -> Quota {
        Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota")
    }

    crate::testing::define_take!();

    #[test]
    fn permits_return_one_interval_after_their_grant() {
        let (mut state, quota) = (State::default(), quota(3, 10_000));
        let granted = [0, 1, 2, 3, 9_999, 10_000].map(|now| take(&mut state, &quota, 1, now).granted);
        assert_eq!(granted, [true, true, true, false, false, true]);
    }

    #[test]
    fn wait_ends_when_enough_permits_have_returned() {
        let (mut state, quota) = (State::default(), quota(100, 1_000));
        take(&mut state, &quota, 5, 10_000);
        take(&mut state, &quota, 30, 10_100);
        assert_eq!(take(&mut state, &quota, 100, 10_200).wait, Wait::Millis(900));
        assert!(!take(&mut state, &quota, 100, 11_099).granted);
        assert!(take(&mut state, &quota, 100, 11_100).granted);
    }

    #[test]
    fn more_than_the_rate_is_never_granted() {
        assert_eq!(take(&mut State::default(), &quota(5, 1_000), 6, 0).wait, Wait::Never);
    }

    #[test]
    fn bucket_has_at_most_512_entries() {
        let (mut state, quota) = (State::default(), quota(1_000_000, 60_000));
        for now in 0..200_000 {
            take(&mut state, &quota, 1, now);
            assert!(state.log.len() <= MAX_ENTRIES as usize, "{} entries at {now}", state.log.len());
        }
    }

    #[test]
    fn clock_set_back_blocks_requests_for_at_most_one_interval() {
        let (mut state, quota) = (State::default(), quota(2, 1_000));
        take(&mut state, &quota, 2, 3_600_000);
        assert_eq!(take(&mut state, &quota, 1, 5).wait, Wait::Millis(1_000));
        assert!(!take(&mut state, &quota, 1, 1_004).granted);
        assert!(take(&mut state, &quota, 2, 1_005).granted);
    }

    #[test]
    fn shorter_interval_drops_no_entries_of_a_refused_longer_one() {
        let (mut state, short, long) = (State::default(), quota(9, 300), quota(15, 600));
        take(&mut state, &long, 1, 0);
        // From its second interval on, the short rule charges 18 permits in each interval of the long rule with rate
        // 15.
        for now in 0..10_000 {
            while take(&mut state, &short, 1, now).granted {}
            let granted = take(&mut state, &long, 1, now).granted;
            assert!(!granted || now < 900, "granted at {now}");
        }
    }

    #[test]
    fn lowered_rate_applies_immediately() {
        let mut state = State::default();
        take(&mut state, &quota(10, 1_000), 8, 0);
        take(&mut state, &quota(10, 1_000), 2, 100);
        let refused = take(&mut state, &quota(3, 1_000), 1, 200);
        assert_eq!((refused.remaining, refused.wait), (0, Wait::Millis(800)));
        assert_eq!(take(&mut state, &quota(3, 1_000), 2, 1_000).wait, Wait::Millis(100));
    }
}
