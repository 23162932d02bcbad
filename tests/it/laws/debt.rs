//! Outcomes are charged in any case (`ChargeKind::Unconditional`): over any time, at most the permits that the algorithm
//! grants in that time, and once the permits of the requests in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use deadpool_redis::redis::Commands;
use proptest::prelude::*;
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_limit::algorithm::gcra::warm_up::WarmUp;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind};

use super::{START, Stores, config};
use crate::support::charge_of;
use crate::support::redis::{RedisServer, fresh_name};

pub const INTERVAL: u64 = 60_000;

pub fn quotas() -> impl Strategy<Value = Quota> {
    let zone = prop::sample::select(&["UTC", "Europe/Rome"][..]);
    let unit = prop::sample::select(&[Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month][..]);
    let calendar = (unit, zone).prop_map(|(unit, zone)| Calendar::new(unit, zone).expect("a calendar"));
    let algorithm = prop_oneof![
        2 => Just(Algorithm::TokenBucket),
        1 => (1..=10_u32).prop_map(|burst| Algorithm::Gcra { burst }),
        1 => (1..=10_u32).prop_map(|burst| Algorithm::GcraWarmUp(WarmUp { burst, millis: 5_000 })),
        2 => (1..=20_u32).prop_map(|segments| Algorithm::SlidingWindow { segments }),
        2 => calendar.prop_map(Algorithm::FixedWindow),
    ];
    (prop_oneof![9 => 1..=10_u64, 1 => 513..=600_u64], algorithm)
        .prop_map(|(rate, algorithm)| Quota::new(rate, INTERVAL, algorithm).expect("a quota"))
}

/// Returns the most permits that the algorithm grants from `from` to `to`.
pub fn most_granted(quota: &Quota, from: u64, to: u64) -> u64 {
    let (rate, interval, time) = (u64::from(quota.rate()), quota.interval(), to - from);
    match quota.algorithm() {
        Algorithm::Gcra { .. } | Algorithm::GcraWarmUp(_) => u64::from(quota.capacity()) + rate * time / interval,
        Algorithm::FixedWindow(calendar) => {
            let (mut windows, mut end) = (1, calendar.window(Timestamp::from_millis(from)).end);
            while end.as_millis() <= to {
                (windows, end) = (windows + 1, calendar.window(end).end);
            }
            rate * windows
        }
        _ => rate * (time / interval + 1),
    }
}

struct Bucket<'s> {
    stores: &'s Stores,
    store: &'s ReplayStore,
    name: String,
    quota: Quota,
}

impl Bucket<'_> {
    fn ask(&self, kind: ChargeKind, permits: u32, now: u64) -> tidegate_rules::charge::Decision {
        let charge = Charge { kind, ..charge_of(&self.name, None, self.quota, permits) };
        self.stores.take(self.store, &[charge], now).decisions[0]
    }
}

