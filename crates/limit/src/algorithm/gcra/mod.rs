//! `gcra`: permits become available again continuously, one by one.
//!
//! **Guarantee.** In any time span `t`, granted permits <= `burst` + `rate` * `t` / `interval`. The wait of a refused
//! request is exact to the millisecond: without other requests, it is refused at `now + wait - 1` and granted at
//! `now + wait`. More than `burst` permits at once are never granted.
//!
//! **State.** The permits in use, in parts; `interval` parts make a permit. `rate` parts return in each millisecond,
//! and a request is granted if at most `burst` permits are in use afterwards. This is the generic cell rate algorithm
//! as a leaky bucket (ITU-T I.371), measured in permits instead of time, so that all numbers are integers.
//!
//! **Changed quotas.** Permits in use stay in use. They return by the new rate, counted from the last grant. Under a
//! lower burst no request is granted until enough permits have returned. A new interval rounds the last part up.
//!
//! **Debt.** A charge that cannot be refused may leave more than `burst` permits in use.
//!
//! **Clock jumps.** If the clock went back, the state is dated in the future and counts as of now: nothing returns for
//! the time that repeats, then permits return at the usual rate.
//!
//! **Giving back.** Permits that have returned since their grant are not given back again. So a bucket never has more
//! free permits than without the undone request, and exactly as many if it was undone immediately or was the only one.
//!
//! `lua/gcra.lua` is a translation of this file.

pub mod warm_up;

use crate::algorithm::numbers::{self, Numbers};
use crate::algorithm::packed::Packed;
use crate::clock::Timestamp;
use crate::{BucketDecision, MAX_DEBT, MAX_WAIT, Quota, Wait};

