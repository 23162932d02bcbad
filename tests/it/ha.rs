//! Tests of `examples/ha` without Docker: starts its services as processes on free ports.

use std::net::SocketAddr;
use std::path::Path;

use deadpool_redis::redis::cmd;

use crate::support::compose::{Compose, replace_once};
use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::{RedisServer, wait_for};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// The first comment of the Compose file promises this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_example_survives_the_loss_of_its_master() {
    let compose = Compose::read("examples/ha/sentinel/compose.yml");
    let folder = std::env::temp_dir().join(format!("tidegate-ha-{}", std::process::id()));
    let Some((mut servers, sentinels)) = start_sentinel_setup(&compose, &folder) else { return };
    let urls = (1..=3).map(|number| format!("redis://sentinel-{number}:26379"));
    let store: Vec<_> = urls.zip(sentinels.iter().map(RedisServer::url)).collect();
    let gateways = ["gateway-1", "gateway-2"].map(|name| start_gateway(&compose, "sentinel", name, &store));
    assert_ten_of_twelve_are_admitted(&gateways).await;

    drop(servers.remove(0));
    let has_new_master = |config: &str| {
        servers.iter().any(|server| config.contains(&format!(r#""master":"127.0.0.1:{}""#, server.port)))
    };
    let mut sent = 0;
    for (_, address, admin) in &gateways {
        while !has_new_master(&admin_get(*admin, "/api/v1/config").await) {
            assert_eq!(status(*address, &format!("key {sent}")).await, 200);
            sent += 1;
        }
    }
    drop(gateways);
    drop(sentinels);
    _ = std::fs::remove_dir_all(folder);
}

/// Starts the servers, the master first, and the sentinels that monitor them.
fn start_sentinel_setup(compose: &Compose, folder: &Path) -> Option<(Vec<RedisServer>, Vec<RedisServer>)> {
    let server = |name: &str, master: Option<u16>| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let port = master.map(|port| port.to_string());
        let arguments = compose.arguments(name, "redis-server").into_iter();
        let here = arguments.map(|argument| match (argument, &port) {
            ("redis-1", Some(_)) => "127.0.0.1",
            ("6379", Some(port)) => port,
            _ => argument,
        });
        let dir = ["--dir", folder.to_str().expect("a path in UTF-8")];
        RedisServer::start_with(None, &dir.into_iter().chain(here).collect::<Vec<_>>())
    };
    let first = server("redis-1", None)?;
    let master = first.port;
    let servers = vec![first, server("redis-2", Some(master))?, server("redis-3", Some(master))?];
    let sentinels = ["sentinel-1", "sentinel-2", "sentinel-3"].map(|name| {
        let text = replace_once(&compose.mounted_file(name), "redis-1 6379", &format!("127.0.0.1 {master}"));
        let text = replace_once(&text, "port 26379\n", &format!("dir {}\n", folder.display()));
        RedisServer::start_sentinel(&folder.join(format!("{name}.conf")), &text)
    });
    let sentinels: Vec<RedisServer> = sentinels.into_iter().flatten().collect();
    wait_for("the sentinels know each other and the replicas", || {
        sentinels.iter().all(|sentinel| {
            let mut connection = sentinel.connection();
            let info: String = cmd("INFO").arg("sentinel").query(&mut connection).expect("text");
            info.contains("slaves=2,sentinels=3")
        })
    });
    Some((servers, sentinels))
}

/// The first comment of the Compose file promises this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_example_survives_the_loss_of_a_primary() {
    let compose = Compose::read("examples/ha/cluster/compose.yml");
    let folder = std::env::temp_dir().join(format!("tidegate-ha-cluster-{}", std::process::id()));
    let Some(mut nodes) = start_cluster(&compose, &folder) else { return };
    let store: Vec<_> =
        (0..3).map(|number| (format!("redis://172.29.0.1{}:6379", number + 1), nodes[number].url())).collect();
    let gateways = ["gateway-1", "gateway-2"].map(|name| start_gateway(&compose, "cluster", name, &store));
    assert_ten_of_twelve_are_admitted(&gateways).await;

    drop(nodes.remove(0));
    let is_primary = |node: &RedisServer| {
        let replication: String = cmd("INFO").arg("replication").query(&mut node.connection()).expect("text");
        replication.contains("role:master")
    };
    let mut sent = 0;
    while nodes.iter().filter(|node| is_primary(node)).count() < 3 {
        for (_, address, _) in &gateways {
            assert_eq!(status(*address, &format!("key {sent}")).await, 200);
            sent += 1;
        }
    }
    drop(gateways);
    drop(nodes);
    _ = std::fs::remove_dir_all(folder);
}

