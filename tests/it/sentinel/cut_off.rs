//! A master that the sentinels cannot reach, but gateways and the replica can. The sentinels replace it, and it
//! continues to grant.

use deadpool_redis::redis::cmd;

use super::load::Load;
use super::{ask, connections, print_outage, remaining, rules, wait_until_shared};
use crate::support::gateway::TestGateway;
use crate::support::proxy::FaultyProxy;
use crate::support::redis::{RedisServer, wait_for};
use crate::support::sentinel::{MASTER, SentinelSetup};
use crate::support::wire::soon;

/// The user that only sentinels log in as.
const SENTINEL_USER: &str = "sentinel";

fn start() -> Option<SentinelSetup> {
    let user = ["--user", SENTINEL_USER, "on", ">hunter2", "~*", "&*", "+@all"];
    let login = format!("sentinel auth-user {MASTER} {SENTINEL_USER}\nsentinel auth-pass {MASTER} hunter2");
    let setup = SentinelSetup::start_with(&user, "127.0.0.1", &login)?;
    let is_monitored = |server: &RedisServer| sentinel_connections(server) >= 3;
    wait_for("the sentinels have logged in", || setup.servers.iter().all(is_monitored));
    Some(setup)
}

/// Returns the number of connections of sentinels to a server.
fn sentinel_connections(server: &RedisServer) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").query(&mut server.connection()).expect("a list");
    list.lines().filter(|line| line.contains(&format!(" user={SENTINEL_USER} "))).count()
}

/// Makes a master deny all commands of sentinels.
fn cut_off(master: &RedisServer) {
    cmd("ACL").arg(&["SETUSER", SENTINEL_USER, "-@all"]).exec(&mut master.connection()).expect("set");
}

fn role(server: &RedisServer) -> String {
    let role: Vec<deadpool_redis::redis::Value> = cmd("ROLE").query(&mut server.connection()).expect("a role");
    format!("{:?}", role.first())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_leave_a_master_without_sentinels() {
    let Some(setup) = start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&setup.rule())));
    let both = [&gateways[0], &gateways[1]];
    wait_until_shared(both, &setup.servers[0]).await;
    let load = Load::start(both);
    cut_off(&setup.servers[0]);
    let away = wait_until_shared(both, &setup.servers[1]).await;
    print_outage("master cut off from its sentinels", away, &load.stop(both).await);
    assert!(role(&setup.servers[0]).contains("master"), "the first master must not know of the failover");
    wait_for("the gateways have left the first master", || connections(&setup.servers[0]) == 0);
}

/// A gateway that is cut off together with its master keeps using it, so two masters grant the limit. With
/// `min-replicas-to-write` the master without replicas stops, and the gateway decides locally.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_replicas_stops_a_cut_off_master() {
    let Some(setup) = start() else { return };
    let mut proxies = Vec::new();
    for sentinel in &setup.sentinels {
        proxies.push(FaultyProxy::start(sentinel.port).await);
    }
    let urls: Vec<_> = proxies.iter().map(|proxy| format!("'redis://127.0.0.1:{}'", proxy.port)).collect();
    let rule = setup.rule().replace(&setup.urls(), &urls.join(", "));
    let (inside, outside) = (TestGateway::start(&rules(&rule)), TestGateway::start(&rules(&setup.rule())));
    wait_until_shared([&inside, &outside], &setup.servers[0]).await;
    proxies.iter().for_each(FaultyProxy::cut);
    cut_off(&setup.servers[0]);
    wait_until_shared([&outside, &outside], &setup.servers[1]).await;
    let left = [remaining(&ask(&inside).await), remaining(&ask(&outside).await), remaining(&ask(&inside).await)];
    let [Some(first), Some(_), Some(third)] = left else { panic!("{left:?}") };
    assert_eq!(first, third + 1, "each gateway must use its own master");
    for key in ["min-replicas-max-lag", "min-replicas-to-write"] {
        let set = ["SET", key, "1"]; // Redis 6.2 sets only one setting per command
        cmd("CONFIG").arg(&set).exec(&mut setup.servers[0].connection()).expect("set");
    }
    soon(async { while remaining(&ask(&inside).await).is_some() {} }).await;
    let config = inside.config().await;
    assert!(config.contains("NOREPLICAS") || config.contains("no sentinel of 3 answers"), "{config}");
    assert_eq!(ask(&inside).await.status(), 200);
    proxies.iter().for_each(FaultyProxy::heal);
    wait_until_shared([&inside, &outside], &setup.servers[1]).await;
}
