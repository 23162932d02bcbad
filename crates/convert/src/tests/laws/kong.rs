//! The laws of Kong's plugins, from `kong/plugins/rate-limiting` and the documentation of `rate-limiting-advanced`.

use std::collections::HashMap;

use super::MONDAY;

/// `rate-limiting`: a counter for each client and calendar period, all of them checked before all are raised.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    /// The limit and the length in milliseconds of each period. Months are not simulated.
    pub(crate) periods: Vec<(u64, u64)>,
    used: HashMap<(u8, u64, u64), u64>,
}

impl Calendar {
    pub(crate) fn new<const N: usize>(periods: [(u64, u64); N]) -> Self {
        Self { periods: periods.into(), used: HashMap::new() }
    }

    /// Decides about a request.
    pub(crate) fn admits(&mut self, client: u8, time: u64) -> bool {
        let key = |length: u64| (client, length, (MONDAY + time) / length);
        let has_room = |(limit, length): &(u64, u64)| self.used.get(&key(*length)).copied().unwrap_or(0) < *limit;
        let admits = self.periods.iter().all(has_room);
        for (_, length) in self.periods.iter().filter(|_| admits) {
            *self.used.entry(key(*length)).or_default() += 1;
        }
        admits
    }
}

/// `rate-limiting-advanced` with a sliding window: the counter of this window, and the share of the previous one that is still
/// in the window. Rejected requests count as well, unless `disable_penalty` is set.
#[derive(Debug, Default)]
pub(crate) struct Sliding {
    pub(crate) limit: f64,
    pub(crate) millis: u64,
    pub(crate) counts_rejected: bool,
    used: HashMap<u64, f64>,
}

impl Sliding {
    pub(crate) fn new(limit: f64, millis: u64, counts_rejected: bool) -> Self {
        Self { limit, millis, counts_rejected, used: HashMap::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "times of tests are short")]
    pub(crate) fn admits(&mut self, time: u64) -> bool {
        let window = (MONDAY + time) / self.millis;
        let passed = ((MONDAY + time) % self.millis) as f64 / self.millis as f64;
        let count = |window: u64| self.used.get(&window).copied().unwrap_or(0.0);
        let usage = count(window) + count(window - 1) * (1.0 - passed);
        let admits = usage + 1.0 <= self.limit;
        if admits || self.counts_rejected {
            *self.used.entry(window).or_default() += 1.0;
        }
        admits
    }
}
