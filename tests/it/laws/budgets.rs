//! Budgets: in any window, settled costs and open reservations are at most the rate, on both stores, which decide equally.

use proptest::prelude::*;
use tidegate::internals::ReplayStore;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Mode, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Decision, Limiter, OnLost, ReservationId};

use super::{START, Stores, config};
use crate::support::charge_of;
use crate::support::redis::fresh_name;

const MINUTE: u64 = 60_000;

/// A budget in one store.
struct Budget<'s> {
    stores: &'s Stores,
    store: &'s ReplayStore,
    charge: Charge,
}

impl<'s> Budget<'s> {
    fn new(stores: &'s Stores, store: &'s ReplayStore, name: &str, quota: Quota, on_lost: OnLost) -> Self {
        let charge = charge_of(name, None, quota, 0);
        let limiter = charge.limiter.clone_whole().with_budget(on_lost);
        Self { stores, store, charge: Charge { limiter: limiter.into(), ..charge } }
    }

    /// Returns the same bucket after a reload.
    fn reloaded(&self, rate: u64, on_lost: Option<OnLost>) -> Self {
        let quota = self.charge.limiter.quota;
        let quota = Quota::new(rate, quota.interval(), quota.algorithm()).expect("a quota");
        let limiter = Limiter::new(self.charge.limiter.name.clone(), Mode::Overall, quota).with_budget(on_lost);
        Self { charge: Charge { limiter: limiter.into(), ..self.charge.clone() }, ..*self }
    }

    fn take(&self, kind: ChargeKind, permits: u32, now: u64) -> Decision {
        self.stores.take(self.store, &[Charge { kind, permits, ..self.charge.clone() }], now).decisions[0]
    }

    fn reserve(&self, number: u64, permits: u32, now: u64) -> Decision {
        self.take(ChargeKind::Reserve(id(number)), permits, now)
    }

    fn settle(&self, number: u64, permits: u32, now: u64) -> Decision {
        self.take(ChargeKind::Settle(id(number)), permits, now)
    }

    fn remaining(&self, now: u64) -> u32 {
        self.take(ChargeKind::Check, 0, now).remaining
    }
}

/// Reservations of two gateways.
fn id(number: u64) -> ReservationId {
    ReservationId { gateway: number % 2, number }
}

fn quotas() -> impl Strategy<Value = Quota> {
    let algorithm = prop_oneof![
        Just(Algorithm::TokenBucket),
        (1..=150_u32).prop_map(|burst| Algorithm::Gcra { burst }),
        Just(Algorithm::SlidingWindow { segments: 6 }),
        Just(Algorithm::FixedWindow(Calendar::utc(Unit::Minute))),
    ];
    (1..=100_u64, algorithm).prop_map(|(rate, algorithm)| Quota::new(rate, MINUTE, algorithm).expect("a quota"))
}

/// The most that a quota allows from one time to another.
fn most(quota: &Quota, from: u64, to: u64) -> u64 {
    let rate = u64::from(quota.rate());
    let windows = |length: u64, start: u64| (to - start) / length - (from - start) / length + 1;
    match quota.algorithm() {
        Algorithm::TokenBucket => rate * ((to - from) / MINUTE + 1),
        Algorithm::Gcra { burst } => u64::from(burst) + rate * (to - from) / MINUTE,
        Algorithm::SlidingWindow { .. } => rate * ((to - from) / MINUTE + 1),
        _ => rate * windows(MINUTE, 0),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u32),
    /// Adds to the oldest open reservation.
    Extend(u32),
    /// Settles one of the open reservations with this share of it, in percent.
    Settle(usize, u32),
    /// Settles the last one again.
    Repeat,
}

