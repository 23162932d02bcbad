//! A Redis Cluster that changes under load: slots that move, nodes that end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::redis::cmd;
use futures_util::future::join_all;
use tokio::task::{JoinSet, spawn_blocking};

use crate::support::cluster::{RedisCluster, errors};
use crate::support::gateway::{TestGateway, get};
use crate::support::redis::wait_for;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;

/// A PER_CLIENT limit of so many in an hour.
pub fn rules(cluster: &RedisCluster, timeout: &str, rate: u32) -> String {
    rules_of(&cluster.rule(timeout), rate)
}

/// The same in any store.
pub fn rules_of(store: &str, rate: u32) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: {rate}, interval: 1h }}\n"
    )
}

/// Was it decided by the store? What is left is told only then.
pub fn is_of_store(answer: &Message) -> bool {
    answer.field("ratelimit").is_some()
}

pub async fn ask(gateway: &TestGateway, client: usize) -> Message {
    gateway.get("/", &format!("k: {client}\r\n")).await
}

/// Waits until clients of every node are decided by the store.
pub async fn is_there_for_all(gateway: &TestGateway) {
    for client in 1_000..1_064 {
        soon(async { while !is_of_store(&ask(gateway, client).await) {} }).await;
    }
}

/// Asks until the store refuses; returns how many were granted.
pub async fn granted_to(gateway: &TestGateway, client: usize) -> usize {
    let mut granted = 0;
    loop {
        let answer = ask(gateway, client).await;
        match answer.status() {
            200 => granted += 1,
            429 if is_of_store(&answer) => return granted,
            status => assert_eq!(status, 429, "{}", answer.text()),
        }
    }
}

/// What is counted of a node; nothing if it is none.
async fn of_node(gateway: &TestGateway, what: &str, port: u16) -> u64 {
    gateway.counter(&format!(r#"tidegate_store_node_{what}_total{{node="127.0.0.1:{port}"}}"#)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_file_for_one_server_spreads_over_a_cluster_without_a_change() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "2s", 3));
    for client in 0..40 {
        assert_eq!(granted_to(&gateway, client).await, 3);
    }
    for node in &cluster.nodes {
        let keys: Vec<String> = cmd("KEYS").arg("{tidegate:all:*}:l:*").query(&mut node.connection()).expect("keys");
        assert!(keys.len() > 3, "{keys:?}");
    }
    assert!(gateway.admin_get("/readyz").await.status() == 200);
    // One of four requests of a client is refused by memory, or by its node.
    let counts = async |what: &str| {
        let counts = cluster.ports().into_iter().map(|port| of_node(&gateway, what, port));
        join_all(counts).await
    };
    let (decisions, calls) = (counts("decisions").await, counts("calls").await);
    assert!(decisions.iter().zip(&calls).all(|(decisions, calls)| (3..=120).contains(decisions) && calls > &0));
    assert!((120..=160).contains(&decisions.iter().sum::<u64>()), "{decisions:?}");
    assert_eq!(calls.iter().sum::<u64>(), gateway.counter("tidegate_store_calls_total").await);
}

/// Slots move with their keys while clients are served by two gateways: none is lost, and none is counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_cost_no_error_and_no_permit_too_many() {
    let Some(cluster) = RedisCluster::start() else { return };
    let text = rules(&cluster, "5s", 30);
    let gateways = Arc::new([TestGateway::start(&text), TestGateway::start(&text)]);
    let (cluster, is_over) = (Arc::new(cluster), Arc::new(AtomicBool::new(false)));
    let mut load = JoinSet::new();
    for worker in 0..8_usize {
        let (gateways, is_over) = (Arc::clone(&gateways), Arc::clone(&is_over));
        load.spawn(async move {
            let mut granted = HashMap::<usize, usize>::new();
            let mut client = gateways[worker % 2].client().await;
            for turn in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let key = (turn * 7 + worker) % 120;
                let answer = get(&mut client, "/", &format!("k: {key}\r\n")).await;
                assert!(is_of_store(&answer), "{}", answer.text());
                assert!(matches!(answer.status(), 200 | 429), "{}", answer.text());
                *granted.entry(key).or_default() += usize::from(answer.status() == 200);
            }
            granted
        });
    }
    let (moving, done) = (Arc::clone(&cluster), Arc::clone(&is_over));
    spawn_blocking(move || {
        for slot in moving.slots_with_keys(0).into_iter().chain(0..moved()) {
            moving.begin_move(slot, 0, 1);
            moving.move_keys(slot, 0, 1);
            moving.finish_move(slot, 0, 1);
        }
        done.store(true, Ordering::Relaxed);
    })
    .await
    .expect("moved");
    let mut granted = HashMap::<usize, usize>::new();
    for (key, count) in load.join_all().await.into_iter().flatten() {
        *granted.entry(key).or_default() += count;
    }
    for (key, before) in granted {
        assert_eq!(before + granted_to(&gateways[0], key).await, 30, "client {key}");
    }
    assert!(errors(&cluster.nodes[0], "MOVED") > 0);
}

