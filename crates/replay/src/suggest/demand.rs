//! The demand of the clients: the most permits that each needs in any window of an interval.
//!
//! A token bucket whose rate is never reached counts them: so windows of more than 511 permits are up to a 511th of the
//! interval too long, as in the gateway.

use serde::Serialize;

use tidegate_config::Millis;
use tidegate_limit::{Algorithm, MAX_RATE, Quota};

/// The intervals of suggestions, in milliseconds.
pub(super) const INTERVALS: [u64; 5] = [1_000, 10_000, 60_000, 600_000, 3_600_000];

/// Clients above a gap have at least twice as many permits, and this many more.
const MIN_GAP: u32 = 5;

/// The demand of all clients in an interval.
#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    pub interval: String,
    #[serde(skip)]
    pub millis: u64,
    /// The peak that half of the clients do not exceed.
    pub median: u32,
    /// The peak that 99 % of the clients do not exceed.
    pub p99: u32,
    /// The highest peak of a client.
    pub max: u32,
    /// The number of top abusers.
    pub abusers: usize,
    /// The peaks of all clients, in ascending order.
    #[serde(skip)]
    pub(super) peaks: Vec<u32>,
}

/// Returns the quota that measures the demand in an interval.
pub(super) fn quota(interval: u64) -> Option<Quota> {
    Quota::new(MAX_RATE.into(), interval, Algorithm::TokenBucket).ok()
}

impl Demand {
    /// Returns the demand in an interval, from the peak of each client.
    pub(super) fn new(interval: u64, mut peaks: Vec<u32>) -> Self {
        peaks.sort_unstable();
        let abusers = count_abusers(&peaks);
        let mut demand = Self {
            interval: Millis::show(interval),
            millis: interval,
            median: 0,
            p99: 0,
            max: peaks.last().copied().unwrap_or(0),
            abusers,
            peaks,
        };
        (demand.median, demand.p99) = (demand.quantile(0.5), demand.quantile(0.99));
        demand
    }

    /// Returns the smallest rate that rejects at most this share of the clients other than top abusers.
    pub(super) fn rate(&self, tolerate: f64) -> u32 {
        let others = &self.peaks[..self.peaks.len() - self.abusers];
        let rejected = tolerated(others.len(), tolerate);
        others.len().checked_sub(rejected + 1).map_or(1, |position| others[position]).max(1)
    }

    /// Returns the lowest peak of a top abuser.
    pub(super) fn lowest_abuser(&self) -> Option<u32> {
        self.peaks.get(self.peaks.len() - self.abusers).copied()
    }

    fn quantile(&self, share: f64) -> u32 {
        let above = tolerated(self.peaks.len(), 1.0 - share);
        self.peaks.len().checked_sub(above + 1).map_or(0, |position| self.peaks[position])
    }
}

/// Returns this share of a number of clients, rounded down.
pub(super) fn tolerated(clients: usize, share: f64) -> usize {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let tolerated = (clients as f64 * share + 1e-9) as usize;
    tolerated.min(clients)
}

/// Returns the number of clients above the widest gap between the peaks in the upper tenth of the clients. Of at most 100
/// clients, the upper ten or the upper half.
fn count_abusers(peaks: &[u32]) -> usize {
    let upper = (peaks.len() / 10).max(10).min(peaks.len() / 2);
    let from = (peaks.len() - upper).max(1);
    let gap = |at: &usize| f64::from(peaks[*at]) / f64::from(peaks[at - 1].max(1));
    let is_wide = |at: &usize| peaks[*at] >= peaks[at - 1].saturating_mul(2).saturating_add(MIN_GAP);
    let widest = (from..peaks.len()).filter(is_wide).max_by(|left, right| gap(left).total_cmp(&gap(right)));
    widest.map_or(0, |at| peaks.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_above_the_widest_gap_are_abusers() {
        let mut peaks = vec![1; 900];
        peaks.extend([3; 97]);
        peaks.extend([40, 300, 310]);
        assert_eq!(count_abusers(&peaks), 3);
        assert_eq!(count_abusers(&[1, 2, 3, 4, 5, 6]), 0);
        assert_eq!(count_abusers(&[1, 1, 1, 90]), 1);
        assert_eq!((count_abusers(&[]), count_abusers(&[500])), (0, 0));
    }
}
