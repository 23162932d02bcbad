//! A master that its sentinels cannot reach, while gateways and its replica can: they replace it, and it grants on.

use deadpool_redis::redis::cmd;

use super::load::Load;
use super::{ask, connections, remaining, rules, say, shared_again};
use crate::support::gateway::TestGateway;
use crate::support::proxy::FaultyProxy;
use crate::support::redis::RedisServer;
use crate::support::sentinel::{MASTER, Watched, wait_for};
use crate::support::wire::soon;

/// Whom sentinels log in as, and nobody else does.
const WATCHER: &str = "watcher";

fn start() -> Option<Watched> {
    let user = ["--user", WATCHER, "on", ">hunter2", "~*", "&*", "+@all"];
    let login = format!("sentinel auth-user {MASTER} {WATCHER}\nsentinel auth-pass {MASTER} hunter2");
    let watched = Watched::start_with(&user, "127.0.0.1", &login)?;
    let is_watched = |server: &RedisServer| watchers(server) >= 3;
    wait_for("sentinels have logged in", || watched.servers.iter().all(is_watched));
    Some(watched)
}

/// How many connections of sentinels a server has.
fn watchers(server: &RedisServer) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").query(&mut server.connection()).expect("a list");
    list.lines().filter(|line| line.contains(&format!(" user={WATCHER} "))).count()
}

/// From now on it tells sentinels nothing, not even that it is there.
fn cut_off(master: &RedisServer) {
    cmd("ACL").arg(&["SETUSER", WATCHER, "-@all"]).exec(&mut master.connection()).expect("set");
}

fn role(server: &RedisServer) -> String {
    let told: Vec<deadpool_redis::redis::Value> = cmd("ROLE").query(&mut server.connection()).expect("a role");
    format!("{:?}", told.first())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_only_its_sentinels_cannot_reach_is_left_by_everybody_who_hears_them() {
    let Some(watched) = start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(both, &watched.servers[0]).await;
    let load = Load::on(both);
    cut_off(&watched.servers[0]);
    let away = shared_again(both, &watched.servers[1]).await;
    say("master cut off from its sentinels", away, &load.end(both).await);
    assert!(role(&watched.servers[0]).contains("master"), "nobody has told it");
    wait_for("the first master is left", || connections(&watched.servers[0]) == 0);
}

/// It hears no sentinel either, and goes on with its master: two masters, and a limit twice. A master that needs a replica to
/// grant ends that, since it has none any more: then this gateway has its share, and owes what it grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_cut_off_with_its_master_is_stopped_by_min_replicas() {
    let Some(watched) = start() else { return };
    let mut proxies = Vec::new();
    for sentinel in &watched.sentinels {
        proxies.push(FaultyProxy::start(sentinel.port).await);
    }
    let urls: Vec<_> = proxies.iter().map(|proxy| format!("'redis://127.0.0.1:{}'", proxy.port)).collect();
    let rule = watched.rule().replace(&watched.urls(), &urls.join(", "));
    let (inside, outside) = (TestGateway::start(&rules(&rule)), TestGateway::start(&rules(&watched.rule())));
    shared_again([&inside, &outside], &watched.servers[0]).await;
    proxies.iter().for_each(FaultyProxy::cut);
    cut_off(&watched.servers[0]);
    shared_again([&outside, &outside], &watched.servers[1]).await;
    let left = [remaining(&ask(&inside).await), remaining(&ask(&outside).await), remaining(&ask(&inside).await)];
    let [Some(first), Some(_), Some(third)] = left else { panic!("{left:?}") };
    assert_eq!(first, third + 1, "they have a master each");
    for key in ["min-replicas-max-lag", "min-replicas-to-write"] {
        let set = ["SET", key, "1"]; // one at a time, as Redis 6.2 wants it
        cmd("CONFIG").arg(&set).exec(&mut watched.servers[0].connection()).expect("set");
    }
    soon(async { while remaining(&ask(&inside).await).is_some() {} }).await;
    let config = inside.config().await;
    assert!(config.contains("NOREPLICAS") || config.contains("no sentinel of 3 answers"), "{config}");
    assert_eq!(ask(&inside).await.status(), 200);
    proxies.iter().for_each(FaultyProxy::heal);
    shared_again([&inside, &outside], &watched.servers[1]).await;
}
