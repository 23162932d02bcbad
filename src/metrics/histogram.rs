//! Histograms of durations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::family::Quiet;

/// Upper bounds of the histograms' buckets, in seconds.
pub(super) const BOUNDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, f64::INFINITY];

/// Fixed buckets of atomics: observing takes no lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram(Arc<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    counts: [AtomicU64; BOUNDS.len()],
    micros: AtomicU64,
}

// === impl Histogram ===

impl Histogram {
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len() - 1);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let counts = self.0.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = BOUNDS.into_iter().zip(counts).collect();
        let seconds = Duration::from_micros(self.0.micros.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(seconds, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Quiet for Histogram {
    fn is_quiet(&self) -> bool {
        self.0.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}
