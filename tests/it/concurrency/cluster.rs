//! Slots in a Redis cluster: each route has a hash slot, and a slot can move to another node under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::wire::soon;

use super::upstream_load::{Load, hold_at, send_all_to, upstream};

const MAX: usize = 9;
/// The bound of each client. All requests of the test are of one client.
const PER_CLIENT: usize = 7;

/// Returns the name of a route whose slots are on this primary.
fn route_on(cluster: &RedisCluster, primary: usize) -> String {
    let is_there =
        |name: &String| cluster.owner_of(cluster.hash_slot_of(&format!("{{tidegate:{name}}}:@in_flight"))) == primary;
    (0..).map(|number| format!("r{number}")).find(is_there).expect("a name")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_in_a_cluster_never_exceed_a_bound() {
    let Some(cluster) = RedisCluster::start() else { return };
    let routes = [(0, "/a"), (1, "/b"), (2, "/c")].map(|(primary, path)| (route_on(&cluster, primary), path));
    let (mut rules, mut targets, mut loads, mut origins) = (String::new(), String::new(), Vec::new(), Vec::new());
    let bounds = format!("{{ max: {MAX}, per_client: {PER_CLIENT}, queue: 20, max_wait: 5s }}");
    for (name, path) in &routes {
        let load = Arc::new(Load::default());
        let origin = upstream(&load).await;
        targets += &format!("  {name}: {{ targets: 'http://{}', retry: off, eject: off }}\n", origin.address);
        rules +=
            &format!("  - {{ name: {name}, match: {{ path: {path} }}, upstream: {name}, concurrency: {bounds} }}\n");
        loads.push(load);
        origins.push(origin);
    }
    let rules = format!("store: {}\nupstreams:\n{targets}routes:\n{rules}", cluster.rule("10s"));
    let gateways = [TestGateway::start(&rules), TestGateway::start(&rules), TestGateway::start(&rules)];
    let addresses = [0, 1, 2].map(|number: usize| gateways[number].address);
    let paths = [routes[0].1, routes[1].1, routes[2].1];
    let send = || paths.map(|path| tokio::spawn(async move { send_all_to(path, &addresses).await }));
    for sent in send() {
        assert!(sent.await.expect("responses") > 0);
    }
    // The slot of a route moves to another node and back while requests take and release its leases.
    let (senders, slot) = (send(), cluster.hash_slot_of(&format!("{{tidegate:{}}}", routes[0].0)));
    for (from, to) in [(0, 1), (1, 0), (0, 2)] {
        cluster.begin_move(slot, from, to);
        cluster.move_keys_one_by_one(slot, from, to);
        cluster.finish_move(slot, from, to);
    }
    for sent in senders {
        assert!(sent.await.expect("responses") > 0);
    }
    for (load, path) in loads.iter().zip(paths) {
        let (peak, now) = (load.peak.load(Ordering::SeqCst), load.now.load(Ordering::SeqCst));
        assert!(peak <= PER_CLIENT && now == 0, "{peak} at once for {path}, {now} at the end");
    }

    // All slots are free, and no more.
    for ((load, path), (name, _)) in loads.iter().zip(paths).zip(&routes) {
        let (target, mut held) = (format!("{path}?/hold"), Vec::new());
        for number in 0..PER_CLIENT {
            held.push(hold_at(&target, addresses[number % 3], load).await);
        }
        let mut waiting = gateways[0].client().await;
        waiting.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let waits = format!("tidegate_requests_waiting{{route=\"{name}\"}}");
        soon(async { while gateways[0].counter(&waits).await == 0 {} }).await;
        assert_eq!(load.peak.load(Ordering::SeqCst), PER_CLIENT);
        drop(held);
        assert_eq!(waiting.head().await.expect("a head").status(), 200);
    }
}
