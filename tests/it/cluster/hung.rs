//! A primary of a cluster that hangs: it accepts connections and does not reply.

use super::faults::{ask, granted_to, is_decided_by_store, rules, until_store_decides};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::wait_for;
use crate::support::wire::soon;

/// Each of two workers has one connection to the node, so at most two requests wait for a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_primary_delays_one_request_per_connection() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "3s", 1_000));
    until_store_decides(&gateway).await;
    cluster.nodes[2].signal("STOP");
    let mut by_store = 0;
    for client in 0..300 {
        let response = ask(&gateway, client).await;
        assert_eq!(response.status(), 200, "{}", response.text());
        by_store += usize::from(is_decided_by_store(&response));
    }
    let waited = gateway.counter(r#"tidegate_store_failures_total{cause="timeout"}"#).await;
    assert!((150..=250).contains(&by_store) && waited <= 2, "{by_store} of 300, {waited} waited");
    assert_eq!(gateway.counter("tidegate_store_up").await, 0);
    gateway.until_config_has(&[&format!("127.0.0.1:{}: no answer in time", cluster.nodes[2].port)]).await;
    cluster.nodes[2].signal("CONT");
    until_store_decides(&gateway).await;
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
}

/// The other nodes fail over to the replica. When the old primary continues, it becomes a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_primary_is_not_asked_after_its_failover() {
    let Some(cluster) = RedisCluster::start_with(3, true) else { return };
    let gateway = TestGateway::start(&rules(&cluster, "3s", 10));
    until_store_decides(&gateway).await;
    let mut granted = vec![0; 40];
    for (client, granted) in granted.iter_mut().enumerate() {
        for _ in 0..4 {
            *granted += usize::from(ask(&gateway, client).await.status() == 200);
        }
    }
    wait_for("replicas have all", || cluster.has_replicated(0));
    cluster.nodes[0].signal("STOP");
    for (client, granted) in granted.iter_mut().enumerate() {
        let response = ask(&gateway, client).await;
        assert_eq!(response.status(), 200, "{}", response.text());
        *granted += 1;
    }
    until_store_decides(&gateway).await;
    cluster.nodes[0].signal("CONT");
    for (client, granted) in granted.iter_mut().enumerate() {
        *granted += granted_to(&gateway, client).await;
    }
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
    // A call that was in flight when the primary stopped may have been counted without a reply.
    let exact = granted.iter().filter(|granted| **granted == 10).count();
    assert!(granted.iter().all(|granted| (9..=10).contains(granted)) && exact >= 38, "{granted:?}");
}
