//! Two processes use the library to take permits of one limiter as fast as they can.

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::Store;
use tidegate::redisson::{Mode, RateConfig, RateLimiter};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Result;
use super::redis::Redis;

/// The times before and after the call that was granted, in microseconds.
pub type Grant = (u64, u64);

/// The first argument of a process that takes permits.
pub const ROLE: &str = "take-permits";

const NAME: &str = "shared";
const TASKS: usize = 32;
const SECONDS: u64 = 5;

/// The permits that two processes got.
pub struct Shares {
    /// The granted share of the rate.
    pub granted_share: f64,
    /// The most permits that were certainly granted within one interval.
    pub fullest: usize,
    pub each: [usize; 2],
}

/// Lets two processes take permits of a limiter with `rate` permits per second.
pub async fn measure(server: &Redis, rate: u64) -> Result<Shares> {
    let limiter = RateLimiter::new(Store::redis(&server.url())?, NAME)?;
    limiter.set_rate(&RateConfig::new(Mode::Overall, rate, Duration::from_secs(1))?).await?;
    let (one, other) = tokio::join!(run_process(server), run_process(server));
    let (one, other) = (one?, other?);
    let each = [one.len(), other.len()];
    let first = one.iter().chain(&other).map(|grant| grant.0).min().unwrap_or(0);
    let all: Vec<Grant> = [one, other].concat();
    // Ignores the last second, in which one process may have ended before the other.
    let span = (SECONDS - 1) * 1_000_000;
    let granted = all.iter().filter(|grant| grant.1 < first + span).count();
    let granted_share = granted as f64 / (rate * (SECONDS - 1)) as f64;
    // The store's clock has a resolution of one millisecond.
    Ok(Shares { granted_share, fullest: fullest_window(&all, 999_000), each })
}

async fn run_process(server: &Redis) -> Result<Vec<Grant>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ROLE, &server.url()]).stdout(Stdio::piped()).kill_on_drop(true);
    let output = command.spawn()?.wait_with_output().await?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let grant = |line: &str| -> Result<Grant> {
        let (since, until) = line.split_once(' ').ok_or("no pair")?;
        Ok((number(since)?, number(until)?))
    };
    String::from_utf8(output.stdout)?.lines().map(grant).collect()
}

/// Runs a process that takes permits, and prints the times of each grant.
#[expect(clippy::print_stdout, reason = "the benchmark reads the output")]
pub async fn take_permits(url: &str) -> Result<()> {
    let limiter = RateLimiter::new(Store::redis(url)?, NAME)?;
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut grants = Vec::new();
            while Instant::now() < end {
                let since = micros();
                match limiter.try_acquire(1).await.map(|taken| taken.granted) {
                    Ok(true) => grants.push((since, micros())),
                    Ok(false) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(grants)
        });
    }
    let mut lines = String::new();
    while let Some(grants) = tasks.join_next().await {
        grants??.into_iter().for_each(|(since, until)| lines.push_str(&format!("{since} {until}\n")));
    }
    print!("{lines}");
    Ok(())
}

/// Returns the most grants that certainly lie within one window of `length` microseconds. These are the grants that
/// ended before the end of the window, without those that started before it. Assumes that no call takes as long as
/// the window.
fn fullest_window(grants: &[Grant], length: u64) -> usize {
    let mut begins: Vec<u64> = grants.iter().map(|grant| grant.0).collect();
    let mut ends: Vec<u64> = grants.iter().map(|grant| grant.1).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let certain =
        |(before, begin): (usize, &u64)| ends.partition_point(|end| *end < begin + length).saturating_sub(before);
    begins.iter().enumerate().map(certain).max().unwrap_or(0)
}

/// Returns the wall-clock time in microseconds, which all processes of the machine share.
#[expect(clippy::disallowed_methods, reason = "the processes share this clock")]
pub fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