/// Clients that repeat a request as soon as it was answered, and after its exact wait if it was rejected. Each request
/// is checked, and charged when it ends.
#[test]
fn outcomes_exceed_the_rate_once_by_the_requests_in_flight() {
    let stores = Stores::start();
    for store in &stores.all {
        let cases = (quotas(), 1..=40_u64, 1..=3_u32, prop::collection::vec(0..=1_000_u64, 20..120));
        let outcome = config(32).run(&cases, |(quota, clients, cost, durations)| {
            let cost = cost.min(quota.capacity());
            let bucket = Bucket { stores: &stores, store, name: fresh_name(), quota };
            let mut events: BinaryHeap<_> = (0..clients).map(|client| Reverse((START, client, false))).collect();
            let (mut outcomes, mut durations) = (Vec::new(), durations.into_iter());
            for _ in 0..400 {
                let Some(Reverse((now, client, ends))) = events.pop() else { break };
                if ends {
                    prop_assert!(bucket.ask(ChargeKind::Unconditional, cost, now).granted);
                    outcomes.push(now);
                    events.push(Reverse((now, client, false)));
                    continue;
                }
                match bucket.ask(ChargeKind::Check, cost, now).wait {
                    Wait::Now => {
                        let Some(duration) = durations.next() else { break };
                        events.push(Reverse((now + duration * quota.interval() / 2_000, client, true)));
                    }
                    Wait::Millis(wait) => events.push(Reverse((now + wait, client, false))),
                    Wait::Never => prop_assert!(false, "never"),
                }
            }
            for (first, from) in outcomes.iter().enumerate() {
                for (last, to) in outcomes.iter().enumerate().skip(first) {
                    let charged = u64::from(cost) * (last - first + 1) as u64;
                    let most = most_granted(&quota, *from, *to) + clients * u64::from(cost);
                    prop_assert!(charged <= most, "{} of {} from {} to {}", charged, most, from, to);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn waits_for_debt_are_exact() {
    let stores = Stores::start();
    for store in &stores.all {
        let step = (0..=2_000_u64, 1..=60_u32, 1..=10_u32);
        let cases = (quotas(), prop::collection::vec(step, 1..8));
        let outcome = config(64).run(&cases, |(quota, steps)| {
            let bucket = Bucket { stores: &stores, store, name: fresh_name(), quota };
            let mut now = START;
            for (passes, settled, asked) in steps {
                now += passes * quota.interval() / 1_000;
                let after = bucket.ask(ChargeKind::Unconditional, settled, now);
                let asked = asked.min(quota.capacity());
                let decision = bucket.ask(ChargeKind::Check, asked, now);
                prop_assert_eq!(after.remaining, decision.remaining);
                prop_assert_eq!(after.reset, decision.reset);
                let Wait::Millis(wait) = decision.wait else { continue };
                prop_assert!(!bucket.ask(ChargeKind::Check, asked, now + wait - 1).granted, "{} ms", wait);
                now += wait;
                prop_assert!(bucket.ask(ChargeKind::Check, asked, now).granted, "{} ms", wait);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn bucket_with_debt_lives_until_it_is_paid() {
    let Some(server) = RedisServer::start() else { return };
    let stores = Stores::start();
    let (store, mut redis) = (server.replay_store(), server.connection());
    for (algorithm, periods) in [
        (Algorithm::TokenBucket, 100),
        (Algorithm::SlidingWindow { segments: 10 }, 100),
        (Algorithm::FixedWindow(Calendar::utc(Unit::Minute)), 99),
        (Algorithm::Gcra { burst: 2 }, 100),
    ] {
        let quota = Quota::new(2, INTERVAL, algorithm).expect("a quota");
        let name = fresh_name();
        let charge = Charge { kind: ChargeKind::Unconditional, ..charge_of(&name, None, quota, 200) };
        assert_eq!(stores.take(&store, std::slice::from_ref(&charge), START).decisions[0].remaining, 0);
        let keys: Vec<String> = redis.keys(format!("{name}*")).expect("keys");
        let lives: u64 = redis.pttl(&keys[0]).expect("a time to live");
        assert!((periods * INTERVAL - 5_000..150 * INTERVAL).contains(&lives), "{algorithm:?}: {lives} ms");
    }
}

#[test]
fn largest_debt_is_bounded_in_every_algorithm() {
    let stores = Stores::start();
    let most = u32::MAX;
    stores.each(|name, take| {
        let calendar = Calendar::utc(Unit::Minute);
        let (segments, burst) = (Algorithm::SlidingWindow { segments: 10 }, Algorithm::Gcra { burst: 1 });
        for (number, algorithm) in
            [Algorithm::TokenBucket, segments, burst, Algorithm::FixedWindow(calendar)].into_iter().enumerate()
        {
            let quota = Quota::new(1, INTERVAL, algorithm).expect("a quota");
            let charge =
                |kind, permits| [Charge { kind, ..charge_of(&format!("{name}:{number}"), None, quota, permits) }];
            for _ in 0..5 {
                assert!(take(&charge(ChargeKind::Unconditional, most), START).granted());
            }
            let Wait::Millis(wait) = take(&charge(ChargeKind::Check, 1), START).decisions[0].wait else {
                panic!("{algorithm:?} grants")
            };
            let owed = u64::from(most) + 1;
            let expected = (owed * INTERVAL)..=(owed + 2) * INTERVAL;
            let longest = 1_000 * 366 * 86_400_000;
            assert!(
                expected.contains(&wait) || (longest - INTERVAL..=longest).contains(&wait),
                "{algorithm:?}: {wait} ms"
            );
        }
    });
}
