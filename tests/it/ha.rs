//! `examples/ha` without Docker and Kubernetes: what its files start, in real processes on free ports, and what they say of
//! each other.

use std::net::SocketAddr;
use std::path::Path;

use deadpool_redis::redis::cmd;
use serde_yaml::Value;

use crate::support::compose::{Compose, with};
use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, output};
use crate::support::redis::RedisServer;
use crate::support::sentinel::wait_for;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// As its first comment promises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_the_example_with_sentinels_can_be_killed_and_no_request_fails() {
    let compose = Compose::read("examples/ha/sentinel/compose.yml");
    let folder = std::env::temp_dir().join(format!("tidegate-ha-{}", std::process::id()));
    let Some((mut servers, sentinels)) = watched(&compose, &folder) else { return };
    let urls = (1..=3).map(|number| format!("redis://sentinel-{number}:26379"));
    let store: Vec<_> = urls.zip(sentinels.iter().map(RedisServer::url)).collect();
    let gateways = ["gateway-1", "gateway-2"].map(|name| gateway(&compose, "sentinel", name, &store));
    ten_of_twelve_pass(&gateways).await;

    drop(servers.remove(0));
    let is_new =
        |config: &str| servers.iter().any(|it| config.contains(&format!(r#""master":"127.0.0.1:{}""#, it.port)));
    let mut asked = 0;
    for (_, address, admin) in &gateways {
        while !is_new(&told(*admin, "/api/v1/config").await) {
            assert_eq!(ask(*address, &format!("key {asked}")).await, 200);
            asked += 1;
        }
    }
    drop(gateways);
    drop(sentinels);
    _ = std::fs::remove_dir_all(folder);
}

/// The servers, the master first, and the sentinels that watch them.
fn watched(compose: &Compose, folder: &Path) -> Option<(Vec<RedisServer>, Vec<RedisServer>)> {
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
        let text = with(&compose.mounted(name), "redis-1 6379", &format!("127.0.0.1 {master}"));
        let text = with(&text, "port 26379\n", &format!("dir {}\n", folder.display()));
        RedisServer::start_sentinel(&folder.join(format!("{name}.conf")), &text)
    });
    let sentinels: Vec<RedisServer> = sentinels.into_iter().flatten().collect();
    wait_for("the sentinels know of each other and of the replicas", || {
        sentinels.iter().all(|sentinel| {
            let mut connection = sentinel.connection();
            let about: String = cmd("INFO").arg("sentinel").query(&mut connection).expect("text");
            about.contains("slaves=2,sentinels=3")
        })
    });
    Some((servers, sentinels))
}

/// As its first comment promises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_of_the_example_with_a_cluster_can_be_killed_and_no_request_fails() {
    let compose = Compose::read("examples/ha/cluster/compose.yml");
    let folder = std::env::temp_dir().join(format!("tidegate-ha-cluster-{}", std::process::id()));
    let Some(mut nodes) = cluster(&compose, &folder) else { return };
    let store: Vec<_> =
        (0..3).map(|number| (format!("redis://172.29.0.1{}:6379", number + 1), nodes[number].url())).collect();
    let gateways = ["gateway-1", "gateway-2"].map(|name| gateway(&compose, "cluster", name, &store));
    ten_of_twelve_pass(&gateways).await;

    drop(nodes.remove(0));
    let is_primary = |node: &RedisServer| {
        let replication: String = cmd("INFO").arg("replication").query(&mut node.connection()).expect("text");
        replication.contains("role:master")
    };
    let mut asked = 0;
    while nodes.iter().filter(|node| is_primary(node)).count() < 3 {
        for (_, address, _) in &gateways {
            assert_eq!(ask(*address, &format!("key {asked}")).await, 200);
            asked += 1;
        }
    }
    drop(gateways);
    drop(nodes);
    _ = std::fs::remove_dir_all(folder);
}

/// The nodes of the cluster, its primaries first.
fn cluster(compose: &Compose, folder: &Path) -> Option<Vec<RedisServer>> {
    let node = |number: usize| {
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let dir = ["--dir", folder.to_str().expect("a path in UTF-8")];
        let arguments = compose.arguments(&format!("redis-{number}"), "redis-server");
        RedisServer::start_node(&[&dir[..], &arguments].concat())
    };
    let nodes = (1..=6).map(node).collect::<Option<Vec<_>>>()?;
    create(compose, &nodes);
    wait_for("all is well", || {
        nodes.iter().all(|node| {
            let about: String = cmd("CLUSTER").arg("INFO").query(&mut node.connection()).expect("text");
            let replication: String = cmd("INFO").arg("replication").query(&mut node.connection()).expect("text");
            about.contains("cluster_state:ok") && !replication.contains("master_link_status:down")
        })
    });
    // As after `docker compose restart`: it failed, and was restarted for ever.
    create(compose, &nodes);
    Some(nodes)
}

