//! A histogram of durations with 32 buckets per power of two.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Durations, with a precision of 3 %.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Histogram(Vec<u64>);

/// The number of buckets per power of two is two to the power of this.
const PRECISION_BITS: u32 = 5;

impl Histogram {
    pub fn record(&mut self, duration: Duration) {
        let bucket = bucket_of(duration);
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += 1;
    }

    pub fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
    }

    /// Returns a quantile in microseconds.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= quantile * all as f64 {
                return end_of(bucket) / 1_000.0;
            }
        }
        f64::NAN
    }
}

fn bucket_of(duration: Duration) -> usize {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1 << PRECISION_BITS);
    let octave = nanos.ilog2() - PRECISION_BITS;
    // Durations below 32 ns count as 32 ns. From there on, each power of two has 32 buckets.
    usize::try_from((u64::from(octave) << PRECISION_BITS) + ((nanos >> octave) - (1 << PRECISION_BITS)))
        .unwrap_or(usize::MAX)
}

/// Returns the end of a bucket in nanoseconds.
fn end_of(bucket: usize) -> f64 {
    let (octave, part) = (bucket >> PRECISION_BITS, bucket & ((1 << PRECISION_BITS) - 1));
    (part + 1 + (1 << PRECISION_BITS)) as f64 * 2_f64.powf(octave as f64)
}
