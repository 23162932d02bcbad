//! A bucket of any algorithm: one arm for each of them.

use super::{Algorithm, Decision, Quota, gcra, leaky_bucket, token_bucket};
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
}

impl State {
    /// An unused bucket.
    pub fn empty(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::Foreign(_) => Self::TokenBucket(token_bucket::State::default()),
            Algorithm::Gcra { .. } => Self::Gcra(gcra::State::default()),
            Algorithm::LeakyBucket(_) => Self::LeakyBucket(leaky_bucket::State::default()),
        }
    }

    /// Judges a request for `permits` at `now`; changes nothing.
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        match self {
            Self::TokenBucket(state) => state.check(quota, permits, now),
            Self::Gcra(state) => state.check(quota, permits, now),
            Self::LeakyBucket(state) => state.check(quota, permits, now),
        }
    }

    /// Takes `permits` that [`check`](Self::check) has granted at `now`, and says what is left.
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> Decision {
        match self {
            Self::TokenBucket(state) => state.charge(quota, permits, now),
            Self::Gcra(state) => state.charge(quota, permits, now),
            Self::LeakyBucket(state) => state.charge(quota, permits, now),
        }
    }

    /// After a refusal at `now`: changes nothing, unless the clock went back.
    pub fn settle(&mut self, quota: &Quota, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.settle(quota, now),
            Self::Gcra(state) => state.settle(quota, now),
            Self::LeakyBucket(state) => state.settle(quota, now),
        }
    }

    /// Takes back `permits` that were granted at `granted_at`, as if they had never been; permits that have returned
    /// by themselves are left alone.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.give_back(quota, permits, granted_at, now),
            Self::Gcra(state) => state.give_back(quota, permits, granted_at, now),
            Self::LeakyBucket(state) => state.give_back(quota, permits, granted_at, now),
        }
    }

    /// The moment from which the bucket is as good as unused and can be forgotten.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        match self {
            Self::TokenBucket(state) => state.full_at(quota),
            Self::Gcra(state) => state.full_at(quota),
            Self::LeakyBucket(state) => state.full_at(quota),
        }
    }
}
