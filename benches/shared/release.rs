//! Measures the delay until a waiting process gets a permit that a Redisson client releases.

use std::process::Stdio;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::Store;
use tidegate::redisson::{Mode, RateConfig, RateLimiter};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::sleep;

use super::Result;
use super::processes::micros;
use super::redis::Redis;

/// The first argument of a process that waits for permits.
pub const ROLE: &str = "wait-for-permits";

const NAME: &str = "released";
const RELEASES: u64 = 30;
const RELEASE_SCRIPT: &str = include_str!("../../tests/it/support/redisson_release.lua");

/// Returns the median and the longest time from a `release()` of a Redisson client until a process with the library has
/// the permit, in milliseconds.
pub async fn measure(server: &Redis) -> Result<(f64, f64)> {
    let mut redis = server.connect()?;
    let limiter = RateLimiter::new(Store::redis(&server.url())?, NAME)?;
    limiter.set_rate(&RateConfig::new(Mode::Overall, RELEASES, Duration::from_secs(3_600))?).await?;
    limiter.acquire(u32::try_from(RELEASES)?).await?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut program = command.args([ROLE, &server.url()]).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut granted = BufReader::new(program.stdout.take().ok_or("no output")?).lines();
    let mut delays = Vec::new();
    for number in 0..RELEASES {
        // Releases at another phase of the waiting caller's poll interval each time.
        sleep(Duration::from_millis(300 + 7 * number)).await;
        let since = micros();
        let mut call = cmd("EVAL");
        call.arg(RELEASE_SCRIPT).arg(5).arg(&[NAME, "{released}:value", "-", "{released}:permits", "-"]).arg(1);
        call.exec(&mut redis)?;
        let at: u64 = granted.next_line().await?.ok_or("the process has exited")?.parse()?;
        delays.push(at.saturating_sub(since) as f64 / 1_000.0);
    }
    delays.sort_by(f64::total_cmp);
    let longest = delays.last().copied().unwrap_or(f64::NAN);
    Ok((super::median(delays), longest))
}

/// Runs a process that waits for permits, and prints the time of each grant.
#[expect(clippy::print_stdout, reason = "the benchmark reads the output")]
pub async fn wait(url: &str) -> Result<()> {
    let limiter = RateLimiter::new(Store::redis(url)?, NAME)?;
    for _ in 0..RELEASES {
        limiter.acquire(1).await?;
        println!("{}", micros());
    }
    Ok(())
}
