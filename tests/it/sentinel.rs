//! A store whose master sentinels know: they are asked, followed and doubted.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::clock::Stopwatch;

use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, free_port};
use crate::support::sentinel::{MASTER, Watched, wait_for};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;

/// A limit that is decided alone while the store is away.
fn rules(store: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: 1000000, interval: 1h, on_store_failure: local }}\n"
    )
}

async fn ask(gateway: &TestGateway) -> Message {
    gateway.get("/", "k: a\r\n").await
}

/// What remains by the store; nothing if somebody else decided.
fn remaining(answer: &Message) -> Option<u32> {
    let field = answer.field("ratelimit")?;
    let (_, rest) = field.split_once("r=")?;
    rest.split(';').next()?.parse().ok()
}

async fn ready(gateway: &TestGateway) -> String {
    gateway.admin_get("/readyz").await.text()
}

async fn config(gateway: &TestGateway) -> String {
    let ask = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
    Raw::connect(gateway.admin).await.ask(ask).await.text()
}

/// How many connections others than the servers have to this one.
fn connections(server: &RedisServer) -> usize {
    let list: String = cmd("CLIENT").arg(&["LIST", "TYPE", "NORMAL"]).query(&mut server.connection()).expect("a list");
    list.lines().filter(|line| line.contains("lib-name=redis-rs") || line.contains("cmd=fcall")).count()
}

/// Asks until both have their decisions from this server, and counts what is decided by nobody; returns how long it took.
async fn shared_again(gateways: &[&TestGateway], server: &RedisServer) -> Duration {
    let since = Stopwatch::start();
    loop {
        let mut told = Vec::new();
        for gateway in gateways {
            let answer = ask(gateway).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            told.push(remaining(&answer));
        }
        let config = config(gateways[0]).await;
        let is_there = config.contains(&format!(r#""master":"127.0.0.1:{}""#, server.port));
        if is_there
            && let [Some(first), Some(second)] = told[..]
            && first == second + 1
        {
            return since.elapsed();
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{told:?} {config} {}", ready(gateways[0]).await);
    }
}

/// Most of it is the sentinels' own.
#[expect(clippy::print_stdout, reason = "how long it takes is worth knowing, and nothing to fail by")]
fn say(took: Duration, after: &str) {
    println!("the limit is shared again {} ms after {after}", took.as_millis());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_decides_that_a_sentinel_names_who_is_there() {
    let Some(watched) = Watched::start() else { return };
    let urls = format!("'redis://127.0.0.1:{}', {}", free_port(), watched.urls());
    let store = format!("{{ timeout: 2s, database: 3, sentinel: {{ urls: [{urls}], master: {MASTER} }} }}");
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&store)));
    shared_again(&[&gateways[0], &gateways[1]], &watched.servers[0]).await;
    let mut redis = watched.servers[0].connection();
    cmd("SELECT").arg(3).exec(&mut redis).expect("selected");
    let keys: Vec<String> = cmd("KEYS").arg("{tidegate:all}:l:*").query(&mut redis).expect("keys");
    assert_eq!(keys.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_without_an_error() {
    let Some(mut watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(&both, &watched.servers[0]).await;
    drop(watched.servers.remove(0));
    say(shared_again(&both, &watched.servers[0]).await, "the master was killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_replaced_and_lives_on_is_left_by_everybody() {
    let Some(watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(&both, &watched.servers[0]).await;
    watched.fail_over();
    say(shared_again(&both, &watched.servers[1]).await, "a failover was asked for");
    wait_for("the first master is left", || connections(&watched.servers[0]) == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_are_all_away_change_nothing_while_the_master_is_there() {
    let Some(mut watched) = Watched::start() else { return };
    let gateways = [(); 2].map(|()| TestGateway::start(&rules(&watched.rule())));
    let both = [&gateways[0], &gateways[1]];
    shared_again(&both, &watched.servers[0]).await;
    watched.sentinels.clear();
    for _ in 0..200 {
        assert!(remaining(&ask(&gateways[0]).await).is_some());
    }
    assert_eq!(gateways[0].counter("tidegate_store_up").await, 1);
    drop(watched.servers.remove(0));
    soon(async { while !ready(&gateways[0]).await.contains("no sentinel of 3 answers: 127.0.0.1:") {} }).await;
    assert_eq!(ask(&gateways[0]).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_no_sentinel_knows_is_an_outage_that_says_so() {
    let Some(watched) = Watched::start() else { return };
    let store = watched.rule().replace(&format!("master: {MASTER}"), "master: nobody");
    let gateway = TestGateway::start(&rules(&store));
    assert_eq!(ask(&gateway).await.status(), 200);
    let told = ready(&gateway).await;
    assert!(told.contains("no sentinel knows a master called `nobody`"), "{told}");
}
