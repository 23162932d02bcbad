//! A store that does not answer: gateways decide alone, and charge what they granted when it is back.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Connection, InfoDict, cmd};
use tidegate::clock::Stopwatch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::gateway::{TestGateway, get};
use crate::support::overall;
use crate::support::proxy::FaultyProxy;
use crate::support::redis::RedisServer;
use crate::support::redisson::script;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;

/// A PER_CLIENT limit of ten, told by this.
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

/// Was it decided by the store? What is left is told only then.
fn is_of_store(answer: &Message) -> bool {
    answer.field("ratelimit").is_some()
}

/// Lost would be what was granted alone: a second rate in one window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_gateway_grants_alone_is_charged_before_the_store_is_asked_again() {
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
    assert!(is_of_store(&ask(&other).await), "{limit}");
    let gateway = TestGateway::start(&rules);
    assert!(is_of_store(&ask(&gateway).await), "{limit}");
    redis.signal("STOP");
    let mut granted = 2;
    let alone = soon(granted_until(&gateway, &mut granted, |answer| answer.status() == 429)).await;
    assert!(!is_of_store(&alone), "{limit}: {}", alone.text());
    assert_eq!(granted, 2 + 5, "{limit}: two gateways have half of it each");
    redis.signal("CONT");
    let back = soon(granted_until(&gateway, &mut granted, is_of_store)).await;
    assert_eq!(back.status(), 200, "{limit}");
    granted_until(&gateway, &mut granted, |answer| answer.status() == 429 && is_of_store(answer)).await;
    // Each of two workers had a call under way that Redis may have run when it went on: lost, and never sent again.
    assert!((8..=10).contains(&granted), "{limit}: {granted}");
    let asked = soon(granted_until(&other, &mut 0, is_of_store)).await;
    assert_eq!(asked.status(), 429, "{limit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_shown_to_operators_with_its_cause_and_what_was_charged_afterwards() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    let config = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let shown = async || Raw::connect(gateway.admin).await.ask(config).await.text();
    assert!(shown().await.contains(r#""state":"up""#), "{}", shown().await);
    let charged = async || gateway.counter("tidegate_store_charged_afterwards_total").await;
    let before = charged().await;
    redis.signal("STOP");
    let mut granted = 0;
    soon(granted_until(&gateway, &mut granted, |answer| answer.status() == 429)).await;
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

/// Before, it was charged only after the next outage: who has no memory is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_without_an_outage_is_charged_as_soon_as_the_store_takes_it() {
    let Some(redis) = RedisServer::start() else { return };
    // So that an answer that a busy machine gives late is no outage.
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 2s }}", redis.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    let charged = async || gateway.counter("tidegate_store_charged_afterwards_total").await;
    let (before, mut control) = (charged().await, redis.connection());
    cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut control).expect("set");
    let mut alone = 0;
    soon(granted_until(&gateway, &mut alone, |answer| answer.status() == 429)).await;
    assert!(alone > 0);
    assert_eq!(gateway.counter("tidegate_store_up").await, 1);
    cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut control).expect("set");
    soon(async { while charged().await - before < u64::from(alone) {} }).await;
}

/// It cannot be charged, so it decides nothing yet: whoever is granted meanwhile would be granted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_memory_is_charged_by_those_who_come_back_before_it_decides() {
    let Some(redis) = RedisServer::start() else { return };
    let (proxy, mut control) = (FaultyProxy::start(redis.port).await, redis.connection());
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 2s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    proxy.cut();
    soon(async { while gateway.counter("tidegate_store_up").await == 1 {} }).await;
    let mut alone = 0;
    granted_until(&gateway, &mut alone, |answer| answer.status() == 429).await;
    assert!(alone > 0);
    cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).exec(&mut control).expect("set");
    proxy.heal();
    gateway.until_config_has(&["OOM"]).await;
    for _ in 0..50 {
        let answer = ask(&gateway).await;
        assert!(answer.status() == 429 && !is_of_store(&answer), "{}", answer.text());
    }
    cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).exec(&mut control).expect("set");
    let mut after = 0;
    let last = soon(granted_until(&gateway, &mut after, is_of_store)).await;
    assert_eq!(
        gateway.counter("tidegate_store_charged_afterwards_total").await,
        u64::from(alone + after) - u64::from(last.status() == 200)
    );
    assert_eq!(last.status(), 429);
}

