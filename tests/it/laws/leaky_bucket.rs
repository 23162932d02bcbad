//! `leaky_bucket`: time slots are assigned in order, evenly spaced, and each only once.

use proptest::prelude::*;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, Turn};

use super::{START, Stores, Subject};
use crate::support::charge_of;
use crate::support::redis::fresh_name;

pub(super) const SUBJECT: Subject = Subject { algorithm, changed, law: |_| Ok(()) };

fn algorithm(rate: u64) -> BoxedStrategy<Algorithm> {
    let rate = u32::try_from(rate).expect("a rate");
    let length = prop_oneof![Just(0), Just(1), 0..=rate];
    let max_wait = prop_oneof![Just(0), 0..=10_000_u64, Just(100_000_000)];
    (length, max_wait).prop_map(|(length, max_wait)| Algorithm::LeakyBucket(Queue { length, max_wait })).boxed()
}

fn changed(quota: Quota, change: usize) -> Quota {
    let rate = u64::from(quota.rate());
    let (rate, interval) = match change {
        0 => (rate.div_ceil(2), quota.interval()),
        1 => (rate, quota.interval() * 3),
        _ => (rate, quota.interval()),
    };
    Quota::new(rate, interval, quota.algorithm()).expect("a quota")
}

#[test]
fn time_slots_are_evenly_spaced_and_the_queue_is_bounded() {
    let stores = Stores::start();
    for store in &stores.all {
        let lives = (1..=50_u64, 5_000..=60_000_u64, 0..=20_u32, 0..=30_000_u64);
        let lives = (lives, prop::collection::vec((0..=4_000_u64, 1..=3_u32, prop::option::of(0..=10_000_u64)), 1..60));
        let outcome = super::config(48).run(&lives, |((rate, interval, length, max_wait), requests)| {
            let quota =
                Quota::new(rate, interval, Algorithm::LeakyBucket(Queue { length, max_wait })).expect("a quota");
            let (name, mut now) = (fresh_name(), START);
            // The time of the next free time slot, in parts; `rate` parts make a millisecond.
            let mut free = u128::from(START) * u128::from(rate);
            for (passes, permits, within) in requests {
                now += passes;
                if u64::from(permits) > rate {
                    continue;
                }
                let here = u128::from(now) * u128::from(rate);
                let ahead = free.saturating_sub(here);
                let turn = within.map_or(Turn::Any, |millis| Turn::Within { millis });
                let charge = Charge { turn, ..charge_of(&name, None, quota, permits) };
                let decision = stores.take(store, &[charge], now).decisions[0];
                let delay = ahead.div_ceil(rate.into());
                // Without a queue the request passes immediately; otherwise all permits but one wait, including its
                // own.
                let in_line = ahead.div_ceil(interval.into()) + u128::from(permits) - 1;
                let fits = ahead == 0 || (in_line <= length.into() && delay <= max_wait.into());
                let late = within.map_or(0, |within| delay.saturating_sub(within.into()));
                prop_assert_eq!(decision.granted, fits && late == 0, "{} parts ahead of {:?}", ahead, quota);
                if fits && late > 0 {
                    prop_assert_eq!(decision.wait, Wait::Millis(u64::try_from(late).expect("milliseconds")));
                }
                if decision.granted {
                    prop_assert_eq!((decision.wait, u128::from(decision.delay)), (Wait::Now, delay));
                    free = free.max(here) + u128::from(permits) * u128::from(interval);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
