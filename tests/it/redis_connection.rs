//! The connection to Redis: how the store opens it, and how it handles closed and slow connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Commands, Connection, InfoDict, cmd};
use tidegate::{Store, StoreError};
use tidegate_limit::clock::Stopwatch;

use crate::support::redis::{RedisServer, wait_a_little, wait_for};
use crate::support::{configured, overall};

const PATIENCE: Duration = Duration::from_secs(30);

/// Takes one permit of a bucket with this rate. Returns the remaining permits.
async fn take(store: &Store, name: &str, rate: u64) -> Result<u32, StoreError> {
    let outcome = store.take(&[overall(name, rate, 3_600_000, 1)]).await?;
    Ok(outcome.decisions[0].remaining)
}

/// Takes one permit of "bucket" as soon as the store decides again, for at most a minute. Returns the remaining permits.
async fn take_once_up(store: &Store, rate: u64) -> Result<u32, StoreError> {
    let mut remaining = take(store, "bucket", rate).await;
    for _ in 0..6_000 {
        if remaining.is_ok() {
            break;
        }
        wait_a_little();
        remaining = take(store, "bucket", rate).await;
    }
    remaining
}

/// The connections belong to the runtime of the first call, which makes no progress here while the second call waits.
#[test]
fn call_ends_in_time_while_another_runtime_is_blocked() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store_with_timeout(Duration::from_millis(500));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    assert_eq!(first.block_on(take_once_up(&store, 3)), Ok(2));
    let late = runtime().block_on(async { tokio::time::timeout(PATIENCE, take(&store, "bucket", 3)).await });
    assert_eq!(late, Ok(Err(StoreError::Timeout)));
}

/// Each test of a program has its own runtime, but tests may share a store.
#[test]
fn store_outlives_its_first_runtime() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store();
    for left in [9, 8] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        assert_eq!(runtime.block_on(take(&store, "bucket", 10)), Ok(left));
    }
}

/// Returns the lines of all connections except this one.
fn other_clients(redis: &mut Connection) -> Vec<String> {
    let own: u64 = cmd("CLIENT").arg("ID").query(redis).expect("a number");
    let list: String = cmd("CLIENT").arg("LIST").query(redis).expect("a list");
    list.lines().filter(|line| !line.starts_with(&format!("id={own} "))).map(str::to_owned).collect()
}

/// Returns the unique ids of all connections except this one.
fn client_ids(redis: &mut Connection) -> Vec<String> {
    other_clients(redis).iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A server closes connections that are idle longer than its `timeout`. Regression test: the next decision then failed
/// with a broken connection, in a later version only if the connection was closed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_idle_connection_is_reopened_in_advance() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    for _ in 0..2 {
        let before = client_ids(&mut redis);
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut redis).expect("killed");
        wait_for("the store has reconnected", || {
            let now = client_ids(&mut redis);
            now.len() == before.len() && now.iter().all(|number| !before.contains(number))
        });
        // The new connection may still need its first replies.
        while !store.is_up().await {
            wait_a_little();
        }
    }
    assert_eq!(take(&store, "bucket", 10).await, Ok(8));
}

#[tokio::test]
async fn store_url_selects_user_and_database() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    cmd("ACL").arg(&["SETUSER", "gate", "on", ">se cret", "~*", "+@all"]).exec(&mut redis).expect("a user");
    let store = RedisServer::store_at(format!("redis://gate:se%20cret@127.0.0.1:{}/3", server.port), PATIENCE);
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let clients = other_clients(&mut redis);
    assert!(!clients.is_empty() && clients.iter().all(|line| line.contains(" user=gate ")), "{clients:?}");
    let keys = |redis: &mut Connection, database: &str| -> Vec<String> {
        cmd("SELECT").arg(database).exec(redis).expect("selected");
        cmd("KEYS").arg("*bucket*").query(redis).expect("keys")
    };
    assert_eq!((keys(&mut redis, "0").len(), keys(&mut redis, "3").len()), (0, 1));
}

