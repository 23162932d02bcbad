//! The algorithm of `limit_req`, as an algorithm of the rule file.
//!
//! nginx counts the excess of a key: the requests above the rate, in thousandths. A request adds one, and the rate subtracts
//! from it. The first request of an idle key has no excess. A request is rejected above `burst`, and waits above `delay`
//! until the excess is `delay` again. So `delay + 1` requests pass at once, as with `gcra`; more wait in a queue of
//! `burst - delay`. Without `delay`, each request has its own time slot, as with `leaky_bucket`.

use std::time::Duration;

use crate::draft::{Algorithm, Interval, Limit};

/// The bounds of the rule file.
const MAX_PERMITS: u64 = 2_147_483_648;
const MAX_QUEUE: u64 = 100_000;
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// The parameters of `limit_req`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Law {
    /// Thousandths of a request per second.
    pub(crate) rate: u64,
    pub(crate) burst: u64,
    /// The excess that is not delayed.
    pub(crate) delay: u64,
}

/// A bound of the rule file that makes a limit stricter.
pub(crate) type Bounded = &'static str;

/// Parses `10r/s` or `30r/m` to whole thousandths of a request per second, as nginx rounds them.
pub(crate) fn rate(text: &str) -> Option<u64> {
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => return None,
    };
    let rate = number.parse::<u64>().ok()?.checked_mul(1_000)? / seconds;
    (rate > 0 && rate / 1_000 <= MAX_PERMITS).then_some(rate)
}

// === impl Law ===

impl Law {
    /// Sets the algorithm of a limit, for `replicas` processes that enforce it separately. Returns the bounds of the rule
    /// file that it exceeds.
    pub(crate) fn apply(self, limit: &mut Limit, replicas: u32) -> Vec<Bounded> {
        let mut bounded = Vec::new();
        let replicas = u64::from(replicas);
        let mut within = |value: u64, most: u64, reason: Bounded| {
            let is_over = value > most;
            bounded.extend(is_over.then_some(reason));
            if is_over { most } else { value }
        };
        let divisor = common_divisor(self.rate, 1_000);
        let rate = (self.rate / divisor).saturating_mul(replicas);
        limit.rate = Some(within(rate, MAX_PERMITS, "the rate exceeds the bound of the rule file"));
        limit.interval = Some(Interval::Time(Duration::from_secs(1_000 / divisor)));
        let waiting = self.burst.saturating_sub(self.delay);
        let at_once = self.delay.min(self.burst).saturating_add(1).saturating_mul(replicas);
        let at_once = within(at_once, MAX_PERMITS, "the burst exceeds the bound of the rule file");
        if waiting == 0 || self.delay > 0 {
            (limit.algorithm, limit.burst) = (Some(Algorithm::Gcra), Some(at_once));
        } else {
            limit.algorithm = Some(Algorithm::LeakyBucket);
        }
        if waiting > 0 {
            let queue = waiting.saturating_mul(replicas);
            limit.queue = Some(within(queue, MAX_QUEUE, "the queue is bounded to 100,000 requests"));
            let wait = self.wait(waiting);
            bounded.extend((wait > MAX_WAIT).then_some("no request waits longer than 1h"));
            limit.max_wait = Some(wait.min(MAX_WAIT));
        }
        bounded
    }

    /// Returns the algorithm of the rule file, for the report.
    pub(crate) fn algorithm(self) -> &'static str {
        match (self.burst.saturating_sub(self.delay), self.delay) {
            (0, _) => "`gcra`",
            (_, 0) => "`leaky_bucket`",
            _ => "`gcra` with a queue",
        }
    }

    /// Returns the time until an excess of this many requests is gone, rounded up: the queue bounds the requests.
    fn wait(self, requests: u64) -> Duration {
        let millis = (u128::from(requests) * 1_000_000).div_ceil(u128::from(self.rate.max(1)));
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX).max(1))
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