/// A slot that was given alone is taken when the store is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_a_gateway_gave_alone_are_taken_when_the_store_is_back() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 2s }}", proxy.port);
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
        let answer = soon(granted_until(gateway, &mut 0, is_of_store)).await;
        assert_eq!(answer.status(), 429);
    }
}

/// Asks until such an answer comes, which it returns; counts what is granted.
async fn granted_until(gateway: &TestGateway, granted: &mut u32, is_it: impl Fn(&Message) -> bool) -> Message {
    loop {
        let answer = ask(gateway).await;
        *granted += u32::from(answer.status() == 200);
        if is_it(&answer) {
            return answer;
        }
    }
}

/// The answer to a payment may be lost, and then it is told again.
#[tokio::test]
async fn what_is_owed_is_charged_once_however_often_it_is_told() {
    let Some(redis) = RedisServer::start() else { return };
    let mut connection = redis.connection();
    let mut owe = |id: &str| -> i64 {
        let mut call = cmd("EVAL");
        call.arg(script()).arg(2).arg("{a}:l").arg(format!("{{a}}:owed:{id}"));
        call.arg("owe").arg("token_bucket 10 3600000 1 ").arg("2 3 1000 1 500").arg(&[7_u8; 8]);
        call.query(&mut connection).expect("an answer")
    };
    assert_eq!([owe("1"), owe("1"), owe("2")], [1, 0, 1]);
    let left = redis.store().take(&[overall("{a}:l", 10, 3_600_000, 0)]).await.expect("a decision").decisions[0];
    assert_eq!(left.remaining, 2);
}

/// Each of the two workers has a connection, on which somebody waits; nobody waits for a connection that is being opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_redis_that_is_known_to_hang() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    redis.signal("STOP");
    for _ in 0..200 {
        ask(&gateway).await;
    }
    let (timeout, unreachable) = (failures(&gateway, "timeout").await, failures(&gateway, "unreachable").await);
    assert!(timeout <= 2 && unreachable >= 190, "{timeout} waited, {unreachable} did not");
    redis.signal("CONT");
}

/// A connection that nobody closes is waited for once, by each of two workers; and no longer than a new one takes to open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_goes_silent_is_waited_for_once() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 1s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    let faults: [fn(&FaultyProxy); 2] = [FaultyProxy::half_open, FaultyProxy::blackhole];
    for fault in faults {
        soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
        let before = failures(&gateway, "timeout").await;
        fault(&proxy);
        for _ in 0..50 {
            ask(&gateway).await;
        }
        let timeouts = failures(&gateway, "timeout").await - before;
        assert!(timeouts <= 2, "{timeouts} waited");
        proxy.heal();
    }
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
}

/// Before, a connection that nobody asked on stayed silent, and whoever was back waited while it tried to pay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_silent_is_left_although_nobody_asks_on_it() {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 1s }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    // Two workers have one each, and operators have one that is idle.
    let mut control = redis.connection();
    soon(async { while clients(&mut control).len() < 3 {} }).await;
    let silent = clients(&mut control);
    proxy.half_open();
    // Nobody can pay.
    let have_memory =
        |bytes| cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut redis.connection()).expect("set");
    have_memory("1");
    let mut number = 0;
    soon(async {
        while clients(&mut control).iter().any(|id| silent.contains(id)) {
            gateway.get("/", &format!("k: {number}\r\n")).await;
            number += 1;
        }
    })
    .await;
    have_memory("0");
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
}

/// The ids of all connections but this one.
fn clients(control: &mut Connection) -> Vec<String> {
    let own: u64 = cmd("CLIENT").arg("ID").query(control).expect("a number");
    let list: String = cmd("CLIENT").arg("LIST").query(control).expect("a list");
    let ids = list.lines().filter_map(|line| line.split(' ').next());
    ids.filter(|id| *id != format!("id={own}")).map(str::to_owned).collect()
}

async fn failures(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!(r#"tidegate_store_failures_total{{cause="{cause}"}}"#)).await
}

/// Each answer comes just before the deadline, or every other one just after it. Each request waited for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_slow_for_everybody_is_left_alone_until_it_is_not() {
    left_alone("local", (270, 290)).await;
    left_alone("allow", (250, 350)).await;
}

