//! Slot migrations that take longer than the deadline of a decision.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::StoreError;
use tidegate::redisson::{Mode, RateConfig, RateLimiter, TrySetRate};
use tokio::task::JoinSet;

use super::faults::{ask, granted_to, is_decided_by_store, rules, until_store_decides};
use crate::support::cluster::{RedisCluster, errors};
use crate::support::configured;
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// The store retries a call with keys on both nodes until its deadline. The last retry must not close the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_until_the_deadline_keep_the_connection() {
    let Some(cluster) = RedisCluster::start() else { return };
    let store = cluster.store_with_timeout(Duration::from_secs(5));
    let charge = configured("own", 60, 3_600_000, 1);
    let slot = cluster.hash_slot_of("own");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    assert!(store.take(std::slice::from_ref(&charge)).await.expect("a decision").granted());
    cluster.begin_move(slot, from, to);
    let mut asked = JoinSet::new();
    for _ in 0..200 {
        let (store, charge) = (store.clone(), charge.clone());
        asked.spawn(async move { store.take(&[charge]).await });
    }
    let is_tryagain = |error: &StoreError| matches!(error, StoreError::ErrorReply(reply) if reply.contains("TRYAGAIN"));
    let is_one_of = |error: &StoreError| {
        matches!(error, StoreError::Timeout | StoreError::ErrorReply(_) | StoreError::Redirected { .. })
    };
    let failed: Vec<_> = asked.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(failed.len() == 200 && failed.iter().all(is_one_of), "{failed:?}");
    // Redis 6.2 does not count errors.
    let refusals = errors(&cluster.nodes[from], "TRYAGAIN");
    assert!(refusals > 200 || refusals == 0 && failed.iter().any(is_tryagain), "{refusals}");
    cluster.abort_move(slot, from, to);
    store.take(&[charge]).await.expect("a decision");
}

/// The new node serves the keys only after `ASKING`, because the slot still belongs to the old node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limiter_is_found_while_only_its_keys_have_moved() {
    let Some(cluster) = RedisCluster::start() else { return };
    let store = cluster.store_with_timeout(Duration::from_secs(2));
    let limiter = RateLimiter::new(store, "mails").expect("a limiter");
    let config = RateConfig::new(Mode::Overall, 5, Duration::from_secs(3_600)).expect("a rate");
    assert_eq!(limiter.try_set_rate(&config).await.expect("a reply"), TrySetRate::Set);
    assert!(limiter.try_acquire(2).await.expect("a reply").granted);
    let slot = cluster.hash_slot_of("mails");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to);
    assert_eq!(limiter.config().await.expect("a reply"), Some(config));
    assert_eq!(limiter.time_to_live().await.expect("a reply"), None);
    assert!(errors(&cluster.nodes[from], "ASK") > 1);
}

/// A call that charges owed permits has two keys, one of them new: both nodes refuse it until the slot has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debt_to_a_migrating_slot_does_not_block_its_node() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "3s", 10));
    until_store_decides(&gateway).await;
    let client = 7;
    let before = keys(&cluster);
    let mut granted = usize::from(ask(&gateway, client).await.status() == 200);
    let bucket = keys(&cluster).into_iter().find(|key| !before.contains(key)).expect("a bucket");
    let slot = cluster.hash_slot_of(&bucket);
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    cluster.nodes[from].signal("STOP");
    let response = ask(&gateway, client).await;
    assert!(response.status() == 200 && !is_decided_by_store(&response), "{}", response.text());
    granted += 1;
    cluster.nodes[from].signal("CONT");
    until_store_decides(&gateway).await;
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
    // Only the permit of the migrating slot is still owed.
    soon(async { while !config(&gateway).await.contains(r#""owed":1,"#) {} }).await;
    cluster.abort_move(slot, from, to);
    soon(async { while !config(&gateway).await.contains(r#""owed":0,"#) {} }).await;
    granted += granted_to(&gateway, client).await;
    // The call that was in flight may have been counted without a reply.
    assert!((9..=10).contains(&granted), "{granted}");
}

/// Returns the keys of all client buckets.
fn keys(cluster: &RedisCluster) -> Vec<String> {
    let of_node = |node: &RedisServer| {
        cmd("KEYS").arg("{tidegate:all:*}:l:*").query::<Vec<String>>(&mut node.connection()).expect("keys")
    };
    cluster.nodes.iter().flat_map(of_node).collect()
}

async fn config(gateway: &TestGateway) -> String {
    let ask = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
    Raw::connect(gateway.admin).await.ask(ask).await.text()
}
