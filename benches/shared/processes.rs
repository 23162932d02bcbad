//! Two programs of the library ask for permits of one limiter as fast as they can.

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::{Mode, RateConfig, RateLimiter, Store};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Result;
use super::redis::Redis;

/// The microseconds between which a permit was granted.
pub type Grant = (u64, u64);

/// What the first argument of a program says that asks.
pub const ROLE: &str = "asks";

const NAME: &str = "shared";
const ASKERS: usize = 32;
const SECONDS: u64 = 5;

/// What two programs got.
pub struct Shares {
    /// How much of what the rate allows.
    pub part: f64,
    /// The most certain grants in one interval.
    pub fullest: usize,
    pub each: [usize; 2],
}

/// Lets two programs ask for permits of a limiter of so many a second.
pub async fn measure(server: &Redis, rate: u64) -> Result<Shares> {
    let limiter = RateLimiter::new(Store::redis(&server.url())?, NAME)?;
    limiter.set_rate(&RateConfig::new(Mode::Overall, rate, Duration::from_secs(1))?).await?;
    let (one, other) = tokio::join!(program(server), program(server));
    let (one, other) = (one?, other?);
    let each = [one.len(), other.len()];
    let first = one.iter().chain(&other).map(|grant| grant.0).min().unwrap_or(0);
    let all: Vec<Grant> = [one, other].concat();
    // Both programs ask by then, and the permits of the first moment have returned once or not at all.
    let span = (SECONDS - 1) * 1_000_000;
    let granted = all.iter().filter(|grant| grant.1 < first + span).count();
    let part = granted as f64 / (rate * (SECONDS - 1)) as f64;
    // Windows are counted in milliseconds of the store's clock.
    Ok(Shares { part, fullest: fullest_window(&all, 999_000), each })
}

async fn program(server: &Redis) -> Result<Vec<Grant>> {
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

/// What such a program does: it asks, and says when each permit was granted.
#[expect(clippy::print_stdout, reason = "the other program reads it")]
pub async fn ask(url: &str) -> Result<()> {
    let limiter = RateLimiter::new(Store::redis(url)?, NAME)?;
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        let limiter = limiter.clone();
        askers.spawn(async move {
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
    while let Some(grants) = askers.join_next().await {
        grants??.into_iter().for_each(|(since, until)| lines.push_str(&format!("{since} {until}\n")));
    }
    print!("{lines}");
    Ok(())
}

/// The most grants that certainly lie in one window of so many microseconds, none of which took as long: of those that
/// ended before its end, the ones that did not begin before it.
fn fullest_window(grants: &[Grant], length: u64) -> usize {
    let mut begins: Vec<u64> = grants.iter().map(|grant| grant.0).collect();
    let mut ends: Vec<u64> = grants.iter().map(|grant| grant.1).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let certain =
        |(before, begin): (usize, &u64)| ends.partition_point(|end| *end < begin + length).saturating_sub(before);
    begins.iter().enumerate().map(certain).max().unwrap_or(0)
}

/// Now, as all programs of this machine see it.
#[expect(clippy::disallowed_methods, reason = "other programs write by the same clock")]
pub fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
