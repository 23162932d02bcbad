//! Histograms of durations and of sizes.

use std::iter::repeat;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use crate::instruments::family::Series;

/// Upper bounds of the buckets for durations, in seconds.
pub(crate) const SECONDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// A histogram with fixed bounds and atomic buckets. An observation takes no lock.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    /// The upper bounds of all buckets but the last, which has none.
    bounds: Arc<[f64]>,
    data: Arc<Data>,
}

#[derive(Debug, Default)]
struct Data {
    /// One for each bound, and one for larger values. Created for the first value: most routes never have most statuses.
    counts: OnceLock<Box<[AtomicU64]>>,
    /// The sum of all values, in millionths.
    sum: AtomicU64,
}

// === impl Histogram ===

impl Histogram {
    /// Creates a histogram with these upper bounds, in ascending order. A last bucket has no bound.
    pub(crate) fn new(bounds: impl Into<Arc<[f64]>>) -> Self {
        Self { bounds: bounds.into(), data: Arc::default() }
    }

    /// Creates a histogram of durations with these upper bounds, in ascending order. Without bounds, it has the default
    /// bounds.
    pub(crate) fn of_durations(bounds: &[Duration]) -> Self {
        match bounds {
            [] => Self::default(),
            bounds => Self::new(bounds.iter().map(Duration::as_secs_f64).collect::<Vec<_>>()),
        }
    }

    /// Returns another histogram with the same bounds, without data.
    pub(crate) fn empty(&self) -> Self {
        Self::new(Arc::clone(&self.bounds))
    }

    /// Counts a duration, in seconds.
    pub(crate) fn observe(&self, duration: Duration) {
        self.count(duration.as_secs_f64(), u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts a size.
    pub(crate) fn observe_size(&self, size: u32) {
        self.count(size.into(), u64::from(size) * 1_000_000);
    }

    /// Returns the number of values, and their sum in millionths.
    pub(crate) fn count_and_sum(&self) -> (u64, u64) {
        (self.counts().sum(), self.data.sum.load(Ordering::Relaxed))
    }

    /// Returns the upper bounds of all buckets but the last, which has none.
    pub(crate) fn bounds(&self) -> &Arc<[f64]> {
        &self.bounds
    }

    /// Adds the counts of all buckets to `sums`, which has one for each bucket.
    pub(crate) fn add_counts(&self, sums: &mut [u64]) {
        sums.iter_mut().zip(self.counts()).for_each(|(sum, count)| *sum += count);
    }

    fn count(&self, value: f64, millionths: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        let counts = self.data.counts.get_or_init(|| (0..=self.bounds.len()).map(|_| AtomicU64::new(0)).collect());
        counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.data.sum.fetch_add(millionths, Ordering::Relaxed);
    }

    /// Returns the counts of all buckets; none before the first value.
    fn counts(&self) -> impl Iterator<Item = u64> {
        self.data.counts.get().into_iter().flatten().map(|count| count.load(Ordering::Relaxed))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new(SECONDS)
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.counts().chain(repeat(0))).collect();
        let sum = Duration::from_micros(self.data.sum.load(Ordering::Relaxed)).as_secs_f64();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Series for Histogram {
    fn is_untouched(&self) -> bool {
        self.data.counts.get().is_none()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn sizes_are_counted_up_to_their_bound() {
        let histogram = Histogram::new([1.0, 4.0]);
        [1, 2, 4, 5].into_iter().for_each(|size| histogram.observe_size(size));
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register("sizes", "Sizes", histogram.clone());
        encode(&mut text, &registry).expect("text");
        for line in ["sizes_sum 12.0", "sizes_count 4", r#"sizes_bucket{le="1.0"} 1"#, r#"sizes_bucket{le="4.0"} 3"#] {
            assert!(text.lines().any(|other| other == line), "no `{line}` in\n{text}");
        }
        assert!(histogram.empty().is_untouched() && !histogram.is_untouched());
    }
}
