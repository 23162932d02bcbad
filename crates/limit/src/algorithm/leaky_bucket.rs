//! `leaky_bucket`: evenly spaced time slots, first come, first served across all gateways.
//!
//! **Guarantee.** Requests are forwarded at time slots at least `interval / rate` apart, rounded up to milliseconds. A
//! request is assigned the next free time slot immediately, and waits for it (`delay`). It is refused if more than
//! `queue` permits would wait, including its own, or if it would wait longer than `max_wait`. The wait of a refused
//! request is exact to the millisecond: without other requests, it is refused at `now + wait - 1` and granted at
//! `now + wait`. A request for n permits takes n time slots and is forwarded at the first. A request that finds the
//! bucket empty does not wait, regardless of the queue.
//!
//! **State.** The permits in the bucket, which leak out at the rate, with the arithmetic of [`gcra`]. There the bucket
//! holds permits in use, here it holds permits that wait. The next time slot is the moment when all of them have leaked
//! out.
//!
//! **Changed quotas.** Waiting permits stay in the bucket and leak at the new rate. Assigned time slots do not change,
//! so a request under the old and a request under the new rate can get the same time slot while requests of the old
//! rate wait.
//!
//! **Clock jumps.** If the clock went back, the state is dated in the future and counts as of now.
//!
//! **Giving back.** Only the time slot that was assigned last can be given back: the requests after any other slot have
//! already been assigned theirs.
//!
//! `lua/leaky_bucket.lua` is a translation of this file.

use serde::{Deserialize, Serialize};

use super::gcra::{self, parts, returned};
use super::numbers::Numbers;
use super::packed::Packed;
use crate::clock::Timestamp;
use crate::{Algorithm, BucketDecision, Quota, Wait};

/// The bounds of waiting: how many permits may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Queue {
    /// The maximal number of permits that may wait for their time slots.
    pub length: u32,
    /// The longest wait for a time slot, in milliseconds.
    pub max_wait: u64,
}

/// A bucket: the permits that wait for their time slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(gcra::State);

impl State {
    /// Evaluates a request for `permits` at `now`, without any change.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let queue = queue(quota);
        let level = self.0.used_at(quota, now);
        let delay = gcra::millis_for(level, quota);
        let waiting = level.div_ceil(quota.interval().into());
        // One permit is at its time slot, all others wait.
        let room = queue.length.saturating_add(1).saturating_sub(permits);
        let fits = waiting <= room.into() && delay <= queue.max_wait;
        let wait = if permits > quota.rate() {
            Wait::Never
        } else if permits == 0 || fits {
            Wait::Now
        } else {
            let too_many = level.saturating_sub(parts(room, quota));
            Wait::Millis(gcra::millis_for(too_many, quota).max(delay.saturating_sub(queue.max_wait)))
        };
        BucketDecision {
            delay: if wait == Wait::Now && permits > 0 { delay } else { 0 },
            ..BucketDecision::new(
                remaining(level, waiting, quota, queue),
                wait,
                gcra::millis_for(next_leak(level, quota), quota),
            )
        }
    }

    /// Takes the time slot that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        let delay = self.check(quota, permits, now).delay;
        self.0.charge(quota, permits, now);
        BucketDecision { delay, ..self.check(quota, 0, now) }
    }

    /// Takes time slots at `now` in any case, even beyond the queue. Nothing is forwarded at these slots.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        self.0.charge_unconditionally(quota, permits, now);
        self.check(quota, 0, now)
    }

    /// Returns 0: every time slot is free at some time, so there is no debt.
    pub fn debt_wait(&self, _quota: &Quota, _now: Timestamp) -> u64 {
        0
    }

    /// Updates the bucket after a refusal at `now`: only if the clock went back.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        self.0.on_refusal(quota, now);
    }

    /// Gives back `time_slot`, if it was assigned last.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, time_slot: Timestamp, now: Timestamp) {
        if permits > 0 && self.0.last_slot(quota, permits) == Some(time_slot) {
            self.0.remove_last(quota, permits, now);
        }
    }

    /// Returns the permits that have not leaked out, rounded up, at `now`.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        self.0.used(quota, now)
    }

    /// Returns the moment from which no permit waits and the bucket can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        self.0.full_at(quota)
    }

    /// Returns the packed form; `None` if it does not fit.
    pub(super) fn pack(&self) -> Option<Packed> {
        self.0.pack()
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        Self(gcra::State::unpack(packed))
    }

    pub(super) fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
        self.0.to_numbers(now)
    }

    /// Returns the bucket that these numbers describe, or `None` if the numbers are invalid.
    pub(super) fn from_numbers(numbers: Numbers<'_>) -> Option<Self> {
        gcra::State::from_numbers(numbers).map(Self)
    }
}

/// Returns the queue of a quota; an empty one for other algorithms.
fn queue(quota: &Quota) -> Queue {
    match quota.algorithm() {
        Algorithm::LeakyBucket(queue) => queue,
        _ => Queue { length: 0, max_wait: 0 },
    }
}