/// Makes a cluster of them, as the service does that is there for it.
fn create(compose: &Compose, nodes: &[RedisServer]) {
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
    let created = created.expect("it runs");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
}

/// A gateway, and where its clients and its operators are served; all that its store names is elsewhere here.
type Gateway = (Program, SocketAddr, SocketAddr);

fn gateway(compose: &Compose, example: &str, name: &str, store: &[(String, String)]) -> Gateway {
    let mut text = with(&compose.mounted(name), "listen: 0.0.0.0:8080", "listen: 127.0.0.1:0");
    text = with(&text, "admin: 0.0.0.0:9901", "admin: 127.0.0.1:0");
    for (there, here) in store {
        text = with(&text, there, here);
    }
    Program::run(&RuleFile::new(&format!("ha-{example}-{name}"), &text), &[])
}

/// Ten requests of one client pass, whichever gateway they reach. The gateways may have been faster than what they need.
async fn ten_of_twelve_pass(gateways: &[Gateway; 2]) {
    for (_, _, admin) in gateways {
        soon(async { while !told(*admin, "/readyz").await.contains(r#""store":"up""#) {} }).await;
    }
    let mut statuses = Vec::new();
    for number in 0..12 {
        statuses.push(ask(gateways[number % 2].1, "me").await);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
}

async fn ask(gateway: SocketAddr, key: &str) -> u16 {
    get(&mut Raw::connect(gateway).await, "/", &format!("x-api-key: {key}\r\n")).await.status()
}

async fn told(admin: SocketAddr, path: &str) -> String {
    let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Raw::connect(admin).await.ask(&ask).await.text()
}

/// Checks the rules, and that the ports, probes, names and volumes of the manifests refer to each other.
#[test]
fn the_manifests_for_kubernetes_fit_their_rules_and_each_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ha/kubernetes/gateway.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let all: Vec<Value> = text.split("\n---\n").map(|one| serde_yaml::from_str(one).expect("yaml")).collect();
    let [map, deployment, service, budget, policy] = &all[..] else { panic!("other manifests") };
    let rules = map["data"]["tidegate.yaml"].as_str().expect("rules");
    let secret = RuleFile::new("ha-password", "secret\n");
    let file = RuleFile::new("ha-kubernetes", &with(rules, "/run/secrets/redis/password", secret.path()));
    let checked = output(&["check", file.path()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]);
    let container = &pod["spec"]["containers"][0];
    let labels = &pod["metadata"]["labels"];
    let matched = |selector: &'static str, manifest: &Value| manifest["spec"][selector]["matchLabels"].clone();
    for selector in [
        &matched("selector", deployment),
        &service["spec"]["selector"],
        &matched("selector", budget),
        &matched("podSelector", policy),
    ] {
        assert_eq!(selector, labels);
    }
    let port = |name: &str| {
        let ports = container["ports"].as_sequence().expect("ports");
        let port = ports.iter().find(|port| port["name"] == *name).unwrap_or_else(|| panic!("no port {name}"));
        port["containerPort"].as_u64().expect("a number")
    };
    assert!(rules.contains(&format!("listen: 0.0.0.0:{}\n", port("http"))));
    assert!(rules.contains(&format!("admin: 0.0.0.0:{} ", port("admin"))));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "http");
    let allowed = policy["spec"]["ingress"].as_sequence().expect("rules of the policy");
    for (rule, name) in allowed.iter().zip(["http", "admin"]) {
        assert_eq!(rule["ports"][0]["port"], name);
        assert!(rule["from"][0]["namespaceSelector"]["matchLabels"].is_mapping(), "{name} is open to every pod");
    }
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(
            (&container[probe]["httpGet"]["path"], &container[probe]["httpGet"]["port"]),
            (&path.into(), &"admin".into())
        );
    }
    let mounts = container["volumeMounts"].as_sequence().expect("mounts");
    for used in ["/etc/tidegate/tidegate.yaml", "/run/secrets/redis/password"] {
        let (folder, _) = used.rsplit_once('/').expect("a folder");
        let mount = mounts.iter().find(|mount| mount["mountPath"] == *folder).unwrap_or_else(|| panic!("{folder}"));
        let volumes = pod["spec"]["volumes"].as_sequence().expect("volumes");
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{used}");
        let arguments = format!("{:?}", container["args"]);
        assert!(rules.contains(used) || arguments.contains(used), "{used}");
    }
    // Delay and deadline of a drain, and some seconds more.
    assert!(pod["spec"]["terminationGracePeriodSeconds"].as_u64().expect("a number") > 35);
    assert!(budget["spec"]["minAvailable"].as_u64() < spec["replicas"].as_u64());
}
