//! How soon a program that waits learns of what another one has released.

use std::process::Stdio;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::{Mode, RateConfig, RateLimiter, Store};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::sleep;

use super::Result;
use super::processes::micros;
use super::redis::Redis;

/// What the first argument of a program says that waits.
pub const ROLE: &str = "waits";

const NAME: &str = "released";
const TIMES: u64 = 30;
const RELEASE: &str = include_str!("../../tests/it/support/redisson_release.lua");

/// The milliseconds from a `release()` of a client of Redisson until a program of the library has its permit: the median
/// and the longest.
pub async fn measure(server: &Redis) -> Result<(f64, f64)> {
    let mut redis = server.connect()?;
    let limiter = RateLimiter::new(Store::redis(&server.url())?, NAME)?;
    limiter.set_rate(&RateConfig::new(Mode::Overall, TIMES, Duration::from_secs(3_600))?).await?;
    limiter.acquire(u32::try_from(TIMES)?).await?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut program = command.args([ROLE, &server.url()]).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut granted = BufReader::new(program.stdout.take().ok_or("no output")?).lines();
    let mut delays = Vec::new();
    for time in 0..TIMES {
        // At another moment of its wait each time.
        sleep(Duration::from_millis(300 + 7 * time)).await;
        let since = micros();
        let mut call = cmd("EVAL");
        call.arg(RELEASE).arg(5).arg(&[NAME, "{released}:value", "-", "{released}:permits", "-"]).arg(1);
        call.exec(&mut redis)?;
        let at: u64 = granted.next_line().await?.ok_or("it has ended")?.parse()?;
        delays.push(at.saturating_sub(since) as f64 / 1_000.0);
    }
    delays.sort_by(f64::total_cmp);
    let longest = delays.last().copied().unwrap_or(f64::NAN);
    Ok((super::median(delays), longest))
}

/// What such a program does: it says when it was granted a permit.
#[expect(clippy::print_stdout, reason = "the other program reads it")]
pub async fn wait(url: &str) -> Result<()> {
    let limiter = RateLimiter::new(Store::redis(url)?, NAME)?;
    for _ in 0..TIMES {
        limiter.acquire(1).await?;
        println!("{}", micros());
    }
    Ok(())
}
