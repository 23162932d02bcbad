//! Two processes share one limit: `cargo run --example rate_limiter [redis://127.0.0.1:6379]`.
//!
//! The example starts a second copy of itself. For three seconds both processes take permits as fast as they can from a
//! limiter of 20 permits per second in Redis (the argument, or `REDIS_URL`). Together they get as many permits as one
//! process alone. A Java service with `redisson.getRateLimiter("tidegate-example")` could share the limiter.

#![expect(clippy::print_stdout, reason = "the example prints its result")]

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate::Store;
use tidegate::redisson::{RateConfig, RateLimiter};
use tokio::time::{Instant, timeout_at};

const RATE: u64 = 20;
const SECONDS: u64 = 3;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Set in the child process, so that it does not start another child.
const CHILD: &str = "TIDEGATE_EXAMPLE_CHILD";

#[tokio::main]
async fn main() -> Result<()> {
    let redis = std::env::args().nth(1).or_else(|| std::env::var("REDIS_URL").ok());
    let redis = redis.unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let limiter = limiter(&redis)?;
    if std::env::var_os(CHILD).is_some() {
        println!("{}", take_all(&limiter).await?);
        return Ok(());
    }
    let config = RateConfig::per_second(RATE)?;
    limiter.ensure_rate(&config.with_keep_alive(Duration::from_secs(60))?).await?;
    let child = Command::new(std::env::current_exe()?).arg(&redis).env(CHILD, "1").stdout(Stdio::piped()).spawn()?;
    let own = take_all(&limiter).await?;
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await??;
    let child_permits: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
    println!("{RATE} permits per second for {SECONDS} seconds: the parent got {own}, its child {child_permits}");
    println!("together {}; no window of one second has more than {RATE}", own + child_permits);
    limiter.delete().await?;
    Ok(())
}

fn limiter(redis: &str) -> Result<RateLimiter> {
    let store = Store::redis_builder(redis).timeout(Duration::from_secs(1)).open()?;
    Ok(RateLimiter::new(store, "tidegate-example")?)
}

/// Takes permits one by one until the deadline. The last call is cancelled while it waits, and is not charged.
async fn take_all(limiter: &RateLimiter) -> Result<u64> {
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut permits = 0;
    while let Ok(acquired) = timeout_at(end, limiter.acquire(1)).await {
        acquired?;
        permits += 1;
    }
    Ok(permits)
}
