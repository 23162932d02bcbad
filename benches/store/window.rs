//! Checks that no window of one interval had more grants than the rate. Uses only the grants and their times on the
//! store's clock.

use std::collections::BTreeMap;

use tidegate_limit::Quota;

use super::job::{Grant, Report};
use super::scenario::Scenario;

/// The fullest window of a limit, in permits.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub granted: u64,
    pub rate: u64,
}

/// Returns the fullest window of each limit, over the grants of all drivers.
pub fn windows(scenario: &Scenario, reports: &[Report]) -> Vec<Window> {
    let grants: Vec<Grant> = reports.iter().flat_map(|report| report.grants.iter().copied()).collect();
    let fullest_of =
        |quota: Option<Quota>, bucket: fn(&Grant) -> u32| quota.map(|quota| fullest(&quota, &grants, bucket));
    let (overall, per_client) = (fullest_of(scenario.overall, |_| 0), fullest_of(scenario.per_client, |grant| grant.0));
    overall.into_iter().chain(per_client).collect()
}

/// Returns the fullest window of all buckets of a limit.
fn fullest(quota: &Quota, grants: &[Grant], bucket: impl Fn(&Grant) -> u32) -> Window {
    let mut buckets: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for grant in grants {
        buckets.entry(bucket(grant)).or_default().push((grant.1, grant.2));
    }
    let granted = buckets.into_values().map(|grants| most_in_a_window(grants, quota.interval())).max();
    Window { granted: granted.unwrap_or(0), rate: quota.rate().into() }
}

/// Returns the most permits in any window of length `interval`. A fullest window ends with a grant.
fn most_in_a_window(mut grants: Vec<(u64, u64)>, interval: u64) -> u64 {
    grants.sort_unstable();
    let (mut granted, mut most, mut first) = (0, 0, 0);
    for (at, permits) in &grants {
        granted += permits;
        while grants[first].0 + interval <= *at {
            granted -= grants[first].1;
            first += 1;
        }
        most = most.max(granted);
    }
    most
}

impl Window {
    /// Returns `true` if the window has more grants than the rate.
    pub fn exceeds_rate(&self) -> bool {
        self.granted > self.rate
    }

    /// Returns the fuller of both windows.
    pub fn or_fuller(self, other: Self) -> Self {
        if other.granted > self.granted { other } else { self }
    }
}
