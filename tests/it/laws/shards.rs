//! Limits in shards: together the shards never grant more than the limit.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate::redisson::Mode;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, Limiter};

use super::{START, Stores, config};
use crate::support::per_client;
use crate::support::redis::fresh_name;

fn in_shards(name: &str, quota: Quota, shards: u32, permits: u32) -> Charge {
    let limiter = Limiter::new(name.to_owned(), Mode::Overall, quota).sharded(shards);
    Charge::new(Arc::new(limiter), None, permits)
}

fn of_rate(rate: u64, interval: u64) -> Quota {
    Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota")
}

/// Returns the maximal number of permits granted within one interval.
fn fullest_window(granted: &[(u64, u64)], interval: u64) -> u64 {
    let ends = granted.iter().map(|(end, _)| *end);
    let within = |end: u64| granted.iter().filter(move |(at, _)| *at <= end && at + interval > end);
    ends.map(|end| within(end).map(|(_, permits)| permits).sum()).max().unwrap_or(0)
}

#[test]
fn exactly_the_permits_of_all_shards_are_granted() {
    Stores::start().each(|name, take| {
        let all = in_shards(name, of_rate(10, 60_000), 4, 1);
        let granted = (0..20).filter(|_| take(std::slice::from_ref(&all), START).granted()).count();
        assert_eq!(granted, 10);
    });
}

#[test]
fn wait_is_the_shortest_wait_of_all_shards() {
    Stores::start().each(|name, take| {
        let all = in_shards(name, of_rate(4, 60_000), 4, 1);
        for at in [3, 1, 2, 0] {
            assert!(take(std::slice::from_ref(&all), START + 10 - at).granted());
        }
        let refused = take(std::slice::from_ref(&all), START + 10);
        let tidegate_limit::Wait::Millis(wait) = refused.decisions[0].wait else { panic!("{refused:?}") };
        assert!(!take(std::slice::from_ref(&all), START + 10 + wait - 1).granted());
        assert!(take(std::slice::from_ref(&all), START + 10 + wait).granted());
        assert_eq!(wait, 60_000 - 3);
    });
}

#[test]
fn permits_are_given_back_to_their_shard() {
    let stores = Stores::start();
    for store in &stores.all {
        let name = fresh_name();
        let (all, own) = (in_shards(&name, of_rate(6, 60_000), 3, 1), per_client(&name, b"a", 100, 60_000, 1));
        let charges = [own, all];
        for _ in 0..50 {
            let taken = stores.take(store, &charges, START);
            assert!(taken.granted());
            stores.give_back(store, &taken.granted_charges(&charges), START);
        }
        let granted = (0..9).filter(|_| stores.take(store, &charges, START).granted()).count();
        assert_eq!(granted, 6);
    }
}

#[test]
fn shadow_in_shards_tries_all_shards() {
    Stores::start().each(|name, take| {
        let all = Charge { shadow: true, ..in_shards(name, of_rate(6, 60_000), 3, 1) };
        let told = (0..9).map(|_| take(std::slice::from_ref(&all), START));
        let told: Vec<_> = told.map(|outcome| (outcome.granted(), outcome.decisions[0].granted)).collect();
        assert_eq!(told, [[(true, true); 6].as_slice(), &[(true, false); 3]].concat());
    });
}

#[test]
fn client_in_a_partition_has_one_bucket() {
    Stores::start().each(|name, take| {
        for client in 0..20_u8 {
            let own = per_client(name, &[client], 3, 60_000, 1);
            let quota = own.limiter.quota;
            let limiter = Limiter::new(name.to_owned(), Mode::PerClient, quota).partitioned(8);
            let own = Charge { limiter: Arc::new(limiter), ..own };
            assert_eq!([(); 4].map(|()| take(std::slice::from_ref(&own), START).granted()), [true, true, true, false]);
        }
    });
}

#[test]
fn shards_together_never_exceed_the_rate() {
    let stores = Stores::start();
    let life = (1..=40_u32, 1..=9_u32, 5_000..=6_000_u64).prop_flat_map(|(rate, shards, interval)| {
        let most = (rate / shards).max(1);
        let steps = prop::collection::vec((0..=interval / 4, 1..=most), 1..120);
        (Just((rate, shards, interval)), steps)
    });
    for store in &stores.all {
        let outcome = config(32).run(&life, |((rate, shards, interval), steps)| {
            let (name, mut now, mut granted) = (fresh_name(), START, Vec::new());
            for (passes, permits) in steps {
                now += passes;
                let all = in_shards(&name, of_rate(rate.into(), interval), shards, permits);
                if stores.take(store, &[all], now).granted() {
                    granted.push((now, u64::from(permits)));
                }
            }
            prop_assert!(fullest_window(&granted, interval) <= u64::from(rate));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}
