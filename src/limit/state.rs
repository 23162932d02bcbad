//! A bucket of any algorithm: one arm for each of them.

use super::{Algorithm, Decision, Quota, fixed_window, gcra, leaky_bucket, sliding_window, token_bucket};
use crate::clock::Timestamp;

/// What is remembered of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A log of grants.
    TokenBucket(token_bucket::State),
    /// What is in use of a bucket that refills continuously.
    Gcra(gcra::State),
    /// What waits for its slots.
    LeakyBucket(leaky_bucket::State),
    /// Counters of segments.
    SlidingWindow(sliding_window::State),
    /// Counters of windows of the calendar.
    FixedWindow(fixed_window::State),
}

impl State {
    /// An unused bucket.
    pub fn empty(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::Foreign(_) => Self::TokenBucket(token_bucket::State::default()),
            Algorithm::Gcra { .. } => Self::Gcra(gcra::State::default()),
            Algorithm::LeakyBucket(_) => Self::LeakyBucket(leaky_bucket::State::default()),
            Algorithm::SlidingWindow { .. } => Self::SlidingWindow(sliding_window::State::default()),
            Algorithm::FixedWindow(_) => Self::FixedWindow(fixed_window::State::default()),
        }
    }

    /// Judges a request for `permits` at `now`; changes nothing.
    #[inline]
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        match self {
            Self::TokenBucket(state) => state.check(quota, permits, now),
            Self::Gcra(state) => state.check(quota, permits, now),
            Self::LeakyBucket(state) => state.check(quota, permits, now),
            Self::SlidingWindow(state) => state.check(quota, permits, now),
            Self::FixedWindow(state) => state.check(quota, permits, now),
        }
    }

    /// Takes `permits` that [`check`](Self::check) has granted at `now`, and says what is left.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        match self {
            Self::TokenBucket(state) => state.charge(quota, permits, now),
            Self::Gcra(state) => state.charge(quota, permits, now),
            Self::LeakyBucket(state) => state.charge(quota, permits, now),
            Self::SlidingWindow(state) => state.charge(quota, permits, now),
            Self::FixedWindow(state) => state.charge(quota, permits, now),
        }
    }

    /// After a refusal at `now`: changes nothing, unless the clock went back.
    pub fn settle(&mut self, quota: &Quota, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.settle(quota, now),
            Self::Gcra(state) => state.settle(quota, now),
            Self::LeakyBucket(state) => state.settle(quota, now),
            Self::SlidingWindow(state) => state.settle(quota, now),
            Self::FixedWindow(state) => state.settle(quota, now),
        }
    }

    /// Takes back `permits` that were granted at `granted_at`, as if they had never been; permits that have returned
    /// by themselves are left alone.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.give_back(quota, permits, granted_at, now),
            Self::Gcra(state) => state.give_back(quota, permits, granted_at, now),
            Self::LeakyBucket(state) => state.give_back(quota, permits, granted_at, now),
            Self::SlidingWindow(state) => state.give_back(quota, permits, granted_at),
            Self::FixedWindow(state) => state.give_back(quota, permits, granted_at),
        }
    }

    /// The moment from which the bucket is as good as unused and can be forgotten.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        match self {
            Self::TokenBucket(state) => state.full_at(quota),
            Self::Gcra(state) => state.full_at(quota),
            Self::LeakyBucket(state) => state.full_at(quota),
            Self::SlidingWindow(state) => state.full_at(quota),
            Self::FixedWindow(state) => state.full_at(),
        }
    }
}
