//! What a decision costs Redis: `cargo bench --bench acquire`.
//!
//! It starts a `redis-server` of its own and lets buckets live under a demand of 31 in 32 of their rate, decision by
//! decision, at times that it makes up: a minute passes as fast as Redis decides. All numbers are Redis's: its time per
//! call (`INFO commandstats`), its longest calls (`SLOWLOG`), its memory (`MEMORY USAGE`). The last line is Redisson's
//! way of doing it, written down from its described behaviour.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

mod life;
#[path = "../support/redis.rs"]
mod redis;
mod server;
mod subject;
mod table;

use std::error::Error;
use std::time::Duration;

use tidegate::internals::clock::Stopwatch;
use tidegate::internals::limit::calendar::{Calendar, Unit};
use tidegate::internals::limit::leaky_bucket::Queue;
use tidegate::internals::limit::{Algorithm, Quota};

use self::life::Life;
use self::server::Server;
use self::subject::Subject;
use self::table::Table;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INTERVAL: u64 = 60_000;
const RATES: [u64; 7] = [10, 100, 512, 1_000, 10_000, 100_000, 1_000_000];
/// That of the algorithms whose state does not grow with it.
const RATE: u64 = 1_000;
const REDISSON_RATE: u64 = 100_000;
const SEGMENTS: u32 = 60;

/// Rounds, of which the medians are told. Lives take turns, so that none has the quiet moments of the machine alone.
const ROUNDS: usize = 9;
/// How often everything that a life has taken expires together.
const EXPIRIES: usize = 3;
const LONGEST: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
async fn main() -> Result<()> {
    let stopwatch = Stopwatch::start();
    let mut server = Server::start().await?;
    let mut lives = lives(&server)?;
    for life in &mut lives {
        life.fill().await?;
        life.round(&mut server).await?; // Redis learns the scripts
        life.forget_rounds();
    }
    for _ in 0..ROUNDS {
        for life in &mut lives {
            life.round(&mut server).await?;
            life.weigh(&mut server).await?;
        }
    }
    for life in &mut lives {
        for _ in 0..EXPIRIES {
            life.ask_for_all(&mut server).await?;
            life.expire(&mut server).await?;
            life.fill().await?;
            within_time(&stopwatch)?;
        }
    }
    println!("{}", Table { lives: &lives, redis: server.version()?, seconds: stopwatch.elapsed().as_secs() });
    Ok(())
}

fn within_time(stopwatch: &Stopwatch) -> Result<()> {
    match stopwatch.elapsed() > LONGEST {
        true => Err("this machine is too busy to measure anything".into()),
        false => Ok(()),
    }
}

fn lives(server: &Server) -> Result<Vec<Life>> {
    let algorithms = [
        Algorithm::Gcra { burst: u32::try_from(RATE)? },
        Algorithm::LeakyBucket(Queue { length: u32::try_from(RATE)?, max_wait: INTERVAL }),
        Algorithm::SlidingWindow { segments: SEGMENTS },
        Algorithm::FixedWindow(Calendar::new(Unit::Minute, "UTC")?),
    ];
    let buckets = RATES.iter().map(|rate| Quota::new(*rate, INTERVAL, Algorithm::TokenBucket));
    let others = algorithms.into_iter().map(|algorithm| Quota::new(RATE, INTERVAL, algorithm));
    let ours = buckets.chain(others).map(|quota| Subject::ours(server, quota?));
    let redisson = std::iter::once_with(|| Subject::redisson(server, REDISSON_RATE, INTERVAL));
    ours.chain(redisson).map(|subject| Ok(Life::new(subject?, INTERVAL))).collect()
}
