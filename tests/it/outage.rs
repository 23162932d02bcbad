//! Outages of the store: gateways decide locally, and charge their grants when the store has recovered.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Connection, InfoDict, cmd};
use tidegate_limit::clock::Stopwatch;
use tokio::task::JoinSet;

use crate::support::gateway::{TestGateway, get};
use crate::support::overall;
use crate::support::proxy::FaultyProxy;
use crate::support::redis::RedisServer;
use crate::support::redisson::script;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::{soon, until};

/// Returns rules with a PER_CLIENT limit of ten with these further settings.
fn rules(redis: &RedisServer, limit: &str) -> String {
    rules_at(&redis.rule(), limit)
}

fn rules_at(store: &str, limit: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: 10, {limit} }}\n",
    )
}

async fn ask(gateway: &TestGateway) -> Message {
    gateway.get("/", "k: a\r\n").await
}

/// Returns `true` if the store decided: only then the response has the remaining permits.
fn is_from_store(response: &Message) -> bool {
    response.field("ratelimit").is_some()
}

/// Without the charge, one window would contain local grants and a second full rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_grants_are_charged_before_new_decisions() {
    let limits = [
        "interval: 1h",
        "interval: 1h, algorithm: gcra",
        "interval: 1h, algorithm: sliding_window, segments: 4",
        "interval: month, algorithm: fixed_window",
        "interval: 1h, key: java",
    ];
    limits.map(charged_afterwards).into_iter().collect::<JoinSet<_>>().join_all().await;
}

async fn charged_afterwards(limit: &'static str) {
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules(&redis, limit);
    let other = TestGateway::start(&rules);
    assert!(is_from_store(&ask(&other).await), "{limit}");
    // With a second worker, Redis could decide on its connection after SIGCONT, before the charge on the other one.
    let gateway = TestGateway::start_with_one_worker(&rules);
    assert!(is_from_store(&ask(&gateway).await), "{limit}");
    redis.signal("STOP");
    let mut granted = 2;
    let alone = soon(granted_until(&gateway, &mut granted, |response| response.status() == 429)).await;
    assert!(!is_from_store(&alone), "{limit}: {}", alone.text());
    assert_eq!(granted, 2 + 5, "{limit}: each of two gateways has half of the rate");
    redis.signal("CONT");
    let back = soon(granted_until(&gateway, &mut granted, is_from_store)).await;
    assert_eq!(back.status(), 200, "{limit}");
    granted_until(&gateway, &mut granted, |response| response.status() == 429 && is_from_store(response)).await;
    // A call was in flight. Redis may have run it after SIGCONT, so the gateway does not retry it.
    assert!((9..=10).contains(&granted), "{limit}: {granted}");
    let of_other = soon(granted_until(&other, &mut 0, is_from_store)).await;
    assert_eq!(of_other.status(), 429, "{limit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_shows_cause_and_charges_of_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    let config = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let shown = async || Raw::connect(gateway.admin).await.ask(config).await.text();
    assert!(shown().await.contains(r#""state":"up""#), "{}", shown().await);
    let charged = async || gateway.counter("tidegate_store_charged_afterwards_total").await;
    let before = charged().await;
    redis.signal("STOP");
    let mut granted = 0;
    soon(granted_until(&gateway, &mut granted, |response| response.status() == 429)).await;
    assert_eq!(gateway.counter("tidegate_store_up").await, 0);
    let (config, ready) = (shown().await, gateway.admin_get("/readyz").await.text());
    let cause = r#""cause":"no answer in time""#;
    assert!(config.contains(r#""state":"down""#) && config.contains(cause), "{config}");
    assert!(config.contains(r#""gateways":1"#), "{config}");
    assert!(ready.contains("unreachable") && !ready.contains("cause"), "{ready}");
    redis.signal("CONT");
    soon(async { while gateway.counter("tidegate_store_up").await == 0 {} }).await;
    assert_eq!(charged().await - before, u64::from(granted));
}

/// Regression test: the grants were charged only after the next outage, since connections to a full Redis stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_grants_are_charged_once_redis_has_memory() {
    let Some(redis) = RedisServer::start() else { return };
    // A long timeout, so that a late reply on a busy machine is not an outage.
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 5s }}", redis.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    let mut control = redis.connection();
    until(|| self_tests(&mut control) >= 3).await; // A connection that opens without memory would be an outage.
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    let charged = async || gateway.counter("tidegate_store_charged_afterwards_total").await;
    let before = charged().await;
    cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut control).expect("set");
    let mut alone = 0;
    soon(granted_until(&gateway, &mut alone, |response| response.status() == 429)).await;
    assert!(alone > 0);
    gateway.until_config_has(&["OOM"]).await;
    cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut control).expect("set");
    soon(async { while charged().await - before < u64::from(alone) {} }).await;
}

/// Returns how often gateways have tested Redis. A gateway with two workers has three connections, with its control
/// thread's, and each connection tests Redis before it decides.
fn self_tests(control: &mut Connection) -> u64 {
    let statistics: String = cmd("INFO").arg("commandstats").query(control).expect("statistics");
    let calls = statistics.split_once("cmdstat_scan:calls=").map(|(_, rest)| rest.split(',').next().expect("a number"));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// A decision before the charge could grant the same permits again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_redis_decides_nothing_until_debts_are_charged() {
    let Some(redis) = RedisServer::start() else { return };
    let (proxy, mut control) = (FaultyProxy::start(redis.port).await, redis.connection());
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 5s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    proxy.cut();
    soon(async { while gateway.counter("tidegate_store_up").await == 1 {} }).await;
    let mut alone = 0;
    granted_until(&gateway, &mut alone, |response| response.status() == 429).await;
    assert!(alone > 0);
    cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut control).expect("set");
    proxy.heal();
    gateway.until_config_has(&["OOM"]).await;
    for _ in 0..50 {
        let response = ask(&gateway).await;
        assert!(response.status() == 429 && !is_from_store(&response), "{}", response.text());
    }
    cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut control).expect("set");
    let mut after = 0;
    let last = soon(granted_until(&gateway, &mut after, is_from_store)).await;
    assert_eq!(
        gateway.counter("tidegate_store_charged_afterwards_total").await,
        u64::from(alone + after) - u64::from(last.status() == 200)
    );
    assert_eq!(last.status(), 429);
}

