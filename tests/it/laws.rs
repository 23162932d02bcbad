//! The laws of the algorithms, on the embedded store and on a real Redis, and that the two are one.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate::clock::{ManualClock, Timestamp};
use tidegate::limit::{Charge, Outcome, Wait};
use tidegate::store::{Memory, Store};

use crate::support::redis::{RedisServer, fresh_name};
use crate::support::{overall, per_client};

const START: u64 = 1_700_000_000_000;

/// Both stores, and a runtime to ask them on.
struct Stores {
    runtime: tokio::runtime::Runtime,
    all: Vec<Store>,
    _redis: Option<RedisServer>,
}

impl Stores {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let redis = RedisServer::start();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
        let mut all = vec![Store::Memory(Arc::new(Memory::new(clock, None)))];
        all.extend(redis.iter().map(RedisServer::store));
        Self { runtime, all, _redis: redis }
    }

    fn take(&self, store: &Store, charges: &[Charge], now: u64) -> Outcome {
        let now = Timestamp::from_millis(now);
        self.runtime.block_on(store.take_at(charges, now)).expect("a decision")
    }

    fn give_back(&self, store: &Store, charges: &[Charge], granted_at: u64, now: u64) {
        let (granted_at, now) = (Timestamp::from_millis(granted_at), Timestamp::from_millis(now));
        self.runtime.block_on(store.give_back_at(charges, granted_at, now)).expect("given back");
    }

    /// Runs a scenario on each store, with a bucket name of its own.
    fn each(&self, scenario: impl Fn(&str, &dyn Fn(&[Charge], u64) -> Outcome)) {
        for store in &self.all {
            scenario(&fresh_name(), &|charges, now| self.take(store, charges, now));
        }
    }
}

#[test]
fn three_per_ten_seconds_are_granted_again_ten_seconds_later() {
    Stores::start().each(|name, take| {
        let take = |after| take(&[overall(name, 3, 10_000, 1)], START + after).granted();
        assert_eq!([0, 1, 2, 3, 9_999, 10_000].map(take), [true, true, true, false, false, true]);
    });
}

#[test]
fn the_wait_for_many_permits_is_when_enough_have_returned() {
    Stores::start().each(|name, take| {
        let take = |permits, at| take(&[overall(name, 100, 1_000, permits)], START + at).decisions[0];
        assert!(take(5, 10_000).granted && take(30, 10_100).granted);
        assert_eq!(take(100, 10_200).wait, Wait::Millis(900));
        assert!(!take(100, 11_099).granted);
        assert!(take(100, 11_100).granted);
    });
}

#[test]
fn a_request_refused_by_one_limit_charges_none() {
    Stores::start().each(|name, take| {
        let (total, own) = (format!("{name}:total"), format!("{name}:own"));
        let ask = |client: &[u8], at| {
            take(&[overall(&total, 3, 10_000, 1), per_client(&own, client, 1, 10_000, 1)], START + at)
        };
        assert!(ask(b"a", 0).granted());
        let refused = ask(b"a", 1);
        assert_eq!(refused.decisions.iter().map(|one| one.granted).collect::<Vec<_>>(), [true, false]);
        assert_eq!(refused.decisions[0].remaining, 2, "a refused request took from the other limit");
        assert!(ask(b"b", 2).granted() && ask(b"c", 3).granted());
        let refused = ask(b"d", 4);
        assert!(!refused.decisions[0].granted);
        assert_eq!(refused.decisions[1].remaining, 1, "a refused request took from its client");
    });
}

#[test]
fn a_cost_above_the_rate_is_never_granted_and_a_cost_of_nothing_always() {
    Stores::start().each(|name, take| {
        let take = |permits| take(&[overall(name, 3, 1_000, permits)], START).decisions[0];
        assert_eq!(take(4).wait, Wait::Never);
        assert!(take(3).granted && take(0).granted);
        assert_eq!(take(0).remaining, 0);
    });
}

