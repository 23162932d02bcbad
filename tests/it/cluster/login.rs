//! A Redis Cluster with TLS only, and a user with exactly the permissions of docs/redis.md and docs/cluster.md.

use deadpool_redis::redis::cmd;

use super::faults::{granted_to, rules_with_store, until_store_decides};
use crate::support::cluster::RedisCluster;
use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::tls::Authority;

const PASSWORD: &str = "hunter2";

/// Creates the user with the first `ACL SETUSER` line of docs/redis.md and the further permissions of docs/cluster.md.
fn create_user(node: &RedisServer) {
    let read =
        |page: &str| std::fs::read_to_string(format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"))).expect("a page");
    let page = read("redis.md");
    let acl = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER tidegate on ")).expect("permissions");
    let further = "`+cluster|slots` and `+asking`";
    assert!(read("cluster.md").contains(further), "no {further}");
    let is_known = |word: &&str| node.supports_functions() || !["+fcall", "+function|load"].contains(word);
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "gate", "on", "+cluster|slots", "+asking"]);
    user.arg(acl.split(' ').filter(is_known).collect::<Vec<_>>());
    // Replaces the password of the page.
    user.arg(&["resetpass", &format!(">{PASSWORD}")]).exec(&mut node.connection()).expect("a user");
}

/// Nodes present a certificate for their address, announce TLS ports, and reject plaintext.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_works_with_tls_and_the_documented_permissions() {
    let ca = Authority::new();
    ca.sign("node", &["127.0.0.1"]);
    let Some(cluster) = RedisCluster::start_with_tls(&ca, "node") else { return };
    cluster.nodes.iter().for_each(create_user);
    ca.write("password", PASSWORD);
    let store = |scheme: &str, more: &str| {
        let urls: Vec<_> = cluster.ports().iter().map(|port| format!("'{scheme}://gate@127.0.0.1:{port}'")).collect();
        let (urls, password) = (urls.join(", "), ca.path("password"));
        format!("{{ cluster: [{urls}], password_file: '{password}', timeout: 2s{more} }}")
    };
    let trusting = store("rediss", &format!(", tls: {{ ca: '{}' }}", ca.path("ca.pem")));
    let gateway = TestGateway::start(&rules_with_store(&trusting, 3));
    until_store_decides(&gateway).await;
    let slot = cluster.slots_with_keys(0)[0];
    for client in 0..30 {
        assert_eq!(granted_to(&gateway, client).await, 3);
        match client {
            9 => cluster.begin_move(slot, 0, 1),
            19 => cluster.move_keys(slot, 0, 1),
            29 => cluster.finish_move(slot, 0, 1),
            _ => {}
        }
    }
    for client in 0..30 {
        assert_eq!(granted_to(&gateway, client).await, 0, "client {client}");
    }
    let users = |node: &RedisServer| {
        let list: String = cmd("CLIENT").arg("LIST").query(&mut node.connection()).expect("a list");
        list.lines().filter(|line| line.contains(" user=gate ")).count()
    };
    assert!(cluster.nodes.iter().all(|node| users(node) > 0));
    for (store, why) in [(store("redis", ""), ""), (store("rediss", ", tls: {}"), "UnknownIssuer")] {
        let gateway = TestGateway::start(&rules_with_store(&store, 3));
        let response = gateway.get("/", "k: 0\r\n").await;
        assert_eq!((response.status(), response.field("ratelimit")), (200, None), "{}", response.text());
        let ready = gateway.admin_get("/readyz").await.text();
        assert!(ready.contains("unreachable"), "{ready}");
        gateway.until_config_has(&[why]).await;
    }
}