/// Starts the nodes of the cluster, its primaries first.
fn start_cluster(compose: &Compose, folder: &Path) -> Option<Vec<RedisServer>> {
    let node = |number: usize| {
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let dir = ["--dir", folder.to_str().expect("a path in UTF-8")];
        let arguments = compose.arguments(&format!("redis-{number}"), "redis-server");
        RedisServer::start_node(&[&dir[..], &arguments].concat())
    };
    let nodes = (1..=6).map(node).collect::<Option<Vec<_>>>()?;
    create_cluster(compose, &nodes);
    wait_for("all nodes are healthy", || {
        nodes.iter().all(|node| {
            let info: String = cmd("CLUSTER").arg("INFO").query(&mut node.connection()).expect("text");
            let replication: String = cmd("INFO").arg("replication").query(&mut node.connection()).expect("text");
            info.contains("cluster_state:ok") && !replication.contains("master_link_status:down")
        })
    });
    // Regression test: the service failed and restarted forever after `docker compose restart`.
    create_cluster(compose, &nodes);
    Some(nodes)
}

/// Creates the cluster with the command of the service `create`.
fn create_cluster(compose: &Compose, nodes: &[RedisServer]) {
    let words = |key: &str| compose.service("create")[key].as_sequence().expect("words").clone();
    let mut words = words("entrypoint").into_iter().chain(words("command")).map(|word| {
        // Compose reads `$$` as `$`.
        let mut word = word.as_str().expect("a word").replace("$$", "$");
        for (number, node) in nodes.iter().enumerate() {
            word = word.replace(&format!("172.29.0.1{}:6379", number + 1), &format!("127.0.0.1:{}", node.port));
        }
        word
    });
    let created = std::process::Command::new(words.next().expect("a program")).args(words).output();
    let created = created.expect("the program runs");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
}

/// A gateway with its addresses for clients and for the admin listener.
type Gateway = (Program, SocketAddr, SocketAddr);

/// Starts a gateway. `store` replaces addresses of the Compose file by addresses on loopback.
fn start_gateway(compose: &Compose, example: &str, name: &str, store: &[(String, String)]) -> Gateway {
    let mut text = replace_once(&compose.mounted_file(name), "listen: 0.0.0.0:8080", "listen: 127.0.0.1:0");
    text = replace_once(&text, "admin: 0.0.0.0:9901", "admin: 127.0.0.1:0");
    // A busy machine exceeds the default, and the gateway would decide locally.
    text = replace_once(&text, "store:\n", "store:\n  timeout: 5s\n");
    for (there, here) in store {
        text = replace_once(&text, there, here);
    }
    Program::run(&RuleFile::new(&format!("ha-{example}-{name}"), &text), &[])
}

/// Waits for the stores of both gateways, then sends twelve requests of one client through both in turn.
async fn assert_ten_of_twelve_are_admitted(gateways: &[Gateway; 2]) {
    for (_, _, admin) in gateways {
        soon(async { while !admin_get(*admin, "/readyz").await.contains(r#""store":"up""#) {} }).await;
    }
    let mut statuses = Vec::new();
    for number in 0..12 {
        statuses.push(status(gateways[number % 2].1, "me").await);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
}

async fn status(gateway: SocketAddr, key: &str) -> u16 {
    get(&mut Raw::connect(gateway).await, "/", &format!("x-api-key: {key}\r\n")).await.status()
}

async fn admin_get(admin: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Raw::connect(admin).await.ask(&request).await.text()
}
