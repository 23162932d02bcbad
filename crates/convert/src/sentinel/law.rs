//! The numbers of rules as limits.

use std::time::Duration;

use super::rules::{Behavior, Kind, Rule};
use crate::draft::value::Map;
use crate::draft::{Algorithm, Interval, Limit, millis};
use crate::report::Verdict;

/// The largest rate of the rule file.
const MAX_RATE: u64 = 2_147_483_648;

/// The longest queue and the longest wait of the rule file.
const MAX_QUEUE: u64 = 100_000;
const MAX_WAIT: u64 = 3_600_000;

/// The longest interval of the rule file, in seconds.
const MAX_SECONDS: u128 = 366 * 86_400;

/// The segments of the window of a resource, and of a cluster, in one second.
const LOCAL_SEGMENTS: u64 = 2;
const CLUSTER_SEGMENTS: u64 = 10;

/// A limit, and how it differs from the rule.
#[derive(Debug)]
pub(super) struct Law {
    /// `None` if the rule admits nothing.
    pub(super) limit: Option<Limit>,
    pub(super) verdict: Verdict,
    pub(super) reason: &'static str,
}

/// The threshold of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    /// Requests in an interval, over all processes.
    pub(super) count: f64,
    /// In seconds.
    pub(super) seconds: u64,
    /// The requests that a bucket holds in addition.
    pub(super) burst: u64,
    pub(super) is_cluster: bool,
    /// The number of processes that the count was multiplied by.
    pub(super) factor: u32,
}

/// Returns the limit of a rule, without its name and its clients.
pub(super) fn of(rule: &Rule<'_>, threshold: Threshold) -> Law {
    let max_wait = ["maxQueueingTimeMs", "maxQueueingTimeoutMs"].into_iter().find_map(|key| rule.number(key));
    let max_wait = max_wait.unwrap_or(500).min(MAX_WAIT);
    let warm_up = rule.number("warmUpPeriodSec").unwrap_or(10).clamp(1, 3_600);
    let rejects = matches!(rule.behavior(), Behavior::Reject);
    if threshold.count <= 0.0 || (rejects && threshold.count < 1.0) {
        return Law { limit: None, verdict: Verdict::Same, reason: "nothing is admitted" };
    }
    let is_param = rule.kind() != Kind::Flow;
    match rule.behavior() {
        Behavior::Queue => queued(threshold, max_wait, None),
        Behavior::WarmUpAndQueue if !is_param => queued(threshold, max_wait, Some(warm_up)),
        Behavior::WarmUp if !is_param => warming_up(threshold, warm_up),
        _ if is_param => refilled(threshold),
        _ => window(threshold),
    }
}

/// A window of one second, in segments. Sentinel drops a segment when it began a second ago.
fn window(threshold: Threshold) -> Law {
    let segments = if threshold.is_cluster { CLUSTER_SEGMENTS } else { LOCAL_SEGMENTS };
    let limit = Limit {
        rate: Some(whole(threshold.count)),
        interval: Some(Interval::Time(Duration::from_secs(1))),
        algorithm: Some(Algorithm::SlidingWindow),
        segments: Some(segments),
        ..Limit::default()
    };
    let reason = "no second has more requests; the window of Sentinel is up to one segment shorter than a second";
    Law { limit: Some(limit), verdict: Verdict::Stricter, reason }
}

/// A bucket that is filled again after an interval.
fn refilled(threshold: Threshold) -> Law {
    let rate = whole(threshold.count).max(1);
    let base = Limit {
        rate: Some(rate),
        interval: Some(Interval::Time(Duration::from_secs(threshold.seconds))),
        ..Limit::default()
    };
    match threshold.burst {
        0 => {
            let reason = "no interval has more requests; the bucket of Sentinel can be filled twice within an interval";
            Law { limit: Some(base), verdict: Verdict::Stricter, reason }
        }
        burst => {
            let burst = Some(rate.saturating_add(burst).min(MAX_RATE));
            let limit = Limit { algorithm: Some(Algorithm::Gcra), burst, ..base };
            let reason = "permits return one at a time; Sentinel returns them together, when an interval has passed";
            Law { limit: Some(limit), verdict: Verdict::Looser, reason }
        }
    }
}

/// Requests at even distances. They wait for their time.
fn queued(threshold: Threshold, max_wait: u64, warm_up: Option<u64>) -> Law {
    let (rate, interval) = exact(threshold.count, threshold.seconds);
    let distance = interval / u128::from(rate).max(1);
    // The slots of waiting requests are less than the longest wait away.
    let waiting = (u128::from(max_wait) * 1_000_000).div_ceil(distance.max(1));
    let queue = u64::try_from(waiting).unwrap_or(MAX_QUEUE).min(MAX_QUEUE);
    let nanos = u64::try_from(interval).unwrap_or(u64::MAX);
    let wait = (max_wait > 0 && queue > 0).then(|| Duration::from_millis(max_wait));
    let base = Limit {
        rate: Some(rate),
        interval: Some(Interval::Time(Duration::from_nanos(nanos))),
        max_wait: wait,
        ..Limit::default()
    };
    match warm_up {
        None if queue > 0 => {
            let limit = Limit { algorithm: Some(Algorithm::LeakyBucket), queue: Some(queue), ..base };
            Law { limit: Some(limit), verdict: Verdict::Same, reason: "`algorithm: leaky_bucket`" }
        }
        None => {
            let limit = Limit { algorithm: Some(Algorithm::Gcra), burst: Some(1), ..base };
            Law { limit: Some(limit), verdict: Verdict::Same, reason: "without a queue" }
        }
        Some(seconds) => {
            let more = Map::of([("warm_up", millis(Duration::from_secs(seconds)).into())]);
            let limit = Limit { algorithm: Some(Algorithm::Gcra), burst: Some(1), more, ..base };
            let reason = "the rate rises with each request; Sentinel raises it once a second";
            Law { limit: Some(limit), verdict: Verdict::Looser, reason }
        }
    }
}

/// A rate that rises from a third.
fn warming_up(threshold: Threshold, seconds: u64) -> Law {
    let rate = whole(threshold.count).max(1);
    let limit = Limit {
        rate: Some(rate),
        interval: Some(Interval::Time(Duration::from_secs(1))),
        algorithm: Some(Algorithm::Gcra),
        burst: Some((rate / 3).max(1)),
        more: Map::of([("warm_up", millis(Duration::from_secs(seconds)).into())]),
        ..Limit::default()
    };
    let reason = "permits return one at a time: bursts are at most a third of the count, also after the warm-up";
    Law { limit: Some(limit), verdict: Verdict::Stricter, reason }
}

/// Returns a count as a whole number. Fractions of a request are never admitted.
pub(super) fn whole(count: f64) -> u64 {
    const MAX: f64 = 2_147_483_648.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    let whole = count.clamp(0.0, MAX) as u64;
    whole
}

/// Returns a count in some seconds as a whole rate, and its interval in nanoseconds.
fn exact(count: f64, seconds: u64) -> (u64, u128) {
    let (mut rate, mut factor) = (count, 1_u128);
    while rate.fract() > 1e-9 && factor < 1_000 && u128::from(seconds) * factor * 10 <= MAX_SECONDS {
        rate *= 10.0;
        factor *= 10;
    }
    (whole(rate.round()).max(1), u128::from(seconds) * factor * 1_000_000_000)
}
