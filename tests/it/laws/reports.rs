//! Reports to post-paid limits are charged in any case, exactly once: the next check passes when the algorithm could have
//! granted all of them.

use std::cmp::Reverse;

use futures_util::future::join_all;
use proptest::prelude::*;
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, Decision};

use super::debt::{INTERVAL, most_granted, quotas};
use super::{START, Stores, config};
use crate::support::charge_of;
use crate::support::redis::fresh_name;

/// Reports and checks of one limit in one store.
struct PostPaid<'s> {
    stores: &'s Stores,
    store: &'s ReplayStore,
    name: String,
    quota: Quota,
}

impl PostPaid<'_> {
    fn check(&self, now: u64) -> Decision {
        let charge = Charge { kind: ChargeKind::NoDebt, ..charge_of(&self.name, None, self.quota, 0) };
        self.stores.take(self.store, &[charge], now).decisions[0]
    }

    /// Makes equal reports at the same time. Returns their decisions, the granted ones first: Redis may change their order.
    fn report(&self, permits: u32, times: usize, now: u64) -> Vec<Decision> {
        let report = charge_of(&self.name, None, self.quota, permits).of_report();
        let take = || self.store.take_at(&report, Timestamp::from_millis(now));
        let outcomes = self.stores.runtime.block_on(join_all((0..times).map(|_| take())));
        let decisions = outcomes.into_iter().map(|outcome| outcome.expect("a decision").decisions);
        let mut decisions: Vec<_> = decisions.map(|pair| Decision::of_report(&pair[0], &pair[1])).collect();
        decisions.sort_by_key(|decision| (!decision.granted, Reverse(decision.remaining), decision.reset));
        decisions
    }
}

#[test]
fn checks_wait_until_all_reports_are_worked_off() {
    let stores = Stores::start();
    let report = prop_oneof![3 => 1..=10_u32, 1 => 1..=60_u32, 1 => 500..=2_000_u32];
    let step = (0..=2_000_u64, prop_oneof![2 => Just(None), 3 => (report, 1..=4_usize).prop_map(Some)]);
    let cases = (quotas(), prop::collection::vec(step, 1..16));
    let outcome = config(96).run(&cases, |(quota, steps)| {
        let limit = |store| PostPaid { stores: &stores, store, name: fresh_name(), quota };
        let limits: Vec<_> = stores.all.iter().map(limit).collect();
        let (mut now, mut reported) = (START, Vec::new());
        for (passes, report) in steps {
            now += passes * quota.interval() / 1_000;
            if let Some((permits, times)) = report {
                let decisions: Vec<_> = limits.iter().map(|limit| limit.report(permits, times, now)).collect();
                prop_assert!(decisions.iter().all(|other| *other == decisions[0]), "{:?}", decisions);
                reported.push((now, u64::from(permits) * times as u64));
            }
            let checks: Vec<_> = limits.iter().map(|limit| limit.check(now)).collect();
            prop_assert!(checks.iter().all(|other| *other == checks[0]), "{:?}", checks);
            let passes_at = match checks[0].wait {
                Wait::Now => now,
                Wait::Millis(wait) => now + wait,
                Wait::Never => return Err(TestCaseError::fail("never")),
            };
            for (first, (from, _)) in reported.iter().enumerate() {
                let charged = reported[first..].iter().map(|(_, permits)| permits).sum::<u64>();
                let most = most_granted(&quota, *from, passes_at);
                prop_assert!(charged <= most, "{} of {} from {} to {}", charged, most, from, passes_at);
            }
            for limit in limits.iter().filter(|_| passes_at > now) {
                prop_assert!(!limit.check(passes_at - 1).granted && limit.check(passes_at).granted);
            }
            now = now.max(passes_at);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// A report of ten with a rate of three leaves a debt of seven, which three intervals pay.
#[test]
fn report_takes_back_an_interval_for_each_rate() {
    let stores = Stores::start();
    for (algorithm, waits) in [
        (Algorithm::TokenBucket, 3 * INTERVAL),
        // The window is 60 s and the rest of the segment of 10 s.
        (Algorithm::SlidingWindow { segments: 6 }, 3 * (INTERVAL + 10_000)),
        // The first minute ends after 40 s.
        (Algorithm::FixedWindow(Calendar::utc(Unit::Minute)), 40_000 + 2 * INTERVAL),
        (Algorithm::Gcra { burst: 3 }, 7 * INTERVAL / 3),
    ] {
        let quota = Quota::new(3, INTERVAL, algorithm).expect("a quota");
        for store in &stores.all {
            let limit = PostPaid { stores: &stores, store, name: fresh_name(), quota };
            assert!(limit.check(START).granted);
            let [report] = limit.report(10, 1, START)[..] else { panic!("no decision") };
            assert_eq!((report.granted, report.remaining), (false, 0), "{algorithm:?}");
            assert_eq!(limit.check(START).wait, Wait::Millis(waits), "{algorithm:?}");
        }
    }
}

#[test]
fn check_passes_at_exactly_the_limit() {
    let stores = Stores::start();
    for store in &stores.all {
        let quota = Quota::new(3, INTERVAL, Algorithm::TokenBucket).expect("a quota");
        let limit = PostPaid { stores: &stores, store, name: fresh_name(), quota };
        let granted: Vec<_> = limit.report(1, 4, START).iter().map(|decision| decision.granted).collect();
        assert_eq!(granted, [true, true, true, false]);
        assert!(!limit.check(START + INTERVAL - 1).granted && limit.check(START + INTERVAL).granted);
    }
}
