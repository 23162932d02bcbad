//! How many times as much three nodes of a cluster decide as one Redis, all at their limit: a measurement, made if `MEASURE`
//! is set.
//!
//! Each server gets a small slice of a processor, the same for all. So it is as slow as if it had that much more to do, and one
//! gateway brings three of them to their limit. What they decide is counted by the clock.

mod server;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use tidegate::internals::clock::Stopwatch;
use tidegate::internals::limit::{Algorithm, Charge, ClientId, Limiter, Quota};
use tidegate::{Mode, Store};

use self::server::{Slice, give_slice, seconds};
use self::worker::Workers;
use crate::support::cluster::{RedisCluster, calls};
use crate::support::redis::{RedisServer, fresh_name, wait_a_little};

/// How often it is measured, everything in turn, so that all meet the same noise.
const ROUNDS: u32 = 3;
/// So long it runs before it is counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// So long it is counted.
const ROUND: Duration = Duration::from_secs(2);
/// A decision's deadline where servers have a processor each; long, since a slice is not had at once.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Workers, and how many decisions they ask one Redis for at a time. Three nodes are asked for as many, and for three times as
/// many: by Little's law those that decide three times as much have three times as much to decide at a time.
const LOADS: [[usize; 2]; 5] = [[1, 2_048], [1, 512], [1, 64], [4, 512], [16, 512]];

/// A kind of limits that is measured.
struct Kind {
    mode: Mode,
    /// In how many parts they are on three nodes.
    parts: [u32; 3],
    slice: Slice,
}

/// Servers that are seldom interrupted have their caches warm, as one that has a processor for itself. Those that decide many
/// requests in a call have short slices: in a long one they would decide more than there are, and idle.
const KINDS: [Kind; 2] = [
    Kind {
        mode: Mode::PerClient,
        parts: [64, 24, 12],
        slice: Slice { percent: 10, every: Duration::from_millis(100) },
    },
    Kind { mode: Mode::Overall, parts: [8, 12, 3], slice: Slice { percent: 2, every: Duration::from_millis(10) } },
];

/// A limit on some servers, and what was measured of it.
struct Case<'s> {
    nodes: &'s [RedisServer],
    workers: Workers,
    at_a_time: usize,
    limiter: Arc<Limiter>,
    parts: u32,
    rounds: Vec<Round>,
}

struct Round {
    /// Decisions in a second.
    rate: f64,
    /// Which part of a processor the servers used, on average.
    used: f64,
    in_a_call: f64,
}

#[test]
fn what_three_nodes_bring() {
    if std::env::var_os("MEASURE").is_none() {
        return;
    }
    for load in LOADS {
        for kind in &KINDS {
            // They keep their slices until they end: Linux 6.18 does not give back what a thread had that stops using it.
            let (Some(single), Some(three)) = (RedisServer::start(), RedisCluster::start()) else { return };
            compare(&[single], &three, load, kind);
        }
    }
}

/// Measures a limit on one Redis, and in several numbers of parts on three nodes.
#[expect(clippy::print_stdout, reason = "a measurement")]
fn compare(single: &[RedisServer], three: &RedisCluster, [workers, at_a_time]: [usize; 2], kind: &Kind) {
    let timeout = TIMEOUT * 100 / kind.slice.percent;
    let (on_single, on_three) = (single[0].store_with_timeout(timeout), three.store_with_timeout(timeout));
    let case = |nodes, store: &Store, parts, at_a_time| {
        let (workers, limiter) = (Workers::new(workers, store), limiter(kind.mode, parts));
        Case { nodes, workers, at_a_time, limiter, parts, rounds: Vec::new() }
    };
    let mut cases = vec![case(single, &on_single, 1, at_a_time)];
    for parts in kind.parts {
        cases.extend([1, 3].map(|times| case(&three.nodes[..], &on_three, parts, times * at_a_time)));
    }
    // With their slices they would be slow to connect to.
    cases.iter().for_each(|case| _ = case.ask(Duration::ZERO));
    single.iter().chain(&three.nodes).for_each(|server| give_slice(server, &kind.slice));
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::measure);
    }
    println!("{:?}, {workers} workers", kind.mode);
    cases.iter().for_each(|case| case.show(&cases[0], kind));
}

impl Case<'_> {
    fn measure(&mut self) {
        let round = self.ask(ROUND);
        self.rounds.push(round);
    }

    /// Has decisions made, and counts them for so long.
    fn ask(&self, long: Duration) -> Round {
        let limiter = Arc::clone(&self.limiter);
        let calls = || self.nodes.iter().map(calls).sum::<u64>();
        let seconds = || self.nodes.iter().map(seconds).sum::<f64>() / self.nodes.len() as f64;
        let (called, decided) = (calls(), self.workers.decisions());
        let charges = move |request| vec![charge(&limiter, request)];
        let (rate, used) = self.workers.ask(self.at_a_time, charges, || {
            wait(WARM_UP);
            let (begin, used, decided) = (Stopwatch::start(), seconds(), self.workers.decisions());
            wait(long);
            let took = begin.elapsed().as_secs_f64();
            ((self.workers.decisions() - decided) as f64 / took, (seconds() - used) / took)
        });
        let in_a_call = (self.workers.decisions() - decided) as f64 / (calls() - called) as f64;
        Round { rate, used, in_a_call }
    }

    #[expect(clippy::print_stdout, reason = "a measurement")]
    fn show(&self, first: &Self, kind: &Kind) {
        let times = median(self.rounds.iter().zip(&first.rounds).map(|(this, first)| this.rate / first.rate));
        let of = |what: fn(&Round) -> f64| median(self.rounds.iter().map(what));
        let (rate, in_a_call) = (of(|round| round.rate), of(|round| round.in_a_call));
        let used = 100.0 * of(|round| round.used) / f64::from(kind.slice.percent) * 100.0;
        let (nodes, parts, at_a_time) = (self.nodes.len(), self.parts, self.at_a_time);
        println!("  nodes {nodes}, parts {parts}, {at_a_time} at a time: {times:.2} x, {rate:.0} in a second,");
        println!("    {in_a_call:.1} in a call, {used:.0} % of the slice used");
    }
}

fn wait(long: Duration) {
    let begin = Stopwatch::start();
    while begin.elapsed() < long {
        wait_a_little();
    }
}

fn limiter(mode: Mode, parts: u32) -> Arc<Limiter> {
    let quota = Quota::new(100_000_000, 3_600_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Limiter::new(fresh_name(), mode, quota);
    Arc::new(if mode == Mode::PerClient { limiter.partitioned(parts) } else { limiter.sharded(parts) })
}

/// What a request asks for: a permit, of one of 10,000 clients if the limit has clients.
fn charge(limiter: &Arc<Limiter>, request: usize) -> Charge {
    let of_client = || ClientId::Value((request % 10_000).to_be_bytes().into());
    let client = (limiter.mode == Mode::PerClient).then(of_client);
    Charge { limiter: Arc::clone(limiter), client, permits: 1, shadow: false }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