#[tokio::test]
async fn password_without_user_is_for_the_default_user() {
    let Some(server) = RedisServer::start() else { return };
    cmd("CONFIG").arg(&["SET", "requirepass", "se cret"]).exec(&mut server.connection()).expect("set");
    let at = |password: &str| RedisServer::store_at(format!("redis://:{password}@127.0.0.1:{}", server.port), PATIENCE);
    assert_eq!(take(&at("se%20cret"), "bucket", 10).await, Ok(9));
    assert_eq!(take(&at("wrong"), "bucket", 10).await, Err(StoreError::Unreachable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_reply_reaches_no_other_request() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_secs(3));
    assert_eq!(take(&store, "other", 1_000).await, Ok(999));
    server.signal("STOP");
    assert_eq!(take(&store, "bucket", 10).await, Err(StoreError::Timeout));
    server.signal("CONT");
    let mut result = take(&store, "other", 1_000).await;
    for _ in 0..1_000 {
        if !matches!(result, Err(StoreError::Timeout | StoreError::Unreachable)) {
            break;
        }
        wait_a_little();
        result = take(&store, "other", 1_000).await;
    }
    assert!(result.as_ref().is_ok_and(|remaining| *remaining > 10), "the decision of another bucket: {result:?}");
    // Its permit is given back, unless the reply came more than a second late.
    assert!(matches!(take(&store, "bucket", 10).await, Ok(8 | 9)), "the request that timed out was charged once");
}

/// Redis hangs while two calls are in flight and one request waits. The worker is blocked until all three have timed
/// out, so the two replies arrive together with the timeouts and still count. Regression test: the third request was
/// sent late, charged without use, and broke the working connection.
#[tokio::test]
async fn expired_unsent_request_is_not_charged() {
    let Some(server) = RedisServer::start() else { return };
    let timeout = Duration::from_secs(3);
    let (store, mut redis) = (server.store_with_timeout(timeout), server.connection());
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let before = client_ids(&mut redis);
    server.signal("STOP");
    let mut requests = Vec::new();
    for _ in 0..3 {
        let store = store.clone();
        requests.push(tokio::spawn(async move { take(&store, "bucket", 10).await }));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    server.signal("CONT");
    let blocked = Stopwatch::start();
    wait_for("all have timed out", || blocked.elapsed() > timeout);
    wait_for("Redis has charged two", || charged(&mut redis) == 3);
    cmd("PING").exec(&mut redis).expect("a reply after both replies to the store");
    let mut results = Vec::new();
    for request in requests {
        results.push(request.await.expect("a task"));
    }
    assert_eq!(results, [Ok(8), Ok(7), Err(StoreError::Timeout)]);
    assert_eq!(take(&store, "bucket", 10).await, Ok(6));
    assert_eq!(client_ids(&mut redis), before, "the store must not reconnect");
}

/// Returns the number of permits in the bucket, the first number of its end.
fn charged(redis: &mut Connection) -> u8 {
    let value: Vec<u8> = redis.get("bucket").expect("a string");
    value[value.len() - 13]
}

/// Two calls are sent so late that their requests time out soon after. Regression test: the calls kept their capacity,
/// and later requests were neither sent nor answered.
#[tokio::test]
async fn abandoned_calls_free_their_capacity() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_secs(4));
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    server.signal("STOP");
    let request = |rate| {
        let store = store.clone();
        tokio::spawn(async move { take(&store, "bucket", rate).await })
    };
    // With two rates, so that the requests share no call.
    let requests = [request(10), request(20)];
    let blocked = tokio::spawn(async {
        let since = Stopwatch::start();
        wait_for("3.5 s have passed", || since.elapsed() > Duration::from_millis(3_500));
    });
    for request in requests {
        assert_eq!(request.await.expect("a task"), Err(StoreError::Timeout));
    }
    blocked.await.expect("a task");
    let next = tokio::time::timeout(PATIENCE, request(10)).await.expect("a result within 30 s");
    assert_eq!(next.expect("a task"), Err(StoreError::Timeout));
    server.signal("CONT");
    assert!(take_once_up(&store, 10).await.is_ok());
}