async fn left_alone(policy: &'static str, delays: (u64, u64)) {
    let Some(redis) = RedisServer::start() else { return };
    let proxy = FaultyProxy::start(redis.port).await;
    let store = format!("{{ url: 'redis://127.0.0.1:{}', timeout: 300ms }}", proxy.port);
    let gateway = TestGateway::start(&rules_at(&store, &format!("interval: 1h, on_store_failure: {policy}")));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    proxy.delay(delays.0, delays.1);
    // Of both workers.
    let mut known_in_a_row = 0;
    soon(async {
        while known_in_a_row < 20 {
            let before = failures(&gateway, "unreachable").await;
            let answers = asked_at_once(&gateway, 10).await;
            assert!(answers.iter().all(|answer| [200, 429].contains(&answer.status())), "{policy}, {delays:?}");
            let known = failures(&gateway, "unreachable").await - before;
            known_in_a_row = if known == 10 { known_in_a_row + 1 } else { 0 };
        }
    })
    .await;
    let timeouts = failures(&gateway, "timeout").await;
    for _ in 0..200 {
        let answer = ask(&gateway).await;
        assert!(!is_of_store(&answer), "{policy}, {delays:?}: {}", answer.text());
    }
    assert_eq!(failures(&gateway, "timeout").await, timeouts, "{policy}, {delays:?}");
    proxy.delay(0, 0);
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
}

/// A client each, so that no refusal is known without asking.
async fn asked_at_once(gateway: &TestGateway, requests: u32) -> Vec<Message> {
    let address = gateway.address;
    let ask = |number| async move { get(&mut Raw::connect(address).await, "/", &format!("k: {number}\r\n")).await };
    (0..requests).map(ask).collect::<JoinSet<_>>().join_all().await
}

/// Everybody is told so, and each was told by Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_busy_with_a_script_is_left_alone_until_it_is_over() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&rules(&redis, "interval: 1h"));
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
    let (mut control, mut script) = (redis.connection(), redis.connection());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "1"]).exec(&mut control).expect("set");
    let busy = std::thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).exec(&mut script));
    while cmd("PING").exec(&mut control).is_ok() {}
    for _ in 0..200 {
        ask(&gateway).await;
    }
    let (told, unreachable) = (failures(&gateway, "busy").await, failures(&gateway, "unreachable").await);
    assert!(told <= 4 && unreachable >= 190, "{told} were told by Redis, {unreachable} were not");
    cmd("SCRIPT").arg("KILL").exec(&mut control).expect("killed");
    assert!(busy.join().expect("a thread").is_err());
    soon(async { while !is_of_store(&ask(&gateway).await) {} }).await;
}

/// Each connection broke right after it was opened, and the next was opened at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_breaks_each_connection_is_tried_again_with_pauses() {
    let Some(redis) = RedisServer::start() else { return };
    let (store, mut control) = (redis.store(), redis.connection());
    let charge = [overall("bucket", 1_000_000, 3_600_000, 1)];
    let since = Stopwatch::start();
    while since.elapsed() < Duration::from_secs(1) {
        _ = store.take(&charge).await;
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut control).expect("killed");
    }
    let about: InfoDict = cmd("INFO").arg("stats").query(&mut control).expect("statistics");
    let connections: u64 = about.get("total_connections_received").expect("a number");
    // Half of each pause at least: 25, 50, 100, 200 and then 400 ms; and those of the test.
    let most = 6 + since.elapsed().as_millis() / 400 + 4;
    assert!(u128::from(connections) <= most, "{connections} connections");
}

/// Before, whoever found a queue full while the store was away had a 503, whatever the limit says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_no_reason_to_refuse_while_the_store_is_away() {
    let Some(redis) = RedisServer::start() else { return };
    let limit = "interval: 10s, max_wait: 20s, queue: 1, on_store_failure: allow".to_owned();
    let gateway = Arc::new(TestGateway::start(&rules(&redis, &limit).replace("rate: 10", "rate: 1")));
    assert_eq!(ask(&gateway).await.status(), 200);
    let waits = tokio::spawn({
        let gateway = Arc::clone(&gateway);
        async move { ask(&gateway).await }
    });
    // Of two who ask one waits, and the other finds the queue full.
    soon(async {
        while !matches!(timeout(Duration::from_millis(50), ask(&gateway)).await, Ok(answer) if answer.status() == 429) {
        }
    })
    .await;
    drop(redis);
    assert_eq!(soon(ask(&gateway)).await.status(), 200);
    waits.abort();
}
