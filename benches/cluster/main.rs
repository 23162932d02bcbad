//! Measures the throughput of three cluster nodes relative to a single Redis, all fully loaded: `cargo bench --bench
//! cluster`.
//!
//! Each server gets the same small share of a CPU, so that one gateway can saturate three servers.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]
#![allow(clippy::expect_used, clippy::panic, reason = "a measurement that cannot continue ends")]
#![allow(clippy::print_stdout, reason = "the benchmark prints its result")]

#[path = "../../tests/it/support/cluster.rs"]
mod cluster;
#[path = "../../tests/it/support/redis.rs"]
#[allow(dead_code, reason = "not every user needs all of it")]
mod redis;
mod server;
#[path = "../../tests/it/support/tls.rs"]
#[allow(dead_code, reason = "not every user needs all of it")]
mod tls;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use tidegate::Store;
use tidegate::redisson::Mode;
use tidegate_limit::clock::Stopwatch;
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, ClientId, Limiter};

use self::cluster::RedisCluster;
use self::redis::{RedisServer, fresh_name, wait_a_little};
use self::server::{Slice, give_slice, seconds};
use self::worker::Workers;

/// Number of measurements of each case. The cases alternate, so that all have the same noise.
const ROUNDS: u32 = 3;
const WARM_UP: Duration = Duration::from_millis(500);
const ROUND: Duration = Duration::from_secs(2);
/// The deadline of a decision for servers with a whole CPU. Long, because a server may wait for its share.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Number of workers, and of concurrent requests to a single Redis. Three nodes get the same concurrency and three
/// times as much: by Little's law, three times the throughput needs three times the concurrency.
const LOADS: [[usize; 2]; 5] = [[1, 2_048], [1, 512], [1, 64], [4, 512], [16, 512]];

/// A measured kind of limits.
struct Kind {
    mode: Mode,
    /// Numbers of partitions or shards on three nodes.
    parts: [u32; 3],
    slice: Slice,
}

/// Long slices keep the caches warm, as on a server with a whole CPU. Limits that decide many requests per call have
/// short slices: in a long slice a server would decide all pending requests and then be idle.
const KINDS: [Kind; 2] = [
    Kind {
        mode: Mode::PerClient,
        parts: [64, 24, 12],
        slice: Slice { percent: 10, period: Duration::from_millis(100) },
    },
    Kind { mode: Mode::Overall, parts: [8, 12, 3], slice: Slice { percent: 2, period: Duration::from_millis(10) } },
];

/// A limit on some servers, with its measurements.
struct Case<'s> {
    nodes: &'s [RedisServer],
    workers: Workers,
    concurrency: usize,
    limiter: Arc<Limiter>,
    parts: u32,
    rounds: Vec<Round>,
}

struct Round {
    /// Decisions per second.
    rate: f64,
    /// Average share of a CPU that a server used.
    cpu: f64,
    per_call: f64,
}

fn main() {
    for load in LOADS {
        for kind in &KINDS {
            // New servers for each case: Linux 6.18 does not free the share of a thread before the thread exits.
            let servers = (RedisServer::start(), RedisCluster::start());
            let (Some(single), Some(three)) = servers else { panic!("redis-server cannot be started") };
            compare(&[single], &three, load, kind);
        }
    }
}

/// Measures a limit on a single Redis, and with several numbers of parts on three nodes.
fn compare(single: &[RedisServer], three: &RedisCluster, [workers, concurrency]: [usize; 2], kind: &Kind) {
    let timeout = TIMEOUT * 100 / kind.slice.percent;
    let (on_single, on_three) = (single[0].store_with_timeout(timeout), three.store_with_timeout(timeout));
    let case = |nodes, store: &Store, parts, concurrency| {
        let (workers, limiter) = (Workers::new(workers, store), limiter(kind.mode, parts));
        Case { nodes, workers, concurrency, limiter, parts, rounds: Vec::new() }
    };
    let mut cases = vec![case(single, &on_single, 1, concurrency)];
    for parts in kind.parts {
        cases.extend([1, 3].map(|factor| case(&three.nodes[..], &on_three, parts, factor * concurrency)));
    }
    // Connects before the servers get their slices, because later it would be slow.
    cases.iter().for_each(|case| _ = case.run(Duration::ZERO));
    single.iter().chain(&three.nodes).for_each(|server| give_slice(server, &kind.slice));
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::measure);
    }
    println!("{:?}, {workers} workers", kind.mode);
    cases.iter().for_each(|case| case.print(&cases[0], kind));
}

impl Case<'_> {
    fn measure(&mut self) {
        let round = self.run(ROUND);
        self.rounds.push(round);
    }

    /// Runs the load, and measures for this duration.
    fn run(&self, duration: Duration) -> Round {
        let limiter = Arc::clone(&self.limiter);
        let calls = || self.nodes.iter().map(RedisServer::decision_calls).sum::<u64>();
        let seconds = || self.nodes.iter().map(seconds).sum::<f64>() / self.nodes.len() as f64;
        let (called, decided) = (calls(), self.workers.decisions());
        let charges = move |request| vec![charge(&limiter, request)];
        let (rate, cpu) = self.workers.run(self.concurrency, charges, || {
            wait(WARM_UP);
            let (begin, used, decided) = (Stopwatch::start(), seconds(), self.workers.decisions());
            wait(duration);
            let took = begin.elapsed().as_secs_f64();
            ((self.workers.decisions() - decided) as f64 / took, (seconds() - used) / took)
        });
        let per_call = (self.workers.decisions() - decided) as f64 / (calls() - called) as f64;
        Round { rate, cpu, per_call }
    }

    fn print(&self, first: &Self, kind: &Kind) {
        let factor = median(self.rounds.iter().zip(&first.rounds).map(|(this, first)| this.rate / first.rate));
        let median_of = |field: fn(&Round) -> f64| median(self.rounds.iter().map(field));
        let (rate, per_call) = (median_of(|round| round.rate), median_of(|round| round.per_call));
        let used = 100.0 * median_of(|round| round.cpu) / f64::from(kind.slice.percent) * 100.0;
        let (nodes, parts, concurrency) = (self.nodes.len(), self.parts, self.concurrency);
        println!("  nodes {nodes}, parts {parts}, concurrency {concurrency}: {factor:.2} x, {rate:.0} per second,");
        println!("    {per_call:.1} per call, {used:.0} % of the slice used");
    }
}

fn wait(duration: Duration) {
    let begin = Stopwatch::start();
    while begin.elapsed() < duration {
        wait_a_little();
    }
}

fn limiter(mode: Mode, parts: u32) -> Arc<Limiter> {
    let quota = Quota::new(100_000_000, 3_600_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Limiter::new(fresh_name(), mode, quota);
    Arc::new(if mode == Mode::PerClient { limiter.partitioned(parts) } else { limiter.sharded(parts) })
}

/// Returns the charge of a request: one permit, of one of 10,000 clients if the limit is per client.
fn charge(limiter: &Arc<Limiter>, request: usize) -> Charge {
    let of_client = || ClientId::Value((request % 10_000).to_be_bytes().into());
    let client = (limiter.mode == Mode::PerClient).then(of_client);
    Charge::new(Arc::clone(limiter), client, 1)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
