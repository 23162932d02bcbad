//! What a call costs Redis: for each rate a log is filled as peers leave it, an entry for each permit; then permits are asked
//! for one by one, at times that are made up: at the pace of the rate, so that each call finds one that has returned, and
//! then while all are in use. Beside it the same is asked by Redisson's script, written down from its described behaviour, of
//! a Redis of its own. Rounds of the two take turns, so that both have the same machine.

use deadpool_redis::redis::{Connection, InfoDict, cmd};

use super::redis::Redis;
use super::subject::Subject;
use super::{Result, median};

/// Permits, and the milliseconds in which there are so many.
pub const RATES: [(u64, u64); 5] = [(10, 1_000), (500, 1_000), (10_000, 1_000), (100_000, 5_000), (1_000_000, 1_000)];
/// When time begins.
const START: u64 = 1_800_000_000_000;
/// Calls in a round, and rounds of which the median counts.
const CALLS: u64 = 1_000;
const ROUNDS: usize = 41;

/// Fills a log over an interval, with an entry for each permit, and sets the counter.
const FILL: &str = "
for i = ARGV[1], ARGV[2] - 1 do
  local at = ARGV[3] + math.floor(i * ARGV[4] / ARGV[5])
  redis.call('ZADD', KEYS[1], string.format('%.0f', at), struct.pack('<BI4I4I4I4I4', 16, i, 0, 0, 0, 1))
end
redis.call('SET', KEYS[2], ARGV[5] - ARGV[2])";

/// Microseconds of Redis's processor for a call that grants, and for one that refuses: all that it does for it.
#[derive(Clone, Copy)]
pub struct Cost {
    pub granted: f64,
    pub refused: f64,
}

/// A Redis, who asks it, and what each round cost.
struct Side {
    redis: Connection,
    subject: Subject,
    rounds: Vec<Cost>,
}

/// What Redisson's script costs, a call of ours, and how many times as much that is in a round: what else the machine does then
/// disturbs both.
pub struct Compared {
    pub theirs: Cost,
    pub ours: Cost,
    pub times: Cost,
}

/// Compares them at one rate.
pub async fn measure(servers: [&Redis; 2], (rate, interval): (u64, u64)) -> Result<Compared> {
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
            let granted = side.spent(&paced, true).await?;
            let refused = side.spent(&at_once, false).await?;
            side.rounds.push(Cost { granted, refused });
        }
    }
    // In the first round Redis learns the script, and we the log.
    let [theirs, ours] = [0, 1].map(|side| sides[side].rounds[1..].to_vec());
    let times = ours.iter().zip(&theirs).map(|(ours, theirs)| ours.over(theirs)).collect::<Vec<_>>();
    Ok(Compared { theirs: Cost::median(&theirs), ours: Cost::median(&ours), times: Cost::median(&times) })
}

impl Cost {
    fn over(&self, other: &Self) -> Self {
        Self { granted: self.granted / other.granted, refused: self.refused / other.refused }
    }

    fn median(rounds: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(rounds.iter().map(part).collect());
        Self { granted: of(|round| round.granted), refused: of(|round| round.refused) }
    }
}

impl Side {
    async fn spent(&mut self, moments: &[u64], granted: bool) -> Result<f64> {
        let before = processor_time(&mut self.redis)?;
        self.subject.ask(moments, granted).await?;
        Ok((processor_time(&mut self.redis)? - before) * 1e6 / moments.len() as f64)
    }
}

/// Seconds of a processor that the thread which runs scripts has used.
fn processor_time(redis: &mut Connection) -> Result<f64> {
    let info: InfoDict = cmd("INFO").arg("cpu").query(redis)?;
    let of = |name: &str| info.get::<f64>(name).ok_or("no processor time");
    Ok(of("used_cpu_user_main_thread")? + of("used_cpu_sys_main_thread")?)
}

/// An entry for each permit of an interval.
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
