//! A store that does not answer: gateways decide alone, and charge what they granted when it is back.

use deadpool_redis::redis::cmd;
use tokio::task::JoinSet;

use crate::support::gateway::TestGateway;
use crate::support::overall;
use crate::support::redis::RedisServer;
use crate::support::redisson::script;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;

/// A PER_CLIENT limit of ten, told by this.
fn rules(redis: &RedisServer, limit: &str) -> String {
    format!(
        "store: {}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - name: all\n    \
         match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: PER_CLIENT, client: header:k, rate: 10, {limit} }}\n",
        redis.rule()
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
    granted_until(&gateway, &mut granted, |answer| answer.status() == 429).await;
    // Each of two workers had a call under way that Redis may have run when it went on: lost, and never sent again.
    assert!((8..=10).contains(&granted), "{limit}: {granted}");
    assert_eq!(ask(&other).await.status(), 429, "{limit}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_on_one_redis_know_how_many_they_are() {
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules(&redis, "interval: 1h");
    let first = TestGateway::start(&rules);
    soon(async { while first.counter("tidegate_gateways").await != 1 {} }).await;
    let second = TestGateway::start(&rules);
    soon(async { while second.counter("tidegate_gateways").await != 2 {} }).await;
    soon(async { while first.counter("tidegate_gateways").await != 2 {} }).await;
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
    let failures = async |cause| gateway.counter(&format!(r#"tidegate_store_failures_total{{cause="{cause}"}}"#)).await;
    let (timeout, unreachable) = (failures("timeout").await, failures("unreachable").await);
    assert!(timeout <= 2 && unreachable >= 190, "{timeout} waited, {unreachable} did not");
    redis.signal("CONT");
}
