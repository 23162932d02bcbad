//! `examples/ha` without Docker and Kubernetes: what its files start, in real processes on free ports, and what they say of
//! each other.

use std::net::SocketAddr;
use std::path::Path;

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
    let gateways = ["gateway-1", "gateway-2"].map(|name| gateway(&compose, name, &sentinels));
    let addresses = [gateways[0].1, gateways[1].1];
    // Which were not there yet when they were looked for.
    for (_, _, admin) in &gateways {
        soon(async { while !told(*admin, "/readyz").await.contains(r#""store":"up""#) {} }).await;
    }
    let mut statuses = Vec::new();
    for number in 0..12 {
        statuses.push(ask(addresses[number % 2], "me").await);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());

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
            let about: String =
                deadpool_redis::redis::cmd("INFO").arg("sentinel").query(&mut connection).expect("text");
            about.contains("slaves=2,sentinels=3")
        })
    });
    Some((servers, sentinels))
}

fn gateway(compose: &Compose, name: &str, sentinels: &[RedisServer]) -> (Program, SocketAddr, SocketAddr) {
    let mut text = with(&compose.mounted(name), "listen: 0.0.0.0:8080", "listen: 127.0.0.1:0");
    text = with(&text, "admin: 0.0.0.0:9901", "admin: 127.0.0.1:0");
    for (number, sentinel) in sentinels.iter().enumerate() {
        text = with(&text, &format!("redis://sentinel-{}:26379", number + 1), &sentinel.url());
    }
    Program::run(&RuleFile::new(&format!("ha-{name}"), &text), &[])
}

async fn ask(gateway: SocketAddr, key: &str) -> u16 {
    get(&mut Raw::connect(gateway).await, "/", &format!("x-api-key: {key}\r\n")).await.status()
}

async fn told(admin: SocketAddr, path: &str) -> String {
    let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Raw::connect(admin).await.ask(&ask).await.text()
}

/// The rules have no mistakes, and the ports, probes, names and volumes of the manifests lead to each other.
#[test]
fn the_manifests_for_kubernetes_fit_their_rules_and_each_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ha/kubernetes/gateway.yaml");
    let text = std::fs::read_to_string(path).expect("a file");
    let all: Vec<Value> = text.split("\n---\n").map(|one| serde_yaml::from_str(one).expect("yaml")).collect();
    let [map, deployment, service, budget] = &all[..] else { panic!("other manifests") };
    let rules = map["data"]["tidegate.yaml"].as_str().expect("rules");
    let secret = RuleFile::new("ha-password", "secret\n");
    let file = RuleFile::new("ha-kubernetes", &with(rules, "/run/secrets/redis/password", secret.path()));
    let checked = output(&["check", file.path()]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]);
    let container = &pod["spec"]["containers"][0];
    let labels = &pod["metadata"]["labels"];
    for selector in
        [&spec["selector"]["matchLabels"], &service["spec"]["selector"], &budget["spec"]["selector"]["matchLabels"]]
    {
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
