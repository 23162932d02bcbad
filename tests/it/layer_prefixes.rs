//! The names of a layer's buckets come from the store that it uses, not from the `store` in its rule file.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::redis::cmd;
use http::{Request, Response};
use http_body_util::Full;
use tidegate::{Peer, RateLimitLayer, RateLimitedBody, Store};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::cluster::RedisCluster;
use crate::support::redis::RedisServer;

type Held = Response<RateLimitedBody<Full<Bytes>>>;

/// A limit of each kind that has its own names, and slots.
const ROUTES: &str = "
limits: { daily: { mode: PER_CLIENT, client: 'header:x-key', rate: 3, interval: 1h, candidate: { rate: 9, interval: 1h } } }
clients: { trusted_proxies: [10.0.0.0/8] }
routes:
  - { name: own, match: { path: /own }, limits: [{ name: total, mode: OVERALL, rate: 2, interval: 1h }] }
  - { name: parts, match: { path: /parts }, limits: [{ name: total, mode: OVERALL, rate: 2, interval: 1h, shards: 2 }] }
  - { name: a, match: { path: /a }, limits: [daily] }
  - { name: b, match: { path: /b }, limits: [daily] }
  - name: numbers
    match: { path: /numbers }
    limits: [{ name: each, mode: PER_CLIENT, client: ip, rate: { by: 'header:x-rate', default: 2, max: 9 }, interval: 1h }]
  - { name: slots, match: { path: /slots }, concurrency: { max: 2 } }
";

fn layer(store: &Store, file_store: &str) -> RateLimitLayer {
    let rules = format!("{file_store}{ROUTES}");
    RateLimitLayer::builder().store(store.clone()).from_yaml(&rules).unwrap_or_else(|error| panic!("{error}"))
}

async fn ask(layer: &RateLimitLayer, path: &str) -> Held {
    let respond = |_| ready(Ok::<_, Infallible>(Response::new(Full::from("text"))));
    let request = Request::get(path).header("x-key", "k").extension(Peer([192, 0, 2, 1].into()));
    layer.layer(service_fn(respond)).oneshot(request.body(()).expect("a request")).await.expect("infallible")
}

/// Returns how many requests a layer admits on each path, and the responses, which hold the slots.
async fn admitted(layer: &RateLimitLayer) -> (Vec<usize>, Vec<Held>) {
    let (mut admitted, mut all) = (Vec::new(), Vec::new());
    for path in ["/own", "/parts", "/a", "/b", "/numbers", "/slots"] {
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(ask(layer, path).await);
        }
        admitted.push(held.iter().filter(|response| response.status() == 200).count());
        all.extend(held);
    }
    (admitted, all)
}

fn keys(redis: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> = cmd("KEYS").arg("*").query(&mut redis.connection()).expect("keys");
    keys.sort();
    keys
}

#[tokio::test]
async fn prefixes_of_stores_separate_layers() {
    let Some(redis) = RedisServer::start() else { return };
    let file_store = format!("store: {{ url: '{}', prefix: file. }}", redis.url());
    let mut slots = Vec::new();
    for prefix in ["billing:", "orders:", ""] {
        let store = Store::redis_builder(&redis.url()).timeout(Duration::from_secs(10)).prefix(prefix);
        let store = store.open().expect("a store");
        let layer = layer(&store, if prefix == "orders:" { &file_store } else { "" });
        let (counts, held) = admitted(&layer).await;
        assert_eq!(counts, [2, 2, 3, 0, 2, 2], "{prefix}: a bucket of another layer");
        slots.extend(held);
        assert_eq!(ask(&layer, "/own").await.status(), 429);
    }
    let keys = keys(&redis);
    let count = |prefix: &str| keys.iter().filter(|key| key.starts_with(&format!("{{{prefix}tidegate:"))).count();
    assert_eq!((count("billing:"), count("orders:")), (count(""), count("")), "{keys:?}");
    assert!(keys.iter().all(|key| !key.contains("file.")), "{keys:?}");
}

/// The buckets of a layer that opens the store of its rule file have the names of a given store with that prefix.
#[tokio::test]
async fn prefix_of_a_rule_file_names_the_same_buckets() {
    let Some(redis) = RedisServer::start() else { return };
    let file_store = format!("store: {{ url: '{}', prefix: shop., timeout: 10s }}", redis.url());
    let of_file = RateLimitLayer::from_yaml(&format!("{file_store}{ROUTES}")).expect("a layer");
    let (counts, _slots) = admitted(&of_file).await;
    assert_eq!(counts, [2, 2, 3, 0, 2, 2]);
    let before = keys(&redis);
    assert!(before.iter().any(|key| key.starts_with("{shop.tidegate:own}:total")), "{before:?}");
    let store = Store::redis_builder(&redis.url()).timeout(Duration::from_secs(10)).prefix("shop.");
    let given = layer(&store.open().expect("a store"), "");
    assert_eq!(admitted(&given).await.0, [0; 6]);
    assert_eq!(keys(&redis), before);
}

#[tokio::test]
async fn given_cluster_partitions_limits_by_default() {
    let Some(cluster) = RedisCluster::start() else { return };
    let urls: Vec<String> = cluster.nodes.iter().map(RedisServer::url).collect();
    let store = Store::redis_builder(&urls[0]).cluster(urls[1..].iter().map(String::as_str)).prefix("p.");
    let given = layer(&store.timeout(Duration::from_secs(10)).open().expect("a store"), "");
    let (counts, _slots) = admitted(&given).await;
    assert_eq!(counts, [2, 2, 3, 0, 2, 2]);
    let keys: Vec<String> = cluster.nodes.iter().flat_map(keys).collect();
    let has_partition = |start: &str| {
        let rest = keys.iter().find_map(|key| key.strip_prefix(start)?.strip_prefix(':'));
        rest.and_then(|rest| rest.split_once('}')?.0.parse::<u32>().ok()).is_some()
    };
    assert!(has_partition("{p.tidegate:numbers") && has_partition("{p.tidegate:@daily"), "{keys:?}");
    // The layer that opens the cluster itself finds the same buckets.
    let cluster_store = format!("{{ cluster: ['{}'], timeout: 10s, prefix: p. }}", urls.join("', '"));
    let of_file = RateLimitLayer::from_yaml(&format!("store: {cluster_store}{ROUTES}")).expect("a layer");
    assert_eq!(admitted(&of_file).await.0, [0; 6]);
}
