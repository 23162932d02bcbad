//! Problems of the store: it does not decide, or its clock differs.

use super::entry::{GatewayProblem, ProblemKind};
use tidegate_store::Store;

/// The least difference between the clocks that is a problem, in milliseconds. The difference is measured with a call, so a
/// slow reply of the store looks like a late clock.
const MAX_CLOCK_OFFSET: u64 = 5_000;

/// Adds the problems of the store.
pub(super) fn find(store: &Store, found: &mut Vec<GatewayProblem>) {
    if let Some(cause) = store.outage() {
        let message = format!("does not decide: {cause}");
        found.push(GatewayProblem::new(ProblemKind::Store, store.address(), message));
    }
    if let Some(message) = store.clock_offset().and_then(clock_message) {
        found.push(GatewayProblem::new(ProblemKind::Clock, store.address(), message));
    }
}

/// Describes a difference between the clocks, in milliseconds. Returns `None` if it is no problem.
fn clock_message(offset: i64) -> Option<String> {
    let seconds = offset.unsigned_abs() / 1_000;
    let direction = if offset < 0 { "behind" } else { "ahead of" };
    let is_problem = offset.unsigned_abs() >= MAX_CLOCK_OFFSET;
    is_problem
        .then(|| format!("its clock is {seconds} s {direction} the clock of this gateway: synchronize both with NTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_of_five_seconds_is_a_problem() {
        assert_eq!([-4_999, 0, 4_999].map(clock_message), [None, None, None]);
        let message = |offset| clock_message(offset).unwrap_or_default();
        assert!(message(-60_500).starts_with("its clock is 60 s behind the clock of this gateway"));
        assert!(message(5_000).starts_with("its clock is 5 s ahead of the clock"));
    }
}
