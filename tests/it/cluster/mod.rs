//! Redis Cluster: buckets are spread over the nodes, and every decision is exact.

mod faults;
mod hung;
mod login;
mod moving;
mod secret;
mod shared;

use std::sync::Arc;

use tidegate::redisson::Mode;
use tidegate::{Store, StoreError};
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tokio::task::JoinSet;

use crate::support::cluster::{RedisCluster, errors};
use crate::support::redis::fresh_name;
use crate::support::wire::soon;

fn quota(rate: u64) -> Quota {
    Quota::new(rate, 3_600_000, Algorithm::TokenBucket).expect("a quota")
}

/// Returns a `PER_CLIENT` limiter with 64 partitions.
fn partitioned(name: &str, rate: u64) -> Arc<Limiter> {
    Arc::new(Limiter::new(name.to_owned(), Mode::PerClient, quota(rate)).partitioned(64))
}

fn of_client(limiter: &Arc<Limiter>, client: u32) -> Charge {
    let client = Some(ClientId::Value(client.to_be_bytes().into()));
    Charge::new(Arc::clone(limiter), client, 1)
}

fn overall(name: &str, rate: u64, shards: u32) -> Charge {
    let limiter = Limiter::new(name.to_owned(), Mode::Overall, quota(rate)).sharded(shards);
    Charge::new(Arc::new(limiter), None, 1)
}

/// Sends equal requests concurrently. Returns how many are granted.
async fn granted(store: &Store, charges: &[Charge], requests: usize) -> usize {
    let mut asked = JoinSet::new();
    for _ in 0..requests {
        let (store, charges) = (store.clone(), charges.to_vec());
        asked.spawn(async move { store.take(&charges).await.expect("a decision").granted() });
    }
    asked.join_all().await.into_iter().filter(|granted| *granted).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_on_all_nodes_count_clients_exactly() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateways = [cluster.store(), cluster.store(), cluster.store().for_worker()];
    let each = partitioned(&fresh_name(), 5);
    let mut clients = JoinSet::new();
    for client in 0..150 {
        let (gateways, charge) = (gateways.clone(), of_client(&each, client));
        clients.spawn(async move {
            let mut sum = 0;
            for gateway in &gateways {
                sum += granted(gateway, std::slice::from_ref(&charge), 3).await;
            }
            sum
        });
    }
    assert!(clients.join_all().await.into_iter().all(|granted| granted == 5));
    for node in &cluster.nodes {
        let calls = node.decision_calls();
        assert!(calls > 20, "a node had {calls} calls");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_on_several_nodes_grant_the_whole_rate() {
    let Some(cluster) = RedisCluster::start() else { return };
    let all = overall(&fresh_name(), 100, 8);
    assert_eq!(granted(&cluster.store(), std::slice::from_ref(&all), 60).await, 60);
    assert_eq!(granted(&cluster.store(), std::slice::from_ref(&all), 60).await, 40);
    assert!(cluster.nodes.iter().all(|node| node.decision_calls() > 0));
}

/// `on_store_failure` applies only after all reachable shards have refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_on_an_unreachable_node_are_skipped() {
    let Some(cluster) = RedisCluster::start() else { return };
    let (store, all) = (cluster.store(), [overall(&fresh_name(), 900, 24)]);
    assert_eq!(granted(&store, &all, 90).await, 90);
    cluster.nodes[2].signal("KILL");
    let mut in_a_row = 0;
    soon(async {
        while in_a_row < 50 {
            in_a_row = if store.take(&all).await.is_ok_and(|outcome| outcome.granted()) { in_a_row + 1 } else { 0 };
        }
    })
    .await;
    while store.take(&all).await.is_ok_and(|outcome| outcome.granted()) {}
    assert_eq!(store.take(&all).await, Err(StoreError::Unreachable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_on_several_nodes_are_charged_atomically() {
    let Some(cluster) = RedisCluster::start() else { return };
    let store = cluster.store();
    let (each, narrow) = (partitioned(&fresh_name(), 10), overall(&fresh_name(), 3, 1));
    let wide = overall(&fresh_name(), 100, 4);
    let charges = [of_client(&each, 1), wide.clone(), narrow];
    assert_eq!(granted(&store, &charges, 3).await, 3);
    for _ in 0..5 {
        let refused = store.take(&charges).await.expect("a decision");
        assert!(!refused.granted());
        let granted: Vec<bool> = refused.decisions.iter().map(|decision| decision.granted).collect();
        assert_eq!(granted, [true, true, false]);
        assert_eq!(refused.decisions[0].remaining, 7, "a refused request was charged");
    }
    assert_eq!(granted(&store, &charges[..1], 20).await, 7);
    assert_eq!(granted(&store, &[wide], 120).await, 97);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_slot_is_found_at_its_new_owner() {
    let Some(cluster) = RedisCluster::start() else { return };
    let (store, name) = (cluster.store(), fresh_name());
    let all = [overall(&name, 10, 1)];
    assert_eq!(granted(&store, &all, 4).await, 4);
    let slot = cluster.hash_slot_of(&name);
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to);
    cluster.finish_move(slot, from, to);
    assert_eq!(granted(&store, &all, 20).await, 6);
    assert!(errors(&cluster.nodes[from], "MOVED") > 0);
    let before = errors(&cluster.nodes[from], "MOVED");
    assert_eq!(granted(&store, &all, 20).await, 0);
    assert_eq!(errors(&cluster.nodes[from], "MOVED"), before, "asked the old owner again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_of_a_migrating_slot_stay_exact() {
    let Some(cluster) = RedisCluster::start() else { return };
    let (store, name) = (cluster.store(), fresh_name());
    let slot = cluster.hash_slot_of(&name);
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    let (old, new) = (overall(&format!("{name}:old"), 10, 1), overall(&format!("{name}:new"), 8, 1));
    assert_eq!(granted(&store, std::slice::from_ref(&old), 3).await, 3);
    cluster.begin_move(slot, from, to);
    // One bucket is at the old owner, and the new one will be created at the new owner.
    assert_eq!(granted(&store, &[old.clone(), new.clone()], 20).await, 7);
    assert!(errors(&cluster.nodes[from], "ASK") + errors(&cluster.nodes[from], "TRYAGAIN") > 0);
    cluster.move_keys(slot, from, to);
    assert_eq!(granted(&store, std::slice::from_ref(&old), 5).await, 0);
    cluster.finish_move(slot, from, to);
    assert_eq!(granted(&store, &[old], 5).await, 0);
    assert_eq!(granted(&store, &[new], 5).await, 1);
}
