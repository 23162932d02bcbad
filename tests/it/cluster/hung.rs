//! A primary of a cluster that stands still: it takes connections and answers nothing.

use std::time::Duration;

use tidegate::internals::clock::Stopwatch;

use super::faults::{ask, granted_to, is_of_store, is_there_for_all, rules};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::wait_for;
use crate::support::wire::soon;

/// Two workers have a connection to it each, on which those wait who came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_is_waited_for_once_and_all_others_decide() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "1s", 1_000));
    is_there_for_all(&gateway).await;
    cluster.nodes[2].signal("STOP");
    let (mut of_store, mut waited) = (0, 0);
    for client in 0..300 {
        let watch = Stopwatch::start();
        let answer = ask(&gateway, client).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        of_store += usize::from(is_of_store(&answer));
        waited += usize::from(watch.elapsed() >= Duration::from_millis(900));
    }
    assert!((150..=250).contains(&of_store) && waited <= 2, "{of_store} of 300, {waited} waited");
    assert_eq!(gateway.counter("tidegate_store_up").await, 0);
    gateway.until_config_has(&[&format!("127.0.0.1:{}: no answer in time", cluster.nodes[2].port)]).await;
    cluster.nodes[2].signal("CONT");
    is_there_for_all(&gateway).await;
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
}

/// The others take it for dead, and its replica for the primary. When it goes on it is a replica, and is not asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_is_replaced_and_not_asked_again_when_it_goes_on() {
    let Some(cluster) = RedisCluster::start_with(3, true) else { return };
    let gateway = TestGateway::start(&rules(&cluster, "500ms", 10));
    is_there_for_all(&gateway).await;
    let mut granted = vec![0; 40];
    for (client, granted) in granted.iter_mut().enumerate() {
        for _ in 0..4 {
            *granted += usize::from(ask(&gateway, client).await.status() == 200);
        }
    }
    wait_for("replicas have all", || cluster.has_replicated(0));
    cluster.nodes[0].signal("STOP");
    for (client, granted) in granted.iter_mut().enumerate() {
        let answer = ask(&gateway, client).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        *granted += 1;
    }
    is_there_for_all(&gateway).await;
    cluster.nodes[0].signal("CONT");
    for (client, granted) in granted.iter_mut().enumerate() {
        *granted += granted_to(&gateway, client).await;
    }
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
    // A call that it had when it stopped may have been counted without an answer.
    let exact = granted.iter().filter(|granted| **granted == 10).count();
    assert!(granted.iter().all(|granted| (9..=10).contains(granted)) && exact >= 38, "{granted:?}");
}
