//! Helpers for the tests of the algorithms.

/// Defines `take(state, quota, permits, now)`, which decides like a store and returns the decision.
macro_rules! define_take {
    () => {
        fn take(state: &mut State, quota: &Quota, permits: u32, now: u64) -> BucketDecision {
            let now = Timestamp::from_millis(now);
            let decision = state.check(quota, permits, now);
            if decision.granted {
                return state.charge(quota, permits, now);
            }
            state.on_refusal(quota, now);
            decision
        }
    };
}
pub(super) use define_take;
