//! The secret for client hashes: one node of a cluster stores it for all nodes.

use deadpool_redis::redis::{Commands, cmd};
use std::collections::BTreeSet;

use super::faults::{ask, rules, until_store_decides};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const KEY: &str = "tidegate:key_secret";

/// Regression test: after a failover that lost the secret, another gateway stored a new one. Connections to other nodes
/// kept the old one, so two gateways had two buckets for a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_secret_is_used_for_all_nodes() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "2s", 1_000_000));
    until_store_decides(&gateway).await;
    let node = &cluster.nodes[cluster.owner_of(cluster.hash_slot_of(KEY))];
    () = node.connection().set(KEY, "5ec2e7".repeat(10)).expect("set");
    // Every client gets a new bucket, on any node.
    for client in 1_000..1_020 {
        let before = buckets(&cluster);
        soon(async {
            while buckets(&cluster).is_subset(&before) {
                _ = ask(&gateway, client).await;
            }
        })
        .await;
    }
}

fn buckets(cluster: &RedisCluster) -> BTreeSet<String> {
    let of_node = |node: &RedisServer| {
        cmd("KEYS").arg("{tidegate:all:*}:l:*").query::<Vec<String>>(&mut node.connection()).expect("keys")
    };
    cluster.nodes.iter().flat_map(of_node).collect()
}
