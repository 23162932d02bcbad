//! The guarantees of the window algorithms in the embedded store and in a real Redis, and that both decide equally.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate::redisson::Mode;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota, Wait};
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Limiter};

use crate::laws::{START, Stores, kind};
use crate::support;
use crate::support::redis::fresh_name;

/// Times near the end of a second, of an hour with 30 minutes, of days with 23 and 25 hours, and of a leap February.
const STARTS: [u64; 5] =
    [START - 1, 1_759_591_799_000, 1_774_738_799_000, 1_792_886_400_000 - 7_200_001, 1_835_395_199_000];

fn charge(name: &str, quota: Quota, client: Option<u8>, permits: u32) -> Charge {
    let mode = if client.is_some() { Mode::PerClient } else { Mode::Overall };
    let client = client.map(|client| ClientId::Value(vec![client].into()));
    Charge::new(Arc::new(Limiter::new(name.to_owned(), mode, quota)), client, permits)
}

fn sliding(rate: u64, interval: u64, segments: u32) -> Quota {
    Quota::new(rate, interval, Algorithm::SlidingWindow { segments }).expect("a quota")
}

fn fixed(rate: u64, unit: Unit, zone: &str) -> Quota {
    let calendar = Calendar::new(unit, zone).expect("a calendar");
    Quota::new(rate, unit.millis(), Algorithm::FixedWindow(calendar)).expect("a quota")
}

/// A random step: time passes (or jumps back), then a request charges some of the buckets.
#[derive(Clone, Debug)]
struct Step {
    passes: i64,
    permits: Vec<u32>,
    /// The quota at this step, which changes like in an edited rule file.
    quota: usize,
    kind: ChargeKind,
    /// The number of steps since the request that is given back, if it was granted.
    undo: Option<usize>,
}

/// Random steps with several quotas; most steps use the first.
#[derive(Clone, Debug)]
struct Life {
    start: u64,
    quotas: Vec<Quota>,
    steps: Vec<Step>,
}

fn step(rate: u32, interval: u64) -> impl Strategy<Value = Step> {
    let interval = interval.cast_signed();
    let passes = prop_oneof![
        4 => Just(0),
        6 => 0..=interval / 8 + 1,
        2 => 0..=2 * interval,
        1 => Just(10 * interval),
        1 => -2 * interval..=0,
        1 => -interval / 50..=0,
    ];
    let permits = prop::collection::vec(prop_oneof![4 => Just(1), 2 => 0..=rate, 1 => 0..=rate + 1], 1..=3);
    let quota = prop_oneof![8 => Just(0_usize), 1 => 1..4_usize];
    let undo = prop_oneof![4 => Just(None), 1 => (0..4_usize).prop_map(Some)];
    (passes, permits, quota, kind(), undo).prop_map(|(passes, permits, quota, kind, undo)| Step {
        passes,
        permits,
        quota,
        kind,
        undo,
    })
}

fn life(quotas: impl Strategy<Value = Vec<Quota>>) -> impl Strategy<Value = Life> {
    (quotas, prop::sample::select(&STARTS)).prop_flat_map(|(quotas, start)| {
        prop::collection::vec(step(quotas[0].rate(), quotas[0].interval()), 1..60).prop_map(move |steps| Life {
            start,
            quotas: quotas.clone(),
            steps,
        })
    })
}

/// Generates a quota of sliding windows, the same at half the rate, and two that share only the rate with it.
fn sliding_quotas() -> impl Strategy<Value = Vec<Quota>> {
    let rate = prop_oneof![1..=20_u64, 1..=100_000_u64];
    // Time is virtual, but Redis expires keys by real time: the intervals are longer than a test.
    let interval = prop_oneof![5_000..=6_000_u64, 10_000..=100_000_u64, Just(86_400_000)];
    let segments = || prop_oneof![1..=3_u32, Just(10), 1..=60_u32, Just(512)];
    (rate, interval, segments(), segments()).prop_map(|(rate, interval, segments, others)| {
        let usual = sliding(rate, interval, segments);
        vec![
            usual,
            sliding(rate.div_ceil(2), interval, segments),
            sliding(rate, interval, others),
            sliding(rate, interval * 3 / 2, others),
        ]
    })
}

