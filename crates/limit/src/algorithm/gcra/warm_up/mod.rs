//! `gcra` with `warm_up`: after idle time, the rate rises from a third to the full rate. This is the function of Guava's
//! SmoothWarmingUp with a cold factor of 3, in 16 steps and in integers.
//!
//! **Guarantee.** In any time span `t`, granted permits <= `burst` + `rate` * `t` / `interval`, as with `gcra`. If the
//! bucket is cold at the start of the span and `t` <= `warm_up`: granted permits <= `burst` + `rate` * `t` /
//! (2 * `interval`). The wait of a refused request is exact to the millisecond.
//!
//! **State.** A `gcra` bucket and its *heat*, the permits that have warmed the bucket up, in parts. Each granted permit
//! adds its parts to the heat, up to the parts that return in one `warm_up`. While no permits are in use, the heat falls
//! by `rate` parts in each millisecond. So an idle bucket is cold after one `warm_up`, and an unused bucket is cold.
//!
//! **Prices.** A permit at heat `h` stays in use longer: it costs its own parts and an extra. The first half of the heat
//! is divided into 16 steps. The extra falls from 31/16 of the permit in the first step to 1/16 in the last step, and is
//! 0 in the second half. These extras add up to the parts of the first half, so that a bucket under full demand is warm
//! after one `warm_up`. The extra of a request is paid after its grant: it never delays the request itself. So every
//! request for at most `burst` permits has a wait.
//!
//! **Changed quotas** and **clock jumps.** As with `gcra`; while time repeats, the heat does not fall.
//!
//! **Giving back.** The permits that have not returned are given back with their extra, computed so that it is at most
//! the extra that was paid. The bucket cools down by the given permits.
//!
//! `lua/gcra_warm_up.lua` is a translation of this file.

use serde::{Deserialize, Serialize};

use super::{BucketDecision, MAX_WAIT, Packed, Quota, Timestamp, millis_for, parts, returned};
use crate::Algorithm;
use crate::algorithm::numbers::{self, Numbers};

/// The shortest warm-up, in milliseconds: shorter ones are rounded too much.
pub const MIN_WARM_UP: u64 = 1_000;

/// The longest warm-up, in milliseconds. With the largest rate, all numbers of the script stay below 2^53.
pub const MAX_WARM_UP: u64 = 60 * 60 * 1_000;

/// The number of prices above the usual price.
const STEPS: u64 = 16;

/// The parameters of `gcra` with a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WarmUp {
    /// The capacity: 1 to [`MAX_RATE`](crate::MAX_RATE).
    pub burst: u32,
    /// The milliseconds from the cold to the full rate: [`MIN_WARM_UP`] to [`MAX_WARM_UP`].
    pub millis: u64,
}

/// A bucket: its permits in use, and its heat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    bucket: super::State,
    /// The heat at the time of the bucket, in parts of its interval.
    heat: u64,
}

