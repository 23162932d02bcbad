//! Runs gateways with more load than their limits admit, and checks their logs.

mod chaos;
pub mod checker;
mod client;
pub mod fleet;
mod load;
pub mod log;
pub mod replay;
pub mod rule_file;
pub mod table;
mod verdict;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use self::fleet::Fleet;
use self::load::Load;
use self::log::Decisions;
pub use self::verdict::Verdict;

/// The error of a run without a verdict.
pub type RunError = Box<dyn Error + Send + Sync>;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The gateway's binary.
    pub binary: PathBuf,
    /// The existing folder for rule files and logs. The caller removes it.
    pub folder: PathBuf,
    /// The URL of an empty Redis. `None` for the store in memory, which only one gateway can use.
    pub redis: Option<String>,
    pub gateways: usize,
    pub connections: usize,
    /// The maximum requests per second of all connections together. `None` for no maximum.
    pub rate: Option<u32>,
    /// A factor for the rates of all limits, so that a faster load still has many grants.
    pub rate_factor: u64,
    pub duration: Duration,
    /// The pause between two disturbances. `None` for no disturbances.
    pub chaos: Option<Duration>,
}

/// Runs the load, and checks the decisions.
pub async fn run(run: &Run) -> Result<Verdict, RunError> {
    // With disturbances, both versions of the rules are used from the start. Otherwise a shorter interval could forget
    // grants that a longer one counts later.
    let versions = if run.chaos.is_some() { table::VERSIONS } else { 1 };
    let limits = table::limits(run.rate_factor);
    let mut fleet = Fleet::start(run, &limits, versions).await?;
    let load = Load::start(&fleet.addresses, run.connections, run.rate);
    let end = Instant::now() + run.duration;
    let disturbances = match (run.chaos, &run.redis) {
        (Some(pause), Some(redis)) => Some(chaos::disturb(&mut fleet, redis, pause, end).await?),
        (Some(_), None) => return Err("disturbances need a Redis".into()),
        (None, _) => None,
    };
    sleep_until(end).await;
    let statuses = load.stop().await;
    let started = fleet.drain_all().await?;
    let decisions = Decisions::read(&started)?;
    // With disturbances, gateways have different rules at a time, and a replay has one rule file.
    let is_replayed = disturbances.is_none();
    let replayed = is_replayed.then(|| replay::compare(&started, &decisions, run.redis.is_some())).transpose()?;
    Ok(Verdict::new(run, &limits, &decisions, &statuses, disturbances, replayed))
}

impl Run {
    /// Returns the settings of the store. The timeout is long enough for a busy machine.
    fn store(&self) -> String {
        match &self.redis {
            Some(url) => format!("url: '{url}', timeout: 10s"),
            None => "url: memory".to_owned(),
        }
    }
}
