//! What lies in Redis is what Redisson puts there, so that a Java service can share a bucket.

use std::collections::HashMap;

use deadpool_redis::redis::{Commands, Connection, cmd};
use tidegate::clock::Timestamp;
use tidegate::store::Store;

use crate::support::redis::{RedisServer, fresh_name};
use crate::support::redisson::Peer;
use crate::support::{overall, per_client};

const NOW: u64 = 1_700_000_000_000;

async fn take(store: &Store, charge: tidegate::limit::Charge, now: u64) -> tidegate::limit::Decision {
    store.take_at(&[charge], Timestamp::from_millis(now)).await.expect("a decision").decisions[0]
}

fn entries(redis: &mut Connection, key: &str) -> Vec<(Vec<u8>, u64)> {
    redis.zrange_withscores(key, 0, -1).expect("a sorted set")
}

#[tokio::test]
async fn the_hash_the_counter_and_the_log_are_those_of_redisson() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert!(take(&store, overall("lim", 10, 1_000, 3), NOW).await.granted);

    let hash: HashMap<String, String> = redis.hgetall("lim").expect("a hash");
    let fields = [("rate", "10"), ("interval", "1000"), ("keepAliveTime", "2000"), ("type", "0")];
    assert_eq!(hash, fields.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    assert_eq!(redis.get::<_, String>("{lim}:value").expect("a counter"), "7");
    let log = entries(&mut redis, "{lim}:permits");
    assert_eq!((log.len(), log[0].1, log[0].0.len()), (1, NOW, 21));
    assert_eq!((log[0].0[0], &log[0].0[17..]), (16, &3_u32.to_le_bytes()[..]));
}

#[tokio::test]
async fn a_client_has_a_bucket_of_its_own_under_a_hash_of_what_it_sent() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for client in [&b"a"[..], b"b", b"}{:\r\n\0\xff"] {
        assert!(take(&store, per_client("{tidegate:r}:l", client, 1, 1_000, 1), NOW).await.granted);
    }
    let keys: Vec<String> = redis.keys("{tidegate:r}:l:value:*").expect("keys");
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| key.len() == "{tidegate:r}:l:value:".len() + 32), "{keys:?}");
    let kind: String = redis.hget("{tidegate:r}:l", "type").expect("a type");
    assert_eq!(kind, "1");
}

#[tokio::test]
async fn everything_expires_once_unused_and_refusals_keep_nothing_alive() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let charge = || per_client("lim", b"c", 1, 300, 1);
    assert!(store.take(&[charge()]).await.expect("a decision").granted());
    let keys: Vec<String> = redis.keys("*lim*").expect("keys");
    assert_eq!(keys.len(), 3);
    for key in &keys {
        let ttl: i64 = redis.pttl(key).expect("a time to live");
        assert!((1..=600).contains(&ttl), "{key} lives for {ttl} ms");
    }
    assert!(!store.take(&[charge()]).await.expect("a decision").granted());
    let later: Vec<i64> = keys.iter().map(|key| redis.pttl(key).expect("a time to live")).collect();
    assert!(later.iter().all(|ttl| *ttl <= 600), "{later:?}");
    for _ in 0..200 {
        if redis.keys::<_, Vec<String>>("*lim*").expect("keys").is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("keys are left behind");
}

/// Whatever is done to the counter, the log is the truth: Redisson's `release()` raises it, a resent acquire lowers it.
#[tokio::test]
async fn a_counter_that_was_tampered_with_heals_from_the_log() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for tampered in [Some("10"), Some("0"), Some("-3"), Some("1000000"), Some("nonsense"), None] {
        let name = fresh_name();
        let value = format!("{name}:value");
        assert!(take(&store, overall(&name, 10, 1_000, 6), NOW).await.granted);
        match tampered {
            Some(counter) => redis.set(&value, counter).expect("set"),
            None => redis.del(&value).expect("deleted"),
        }
        assert!(!take(&store, overall(&name, 10, 1_000, 5), NOW + 1).await.granted, "{tampered:?}");
        assert!(take(&store, overall(&name, 10, 1_000, 3), NOW + 2).await.granted, "{tampered:?}");
        assert_eq!(redis.get::<_, String>(&value).expect("a counter"), "1", "{tampered:?}");
        assert!(redis.pttl::<_, i64>(&value).expect("a time to live") > 0);
    }
}

#[tokio::test]
async fn entries_that_redisson_wrote_count() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    // The golden vector: 3 permits, random bytes a0 .. af.
    let mut member = vec![0x10];
    member.extend(0xa0..=0xaf_u8);
    member.extend(3_u32.to_le_bytes());
    cmd("ZADD").arg("{lim}:permits").arg(NOW).arg(&member).exec(&mut redis).expect("added");
    cmd("SET").arg("{lim}:value").arg(7).exec(&mut redis).expect("set");
    let refused = take(&store, overall("lim", 10, 1_000, 8), NOW + 100).await;
    assert_eq!((refused.granted, refused.remaining), (false, 7));
    assert!(take(&store, overall("lim", 10, 1_000, 7), NOW + 100).await.granted);
    assert!(take(&store, overall("lim", 10, 1_000, 3), NOW + 1_000).await.granted);
}

/// Rules with different intervals side by side: a zero before the interval says that there is more in the hash, and is gone
/// with it. Redisson reads the same number.
#[tokio::test]
async fn an_interval_begins_with_a_zero_while_another_one_is_retained() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut peer) = (server.store(), Peer::new(server.connection(), "lim", ""));
    let mut redis = server.connection();
    let mut hash = || -> [Option<String>; 2] { redis.hmget("lim", &["interval", "retain"]).expect("two fields") };
    assert!(take(&store, overall("lim", 10, 2_000, 1), NOW).await.granted);
    assert_eq!(hash(), [Some("2000".to_owned()), None]);
    assert!(take(&store, overall("lim", 10, 1_000, 1), NOW + 10).await.granted);
    assert_eq!(hash(), ["01000", "2000"].map(|text| Some(text.to_owned())));
    assert_eq!(peer.acquire(8, NOW + 20), None);
    // Three milliseconds more than its interval, since the first entry.
    assert_eq!(peer.acquire(1, NOW + 20), Some(3 + 1_000 - 20));
    // After the time for which it is retained, the interval of the only rule is plain again.
    assert!(take(&store, overall("lim", 10, 1_000, 1), NOW + 5_000).await.granted);
    assert_eq!(hash(), [Some("1000".to_owned()), None]);
}

#[tokio::test]
async fn a_redis_that_forgot_the_script_is_given_it_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert!(take(&store, overall("lim", 2, 1_000, 1), NOW).await.granted);
    cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    let second = take(&store, overall("lim", 2, 1_000, 1), NOW).await;
    assert_eq!((second.granted, second.remaining), (true, 0));
}
