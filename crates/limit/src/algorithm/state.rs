//! The state of a bucket of any algorithm.

use super::gcra::warm_up;
use super::numbers::{MAX_NUMBERS, Numbers};
use super::packed::Packed;
use super::{fixed_window, gcra, leaky_bucket, sliding_window, token_bucket};
use crate::clock::Timestamp;
use crate::{Algorithm, BucketDecision, Quota};

/// The state of a bucket. All quotas that it is used with must have the same algorithm. Most buckets were used only
/// once; their state is packed and needs no heap memory.
#[derive(Clone, Debug)]
pub struct BucketState(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Packed(Packed),
    Unpacked(Box<Unpacked>),
}

/// Defines the full state of each algorithm, with the methods that all states have.
macro_rules! states {
    ($($(#[doc = $doc:literal])+ $variant:ident($module:ident): $algorithm:pat,)+) => {
        /// The full state of an algorithm.
        #[derive(Clone, Debug, PartialEq, Eq)]
        enum Unpacked {
            $($(#[doc = $doc])+ $variant($module::State),)+
        }

        impl Unpacked {
            #[inline]
            fn unpack(packed: Packed, quota: &Quota) -> Self {
                match quota.algorithm() {
                    $($algorithm => Self::$variant($module::State::unpack(packed)),)+
                }
            }

            fn pack(&self) -> Option<Packed> {
                match self {
                    $(Self::$variant(state) => state.pack(),)+
                }
            }

            fn from_numbers(quota: &Quota, numbers: Numbers<'_>) -> Option<Self> {
                match quota.algorithm() {
                    $($algorithm => $module::State::from_numbers(numbers).map(Self::$variant),)+
                }
            }

            fn to_numbers(&self, now: Timestamp) -> Vec<i64> {
                match self {
                    $(Self::$variant(state) => state.to_numbers(now),)+
                }
            }

            fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
                match self {
                    $(Self::$variant(state) => state.used(quota, now),)+
                }
            }

            fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
                match self {
                    $(Self::$variant(state) => state.check(quota, permits, now),)+
                }
            }

            fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
                match self {
                    $(Self::$variant(state) => state.charge(quota, permits, now),)+
                }
            }

            fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
                match self {
                    $(Self::$variant(state) => state.charge_unconditionally(quota, permits, now),)+
                }
            }

            fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
                match self {
                    $(Self::$variant(state) => state.debt_wait(quota, now),)+
                }
            }

            fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
                match self {
                    $(Self::$variant(state) => state.on_refusal(quota, now),)+
                }
            }

            fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
                match self {
                    $(Self::$variant(state) => state.give_back(quota, permits, granted_at, now),)+
                }
            }

            fn full_at(&self, quota: &Quota) -> Timestamp {
                match self {
                    $(Self::$variant(state) => state.full_at(quota),)+
                }
            }
        }

        /// The frequent operations, without an intermediate [`Unpacked`].
        impl Packed {
            fn check(self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
                match quota.algorithm() {
                    $($algorithm => $module::State::unpack(self).check(quota, permits, now),)+
                }
            }

            fn charge(self, quota: &Quota, permits: u32, now: Timestamp) -> (BucketDecision, Repr) {
                match quota.algorithm() {
                    $($algorithm => {
                        let mut state = $module::State::unpack(self);
                        let decision = state.charge(quota, permits, now);
                        let packed = state.pack();
                        let whole = || Repr::Unpacked(Box::new(Unpacked::$variant(state)));
                        (decision, packed.map_or_else(whole, Repr::Packed))
                    })+
                }
            }

            fn full_at(self, quota: &Quota) -> Timestamp {
                match quota.algorithm() {
                    $($algorithm => $module::State::unpack(self).full_at(quota),)+
                }
            }
        }
    };
}