/// Redis accepts one connection more than `maxclients`, and replies with an error. Regression test: the store treated
/// it as a connection that broke later, and reconnected without backoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_at_maxclients_is_retried_with_backoff() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    let mut set_maxclients =
        |count: u32| cmd("CONFIG").arg("SET").arg("maxclients").arg(count).exec(&mut redis).expect("set");
    set_maxclients(1);
    let since = Stopwatch::start();
    let store = server.store_with_timeout(Duration::from_secs(3));
    assert!(take(&store, "bucket", 10).await.is_err());
    wait_for("300 ms have passed", || since.elapsed() > Duration::from_millis(300));
    set_maxclients(100);
    let stats: InfoDict = cmd("INFO").arg("stats").query(&mut redis).expect("statistics");
    let connections: u64 = stats.get("total_connections_received").expect("a number");
    // Each pause is at least half of 50, 100, 200 and then 400 ms. The test itself opens two connections.
    let most = 7 + since.elapsed().as_millis() / 200;
    assert!(u128::from(connections) <= most, "{connections} connections");
    assert_eq!(take_once_up(&store, 10).await, Ok(9));
}

/// Regression test: while several calls on shared limiters were in flight, other requests were neither sent nor timed
/// out.
#[tokio::test]
async fn shared_limiters_do_not_starve_other_requests() {
    let Some(server) = RedisServer::start() else { return };
    let (store, decided) = (server.store(), Arc::new(AtomicU32::new(0)));
    let charge = configured("java", 1_000_000, 60_000, 1);
    let load: Vec<_> = (0..16)
        .map(|_| {
            let (store, charge, decided) = (store.clone(), charge.clone(), Arc::clone(&decided));
            tokio::spawn(async move {
                for _ in 0..200 {
                    store.take(std::slice::from_ref(&charge)).await.expect("a decision");
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while decided.load(Ordering::Relaxed) < 100 {
        tokio::task::yield_now().await;
    }
    let before = decided.load(Ordering::Relaxed);
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let overtaken_by = decided.load(Ordering::Relaxed) - before;
    assert!(overtaken_by < 100, "{overtaken_by} requests on shared limiters were decided first");
    load.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A read-only Redis rejects a function that can write, so it decides nothing. Regression test: Redis 6 names the cause
/// at the end of a script error, and the store kept the connection.
#[tokio::test]
async fn read_only_redis_is_reconnected() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert_eq!(take(&store, "lim", 3).await, Ok(2));
    let before = client_ids(&mut redis);
    cmd("REPLICAOF").arg(&["127.0.0.1", "1"]).exec(&mut redis).expect("a replica");
    assert_eq!(take(&store, "lim", 3).await, Err(StoreError::ErrorReply("READONLY".to_owned())));
    cmd("REPLICAOF").arg(&["NO", "ONE"]).exec(&mut redis).expect("no replica");
    let again = async || while take(&store, "lim", 3).await.is_err() {};
    tokio::time::timeout(PATIENCE, again()).await.expect("a decision");
    let after = client_ids(&mut redis);
    assert!(after.iter().all(|number| !before.contains(number)), "{before:?} {after:?}");
}

#[tokio::test]
async fn full_redis_decides_refusals_but_no_new_buckets() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let granted = async |name| {
        let outcome = store.take(&[overall(name, 2, 3_600_000, 1)]).await?;
        Ok::<bool, StoreError>(outcome.granted())
    };
    let mut set_maxmemory =
        |bytes: &str| cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut redis).expect("set");
    assert_eq!((granted("full").await, granted("full").await), (Ok(true), Ok(true)));
    assert_eq!(granted("half").await, Ok(true));
    set_maxmemory("1");
    assert_eq!(granted("full").await, Ok(false));
    assert_eq!(granted("new").await, Err(StoreError::ErrorReply("OOM".to_owned())));
    // An existing bucket may be charged or not. Its state must match the decision.
    let charged = granted("half").await == Ok(true);
    set_maxmemory("0");
    assert_eq!((granted("half").await, granted("half").await), (Ok(!charged), Ok(false)));
    assert_eq!((granted("new").await, granted("new").await, granted("new").await), (Ok(true), Ok(true), Ok(false)));
}
