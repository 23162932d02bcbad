//! The number of gateways that share a Redis. It determines each gateway's share of a limit while Redis is unreachable.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate_limit::clock::Stopwatch;
use tokio::time::timeout;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::redisson::script;
use crate::support::wire::until;

fn rules(redis: &RedisServer) -> String {
    format!(
        "store: {}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  \
         - {{ name: all, match: {{ path: /** }}, upstream: echo }}\n",
        redis.rule()
    )
}

/// Waits until a gateway counts `number` gateways. After a loss of data that takes five to eight seconds.
async fn wait_for_gateways(gateway: &TestGateway, number: u64) {
    let knows = async { while gateway.counter("tidegate_gateways").await != number {} };
    let in_time = timeout(Duration::from_secs(60), knows).await;
    assert!(in_time.is_ok(), "waited 60 s until a gateway counts {number} gateways");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_on_one_redis_count_each_other() {
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules(&redis);
    let first = TestGateway::start(&rules);
    wait_for_gateways(&first, 1).await;
    let second = TestGateway::start(&rules);
    wait_for_gateways(&second, 2).await;
    wait_for_gateways(&first, 2).await;
}

/// Returns a function that runs a command with an integer reply.
fn controls(redis: &RedisServer) -> impl FnMut(&[&str]) -> u64 + use<> {
    let mut connection = redis.connection();
    move |words| cmd(words[0]).arg(&words[1..]).query(&mut connection).expect("a number")
}

/// Starts a Redis and a gateway that counts two gateways. The second one has ended.
async fn one_gateway_of_two() -> Option<(RedisServer, TestGateway)> {
    let redis = RedisServer::start()?;
    let rules = rules(&redis);
    let gateway = TestGateway::start(&rules);
    let other = TestGateway::start(&rules);
    wait_for_gateways(&gateway, 2).await;
    drop(other);
    Some((redis, gateway))
}

/// Regression test: the first gateway that reconnected to a Redis without data took all of each limit in the next
/// outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_reconnected_gateway_keeps_the_gateway_count() {
    let Some((redis, gateway)) = one_gateway_of_two().await else { return };
    let mut control = controls(&redis);
    control(&["DEL", "{tidegate:gateways}"]);
    control(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until(|| control(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
    assert_eq!(gateway.counter("tidegate_gateways").await, 2);
    // After some seconds without an announcement the other gateway no longer counts.
    wait_for_gateways(&gateway, 1).await;
}

/// A flush of Redis, or a leap of its clock, closes no connection. Regression test: the first gateway to announce
/// itself again took all of each limit in an outage within five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_count_is_kept_after_data_loss() {
    let Some((redis, gateway)) = one_gateway_of_two().await else { return };
    let mut control = controls(&redis);
    let forgotten = Stopwatch::start();
    control(&["DEL", "{tidegate:gateways}"]);
    until(|| control(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
    wait_for_gateways(&gateway, 1).await;
    // Within five seconds every other gateway would have announced itself.
    assert!(forgotten.elapsed() >= Duration::from_secs(5));
}

/// Regression test: after a second loss of data within five seconds the gateway counted only itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_count_survives_repeated_data_loss() {
    let Some((redis, gateway)) = one_gateway_of_two().await else { return };
    let mut control = controls(&redis);
    let begin = Stopwatch::start();
    while begin.elapsed() < Duration::from_secs(8) {
        control(&["DEL", "{tidegate:gateways}"]);
        until(|| control(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
        assert_eq!(gateway.counter("tidegate_gateways").await, 2);
    }
}

/// Regression test: the first announcement after the change removed all other gateways.
#[tokio::test]
async fn clock_set_back_removes_no_gateway() {
    let Some(redis) = RedisServer::start() else { return };
    let mut connection = redis.connection();
    let mut announce = |gateway: &str| -> [u32; 2] {
        let mut call = cmd("EVAL");
        call.arg(script()).arg(1).arg("gateways").arg("announce").arg(gateway).arg(15_000);
        call.query(&mut connection).expect("a reply")
    };
    assert_eq!([announce("a"), announce("b"), announce("b")], [[1, 1], [2, 1], [2, 0]]);
    let ahead = |gateway: &str| {
        let (mut connection, hour) = (redis.connection(), 3_600_000);
        cmd("ZINCRBY").arg("gateways").arg(hour).arg(gateway).query::<f64>(&mut connection).expect("a score")
            - f64::from(hour)
    };
    let written = [ahead("a"), ahead("b")];
    assert_eq!(announce("b"), [2, 0]);
    let now: [f64; 2] = cmd("ZMSCORE").arg("gateways").arg(&["a", "b"]).query(&mut redis.connection()).expect("scores");
    assert!(written[0] <= now[0] && now[0] == now[1], "{written:?} {now:?}");
}
