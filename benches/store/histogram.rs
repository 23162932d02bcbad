//! How long many things took, in buckets that are each a thirty-second part of an octave wide.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Durations from nothing to hours, to 3 %.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Histogram(Vec<u64>);

/// An octave is cut into two to the power of this.
const PARTS: u32 = 5;

impl Histogram {
    pub fn note(&mut self, duration: Duration) {
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

    /// The microseconds that this share of all took at most.
    pub fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= share * all as f64 {
                return end_of(bucket) / 1_000.0;
            }
        }
        f64::NAN
    }
}

fn bucket_of(duration: Duration) -> usize {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1 << PARTS);
    let octave = nanos.ilog2() - PARTS;
    // Two numbers below 64 and the same again.
    usize::try_from((u64::from(octave) << PARTS) + ((nanos >> octave) - (1 << PARTS))).unwrap_or(usize::MAX)
}

/// The nanoseconds at which the next bucket begins.
fn end_of(bucket: usize) -> f64 {
    let (octave, part) = (bucket >> PARTS, bucket & ((1 << PARTS) - 1));
    (part + 1 + (1 << PARTS)) as f64 * 2_f64.powf(octave as f64)
}
