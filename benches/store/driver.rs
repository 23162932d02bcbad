//! A process that does nothing but ask the store: so many tasks on one thread, each of which asks again as soon as it is
//! answered.

use std::io::{BufRead, Write, stdin, stdout};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::internals::StoreInternals;
use tidegate::internals::clock::Stopwatch;
use tidegate::internals::limit::Outcome;
use tidegate::internals::limit::{Charge, ClientId, Limiter};
use tidegate::internals::store::settings::{RedisSettings, RedisUrl, StoreSettings};
use tidegate::{Metrics, Mode, Store, StoreError};
use tokio::task::JoinSet;

use super::Result;
use super::histogram::Histogram;
use super::job::{Grant, Job, Report};
use super::scenario::{CLIENTS, named};

/// One that asks.
struct Asker {
    store: Store,
    limiters: Vec<Arc<Limiter>>,
    random: u64,
    /// Since when, and until when.
    stopwatch: Stopwatch,
    length: Duration,
    tally: Arc<Mutex<Tally>>,
}

/// What all of them were answered.
#[derive(Default)]
struct Tally {
    decisions: u64,
    latency: Histogram,
    /// Each with its client.
    grants: Vec<(u32, u64)>,
}

/// Nobody gives up: what is measured is how long it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does the jobs that come in on standard input, on a store in the Redis at this address.
pub async fn drive(url: &str) -> Result<()> {
    let settings = RedisSettings { timeout: PATIENCE, ..RedisSettings::new(RedisUrl::new(url.to_owned())) };
    let store = Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new()))?;
    for line in stdin().lock().lines() {
        let report = work(&store, &serde_json::from_str(&line?)?).await?;
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

async fn work(store: &Store, job: &Job) -> Result<Report> {
    let limiters = named(&job.scenario)?.limiters(job.run);
    let (tally, cpu, stopwatch) = (Arc::new(Mutex::new(Tally::default())), cpu(), Stopwatch::start());
    let mut askers = JoinSet::new();
    for number in 0..job.tasks {
        let asker = Asker {
            store: store.clone(),
            limiters: limiters.clone(),
            random: job.seed.wrapping_add(u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            stopwatch,
            length: Duration::from_millis(job.millis),
            tally: Arc::clone(&tally),
        };
        askers.spawn(asker.ask());
    }
    while let Some(asked) = askers.join_next().await {
        asked??;
    }
    let (seconds, spent) = (stopwatch.elapsed().as_secs_f64(), cpu.zip(self::cpu()).map(|(from, to)| to - from));
    let Tally { decisions, latency, grants } = std::mem::take(&mut *tally.lock());
    Ok(Report { decisions, seconds, cpu: spent, latency, grants: by_millisecond(grants) })
}

/// Counts those of one client in one millisecond together.
fn by_millisecond(mut grants: Vec<(u32, u64)>) -> Vec<Grant> {
    grants.sort_unstable();
    let count = |same: &[(u32, u64)]| (same[0].0, same[0].1, same.len() as u64);
    grants.chunk_by(|one, next| one == next).map(count).collect()
}

/// The seconds of the processor that this process has taken.
fn cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // What is before the bracket may be anything; the fields behind it begin with the third. Linux counts in hundredths.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

// === impl Asker ===

impl Asker {
    async fn ask(mut self) -> std::result::Result<(), StoreError> {
        let mut before = self.stopwatch.elapsed();
        while before < self.length {
            let client = self.draw();
            let outcome = self.store.take(&self.charges(client)).await?;
            let after = self.stopwatch.elapsed();
            self.tally.lock().note(after.saturating_sub(before), client, &outcome);
            before = after;
        }
        Ok(())
    }

    fn charges(&self, client: u32) -> Vec<Charge> {
        let address = || ClientId::Address(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + client)).into());
        let charge = |limiter: &Arc<Limiter>| Charge {
            limiter: Arc::clone(limiter),
            client: (limiter.mode == Mode::PerClient).then(address),
            permits: 1,
            shadow: false,
        };
        self.limiters.iter().map(charge).collect()
    }

    /// A client, by xorshift; 0 where there are none.
    fn draw(&mut self) -> u32 {
        if self.limiters.iter().all(|limiter| limiter.mode == Mode::Overall) {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(self.random % u64::from(CLIENTS)).unwrap_or(0)
    }
}

// === impl Tally ===

impl Tally {
    fn note(&mut self, latency: Duration, client: u32, outcome: &Outcome) {
        self.decisions += 1;
        self.latency.note(latency);
        if outcome.granted() {
            self.grants.push((client, outcome.now.as_millis()));
        }
    }
}
