//! A bucket that is charged at two rates, in both stores: no charge exceeds the rate at which it is made.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::Charge;

use crate::laws::{START, Stores, config};
use crate::support::charge_of;
use crate::support::redis::fresh_name;

/// Time is virtual, but Redis expires keys by real time: the interval is longer than a test.
const INTERVAL: u64 = 100_000;

/// A step: the time since the last step, the permits of the request, and whether the override is in force.
type Step = (u64, u32, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let advance = prop_oneof![3 => Just(0), 3 => 1..12_000_u64, 1 => 90_000..210_000_u64];
    prop::collection::vec((advance, 1..3_u32, any::<bool>()), 1..60)
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::TokenBucket), (1..8_u32).prop_map(|segments| Algorithm::SlidingWindow { segments })]
}

/// Returns the charge at the rate of the rules, and at the rate of an override.
fn charges(quota: Quota, rate: u32) -> [Charge; 2] {
    let base = charge_of(&fresh_name(), Some(b"k"), quota, 1);
    let adjusted = Charge { limiter: Arc::new(base.limiter.at_rate(rate)), ..base.clone() };
    [base, adjusted]
}

#[test]
fn no_charge_exceeds_the_rate_at_which_it_is_made() {
    let stores = Stores::start();
    let inputs = (1..12_u32, 1..24_u32, algorithm(), steps());
    let law = |(rate, changed, algorithm, steps): (u32, u32, Algorithm, Vec<Step>)| {
        let quota = Quota::new(rate.into(), INTERVAL, algorithm).expect("a quota");
        for store in &stores.all {
            let (charges, mut now, mut granted) = (charges(quota, changed), START, Vec::new());
            for (advance, permits, is_changed) in &steps {
                now += advance;
                let charge = Charge { permits: *permits, ..charges[usize::from(*is_changed)].clone() };
                if !stores.take(store, &[charge], now).granted() {
                    continue;
                }
                granted.push((now, *permits));
                let in_window = granted.iter().filter(|(at, _)| at + INTERVAL > now);
                let sum: u32 = in_window.map(|(_, permits)| permits).sum();
                prop_assert!(sum <= if *is_changed { changed } else { rate }, "{sum} at {now}: {granted:?}");
            }
        }
        Ok(())
    };
    config(96).run(&inputs, law).expect("the law");
}

/// In GCRA, permits in use before the override stay in use.
#[test]
fn changed_burst_and_rate_bound_gcra() {
    let stores = Stores::start();
    let inputs = (1..12_u32, 1..12_u32, 1..24_u32, steps());
    let law = |(rate, burst, changed, steps): (u32, u32, u32, Vec<Step>)| {
        let quota = Quota::new(rate.into(), INTERVAL, Algorithm::Gcra { burst }).expect("a quota");
        for store in &stores.all {
            let [base, adjusted] = charges(quota, changed);
            let used = stores.take_each(store, vec![base; 3], START).iter().filter(|decision| decision.granted).count();
            let capacity = u64::from(adjusted.limiter.quota.capacity());
            prop_assert_eq!(capacity, u64::from(burst * changed / rate).max(1));
            let (mut now, mut sum) = (START, used as u64);
            for (advance, permits, _) in &steps {
                now += advance;
                let charge = Charge { permits: *permits, ..adjusted.clone() };
                if stores.take(store, &[charge], now).granted() {
                    sum += u64::from(*permits);
                    let returned = (now - START) * u64::from(changed) / INTERVAL;
                    prop_assert!(sum <= capacity.max(used as u64) + returned, "{sum} at {now}");
                }
            }
        }
        Ok(())
    };
    config(64).run(&inputs, law).expect("the law");
}
