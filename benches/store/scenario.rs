//! The scenarios: the limits of a decision, and the expected outcomes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate::redisson::Mode;
use tidegate_limit::{Algorithm, MAX_RATE, Quota, examples};
use tidegate_rules::charge::Limiter;

use super::Result;

/// The limits of the decisions.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub kind: Kind,
    /// The limit with one bucket for all clients.
    pub overall: Option<Quota>,
    /// The limit with one bucket per client.
    pub per_client: Option<Quota>,
}

/// The expected outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// All decisions are granted.
    Granted,
    /// Nearly all decisions are rejected.
    Rejected,
    /// The demand exceeds the rate over many intervals, so the limits could be exceeded.
    Bounded,
}

/// The number of clients, which are selected at random.
pub const CLIENTS: u32 = 10_000;

/// The interval in milliseconds. It is longer than a slice, so no permits become available again.
pub const INTERVAL: u64 = 10_000;
/// A rate above any demand.
pub const PLENTY: u64 = 1_000_000_000;
/// A rate above the demand of one client.
pub const PLENTY_FOR_ONE: u64 = 500;
/// A rate far below the demand.
const LITTLE: u64 = 100;

/// Returns the scenarios that run at rising concurrency.
pub fn curves() -> Result<Vec<Scenario>> {
    let (all, one, little) = (bucket(PLENTY, INTERVAL)?, bucket(PLENTY_FOR_ONE, INTERVAL)?, bucket(LITTLE, INTERVAL)?);
    Ok(vec![
        Scenario { name: "OVERALL", kind: Kind::Granted, overall: Some(all), per_client: None },
        Scenario { name: "PER_CLIENT", kind: Kind::Granted, overall: None, per_client: Some(one) },
        Scenario { name: "OVERALL + PER_CLIENT", kind: Kind::Granted, overall: Some(all), per_client: Some(one) },
        Scenario { name: "OVERALL, rejected", kind: Kind::Rejected, overall: Some(little), per_client: None },
    ])
}

/// Returns a scenario with one bucket for each algorithm.
pub fn algorithms() -> Result<Vec<Scenario>> {
    let scenario = |algorithm: Algorithm| {
        let overall = Some(Quota::new(PLENTY, INTERVAL, algorithm)?);
        Ok(Scenario { name: algorithm.name(), kind: Kind::Granted, overall, per_client: None })
    };
    examples(MAX_RATE).map(scenario).collect()
}

/// Returns the scenarios that check the limits: short intervals, and rates below the demand.
pub fn bounded() -> Result<Vec<Scenario>> {
    let (all, one) = (bucket(4_000, 200)?, bucket(1, 500)?);
    let scenario = |name, overall, per_client| Scenario { name, kind: Kind::Bounded, overall, per_client };
    Ok(vec![
        scenario("OVERALL, bounded", Some(all), None),
        scenario("PER_CLIENT, bounded", None, Some(one)),
        scenario("OVERALL + PER_CLIENT, bounded", Some(all), Some(one)),
    ])
}

/// Returns the scenario `name`.
pub fn find(name: &str) -> Result<Scenario> {
    let all = [curves()?, algorithms()?, bounded()?].concat();
    Ok(all.into_iter().find(|scenario| scenario.name == name).ok_or_else(|| format!("no scenario {name}"))?)
}

fn bucket(rate: u64, interval: u64) -> Result<Quota> {
    Ok(Quota::new(rate, interval, Algorithm::TokenBucket)?)
}

impl Scenario {
    /// Returns the limiters of a run. No other run has the same buckets.
    pub fn limiters(&self, run: u64) -> Vec<Arc<Limiter>> {
        let limiter = |name: &str, mode, quota: Option<Quota>| {
            let name = format!("{{bench:{run}}}:{name}");
            quota.map(|quota| Arc::new(Limiter::new(name, mode, quota)))
        };
        let overall = limiter("total", Mode::Overall, self.overall);
        let per_client = limiter("own", Mode::PerClient, self.per_client);
        overall.into_iter().chain(per_client).collect()
    }
}