states! {
    /// A log of grants.
    TokenBucket(token_bucket): Algorithm::TokenBucket | Algorithm::Redisson(_),
    /// The permits in use of a bucket that refills continuously.
    Gcra(gcra): Algorithm::Gcra { .. },
    /// The permits in use and the heat of such a bucket.
    GcraWarmUp(warm_up): Algorithm::GcraWarmUp(_),
    /// The permits that wait for their time slots.
    LeakyBucket(leaky_bucket): Algorithm::LeakyBucket(_),
    /// Counters of segments.
    SlidingWindow(sliding_window): Algorithm::SlidingWindow { .. },
    /// Counters of calendar windows.
    FixedWindow(fixed_window): Algorithm::FixedWindow(_),
}

impl BucketState {
    /// An unused bucket.
    pub const EMPTY: Self = Self(Repr::Packed(Packed::Unused));

    /// Evaluates a request for `permits` at `now`, without any change.
    #[inline]
    pub fn check(&self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        match &self.0 {
            Repr::Unpacked(unpacked) => unpacked.check(quota, permits, now),
            Repr::Packed(packed) => packed.check(quota, permits, now),
        }
    }

    /// Charges `permits` that [`check`](Self::check) has granted at `now`, and returns the new state of the bucket.
    #[inline]
    pub fn charge(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        match &mut self.0 {
            Repr::Unpacked(unpacked) => unpacked.charge(quota, permits, now),
            Repr::Packed(packed) => {
                let (decision, repr) = packed.charge(quota, permits, now);
                self.0 = repr;
                decision
            }
        }
    }

    /// Charges `permits` at `now` in any case, and returns the new state of the bucket. Permits that the bucket lacks
    /// are debt: later requests wait until it is paid with the permits that return.
    pub fn charge_unconditionally(&mut self, quota: &Quota, permits: u32, now: Timestamp) -> BucketDecision {
        self.change(quota, |unpacked| unpacked.charge_unconditionally(quota, permits, now))
    }

    /// Returns the milliseconds from `now` until the debt of the bucket is paid; 0 without debt.
    pub fn debt_wait(&self, quota: &Quota, now: Timestamp) -> u64 {
        match &self.0 {
            Repr::Unpacked(unpacked) => unpacked.debt_wait(quota, now),
            Repr::Packed(packed) => Unpacked::unpack(*packed, quota).debt_wait(quota, now),
        }
    }

    /// Updates the bucket after a refusal at `now`, if the clock went back or the rule has changed.
    #[inline]
    pub fn on_refusal(&mut self, quota: &Quota, now: Timestamp) {
        self.change(quota, |unpacked| unpacked.on_refusal(quota, now));
    }

    /// Gives back `permits` that were granted at `granted_at`, as if they had never been granted, unless they have
    /// returned.
    pub fn give_back(&mut self, quota: &Quota, permits: u32, granted_at: Timestamp, now: Timestamp) {
        self.change(quota, |unpacked| unpacked.give_back(quota, permits, granted_at, now));
    }

    /// Returns the moment from which the bucket is full and can be removed.
    pub fn full_at(&self, quota: &Quota) -> Timestamp {
        match &self.0 {
            Repr::Unpacked(unpacked) => unpacked.full_at(quota),
            Repr::Packed(packed) => packed.full_at(quota),
        }
    }

    /// Returns the permits in use at `now`, rounded up.
    pub fn used(&self, quota: &Quota, now: Timestamp) -> u64 {
        match &self.0 {
            Repr::Unpacked(unpacked) => unpacked.used(quota, now),
            Repr::Packed(packed) => Unpacked::unpack(*packed, quota).used(quota, now),
        }
    }

    /// Returns this bucket as numbers, for another process.
    pub fn to_numbers(&self, quota: &Quota, now: Timestamp) -> Vec<i64> {
        match &self.0 {
            Repr::Unpacked(whole) => whole.to_numbers(now),
            Repr::Packed(packed) => Unpacked::unpack(*packed, quota).to_numbers(now),
        }
    }

