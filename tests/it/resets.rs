//! A reset through one gateway also clears what the others remember.

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::admin_api::{Admin, inspects_and_resets};
use crate::support::cluster::RedisCluster;
use crate::support::proxy::FaultyProxy;
use crate::support::redis::RedisServer;
use crate::support::sentinel::SentinelSetup;
use crate::support::wire::soon;

async fn status(admin: &Admin, client: &str) -> u16 {
    admin.request("/", &format!("X-Key: {client}\r\n")).await.status()
}

async fn used(admin: &Admin, client: &str) -> u64 {
    let (status, state) = admin.api("GET", &format!("limits/rest/own/client?value={client}"), "").await;
    if status == 200 { state["used"].as_u64().expect("a number") } else { u64::MAX }
}

/// Returns the number of permits that a gateway owes, and the number of gateways that it knows.
async fn owed(admin: &Admin) -> (u64, u64) {
    let (_, config) = admin.api("GET", "config", "").await;
    let number = |key: &str| config["store"][key].as_u64().expect("a number");
    (number("owed"), number("gateways"))
}

/// Waits until the gateways have read the list of resets this many times together.
async fn wait_for_readings(redis: &RedisServer, times: usize) {
    let mut monitor = TcpStream::connect(("127.0.0.1", redis.port)).await.expect("a connection");
    monitor.write_all(b"MONITOR\r\n").await.expect("the command was sent");
    let mut lines = BufReader::new(monitor).lines();
    let mut readings = 0;
    soon(async {
        while readings < times {
            let line = lines.next_line().await.expect("a line").expect("the server runs");
            readings += usize::from(line.contains("ZRANGE") && line.contains(":resets"));
        }
    })
    .await;
}

/// Sends requests until the gateway decides by its own share, which is one permit, and has used it.
async fn exhaust_share(admin: &Admin, client: &str) {
    let before = owed(admin).await.0;
    soon(async {
        while owed(admin).await.0 == before {
            status(admin, client).await;
        }
    })
    .await;
    soon(async { while status(admin, client).await != 429 {} }).await;
}

/// Starts two gateways that know each other. The other one reaches Redis through the proxy.
async fn two_gateways(redis: &RedisServer) -> (FaultyProxy, Admin, Admin) {
    let proxy = FaultyProxy::start(redis.port).await;
    let one = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    // A slow reply is no outage: a proxy that is cut closes its connections.
    let store = format!("store: {{ url: 'redis://127.0.0.1:{}', timeout: 5s }}\n", proxy.port);
    let other = Admin::with_tokens(&store);
    soon(async { while owed(&one).await.1 != 2 || owed(&other).await.1 != 2 {} }).await;
    (proxy, one, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_forgives_debts_and_local_buckets_of_the_other_gateway() {
    let Some(redis) = RedisServer::start() else { return };
    let (proxy, one, other) = two_gateways(&redis).await;

    proxy.cut();
    for client in ["reset", "kept"] {
        exhaust_share(&other, client).await;
    }
    assert_eq!(owed(&other).await.0, 4, "each request is charged to two limits");
    let (status_of_reset, cleared) = one.change("limits/rest/own/client?value=reset").await;
    assert_eq!((status_of_reset, &cleared["gateways"]), (200, &json!(2)), "{cleared}");
    proxy.heal();
    soon(async { while owed(&other).await.0 > 0 {} }).await;
    soon(async { while used(&one, "kept").await != 1 {} }).await;
    assert_eq!(used(&one, "reset").await, 0, "the debt was from before the reset");

    // The local bucket is empty again, so that the next outage starts with the whole share.
    drop(one);
    wait_for_readings(&redis, 2).await;
    proxy.cut();
    exhaust_share(&other, "reset").await;
    assert_eq!(owed(&other).await.0, 2);
    assert_eq!(status(&other, "kept").await, 429);
    proxy.heal();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_grants_after_a_reset_are_charged() {
    let Some(redis) = RedisServer::start() else { return };
    let (proxy, one, other) = two_gateways(&redis).await;
    proxy.cut();
    assert_eq!(one.change("limits/rest/own").await.0, 200);
    exhaust_share(&other, "late").await;
    proxy.heal();
    soon(async { while used(&one, "late").await != 1 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_clients_in_a_cluster() {
    let Some(cluster) = RedisCluster::start() else { return };
    inspects_and_resets(&Admin::with_tokens(&format!("store: {}\n", cluster.rule("2s")))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_clients_behind_sentinels() {
    let Some(setup) = SentinelSetup::start() else { return };
    inspects_and_resets(&Admin::with_tokens(&format!("store: {}\n", setup.rule()))).await;
}
