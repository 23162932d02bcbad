//! A Redis that starts late, or restarts without its data.

use std::io::BufRead;
use std::time::Duration;

use deadpool_redis::redis::Commands;
use tokio::task::spawn_blocking;

use crate::support::gateway::TestGateway;
use crate::support::overall;
use crate::support::process::{Program, RuleFile, tidegate};
use crate::support::proxy::FaultyProxy;
use crate::support::redis::{RedisServer, free_port};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

fn rules(store: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: 10, interval: 1h }}\n",
    )
}

fn store_at(port: u16) -> String {
    format!("{{ url: 'redis://127.0.0.1:{port}', timeout: 5s }}")
}

/// Each gateway has generated a secret before Redis starts; all must use the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_an_empty_redis_share_one_secret() {
    if RedisServer::start().is_none() {
        return;
    }
    for _ in 0..3 {
        let port = free_port();
        let gateways = [(); 3].map(|()| TestGateway::start(&rules(&store_at(port))));
        let redis = RedisServer::start_on(port).expect("a Redis");
        for gateway in &gateways {
            soon(async { while gateway.get("/", "k: a\r\n").await.field("ratelimit").is_none() {} }).await;
        }
        let keys: Vec<String> =
            redis.connection().keys("{tidegate:all}:l:????????????????????????????????").expect("keys");
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
}

#[tokio::test]
async fn data_loss_is_logged_and_keeps_client_hashes() {
    let Some(redis) = RedisServer::start() else { return };
    let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{}", rules(&store_at(redis.port)));
    let file = RuleFile::new("lost-data", &text);
    let (program, address, admin) = Program::run(&file, &[]);
    let send =
        async |address| Raw::connect(address).await.ask("GET / HTTP/1.1\r\nHost: localhost\r\nk: a\r\n\r\n").await;
    let key = |redis: &RedisServer| {
        let keys: Vec<String> = redis.connection().keys("{tidegate:all}:l:*").expect("keys");
        keys.into_iter().find(|key| !key.contains(":owed:")).expect("a bucket")
    };
    soon(async { while send(address).await.field("ratelimit").is_none() {} }).await;
    let (port, before) = (redis.port, key(&redis));
    drop(redis);
    let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    soon(async { while !Raw::connect(admin).await.ask(ready).await.text().contains("unreachable") {} }).await;
    let redis = RedisServer::start_on(port).expect("a Redis on the same port");
    soon(async { while send(address).await.field("ratelimit").is_none() {} }).await;
    assert_eq!(key(&redis), before);
    program.signal("TERM");
    let (_, log) = spawn_blocking(|| program.wait_for_exit()).await.expect("an exit");
    assert_eq!(log.matches("store has lost its data").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_readiness_follows_the_state_of_the_store() {
    if RedisServer::start().is_none() {
        return;
    }
    let port = free_port();
    let store = format!("{{ url: 'redis://127.0.0.1:{port}', timeout: 5s, fail_readiness: true }}");
    let gateway = TestGateway::start(&rules(&store));
    let ready = async || gateway.admin_get("/readyz").await;
    soon(async { while ready().await.status() != 503 {} }).await;
    assert!(ready().await.text().contains(r#""store":"unreachable""#));
    assert_eq!(gateway.get("/", "k: a\r\n").await.status(), 200);
    let redis = RedisServer::start_on(port).expect("a Redis");
    soon(async { while ready().await.status() != 200 {} }).await;
    drop(redis);
    soon(async { while ready().await.status() != 503 {} }).await;
}

/// An evicted bucket loses its grants, so its limit grants too much.
#[tokio::test]
async fn eviction_policy_of_redis_is_logged_at_start() {
    let evicts = ["--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(redis) = RedisServer::start_with(None, &evicts) else { return };
    let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{}", rules(&store_at(redis.port)));
    let file = RuleFile::new("evicts", &text);
    // The gateway connects before it listens, so the line can be the first one.
    let mut program = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    let line = spawn_blocking(move || {
        let mut line = String::new();
        while program.stderr.read_line(&mut line).is_ok_and(|length| length > 0) && !line.contains("may evict") {
            line.clear();
        }
        line
    });
    let line = soon(line).await.expect("a line");
    assert!(line.contains(r#"policy="allkeys-lru""#), "{line}");
}

/// A permit refunded twice would be granted twice. A lost refund only delays the permit until the interval ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_to_a_refund_refunds_once() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = RedisServer::store_at(format!("redis://127.0.0.1:{}", proxy.port), Duration::from_secs(3));
    let one = overall("{a}:l", 10, 3_600_000, 1);
    let mut taken = Vec::new();
    for _ in 0..3 {
        let outcome = store.take(std::slice::from_ref(&one)).await.expect("a decision");
        taken = outcome.granted_charges(std::slice::from_ref(&one));
    }
    // The reply arrives after the timeout.
    proxy.delay(5_000, 5_000);
    assert!(store.give_back(&taken).await.is_err());
    proxy.delay(0, 0);
    let none = [overall("{a}:l", 10, 3_600_000, 0)];
    let left = soon(async {
        loop {
            if let Ok(outcome) = store.take(&none).await {
                return outcome.decisions[0].remaining;
            }
        }
    })
    .await;
    assert_eq!(left, 8);
}
