//! The format of buckets in Redis: one string for each bucket, which expires when all permits have returned.

use deadpool_redis::redis::{Commands, cmd};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_limit::clock::Stopwatch;

use crate::support::redis::RedisServer;
use crate::support::{overall, per_client};

const NOW: u64 = 1_700_000_000_000;

async fn take(
    store: &ReplayStore,
    charge: tidegate_rules::charge::Charge,
    now: u64,
) -> tidegate_rules::charge::Decision {
    store.take_at(&[charge], Timestamp::from_millis(now)).await.expect("a decision").decisions[0]
}

/// Encodes numbers in big-endian order, each with its number of bytes.
fn packed(numbers: &[(u64, usize)]) -> Vec<u8> {
    numbers.iter().flat_map(|(number, bytes)| number.to_be_bytes()[8 - bytes..].to_vec()).collect()
}

#[tokio::test]
async fn bucket_is_one_string_with_its_grants() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    assert!(take(&store, overall("lim", 10, 1_000, 3), NOW).await.granted);
    assert!(take(&store, overall("lim", 10, 1_000, 4), NOW + 5).await.granted);
    let entries = packed(&[(3, 5), (NOW, 6), (4, 5), (NOW + 5, 6)]);
    // The permits of all entries, the interval, the entries to skip, the format, and the number of entries.
    let end = packed(&[(7, 5), (1_000, 5), (0, 2), (3, 1), (2, 4)]);
    let value: Vec<u8> = redis.get("lim").expect("a string");
    assert_eq!(value, [entries, end].concat());
    assert_eq!(redis.keys::<_, Vec<String>>("*lim*").expect("keys"), ["lim"]);
}

#[tokio::test]
async fn invalid_bucket_counts_as_empty() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    for invalid in [packed(&[(1, 1), (9, 6), (1_000, 5), (NOW, 6), (9, 5)]), vec![0; 600], b"x".to_vec(), Vec::new()] {
        redis.set::<_, _, ()>("lim", &invalid).expect("set");
        assert_eq!(take(&store, overall("lim", 10, 1_000, 1), NOW).await.remaining, 9, "{invalid:?}");
        assert_eq!(take(&store, overall("lim", 10, 1_000, 11), NOW).await.remaining, 9, "{invalid:?}");
    }
    redis.del::<_, ()>("lim").expect("deleted");
    redis.hset::<_, _, _, ()>("lim", "rate", 10).expect("a hash");
    assert_eq!(take(&store, overall("lim", 10, 1_000, 1), NOW).await.remaining, 9);
}

#[tokio::test]
async fn length_of_a_full_log_is_bounded() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    for grant in 0..3_000 {
        assert!(take(&store, overall("lim", 1_000_000, 60_000, 100), NOW + 60 * grant).await.granted);
        let bytes: usize = redis.strlen("lim").expect("a length");
        assert!(bytes <= 17 + 2 * 513 * 11, "{bytes} bytes after {grant}");
    }
    let left = take(&store, overall("lim", 1_000_000, 60_000, 0), NOW + 60 * 2_999).await.remaining;
    // Permits can return up to one merge step late, 118 ms here.
    assert!((1_000_000 - 100_300..=1_000_000 - 100_000).contains(&left), "{left}");
    assert!(redis.pttl::<_, i64>("lim").expect("a time to live") > 50_000);
}

#[tokio::test]
async fn bucket_key_has_a_hash_of_the_client() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    for client in [&b"a"[..], b"b", b"}{:\r\n\0\xff"] {
        assert!(take(&store, per_client("{tidegate:r}:l", client, 1, 1_000, 1), NOW).await.granted);
    }
    let keys: Vec<String> = redis.keys("{tidegate:r}:l:*").expect("keys");
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| key.len() == "{tidegate:r}:l:".len() + 32), "{keys:?}");
}

