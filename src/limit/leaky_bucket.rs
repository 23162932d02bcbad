//! `leaky_bucket`: slots at an even distance, first come first served across all gateways.
//!
//! **Law.** Requests go on at slots that are at least `interval / rate` apart, told to the millisecond above. A request is
//! given the next free slot at once, and waits for it (`delay`). It is refused if more than `queue` permits would wait, its
//! own included, or if it would wait for longer than `max_wait`; then it knows to the millisecond when it would be given a
//! slot: refused at `now + wait - 1`, granted at `now + wait`, if nothing else happens. A request of n permits takes n
//! slots, of which the first is not waited in. One that finds the bucket empty does not wait, whatever the queue.
//!
//! **State.** What is in the bucket and leaks out at the rate: the arithmetic is that of [`gcra`], whose
//! bucket holds what is in use. Here it holds what is still to go on, and a slot is when all of it has.
//!
//! **Changed quotas.** What waits stays in the bucket and leaks at the new rate: slots that were told are not told anew, so
//! that for as long as those wait, requests under an old and a new rate can meet at a slot.
//!
//! **Clock jumps.** A clock that went back finds a state ahead of it. It counts as made now.
//!
//! **Giving back.** Only the last slot that was given returns: no other can be moved up, for its request was told.
//!
//! `lua/leaky_bucket.lua` is the translation of this file.

use super::gcra::{self, parts, returned};
use super::{Algorithm, Decision, Quota, Wait};
use crate::clock::Timestamp;

/// What may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Most permits that may wait for their slots.
    pub length: u32,
    /// The longest wait for a slot, in milliseconds.
    pub max_wait: u64,
}

/// What is to go on: one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(pub(super) gcra::State);

impl State {
    /// Judges a request for `permits` at `now`; changes nothing.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        let queue = queue(quota);
        let level = self.0.used_at(quota, now);
        let delay = gcra::millis_for(level, quota);
        let waiting = level.div_ceil(quota.interval().into());
        // One permit of all is at its slot, the others wait.
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
        Decision {
            delay: if wait == Wait::Now && permits > 0 { delay } else { 0 },
            ..Decision::new(
                remaining(level, waiting, quota, queue),
                wait,
                gcra::millis_for(next_leak(level, quota), quota),
            )
        }
    }

    /// Takes the slot that [`check`](Self::check) has granted at `now`, and says what is left.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        let delay = self.check(quota, permits, now).delay;
        self.0.charge(quota, permits, now);
        Decision { delay, ..self.check(quota, 0, now) }
    }

    /// After a refusal at `now`: changes nothing, unless the clock went back.
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        self.0.on_refusal(quota, now);
    }

    /// Takes back the slot at `slot`, if it is the last that was given.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, slot: Timestamp, now: Timestamp) {
        if permits > 0 && self.0.last_slot(quota, permits) == Some(slot) {
            self.0.remove_last(quota, permits, now);
        }
    }

    /// The moment from which nothing waits and the bucket can be forgotten.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        self.0.full_at(quota)
    }
}

/// The queue of a quota. With another algorithm no request waits.
fn queue(quota: &Quota) -> Queue {
    match quota.algorithm() {
        Algorithm::LeakyBucket(queue) => queue,
        _ => Queue { length: 0, max_wait: 0 },
    }
}

/// How many permits can be spent now, together or one by one.
fn remaining(level: u128, waiting: u128, quota: &Quota, queue: Queue) -> u32 {
    let places = (u128::from(queue.length) + 1).saturating_sub(waiting);
    let in_time = returned(Timestamp::default(), Timestamp::from_millis(queue.max_wait), quota);
    let timely = in_time.checked_sub(level).map_or(0, |left| left / u128::from(quota.interval()) + 1);
    u32::try_from(places.min(timely).min(quota.rate().into())).unwrap_or(u32::MAX)
}

/// The parts that leak before one permit less is in the bucket.
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

    fn take(state: &mut State, quota: &Quota, now: u64) -> Decision {
        let decision = state.check(quota, 1, at(now));
        if decision.granted {
            return state.charge(quota, 1, at(now));
        }
        state.on_refusal(quota, at(now));
        decision
    }

    #[test]
    fn slots_are_evenly_spaced_and_given_in_the_order_of_arrival() {
        let (mut state, quota) = (State::default(), quota(10, 3, 10_000));
        let delays = [0, 0, 0, 50].map(|now| take(&mut state, &quota, now).delay + now);
        assert_eq!(delays, [0, 100, 200, 300]);
        assert_eq!(take(&mut state, &quota, 60).wait, Wait::Millis(40));
        assert!(!take(&mut state, &quota, 99).granted);
        assert_eq!(take(&mut state, &quota, 100).delay, 300);
    }

    #[test]
    fn a_wait_above_the_longest_is_refused_until_it_is_not() {
        let (mut state, quota) = (State::default(), quota(10, 100, 150));
        assert_eq!([0, 0].map(|now| take(&mut state, &quota, now).delay), [0, 100]);
        assert_eq!(take(&mut state, &quota, 0).wait, Wait::Millis(50));
        assert_eq!(take(&mut state, &quota, 50).delay, 150);
    }

    #[test]
    fn the_cost_of_a_request_counts_against_the_queue_that_it_would_wait_in() {
        let queue = Queue { length: 7, max_wait: 60_000 };
        let quota = Quota::new(7, 5_000, Algorithm::LeakyBucket(queue)).expect("a quota");
        let mut state = State::default();
        assert_eq!(state.check(&quota, 0, at(0)).remaining, 7);
        assert_eq!(state.check(&quota, 7, at(0)).delay, 0);
        assert_eq!(state.charge(&quota, 7, at(0)).remaining, 1);
        assert!(state.check(&quota, 1, at(0)).granted, "what remains cannot be spent");
        // With seven more, one would be at its slot and thirteen would wait. There is room when one of the first is left.
        assert_eq!(state.check(&quota, 7, at(0)).wait, Wait::Millis(4_286));
        assert!(!state.check(&quota, 7, at(4_285)).granted);
        assert!(state.check(&quota, 7, at(4_286)).granted);
    }

    #[test]
    fn a_request_that_finds_the_bucket_empty_does_not_wait_whatever_the_queue() {
        let (mut state, quota) = (State::default(), quota(10, 1, 10_000));
        assert!(state.check(&quota, 5, at(0)).granted);
        state.charge(&quota, 5, at(0));
        assert_eq!(state.check(&quota, 5, at(0)).wait, Wait::Millis(500));
        assert!(state.check(&quota, 5, at(500)).granted);
    }

    #[test]
    fn only_the_last_slot_returns() {
        let (mut state, quota) = (State::default(), quota(10, 100, 10_000));
        for _ in 0..3 {
            take(&mut state, &quota, 0);
        }
        state.give_back(&quota, 1, at(100), at(10));
        assert_eq!(take(&mut state, &quota, 10).delay, 290, "a slot in the middle was given twice");
        state.give_back(&quota, 1, at(300), at(20));
        assert_eq!(take(&mut state, &quota, 20).delay, 280);
    }

    #[test]
    fn what_remains_is_how_many_requests_would_be_given_a_slot() {
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
