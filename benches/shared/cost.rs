//! Measures the CPU time of Redis for a call.
//!
//! For each rate, the log starts with one entry per permit, as Redisson clients leave it. Single permits are then
//! requested at simulated times: first at the pace of the rate, so that each call finds one available permit, then
//! while all permits are in use. The acquire script for Redisson, written from its documented behaviour, does the same
//! in another Redis. Rounds of both alternate, so that changes of the machine's speed affect both.

use deadpool_redis::redis::{Connection, InfoDict, cmd};

use super::redis::Redis;
use super::subject::Subject;
use super::{Result, median};

/// Pairs of a number of permits and an interval in milliseconds.
pub const RATES: [(u64, u64); 5] = [(10, 1_000), (500, 1_000), (10_000, 1_000), (100_000, 5_000), (1_000_000, 1_000)];
/// The simulated start time.
const START: u64 = 1_800_000_000_000;
/// The calls of a round, and the rounds of which the median counts.
const CALLS: u64 = 1_000;
const ROUNDS: usize = 41;

/// Fills the log with one entry per permit over an interval, and sets the counter.
const FILL: &str = "
for i = ARGV[1], ARGV[2] - 1 do
  local at = ARGV[3] + math.floor(i * ARGV[4] / ARGV[5])
  redis.call('ZADD', KEYS[1], string.format('%.0f', at), struct.pack('<BI4I4I4I4I4', 16, i, 0, 0, 0, 1))
end
redis.call('SET', KEYS[2], ARGV[5] - ARGV[2])";

/// The CPU time of Redis for a granted and for a rejected call, in microseconds.
#[derive(Clone, Copy)]
pub struct Cost {
    pub granted: f64,
    pub rejected: f64,
}

/// A Redis, the caller of its script, and the cost of each round.
struct Side {
    redis: Connection,
    subject: Subject,
    rounds: Vec<Cost>,
}

/// The costs of Redisson's script and of Tidegate, and the median ratio of both within a round. Other load of the
/// machine affects both sides of a round.
pub struct Comparison {
    pub redisson: Cost,
    pub tidegate: Cost,
    pub ratio: Cost,
}

/// Compares both at one rate.
pub async fn measure(servers: [&Redis; 2], (rate, interval): (u64, u64)) -> Result<Comparison> {
    let subjects = [Subject::redisson(servers[0]).await?, Subject::shared(servers[1])?];
    let mut sides = Vec::new();
    for (server, subject) in servers.into_iter().zip(subjects) {
        let mut redis = server.connect()?;
        fill(&mut redis, rate, interval)?;
        sides.push(Side { redis, subject, rounds: Vec::new() });
    }
    for round in 0..=ROUNDS as u64 {
        let at = |call: u64| START + interval + (round * CALLS + call) * interval / rate;
        let paced: Vec<u64> = (0..CALLS).map(at).collect();
        let at_once = vec![at(CALLS - 1); usize::try_from(CALLS)?];
        for side in &mut sides {
            let granted = side.run_calls(&paced, true).await?;
            let rejected = side.run_calls(&at_once, false).await?;
            side.rounds.push(Cost { granted, rejected });
        }
    }
    // The first round is a warm-up: Redis loads the script, and Tidegate reads the log for the first time.
    let [redisson, tidegate] = [0, 1].map(|side| sides[side].rounds[1..].to_vec());
    let ratio =
        tidegate.iter().zip(&redisson).map(|(tidegate, redisson)| tidegate.ratio_to(redisson)).collect::<Vec<_>>();
    Ok(Comparison { redisson: Cost::median(&redisson), tidegate: Cost::median(&tidegate), ratio: Cost::median(&ratio) })
}

impl Cost {
    fn ratio_to(&self, other: &Self) -> Self {
        Self { granted: self.granted / other.granted, rejected: self.rejected / other.rejected }
    }

    fn median(rounds: &[Self]) -> Self {
        let median_of = |part: fn(&Self) -> f64| median(rounds.iter().map(part).collect());
        Self { granted: median_of(|round| round.granted), rejected: median_of(|round| round.rejected) }
    }
}

impl Side {
    async fn run_calls(&mut self, times: &[u64], granted: bool) -> Result<f64> {
        let before = cpu_seconds(&mut self.redis)?;
        self.subject.take(times, granted).await?;
        Ok((cpu_seconds(&mut self.redis)? - before) * 1e6 / times.len() as f64)
    }
}

/// Returns the CPU time of the main thread of Redis, which runs the scripts, in seconds.
fn cpu_seconds(redis: &mut Connection) -> Result<f64> {
    let info: InfoDict = cmd("INFO").arg("cpu").query(redis)?;
    let stat = |name: &str| info.get::<f64>(name).ok_or("no CPU time");
    Ok(stat("used_cpu_user_main_thread")? + stat("used_cpu_sys_main_thread")?)
}

/// Fills the log with one entry per permit of an interval.
fn fill(redis: &mut Connection, rate: u64, interval: u64) -> Result<()> {
    const STEP: u64 = 10_000;
    cmd("FLUSHALL").exec(redis)?;
    cmd("HSET").arg("java").arg(&["type", "0", "keepAliveTime", "0"]).exec(redis)?;
    cmd("HSET").arg("java").arg("rate").arg(rate).arg("interval").arg(interval).exec(redis)?;
    for from in (0..rate).step_by(usize::try_from(STEP)?) {
        let mut call = cmd("EVAL");
        call.arg(FILL).arg(2).arg("{java}:permits").arg("{java}:value").arg(from).arg((from + STEP).min(rate));
        call.arg(START).arg(interval).arg(rate).exec(redis)?;
    }
    Ok(())
}
