//! A process that sends decisions to the store: a number of tasks on one thread, each of which sends the next decision
//! as soon as it has the result of the last.

use std::io::{BufRead, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::redisson::Mode;
use tidegate::{Metrics, Store, StoreError};
use tidegate_limit::clock::Stopwatch;
use tidegate_rules::charge::{Charge, ClientId, Limiter, Outcome};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};
use tokio::task::JoinSet;

use super::Result;
use super::histogram::Histogram;
use super::job::{Grant, Job, Report};
use super::scenario::{CLIENTS, find};

/// A task that sends decisions.
struct LoadTask {
    store: Store,
    limiters: Vec<Arc<Limiter>>,
    random: u64,
    /// Measures the time since the start of the job, which takes `length`.
    stopwatch: Stopwatch,
    length: Duration,
    totals: Arc<Mutex<Totals>>,
}

/// The results of all tasks.
#[derive(Default)]
struct Totals {
    decisions: u64,
    latency: Histogram,
    /// Pairs of a client and the time of a grant.
    grants: Vec<(u32, u64)>,
}

/// Long enough that no decision times out: the benchmark measures how long it takes.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the jobs from standard input with a store in the Redis at `url`, and writes a report of each to standard
/// output.
pub async fn run(url: &str) -> Result<()> {
    let settings = RedisSettings { timeout: STORE_TIMEOUT, ..RedisSettings::new(RedisUrl::new(url.to_owned())) };
    let store = Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new()))?;
    for line in stdin().lock().lines() {
        let report = run_job(&store, &serde_json::from_str(&line?)?).await?;
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

async fn run_job(store: &Store, job: &Job) -> Result<Report> {
    let limiters = find(&job.scenario)?.limiters(job.run);
    let (totals, cpu, stopwatch) = (Arc::new(Mutex::new(Totals::default())), cpu(), Stopwatch::start());
    let mut tasks = JoinSet::new();
    for number in 0..job.tasks {
        let task = LoadTask {
            store: store.clone(),
            limiters: limiters.clone(),
            random: job.seed.wrapping_add(u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            stopwatch,
            length: Duration::from_millis(job.millis),
            totals: Arc::clone(&totals),
        };
        tasks.spawn(task.run());
    }
    while let Some(joined) = tasks.join_next().await {
        joined??;
    }
    let (seconds, cpu_seconds) =
        (stopwatch.elapsed().as_secs_f64(), cpu.zip(self::cpu()).map(|(start, end)| end - start));
    let Totals { decisions, latency, grants } = std::mem::take(&mut *totals.lock());
    Ok(Report { decisions, seconds, cpu: cpu_seconds, latency, grants: by_millisecond(grants) })
}

/// Groups the grants of one client in the same millisecond.
fn by_millisecond(mut grants: Vec<(u32, u64)>) -> Vec<Grant> {
    grants.sort_unstable();
    let count = |same: &[(u32, u64)]| (same[0].0, same[0].1, same.len() as u64);
    grants.chunk_by(|one, next| one == next).map(count).collect()
}

/// Returns the CPU time of this process in seconds. Returns `None` without `/proc`.
fn cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program name, in parentheses, may contain spaces. The field after it is the third. Linux counts in 1/100 s.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

// === impl LoadTask ===

impl LoadTask {
    async fn run(mut self) -> std::result::Result<(), StoreError> {
        let mut before = self.stopwatch.elapsed();
        while before < self.length {
            let client = self.random_client();
            let outcome = self.store.take(&self.charges(client)).await?;
            let after = self.stopwatch.elapsed();
            self.totals.lock().record(after.saturating_sub(before), client, &outcome);
            before = after;
        }
        Ok(())
    }

    fn charges(&self, client: u32) -> Vec<Charge> {
        let address = || ClientId::Address(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + client)).into());
        let charge = |limiter: &Arc<Limiter>| {
            Charge::new(Arc::clone(limiter), (limiter.mode == Mode::PerClient).then(address), 1)
        };
        self.limiters.iter().map(charge).collect()
    }

    /// Returns a random client (xorshift), or 0 without limits per client.
    fn random_client(&mut self) -> u32 {
        if self.limiters.iter().all(|limiter| limiter.mode == Mode::Overall) {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(self.random % u64::from(CLIENTS)).unwrap_or(0)
    }
}

// === impl Totals ===

impl Totals {
    fn record(&mut self, latency: Duration, client: u32, outcome: &Outcome) {
        self.decisions += 1;
        self.latency.record(latency);
        if outcome.granted() {
            self.grants.push((client, outcome.now.as_millis()));
        }
    }
}