/// A time slot that a gateway assigned locally is taken in the store after the outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_time_slots_are_charged_after_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 5s }}", proxy.port);
    let limit = "interval: 1h, algorithm: leaky_bucket, queue: 1, max_wait: 1s";
    let gateway = TestGateway::start(&rules_at(&store, limit));
    soon(async { while gateway.counter("tidegate_gateways").await != 1 {} }).await;
    proxy.cut();
    soon(async { while gateway.counter("tidegate_store_up").await == 1 {} }).await;
    let statuses = [ask(&gateway).await.status(), ask(&gateway).await.status()];
    assert_eq!(statuses, [200, 429]);
    proxy.heal();
    soon(async { while gateway.counter("tidegate_store_up").await == 0 {} }).await;
    let other = TestGateway::start(&rules(&redis, limit));
    for gateway in [&gateway, &other] {
        let response = soon(granted_until(gateway, &mut 0, is_from_store)).await;
        assert_eq!(response.status(), 429);
    }
}

/// Sends requests until a response matches, and returns it. Counts the admitted requests.
async fn granted_until(gateway: &TestGateway, granted: &mut u32, matches: impl Fn(&Message) -> bool) -> Message {
    loop {
        let response = ask(gateway).await;
        *granted += u32::from(response.status() == 200);
        if matches(&response) {
            return response;
        }
    }
}

/// If the reply to a charge is lost, the gateway sends the charge again.
#[tokio::test]
async fn repeated_debt_is_charged_once() {
    let Some(redis) = RedisServer::start() else { return };
    let mut connection = redis.connection();
    let mut owe = |id: &str| -> i64 {
        let mut call = cmd("EVAL");
        call.arg(script()).arg(2).arg("{a}:l").arg(format!("{{a}}:owed:{id}"));
        call.arg("charge_later").arg("token_bucket 10 3600000 1 ").arg("2 3 1000 1 500").arg(&[7_u8; 8]);
        call.query(&mut connection).expect("a reply")
    };
    assert_eq!([owe("1"), owe("1"), owe("2")], [1, 0, 1]);
    let left = redis.store().take(&[overall("{a}:l", 10, 3_600_000, 0)]).await.expect("a decision").decisions[0];
    assert_eq!(left.remaining, 2);
}

