//! The secret of the client hashes, which lies on one node of a cluster and is used for all.

use deadpool_redis::redis::{Commands, cmd};
use std::collections::BTreeSet;

use super::faults::{ask, is_there_for_all, rules};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const KEY: &str = "tidegate:key_secret";

/// As after a failover that has lost it: another gateway has made up one since. Connections to the other nodes went on with the
/// old one, so that two gateways had two buckets for a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_has_changed_on_its_node_is_used_for_all_nodes() {
    let Some(cluster) = RedisCluster::start() else { return };
    let gateway = TestGateway::start(&rules(&cluster, "2s", 1_000_000));
    is_there_for_all(&gateway).await;
    let node = &cluster.nodes[cluster.owner_of(cluster.hash_slot_of(KEY))];
    () = node.connection().set(KEY, "5ec2e7".repeat(10)).expect("set");
    // Wherever its bucket is, a client has another one.
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
