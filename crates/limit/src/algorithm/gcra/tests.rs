//! Examples, and a property test: an undone request never leaves more free permits than if it had not been made.

use proptest::prelude::*;

use super::*;
use crate::{Algorithm, MAX_INTERVAL, MAX_RATE};

fn quota(rate: u64, interval: u64, burst: u32) -> Quota {
    Quota::new(rate, interval, Algorithm::Gcra { burst }).expect("a quota")
}

fn at(now: u64) -> Timestamp {
    Timestamp::from_millis(now)
}

fn take(state: &mut State, quota: &Quota, permits: u32, now: u64) -> BucketDecision {
    let decision = state.check(quota, permits, at(now));
    if decision.granted {
        return state.charge(quota, permits, at(now));
    }
    state.on_refusal(quota, at(now));
    decision
}

#[test]
fn burst_is_granted_immediately_then_one_by_one() {
    let (mut state, quota) = (State::default(), quota(10, 1_000, 3));
    let granted = [0, 0, 0, 0, 99, 100, 199, 200, 299].map(|now| take(&mut state, &quota, 1, now).granted);
    assert_eq!(granted, [true, true, true, false, false, true, false, true, false]);
}

#[test]
fn fractions_of_a_millisecond_add_up() {
    let (mut state, quota) = (State::default(), quota(3, 10, 1));
    let granted = (0..1_000).filter(|now| take(&mut state, &quota, 1, *now).granted);
    // One grant in 4 ms, since requests arrive at whole milliseconds and a permit returns in 3 1/3 ms. With a burst of
    // two, no permit is lost in the long run.
    assert_eq!(granted.count(), 250);
    let (mut state, quota) = (State::default(), Quota::new(3, 10, Algorithm::Gcra { burst: 2 }).expect("a quota"));
    let granted = (0..1_000).filter(|now| take(&mut state, &quota, 1, *now).granted);
    assert_eq!(granted.count(), 301);
}

#[test]
fn wait_and_reset_are_exact_to_the_millisecond() {
    let (mut state, quota) = (State::default(), quota(3, 10_000, 5));
    let granted = take(&mut state, &quota, 4, 0);
    assert_eq!((granted.remaining, granted.reset), (1, 3_334));
    let refused = take(&mut state, &quota, 5, 1_000);
    assert_eq!((refused.remaining, refused.wait, refused.reset), (1, Wait::Millis(12_334), 2_334));
    assert_eq!(take(&mut state, &quota, 0, 13_334).reset, 0);
}

#[test]
fn more_than_the_burst_is_never_granted() {
    assert_eq!(take(&mut State::default(), &quota(5, 1_000, 2), 3, 0).wait, Wait::Never);
    assert!(take(&mut State::default(), &quota(2, 1_000, 5), 5, 0).granted);
}

#[test]
fn permits_in_use_return_by_the_new_rate() {
    let mut state = State::default();
    take(&mut state, &quota(10, 1_000, 10), 10, 0);
    assert_eq!(take(&mut state, &quota(100, 1_000, 10), 1, 0).wait, Wait::Millis(10));
    assert_eq!(take(&mut state, &quota(10, 500, 10), 1, 0).wait, Wait::Millis(50));
    assert_eq!(take(&mut state, &quota(10, 1_000, 12), 2, 0).remaining, 0);
}

#[test]
fn lowered_burst_applies_immediately() {
    let mut state = State::default();
    take(&mut state, &quota(10, 1_000, 10), 8, 0);
    let refused = take(&mut state, &quota(10, 1_000, 3), 1, 0);
    assert_eq!((refused.remaining, refused.wait, refused.reset), (0, Wait::Millis(600), 600));
    assert_eq!(take(&mut state, &quota(10, 1_000, 10), 3, 0).remaining, 2);
}

#[test]
fn changed_interval_rounds_the_last_part_up() {
    let mut state = State::default();
    take(&mut state, &quota(1, 1_000, 5), 1, 0);
    state.advance(&quota(1, 1_000, 5), at(999));
    assert_eq!(state.check(&quota(1, 7, 5), 5, at(999)).wait, Wait::Millis(1));
}

#[test]
fn clock_set_back_neither_frees_nor_withholds_permits() {
    let (mut state, quota) = (State::default(), quota(2, 1_000, 4));
    take(&mut state, &quota, 4, 3_600_000);
    assert_eq!(take(&mut state, &quota, 1, 5).wait, Wait::Millis(500));
    assert!(!take(&mut state, &quota, 1, 504).granted);
    assert!(take(&mut state, &quota, 1, 505).granted);
    assert_eq!(state.full_at(&quota), at(2_505));
}

#[test]
fn largest_numbers_stay_exact() {
    let (mut state, quota) = (State::default(), quota(1, MAX_INTERVAL, MAX_RATE));
    assert_eq!(take(&mut state, &quota, MAX_RATE, 0).remaining, 0);
    assert_eq!(take(&mut state, &quota, 1, 1).wait, Wait::Millis(MAX_INTERVAL - 1));
    assert_eq!(take(&mut state, &quota, MAX_RATE, 1).wait, Wait::Millis(MAX_WAIT));
}

#[test]
fn request_undone_immediately_leaves_no_trace() {
    let (mut state, quota) = (State::default(), quota(2, 1_000, 4));
    take(&mut state, &quota, 1, 0);
    let before = state.clone();
    take(&mut state, &quota, 3, 0);
    state.give_back(&quota, 3, at(0), at(0));
    assert_eq!(state, before);
}

#[test]
fn returned_permits_are_not_given_back() {
    let (mut state, quota) = (State::default(), quota(2, 1_000, 4));
    take(&mut state, &quota, 2, 0);
    take(&mut state, &quota, 2, 600);
    state.give_back(&quota, 2, at(0), at(600));
    assert_eq!(state.check(&quota, 0, at(600)).remaining, 2);
    state.give_back(&quota, 2, at(0), at(1_000));
    assert_eq!(state.check(&quota, 0, at(1_000)).remaining, 2);
}

#[test]
fn nothing_is_given_back_after_the_clock_went_back() {
    let (mut state, quota) = (State::default(), quota(2, 1_000, 4));
    take(&mut state, &quota, 4, 5_000);
    state.give_back(&quota, 4, at(5_000), at(4_999));
    assert_eq!(state.check(&quota, 0, at(4_999)).remaining, 0);
}

proptest! {
    #[test]
    fn undone_request_frees_no_extra_permits(
        rate in 1..50_u64,
        burst in 1..50_u32,
        steps in prop::collection::vec((0..200_u64, 0..10_u32), 1..30),
        undone in 0..30_usize,
        later in 0..200_u64,
    ) {
        let quota = quota(rate, 1_000, burst);
        let (mut with, mut without) = (State::default(), State::default());
        let (mut now, mut given) = (0, None);
        for (index, (passes, permits)) in steps.into_iter().enumerate() {
            now += passes;
            if take(&mut with, &quota, permits, now).granted {
                match index == undone {
                    true => given = Some((permits, now)),
                    false => _ = take(&mut without, &quota, permits, now),
                }
            }
        }
        now += later;
        if let Some((permits, granted_at)) = given {
            with.give_back(&quota, permits, at(granted_at), at(now));
        }
        prop_assert!(with.used_at(&quota, at(now)) >= without.used_at(&quota, at(now)));
    }
}
