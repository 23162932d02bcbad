//! The connection that decisions go over: how it is opened, and what becomes of it when Redis closes it or is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Connection, InfoDict, cmd};
use tidegate::clock::Stopwatch;
use tidegate::store::{Store, StoreError};

use crate::support::redis::{RedisServer, wait_a_little};
use crate::support::{configured, overall};

const PATIENCE: Duration = Duration::from_secs(10);

/// What remains of so many permits after one more was taken.
async fn take(store: &Store, name: &str, rate: u64) -> Result<u32, StoreError> {
    let outcome = store.take(&[overall(name, rate, 3_600_000, 1)]).await?;
    Ok(outcome.decisions[0].remaining)
}

/// What remains after one more was taken from "bucket", as soon as anything is told.
async fn told_at_last(store: &Store, rate: u64) -> Result<u32, StoreError> {
    let mut told = take(store, "bucket", rate).await;
    for _ in 0..1_000 {
        if told.is_ok() {
            break;
        }
        wait_a_little();
        told = take(store, "bucket", rate).await;
    }
    told
}

/// The tests of a program have a runtime each, and may share a store.
#[test]
fn a_store_outlives_the_runtime_that_used_it_first() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store();
    for left in [9, 8] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        assert_eq!(runtime.block_on(take(&store, "bucket", 10)), Ok(left));
    }
}

/// The connections of others, a line each.
fn others(redis: &mut Connection) -> Vec<String> {
    let own: u64 = cmd("CLIENT").arg("ID").query(redis).expect("a number");
    let list: String = cmd("CLIENT").arg("LIST").query(redis).expect("a list");
    list.lines().filter(|line| !line.starts_with(&format!("id={own} "))).map(str::to_owned).collect()
}

/// The numbers of the connections of others, which no two have.
fn numbers(redis: &mut Connection) -> Vec<String> {
    others(redis).iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        wait_a_little();
    }
    panic!("it has not come true in ten seconds");
}

/// A server closes what has been idle for as long as its `timeout` says, and whoever asked next was told that the
/// connection broke; later only if it was closed twice meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_redis_closed_while_nobody_asked_is_open_again_when_somebody_does() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    for _ in 0..2 {
        let before = numbers(&mut redis);
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut redis).expect("killed");
        wait_for(|| {
            let now = numbers(&mut redis);
            now.len() == before.len() && now.iter().all(|number| !before.contains(number))
        });
        // It is there, and may not have found out yet what it has to know.
        while !store.is_up().await {
            wait_a_little();
        }
    }
    assert_eq!(take(&store, "bucket", 10).await, Ok(8));
}

#[tokio::test]
async fn decisions_are_made_by_the_user_and_in_the_database_that_the_address_names() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    cmd("ACL").arg(&["SETUSER", "gate", "on", ">se cret", "~*", "+@all"]).exec(&mut redis).expect("a user");
    let store = RedisServer::store_at(format!("redis://gate:se%20cret@127.0.0.1:{}/3", server.port), PATIENCE);
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let others = others(&mut redis);
    assert!(!others.is_empty() && others.iter().all(|line| line.contains(" user=gate ")), "{others:?}");
    let keys = |redis: &mut Connection, database: &str| -> Vec<String> {
        cmd("SELECT").arg(database).exec(redis).expect("selected");
        cmd("KEYS").arg("*bucket*").query(redis).expect("keys")
    };
    assert_eq!((keys(&mut redis, "0").len(), keys(&mut redis, "3").len()), (0, 1));
}

#[tokio::test]
async fn a_password_without_a_user_is_that_of_the_default_one() {
    let Some(server) = RedisServer::start() else { return };
    cmd("CONFIG").arg(&["SET", "requirepass", "se cret"]).exec(&mut server.connection()).expect("set");
    let at = |password: &str| RedisServer::store_at(format!("redis://:{password}@127.0.0.1:{}", server.port), PATIENCE);
    assert_eq!(take(&at("se%20cret"), "bucket", 10).await, Ok(9));
    assert_eq!(take(&at("wrong"), "bucket", 10).await, Err(StoreError::Unreachable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_too_late_is_told_to_nobody_else() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(300));
    assert_eq!(take(&store, "other", 1_000).await, Ok(999));
    server.signal("STOP");
    assert_eq!(take(&store, "bucket", 10).await, Err(StoreError::Timeout));
    server.signal("CONT");
    let mut told = take(&store, "other", 1_000).await;
    for _ in 0..1_000 {
        if !matches!(told, Err(StoreError::Timeout | StoreError::Unreachable)) {
            break;
        }
        wait_a_little();
        told = take(&store, "other", 1_000).await;
    }
    assert!(told.as_ref().is_ok_and(|remaining| *remaining > 10), "it was told of another bucket: {told:?}");
    assert_eq!(take(&store, "bucket", 10).await, Ok(8), "the late one was charged, as nobody could know");
}

/// Two calls are under way, and one request waits for its turn, when Redis stands still and the worker is held up, too, until
/// the time of all of them is over. What was answered is told; the third was sent then, charged in vain, and took the
/// connection, which works, for one that does not.
#[tokio::test]
async fn a_request_whose_time_is_over_before_it_was_sent_is_not_charged() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store_with_timeout(Duration::from_millis(300)), server.connection());
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let before = numbers(&mut redis);
    server.signal("STOP");
    let mut asked = Vec::new();
    for _ in 0..3 {
        let store = store.clone();
        asked.push(tokio::spawn(async move { take(&store, "bucket", 10).await }));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    server.signal("CONT");
    let held_up = Stopwatch::start();
    wait_for(|| held_up.elapsed() > Duration::from_millis(400));
    let mut told = Vec::new();
    for answer in asked {
        told.push(answer.await.expect("a task"));
    }
    assert_eq!(told, [Ok(8), Ok(7), Err(StoreError::Timeout)]);
    assert_eq!(take(&store, "bucket", 10).await, Ok(6));
    assert_eq!(numbers(&mut redis), before, "connected anew");
}

