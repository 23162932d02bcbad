//! Runs gateways on one Redis with more load than their limits admit. Afterwards, a checker reads the access logs. By
//! the decision times of Redis, no window of any limit may have more grants than the rate, and the limits must grant
//! all that they allow. A replay of the access logs must make the same decisions.
//!
//! ```text
//! cargo build --release
//! cargo run --release --example stress                 # 60 seconds
//! cargo run --release --example stress -- --chaos      # with restarts, rule changes and broken connections
//! cargo run --release --example stress -- --full-speed # as many requests as the machine can serve
//! cargo run --release --example stress -- --memory     # one gateway, with the store in its memory
//! ```
//!
//! Needs `redis-server`, except with `--memory`, and uses only the loopback interface. Exits with 0 if all limits were
//! exact and the replay made the same decisions, otherwise with 1. Keeps the logs of a failed run.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]

mod redis;
mod run;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::redis::Redis;
use self::run::{Run, RunError, Verdict};

/// Check that limits grant neither more nor less than their rate
#[derive(Debug, Parser)]
struct Arguments {
    /// Duration of the load
    #[arg(long, default_value = "60")]
    seconds: u64,
    /// Restart gateways, change rules, flush scripts and kill connections during the load
    #[arg(long)]
    chaos: bool,
    /// Use the store in the memory of a single gateway
    #[arg(long, conflicts_with_all = ["chaos", "gateways"])]
    memory: bool,
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u16).range(1..=64))]
    gateways: u16,
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// Maximum requests per second of all connections together
    #[arg(long, default_value = "3000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Send each request as soon as the last one has its response
    #[arg(long, conflicts_with = "rate")]
    full_speed: bool,
    /// Factor for the rates of all limits; 1 by default, and 32 at full speed
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rate_factor: Option<u64>,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program prints its result")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let folder = std::env::temp_dir().join(format!("tidegate-stress-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let verdict = stress(&arguments, &folder).await.map_err(|error| format!("{error}; see {}", folder.display()))?;
    println!("{verdict}");
    if verdict.is_pass() {
        fs::remove_dir_all(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED; see {}", folder.display());
    Ok(ExitCode::FAILURE)
}

async fn stress(arguments: &Arguments, folder: &Path) -> Result<Verdict, RunError> {
    let redis = if arguments.memory { None } else { Some(Redis::start().await?) };
    run::run(&Run {
        binary: binary()?,
        folder: folder.to_owned(),
        redis: redis.as_ref().map(Redis::url),
        gateways: if arguments.memory { 1 } else { arguments.gateways.into() },
        connections: arguments.connections.into(),
        rate: (!arguments.full_speed).then_some(arguments.rate),
        rate_factor: arguments.rate_factor.unwrap_or(if arguments.full_speed { 32 } else { 1 }),
        duration: Duration::from_secs(arguments.seconds),
        chaos: arguments.chaos.then_some(Duration::from_secs(1)),
    })
    .await
}

/// Returns the gateway's binary, which is in the folder above the examples.
fn binary() -> Result<PathBuf, RunError> {
    let example = std::env::current_exe()?;
    let binary = example.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    let binary = binary.filter(|binary| binary.exists());
    Ok(binary.ok_or("`tidegate` not found: run `cargo build` with the same profile first")?)
}
