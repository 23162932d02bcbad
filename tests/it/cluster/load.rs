//! What a cluster of three costs its nodes, beside one Redis: a measurement, made if `MEASURE` is set.

use std::sync::Arc;

use deadpool_redis::redis::{InfoDict, cmd};
use tidegate::limit::{Algorithm, Charge, ClientId, Limiter, Mode, Quota};
use tidegate::store::Store;
use tokio::task::JoinSet;

use crate::support::cluster::RedisCluster;
use crate::support::redis::{RedisServer, fresh_name};

const DECISIONS: u32 = 60_000;
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

/// Microseconds for each decision, of the node that had most to do.
async fn cost(
    store: &Store,
    nodes: &[RedisServer],
    at_a_time: u32,
    charges: impl Fn(u32) -> Vec<Charge> + Send + Sync + 'static,
) -> f64 {
    let before: Vec<f64> = nodes.iter().map(cpu).collect();
    decide(store, at_a_time, charges).await;
    let used = nodes.iter().zip(before).map(|(node, before)| cpu(node) - before);
    used.fold(0.0, f64::max) * 1e6 / f64::from(DECISIONS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[expect(clippy::print_stdout, reason = "a measurement")]
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
        let alone = cost(&one, &single, at_a_time, each(1)).await;
        for partitions in [6, 12, 64] {
            let busiest = cost(&three, &cluster.nodes, at_a_time, each(partitions)).await;
            println!(
                "{at_a_time} at a time, PER_CLIENT: one node {alone:.2} us; of three with {partitions} partitions {busiest:.2} us: {:.2} x",
                alone / busiest
            );
        }
        let alone = cost(&one, &single, at_a_time, all(1)).await;
        let busiest = cost(&three, &cluster.nodes, at_a_time, all(8)).await;
        println!(
            "{at_a_time} at a time, OVERALL: one node {alone:.2} us; of three with 8 shards {busiest:.2} us: {:.2} x",
            alone / busiest
        );
    }
}
