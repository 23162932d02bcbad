//! Measures the cost of a decision in Redis: `cargo bench --bench acquire`.
//!
//! Starts a `redis-server` and takes permits of several buckets at 31/32 of their rate. The benchmark supplies the
//! times of the decisions, so a simulated minute passes as fast as Redis decides. All figures come from Redis: the time
//! per call (`INFO commandstats`), the longest calls (`SLOWLOG`), and the memory (`MEMORY USAGE`). The last line is an
//! acquire script for Redisson, written from its documented behaviour.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]

mod bucket;
#[path = "../support/redis.rs"]
mod redis;
mod server;
mod subject;
mod table;

use std::error::Error;
use std::time::Duration;

use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::clock::Stopwatch;
use tidegate_limit::{Algorithm, Quota};

use self::bucket::MeasuredBucket;
use self::server::Server;
use self::subject::Subject;
use self::table::Table;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INTERVAL: u64 = 60_000;
const RATES: [u64; 7] = [10, 100, 512, 1_000, 10_000, 100_000, 1_000_000];
/// The rate of the algorithms whose state does not grow with the rate.
const RATE: u64 = 1_000;
const REDISSON_RATE: u64 = 100_000;
const SEGMENTS: u32 = 60;

/// The number of rounds; the table shows their medians. The buckets alternate, so that changes of the machine's speed
/// affect all of them.
const ROUNDS: usize = 9;
/// The number of times that all permits of a bucket expire together.
const EXPIRIES: usize = 3;
const MAX_DURATION: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
async fn main() -> Result<()> {
    let stopwatch = Stopwatch::start();
    let mut server = Server::start().await?;
    let mut buckets = buckets(&server)?;
    for bucket in &mut buckets {
        bucket.fill().await?;
        bucket.run_round(&mut server).await?; // Redis loads the scripts
        bucket.clear_rounds();
    }
    for _ in 0..ROUNDS {
        for bucket in &mut buckets {
            bucket.run_round(&mut server).await?;
            bucket.record_memory(&mut server).await?;
        }
    }
    for bucket in &mut buckets {
        for _ in 0..EXPIRIES {
            bucket.request_all(&mut server).await?;
            bucket.expire(&mut server).await?;
            bucket.fill().await?;
            check_duration(&stopwatch)?;
        }
    }
    println!("{}", Table { buckets: &buckets, redis: server.version()?, seconds: stopwatch.elapsed().as_secs() });
    Ok(())
}

fn check_duration(stopwatch: &Stopwatch) -> Result<()> {
    match stopwatch.elapsed() > MAX_DURATION {
        true => Err("this machine is too busy to measure anything".into()),
        false => Ok(()),
    }
}

fn buckets(server: &Server) -> Result<Vec<MeasuredBucket>> {
    let algorithms = [
        Algorithm::Gcra { burst: u32::try_from(RATE)? },
        Algorithm::LeakyBucket(Queue { length: u32::try_from(RATE)?, max_wait: INTERVAL }),
        Algorithm::SlidingWindow { segments: SEGMENTS },
        Algorithm::FixedWindow(Calendar::new(Unit::Minute, "UTC")?),
    ];
    let token_buckets = RATES.iter().map(|rate| Quota::new(*rate, INTERVAL, Algorithm::TokenBucket));
    let others = algorithms.into_iter().map(|algorithm| Quota::new(RATE, INTERVAL, algorithm));
    let tidegate = token_buckets.chain(others).map(|quota| Subject::tidegate(server, quota?));
    let redisson = std::iter::once_with(|| Subject::redisson(server, REDISSON_RATE, INTERVAL));
    tidegate.chain(redisson).map(|subject| Ok(MeasuredBucket::new(subject?, INTERVAL))).collect()
}