/// One request waits on the connection of each of the two workers. No request waits for a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_redis_delays_one_request_per_worker() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    redis.signal("STOP");
    for _ in 0..200 {
        ask(&gateway).await;
    }
    let (timeout, unreachable) = (failures(&gateway, "timeout").await, failures(&gateway, "unreachable").await);
    assert!(timeout <= 2 && unreachable >= 190, "{timeout} waited, {unreachable} did not");
    redis.signal("CONT");
}

/// A silent connection delays one request of each of the two workers, as does opening a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_network_delays_one_request_per_worker() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 1s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    let faults: [fn(&FaultyProxy); 2] = [FaultyProxy::half_open, FaultyProxy::blackhole];
    for fault in faults {
        soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
        let before = failures(&gateway, "timeout").await;
        fault(&proxy);
        for _ in 0..50 {
            ask(&gateway).await;
        }
        let timeouts = failures(&gateway, "timeout").await - before;
        assert!(timeouts <= 2, "{timeouts} waited");
        proxy.heal();
    }
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
}

/// Regression test: a silent connection without requests stayed open and delayed the charge of local grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_idle_connection_is_replaced() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 1s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    // One connection for each of two workers, and an idle one for the admin thread.
    let mut control = redis.connection();
    soon(async { while clients(&mut control).len() < 3 {} }).await;
    let silent = clients(&mut control);
    proxy.half_open();
    // Without memory Redis accepts no charges.
    let set_memory =
        |bytes| cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut redis.connection()).expect("set");
    set_memory("1");
    let mut number = 0;
    soon(async {
        while clients(&mut control).iter().any(|id| silent.contains(id)) {
            gateway.get("/", &format!("k: {number}\r\n")).await;
            number += 1;
        }
    })
    .await;
    set_memory("0");
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
}

/// Returns the ids of all connections except this one.
fn clients(control: &mut Connection) -> Vec<String> {
    let own: u64 = cmd("CLIENT").arg("ID").query(control).expect("a number");
    let list: String = cmd("CLIENT").arg("LIST").query(control).expect("a list");
    let ids = list.lines().filter_map(|line| line.split(' ').next());
    ids.filter(|id| *id != format!("id={own}")).map(str::to_owned).collect()
}

async fn failures(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!(r#"tidegate_store_failures_total{{cause="{cause}"}}"#)).await
}

/// Replies arrive just before the timeout, or every other one just after it. Regression test: each request waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_redis_is_avoided_until_it_is_fast() {
    assert_avoided("local", (270, 290)).await;
    assert_avoided("allow", (250, 350)).await;
}

async fn assert_avoided(policy: &'static str, delays: (u64, u64)) {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 300ms }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, &format!("interval: 1h, on_store_failure: {policy}")));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    proxy.delay(delays.0, delays.1);
    // Both workers must have noticed.
    let mut known_in_a_row = 0;
    soon(async {
        while known_in_a_row < 20 {
            let before = failures(&gateway, "unreachable").await;
            let responses = send_at_once(&gateway, 10).await;
            assert!(responses.iter().all(|response| [200, 429].contains(&response.status())), "{policy}, {delays:?}");
            let known = failures(&gateway, "unreachable").await - before;
            known_in_a_row = if known == 10 { known_in_a_row + 1 } else { 0 };
        }
    })
    .await;
    let timeouts = failures(&gateway, "timeout").await;
    for _ in 0..200 {
        let response = ask(&gateway).await;
        assert!(!is_from_store(&response), "{policy}, {delays:?}: {}", response.text());
    }
    assert_eq!(failures(&gateway, "timeout").await, timeouts, "{policy}, {delays:?}");
    proxy.delay(0, 0);
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
}

/// Sends requests of different clients, so that no refusal is cached.
async fn send_at_once(gateway: &TestGateway, requests: u32) -> Vec<Message> {
    let address = gateway.address;
    let ask = |number| async move { get(&mut Raw::connect(address).await, "/", &format!("k: {number}\r\n")).await };
    (0..requests).map(ask).collect::<JoinSet<_>>().join_all().await
}

