//! What decisions cost servers: their CPU, and how many calls they were asked by.

use std::fmt;
use std::process::Command;
use std::sync::Arc;

use deadpool_redis::redis::{InfoDict, cmd};
use tidegate::clock::Stopwatch;
use tidegate::limit::Charge;
use tidegate::store::Store;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::support::cluster::calls;
use crate::support::redis::{RedisServer, wait_a_little};

const DECISIONS: usize = 24_576;

/// A worker of a gateway: a thread with connections of its own.
pub struct Worker {
    runtime: Runtime,
    store: Store,
}

/// What decisions have cost, round by round.
#[derive(Default)]
pub struct Cost(Vec<Round>);

struct Round {
    /// Seconds of each node, but for those that it uses when nobody asks it.
    seconds: Vec<f64>,
    took: f64,
    calls: u64,
    decisions: usize,
}

/// So many workers of one gateway.
pub fn workers(count: usize, store: &Store) -> Vec<Worker> {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    (0..count).map(|_| Worker { runtime: runtime(), store: store.for_worker() }).collect()
}

/// Lets a process run on these cores alone.
pub fn pin(process: u32, cores: &str) {
    let arguments = ["--all-tasks", "--cpu-list", "--pid", cores, &process.to_string()];
    let output = Command::new("taskset").args(arguments).output().expect("taskset runs");
    assert!(output.status.success(), "{output:?}");
}

impl Cost {
    /// Adds what it costs to make these charges, so many at a time.
    pub fn measure(
        &mut self,
        workers: &[Worker],
        nodes: &[RedisServer],
        at_a_time: usize,
        charges: impl Fn(usize) -> Vec<Charge> + Send + Sync + 'static,
    ) {
        let all = || nodes.iter().map(cpu).collect::<Vec<_>>();
        let (before, called, begin) = (all(), nodes.iter().map(calls).sum::<u64>(), Stopwatch::start());
        decide(workers, at_a_time, charges);
        let (after, took) = (all(), begin.elapsed());
        let calls = nodes.iter().map(calls).sum::<u64>() - called;
        let idle_since = Stopwatch::start();
        while idle_since.elapsed() < took {
            wait_a_little();
        }
        let idle = all();
        let seconds = |node: usize| (after[node] - before[node]) - (idle[node] - after[node]);
        self.0.push(Round {
            seconds: (0..nodes.len()).map(seconds).collect(),
            took: took.as_secs_f64(),
            calls,
            decisions: DECISIONS / at_a_time * at_a_time,
        });
    }

    /// How often these decisions go into what those cost the busiest node, in the median round: what else the machine does
    /// disturbs all that is measured in a round alike.
    pub fn times_in(&self, those: &Self) -> f64 {
        median(self.0.iter().zip(&those.0).map(|(this, that)| that.of_busiest() / this.of_busiest()))
    }

    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.0.iter().map(of))
    }
}

impl Round {
    /// Microseconds for each decision, of the node that had most to do.
    fn of_busiest(&self) -> f64 {
        self.seconds.iter().fold(0.0, |most, one| one.max(most)) * 1e6 / self.decisions as f64
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = self.median(|round| 100.0 * round.seconds.iter().sum::<f64>() / round.took);
        let in_a_call = self.median(|round| round.decisions as f64 / round.calls as f64);
        write!(to, "{:.2} us, {in_a_call:.1} in a call, core {busy:.0} % busy", self.median(Round::of_busiest))
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Has the charges of so many requests decided, shared out among the workers.
fn decide(workers: &[Worker], at_a_time: usize, charges: impl Fn(usize) -> Vec<Charge> + Send + Sync + 'static) {
    let charges = Arc::new(charges);
    let asking = workers.iter().enumerate().map(|(number, worker)| {
        let mut tasks = JoinSet::new();
        for task in (number..at_a_time).step_by(workers.len()) {
            let (store, charges) = (worker.store.clone(), Arc::clone(&charges));
            let ask = async move {
                for turn in 0..DECISIONS / at_a_time {
                    store.take(&charges(turn * at_a_time + task)).await.expect("a decision");
                }
            };
            tasks.spawn_on(ask, worker.runtime.handle());
        }
        (worker, tasks)
    });
    let asking: Vec<_> = asking.collect();
    asking.into_iter().for_each(|(worker, tasks)| _ = worker.runtime.block_on(tasks.join_all()));
}

/// Seconds that a server has used.
fn cpu(server: &RedisServer) -> f64 {
    let info: InfoDict = cmd("INFO").arg("cpu").query(&mut server.connection()).expect("what it has used");
    ["used_cpu_user", "used_cpu_sys"].iter().filter_map(|field| info.get::<f64>(field)).sum()
}
