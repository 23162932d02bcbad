//! Changes of a Redis Cluster under load: slot migrations, and nodes that are killed.

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

/// Returns a rule file with this cluster and a `PER_CLIENT` limit of `rate` in one hour.
pub fn rules(cluster: &RedisCluster, timeout: &str, rate: u32) -> String {
    rules_with_store(&cluster.rule(timeout), rate)
}

/// Returns a rule file with this store and a `PER_CLIENT` limit of `rate` in one hour.
pub fn rules_with_store(store: &str, rate: u32) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: {rate}, interval: 1h }}\n"
    )
}

/// Returns `true` if the store decided the request: only then does the response have a `RateLimit` field.
pub fn is_decided_by_store(response: &Message) -> bool {
    response.field("ratelimit").is_some()
}

pub async fn ask(gateway: &TestGateway, client: usize) -> Message {
    gateway.get("/", &format!("k: {client}\r\n")).await
}

/// Waits until the store decides requests of 64 clients, which use all nodes.
pub async fn until_store_decides(gateway: &TestGateway) {
    for client in 1_000..1_064 {
        soon(async { while !is_decided_by_store(&ask(gateway, client).await) {} }).await;
    }
}

/// Sends requests until the store refuses one. Returns how many were granted.
pub async fn granted_to(gateway: &TestGateway, client: usize) -> usize {
    let mut granted = 0;
    loop {
        let response = ask(gateway, client).await;
        match response.status() {
            200 => granted += 1,
            429 if is_decided_by_store(&response) => return granted,
            status => assert_eq!(status, 429, "{}", response.text()),
        }
    }
}

/// Returns a counter of a node, or 0 if the gateway does not know the node.
async fn node_counter(gateway: &TestGateway, name: &str, port: u16) -> u64 {
    gateway.counter(&format!(r#"tidegate_store_node_{name}_total{{node="127.0.0.1:{port}"}}"#)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn per_client_limit_spreads_over_all_nodes() {
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
    // The fourth request of a client is refused by the gateway's cache or by the node.
    let counts = async |name: &str| {
        let counts = cluster.ports().into_iter().map(|port| node_counter(&gateway, name, port));
        join_all(counts).await
    };
    let (decisions, calls) = (counts("decisions").await, counts("calls").await);
    assert!(decisions.iter().zip(&calls).all(|(decisions, calls)| (3..=120).contains(decisions) && calls > &0));
    assert!((120..=160).contains(&decisions.iter().sum::<u64>()), "{decisions:?}");
    assert_eq!(calls.iter().sum::<u64>(), gateway.counter("tidegate_store_calls_total").await);
}

/// Slots move with their keys while two gateways serve clients: no permit is lost, and none is counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_migrations_under_load_keep_counts_exact() {
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
            for request in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let key = (request * 7 + worker) % 120;
                let response = get(&mut client, "/", &format!("k: {key}\r\n")).await;
                assert!(is_decided_by_store(&response), "{}", response.text());
                assert!(matches!(response.status(), 200 | 429), "{}", response.text());
                *granted.entry(key).or_default() += usize::from(response.status() == 200);
            }
            granted
        });
    }
    let (moving, done) = (Arc::clone(&cluster), Arc::clone(&is_over));
    spawn_blocking(move || {
        for slot in moving.slots_with_keys(0).into_iter().chain(0..moved_slots()) {
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

/// Returns how many slots move in addition to those with keys.
fn moved_slots() -> u16 {
    std::env::var("MOVED_SLOTS").ok().and_then(|slots| slots.parse().ok()).unwrap_or(50)
}

/// The replica keeps the counts of its clients. Permits that were granted during the failover are charged to the
/// replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_to_a_replica_fails_no_request() {
    let Some(cluster) = RedisCluster::start_with(3, true) else { return };
    let gateway = TestGateway::start(&rules(&cluster, "3s", 10));
    until_store_decides(&gateway).await;
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
            let response = ask(&gateway, client).await;
            assert_eq!(response.status(), 200, "{}", response.text());
            *granted += 1;
        }
    }
    until_store_decides(&gateway).await;
    // The cluster no longer lists the dead node.
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
    let [dead, replica] = [0, 3].map(|node| cluster.nodes[node].port);
    assert_eq!(node_counter(&gateway, "calls", dead).await, 0);
    assert!(node_counter(&gateway, "decisions", replica).await > 0);
    for (client, granted) in granted.iter_mut().enumerate() {
        *granted += granted_to(&gateway, client).await;
    }
    // A call that was in flight may have been counted without a reply.
    let exact = granted.iter().filter(|granted| **granted == 10).count();
    assert!(granted.iter().all(|granted| (9..=10).contains(granted)) && exact >= 58, "{granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_node_affects_only_its_clients() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "5s", 1_000));
    until_store_decides(&gateway).await;
    cluster.nodes[2].signal("KILL");
    let mut by_store = 0;
    for client in 0..90 {
        let response = ask(&gateway, client).await;
        assert_eq!(response.status(), 200, "{}", response.text());
        by_store += usize::from(is_decided_by_store(&response));
    }
    assert!((45..=75).contains(&by_store), "{by_store} of 90");
    let ready = gateway.admin_get("/readyz").await.text();
    let address = format!("127.0.0.1:{}", cluster.nodes[2].port);
    assert!(ready.contains("unreachable") && !ready.contains(&address), "{ready}");
    gateway.until_config_has(&[&format!("{address}:")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_decides_locally_until_the_cluster_starts() {
    let Some(cluster) = RedisCluster::start_alone() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "3s", 10));
    let mut granted = 0;
    for _ in 0..3 {
        let response = ask(&gateway, 0).await;
        assert!(response.status() == 200 && !is_decided_by_store(&response), "{}", response.text());
        granted += 1;
    }
    assert_eq!(gateway.counter("tidegate_store_up").await, 0);
    cluster.join();
    until_store_decides(&gateway).await;
    assert_eq!(granted + granted_to(&gateway, 0).await, 10);
    soon(async { while gateway.counter("tidegate_store_up").await != 1 {} }).await;
}
