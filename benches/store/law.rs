//! The one thing that must hold: in no window of an interval more is granted than the rate. Counted from nothing but
//! when what was granted, by the store's clock.

use std::collections::BTreeMap;

use tidegate::internals::limit::Quota;

use super::job::{Grant, Report};
use super::scenario::Scenario;

/// The fullest window of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub held: u64,
    pub rate: u64,
}

/// The fullest window of each limit, over what all drivers were granted.
pub fn windows(scenario: &Scenario, reports: &[Report]) -> Vec<Window> {
    let grants: Vec<Grant> = reports.iter().flat_map(|report| report.grants.iter().copied()).collect();
    let of = |quota: Option<Quota>, bucket: fn(&Grant) -> u32| quota.map(|quota| fullest(&quota, &grants, bucket));
    let (overall, per_client) = (of(scenario.overall, |_| 0), of(scenario.per_client, |grant| grant.0));
    overall.into_iter().chain(per_client).collect()
}

/// The fullest window of all buckets.
fn fullest(quota: &Quota, grants: &[Grant], bucket: impl Fn(&Grant) -> u32) -> Window {
    let mut buckets: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for grant in grants {
        buckets.entry(bucket(grant)).or_default().push((grant.1, grant.2));
    }
    let held = buckets.into_values().map(|grants| most_in_a_window(grants, quota.interval())).max();
    Window { held: held.unwrap_or(0), rate: quota.rate().into() }
}

/// The most permits in any window of this length. One that holds most ends with a grant.
fn most_in_a_window(mut grants: Vec<(u64, u64)>, interval: u64) -> u64 {
    grants.sort_unstable();
    let (mut held, mut most, mut first) = (0, 0, 0);
    for (at, permits) in &grants {
        held += permits;
        while grants[first].0 + interval <= *at {
            held -= grants[first].1;
            first += 1;
        }
        most = most.max(held);
    }
    most
}

impl Window {
    /// Does it hold more than it may?
    pub fn is_too_full(&self) -> bool {
        self.held > self.rate
    }

    /// The one of both that is fuller.
    pub fn or_fuller(self, other: Self) -> Self {
        if other.held > self.held { other } else { self }
    }
}