/// Two calls are sent late, so that those who wait for them give up soon after. They took the room of all who came later, of
/// whom nobody was sent, nor told anything at all.
#[tokio::test]
async fn calls_that_nobody_waits_for_any_more_take_no_room() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store_with_timeout(Duration::from_millis(300));
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    server.signal("STOP");
    let ask = |rate| {
        let store = store.clone();
        tokio::spawn(async move { take(&store, "bucket", rate).await })
    };
    // By two rules, which share no call.
    let asked = [ask(10), ask(20)];
    let held_up = tokio::spawn(async {
        let since = Stopwatch::start();
        wait_for(|| since.elapsed() > Duration::from_millis(200));
    });
    for answer in asked {
        assert_eq!(answer.await.expect("a task"), Err(StoreError::Timeout));
    }
    held_up.await.expect("a task");
    let next = tokio::time::timeout(PATIENCE, ask(10)).await.expect("it is told something");
    assert_eq!(next.expect("a task"), Err(StoreError::Timeout));
    server.signal("CONT");
    assert!(told_at_last(&store, 10).await.is_ok());
}

/// It accepts one client more than it serves, and tells that one so. A gateway took that for a connection that broke later, and
/// opened the next without growing pauses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_has_no_room_for_a_connection_is_tried_again_with_pauses() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    let mut set = |most: u32| cmd("CONFIG").arg("SET").arg("maxclients").arg(most).exec(&mut redis).expect("set");
    set(1);
    let store = server.store_with_timeout(Duration::from_millis(300));
    assert!(take(&store, "bucket", 10).await.is_err());
    let tried = Stopwatch::start();
    wait_for(|| tried.elapsed() > Duration::from_millis(300));
    set(100);
    let about: InfoDict = cmd("INFO").arg("stats").query(&mut redis).expect("statistics");
    let connections: u64 = about.get("total_connections_received").expect("a number");
    assert!(connections < 6, "{connections} connections");
    assert_eq!(told_at_last(&store, 10).await, Ok(9));
}

/// As long as several calls about limiters of others were under way, nobody else was sent, nor told that their time was over.
#[tokio::test]
async fn who_shares_a_call_has_a_turn_beside_any_number_of_limiters_of_others() {
    let Some(server) = RedisServer::start() else { return };
    let (store, answered) = (server.store(), Arc::new(AtomicU32::new(0)));
    let charge = configured("java", 1_000_000, 60_000, 1);
    let crowd: Vec<_> = (0..16)
        .map(|_| {
            let (store, charge, answered) = (store.clone(), charge.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                for _ in 0..200 {
                    store.take(std::slice::from_ref(&charge)).await.expect("a decision");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 100 {
        tokio::task::yield_now().await;
    }
    let before = answered.load(Ordering::Relaxed);
    assert_eq!(take(&store, "bucket", 10).await, Ok(9));
    let meanwhile = answered.load(Ordering::Relaxed) - before;
    assert!(meanwhile < 100, "{meanwhile} others had their turns first");
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A function that could write is refused before it runs, and then nobody was told of any limit.
/// Up to version 6, Redis told so at the end of an error about the script, and the connection was kept.
#[tokio::test]
async fn a_redis_that_takes_no_writes_any_more_is_connected_to_anew() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert_eq!(take(&store, "lim", 3).await, Ok(2));
    let before = numbers(&mut redis);
    cmd("REPLICAOF").arg(&["127.0.0.1", "1"]).exec(&mut redis).expect("a replica");
    assert_eq!(take(&store, "lim", 3).await, Err(StoreError::ErrorReply("READONLY".to_owned())));
    cmd("REPLICAOF").arg(&["NO", "ONE"]).exec(&mut redis).expect("no replica");
    let again = async || while take(&store, "lim", 3).await.is_err() {};
    tokio::time::timeout(PATIENCE, again()).await.expect("a decision");
    let after = numbers(&mut redis);
    assert!(after.iter().all(|number| !before.contains(number)), "{before:?} {after:?}");
}

#[tokio::test]
async fn a_redis_without_memory_refuses_who_is_to_be_refused_and_fails_for_new_buckets() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let granted = async |name| {
        let outcome = store.take(&[overall(name, 2, 3_600_000, 1)]).await?;
        Ok::<bool, StoreError>(outcome.granted())
    };
    let mut memory = |most: &str| cmd("CONFIG").arg(&["SET", "maxmemory", most]).exec(&mut redis).expect("set");
    assert_eq!((granted("full").await, granted("full").await), (Ok(true), Ok(true)));
    assert_eq!(granted("half").await, Ok(true));
    memory("1");
    assert_eq!(granted("full").await, Ok(false));
    assert_eq!(granted("new").await, Err(StoreError::ErrorReply("OOM".to_owned())));
    // One that is there already may be charged or not; either way it is as full as it was said to be.
    let charged = granted("half").await == Ok(true);
    memory("0");
    assert_eq!((granted("half").await, granted("half").await), (Ok(!charged), Ok(false)));
    assert_eq!((granted("new").await, granted("new").await, granted("new").await), (Ok(true), Ok(true), Ok(false)));
}
