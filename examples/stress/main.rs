//! Gateways on one Redis under more load than their limits let pass; a checker of its own then counts, by the times at
//! which Redis decided, that no window of any limit held more than its rate, and that nothing was withheld.
//!
//! ```text
//! cargo build --release
//! cargo run --release --example stress                 # 60 seconds
//! cargo run --release --example stress -- --chaos      # while gateways, rules, scripts and connections change
//! cargo run --release --example stress -- --full-speed # as many requests as the machine answers
//! ```
//!
//! It needs `redis-server`, and uses loopback alone. Exits 0 if the laws were kept, 1 if not; the logs of a run that
//! failed are kept.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

mod redis;
mod run;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::redis::Redis;
use self::run::{Failed, Run, Verdict};

/// Count that no limit grants more than its rate, or withholds any of it
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to ask
    #[arg(long, default_value = "60")]
    seconds: u64,
    /// Restart gateways, change rules, flush scripts and kill connections all the while
    #[arg(long)]
    chaos: bool,
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u16).range(1..=64))]
    gateways: u16,
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// Requests a second that all connections together send at most
    #[arg(long, default_value = "3000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Ask as fast as answers come
    #[arg(long, conflicts_with = "rate")]
    full_speed: bool,
    /// How many times the permits of the table are granted; at full speed 32, unless given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: Option<u64>,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let folder = std::env::temp_dir().join(format!("tidegate-stress-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let verdict = stress(&arguments, &folder).await.map_err(|error| format!("{error}; see {}", folder.display()))?;
    println!("{verdict}");
    if verdict.is_good() {
        fs::remove_dir_all(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED; see {}", folder.display());
    Ok(ExitCode::FAILURE)
}

async fn stress(arguments: &Arguments, folder: &Path) -> Result<Verdict, Failed> {
    let redis = Redis::start().await?;
    run::run(&Run {
        binary: binary()?,
        folder: folder.to_owned(),
        redis: redis.url(),
        gateways: arguments.gateways.into(),
        connections: arguments.connections.into(),
        rate: (!arguments.full_speed).then_some(arguments.rate),
        times: arguments.times.unwrap_or(if arguments.full_speed { 32 } else { 1 }),
        duration: Duration::from_secs(arguments.seconds),
        chaos: arguments.chaos.then_some(Duration::from_secs(1)),
    })
    .await
}

/// The program, which was built into the folder above the examples.
fn binary() -> Result<PathBuf, Failed> {
    let example = std::env::current_exe()?;
    let binary = example.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    let binary = binary.filter(|binary| binary.exists());
    Ok(binary.ok_or("no `tidegate` beside the examples: run `cargo build` with the same profile first")?)
}
