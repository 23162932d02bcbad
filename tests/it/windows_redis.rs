//! The keys of the window algorithms in Redis, and their expiry.

use std::path::PathBuf;
use std::sync::Arc;

use deadpool_redis::redis::Commands;
use tidegate::Timestamp;
use tidegate::redisson::Mode;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota};
use tidegate_rules::charge::{Charge, Limiter};

use crate::support::overall;
use crate::support::redis::RedisServer;

const HOUR: i64 = 3_600_000;

fn charge(algorithm: Algorithm, interval: u64, rate: u64) -> Charge {
    let quota = Quota::new(rate, interval, algorithm).expect("a quota");
    Charge::new(Arc::new(Limiter::new("lim".into(), Mode::Overall, quota)), None, 1)
}

fn monthly(rate: u64) -> Charge {
    charge(Algorithm::FixedWindow(Calendar::new(Unit::Month, "Europe/Rome").expect("a calendar")), 1, rate)
}

/// Returns the last bytes of a number.
fn big_endian(number: u64, bytes: usize) -> Vec<u8> {
    number.to_be_bytes()[8 - bytes..].to_vec()
}

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn monthly_quota_survives_a_crash_of_redis() {
    let folder = Folder::new("monthly");
    let Some(server) = RedisServer::start_in(&folder.0) else { return };
    let store = server.store();
    for left in [2, 1] {
        let outcome = store.take(&[monthly(3)]).await.expect("a decision");
        assert_eq!(outcome.decisions[0].remaining, left);
    }
    // Drop kills the server without a shutdown.
    drop(server);
    let server = RedisServer::start_in(&folder.0).expect("Redis restarts");
    let store = server.store();
    let outcome = store.take(&[monthly(3)]).await.expect("a decision");
    let decision = outcome.decisions[0];
    assert_eq!((decision.granted, decision.remaining), (true, 0));
    assert!(!store.take(&[monthly(3)]).await.expect("a decision").granted());

    let ttl: i64 = server.connection().pttl("lim:window").expect("a time to live");
    let rest = decision.reset.cast_signed();
    assert!((rest - 10_000..=rest + HOUR).contains(&ttl), "the month ends in {rest} ms, the key in {ttl} ms");
}

#[tokio::test]
async fn counters_share_one_key_that_refusals_do_not_extend() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    let day = Algorithm::FixedWindow(Calendar::new(Unit::Day, "UTC").expect("a calendar"));
    let segments = Algorithm::SlidingWindow { segments: 10 };
    for (key, charge, ends, live) in [
        ("lim:window", charge(day, 1, 2), 1_700_006_400_000_u64, 6_400_000 + HOUR),
        ("lim:segments", charge(segments, 60_000, 2), 1_700_000_004_000, 124_000),
    ] {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let take = async || store.take_at(std::slice::from_ref(&charge), now).await.expect("a decision").granted();
        assert!(take().await && take().await);
        // The permits and the end of the only entry, all permits, no interval, no skipped entries, the format, one
        // entry.
        let value: Vec<u8> = redis.get(key).expect("a string");
        let numbers = [(2, 5), (ends, 6), (2, 5), (0, 5), (0, 2), (3, 1), (1, 4)];
        assert_eq!(value, numbers.map(|(number, bytes)| big_endian(number, bytes)).concat());
        let ttl: i64 = redis.pttl(key).expect("a time to live");
        assert!((live - 10_000..=live).contains(&ttl), "{key} lives for {ttl} ms, not {live}");

        redis.pexpire::<_, ()>(key, 30_000).expect("set");
        assert!(!take().await);
        let ttl: i64 = redis.pttl(key).expect("a time to live");
        assert!(ttl <= 30_000, "a refusal extended {key} to {ttl} ms");
    }
    assert_eq!(redis.keys::<_, Vec<String>>("*lim*").expect("keys").len(), 2);
}

#[tokio::test]
async fn limits_of_all_algorithms_are_decided_together() {
    let Some(server) = RedisServer::start() else { return };
    let store = server.store();
    let sliding = || charge(Algorithm::SlidingWindow { segments: 10 }, 60_000, 5);
    let all = [overall("bucket", 5, 60_000, 1), sliding(), monthly(1)];
    let granted = store.take(&all).await.expect("a decision");
    assert!(granted.granted());
    let refused = store.take(&all).await.expect("a decision");
    let told: Vec<_> = refused.decisions.iter().map(|one| (one.granted, one.remaining)).collect();
    assert_eq!(told, [(true, 4), (true, 4), (false, 0)]);
    store.give_back(&granted.granted_charges(&all)).await.expect("given back");
    assert!(store.take(&[monthly(1)]).await.expect("a decision").granted());
}