/// How many slots move, besides those that have keys.
fn moved() -> u16 {
    std::env::var("MOVED_SLOTS").ok().and_then(|slots| slots.parse().ok()).unwrap_or(50)
}

/// What its replica has is what its clients keep: they are counted on by it, and what was granted meanwhile is charged to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_ends_is_replaced_by_its_replica_and_no_request_fails() {
    let Some(cluster) = RedisCluster::start_with(3, true) else { return };
    let gateway = TestGateway::start(&rules(&cluster, "500ms", 10));
    is_there_for_all(&gateway).await;
    let mut granted = vec![0; 60];
    for (client, granted) in granted.iter_mut().enumerate() {
        for _ in 0..4 {
            *granted += usize::from(ask(&gateway, client).await.status() == 200);
        }
    }
    assert_eq!(granted, [4; 60]);
    wait_for("replicas have all", || cluster.has_replicated(0));
    cluster.nodes[0].signal("KILL");
    for (client, granted) in granted.iter_mut().enumerate() {
        for _ in 0..3 {
            let answer = ask(&gateway, client).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            *granted += 1;
        }
    }
    is_there_for_all(&gateway).await;
    // The node that is gone is missed no more.
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
    let [gone, replica] = [0, 3].map(|node| cluster.nodes[node].port);
    assert_eq!(of_node(&gateway, "calls", gone).await, 0);
    assert!(of_node(&gateway, "decisions", replica).await > 0);
    for (client, granted) in granted.iter_mut().enumerate() {
        *granted += granted_to(&gateway, client).await;
    }
    // A call that was under way may have been counted without an answer.
    let exact = granted.iter().filter(|granted| **granted == 10).count();
    assert!(granted.iter().all(|granted| (9..=10).contains(granted)) && exact >= 58, "{granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_away_is_missed_by_its_own_clients_alone() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "200ms", 1_000));
    is_there_for_all(&gateway).await;
    cluster.nodes[2].signal("KILL");
    let mut of_store = 0;
    for client in 0..90 {
        let answer = ask(&gateway, client).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        of_store += usize::from(is_of_store(&answer));
    }
    assert!((45..=75).contains(&of_store), "{of_store} of 90");
    let ready = gateway.admin_get("/readyz").await.text();
    let address = format!("127.0.0.1:{}", cluster.nodes[2].port);
    assert!(ready.contains("unreachable") && !ready.contains(&address), "{ready}");
    gateway.until_config_has(&[&format!("{address}:")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_starts_before_the_cluster_decides_alone_until_it_is_there() {
    let Some(cluster) = RedisCluster::start_alone() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "200ms", 10));
    let mut granted = 0;
    for _ in 0..3 {
        let answer = ask(&gateway, 0).await;
        assert!(answer.status() == 200 && !is_of_store(&answer), "{}", answer.text());
        granted += 1;
    }
    assert_eq!(gateway.counter("tidegate_store_up").await, 0);
    cluster.join();
    is_there_for_all(&gateway).await;
    assert_eq!(granted + granted_to(&gateway, 0).await, 10);
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
}