#[tokio::test]
async fn unused_bucket_expires_despite_refusals() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let charge = || per_client("lim", b"c", 1, 3_000, 1);
    let since = Stopwatch::start();
    assert!(store.take(&[charge()]).await.expect("a decision").granted());
    let keys: Vec<String> = redis.keys("*lim*").expect("keys");
    let [key] = &keys[..] else { panic!("{keys:?}") };
    let mut ttl = || redis.pttl::<_, i64>(key).expect("a time to live");
    let first = ttl();
    let elapsed = i64::try_from(since.elapsed().as_millis()).expect("a short time");
    assert!((3_000 - elapsed..=4_000).contains(&first), "time to live: {first} ms after {elapsed} ms");
    assert!(!store.take(&[charge()]).await.expect("a decision").granted());
    assert!(ttl() <= first);
    for _ in 0..500 {
        if redis.keys::<_, Vec<String>>("*lim*").expect("keys").is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("waited 10 s until the keys expire");
}

/// A gateway with a shorter interval keeps the grants that a gateway with a longer interval still counts. The longer
/// interval is forgotten some time after its last use.
#[tokio::test]
async fn longer_interval_of_another_rule_is_remembered() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let mut format = || redis.get::<_, Vec<u8>>("lim").expect("a string").into_iter().rev().nth(4);
    assert!(take(&store, overall("lim", 10, 2_000, 1), NOW).await.granted);
    assert_eq!(format(), Some(3));
    assert!(take(&store, overall("lim", 10, 1_000, 1), NOW + 10).await.granted);
    assert_eq!(format(), Some(4));
    assert_eq!(take(&store, overall("lim", 10, 2_000, 0), NOW + 1_500).await.remaining, 8);
    // The retention time of the longer interval has ended.
    assert!(take(&store, overall("lim", 10, 1_000, 1), NOW + 7_000).await.granted);
    assert_eq!(format(), Some(3));
}

#[tokio::test]
async fn script_is_loaded_again_after_a_flush() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    assert!(take(&store, overall("lim", 2, 1_000, 1), NOW).await.granted);
    cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    let second = take(&store, overall("lim", 2, 1_000, 1), NOW).await;
    assert_eq!((second.granted, second.remaining), (true, 0));
}

#[tokio::test]
async fn truncated_bucket_counts_as_empty() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    for (permits, at) in [(3, NOW), (4, NOW + 5)] {
        assert!(take(&store, overall("lim", 10, 1_000, permits), at).await.granted);
    }
    let value: Vec<u8> = redis.get("lim").expect("a string");
    redis.set::<_, _, ()>("lim", &value[..value.len() - 4]).expect("cut");
    assert!(take(&store, overall("lim", 10, 1_000, 10), NOW + 6).await.granted);
    assert!(redis.pttl::<_, i64>("lim").expect("a time to live") > 0);
}

/// The script counts the entries of a bucket before it refuses a request.
#[tokio::test]
async fn wrong_total_is_corrected_before_a_refusal() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let entries = packed(&[(3, 5), (NOW, 6), (4, 5), (NOW + 5, 6)]);
    let with_total = |permits| [entries.clone(), packed(&[(permits, 5), (1_000, 5), (0, 2), (3, 1), (2, 4)])].concat();

    redis.set::<_, _, ()>("lim", with_total(70)).expect("set");
    assert_eq!(take(&store, overall("lim", 10, 1_000, 3), NOW + 6).await.remaining, 0);

    redis.set::<_, _, ()>("lim", with_total(4)).expect("set");
    assert!(take(&store, overall("lim", 10, 1_000, 6), NOW + 6).await.granted);
    // Thirteen permits are in use.
    assert!(!take(&store, overall("lim", 10, 1_000, 1), NOW + 7).await.granted);
    assert!(!take(&store, overall("lim", 10, 1_000, 1), NOW + 1_000).await.granted);
    assert!(take(&store, overall("lim", 10, 1_000, 4), NOW + 1_005).await.granted);
}

/// Regression test: more permits returned than the total said, so the bucket had more permits than its rate.
#[tokio::test]
async fn wrong_total_never_exceeds_the_rate() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let entries = packed(&[(60, 5), (NOW, 6), (4, 5), (NOW + 900, 6)]);
    let end = packed(&[(4, 5), (1_000, 5), (0, 2), (3, 1), (2, 4)]);
    redis.set::<_, _, ()>("lim", [entries, end].concat()).expect("set");
    assert_eq!(take(&store, overall("lim", 10, 1_000, 1), NOW + 1_000).await.remaining, 5);
    assert!(!take(&store, overall("lim", 10, 1_000, 6), NOW + 1_000).await.granted);
}
