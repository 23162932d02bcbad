//! Gateways under more load than they may let pass, and what their logs prove afterwards.

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

/// Why a run came to no verdict.
pub type Failed = Box<dyn Error + Send + Sync>;

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program.
    pub binary: PathBuf,
    /// Where rule files and logs go; it exists, and is the caller's to remove.
    pub folder: PathBuf,
    /// An empty Redis.
    pub redis: String,
    pub gateways: usize,
    pub connections: usize,
    /// How many requests a second all connections together send at most; as many as are answered, unless given.
    pub rate: Option<u32>,
    /// How many times the permits of the table are granted, so that a good part of more requests passes, too.
    pub times: u64,
    pub duration: Duration,
    /// How long nothing happens between two things that do; nothing ever, unless given.
    pub chaos: Option<Duration>,
}

/// Puts gateways under load and judges what they did.
pub async fn run(run: &Run) -> Result<Verdict, Failed> {
    // Rules change from the start on: what a longer interval counts was never forgotten by a shorter one.
    let versions = if run.chaos.is_some() { table::VERSIONS } else { 1 };
    let limits = table::limits(run.times);
    let mut fleet = Fleet::start(run, &limits, versions).await?;
    let load = Load::start(&fleet.addresses, run.connections, run.rate);
    let end = Instant::now() + run.duration;
    let events = match run.chaos {
        Some(pause) => Some(chaos::rage(&mut fleet, &run.redis, pause, end).await?),
        None => None,
    };
    sleep_until(end).await;
    let answers = load.end().await;
    let decisions = Decisions::read(&fleet.end().await?)?;
    Ok(Verdict::of(run, &limits, &decisions, &answers, events))
}
