//! Examples of prices, of cooling and of undone requests. tests/it/laws checks the guarantee on both stores.

use super::*;
use crate::Wait;
use crate::testing::define_take;

define_take!();

/// Ten permits a second, of which one can be taken at once, and a warm-up of ten seconds.
fn quota() -> Quota {
    Quota::new(10, 1_000, Algorithm::GcraWarmUp(WarmUp { burst: 1, millis: 10_000 })).expect("a quota")
}

fn at(now: u64) -> Timestamp {
    Timestamp::from_millis(now)
}

/// Takes permits as soon as they are free, and returns the times of the grants.
fn take_all(state: &mut State, quota: &Quota, from: u64, until: u64) -> Vec<u64> {
    let (mut now, mut granted) = (from, Vec::new());
    while now < until {
        match take(state, quota, 1, now) {
            BucketDecision { granted: true, .. } => granted.push(now),
            BucketDecision { wait: Wait::Millis(wait), .. } => now += wait,
            refused => panic!("{refused:?}"),
        }
    }
    granted
}

fn gaps(granted: &[u64]) -> Vec<u64> {
    granted.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn rate_rises_from_a_third_to_the_full_rate() {
    let (mut state, quota) = (State::default(), quota());
    let granted = take_all(&mut state, &quota, 0, 20_000);
    let gaps = gaps(&granted);
    assert_eq!(gaps[0], 294);
    assert!(gaps.iter().rev().is_sorted(), "the rate falls: {gaps:?}");
    let [cold, warm] = [0..10_000, 10_000..20_000].map(|time| granted.iter().filter(|at| time.contains(*at)).count());
    // 100 permits in ten seconds at the full rate, and half as many while it warms up.
    assert!((50..=52).contains(&cold) && (99..=100).contains(&warm), "{cold} and {warm}");
}

#[test]
fn idle_bucket_is_cold_after_one_warm_up() {
    let (quota, mut state) = (quota(), State::default());
    take_all(&mut state, &quota, 0, 20_000);
    let full_at = state.full_at(&quota).as_millis();
    assert!((29_900..=30_200).contains(&full_at), "{full_at}");
    for (idle, first_gap) in [(4_000, 100..=100), (7_500, 180..=210), (20_000, 294..=294)] {
        let mut state = state.clone();
        let gap = gaps(&take_all(&mut state, &quota, 20_000 + idle, 21_000 + idle))[0];
        assert!(first_gap.contains(&gap), "{gap} after {idle}");
    }
}

#[test]
fn slow_traffic_stays_cold_and_fast_traffic_warms_up() {
    let quota = Quota::new(10, 1_000, Algorithm::GcraWarmUp(WarmUp { burst: 5, millis: 10_000 })).expect("a quota");
    for (every, is_warm) in [(400, false), (110, true)] {
        let mut state = State::default();
        for number in 0..1_000 {
            take(&mut state, &quota, 1, number * every);
        }
        let heat = state.heat_at(&quota, at(1_000 * every));
        assert_eq!(
            (heat > Prices::new(&quota).max_heat / 2, heat < 2_000),
            (is_warm, !is_warm),
            "{heat} every {every} ms"
        );
    }
}

#[test]
fn request_for_the_whole_burst_is_granted_and_paid_afterwards() {
    let quota = Quota::new(10, 1_000, Algorithm::GcraWarmUp(WarmUp { burst: 10, millis: 10_000 })).expect("a quota");
    let mut state = State::default();
    assert_eq!(take(&mut state, &quota, 11, 0).wait, Wait::Never);
    assert!(take(&mut state, &quota, 10, 0).granted);
    let Wait::Millis(wait) = take(&mut state, &quota, 10, 0).wait else { panic!("no wait") };
    assert!((2_500..3_000).contains(&wait), "{wait}");
    assert!(!take(&mut state, &quota, 10, wait - 1).granted && take(&mut state, &quota, 10, wait).granted);
}

#[test]
fn request_undone_immediately_leaves_no_trace() {
    let quota = Quota::new(7, 1_000, Algorithm::GcraWarmUp(WarmUp { burst: 40, millis: 10_000 })).expect("a quota");
    let mut state = State::default();
    for now in [0, 0, 100, 900, 5_000, 5_001, 5_002] {
        take(&mut state, &quota, 1, now);
        let mut undone = state.clone();
        undone.advance(&quota, at(now));
        let before = undone.clone();
        assert!(take(&mut undone, &quota, 2, now).granted);
        undone.give_back(&quota, 2, at(now), at(now));
        assert_eq!(undone, before);
    }
}

#[test]
fn expired_permits_are_not_given_back() {
    let quota =
        Quota::new(1_000, 1_000, Algorithm::GcraWarmUp(WarmUp { burst: 1_000, millis: 1_000 })).expect("a quota");
    let mut state = State::default();
    for (permits, now) in [(100, 0), (400, 280), (30, 1_130)] {
        assert!(take(&mut state, &quota, permits, now).granted);
    }
    let before = state.clone();
    state.give_back(&quota, 400, at(280), at(1_130));
    assert_eq!(state, before);
}

#[test]
fn largest_numbers_stay_exact() {
    use crate::{MAX_INTERVAL, MAX_RATE};
    let warm_up = WarmUp { burst: MAX_RATE, millis: MAX_WARM_UP };
    let quota = Quota::new(MAX_RATE.into(), MAX_INTERVAL, Algorithm::GcraWarmUp(warm_up)).expect("a quota");
    let prices = Prices::new(&quota);
    assert!(prices.max_heat < 1 << 53 && prices.unit * 16 * 31 < 1 << 53 && prices.unit * 256 < 1 << 53);
    assert_eq!(prices.extra(0, prices.max_heat), prices.max_heat / 2);
    assert!(take(&mut State::default(), &quota, MAX_RATE, 0).granted);
}
