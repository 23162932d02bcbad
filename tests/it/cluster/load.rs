//! What a cluster of three costs its nodes, beside one Redis: a measurement, made if `MEASURE` is set.

use std::sync::Arc;

use deadpool_redis::redis::{InfoDict, cmd};
use tidegate::clock::Stopwatch;
use tidegate::limit::{Algorithm, Charge, ClientId, Limiter, Mode, Quota};
use tidegate::store::Store;
use tokio::task::JoinSet;

use crate::support::cluster::RedisCluster;
use crate::support::redis::{RedisServer, fresh_name, wait_a_little};

const DECISIONS: u32 = 40_960;
/// How often it is measured, one node and three in turn, so that both meet the same noise.
const ROUNDS: u32 = 3;

/// Seconds that a server has used, but for those of the system, which depend on how busy the machine is.
fn cpu(server: &RedisServer) -> f64 {
    let info: InfoDict = cmd("INFO").arg("cpu").query(&mut server.connection()).expect("what it has used");
    ["used_cpu_user", "used_cpu_sys"].iter().filter_map(|field| info.get::<f64>(field)).sum()
}

async fn decide(store: &Store, at_a_time: u32, charges: impl Fn(u32) -> Vec<Charge> + Send + Sync + 'static) {
    let (charges, mut tasks) = (Arc::new(charges), JoinSet::new());
    for task in 0..at_a_time {
        let (store, charges) = (store.clone(), Arc::clone(&charges));
        tasks.spawn(async move {
            for turn in 0..DECISIONS / at_a_time {
                store.take(&charges(turn * at_a_time + task)).await.expect("a decision");
            }
        });
    }
    tasks.join_all().await;
}

/// Calls of the script that a server has run.
fn calls(server: &RedisServer) -> u64 {
    let info: InfoDict = cmd("INFO").arg("commandstats").query(&mut server.connection()).expect("what it has run");
    let of = |name| info.get::<String>(name)?.strip_prefix("calls=")?.split_once(',')?.0.parse::<u64>().ok();
    ["cmdstat_fcall", "cmdstat_evalsha"].into_iter().filter_map(of).sum()
}

/// What decisions have cost.
#[derive(Default)]
struct Cost {
    /// Seconds of each node, but for those that it uses when nobody asks it.
    seconds: Vec<f64>,
    calls: u64,
    decisions: u32,
}

impl Cost {
    async fn measure(
        &mut self,
        store: &Store,
        nodes: &[RedisServer],
        at_a_time: u32,
        charges: impl Fn(u32) -> Vec<Charge> + Send + Sync + 'static,
    ) {
        let all = || nodes.iter().map(cpu).collect::<Vec<_>>();
        let (before, called, begin) = (all(), nodes.iter().map(calls).sum::<u64>(), Stopwatch::start());
        decide(store, at_a_time, charges).await;
        let (after, took) = (all(), begin.elapsed());
        self.calls += nodes.iter().map(calls).sum::<u64>() - called;
        self.decisions += DECISIONS / at_a_time * at_a_time;
        let idle_since = Stopwatch::start();
        while idle_since.elapsed() < took {
            wait_a_little();
        }
        let idle = all();
        self.seconds.resize(nodes.len(), 0.0);
        for (node, seconds) in self.seconds.iter_mut().enumerate() {
            *seconds += (after[node] - before[node]) - (idle[node] - after[node]);
        }
    }

    /// Microseconds for each decision, of the node that had most to do.
    fn of_busiest(&self) -> f64 {
        self.seconds.iter().fold(0.0, |most, one| one.max(most)) * 1e6 / f64::from(self.decisions)
    }

    fn decisions_in_a_call(&self) -> f64 {
        f64::from(self.decisions) / self.calls as f64
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_three_nodes_cost() {
    if std::env::var_os("MEASURE").is_none() {
        return;
    }
    let (Some(single), Some(cluster)) = (RedisServer::start(), RedisCluster::start()) else { return };
    let single = [single];
    let quota = Quota::new(1_000_000, 3_600_000, Algorithm::TokenBucket).expect("a quota");
    let each = |partitions: u32| {
        let name = fresh_name();
        let limiter = Arc::new(Limiter::new(name, Mode::PerClient, quota).partitioned(partitions));
        move |request: u32| {
            let client = Some(ClientId::Value((request % 10_000).to_be_bytes().into()));
            vec![Charge { limiter: Arc::clone(&limiter), client, permits: 1, shadow: false }]
        }
    };
    let all = |shards: u32| {
        let limiter = Arc::new(Limiter::new(fresh_name(), Mode::Overall, quota).sharded(shards));
        move |_| vec![Charge { limiter: Arc::clone(&limiter), client: None, permits: 1, shadow: false }]
    };
    let (one, three) = (single[0].store(), cluster.store());
    for at_a_time in [64, 512, 2_048] {
        // By Little's law three nodes that decide three times as much have three times as much to decide at a time.
        for times in [1, 3] {
            let (mut of_one, mut of_three, alone, spread) = (Cost::default(), Cost::default(), each(1), each(64));
            for _ in 0..ROUNDS {
                of_one.measure(&one, &single, at_a_time, alone.clone()).await;
                of_three.measure(&three, &cluster.nodes, times * at_a_time, spread.clone()).await;
            }
            show(&format!("{at_a_time} and {times} x at a time, PER_CLIENT, 64 partitions"), &of_one, &of_three);
            let (mut of_one, mut of_three, alone, spread) = (Cost::default(), Cost::default(), all(1), all(8));
            for _ in 0..ROUNDS {
                of_one.measure(&one, &single, at_a_time, alone.clone()).await;
                of_three.measure(&three, &cluster.nodes, times * at_a_time, spread.clone()).await;
            }
            show(&format!("{at_a_time} and {times} x at a time, OVERALL, 8 shards"), &of_one, &of_three);
        }
    }
}

#[expect(clippy::print_stdout, reason = "a measurement")]
fn show(what: &str, of_one: &Cost, of_three: &Cost) {
    let (alone, busiest) = (of_one.of_busiest(), of_three.of_busiest());
    println!("{what}: one node {alone:.2} us, busiest of three {busiest:.2} us: {:.2} x", alone / busiest);
    println!("    decisions in a call: {:.1} and {:.1}", of_one.decisions_in_a_call(), of_three.decisions_in_a_call());
}
