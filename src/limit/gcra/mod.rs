//! `gcra`: permits that come back continuously, one by one.
//!
//! **Law.** Over any span of time `t`, granted permits <= `burst` + `rate` * `t` / `interval`. A refused request knows to
//! the millisecond when it would pass: it is refused at `now + wait - 1` and granted at `now + wait`, if nothing else
//! happens. More than `burst` permits at once can never be granted.
//!
//! **State.** What is in use, in parts of which `interval` make a permit: it sinks by `rate` parts in each millisecond,
//! and a request is granted if with it no more than `burst` is in use. This is the generic cell rate algorithm as a
//! bucket that leaks (ITU-T I.371), kept in permits instead of in time, so that every number is whole.
//!
//! **Changed quotas.** What is in use stays in use. It returns by the new rate, all since the last grant included; under
//! a lowered burst nothing is granted before enough has returned; under another interval the last part is rounded up.
//!
//! **Clock jumps.** A clock that went back finds a state ahead of it. It counts as made now: nothing returns for the
//! time that is lived through again, and then everything at the usual rate.
//!
//! **Giving back.** Of a request that is undone, what has returned since it was granted is not given again. So the bucket
//! is never fuller than if the request had not been, and it is exactly as full if it was undone at once or was alone.
//!
//! `lua/gcra.lua` is the translation of this file.

#[cfg(feature = "gateway")]
use super::numbers::{self, Numbers};
use super::packed::Packed;
use super::{Decision, Quota, Wait};
use crate::clock::Timestamp;

/// The longest wait that is told, a thousand years: what a burst of billions takes at one permit a year needs no digits.
const MAX_WAIT: u64 = 1000 * super::MAX_INTERVAL;

/// The permits in use: one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// When the rest was true.
    at: Timestamp,
    /// What was in use, in parts of which `interval` make a permit.
    used: u128,
    interval: u64,
}

impl State {
    /// Judges a request for `permits` at `now`; changes nothing.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        let used = self.used_at(quota, now);
        let available = parts(quota.capacity(), quota).saturating_sub(used) / u128::from(quota.interval());
        let remaining = u32::try_from(available).unwrap_or(u32::MAX);
        let wait = if permits <= remaining {
            Wait::Now
        } else if permits > quota.capacity() {
            Wait::Never
        } else {
            Wait::Millis(wait_for(permits, used, quota))
        };
        let reset = if remaining < quota.capacity() { wait_for(remaining + 1, used, quota) } else { 0 };
        Decision::new(remaining, wait, reset)
    }

    /// Takes `permits` that [`check`](Self::check) has granted at `now`, and says what is left.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        if permits > 0 {
            self.advance(quota, now);
            self.used += parts(permits, quota);
        }
        self.check(quota, 0, now)
    }

    /// After a refusal at `now`: changes nothing, unless the clock went back.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        if self.at > now {
            self.advance(quota, now);
        }
    }

    /// Takes back what has not returned of `permits` that were granted at `granted_at`. If the clock went back since,
    /// that is unknown, and nothing is taken back.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        let left = parts(permits, quota).saturating_sub(returned(granted_at, now, quota));
        if granted_at <= now && left > 0 {
            self.advance(quota, now);
            self.used = self.used.saturating_sub(left);
        }
    }

    /// The moment from which the bucket is full and can be forgotten.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        self.at.plus_millis(millis_for(self.used_at(quota, self.at), quota))
    }

    /// What is not more than most buckets hold.
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

    /// This bucket as numbers: when, the interval, whole permits in use, and the parts of one more.
    #[cfg(feature = "gateway")]
    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        let of_permit = u128::from(self.interval.max(1));
        let number = |amount: u128| numbers::amount(u64::try_from(amount).unwrap_or(u64::MAX));
        let (whole, parts) = (number(self.used / of_permit), number(self.used % of_permit));
        vec![numbers::time(self.at, now), numbers::amount(self.interval), whole, parts]
    }

    /// The bucket that these numbers describe; `None` if they describe none.
    #[cfg(feature = "gateway")]
    pub(super) fn from_numbers(mut numbers: Numbers<'_>) -> Option<Self> {
        let (at, interval, whole, parts) = (numbers.time()?, numbers.amount()?, numbers.amount()?, numbers.amount()?);
        let is_unused = (interval, whole, parts) == (0, 0, 0);
        let is_sound = is_unused || ((1..=super::MAX_INTERVAL).contains(&interval) && parts < interval);
        let used = u128::from(whole) * u128::from(interval) + u128::from(parts);
        (is_sound && numbers.is_empty()).then_some(Self { at, used, interval })
    }

    /// What is in use at `now`, in parts of this quota's permits.
    pub(super) fn used_at(&self, quota: &Quota, now: Timestamp) -> u128 {
        if self.used == 0 {
            return 0;
        }
        let used = (self.used * u128::from(quota.interval())).div_ceil(u128::from(self.interval));
        used.saturating_sub(returned(self.at, now, quota))
    }

    /// When the last `permits` that came in began to be all there was, if they were the last: for buckets with slots.
    pub(super) fn last_slot(&self, quota: &Quota, permits: u32) -> Option<Timestamp> {
        let before = self.used_at(quota, self.at).checked_sub(parts(permits, quota))?;
        Some(self.at.plus_millis(millis_for(before, quota)))
    }

    /// Takes out `permits` that came in last.
    pub(super) fn remove_last(&mut self, quota: &Quota, permits: u32, now: Timestamp) {
        self.used = self.used_at(quota, self.at).saturating_sub(parts(permits, quota));
        self.interval = quota.interval();
        self.advance(quota, now);
    }

    fn advance(&mut self, quota: &Quota, now: Timestamp) {
        *self = Self { at: now, used: self.used_at(quota, now), interval: quota.interval() };
    }
}

pub(super) fn parts(permits: u32, quota: &Quota) -> u128 {
    u128::from(permits) * u128::from(quota.interval())
}

/// The parts that return between two moments.
pub(super) fn returned(since: Timestamp, now: Timestamp, quota: &Quota) -> u128 {
    u128::from(now.millis_since(since)) * u128::from(quota.rate())
}

/// Milliseconds until so many permits are there.
fn wait_for(permits: u32, used: u128, quota: &Quota) -> u64 {
    millis_for((used + parts(permits, quota)).saturating_sub(parts(quota.capacity(), quota)), quota)
}

/// Milliseconds until so many parts have returned.
pub(super) fn millis_for(parts: u128, quota: &Quota) -> u64 {
    u64::try_from(parts.div_ceil(u128::from(quota.rate()))).unwrap_or(u64::MAX).min(MAX_WAIT)
}

#[cfg(test)]
mod tests;