    /// Returns the bucket that another process has sent as these numbers, or `None` if they are invalid for this
    /// algorithm.
    pub fn from_numbers(quota: &Quota, numbers: &[i64], now: Timestamp) -> Option<Self> {
        if numbers.len() > MAX_NUMBERS {
            return None;
        }
        let whole = Unpacked::from_numbers(quota, Numbers::new(numbers, now))?;
        Some(Self(whole.pack().map_or_else(|| Repr::Unpacked(Box::new(whole)), Repr::Packed)))
    }

    /// Applies a change. A state that once was too large to be packed stays unpacked while the bucket is in use.
    #[inline]
    fn change<R>(&mut self, quota: &Quota, change: impl FnOnce(&mut Unpacked) -> R) -> R {
        match &mut self.0 {
            Repr::Unpacked(unpacked) => change(unpacked),
            Repr::Packed(packed) => {
                let mut unpacked = Unpacked::unpack(*packed, quota);
                let changed = change(&mut unpacked);
                self.0 = unpacked.pack().map_or_else(|| Repr::Unpacked(Box::new(unpacked)), Repr::Packed);
                changed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calendar::{Calendar, Unit};
    use crate::{MAX_RATE, examples};

    #[test]
    fn bucket_used_once_takes_24_bytes() {
        assert_eq!(size_of::<BucketState>(), 24);
        for algorithm in examples(10) {
            let quota = Quota::new(10, 86_400_000, algorithm).expect("a quota");
            let mut state = BucketState::EMPTY;
            state.charge(&quota, 1, Timestamp::from_millis(1_700_000_000_000));
            // The heat of a warm-up does not fit.
            let is_packed = matches!(state.0, Repr::Packed(Packed::Once { .. }));
            assert_eq!(is_packed, !matches!(algorithm, Algorithm::GcraWarmUp(_)), "{state:?}");
        }
    }

    fn any_algorithm() -> impl Strategy<Value = Algorithm> {
        prop::sample::select(examples(10).collect::<Vec<_>>())
    }

    /// The requests to a bucket: their times, permits, one of two rules, and whether they are undone and unconditional.
    fn lives() -> impl Strategy<Value = Vec<(i64, u32, bool, bool, bool)>> {
        let passes = prop_oneof![4 => 0..100_i64, 4 => 0..90_000_i64, 1 => -90_000..=0_i64];
        let permits = prop_oneof![6 => 1..4_u32, 1 => Just(0), 1 => Just(MAX_RATE)];
        prop::collection::vec(
            (passes, permits, any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2)),
            1..30,
        )
    }

    #[test]
    fn numbers_of_no_bucket_are_rejected() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let (bucket, gcra) = (Algorithm::TokenBucket, Algorithm::Gcra { burst: 10 });
        let warm_up = Algorithm::GcraWarmUp(warm_up::WarmUp { burst: 10, millis: 1_000 });
        let fixed = Algorithm::FixedWindow(Calendar::utc(Unit::Minute));
        for (algorithm, numbers) in [
            (bucket, &[1_000][..]),                           // no time after the interval
            (bucket, &[1_000, 0, -5, 0]),                     // a grant of nothing
            (bucket, &[1_000, 0, -5, 1, -6, 1]),              // not in order
            (bucket, &[-1, 0]),                               // no interval
            (bucket, &[1_000, 0, 5]),                         // a debt without a grant
            (bucket, &[1_000, 0, -5, 1, 1 << 33]),            // too much debt
            (gcra, &[0, 0, 1, 0]),                            // parts of nothing
            (gcra, &[0, 1_000, 1, 1_000]),                    // parts of more than a permit
            (gcra, &[0, 1_000, 1, 0, 1]),                     // one number too many
            (warm_up, &[0, 1_000, 1, 0]),                     // no heat
            (warm_up, &[0, 1_000, 1, 0, 0, 1_000]),           // heat of more than a permit
            (warm_up, &[0, 0, 0, 0, 1, 0]),                   // heat of nothing
            (Algorithm::SlidingWindow { segments: 4 }, &[5]), // a counter without permits
            (fixed, &[i64::MIN, i64::MAX]),                   // too many permits
            (fixed, &[0; MAX_NUMBERS + 1]),
        ] {
            let quota = Quota::new(10, 60_000, algorithm).expect("a quota");
            assert!(BucketState::from_numbers(&quota, numbers, now).is_none(), "{algorithm:?}: {numbers:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The receiver decides as the sender would have, although its clock is `ahead`. Calendar windows need equal
        /// clocks.
        #[test]
        fn transferred_bucket_decides_like_the_original(
            life in lives(), algorithm in any_algorithm(), rate in 1..8_u64, ahead in 0..100_000_u64,
        ) {
            let quota = Quota::new(rate, 60_000, algorithm).expect("a quota");
            let ahead = match algorithm {
                // Segments begin at the same distance.
                Algorithm::SlidingWindow { segments } => {
                    let segment = 60_000 / u64::from(segments);
                    ahead / segment * segment
                }
                Algorithm::FixedWindow(_) => 0,
                _ => ahead,
            };
            let (mut state, mut now) = (BucketState::EMPTY, 1_700_000_000_000_u64);
            for (passes, permits, .., unconditional) in life {
                now = now.checked_add_signed(passes).expect("a moment");
                let (at, there) = (Timestamp::from_millis(now), Timestamp::from_millis(now + ahead));
                let numbers = state.to_numbers(&quota, at);
                let other = BucketState::from_numbers(&quota, &numbers, there).expect("a bucket");
                prop_assert_eq!(other.check(&quota, permits, there), state.check(&quota, permits, at));
                let full = |full: Timestamp, now: Timestamp| full.millis_since(now);
                prop_assert_eq!(full(other.full_at(&quota), there), full(state.full_at(&quota), at));
                if unconditional {
                    state.charge_unconditionally(&quota, permits, at);
                } else if state.check(&quota, permits, at).granted {
                    state.charge(&quota, permits, at);
                } else {
                    state.on_refusal(&quota, at);
                }
            }
        }

        #[test]
        fn packed_bucket_decides_like_the_unpacked(
            life in lives(), algorithm in any_algorithm(), rates in (1..8_u64, 1..8_u64),
        ) {
            let quota = |rate, interval| Quota::new(rate, interval, algorithm).expect("a quota");
            // The other rule's interval does not fit into 32 bits.
            let quotas = [quota(rates.0, 60_000), quota(rates.1, 1 << 33)];
            let (mut state, mut now) = (BucketState::EMPTY, 1_700_000_000_000_u64);
            let mut unpacked = Unpacked::unpack(Packed::Unused, &quotas[0]);
            for (passes, permits, other, undone, unconditional) in life {
                now = now.checked_add_signed(passes).expect("a moment");
                let (quota, at) = (&quotas[usize::from(other)], Timestamp::from_millis(now));
                let decision = unpacked.check(quota, permits, at);
                prop_assert_eq!(state.check(quota, permits, at), decision);
                if unconditional {
                    prop_assert_eq!(state.charge_unconditionally(quota, permits, at), unpacked.charge_unconditionally(quota, permits, at));
                } else if decision.granted {
                    prop_assert_eq!(state.charge(quota, permits, at), unpacked.charge(quota, permits, at));
                } else {
                    state.on_refusal(quota, at);
                    unpacked.on_refusal(quota, at);
                }
                if decision.granted && undone {
                    let time_slot = at.plus_millis(decision.delay);
                    state.give_back(quota, permits, time_slot, at);
                    unpacked.give_back(quota, permits, time_slot, at);
                }
                prop_assert_eq!(state.full_at(quota), unpacked.full_at(quota));
            }
        }
    }
}