/// Generates a quota of fixed windows, the same at half the rate, and two with other units or zones.
fn fixed_quotas() -> impl Strategy<Value = Vec<Quota>> {
    let rate = prop_oneof![1..=20_u64, 1..=100_000_u64];
    // Longer than a second, since a test may take a second of real time.
    let unit = || prop::sample::select(&Unit::ALL[1..]);
    let zones =
        &["UTC", "Europe/Rome", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Kiritimati"];
    let zone = move || prop::sample::select(&zones[..]);
    (rate, unit(), zone(), unit(), zone()).prop_map(|(rate, unit, zone, other_unit, other_zone)| {
        let (usual, half) = (fixed(rate, unit, zone), fixed(rate.div_ceil(2), unit, zone));
        vec![usual, half, fixed(rate, other_unit, zone), fixed(rate, unit, other_zone)]
    })
}

/// Runs the steps on both stores and compares all decisions.
fn decide_alike(stores: &Stores, Life { start, quotas, steps }: &Life) -> Result<(), TestCaseError> {
    let [memory, redis] = &stores.all[..] else { return Ok(()) };
    let name = fresh_name();
    let mut now = *start;
    let mut granted = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        now = now.checked_add_signed(step.passes).expect("a moment");
        let quota = quotas[step.quota % quotas.len()];
        let charge = |(bucket, permits): (u8, &u32)| match bucket {
            0 => charge(&format!("{name}:all"), quota, None, *permits),
            bucket => charge(&format!("{name}:own"), quota, Some(bucket), *permits),
        };
        let kind = |charge: Charge| Charge { kind: step.kind, ..charge };
        let charges: Vec<Charge> = (0..).zip(&step.permits).map(charge).map(kind).collect();
        let (one, other) = (stores.take(memory, &charges, now), stores.take(redis, &charges, now));
        prop_assert_eq!(&one, &other, "step {}: {:?}, {:?}", index, quota, step);
        granted.extend(one.granted().then(|| one.granted_charges(&charges)));
        let undone = step.undo.and_then(|back| granted.len().checked_sub(back + 1)).map(|last| granted.remove(last));
        if let Some(granted) = undone {
            stores.give_back(memory, &granted, now);
            stores.give_back(redis, &granted, now);
        }
    }
    Ok(())
}

/// The grants of steps without clock jumps. Checks on the way that every wait is exact.
struct Ledger<'s> {
    stores: &'s Stores,
    store: &'s ReplayStore,
    name: String,
    quota: Quota,
    now: u64,
    granted: Vec<(u64, u64)>,
}

impl<'s> Ledger<'s> {
    fn new(stores: &'s Stores, store: &'s ReplayStore, quota: Quota, now: u64) -> Self {
        Self { stores, store, name: fresh_name(), quota, now, granted: Vec::new() }
    }

    fn ask(&self, permits: u32, at: u64) -> tidegate_rules::charge::Decision {
        self.stores.take(self.store, &[charge(&self.name, self.quota, None, permits)], at).decisions[0]
    }

    fn take(&mut self, permits: u32) -> Result<(), TestCaseError> {
        let decision = self.ask(permits, self.now);
        match decision.wait {
            Wait::Now => {}
            Wait::Never => {
                prop_assert!(permits > self.quota.rate());
                return Ok(());
            }
            Wait::Millis(wait) => {
                let early = self.ask(permits, self.now + wait - 1);
                prop_assert!(!early.granted, "granted before the returned wait of {} ms", wait);
                self.now += wait;
                prop_assert!(self.ask(permits, self.now).granted, "refused after the returned wait of {} ms", wait);
            }
        }
        self.granted.push((self.now, u64::from(permits)));
        Ok(())
    }

    /// Returns the permits that were granted after this time.
    fn after(&self, after: u64) -> u64 {
        self.granted.iter().filter(|(at, _)| *at > after).map(|(_, permits)| permits).sum()
    }
}

