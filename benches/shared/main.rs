//! What a limiter that Java services use costs Redis: `cargo bench --bench shared`.
//!
//! It starts a `redis-server` of its own. For each rate, a log is filled as peers leave it, an entry for each permit;
//! then permits are asked for one by one, at times that it makes up: at the pace of the rate, so that each call finds one
//! that has returned, and then while all are in use. Beside it the same is asked by Redisson's script, written down from
//! its described behaviour, on a log of its own. All numbers are Redis's time for a call (`INFO commandstats`).

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

#[path = "../support/redis.rs"]
mod redis;
mod subject;

use std::error::Error;

use deadpool_redis::redis::{Connection, InfoDict, cmd};

use self::redis::Redis;
use self::subject::Subject;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INTERVAL: u64 = 5_000;
const RATES: [u64; 5] = [10, 500, 10_000, 100_000, 1_000_000];
/// When time begins.
const START: u64 = 1_800_000_000_000;
/// Calls in a round, and rounds of which the median counts.
const CALLS: u64 = 1_000;
const ROUNDS: usize = 9;

/// Fills a log over an interval, with an entry for each permit, and sets the counter.
const FILL: &str = "
for i = ARGV[1], ARGV[2] - 1 do
  local at = ARGV[3] + math.floor(i * ARGV[4] / ARGV[5])
  redis.call('ZADD', KEYS[1], string.format('%.0f', at), struct.pack('<BI4I4I4I4I4', 16, i, 0, 0, 0, 1))
end
redis.call('SET', KEYS[2], ARGV[5] - ARGV[2])";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
async fn main() -> Result<()> {
    let server = Redis::start(&[]).await?;
    let mut redis = server.connect()?;
    println!("{:>9}  {:^23}  {:^23}", "", "granted, us a call", "refused, us a call");
    println!("{:>9}  {:>8} {:>8} {:>5}  {:>8} {:>8} {:>5}", "rate", "Redisson", "shared", "", "Redisson", "shared", "");
    for rate in RATES {
        let redisson = measure(&mut redis, Subject::redisson(&server)?, rate).await?;
        let shared = measure(&mut redis, Subject::shared(&server)?, rate).await?;
        print!("{rate:>9}");
        for (theirs, ours) in [(redisson.0, shared.0), (redisson.1, shared.1)] {
            print!("  {theirs:>8.1} {ours:>8.1} {:>5.2}", ours / theirs);
        }
        println!();
    }
    let version = redis::version(&mut redis)?;
    println!("per {INTERVAL} ms; Redis {version}; the medians of {ROUNDS} rounds of {CALLS} calls");
    Ok(())
}

/// Microseconds for a call that grants, and for one that refuses.
async fn measure(redis: &mut Connection, mut subject: Subject, rate: u64) -> Result<(f64, f64)> {
    cmd("FLUSHALL").exec(redis)?;
    cmd("HSET").arg("java").arg(&["type", "0", "keepAliveTime", "0"]).exec(redis)?;
    cmd("HSET").arg("java").arg("rate").arg(rate).arg("interval").arg(INTERVAL).exec(redis)?;
    fill(redis, rate)?;
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS as u64 {
        let at = |call: u64| START + INTERVAL + (round * CALLS + call) * INTERVAL / rate;
        let paced: Vec<u64> = (0..CALLS).map(at).collect();
        granted.push(spent(redis, &mut subject, &paced, true).await?);
        let at_once: Vec<u64> = (0..CALLS).map(|_| at(CALLS - 1)).collect();
        refused.push(spent(redis, &mut subject, &at_once, false).await?);
    }
    // In the first round Redis learns the script, and we the log.
    Ok((median(granted.split_off(1)), median(refused.split_off(1))))
}

async fn spent(redis: &mut Connection, subject: &mut Subject, moments: &[u64], granted: bool) -> Result<f64> {
    cmd("CONFIG").arg("RESETSTAT").exec(redis)?;
    subject.ask(moments, granted).await?;
    let info: InfoDict = cmd("INFO").arg("commandstats").query(redis)?;
    let of = |name: &str| info.get::<String>(name);
    let line = of("cmdstat_fcall").or_else(|| of("cmdstat_evalsha")).ok_or("no script ran")?;
    let per_call = line.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    Ok(per_call.ok_or("no time")?.parse()?)
}

/// An entry for each permit of an interval.
fn fill(redis: &mut Connection, rate: u64) -> Result<()> {
    const STEP: u64 = 10_000;
    for from in (0..rate).step_by(usize::try_from(STEP)?) {
        let mut call = cmd("EVAL");
        call.arg(FILL).arg(2).arg("{java}:permits").arg("{java}:value").arg(from).arg((from + STEP).min(rate));
        call.arg(START).arg(INTERVAL).arg(rate).exec(redis)?;
    }
    Ok(())
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN)
}
