//! `token_bucket`: no window of an interval holds more than the rate.

use proptest::prelude::*;
use tidegate::limit::{Algorithm, Quota};

use super::{Life, Subject};

pub(super) const SUBJECT: Subject = Subject { algorithm: |_| Just(Algorithm::TokenBucket).boxed(), changed, law };

fn changed(quota: Quota, change: usize) -> Quota {
    let rate = u64::from(quota.rate());
    let rate = if change == 0 { rate.div_ceil(2) } else { rate };
    Quota::new(rate, quota.interval(), quota.algorithm()).expect("a quota")
}

fn law(life: &Life) -> Result<(), TestCaseError> {
    let (rate, interval) = (u64::from(life.quota.rate()), life.quota.interval());
    let used = |window: u64| -> u64 {
        life.granted.iter().filter(|(at, _)| at + window > life.now).map(|(_, permits)| permits).sum()
    };
    prop_assert!(used(interval) <= rate, "{} granted in one window of rate {}", used(interval), rate);
    // Nothing is withheld for longer than the slot that merged entries cost.
    let slot = if rate > 512 { interval.div_ceil(511) } else { 0 };
    let kept = rate - used(interval + slot).min(rate);
    prop_assert!(life.left >= kept, "{} left where {} have returned", life.left, kept);
    Ok(())
}
