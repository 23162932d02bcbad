//! The used share of a limit, as the last decision saw it. A decision costs one store to memory; the store of the
//! buckets is not asked when the metrics are read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::instruments::family::Series;
use tidegate_limit::clock::Stopwatch;

/// Marks a share that was not read yet. The lower 32 bits are the share.
const UNREAD: u64 = 1 << 32;

/// The used share of a limit, from 0 to 1. It is exported while the limit's interval has not passed since the last
/// decision was read: later, its permits have become available again.
#[derive(Debug, Default)]
pub(crate) struct UsedShare {
    share: AtomicU64,
    /// For how many milliseconds a decision is of interest.
    retention: AtomicU64,
    /// The first time that the latest share was read.
    read: Mutex<Option<Stopwatch>>,
}

impl UsedShare {
    /// Sets the number of milliseconds after which all permits of a decision are available again.
    pub(crate) fn set_retention(&self, millis: u64) {
        self.retention.store(millis, Ordering::Relaxed);
    }

    /// Records a decision that left `remaining` of `capacity` permits.
    pub(crate) fn record(&self, remaining: u32, capacity: u32) {
        #[expect(clippy::cast_possible_truncation, reason = "a gauge needs no more digits")]
        let free = (f64::from(remaining) / f64::from(capacity.max(1))) as f32;
        let share = (1.0 - free).clamp(0.0, 1.0);
        self.share.store(UNREAD | u64::from(share.to_bits()), Ordering::Relaxed);
    }
}

impl UsedShare {
    /// Returns the share; `None` if no decision is recent enough.
    pub(crate) fn current(&self) -> Option<f32> {
        (!self.is_untouched()).then(|| self.latest())
    }

    fn latest(&self) -> f32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the share")]
        let bits = self.share.load(Ordering::Relaxed) as u32;
        f32::from_bits(bits)
    }
}

impl EncodeMetric for UsedShare {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        encoder.encode_gauge(&f64::from(self.latest()))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl TypedMetric for UsedShare {
    const TYPE: MetricType = MetricType::Gauge;
}

impl Series for UsedShare {
    fn is_untouched(&self) -> bool {
        let mut read = self.read.lock();
        if self.share.fetch_and(!UNREAD, Ordering::Relaxed) & UNREAD != 0 {
            *read = Some(Stopwatch::start());
        }
        let retention = Duration::from_millis(self.retention.load(Ordering::Relaxed));
        read.is_none_or(|read| read.elapsed() >= retention)
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    const SERIES: &str = "tidegate_limit_used_ratio{route=\"api\",limit=\"all\"} ";

    #[test]
    fn share_is_absent_before_and_long_after_a_decision() {
        let metrics = Metrics::new();
        let limit = metrics.limit("api", "all");
        limit.set_retention(3_600_000);
        assert!(!metrics.render().contains(SERIES));
        limit.record_remaining(25, 100);
        for _ in 0..2 {
            assert!(metrics.render().contains(&format!("{SERIES}0.75\n")), "{}", metrics.render());
        }
        limit.set_retention(0);
        assert!(!metrics.render().contains(SERIES));
    }
}