/// Regression test: each request waited for the error reply of Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_redis_is_avoided_until_its_script_ends() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    let (mut control, mut script) = (redis.connection(), redis.connection());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "1"]).exec(&mut control).expect("set");
    let busy = std::thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).exec(&mut script));
    while cmd("PING").exec(&mut control).is_ok() {}
    for _ in 0..200 {
        ask(&gateway).await;
    }
    let (busy_replies, unreachable) = (failures(&gateway, "busy").await, failures(&gateway, "unreachable").await);
    assert!(busy_replies <= 4 && unreachable >= 190, "{busy_replies} busy replies, {unreachable} without a call");
    cmd("SCRIPT").arg("KILL").exec(&mut control).expect("killed");
    assert!(busy.join().expect("a thread").is_err());
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
}

/// Regression test: each connection broke right after it was opened, and the store opened the next one immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_are_retried_with_backoff() {
    let Some(redis) = RedisServer::start() else { return };
    let (store, mut control) = (redis.store(), redis.connection());
    let charge = [overall("bucket", 1_000_000, 3_600_000, 1)];
    let since = Stopwatch::start();
    while since.elapsed() < Duration::from_secs(1) {
        _ = store.take(&charge).await;
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut control).expect("killed");
    }
    let stats: InfoDict = cmd("INFO").arg("stats").query(&mut control).expect("statistics");
    let connections: u64 = stats.get("total_connections_received").expect("a number");
    // Each pause is at least half of 50, 100, 200, 400 and then 800 ms. The test itself opens four connections at most.
    let most = 6 + since.elapsed().as_millis() / 400 + 4;
    assert!(u128::from(connections) <= most, "{connections} connections");
}

/// Regression test: a full queue rejected requests with 503 during an outage, whatever `on_store_failure` said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_queue_rejects_nothing_during_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let limit = "interval: 10s, max_wait: 20s, queue: 1, on_store_failure: allow".to_owned();
    let gateway = Arc::new(TestGateway::start(&rules(&redis, &limit).replace("rate: 10", "rate: 1")));
    assert_eq!(ask(&gateway).await.status(), 200);
    // One request waits, so the other one finds the queue full.
    let mut asked = JoinSet::new();
    for _ in 0..2 {
        let gateway = Arc::clone(&gateway);
        asked.spawn(async move { ask(&gateway).await });
    }
    let rejected = soon(asked.join_next()).await.expect("a task").expect("a response");
    assert_eq!(rejected.status(), 429);
    drop(redis);
    assert_eq!(soon(ask(&gateway)).await.status(), 200);
}

/// Regression test: after each close, all requests were decided locally for up to 400 ms. Only calls that are in flight
/// when Redis closes the connection are decided locally.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_connections_are_no_outage() {
    const KILLS: usize = 15;
    let Some(redis) = RedisServer::start() else { return };
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 5s }}", redis.port);
    let gateway = Arc::new(TestGateway::start(&rules_at(&store, "interval: 1h")));
    soon(async { while !is_from_store(&ask(&gateway).await) {} }).await;
    let mut load = JoinSet::new();
    for client in 0..8 {
        let gateway = Arc::clone(&gateway);
        load.spawn(async move {
            for number in 0_u64.. {
                gateway.get("/", &format!("k: {client}-{number}\r\n")).await;
            }
        });
    }
    let mut control = redis.connection();
    for _ in 0..KILLS {
        soon(async { while clients(&mut control).len() < 3 {} }).await;
        // A connection that lasts less than 0.1 s may be a failing server's.
        let opened = Stopwatch::start();
        soon(async { while opened.elapsed() < Duration::from_millis(200) || !is_from_store(&ask(&gateway).await) {} })
            .await;
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut control).expect("killed");
    }
    soon(async { while clients(&mut control).len() < 3 {} }).await;
    load.shutdown().await;
    assert_eq!(failures(&gateway, "unreachable").await, 0);
    let broken = failures(&gateway, "broken").await;
    assert!(broken <= KILLS as u64 * 8, "{broken} decisions of 8 clients were in flight");
}