/// The prices of a quota.
#[derive(Clone, Copy)]
struct Prices {
    /// A sixteenth of the parts in a step.
    unit: u64,
    /// The upper bound of the heat.
    max_heat: u64,
}

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        self.bucket.check(quota, permits, now)
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.advance(quota, now);
            let (prices, own) = (Prices::new(quota), parts(permits, quota));
            let heat = u128::from(self.heat).saturating_add(own).min(prices.max_heat.into());
            let heat = u64::try_from(heat).unwrap_or(prices.max_heat);
            self.bucket.used += own + u128::from(prices.extra(self.heat, heat));
            self.heat = heat;
        }
        self.check(quota, 0, now)
    }

    /// Charges `permits` at `now` in any case. Those that the bucket lacks are in use beyond its burst.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        if permits > 0 {
            self.advance(quota, now);
        }
        let permits = self.bucket.chargeable(quota, permits, now);
        self.charge(quota, permits, now)
    }

    /// Returns the milliseconds from `now` until at most `burst` permits are in use, with the extra of their prices.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.bucket.debt_wait(quota, now)
    }

    /// Updates the bucket after a refusal at `now`: only if the clock went back.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        if self.bucket.at > now {
            self.advance(quota, now);
        }
    }

    /// Gives back the `permits` granted at `granted_at` that have not returned, with their extra. If the clock went back
    /// since then, nothing is given back.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        let (prices, heat, own) = (Prices::new(quota), self.heat_at(quota, now), parts(permits, quota));
        let own_heat = u64::try_from(own).unwrap_or(u64::MAX);
        let lower = heat.saturating_sub(own_heat);
        let returned = returned(granted_at, now, quota);
        // The heat after the grant, or more: since then, the bucket has cooled down by the returned permits at most. At its
        // upper bound, the heat does not show how much of it came from this request.
        let heat_then = heat.saturating_add(u64::try_from(returned).unwrap_or(u64::MAX));
        let is_known = heat_then < prices.max_heat;
        let extra = if is_known { prices.extra(heat_then.saturating_sub(own_heat), heat_then) } else { 0 };
        let in_use = (own + u128::from(extra)).saturating_sub(returned);
        if granted_at <= now && in_use > 0 {
            self.advance(quota, now);
            self.bucket.used = self.bucket.used.saturating_sub(in_use);
            self.heat = lower;
        }
    }

    /// Returns the permits in use at `now`, rounded up.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.bucket.used(quota, now)
    }

    /// Returns the moment from which the bucket is full and cold, and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        let at = self.bucket.at;
        let in_use = self.bucket.used_at(quota, at) + u128::from(self.heat_at(quota, at));
        at.plus_millis(millis_for(in_use, quota))
    }

    /// Returns the packed form; `None` for a bucket with heat.
    pub(crate) fn pack(&self) -> Option<Packed> {
        if self.heat == 0 { self.bucket.pack() } else { None }
    }

    pub(crate) fn unpack(packed: Packed) -> Self {
        Self { bucket: super::State::unpack(packed), heat: 0 }
    }

    /// Returns this bucket as numbers: the numbers of `gcra`, then the whole permits and the other parts of the heat.
    pub(crate) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        let of_permit = self.bucket.interval.max(1);
        let mut all = self.bucket.to_numbers(now);
        all.extend([self.heat / of_permit, self.heat % of_permit].map(numbers::amount));
        all
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(crate) fn from_numbers(mut numbers: Numbers<'_>) -> Option<Self> {
        let bucket = super::State::read(&mut numbers)?;
        let (whole, parts) = (numbers.amount()?, numbers.amount()?);
        let heat = u128::from(whole) * u128::from(bucket.interval) + u128::from(parts);
        let is_sound = if bucket.interval == 0 { (whole, parts) == (0, 0) } else { parts < bucket.interval };
        let heat = u64::try_from(heat).ok()?;
        (is_sound && numbers.is_empty()).then_some(Self { bucket, heat })
    }

    /// Returns the heat at `now`, in parts of this quota.
    fn heat_at(&self, quota: &Quota, now: Timestamp) -> u64 {
        let Some(of_permit) = Some(self.bucket.interval).filter(|interval| *interval > 0) else { return 0 };
        let heat = u128::from(self.heat) * u128::from(quota.interval()) / u128::from(of_permit);
        let in_use = self.bucket.used_at(quota, self.bucket.at);
        let cooled = returned(self.bucket.at, now, quota).saturating_sub(in_use);
        let max_heat = Prices::new(quota).max_heat;
        u64::try_from(heat.min(max_heat.into()).saturating_sub(cooled)).unwrap_or(max_heat)
    }

    fn advance(&mut self, quota: &Quota, now: Timestamp) {
        self.heat = self.heat_at(quota, now);
        self.bucket.advance(quota, now);
    }
}

impl Prices {
    fn new(quota: &Quota) -> Self {
        let millis = match quota.algorithm() {
            Algorithm::GcraWarmUp(WarmUp { millis, .. }) => millis,
            _ => 0,
        };
        let unit = (u64::from(quota.rate()) * millis).div_ceil(2 * STEPS * STEPS);
        Self { unit, max_heat: 2 * STEPS * STEPS * unit }
    }

    /// Returns the extra of the permits that raise the heat from `from` to `to`, rounded up.
    fn extra(self, from: u64, to: u64) -> u64 {
        let ([low, low_part], [high, high_part]) = (self.total(from), self.total(to));
        // Both parts are below 2^53, and the whole extras rise with the heat.
        let part = i128::from(high_part) - i128::from(low_part);
        let steps = i128::from(STEPS);
        let rounded_up = part.div_euclid(steps) + i128::from(part.rem_euclid(steps) > 0);
        u64::try_from(i128::from(high - low) + rounded_up).unwrap_or_default()
    }

    /// Returns the extra of all permits up to this heat: of its complete steps in parts, and of the rest in sixteenths
    /// of a part.
    fn total(self, heat: u64) -> [u64; 2] {
        let of_step = STEPS * self.unit;
        let steps = heat.checked_div(of_step).unwrap_or(STEPS);
        if steps >= STEPS {
            return [STEPS * STEPS * self.unit, 0];
        }
        [self.unit * steps * (2 * STEPS - steps), heat % of_step * (2 * (STEPS - steps) - 1)]
    }
}

/// Returns the time until a bucket is full, and until it is also cold, after all its permits were charged at once.
pub(crate) fn refill(quota: &Quota) -> [u64; 2] {
    let prices = Prices::new(quota);
    let mut state = State::default();
    state.charge(quota, quota.capacity(), Timestamp::default());
    let full = millis_for(state.bucket.used, quota);
    // The heat may be at its upper bound, and each request may have paid the highest price.
    let longest = parts(quota.capacity(), quota) * 3 + u128::from(prices.max_heat);
    [full, millis_for(longest, quota).min(MAX_WAIT)]
}

#[cfg(test)]
mod tests;