/// Returns the number of permits that can be charged now, together or one by one.
fn remaining(level: u128, waiting: u128, quota: &Quota, queue: Queue) -> u32 {
    let places = (u128::from(queue.length) + 1).saturating_sub(waiting);
    let in_time = returned(Timestamp::default(), Timestamp::from_millis(queue.max_wait), quota);
    let timely = in_time.checked_sub(level).map_or(0, |unused| unused / u128::from(quota.interval()) + 1);
    u32::try_from(places.min(timely).min(quota.rate().into())).unwrap_or(u32::MAX)
}

/// Returns the number of permits that can be charged if none waits.
pub(super) fn unused_permits(quota: &Quota) -> u32 {
    remaining(0, 0, quota, queue(quota))
}

/// Returns the parts that must leak until the bucket holds one permit less.
fn next_leak(level: u128, quota: &Quota) -> u128 {
    match level % u128::from(quota.interval()) {
        0 if level > 0 => quota.interval().into(),
        parts => parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn quota(rate: u64, length: u32, max_wait: u64) -> Quota {
        Quota::new(rate, 1_000, Algorithm::LeakyBucket(Queue { length, max_wait })).expect("a quota")
    }

    fn take(state: &mut State, quota: &Quota, now: u64) -> BucketDecision {
        let decision = state.check(quota, 1, at(now));
        if decision.granted {
            return state.charge(quota, 1, at(now));
        }
        state.on_refusal(quota, at(now));
        decision
    }

    #[test]
    fn time_slots_are_evenly_spaced_in_arrival_order() {
        let (mut state, quota) = (State::default(), quota(10, 3, 10_000));
        let delays = [0, 0, 0, 50].map(|now| take(&mut state, &quota, now).delay + now);
        assert_eq!(delays, [0, 100, 200, 300]);
        assert_eq!(take(&mut state, &quota, 60).wait, Wait::Millis(40));
        assert!(!take(&mut state, &quota, 99).granted);
        assert_eq!(take(&mut state, &quota, 100).delay, 300);
    }

    #[test]
    fn wait_above_max_wait_is_refused() {
        let (mut state, quota) = (State::default(), quota(10, 100, 150));
        assert_eq!([0, 0].map(|now| take(&mut state, &quota, now).delay), [0, 100]);
        assert_eq!(take(&mut state, &quota, 0).wait, Wait::Millis(50));
        assert_eq!(take(&mut state, &quota, 50).delay, 150);
    }

    #[test]
    fn cost_of_a_request_counts_against_the_queue() {
        let queue = Queue { length: 7, max_wait: 60_000 };
        let quota = Quota::new(7, 5_000, Algorithm::LeakyBucket(queue)).expect("a quota");
        let mut state = State::default();
        assert_eq!(state.check(&quota, 0, at(0)).remaining, 7);
        assert_eq!(state.check(&quota, 7, at(0)).delay, 0);
        assert_eq!(state.charge(&quota, 7, at(0)).remaining, 1);
        assert!(state.check(&quota, 1, at(0)).granted, "the remaining permit cannot be charged");
        // With seven more, one would be at its time slot and thirteen would wait. The queue has space for them when one
        // of the first seven is left.
        assert_eq!(state.check(&quota, 7, at(0)).wait, Wait::Millis(4_286));
        assert!(!state.check(&quota, 7, at(4_285)).granted);
        assert!(state.check(&quota, 7, at(4_286)).granted);
    }

    #[test]
    fn empty_bucket_grants_more_than_the_queue_holds() {
        let (mut state, quota) = (State::default(), quota(10, 1, 10_000));
        assert!(state.check(&quota, 5, at(0)).granted);
        state.charge(&quota, 5, at(0));
        assert_eq!(state.check(&quota, 5, at(0)).wait, Wait::Millis(500));
        assert!(state.check(&quota, 5, at(500)).granted);
    }

    #[test]
    fn only_the_last_time_slot_is_given_back() {
        let (mut state, quota) = (State::default(), quota(10, 100, 10_000));
        for _ in 0..3 {
            take(&mut state, &quota, 0);
        }
        state.give_back(&quota, 1, at(100), at(10));
        assert_eq!(take(&mut state, &quota, 10).delay, 290, "a time slot was assigned twice");
        state.give_back(&quota, 1, at(300), at(20));
        assert_eq!(take(&mut state, &quota, 20).delay, 280);
    }

    #[test]
    fn remaining_is_the_number_of_requests_that_get_a_time_slot() {
        for quota in [quota(7, 4, 10_000), quota(7, 50, 430)] {
            let (mut state, mut granted) = (State::default(), 0);
            let remaining = state.check(&quota, 0, at(0)).remaining;
            while take(&mut state, &quota, 0).granted {
                granted += 1;
            }
            assert_eq!(granted, remaining, "{quota:?}");
        }
    }
}
