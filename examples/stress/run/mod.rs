//! Runs gateways with more load than their limits admit, and checks their logs.

mod chaos;
pub mod checker;
mod client;
mod fleet;
mod load;
mod log;
mod rule_file;
mod table;
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
    /// The URL of an empty Redis.
    pub redis: String,
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
    let disturbances = match run.chaos {
        Some(pause) => Some(chaos::disturb(&mut fleet, &run.redis, pause, end).await?),
        None => None,
    };
    sleep_until(end).await;
    let statuses = load.stop().await;
    let decisions = Decisions::read(&fleet.drain_all().await?)?;
    Ok(Verdict::new(run, &limits, &decisions, &statuses, disturbances))
}