/// A bucket: its permits in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The time of this state.
    at: Timestamp,
    /// The permits in use at that time, in parts; `interval` parts make a permit.
    used: u128,
    interval: u64,
}

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let used = self.used_at(quota, now);
        let available = divide(parts(quota.capacity(), quota).saturating_sub(used), quota.interval());
        let remaining = u32::try_from(available).unwrap_or(u32::MAX);
        let wait = if permits <= remaining {
            Wait::Now
        } else if permits > quota.capacity() {
            Wait::Never
        } else {
            Wait::Millis(wait_for(permits, used, quota))
        };
        let reset = if remaining < quota.capacity() { wait_for(remaining + 1, used, quota) } else { 0 };
        BucketDecision::new(remaining, wait, reset)
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.advance(quota, now);
            self.used += parts(permits, quota);
        }
        self.check(quota, 0, now)
    }

    /// Charges `permits` at `now` in any case. Those that the bucket lacks are in use beyond its burst.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.advance(quota, now);
        }
        let permits = self.chargeable(quota, permits, now);
        self.charge(quota, permits, now)
    }

    /// Returns the number of these permits that can be in use in addition, so that their sum stays bounded.
    pub(super) fn chargeable(&self, quota: &Quota, permits: u32, now: Timestamp) -> u32 {
        let used = divide(self.used_at(quota, now), quota.interval());
        let unused = u128::from(u64::from(quota.capacity()) + MAX_DEBT).saturating_sub(used);
        u32::try_from(unused).unwrap_or(u32::MAX).min(permits)
    }

    /// Returns the milliseconds from `now` until at most `burst` permits are in use.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        millis_for(self.used_at(quota, now).saturating_sub(parts(quota.capacity(), quota)), quota)
    }

    /// Updates the bucket after a refusal at `now`: only if the clock went back.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        if self.at > now {
            self.advance(quota, now);
        }
    }

    /// Gives back the `permits` granted at `granted_at` that have not returned. If the clock went back since then,
    /// their number is unknown, and nothing is given back.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        let in_use = parts(permits, quota).saturating_sub(returned(granted_at, now, quota));
        if granted_at <= now && in_use > 0 {
            self.advance(quota, now);
            self.used = self.used.saturating_sub(in_use);
        }
    }

    /// Returns the permits in use at `now`, rounded up.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        u64::try_from(divide_up(self.used_at(quota, now), quota.interval())).unwrap_or(u64::MAX)
    }

    /// Returns the moment from which the bucket is full and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        self.at.plus_millis(millis_for(self.used_at(quota, self.at), quota))
    }

    /// Returns the packed form; `None` if the numbers are too large for it.
    pub(super) fn pack(&self) -> Option<Packed> {
        if *self == Self::default() {
            return Some(Packed::Unused);
        }
        let (amount, number) = (u64::try_from(self.used).ok()?, u32::try_from(self.interval).ok()?);
        Some(Packed::Once { at: self.at, amount, number })
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        match packed {
            Packed::Unused => Self::default(),
            Packed::Once { at, amount, number } => Self { at, used: amount.into(), interval: number.into() },
        }
    }

    /// Returns this bucket as numbers: its time, the interval, the whole permits in use, and the parts of one more
    /// permit.
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        let of_permit = u128::from(self.interval.max(1));
        let number = |amount: u128| numbers::amount(u64::try_from(amount).unwrap_or(u64::MAX));
        let (whole, parts) = (number(self.used / of_permit), number(self.used % of_permit));
        vec![numbers::time(self.at, now), numbers::amount(self.interval), whole, parts]
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(mut numbers: Numbers<'_>) -> Option<Self> {
        Self::read(&mut numbers).filter(|_| numbers.is_empty())
    }

    /// Reads a bucket; other numbers may follow.
    fn read(numbers: &mut Numbers<'_>) -> Option<Self> {
        let (at, interval, whole, parts) = (numbers.time()?, numbers.amount()?, numbers.amount()?, numbers.amount()?);
        let is_unused = (interval, whole, parts) == (0, 0, 0);
        let is_sound = is_unused || ((1..=crate::MAX_INTERVAL).contains(&interval) && parts < interval);
        let used = u128::from(whole) * u128::from(interval) + u128::from(parts);
        is_sound.then_some(Self { at, used, interval })
    }

    /// Returns the permits in use at `now`, in parts of this quota.
    pub(super) fn used_at(&self, quota: &Quota, now: Timestamp) -> u128 {
        if self.used == 0 {
            return 0;
        }
        let used = match self.interval == quota.interval() {
            true => self.used,
            false => divide_up(self.used * u128::from(quota.interval()), self.interval),
        };
        used.saturating_sub(returned(self.at, now, quota))
    }

    /// Returns the time slot of the last `permits`, if they were charged last: the moment when all earlier permits had
    /// returned. Used by `leaky_bucket`.
    pub(super) fn last_slot(&self, quota: &Quota, permits: u32) -> Option<Timestamp> {
        let before = self.used_at(quota, self.at).checked_sub(parts(permits, quota))?;
        Some(self.at.plus_millis(millis_for(before, quota)))
    }

    /// Removes the `permits` that were charged last.
    pub(super) fn remove_last(&mut self, quota: &Quota, permits: u32, now: Timestamp) {
        self.used = self.used_at(quota, self.at).saturating_sub(parts(permits, quota));
        self.interval = quota.interval();
        self.advance(quota, now);
    }

    fn advance(&mut self, quota: &Quota, now: Timestamp) {
        *self = Self { at: now, used: self.used_at(quota, now), interval: quota.interval() };
    }
}

pub(crate) fn parts(permits: u32, quota: &Quota) -> u128 {
    u128::from(permits) * u128::from(quota.interval())
}

/// Returns the parts that return between two moments.
pub(crate) fn returned(since: Timestamp, now: Timestamp, quota: &Quota) -> u128 {
    u128::from(now.millis_since(since)) * u128::from(quota.rate())
}

/// Returns the milliseconds until `permits` are free.
fn wait_for(permits: u32, used: u128, quota: &Quota) -> u64 {
    millis_for((used + parts(permits, quota)).saturating_sub(parts(quota.capacity(), quota)), quota)
}

/// Returns the milliseconds until `parts` have returned.
pub(super) fn millis_for(parts: u128, quota: &Quota) -> u64 {
    u64::try_from(divide_up(parts, quota.rate().into())).unwrap_or(u64::MAX).min(MAX_WAIT)
}

/// Divides by 64 bits if the dividend fits, since processors have no division of 128 bits.
fn divide(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => u128::from(dividend / divisor),
        Err(_) => dividend / u128::from(divisor),
    }
}

/// As [`divide`], and rounds up.
fn divide_up(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => u128::from(dividend.div_ceil(divisor)),
        Err(_) => dividend.div_ceil(u128::from(divisor)),
    }
}

#[cfg(test)]
mod tests;
