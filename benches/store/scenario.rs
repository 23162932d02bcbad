//! What the store is asked for: by which limits, and whether all is granted.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate::Mode;
use tidegate::internals::limit::calendar::{Calendar, Unit};
use tidegate::internals::limit::leaky_bucket::Queue;
use tidegate::internals::limit::{Algorithm, Limiter, MAX_RATE, Quota};

use super::Result;

/// Limits that a decision is made by.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub kind: Kind,
    /// Of the one bucket that everybody shares.
    pub overall: Option<Quota>,
    /// Of the buckets that clients have, each its own.
    pub per_client: Option<Quota>,
}

/// What it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Everything is granted.
    Granted,
    /// Nearly everything is refused.
    Refused,
    /// More is asked for than granted, over many intervals: so the law can be broken.
    Bounded,
}

/// The clients that ask, at random.
pub const CLIENTS: u32 = 10_000;

/// Milliseconds; in those of a run nothing returns.
pub const INTERVAL: u64 = 10_000;
/// More than can be asked for.
pub const PLENTY: u64 = 1_000_000_000;
/// More than one client asks for.
pub const PLENTY_FOR_ONE: u64 = 500;
/// As good as nothing.
const LITTLE: u64 = 100;

/// Asked for at rising concurrency.
pub fn curves() -> Result<Vec<Scenario>> {
    let (all, one, little) = (bucket(PLENTY, INTERVAL)?, bucket(PLENTY_FOR_ONE, INTERVAL)?, bucket(LITTLE, INTERVAL)?);
    Ok(vec![
        Scenario { name: "OVERALL", kind: Kind::Granted, overall: Some(all), per_client: None },
        Scenario { name: "PER_CLIENT", kind: Kind::Granted, overall: None, per_client: Some(one) },
        Scenario { name: "OVERALL + PER_CLIENT", kind: Kind::Granted, overall: Some(all), per_client: Some(one) },
        Scenario { name: "OVERALL, rejected", kind: Kind::Refused, overall: Some(little), per_client: None },
    ])
}

/// One bucket of each algorithm.
pub fn algorithms() -> Result<Vec<Scenario>> {
    let algorithms = [
        Algorithm::TokenBucket,
        Algorithm::Gcra { burst: MAX_RATE },
        Algorithm::LeakyBucket(Queue { length: MAX_RATE, max_wait: INTERVAL }),
        Algorithm::SlidingWindow { segments: 10 },
        Algorithm::FixedWindow(Calendar::new(Unit::Minute, "UTC")?),
    ];
    let scenario = |algorithm: Algorithm| {
        let overall = Some(Quota::new(PLENTY, INTERVAL, algorithm)?);
        Ok(Scenario { name: algorithm.name(), kind: Kind::Granted, overall, per_client: None })
    };
    algorithms.into_iter().map(scenario).collect()
}

/// What the law is counted by: intervals of which many pass, and rates below what is asked for.
pub fn bounded() -> Result<Vec<Scenario>> {
    let (all, one) = (bucket(4_000, 200)?, bucket(1, 500)?);
    let scenario = |name, overall, per_client| Scenario { name, kind: Kind::Bounded, overall, per_client };
    Ok(vec![
        scenario("OVERALL, bounded", Some(all), None),
        scenario("PER_CLIENT, bounded", None, Some(one)),
        scenario("OVERALL + PER_CLIENT, bounded", Some(all), Some(one)),
    ])
}

/// The scenario of this name.
pub fn named(name: &str) -> Result<Scenario> {
    let all = [curves()?, algorithms()?, bounded()?].concat();
    Ok(all.into_iter().find(|scenario| scenario.name == name).ok_or_else(|| format!("no scenario {name}"))?)
}

fn bucket(rate: u64, interval: u64) -> Result<Quota> {
    Ok(Quota::new(rate, interval, Algorithm::TokenBucket)?)
}

impl Scenario {
    /// Its limits in a run of this number, whose buckets no other run has.
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