#[test]
fn sliding_windows_are_equal_on_both_stores() {
    let stores = Stores::start();
    let outcome = config(96).run(&life(sliding_quotas()), |life| decide_alike(&stores, &life));
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn sliding_window_keeps_its_rate_and_waits_are_exact() {
    let stores = Stores::start();
    for store in &stores.all {
        let outcome = config(48).run(&life(sliding_quotas()), |Life { start, quotas, steps }| {
            let mut ledger = Ledger::new(&stores, store, quotas[0], start);
            let (rate, interval) = (u64::from(quotas[0].rate()), quotas[0].interval());
            let Algorithm::SlidingWindow { segments } = quotas[0].algorithm() else { return Ok(()) };
            let segment = interval.div_ceil(u64::from(segments));
            for step in steps {
                ledger.now += step.passes.unsigned_abs();
                ledger.take(step.permits[0])?;
                let used = ledger.after(ledger.now - interval);
                prop_assert!(used <= rate, "{} granted in one interval at a rate of {}", used, rate);
                // A permit returns at most one segment late.
                let kept = rate - ledger.after(ledger.now - interval - segment).min(rate);
                let left = ledger.ask(0, ledger.now).remaining;
                prop_assert!(u64::from(left) >= kept, "{} left where {} have returned", left, kept);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn permits_return_one_interval_after_their_segment() {
    Stores::start().each(|name, take| {
        let take = |after| take(&[charge(name, sliding(3, 10_000, 10), None, 1)], START + after).decisions[0];
        let granted = [0, 999, 1_000, 2_000, 10_999, 11_000].map(|after| take(after).granted);
        assert_eq!(granted, [true, true, true, false, false, true]);
        assert!(take(11_001).granted);
        let refused = take(11_002);
        assert_eq!((refused.wait, refused.reset, refused.remaining), (Wait::Millis(998), 998, 0));
    });
}

#[test]
fn clock_set_back_frees_nothing_in_a_sliding_window() {
    Stores::start().each(|name, take| {
        let take = |at: u64| take(&[charge(name, sliding(2, 5_000, 10), None, 2)], at).decisions[0];
        assert!(take(START).granted);
        let back = START - 3_600_000;
        assert_eq!(take(back).wait, Wait::Millis(5_500));
        assert!(!take(back + 5_499).granted);
        assert!(take(back + 5_500).granted);
    });
}

#[test]
fn calendar_windows_are_equal_on_both_stores() {
    let stores = Stores::start();
    let outcome = config(96).run(&life(fixed_quotas()), |life| decide_alike(&stores, &life));
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Permits that were granted in minutes of the present hour pay no debt of this hour.
#[test]
fn debt_is_exact_after_a_change_of_the_unit() {
    // Half past an hour, one second before the end of a minute.
    const NOW: u64 = 1_759_591_799_000;
    const HOUR: u64 = 3_600_000;
    Stores::start().each(|name, take| {
        let (minutes, hours) = (fixed(12, Unit::Minute, "UTC"), fixed(12, Unit::Hour, "UTC"));
        assert!(take(&[charge(name, minutes, None, 11)], NOW).granted());
        let settled = Charge { kind: ChargeKind::Unconditional, ..charge(name, hours, None, 13) };
        assert_eq!(take(&[settled], NOW).decisions[0].reset, 1_801_000 + HOUR);
        let ask = |at: u64| take(&[charge(name, hours, None, 0)], at).decisions[0];
        assert_eq!((ask(NOW + HOUR).remaining, ask(NOW + HOUR).reset), (0, 1_801_000));
        assert_eq!(ask(NOW + 1_800_999 + HOUR).remaining, 0);
        assert_eq!(ask(NOW + 1_801_000 + HOUR).remaining, 12);
    });
}

#[test]
fn calendar_window_keeps_its_rate_and_waits_are_exact() {
    let stores = Stores::start();
    for store in &stores.all {
        let outcome = config(48).run(&life(fixed_quotas()), |Life { start, quotas, steps }| {
            let mut ledger = Ledger::new(&stores, store, quotas[0], start);
            let Algorithm::FixedWindow(calendar) = quotas[0].algorithm() else { return Ok(()) };
            let rate = u64::from(quotas[0].rate());
            for step in steps {
                ledger.now += step.passes.unsigned_abs();
                ledger.take(step.permits[0])?;
                let window = calendar.window(Timestamp::from_millis(ledger.now));
                let used = ledger.after(window.start.as_millis() - 1);
                prop_assert!(used <= rate, "{} granted in one window at a rate of {}", used, rate);
                let told = ledger.ask(0, ledger.now);
                prop_assert_eq!(u64::from(told.remaining), rate - used);
                let rest = window.end.as_millis() - ledger.now;
                prop_assert_eq!(told.reset, if used > 0 { rest } else { 0 });
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn day_in_rome_ends_at_midnight_after_23_hours() {
    // 2026-03-28T23:00:00Z, midnight before the clocks are set ahead.
    const SUNDAY: u64 = 1_774_738_800_000;
    const HOUR: u64 = 3_600_000;
    Stores::start().each(|name, take| {
        let take =
            |after| take(&[charge(name, fixed(3, Unit::Day, "Europe/Rome"), None, 1)], SUNDAY + after).decisions[0];
        assert_eq!([0, 1, 2, 3].map(|after| take(after).granted), [true, true, true, false]);
        assert_eq!(take(HOUR).wait, Wait::Millis(22 * HOUR));
        assert!(!take(23 * HOUR - 1).granted);
        assert_eq!(take(23 * HOUR).reset, 24 * HOUR);
    });
}

#[test]
fn clock_set_back_frees_nothing_in_a_calendar_window() {
    Stores::start().each(|name, take| {
        let take = |at: u64| take(&[charge(name, fixed(2, Unit::Minute, "UTC"), None, 2)], at).decisions[0];
        let start = START / 60_000 * 60_000;
        assert!(take(start).granted);
        let back = start - 3_600_000;
        assert_eq!(take(back + 10).wait, Wait::Millis(59_990));
        assert!(!take(back + 59_999).granted);
        assert!(take(back + 60_000).granted);
    });
}

/// Creates a runner that stores failing cases next to this file.
fn config(cases: u32) -> TestRunner {
    let persistence = FileFailurePersistence::Direct("tests/it/laws_windows.regressions");
    TestRunner::new(ProptestConfig {
        cases: support::case_count(cases),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::default()
    })
}
