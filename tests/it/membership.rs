//! How many gateways share a Redis, as each of them is told: that is what their shares of a limit go by while Redis is away.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tidegate::clock::Stopwatch;
use tokio::time::timeout;

use crate::support::gateway::TestGateway;
use crate::support::redis::RedisServer;
use crate::support::redisson::script;
use crate::support::wire::until;

fn rules(redis: &RedisServer) -> String {
    format!(
        "store: {}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes:\n  - {{ name: all, match: {{ path: /** }}, upstream: echo }}\n",
        redis.rule()
    )
}

/// Waits until a gateway knows that there are so many. That takes five to eight seconds once it was forgotten, and a busy machine
/// some more.
async fn knows_of(gateway: &TestGateway, number: u64) {
    let knows = async { while gateway.counter("tidegate_gateways").await != number {} };
    timeout(Duration::from_secs(30), knows).await.expect("it is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_on_one_redis_know_how_many_they_are() {
    let Some(redis) = RedisServer::start() else { return };
    let rules = rules(&redis);
    let first = TestGateway::start(&rules);
    knows_of(&first, 1).await;
    let second = TestGateway::start(&rules);
    knows_of(&second, 2).await;
    knows_of(&first, 2).await;
}

/// Has Redis do what these words say; each answers with a number.
fn control(redis: &RedisServer) -> impl FnMut(&[&str]) -> u64 + use<> {
    let mut connection = redis.connection();
    move |words| cmd(words[0]).arg(&words[1..]).query(&mut connection).expect("a number")
}

/// A Redis, and a gateway that knows of another on it, which has ended.
async fn one_of_two() -> Option<(RedisServer, TestGateway)> {
    let redis = RedisServer::start()?;
    let rules = rules(&redis);
    let gateway = TestGateway::start(&rules);
    let other = TestGateway::start(&rules);
    knows_of(&gateway, 2).await;
    drop(other);
    Some((redis, gateway))
}

/// Before, the first that came back to a Redis without its data had all of each limit if it went away again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_back_first_does_not_take_itself_for_the_only_one() {
    let Some((redis, gateway)) = one_of_two().await else { return };
    let mut tell = control(&redis);
    tell(&["DEL", "{tidegate:gateways}"]);
    tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until(|| tell(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
    assert_eq!(gateway.counter("tidegate_gateways").await, 2);
    // The others have had their time.
    knows_of(&gateway, 1).await;
}

/// Nobody's connection ends when Redis is flushed, or its clock leaps. Before, the first to announce itself again had all of each
/// limit if Redis went away within five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_a_redis_forgot_does_not_take_itself_for_the_only_one() {
    let Some((redis, gateway)) = one_of_two().await else { return };
    let mut tell = control(&redis);
    let forgotten = Stopwatch::start();
    tell(&["DEL", "{tidegate:gateways}"]);
    until(|| tell(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
    knows_of(&gateway, 1).await;
    // Each of the others has announced itself by then.
    assert!(forgotten.elapsed() >= Duration::from_secs(5));
}

/// Before, a Redis that lost its data twice within five seconds was believed, the second time, that there is one gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_a_redis_forgets_again_and_again_does_not_take_itself_for_the_only_one() {
    let Some((redis, gateway)) = one_of_two().await else { return };
    let mut tell = control(&redis);
    let begin = Stopwatch::start();
    while begin.elapsed() < Duration::from_secs(8) {
        tell(&["DEL", "{tidegate:gateways}"]);
        until(|| tell(&["ZCARD", "{tidegate:gateways}"]) == 1).await;
        assert_eq!(gateway.counter("tidegate_gateways").await, 2);
    }
}

/// Before, the first that announced itself after that removed all others.
#[tokio::test]
async fn gateways_are_known_when_the_clock_of_redis_has_gone_back() {
    let Some(redis) = RedisServer::start() else { return };
    let mut connection = redis.connection();
    let mut announce = |gateway: &str| -> [u32; 2] {
        let mut call = cmd("EVAL");
        call.arg(script()).arg(1).arg("gateways").arg("announce").arg(gateway).arg(15_000);
        call.query(&mut connection).expect("an answer")
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
