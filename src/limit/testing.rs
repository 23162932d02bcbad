//! What the tests of the algorithms share.

/// Defines `take(state, quota, permits, now)`: asks as a store does, and is left with what a client is told.
macro_rules! define_take {
    () => {
        fn take(state: &mut State, quota: &Quota, permits: u32, now: u64) -> Decision {
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