/// Law: at each time, the costs that were settled since any earlier time and the reservations that are open are at most what
/// the quota allows between the two times.
#[test]
fn settled_costs_and_reservations_stay_within_the_budget() {
    let stores = Stores::start();
    let step = prop_oneof![
        4 => (1..=60_u32).prop_map(Step::Reserve),
        1 => (1..=30_u32).prop_map(Step::Extend),
        4 => (any::<usize>(), prop_oneof![0..=100_u32, Just(100), Just(0)]).prop_map(|(which, share)| Step::Settle(which, share)),
        1 => Just(Step::Repeat),
    ];
    // Less than a lease of 15 seconds, which this test does not renew.
    let cases = (quotas(), prop::collection::vec((0..=9_000_u64, step), 1..24));
    let outcome = config(96).run(&cases, |(quota, steps)| {
        let name = fresh_name();
        let budgets: Vec<_> =
            stores.all.iter().map(|store| Budget::new(&stores, store, &name, quota, OnLost::Charge)).collect();
        let (mut now, mut next) = (START, 0);
        let (mut open, mut settled, mut last) = (Vec::<(u64, u32)>::new(), Vec::<(u64, u64)>::new(), None);
        for (passes, step) in steps {
            // Keeps all leases.
            now += passes;
            for (number, _) in &open {
                budgets.iter().for_each(|budget| renew(budget, *number, now));
            }
            let all = |act: &dyn Fn(&Budget<'_>) -> Decision| -> Result<Decision, TestCaseError> {
                let decisions: Vec<_> = budgets.iter().map(act).collect();
                prop_assert!(decisions.iter().all(|other| *other == decisions[0]), "{:?}", decisions);
                Ok(decisions[0])
            };
            match step {
                Step::Reserve(permits) => {
                    next += 1;
                    if all(&|budget| budget.reserve(next, permits, now))?.granted {
                        open.push((next, permits));
                    }
                }
                Step::Extend(permits) if !open.is_empty() => {
                    let number = open[0].0;
                    if all(&|budget| budget.reserve(number, permits, now))?.granted {
                        open[0].1 += permits;
                    }
                }
                Step::Settle(which, share) if !open.is_empty() => {
                    let (number, permits) = open.remove(which % open.len());
                    let cost = permits * share / 100;
                    all(&|budget| budget.settle(number, cost, now))?;
                    settled.push((now, u64::from(cost)));
                    last = Some((number, cost));
                }
                Step::Repeat => {
                    if let Some((number, cost)) = last {
                        all(&|budget| budget.settle(number, cost, now))?;
                    }
                }
                Step::Extend(_) | Step::Settle(..) => {}
            }
            let reserved: u64 = open.iter().map(|(_, permits)| u64::from(*permits)).sum();
            for from in settled.iter().map(|(at, _)| *at).chain([now]) {
                let spent: u64 = settled.iter().filter(|(at, _)| *at >= from).map(|(_, cost)| cost).sum();
                prop_assert!(spent + reserved <= most(&quota, from, now), "{spent} + {reserved} from {from} to {now}");
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Renews the lease of a reservation, by adding nothing to it.
fn renew(budget: &Budget<'_>, number: u64, now: u64) {
    assert!(budget.reserve(number, 0, now).granted);
}

#[test]
fn reservation_counts_until_it_is_settled() {
    let stores = Stores::start();
    for store in &stores.all {
        let quota = Quota::new(100, MINUTE, Algorithm::FixedWindow(Calendar::utc(Unit::Minute))).expect("a quota");
        let budget = Budget::new(&stores, store, &fresh_name(), quota, OnLost::Charge);
        // The next minute starts after 40 s.
        let [before, after] = [START + 39_000, START + 41_000];
        assert_eq!(budget.reserve(1, 60, before).remaining, 40);
        assert!(!budget.reserve(2, 41, before).granted);
        assert_eq!(budget.reserve(2, 41, after).wait, Wait::Millis(1_000), "it is unknown when a reservation ends");
        assert_eq!(budget.reserve(2, 40, after).remaining, 0, "an open reservation counts in both windows");
        budget.settle(1, 10, after);
        assert_eq!(budget.remaining(after), 50, "its cost counts in the window in which it is settled");
        budget.settle(1, 10, after);
        assert_eq!(budget.remaining(after), 50, "it is settled once");
        budget.settle(2, 45, after);
        assert_eq!(budget.remaining(after), 45, "a cost above the reservation is charged");
    }
}

#[test]
fn cost_above_the_budget_is_debt() {
    let stores = Stores::start();
    for store in &stores.all {
        let quota = Quota::new(10, MINUTE, Algorithm::TokenBucket).expect("a quota");
        let budget = Budget::new(&stores, store, &fresh_name(), quota, OnLost::Charge);
        assert!(budget.reserve(1, 10, START).granted);
        budget.settle(1, 25, START + 1_000);
        assert!(!budget.reserve(2, 1, START + 1_000 + 2 * MINUTE - 1).granted);
        assert!(budget.reserve(2, 1, START + 1_000 + 2 * MINUTE).granted);
    }
}

/// The requests of earlier rules settle by those rules, at a gateway that has not reloaded yet or after its reload.
#[test]
fn reservations_of_earlier_rules_are_settled_exactly() {
    let stores = Stores::start();
    let calendar = Algorithm::FixedWindow(Calendar::utc(Unit::Minute));
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow { segments: 6 }, calendar] {
        for store in &stores.all {
            let quota = Quota::new(100, MINUTE, algorithm).expect("a quota");
            let old = Budget::new(&stores, store, &fresh_name(), quota, OnLost::Charge);
            let (fixed, larger) = (old.reloaded(100, None), old.reloaded(200, Some(OnLost::Refund)));
            assert!(old.reserve(1, 60, START).granted);
            // The law does not hold while both kinds decide: a fixed cost is known at once.
            assert!(fixed.take(ChargeKind::Take, 30, START + 1).granted);
            for _ in 0..2 {
                old.settle(1, 20, START + 2);
                assert_eq!(
                    [&old, &fixed, &larger].map(|budget| budget.remaining(START + 2)),
                    [50, 50, 150],
                    "{algorithm:?}"
                );
            }
            // Budgets with other rates count the reservations of each other.
            assert!(larger.reserve(2, 120, START + 3).granted);
            assert_eq!([&old, &larger].map(|budget| budget.remaining(START + 3)), [0, 30]);
            assert!(!old.reserve(3, 1, START + 3).granted);
            old.settle(2, 40, START + 4);
            assert_eq!([&old, &fixed, &larger].map(|budget| budget.remaining(START + 4)), [10, 10, 110]);
            larger.settle(2, 40, START + 4);
            assert_eq!(larger.remaining(START + 4), 110);
        }
    }
}

/// A gateway that does not renew its lease has died.
#[test]
fn reservations_of_a_lost_gateway_are_charged() {
    let stores = Stores::start();
    let Some(redis) = stores.all.get(1) else { return };
    for (on_lost, remaining, corrected) in [(OnLost::Charge, 30, 75), (OnLost::Refund, 90, 75)] {
        let quota = Quota::new(100, MINUTE, Algorithm::TokenBucket).expect("a quota");
        let budget = Budget::new(&stores, redis, &fresh_name(), quota, on_lost);
        assert!(budget.reserve(1, 60, START).granted && budget.reserve(2, 10, START + 10_000).granted);
        assert_eq!(budget.remaining(START + 14_999), 30);
        assert_eq!(budget.remaining(START + 15_000), remaining);
        budget.settle(1, 15, START + 16_000);
        assert_eq!(budget.remaining(START + 16_000), corrected, "{on_lost:?}: a late settlement corrects the charge");
        budget.settle(1, 15, START + 16_000);
        assert_eq!(budget.remaining(START + 16_000), corrected);
    }
}