#[test]
fn a_clock_that_goes_back_an_hour_grants_nothing_extra_and_starves_nobody_for_more_than_an_interval() {
    Stores::start().each(|name, take| {
        let take = |at: u64| take(&[overall(name, 2, 1_000, 2)], at).decisions[0];
        assert!(take(START).granted);
        let back = START - 3_600_000;
        assert_eq!(take(back).wait, Wait::Millis(1_000));
        assert!(!take(back + 999).granted);
        assert!(take(back + 1_000).granted);
    });
}

/// One step of a random life: time passes (or jumps back), and a decision over some of the buckets is asked for.
#[derive(Clone, Debug)]
struct Step {
    passes: i64,
    permits: Vec<u32>,
    quota: usize,
    /// Give back the decision of so many steps ago, if it was granted.
    undo: Option<usize>,
}

fn step(rate: u64, interval: u64) -> impl Strategy<Value = Step> {
    let interval = interval.cast_signed();
    let passes = prop_oneof![
        4 => Just(0),
        6 => 0..=interval / 8 + 1,
        2 => 0..=2 * interval,
        1 => -2 * interval..=0,
    ];
    let most = u32::try_from(rate).expect("a small rate");
    let permits = prop::collection::vec(prop_oneof![4 => Just(1), 2 => 0..=most, 1 => 0..=most + 1], 1..=3);
    let undo = prop_oneof![4 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    (passes, permits, 0..8_usize, undo).prop_map(|(passes, permits, quota, undo)| Step { passes, permits, quota, undo })
}

fn life() -> impl Strategy<Value = (u64, u64, Vec<Step>)> {
    let rate = prop_oneof![1..=20_u64, Just(513), 1..=100_000_u64];
    // Virtual time, but Redis expires keys by the real one: intervals are long enough to outlast a test.
    let interval = prop_oneof![5_000..=6_000_u64, 10_000..=100_000_u64, Just(86_400_000)];
    (rate, interval).prop_flat_map(|(rate, interval)| {
        prop::collection::vec(step(rate, interval), 1..60).prop_map(move |steps| (rate, interval, steps))
    })
}

#[test]
fn the_script_and_the_embedded_store_decide_alike() {
    let stores = Stores::start();
    let [memory, redis] = &stores.all[..] else { return };
    let mut runner = config(96);
    let outcome = runner.run(&life(), |(rate, interval, steps)| {
        let name = fresh_name();
        let mut now = START;
        let mut granted = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            now = now.checked_add_signed(step.passes).expect("a moment");
            // Now and then another rule file is in force: another rate, another interval.
            let rate = if step.quota == 0 { rate.div_ceil(2) } else { rate };
            let longer = if step.quota == 1 { interval * 7 } else { interval };
            let charge = |(bucket, permits): (usize, &u32)| match bucket {
                0 => overall(&format!("{name}:all"), rate, longer, *permits),
                bucket => per_client(
                    &format!("{name}:own"),
                    &[u8::try_from(bucket).expect("small")],
                    rate,
                    interval,
                    *permits,
                ),
            };
            let charges: Vec<Charge> = step.permits.iter().enumerate().map(charge).collect();
            let (one, other) = (stores.take(memory, &charges, now), stores.take(redis, &charges, now));
            prop_assert_eq!(&one, &other, "step {}: rate {}, interval {}, {:?}", index, rate, interval, step);
            granted.extend(one.granted().then_some((charges, now)));
            let undone =
                step.undo.and_then(|back| granted.len().checked_sub(back + 1)).map(|last| granted.remove(last));
            if let Some((charges, granted_at)) = undone {
                stores.give_back(memory, &charges, granted_at, now);
                stores.give_back(redis, &charges, granted_at, now);
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Gateways with an old and a new rule, in random turns: each judges by its own rule over the grants of both.
#[test]
fn while_rules_change_no_window_holds_more_than_the_rule_that_granted_last_allows() {
    let stores = Stores::start();
    for store in &stores.all {
        let mut runner = config(48);
        let rules = (1..=30_u64, 5_000..=20_000_u64, 1..=30_u64, 5_000..=100_000_u64);
        let turns = prop::collection::vec((any::<bool>(), 0..=3_000_u64, 1..=3_u32), 1..80);
        let outcome = runner.run(&(rules, turns), |((old_rate, old_interval, new_rate, new_interval), turns)| {
            let name = fresh_name();
            let longer = old_interval.max(new_interval);
            let (mut now, mut longer_spoke) = (START, None);
            let mut granted: Vec<(u64, u64)> = Vec::new();
            for (new, passes, permits) in turns {
                now += passes;
                let (rate, interval) = if new { (new_rate, new_interval) } else { (old_rate, old_interval) };
                // The longer interval is retained from its first grant on, for twice its length after whatever it was
                // asked last, granted or refused.
                if longer_spoke.is_some_and(|at| now > at + 2 * longer) || (longer_spoke.is_none() && interval < longer)
                {
                    continue;
                }
                let used =
                    granted.iter().filter(|(at, _)| at + interval > now).map(|(_, permits)| permits).sum::<u64>();
                let decision = stores.take(store, &[overall(&name, rate, interval, permits)], now).decisions[0];
                let fits = used + u64::from(permits) <= rate;
                prop_assert_eq!(
                    decision.granted,
                    fits,
                    "{} of {} in {} ms are in use, {} asked",
                    used,
                    rate,
                    interval,
                    permits
                );
                if decision.granted {
                    granted.push((now, u64::from(permits)));
                }
                if interval == longer && (decision.granted || longer_spoke.is_some()) {
                    longer_spoke = Some(now);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn no_window_ever_holds_more_than_the_rate_and_every_wait_is_exact() {
    let stores = Stores::start();
    for store in &stores.all {
        let mut runner = config(48);
        let outcome = runner.run(&life(), |(rate, interval, steps)| {
            let name = fresh_name();
            let mut now = START;
            let mut granted: Vec<(u64, u64)> = Vec::new();
            let slot = if rate > 512 { interval.div_ceil(511) } else { 0 };
            for step in steps {
                now += step.passes.unsigned_abs();
                let permits = step.permits[0];
                let decision = stores.take(store, &[overall(&name, rate, interval, permits)], now).decisions[0];
                match decision.wait {
                    Wait::Now => granted.push((now, u64::from(permits))),
                    Wait::Never => prop_assert!(u64::from(permits) > rate),
                    Wait::Millis(wait) => {
                        let early = stores.take(store, &[overall(&name, rate, interval, permits)], now + wait - 1);
                        prop_assert!(!early.granted(), "granted before the {} ms that were announced", wait);
                        now += wait;
                        let due = stores.take(store, &[overall(&name, rate, interval, permits)], now);
                        prop_assert!(due.granted(), "refused after the {} ms that were announced", wait);
                        granted.push((now, u64::from(permits)));
                    }
                }
                let used = |window: u64| -> u64 {
                    granted.iter().filter(|(at, _)| at + window > now).map(|(_, permits)| permits).sum()
                };
                prop_assert!(used(interval) <= rate, "{} granted in one window of rate {}", used(interval), rate);
                // Nothing is withheld for longer than the slot that merged entries cost.
                let kept = rate - used(interval + slot).min(rate);
                let left = stores.take(store, &[overall(&name, rate, interval, 0)], now).decisions[0].remaining;
                prop_assert!(u64::from(left) >= kept, "{} left where {} have returned", left, kept);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A runner that keeps what it found beside this file.
fn config(cases: u32) -> proptest::test_runner::TestRunner {
    let persistence = proptest::test_runner::FileFailurePersistence::Direct("tests/it/laws.regressions");
    proptest::test_runner::TestRunner::new(ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::default()
    })
}
