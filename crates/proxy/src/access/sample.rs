//! Selects the requests that are logged if `access_log.sample` is less than 1, and the requests that are traced.
//!
//! Each worker selects requests by steps of the golden ratio: the share is exact, and no regular pattern
//! of requests is systematically missed. The selection needs no random numbers and no state that workers share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::LocalKey;

/// The share of 2^64 that is logged. There is one access log in a process.
static THRESHOLD: AtomicU64 = AtomicU64::new(u64::MAX);

/// 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

thread_local! {
    static POSITION: Cell<u64> = const { Cell::new(0) };
}

/// Sets the share of 2^64 that is logged. [`u64::MAX`] logs all.
pub fn set_sample(threshold: u64) {
    THRESHOLD.store(threshold, Relaxed);
}

/// Returns `true` if the next request of this thread is logged.
pub(super) fn select_next() -> bool {
    select(&POSITION, THRESHOLD.load(Relaxed))
}

/// Returns `true` if the next request of this thread is selected. `position` belongs to one selection.
pub(super) fn select(position: &'static LocalKey<Cell<u64>>, threshold: u64) -> bool {
    threshold == u64::MAX || position.replace(next(position.get())) < threshold
}

fn next(position: u64) -> u64 {
    position.wrapping_add(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_exact_for_regular_patterns_too() {
        let positions: Vec<_> =
            std::iter::successors(Some(STEP), |position| Some(next(*position))).take(10_000).collect();
        for percent in [0_u64, 1, 10, 50, 99] {
            let threshold = u64::MAX / 100 * percent;
            for every in [1, 2, 3, 10] {
                let pattern: Vec<_> = positions.iter().step_by(every).collect();
                let selected = pattern.iter().filter(|position| ***position < threshold).count() as u64;
                let expected = pattern.len() as u64 * percent / 100;
                assert!(selected.abs_diff(expected) <= 8, "{selected} instead of {expected} of every {every}");
            }
        }
    }
}
